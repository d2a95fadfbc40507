"""What happens on the page: each method is one event. The browser keeps a session's id and nothing else.

A question takes three events: `ask` shows it, `answer` renders its run, `show` shows the session as it
stands then. Only `answer` and `compare` run next to a decoder, so their outputs are the three components of
LIVE alone, and plain values: Gradio builds a component again for every output that is left out or updated by
its properties, which costs 10 ms.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import gradio as gr

from ..server import actions
from ..server.model_loader import ModelLoader, NotReadyError
from ..server.session import Session, TurnRecord
from ..server.sessions import Sessions
from . import settings, texts
from .comparison import Comparison, Live, Updates
from .examples import Example
from .messages import clean, uploaded
from .uploads import for_page
from .view import View, Views

ASK_FIRST = "Type a question first."


class Handlers(Comparison):
    """Events over one model loader and one session store. `parts` (the components) is set by the page."""

    def __init__(
        self,
        loader: ModelLoader,
        sessions: Sessions,
        examples: list[Example],
        *,
        max_new_tokens: int,
    ) -> None:
        self.loader, self.sessions, self.examples = loader, sessions, examples
        self.max_new_tokens = max_new_tokens
        self.views = Views()
        self.parts: Any = None

    # ---- sessions

    def session(self, id_: str, request: gr.Request) -> Session:
        """The page's session, a new one if there is none."""
        known, user = self.known(id_), request.username or ""
        if known is not None and known.user == user:
            return known
        owner, loader = request.session_hash or "", self.loader
        new = self.sessions.new(loader.target, owner=owner, user=user, cost=loader.cost)
        self.views.of(new).freed = bool(id_)
        return new

    def leave(self, request: gr.Request) -> None:
        """The page was closed, or its connection was lost."""
        self.sessions.leave(request.session_hash or "")

    def stay(self, request: gr.Request) -> None:
        """The page is there: it says so every few seconds, for its connection may have been lost."""
        self.sessions.stay(request.session_hash or "")

    def wait_ready(self) -> Iterator[Updates]:
        """On load: what the model is doing, until it is there."""
        p, begun = self.parts, time.monotonic()
        while not self.loader.wait(0.5):
            waited = time.monotonic() - begun
            text = f"{self.loader.phase}, {waited:.0f} s"
            yield {p.model: texts.status(text), p.status: texts.status(text)}
        try:
            target = self.loader.target
        except NotReadyError as error:
            line = texts.status(str(error), kind="error")
            yield {p.model: line, p.status: line}
            return
        context = self.sessions.context
        yield {
            p.model: texts.model_line(target, self.loader.seconds, self.loader.note),
            p.status: texts.status("ready", kind="done"),
            p.room: texts.room(target, 0, self.max_new_tokens),
            p.notes: texts.notes(target, context.scopes.notice, *context.notices),
        }

    # ---- a question

    def ask(
        self,
        message: dict[str, Any] | None,
        decoder: str,
        id_: str,
        request: gr.Request,
        *changed: Any,
    ) -> Iterator[Updates]:
        """A question from the text box. changed: the settings, as `settings.read` takes them."""
        p = self.parts
        session = self.known(id_)
        files = [str(f) for f in (message or {}).get("files") or []]
        try:
            text = clean((message or {}).get("text") or "")
            if not text and not files:
                raise ValueError(ASK_FIRST)
            while not self.loader.wait(0.5):
                yield {p.status: texts.status(self.loader.phase)}
            session = self.session(id_, request)
        except (ValueError, NotReadyError) as error:
            if session is not None:
                self.views.of(session).status = (str(error), "error")
            yield {p.status: texts.status(str(error), kind="error")}
            return
        session.configure(settings.read(changed))
        limit = settings.longest(changed)
        yield self.asked(session, TurnRecord(text, tuple(files), decoder, limit))

    def asked(self, session: Session, record: TurnRecord) -> Updates:
        """Show a question and let it wait for `answer`; an answer that runs is stopped."""
        p, view = self.parts, self.views.of(session)
        session.interrupt()
        if (earlier := view.take()) is not None:  # two questions at once: the later one counts
            session.records.remove(earlier)
        copies, left_out = for_page(record.paths)
        record.note = ". ".join(filter(None, (image_note(session, record), left_out)))
        view.images[record.key] = copies
        session.records.append(record)
        view.pending = record
        view.status = ("preparing the question", "")
        return {
            p.box: gr.MultimodalTextbox(value=None, submit_btn=False, stop_btn=True),
            p.chat: view.chat(session),
            p.state: session.id,
            p.status: texts.status(*view.status),
            p.results: texts.waiting(),
        }

    def answer(self, id_: str) -> Iterator[Live]:
        """The answer to the question that waits; a refusal is one sentence in the chat, which goes on."""
        session = self.known(id_)
        record = self.views.of(session).take() if session is not None else None
        if session is None or record is None:
            yield self.unchanged(session)
            return
        view, note, waiting = self.views.of(session), record.note, texts.waiting()
        with view.answering(record):
            try:
                for progress in actions.answer(session, record).follow():
                    ended = progress.turn is not None
                    more = f". {note}" if ended and note else ""
                    view.status = (progress.phase + more, "done" if ended else "")
                    if not ended:
                        yield progress.live, texts.status(progress.phase), waiting
            except ValueError as error:
                view.status = (str(error), "error")
                yield "", texts.status(*view.status), texts.table_or_nothing(session)

    def show(self, id_: str) -> Updates:
        """The session after an answer. A question that came meanwhile has events of its own."""
        p = self.parts
        session = self.known(id_)
        if session is None or not self.views.of(session).is_newest(session):
            return gr.skip()
        view = self.views.of(session)
        return self.turn(session) | {
            p.chat: view.chat(session),
            p.status: texts.status(*view.status),
            p.box: gr.MultimodalTextbox(submit_btn=True, stop_btn=False),
        }

    def stop(self, id_: str) -> None:
        """Stop what this session decodes, within one pass."""
        session = self.known(id_)
        if session is None:
            return
        session.interrupt()
        view = self.views.of(session)
        if (record := view.take()) is not None:
            record.refuse("Stopped before the answer began.")
            view.status = (record.note, "done")

    # ---- back and again

    def clear(self, id_: str) -> Updates:
        """A new conversation; the memories stay."""
        p = self.parts
        session = self.known(id_)
        status = ("new conversation; what Recap remembers stays", "done")
        if session is not None:
            view = self.views.of(session)
            with session.taken_over():
                session.clear()
                view.pending, view.freed, view.images = None, False, {}
                view.status = status
        box = gr.MultimodalTextbox(value=None, submit_btn=True, stop_btn=False)
        return self.everything(session) | {p.chat: [], p.box: box, p.status: texts.status(*status)}

    def _take_back(self, id_: str) -> tuple[Session, View, TurnRecord] | None:
        """Drop the last question and its answer, None if there is none."""
        session = self.known(id_)
        if session is None or not session.records:
            return None
        view = self.views.of(session)
        with session.taken_over():
            view.take()
            record = session.undo()
        return None if record is None else (session, view, record)

    def undo(self, id_: str) -> Updates:
        """Drop the last question and answer; the question returns to the box, to be changed.

        This is how a question is edited: Gradio's own editing fails on messages with an image.
        """
        p = self.parts
        taken = self._take_back(id_)
        if taken is None:
            return {p.status: texts.status("There is no question to take back.", kind="error")}
        session, view, record = taken
        view.status = ("the last question is in the box again", "done")
        box = gr.MultimodalTextbox(
            value={"text": record.question, "files": list(record.paths)},
            submit_btn=True,
            stop_btn=False,
        )
        return self.everything(session) | {
            p.chat: view.chat(session),
            p.box: box,
            p.status: texts.status(*view.status),
        }

    def retry(self, decoder: str, id_: str, *changed: Any) -> Updates:
        """The last question once more, with the decoder chosen now."""
        taken = self._take_back(id_)
        if taken is None:
            message = texts.status("There is no question to repeat.", kind="error")
            return {self.parts.status: message}
        session, _, record = taken
        session.configure(settings.read(changed))
        limit = settings.longest(changed)
        return self.asked(session, TurnRecord(record.question, record.paths, decoder, limit))

    # ---- examples and camera

    def pick(self, id_: str, event: gr.EventData) -> Updates:
        """An example was picked: a new conversation, its image and first question in the box."""
        example = self.examples[int(event._data["index"])]
        value = {"text": example.questions[0], "files": [str(example.path)]}
        p = self.parts
        box = gr.MultimodalTextbox(value=value, submit_btn=True, stop_btn=False)
        message = f"“{example.title}” starts a new conversation: press Enter, or pick a question"
        return self.clear(id_) | {p.box: box, p.status: texts.status(message, kind="done")}

    def ask_chip(
        self,
        message: dict[str, Any] | None,
        decoder: str,
        id_: str,
        request: gr.Request,
        event: gr.EventData,
        *changed: Any,
    ) -> Iterator[Updates]:
        """A suggested question was pressed: it is asked at once, with the image that waits in the box;
        other words that wait there stay."""
        p, waiting = self.parts, message or {}
        files, session = waiting.get("files") or [], self.known(id_)
        picked = event._data.get("index")
        if not files and not (session and any(record.paths for record in session.records)):
            is_example = isinstance(picked, int) and 0 <= picked < len(self.examples)
            files = [str(self.examples[picked].path)] if is_example else []  # they are about it
        asked = {"text": str(event._data["text"]), "files": files}
        suggested = {question for example in self.examples for question in example.questions}
        typed = waiting.get("text") or ""
        for updates in self.ask(asked, decoder, id_, request, *changed):
            if p.box in updates and typed not in suggested:
                kept = {"text": typed, "files": []}
                updates[p.box] = gr.MultimodalTextbox(kept, submit_btn=False, stop_btn=True)
            yield updates

    def photo(self, message: dict[str, Any] | None, event: gr.EventData) -> dict[str, Any]:
        """A picture from the camera joins what waits in the box."""
        waiting = message or {}
        path = uploaded(event._data.get("path"))
        return {"text": waiting.get("text") or "", "files": [*(waiting.get("files") or []), path]}


def image_note(session: Session, record: TurnRecord) -> str:
    """The sentence for an image that joins a conversation that goes on."""
    before = sum(len(turn.paths) for turn in session.turns)
    if not record.paths or not session.turns:
        return ""
    there = f"{before} before it" if before else "none before it"
    return f"A further image joined ({there}); the conversation goes on, nothing was reset"
