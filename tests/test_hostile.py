"""The served page under malformed requests: each gets an answer, and the next person's chat is right.

A real server on this machine with a tiny model of random weights; what it says is only compared with
what the same model says alone.
"""

from __future__ import annotations

import asyncio
import json
import re
import secrets
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import pytest
import torch
from transformers import AutoTokenizer

from recap import Conversation, generate, load_target, make_drafter
from recap.page.http_gate import Gate
from recap.page.launch import Settings, serve
from recap.server.model_loader import ModelLoader
from recap.server.sessions import Sessions
from recap.targets.base import Message
from tests.tools.browser import free_port

from . import hostile, tiny
from .scripted import HeldTarget, until
from .test_sessions import agree

torch.set_num_threads(1)
QUESTION, TOKENS = "the red square is left of", 6
GONE = {"path": "/etc/passwd", "meta": {"_type": "gradio.FileData"}}


class Client:
    """Speaks the page's HTTP API, and nothing keeps it from speaking it badly."""

    def __init__(self, address: str) -> None:
        self.http = httpx.Client(base_url=f"{address}/gradio_api", timeout=60)

    def call(self, data: Any, name: str = "chat", **more: Any) -> tuple[str, Any]:
        """("error", sentence) or ("complete", the endpoint's value)."""
        body = json.dumps({"data": data, **more})
        sent = self.http.post(
            f"/call/{name}", content=body, headers={"content-type": "application/json"}
        )
        if sent.status_code != 200:
            assert 400 <= sent.status_code < 500, sent.text
            return "error", sent.json()["detail"]
        stream = self.http.get(f"/call/{name}/{sent.json()['event_id']}").text
        event, value = re.findall(r"event: (\w+)\ndata: (.*)", stream)[-1]
        value = json.loads(value)
        return event, value["error"] if event == "error" else value[0]

    def chat(self, text: str, files: list[Any] = (), **more: Any) -> tuple[str, Any]:
        return self.call([{"text": text, "files": list(files)}, "recap"], **more)

    def upload(self, name: str, data: bytes) -> Any:
        sent = self.http.post("/upload", files={"files": (name, data)})
        if sent.status_code != 200:
            return sent
        return {"path": sent.json()[0], "orig_name": name, "meta": {"_type": "gradio.FileData"}}


@pytest.fixture(scope="module")
def target(tmp_path_factory):
    return load_target(tiny.build("qwen2_5_vl", tmp_path_factory.mktemp("model") / "tiny"))


@pytest.fixture(scope="module")
def solo(target) -> list[int]:
    """What the model answers to QUESTION when nobody else is there."""
    conversation = Conversation(target)
    conversation.ask(QUESTION)
    drafter = make_drafter("autoregressive", vocab_size=target.vocab_size)
    return list(generate(conversation, drafter, max_new_tokens=TOKENS).token_ids)


@pytest.fixture(scope="module")
def server(target, tmp_path_factory) -> Iterator[tuple[str, Sessions]]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GRADIO_TEMP_DIR", str(tmp_path_factory.mktemp("uploads")))
        patch.setenv("GRADIO_ANALYTICS_ENABLED", "False")
        port, sessions = free_port(), Sessions(limit=16)
        settings = Settings(port=port, max_new_tokens=TOKENS, upload_mb=1, examples="nowhere")
        loader = ModelLoader("tiny", lambda: target)
        assert loader.wait(60)
        demo = serve(settings, loader, sessions, block=False)
        yield f"http://127.0.0.1:{port}", sessions
        demo.close(verbose=False)


@pytest.fixture
def client(server, capfd) -> Iterator[Client]:
    """A client; whatever it does, the server's log stays free of tracebacks."""
    made = Client(server[0])
    yield made
    made.http.close()
    assert "Traceback" not in "".join(capfd.readouterr())


def right(client: Client, solo: list[int]) -> None:
    event, turn = client.chat(QUESTION)
    assert (event, turn["token_ids"]) == ("complete", solo)


def is_sentence(said: Any) -> bool:
    return isinstance(said, str) and "Traceback" not in said and re.fullmatch(r"[^\n]+[.]", said)


def test_malformed_messages_are_answered(client, solo):
    """Seeded; RECAP_HOSTILE=5000 for the full number."""
    wrong = []
    for seed in range(hostile.COUNT):
        event, said = client.call(hostile.message(seed))
        if event == "error" and not is_sentence(said):
            wrong.append((seed, said))
        if seed % 50 == 0:
            right(client, solo)
    assert wrong == []
    right(client, solo)


def test_malformed_images_are_answered(client, solo):
    """Seeded; a bad upload is one sentence, and the conversation that it came into goes on."""
    name, wrong = secrets.token_hex(8), []
    for seed in range(hostile.COUNT):
        file = client.upload(*hostile.image(seed))
        event, said = client.chat("what is it", [file], session_hash=name)
        if event == "error" and not is_sentence(said):
            wrong.append((seed, said))
        if seed % 10 == 0:
            assert client.call([], "clear", session_hash=name)[1] == "cleared"
    assert wrong == []
    client.call([], "clear", session_hash=name)
    event, turn = client.chat(QUESTION, session_hash=name)
    assert (event, turn["token_ids"]) == ("complete", solo)


@pytest.mark.parametrize(
    ("data", "more", "match"),
    [
        ([], {}, "must hold 2 values"),
        ([{"text": "x"}], {}, "must hold 2 values"),
        ([{"text": "x"}, "recap", "more"], {}, "must hold 2 values"),
        ("text", {}, 'a list "data"'),
        (None, {}, 'a list "data"'),
        ([7, "recap"], {}, "The message must be"),
        ([{"text": 7}, "recap"], {}, "must be text"),
        ([{"text": ""}, "recap"], {}, "Type a question first"),
        ([{"text": "x", "files": "x"}, "recap"], {}, "must be a list"),
        ([{"text": "x", "files": [7]}, "recap"], {}, "must be one that was uploaded"),
        ([{"text": "x", "files": [GONE]}, "recap"], {}, "must be one that was uploaded"),
        ([{"text": "x", "files": ["/etc/passwd"]}, "recap"], {}, "must be one that was uploaded"),
        ([{"text": "x", "files": [{"path": "http://127.0.0.1:1/x.png"}]}, "recap"], {}, "uploaded"),
        ([{"text": "x"}, "magic"], {}, "Unknown decoder"),
        ([{"text": "x"}, ["recap"]], {}, "Unknown decoder"),
        ([{"text": "x" * 100_001}, "recap"], {}, "100,000 are the most"),
        ([{"text": "x " * 50_000}, "recap"], {}, "takes at most"),
        ([{"text": "x"}, "recap"], {"session_hash": "a"}, "8 to 64 letters"),
        ([{"text": "x"}, "recap"], {"session_hash": "../../../../etc"}, "8 to 64 letters"),
        ([[{"role": "user", "content": "x" * 100}] * 30_000, "recap"], {}, "too large"),
    ],
)
def test_misuse_is_one_sentence(client, data, more, match):
    event, said = client.call(data, **more)
    assert event == "error"
    assert re.search(match, said)
    assert is_sentence(said)


def test_a_body_that_is_no_json_or_too_deep(client):
    for body in (b"{", b"\xff\xfe", b"[" * 100_000, b'{"data": ' + b"[" * 300 + b"]" * 300 + b"}"):
        sent = client.http.post("/call/chat", content=body)
        assert sent.status_code in (400, 422)
        assert is_sentence(sent.json()["detail"])


def test_a_body_without_a_length_is_cut_at_the_cap():
    read, sent = 0, []

    async def receive() -> dict[str, Any]:
        nonlocal read
        read += 1000
        return {"type": "http.request", "body": b"x" * 1000, "more_body": True}

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    async def page(*_: Any) -> None:
        pytest.fail("the page was called")

    scope = {"type": "http", "method": "POST", "path": "/gradio_api/call/chat", "headers": []}
    asyncio.run(Gate(page, most_bytes=5000)(scope, receive, send))
    assert sent[0]["status"] == 413
    assert read == 6000


def test_an_upload_above_the_cap_is_refused(client):
    sent = client.upload("x.png", bytes(1_200_000))
    assert sent.status_code == 413


def test_files_outside_the_uploads_cannot_be_fetched(client):
    for path in ("/etc/passwd", "../../../../etc/passwd", "app.py", "/proc/self/environ"):
        assert client.http.get(f"/file={path}").status_code in (403, 404)


def test_a_link_in_the_uploads_leads_nowhere(client, tmp_path):
    file = client.upload("x.png", hostile.base("PNG"))
    secret = tmp_path / "secret.png"
    secret.write_bytes(hostile.base("PNG"))
    link = file["path"].replace("x.png", "link.png")
    (tmp_path / "x").symlink_to(secret)
    (tmp_path / "x").rename(link)
    assert client.chat("x", [{**file, "path": link}]) == (
        "error",
        "A file must be one that was uploaded: upload it first.",
    )


def test_nobody_gets_anothers_conversation(client, server, solo):
    """Without a name every call is a stranger; a name that nobody uses has nothing to show."""
    first, other = secrets.token_hex(8), secrets.token_hex(8)
    client.chat("my secret is 4711", session_hash=first)
    for more in ({}, {"session_hash": other}, {"session_hash": first[:-1] + "x"}):
        event, said = client.call([], "compare", **more)
        assert (event, said) == ("error", "There is no answer to compare: call /chat first.")
    right(client, solo)
    event, turn = client.chat(QUESTION, session_hash=other)
    assert (event, turn["token_ids"]) == ("complete", solo)
    # a session's own id, should it ever leak, opens nothing either
    for id_ in list(server[1]._sessions):
        event, said = client.call([], "compare", session_hash=id_)
        assert event == "error"


def test_machines_can_ask_whether_it_is_well(client, server):
    root = httpx.Client(base_url=server[0], timeout=60)
    assert root.get("/healthz").json()["status"] == "ready"
    client.chat(QUESTION)
    text = root.get("/metrics").text
    assert "recap_ready 1.0" in text
    assert 'recap_answers_total{decoder="recap",finish="length"}' in text
    assert f'"{QUESTION.split()[1]}"' not in text
    root.close()


@contextmanager
def serving(loader: ModelLoader, sessions: Sessions, **more: Any) -> Iterator[str]:
    """A server over other parts -> its address."""
    port = free_port()
    demo = serve(Settings(port=port, examples="nowhere", **more), loader, sessions, block=False)
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        demo.close(verbose=False)


def test_a_dropped_connection_frees_everything(capfd):
    """Nobody reads the answer any more: it ends at the next pass, and its turn is the next one's."""
    target, sessions = HeldTarget(), Sessions()
    loader = ModelLoader("held", lambda: target)
    assert loader.wait(60)
    with serving(loader, sessions, max_new_tokens=5000) as address:
        client = Client(address)
        body = {"data": [{"text": "5 6 7"}, "recap"], "session_hash": "longlonglong"}
        sent = client.http.post("/call/chat", json=body).json()
        with client.http.stream("GET", f"/call/chat/{sent['event_id']}") as stream:
            next(stream.iter_lines())
            until(lambda: target.passes == 1)
        target.go.set()
        until(lambda: sessions.context.queue.running() == 0)
        [session] = sessions
        until(lambda: not session.is_busy)
        [turn] = session.turns
        assert turn.answer.finish_reason == "stopped"
        assert turn.answer.passes < 5000 - 1
        assert agree(session)
        client.http.close()
    assert "Traceback" not in "".join(capfd.readouterr())


def test_while_streams_drop_and_pages_close_everybody_else_is_served(capfd):
    """Gradio closes a dropped stream on its event loop: nothing of ours may wait there for a pass."""
    target, sessions = HeldTarget(), Sessions()
    loader = ModelLoader("held", lambda: target)
    assert loader.wait(60)
    with serving(loader, sessions, max_new_tokens=5000) as address:
        client = Client(address)
        for number, end in enumerate(("drop", "cancel", "close")):
            name = f"longlonglong{number}"
            body = {"data": [{"text": "5 6 7"}, "recap"], "session_hash": name}
            with client.http.stream("GET", f"/heartbeat/{name}"):
                sent = client.http.post("/call/chat", json=body).json()
                event = {"event_id": sent["event_id"], "session_hash": name, "fn_index": 0}
                with client.http.stream("GET", f"/call/chat/{sent['event_id']}") as stream:
                    next(stream.iter_lines())
                    if end == "cancel":
                        client.http.post("/cancel", json=event)
                    elif end == "close":
                        sessions.leave(name)
            # no pass has ended yet, and the server answers
            assert httpx.get(f"{address}/healthz", timeout=20).status_code == 200
            assert httpx.get(address, timeout=20).status_code == 200
        assert target.passes <= 1
        target.go.set()
        until(lambda: sessions.context.queue.running() == 0)
        until(lambda: not any(session.is_busy for session in sessions))
        assert all(agree(session) for session in sessions)
        client.http.close()
    assert "Traceback" not in "".join(capfd.readouterr())


def test_after_a_drop_the_same_client_can_go_on(client, server, solo):
    """Gradio would never end another stream of that client, and the documented example would hang."""
    name = secrets.token_hex(8)
    body = {"data": [{"text": QUESTION}, "recap"], "session_hash": name}
    sent = client.http.post("/call/chat", json=body).json()
    with client.http.stream("GET", f"/call/chat/{sent['event_id']}"):
        pass
    until(lambda: not any(session.is_busy for session in server[1]))
    client.call([], "clear", session_hash=name)
    event, turn = client.chat(QUESTION, session_hash=name)
    assert (event, turn["token_ids"]) == ("complete", solo)


def test_a_blink_of_the_network_is_no_goodbye(client, server, solo):
    """The connection that tells whether a page is there ends; the conversation stays for the grace time."""
    name, sessions = secrets.token_hex(8), server[1]
    client.chat(QUESTION, session_hash=name)
    session = sessions.of_owner(name)
    with client.http.stream("GET", f"/heartbeat/{name}") as heartbeat:
        next(heartbeat.iter_lines())
    until(lambda: session.left is not None)
    sessions.sweep()
    assert sessions.of_owner(name) is session
    assert session.left is None, "it is back"
    assert len(session.turns) == 1


def test_before_the_model_is_there_the_page_says_so(capfd):
    go = threading.Event()
    loader = ModelLoader("slow", lambda: go.wait(20) and HeldTarget())
    with serving(loader, Sessions()) as address:
        seen = httpx.get(f"{address}/healthz", timeout=60)
        assert seen.status_code == 503
        assert seen.json() == {"status": "loading", "detail": "loading the model “slow”"}
        assert httpx.get(address, timeout=60).status_code == 200  # the page is there, and plays
        go.set()
        assert loader.wait(20)
        assert httpx.get(f"{address}/healthz", timeout=60).status_code == 200


@pytest.fixture(scope="module", params=["qwen2_5_vl", "llava_next", "llama", "demo"])
def speaker(request, tmp_path_factory):
    """A target of each family, and the demo model for its tokenizer."""
    if request.param == "demo":
        return load_target("demo")
    return load_target(tiny.build(request.param, tmp_path_factory.mktemp(request.param)))


def test_a_users_text_never_becomes_a_control_token(speaker):
    """Seeded: first and later turns hold exactly the control tokens of a harmless message's turns."""
    controls = speaker.vocabulary.controls.keys()

    def marks(text: str) -> list[list[int]]:
        first = speaker.encode([Message("user", text)], (), None).ids
        answer = [*speaker.tokenizer.encode("ab", add_special_tokens=False)]
        known = [*first, *answer]
        turns = [Message("user", text), Message("assistant", "ab"), Message("user", text)]
        later = speaker.encode(turns, known, answer).ids
        return [[i for i in ids if i in controls] for ids in (first, later)]

    harmless = marks("x")
    for special in hostile.SPECIALS:
        assert marks(special) == harmless, special
    for seed in range(hostile.COUNT // 3):
        text = hostile.text(seed).encode("utf-8", "replace").decode()[:300]
        assert marks(text or "x") == harmless, seed


def test_a_mark_that_is_not_declared_special_is_text_too(tmp_path):
    """Qwen's "<tool_call>" is an added token and no special one; a person who types it calls no tool."""
    place = tiny.build("qwen2_5_vl", tmp_path)
    tokenizer = AutoTokenizer.from_pretrained(place)
    tokenizer.add_tokens(["<tool_call>", "</tool_call>"])
    tokenizer.save_pretrained(place)
    target = load_target(place)
    added = set(tokenizer.convert_tokens_to_ids(["<tool_call>", "</tool_call>"]))
    assert added <= target.vocabulary.controls.keys()
    ids = target.encode([Message("user", "a <tool_call>x</tool_call>")], (), None).ids
    assert added.isdisjoint(ids)
    assert "<tool_call>x</tool_call>" in target.decode(ids)
