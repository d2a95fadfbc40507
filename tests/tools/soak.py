"""Many people on the real app for a while, who behave as people do; `crowd` runs it.

Each user asks about example images, follows up, brings new images and broken ones, stops answers, closes
the page in the middle, starts a new chat. Checked: every answer that ends by itself equals what the same
conversation gets alone by plain decoding; every other request gets its sentence; the log holds no
traceback; nothing runs or waits when all have gone; a page that is closed during an answer is let go;
resident memory at the end is near that after the warm-up.
"""

from __future__ import annotations

import json
import random
import re
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from .browser import ROOT, started_app

TOKENS = 48
"""Longest answer: short ones, so that there are many."""

BROKEN = (
    b"",
    b"GIF89a",
    b"%PDF-1.7",
    b"<svg xmlns='http://www.w3.org/2000/svg'/>",
    b"\x89PNG\r\n\x1a\n" + bytes(40),
    b"\xff\xd8\xff\xe0" + bytes(200),
)
KV_MB = 64
GROWTH = 0.10
"""Most that resident memory may grow after the warm-up."""

WAIT_S = 60.0
"""What has not ended after this time never does."""

Questions = tuple[tuple[str, str], ...]
"""A conversation: (image file or "", question) for each turn."""


class Alone:
    """What a conversation gets when nobody else is there, by plain decoding; remembered."""

    def __init__(self) -> None:
        from recap.targets import load_target

        self._target = load_target("demo")
        self._known: dict[Questions, tuple[tuple[int, ...], str]] = {}
        self._lock = threading.Lock()

    def answer(self, asked: Questions) -> tuple[int, ...]:
        """Token ids of the answer to the conversation's last question."""

        self.text(asked)
        return self._known[asked][0]

    def text(self, asked: Questions) -> str:
        """The text of that answer."""
        from PIL import Image

        from recap.conversation import Conversation
        from recap.drafters import make_drafter
        from recap.engine import generate

        with self._lock:
            if asked not in self._known:
                conversation = Conversation(self._target)
                drafter = make_drafter("autoregressive", vocab_size=self._target.vocab_size)
                for turn, (image, question) in enumerate(asked, 1):
                    conversation.ask(question, [Image.open(image)] if image else [])
                    made = generate(conversation, drafter, max_new_tokens=TOKENS)
                    self._known[asked[:turn]] = made.token_ids, made.text
            return self._known[asked][1]


@dataclass
class Report:
    """What happened. done: how often each thing. wrong: sentences, none if all is well."""

    done: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)
    rss_mb: list[float] = field(default_factory=list)
    release_s: list[float] = field(default_factory=list)

    def fault(self, sentence: str) -> None:
        """Note something wrong; the first hundred are enough."""
        if len(self.wrong) < 100:
            self.wrong.append(sentence)


class User(threading.Thread):
    """One person with one page after the other, until `until`."""

    def __init__(self, address: str, seed: int, until: float, alone: Alone, report: Report) -> None:
        super().__init__(name=f"user {seed}", daemon=True)
        self.rng, self.until, self.alone, self.report = random.Random(seed), until, alone, report
        self.http = httpx.Client(base_url=f"{address}/gradio_api", timeout=600)
        self.examples = json.loads((ROOT / "assets/examples/examples.json").read_text())
        self.page, self.asked = "", ()

    def run(self) -> None:
        """Do one thing after the other."""
        try:
            while time.monotonic() < self.until:
                if not self.page or self.rng.random() < 0.1:
                    self.page, self.asked = f"soak-{self.rng.getrandbits(64):016x}", ()
                self.rng.choice(self.actions())()
        except httpx.HTTPError as error:
            self.report.fault(f"{self.name}: the server did not answer ({type(error).__name__})")
        finally:
            self.http.close()

    def actions(self) -> tuple[Callable[[], None], ...]:
        """What such a person does, some of it more often."""
        return self.ask, self.ask, self.ask, self.leave, self.stop, self.clear, self.bad

    # ---- what people do

    def ask(self) -> None:
        """A question, and its whole answer."""
        *_, (event, value) = self.events(*self.question())
        if event != "complete":
            self.report.fault(f"{self.name}: a question got {event}: {value}")
            self.page = ""
            return
        self.report.done["answers"] += 1
        if tuple(value["token_ids"]) != self.alone.answer(self.asked):
            how = value["finish_reason"]
            self.report.fault(f"{self.name}: another answer ({how}) than alone to {self.asked}")

    def leave(self) -> None:
        """Close the page while the answer comes."""
        stream = self.events(*self.question())
        for _ in range(self.rng.randrange(1, 4)):
            next(stream, None)
        stream.close()
        self.report.done["disconnects"] += 1
        self.page = ""

    def stop(self) -> None:
        """Stop the answer; then a new conversation on the same page."""
        stream = self.events(*self.question(), stop_after=self.rng.randrange(0, 3))
        for _ in stream:
            pass
        self.report.done["stops"] += 1
        self.clear()

    def close_page(self) -> float:
        """Open a page, ask, close it in the middle of the answer -> seconds until the answer ended. The session
        goes after its grace time."""
        self.page, self.asked = f"soak-{self.rng.getrandbits(64):016x}", ()
        address = str(self.http.base_url).removesuffix("/gradio_api/")
        with self.http.stream("GET", f"/heartbeat/{self.page}") as beat:
            beats = beat.iter_lines()  # the connection lives as long as this does
            next(beats)
            stream = self.events(*self.question())
            next(stream)
            there = figures(address)["recap_sessions"]
            stream.close()
        begun, ended = time.monotonic(), WAIT_S
        while time.monotonic() < begun + WAIT_S:
            seen = figures(address)
            if not seen["recap_answers_running"]:
                ended = min(ended, time.monotonic() - begun)
                if seen["recap_sessions"] < there:
                    return ended
            time.sleep(0.01)
        self.report.fault("a closed page was not let go")
        return ended

    def clear(self) -> None:
        """A new conversation on the same page."""
        *_, (event, value) = self.events("clear", [])
        if (event, value) != ("complete", "cleared"):
            self.report.fault(f"{self.name}: clearing got {event}: {value}")
        self.report.done["clears"] += 1
        self.asked = ()

    def bad(self) -> None:
        """Something that is no image; the conversation goes on as if it had not been."""
        file = self.upload("photo.png", self.rng.choice(BROKEN))
        message = {"text": "What is this?", "files": [file]}
        *_, (event, value) = self.events("chat", [message, "recap"])
        if event != "error" or not re.fullmatch(r"“photo.png” [^\n]+\.", str(value)):
            self.report.fault(f"{self.name}: a broken upload got {event}: {value}")
        self.report.done["bad uploads"] += 1

    # ---- HTTP

    def question(self) -> tuple[str, list[Any]]:
        """The next question of the asked (a new asked after two turns), as a call."""
        if len(self.asked) >= 2:
            self.clear()
        example = self.rng.choice(self.examples)
        image = str(ROOT / "assets/examples" / example["file"])
        if self.asked and self.rng.random() < 0.7:
            image = ""  # a follow-up about the same image
            questions = ["Thanks! What can you do?", "Describe everything in detail."]
        else:
            questions = [q for turns in example["conversations"] for q in turns[:1]]
        words = self.rng.choice(questions)
        self.asked = (*self.asked, (image, words))
        files = [self.upload("image.png", Path(image).read_bytes())] if image else []
        decoder = self.rng.choice(("recap", "recap", "token_recycling", "prompt_lookup"))
        return "chat", [{"text": words, "files": files}, decoder]

    def upload(self, name: str, data: bytes) -> dict[str, Any]:
        """Upload a file -> how a call names it."""
        sent = self.http.post("/upload", files={"files": (name, data)})
        sent.raise_for_status()
        return {"path": sent.json()[0], "orig_name": name, "meta": {"_type": "gradio.FileData"}}

    def events(
        self, name: str, data: list[Any], *, stop_after: int | None = None
    ) -> Iterator[tuple[str, Any]]:
        """The events of a call, last the "complete" or "error" one; closing it drops the connection.

        stop_after: cancel the call after so many events, as a stop button does.
        """
        body = {"data": data, "session_hash": self.page}
        sent = self.http.post(f"/call/{name}", json=body)
        if sent.status_code != 200:
            yield "error", sent.json()["detail"]
            return
        id_, count, event = sent.json()["event_id"], 0, ""
        with self.http.stream("GET", f"/call/{name}/{id_}") as stream:
            for line in stream.iter_lines():
                if line.startswith("event: "):
                    event = line.removeprefix("event: ")
                elif line.startswith("data: ") and event in ("generating", "complete", "error"):
                    if count == stop_after:
                        self.http.post(
                            "/cancel",
                            json={"session_hash": self.page, "fn_index": 0, "event_id": id_},
                        )
                        yield "stopped", None
                        return
                    count += 1
                    value = json.loads(line.removeprefix("data: "))
                    yield event, value.get("error") if event == "error" else (value or [None])[0]


# ---- the app


def rss_mb(pid: int) -> float:
    """Resident memory of a process in MB."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(re.search(r"VmRSS:\s+(\d+)", status)[1]) / 1000


def figures(address: str) -> dict[str, float]:
    """The app's figures, labels left out."""
    lines = httpx.get(f"{address}/metrics", timeout=60).text.splitlines()
    pairs = (line.rsplit(" ", 1) for line in lines if line[:1] != "#" and "{" not in line)
    return {name: float(value) for name, value in pairs}


def soak(
    kinds: Sequence[type[User]], *, seconds: float, warm_s: float, growth: float | None = GROWTH
) -> Report:
    """Run it with one person of each of these kinds -> what happened.

    growth: most that memory may grow after `warm_s` (None: any).
    """
    report, alone = Report(), Alone()
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "log.txt"
        # sessions and places in the queue for all, those of abandoned pages too, and so small a budget for
        # KV caches that conversations are evicted and filled again all the time
        places = str(4 * len(kinds))
        settings = {"RECAP_SESSIONS": places, "RECAP_WAITING": places, "RECAP_KV_MB": str(KV_MB)}
        settings["RECAP_GRACE_SECONDS"] = "1"
        settings |= {"RECAP_MODEL": "demo", "RECAP_MAX_NEW_TOKENS": str(TOKENS)}
        with started_app(log, "/healthz", **settings) as (address, pid):
            begun = time.monotonic()
            people = [
                kind(address, seed, begun + seconds, alone, report)
                for seed, kind in enumerate(kinds)
            ]
            for person in people:
                person.start()
            time.sleep(warm_s)
            report.rss_mb.append(rss_mb(pid))
            for person in people:
                person.join(600)
                if person.is_alive():
                    report.fault(f"{person.name} never got an answer")
            report.rss_mb.append(rss_mb(pid))
            check_quiet(address, report)
            last = User(address, len(kinds), 0.0, alone, report)
            report.release_s = [last.close_page() for _ in range(5)]
            last.http.close()
        text = log.read_text()
        if "Traceback" in text:
            report.fault("the log holds a traceback: " + text[text.index("Traceback") :][-1500:])
    first, last = report.rss_mb
    if growth is not None and last > first * (1 + growth):
        report.fault(f"resident memory grew from {first:.0f} to {last:.0f} MB")
    return report


def check_quiet(address: str, report: Report) -> None:
    """When all have gone nothing runs or waits any more."""
    end = time.monotonic() + WAIT_S
    while time.monotonic() < end:
        seen = figures(address)
        running, waiting = seen["recap_answers_running"], seen["recap_queue_waiting"]
        if not running and not waiting:
            return
        time.sleep(0.2)
    report.fault(f"{running:.0f} answers still run and {waiting:.0f} wait")
