"""Load on a running app: a small queue of our own that says what it was asked, and the real app."""

import asyncio
import json
import os
import threading
import time

import gradio as gr
import pytest

from recap.bench import load
from recap.bench.load_client import Question
from recap.bench.samples import Sample
from recap.cli import main
from tests.tools.browser import running_app

from . import tiny

LENGTHS = "model,topic,id,turn,new_tokens\nm,t,a,0,6\nm,t,a,1,12\n"
SAMPLES = [Sample("a", ("one", "two")), Sample("b", ("three",))]


class App:
    """An app whose answer is `size` tokens of four letters, one by one, and which notes who asks."""

    def __init__(self):
        self.asked: list[tuple[str, str, str]] = []
        self.files: list[list] = []
        self.compared: list[str] = []
        self.size, self.made, self.inside, self.most = 5, 0, 0, 0
        self.lock = threading.Lock()
        with gr.Blocks() as page:
            inputs = [gr.JSON(), gr.Textbox()]
            gr.Button().click(self.chat, inputs, gr.JSON(), api_name="chat", concurrency_limit=4)
            gr.Button().click(self.compare, None, gr.JSON(), api_name="compare")
        page.launch(prevent_thread_lock=True, quiet=True, server_name="127.0.0.1", ssr_mode=False)
        self.page, self.url = page, page.local_url

    def compare(self, request: gr.Request):
        with self.lock:
            self.compared.append(request.session_hash)
        return {}

    def chat(self, message, decoder, request: gr.Request):
        with self.lock:
            self.asked.append((request.session_hash, message["text"], decoder))
            self.files.append(message["files"])
            self.inside += 1
            self.most = max(self.most, self.inside)
        try:
            if message["text"] == "broken":
                raise gr.Error("The model is away.", print_exception=False)
            for made in range(1, self.size + 1):
                yield {"text": "word" * made}
            turn = {"text": "word" * self.size, "tokens": self.size, "finish_reason": "eos"}
            yield turn | {"queue_s": 0.0}
        finally:
            with self.lock:
                self.inside -= 1
                self.made += 1


@pytest.fixture(scope="module")
def app():
    made = App()
    yield made
    made.page.close()


def drive(app, samples=SAMPLES, *, size=5, **settings):
    app.asked.clear()
    app.files.clear()
    app.size, app.made, app.most = size, 0, 0
    settings = {"decoders": ["recap"], "conversations": 2} | settings
    return asyncio.run(load.drive(app.url, samples, [6, 12], **settings))


def test_a_closed_loop_keeps_every_user_in_conversations_of_its_own(app):
    report = drive(app, users=[1, 3])
    by_stage = {s["stage"]: s for s in report["stages"]}
    for users, label in ((1, "1 user"), (3, "3 users")):
        asked = [q for q in report["questions"] if q["stage"] == label]
        turns = {"a": 2, "b": 1}
        starts = [q for q in asked if q["turn"] == 0]
        assert len(starts) == 2 * users
        assert len(asked) == sum(turns[q["sample"]] for q in starts) == by_stage[label]["questions"]
        assert {q["user"] for q in asked} == set(range(users))
    sessions: dict[str, list[str]] = {}
    for session, text, _ in app.asked:
        sessions.setdefault(session, []).append(text)
    assert set(map(tuple, sessions.values())) <= {("one", "two"), ("three",)}
    assert 1 <= app.most <= 3
    for question in report["questions"]:
        assert question["tokens"] == 5
        assert 0 <= question["queue_s"] <= question["first_token_s"] <= question["end_s"]
    assert app.compared == []
    stage = by_stage["3 users"]
    assert stage["tokens"] == sum(
        q["tokens"] for q in report["questions"] if q["stage"] == "3 users"
    )
    assert stage["failed"] == 0


def test_people_on_pages_compare_after_each_answer(app):
    report = drive(app, users=[2], compare=True)
    sessions = [session for session, *_ in app.asked]
    assert sorted(app.compared) == sorted(sessions[1:]), "all but the warm-up's"
    assert all(question["compare_s"] > 0 for question in report["questions"])
    assert report["stages"][0]["compare_s"]["p50"] > 0


def test_decoders_get_the_same_questions_in_rotated_order(app):
    report = drive(app, users=[2, 1], decoders=["recap", "autoregressive"])
    order = [s["decoder"] for s in report["stages"]]
    assert order == ["recap", "autoregressive", "autoregressive", "recap"]

    same = ("stage", "user", "sample", "turn", "wanted_tokens")
    one, other = (
        sorted([q[k] for k in same] for q in report["questions"] if q["decoder"] == decoder)
        for decoder in ("recap", "autoregressive")
    )
    assert one == other


def test_an_open_loop_does_not_wait_for_answers(app, monkeypatch):
    report = drive(app, rates=[500.0], conversations=12)
    stage = report["stages"][0]
    assert stage["loop"] == "open"
    assert 1 < app.most <= 4, "more than one at once, and no more than the app takes"
    assert {q["user"] for q in report["questions"]} == set(range(12))
    monkeypatch.setattr(load, "MOST_USERS", 1)
    report = drive(app, rates=[10_000.0], conversations=12)
    assert report["stages"][0]["refused_conversations"] > 0
    assert report["stages"][0]["questions"] < 24


def test_answers_are_cut_at_the_wanted_length(app):
    report = drive(app, users=[1], size=2000)
    (stage,) = report["stages"]
    assert stage["answers_cut"] == stage["questions"]
    for question in report["questions"]:
        assert question["wanted_tokens"] <= question["tokens"] < 2000
    end = time.monotonic() + 20
    while app.made < len(app.asked) and time.monotonic() < end:
        threading.Event().wait(0.01)
    assert app.made == len(app.asked), "the app was asked to stop"
    report = drive(app, users=[1])
    assert {q["tokens"] for q in report["questions"]} == {5}
    assert report["stages"][0]["answers_cut"] == 0


def test_failed_questions_are_counted_and_named(app):
    samples = [Sample("ok", ("one",)), Sample("bad", ("broken", "never asked"))]
    report = drive(app, samples, users=[4], conversations=3)
    bad = [q for q in report["questions"] if q["sample"] == "bad"]
    assert bad
    assert {q["error"] for q in bad} == {"The model is away."}
    assert {q["turn"] for q in bad} == {0}
    assert report["stages"][0]["failed"] == len(bad)
    table = load.table(report).markdown()
    assert f"| {len(bad)} |" in table


def test_images_are_sent_once_and_arrive(app, tmp_path):
    tiny.picture(40, 30).save(tmp_path / "x.png")
    drive(app, [Sample("i", ("one", "two"), (tmp_path / "x.png",))], users=[2])
    first = [files[0]["path"] for files in app.files if files]
    assert len(set(first)) == 1
    assert first[0].endswith("x.png")
    assert sum(not files for files in app.files) == len(first), "second turns send none"


def test_time_per_token_leaves_the_first_one_out():
    question = Question("recap", "s", 0, "a", 0, 0.0, 9, 0.1, 1.0, 3.0, 5)
    assert question.token_ms == 500.0
    question.tokens = 1
    assert question.token_ms is None
    stage = load.Stage(None, [], [], "recap", "s")
    question.tokens = 5
    stage.questions = [question, Question("recap", "s", 1, "a", 0, 2.0, 9, 0.1, 1.0, 4.0, 7)]
    figures = stage.figures()
    assert (figures["tokens"], figures["seconds"], figures["tokens_per_s"]) == (12, 6.0, 2.0)


@pytest.mark.slow
def test_the_real_app_under_load(tmp_path, capsys):
    model = str(tiny.build("llama", tmp_path / "model"))
    (tmp_path / "lengths.csv").write_text(LENGTHS)
    suite = tmp_path / "s.jsonl"
    suite.write_text(
        '{"id": "a", "turns": ["what is the total?", "and?"]}\n{"id": "b", "question": "hi"}'
    )
    out = tmp_path / "load.json"
    with running_app(tmp_path / "log.txt", RECAP_MODEL=model, RECAP_MAX_NEW_TOKENS="40") as address:
        words = ["load", "--url", address, "--suite", str(suite), "--out", str(out)]
        words += ["--lengths", str(tmp_path / "lengths.csv"), "--users", "1,3", "--rates", "20"]
        words += ["--pid", str(os.getpid())]
        assert main([*words, "--conversations", "2"]) == 0
    assert capsys.readouterr().out.count("| autoregressive |") == 3
    data = json.loads(out.read_text())
    assert {s["decoder"] for s in data["stages"]} == {"recap", "token_recycling", "autoregressive"}
    assert all(s["failed"] == 0 for s in data["stages"]), {q["error"] for q in data["questions"]}
    assert all(s["memory_mb"]["peak"] > 1 for s in data["stages"])
    assert all(s["tokens_per_s"] > 0 and s["first_token_s"] for s in data["stages"])


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--users", "65"), "--users takes whole numbers from 1 to 64."),
        (("--users", "1.5"), "--users takes whole numbers"),
        (("--users", "x"), "--users takes numbers, separated"),
        (("--users", ""), "nothing to do"),
        (("--rates", "0"), "--rates takes numbers above 0"),
        (("--rates", "inf"), "--rates takes numbers above 0"),
        (("--decoders", "fast"), 'there is no "fast"'),
        (("--decoders", ""), "choose from recap"),
        (("--conversations", "0"), "--conversations must be at least 1"),
        (("--pid", "999999999"), "no process 999999999"),
        (("--url", "http://127.0.0.1:9"), "No app answers at http://127.0.0.1:9"),
        (("--url", "nonsense"), "No app answers at nonsense"),
    ],
)
def test_mistakes_get_one_sentence(words, says, tmp_path, capsys):
    (tmp_path / "l.csv").write_text(LENGTHS)
    assert main(["load", "--lengths", str(tmp_path / "l.csv"), "--suite", "text", *words]) == 2
    err = capsys.readouterr().err
    assert says in err
    assert len(err.strip().splitlines()) == 1


@pytest.mark.parametrize(
    "text", ["a,b\n1,2", "new_tokens\nmany", "new_tokens\n0", "new_tokens\n", None]
)
def test_lengths_must_be_lengths(text, tmp_path, capsys):
    if text is not None:
        (tmp_path / "l.csv").write_text(text)
    assert main(["load", "--lengths", str(tmp_path / "l.csv")]) == 2
    assert len(capsys.readouterr().err.strip().splitlines()) == 1
