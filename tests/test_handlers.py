"""The page's events without a browser: a question's three steps, going back, what is shown when."""

from __future__ import annotations

import html
import json
import re
from collections import defaultdict
from types import SimpleNamespace
from typing import Any

import pytest

from recap.page import texts
from recap.page.examples import load_examples
from recap.page.handlers import Handlers
from recap.server import actions
from recap.server import run as running
from recap.server.model_loader import ModelLoader
from recap.server.sessions import Sessions

from .scripted import HeldTarget, ScriptedTarget, until

QUESTION = "5 6 7 8 9 5 6 7 8"
SOMEONE = SimpleNamespace(session_hash="someone", username=None)


class Names(SimpleNamespace):
    """Every component by its name, so that an update is a dict of names."""

    def __getattr__(self, name: str) -> str:
        return name


class Page:
    """A page that keeps what each component was given last, as a browser does."""

    def __init__(self, target: ScriptedTarget) -> None:
        loader = ModelLoader("demo", lambda: target)
        assert loader.wait(60)
        self.handlers = Handlers(loader, Sessions(), load_examples(), max_new_tokens=20)
        self.handlers.parts = Names()
        self.shows: dict[str, Any] = defaultdict(str)
        self.more: list[str] = []

    def take(self, updates: Any) -> None:
        for name, value in updates.items():
            if name == "__type__":
                continue
            if name == "trace" and value.startswith('{"type":"more"'):
                self.more.append(value)
                value = self.session.turns[-1].trace  # what the browser's `merge` makes of it
            self.shows[name] = getattr(value, "constructor_args", value)

    @property
    def id(self) -> str:
        return self.shows["state"]

    @property
    def session(self):
        return self.handlers.known(self.id)

    def begin(self, text: str, decoder: str = "recap") -> None:
        for updates in self.handlers.ask({"text": text}, decoder, self.id, SOMEONE, *SETTINGS):
            self.take(updates)

    def answer(self) -> list[tuple[str, str, str]]:
        heard = list(self.handlers.answer(self.id))
        self.take(self.handlers.show(self.id))
        return heard

    def compare(self) -> list[tuple[str, str, str]]:
        heard = list(self.handlers.compare(self.id, ["recap", "token_recycling"]))
        self.take(self.handlers.compared(self.id))
        return heard

    def ask(self, text: str) -> None:
        self.begin(text)
        self.answer()
        self.compare()

    def words(self) -> list[str]:
        return [
            "".join(p["text"] for p in m["content"] if "text" in p)
            if isinstance(m["content"], list)
            else m["content"]
            for m in self.shows["chat"]
        ]

    def charts(self) -> set[str]:
        plots = ("levels", "levels_all", "speed", "accepted", "warming")
        return {name for name in plots if (self.shows[name] or {}).get("visible")}


SETTINGS = (
    63,
    10,
    20,
    0.7,
    0.2,
    0.1,
    ["3-token", "2-token", "1-token"],
    True,
    True,
    True,
)


@pytest.fixture
def page() -> Page:
    return Page(ScriptedTarget(seed=3, eos=False))


def test_a_question_is_shown_then_answered_then_compared(page):
    page.begin(QUESTION)
    assert page.words()[-1] == "…"
    assert page.shows["box"]["value"] is None
    assert page.shows["box"]["stop_btn"] is True
    page.answer()
    assert page.words()[-1] == page.session.turns[-1].answer.text
    assert page.shows["box"]["stop_btn"] is False
    assert "value" not in page.shows["box"]  # what was typed meanwhile stays
    assert page.charts() == set()
    page.compare()
    assert page.charts() == {"levels", "speed", "accepted"}
    page.ask("7 8")
    assert "levels_all" in page.charts()  # the conversation has more than one turn now


def test_next_to_a_decoder_only_plain_values_are_sent(monkeypatch):
    """A component's properties, or a component left out, would cost the decoder 10 ms an update."""
    monkeypatch.setattr(running, "FIRST_S", 0.01)
    monkeypatch.setattr(running, "UPDATE_S", 0.01)
    monkeypatch.setattr(running, "CLOCK_S", 0.01)
    target = HeldTarget()
    page = Page(target)
    page.begin(" ".join(["5 6 7"] * 3))
    following = page.handlers.answer(page.id)
    answered = [next(update for update in following if "reading 9 tokens" in update[1])]
    target.go.set()
    answered += following
    page.take(page.handlers.show(page.id))
    target.go.clear()
    comparing = page.handlers.compare(page.id, ["recap", "token_recycling"])
    compared = [next(comparing), next(comparing)]
    target.go.set()
    compared += comparing
    for updates in (answered, compared):
        assert all(isinstance(part, str) for update in updates for part in update)
    assert "waiting" not in compared[-1][1]


def test_the_live_update_holds_the_newest_step(monkeypatch):
    target = HeldTarget()
    page = Page(target)
    target.go.set()
    page.begin(QUESTION)
    run = actions.answer(page.session, page.handlers.views.of(page.session).take())
    run.result()
    live = json.loads(run.progress().live)
    assert live["tokens"] == 20
    assert live["step"]["nodes"]
    assert not live["beside"]
    assert "tokens per step" in run.progress().phase


def test_tree_table_and_charts_follow_clear_and_undo(page):
    page.ask(QUESTION)
    first = page.shows["trace"]
    page.ask("7 8")
    assert page.shows["trace"] not in ("", first)
    page.take(page.handlers.undo(page.id))
    assert page.shows["trace"] == first
    assert "Recap" in page.shows["results"]
    assert page.charts() == {"levels", "speed", "accepted"}
    assert page.shows["box"]["value"]["text"] == "7 8"
    assert len(page.words()) == 2
    page.take(page.handlers.undo(page.id))
    assert page.shows["trace"] == ""
    assert page.shows["results"] == texts.nothing()
    assert page.charts() == set()
    assert page.words() == []
    page.ask(QUESTION)
    page.take(page.handlers.clear(page.id))
    assert (page.shows["trace"], page.charts(), page.words()) == ("", set(), [])


def test_after_going_back_the_turn_before_can_be_compared(page):
    page.begin(QUESTION)
    page.answer()
    page.begin("7 8")
    page.answer()
    page.take(page.handlers.undo(page.id))
    page.compare()
    list(page.handlers.compare_settings(page.id, *SETTINGS))
    record = page.session.turns[-1]
    assert (len(page.session.turns), record.question) == (1, QUESTION)
    assert set(record.runs) == {"recap", "token_recycling", "again"}
    assert len({turn.token_ids for turn in record.runs.values()}) == 1
    assert "Recap ran again" in texts.status(*page.handlers.views.of(page.session).status)


def test_a_trace_is_sent_once(page):
    """After the answer only what is new goes to the browser, however often decoders are compared."""
    page.begin(QUESTION)
    page.answer()
    record = page.session.turns[-1]
    assert page.shows["trace"] == record.traces["recap"]
    assert page.more == []
    page.compare()
    [head, *lines] = page.more[-1].splitlines(keepends=True)
    assert json.loads(head) == {"type": "more", "turn": record.key}
    assert "".join(lines) == record.traces["token_recycling"]
    for _ in range(3):
        list(page.handlers.compare_again(page.id, ["recap"]))
        page.take(page.handlers.compared(page.id))
        assert page.more[-1].partition("\n")[2] == record.traces["recap"]
    page.compare()
    assert len(page.more) == 4, "nothing new, nothing sent"


def test_a_refused_question_leaves_the_last_turn_and_comes_back(page):
    page.ask(QUESTION)
    trace, table = page.shows["trace"], page.shows["results"]
    page.begin("*five* numbers")
    page.answer()
    assert "Type numbers" in page.shows["status"]
    assert (page.shows["trace"], page.shows["results"]) == (trace, table)
    page.take(page.handlers.undo(page.id))
    assert page.shows["box"]["value"]["text"] == "*five* numbers"
    assert len(page.words()) == 2
    assert len(page.session.turns) == 1


def test_of_two_questions_at_once_the_later_one_is_answered(page):
    page.begin("5 6")
    page.begin("7 8")
    page.answer()
    page.answer()
    assert len(page.session.turns) == 1
    assert len(page.words()) == 2
    assert page.session.turns[0].question == "7 8"


def test_stop_before_the_answer_began(page):
    page.begin(QUESTION)
    page.handlers.stop(page.id)
    ((live, status, _),) = page.answer()
    assert live == ""
    assert "Stopped before the answer began" in status
    assert page.session.turns == []
    assert "Stopped before the answer began" in page.shows["status"]
    page.ask("7 8")
    assert len(page.session.turns) == 1


def test_a_newer_question_keeps_the_stop_button():
    target = HeldTarget()
    page = Page(target)
    page.begin("5 6")
    decoding = page.handlers.answer(page.id)
    next(decoding)
    page.begin("7 8")
    target.go.set()
    list(decoding)
    page.take(page.handlers.show(page.id))  # the first question's, while the second one waits
    assert page.shows["box"]["stop_btn"] is True
    page.answer()
    assert page.shows["box"]["stop_btn"] is False


def test_nothing_to_ask_undo_or_repeat_is_said(page):
    page.begin("  ")
    assert "Type a question first." in page.shows["status"]
    page.take(page.handlers.undo(page.id))
    assert "no question to take back" in page.shows["status"]
    page.take(page.handlers.retry("recap", page.id, *SETTINGS))
    assert "no question to repeat" in page.shows["status"]
    page.take(page.handlers.clear(page.id))
    assert "new conversation" in page.shows["status"]


def test_a_chip_asks_at_once_and_keeps_what_was_typed(page):
    event = SimpleNamespace(_data={"text": "5 6"})
    typed = {"text": "my own words", "files": []}
    for updates in page.handlers.ask_chip(typed, "recap", page.id, SOMEONE, event, *SETTINGS):
        page.take(updates)
    assert page.shows["box"]["value"]["text"] == "my own words"
    page.answer()
    assert page.session.turns[-1].question == "5 6"


def test_a_photo_must_have_been_uploaded(page):
    with pytest.raises(ValueError, match="upload it first"):
        page.handlers.photo(None, SimpleNamespace(_data={"path": "/etc/passwd"}))


def test_the_room_that_is_left_is_said():
    target = ScriptedTarget()
    target.max_context = 1000
    assert "an answer can have 256" in texts.room(target, 20, 256)
    assert "can have 300 more" in texts.room(target, 700, 256)
    assert "start a new chat" in texts.room(target, 999, 256)


def test_typed_text_is_never_markup():
    hostile = "<img src=x onerror=y> **b** $x$ [a](http://b) `c` www.d.e\n  # f & &amp; אב 👩‍🚀"
    shown = texts.verbatim(hostile)[0]["text"]
    assert html.unescape(shown) == hostile
    assert re.fullmatch(r"(\w|&#\d+;|[^\x00-\x7f])*", shown)


def test_a_dropped_stream_leaves_one_truth():
    """Ask, ask again and drop the stream, then compare: everything shown is about the second question."""
    target = HeldTarget()
    target.go.set()
    page = Page(target)
    page.ask(QUESTION)
    target.go.clear()
    passes = target.passes
    page.begin("7 8")
    stream = page.handlers.answer(page.id)
    next(stream)
    until(lambda: target.passes == passes + 1)
    stream.close()
    target.go.set()
    until(lambda: not page.session.is_busy)
    page.take(page.handlers.show(page.id))
    page.compare()
    record = page.session.turns[-1]
    assert record.question == "7 8"
    assert record.answer.finish_reason == "stopped"
    assert len({turn.token_ids for turn in record.runs.values()}) == 1
    asked, answered = map(html.unescape, page.words()[2:])
    assert (asked, answered) == ("7 8", record.answer.text + "Stopped here.")
    assert "identical output: yes" in page.shows["results"]
    page.take(page.handlers.undo(page.id))
    assert page.session.conversation.messages[-1].role == "assistant"
    assert len(page.words()) == 2
