"""What happens on the page: each method is one event. They keep a session's id and nothing else.

A question takes three events: `begin` shows it and lets it wait in its session, `decode` makes the
answer, `finish` shows the session as it stands then. Only `decode` (and `Compared.compare`) runs beside a
decoder, so their outputs are the three components of LIVE alone, and plain values: Gradio builds a
component anew for every output that is left out or updated by its properties, which costs 10 ms.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import gradio as gr

from ..server import actions
from ..server.model_loader import ModelLoader, NotReadyError
from ..server.queue import QueueFullError
from ..server.session import Question, Session
from ..server.sessions import Sessions
from . import settings, texts
from .comparison import Compared, Live, Updates
from .examples import Example
from .messages import clean, uploaded
from .uploads import for_page, name_list

FREED = (
    "*This conversation had been idle or disconnected for too long and was freed on the server. "
    "A new one starts here; the model no longer knows what came before.*"
)
ASK_FIRST = "Type a question first."


class Handlers(Compared):
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
        self.parts: Any = None

    # ---- sessions

    def session(self, id_: str, request: gr.Request) -> tuple[Session, bool]:
        """The page's session, a new one if there is none -> (session, whether an older one was freed)."""
        known, user = self.known(id_), request.username or ""
        if known is not None and known.user == user:
            return known, False
        owner, loader = request.session_hash or "", self.loader
        new = self.sessions.new(loader.target, owner=owner, user=user, cost=loader.cost)
        return new, bool(id_)

    def unload(self, request: gr.Request) -> None:
        """The page was closed: free its sessions at once."""
        self.sessions.drop_owner(request.session_hash or "")

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
        shared = self.sessions.shared
        yield {
            p.model: texts.model_line(target, self.loader.seconds, self.loader.note),
            p.status: texts.status("ready", kind="done"),
            p.room: texts.room(target, 0, self.max_new_tokens),
            p.notes: texts.notes(target, shared.areas.said, *shared.remarks),
        }

    # ---- a question

    def begin(
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
        try:
            text = clean((message or {}).get("text") or "")
        except ValueError as error:
            if session is not None:
                session.said = (str(error), "error")
            yield {p.status: texts.status(str(error), kind="error")}
            return
        files = [str(f) for f in (message or {}).get("files") or []]
        if not text and not files:
            if session is not None:
                session.said = (ASK_FIRST, "error")
            yield {p.status: texts.status(ASK_FIRST, kind="error")}
            return
        while not self.loader.wait(0.5):
            yield {p.status: texts.status(self.loader.phase)}
        try:
            session, freed = self.session(id_, request)
        except (NotReadyError, QueueFullError) as error:
            yield {p.status: texts.status(str(error), kind="error")}
            return
        if freed:
            session.messages.append({"role": "assistant", "content": FREED})
        session.configure(settings.read(changed))
        yield self.asked(session, text, files, decoder, settings.longest(changed))

    def asked(
        self, session: Session, text: str, files: list[str], decoder: str, limit: int
    ) -> Updates:
        """Show a question and let it wait for `decode`; an answer that is being made is stopped."""
        p = self.parts
        session.interrupt()
        if session.pending is not None:  # two questions at once: the later one counts
            session.undo()
        copies, left_out = for_page(files)
        note = image_note(session, len(files)) + (f". {left_out}" if left_out else "")
        question = Question(text, tuple(files), decoder, limit, len(session.messages), note)
        content = [{"path": f, "alt_text": "uploaded image"} for f in copies]
        content += texts.verbatim(text or ("" if copies else name_list(files)))
        session.messages += [
            {"role": "user", "content": content},
            {"role": "assistant", "content": "…"},
        ]
        session.asked.append(question)
        session.pending = question
        session.said = ("preparing the question", "")
        return {
            p.box: gr.MultimodalTextbox(value=None, submit_btn=False, stop_btn=True),
            p.chat: list(session.messages),
            p.state: session.id,
            p.status: texts.status(*session.said),
            p.results: texts.waiting(),
        }

    def decode(self, id_: str) -> Iterator[Live]:
        """The answer to the question that waits; a refusal is one sentence in the chat, which goes on."""
        session = self.known(id_)
        question = session.take() if session is not None else None
        if session is None or question is None:
            yield self.unchanged(session)
            return
        session.answering = question
        reply = session.messages[question.at + 1]
        waiting = texts.waiting()
        try:
            for progress in actions.answer(
                session,
                question.text,
                question.paths,
                question.decoder,
                max_new_tokens=question.limit,
                at=question.at,
            ):
                if progress.turn is None:
                    session.said = (progress.phase, "")
                    yield progress.live, texts.status(progress.phase), waiting
                else:
                    reply["content"] = [{"type": "text", "text": progress.text or "(no words)"}]
                    session.said = (progress.phase + question.note, "done")
        except ValueError as error:
            reply["content"] = texts.verbatim(str(error))
            session.said = (str(error), "error")
            yield "", texts.status(*session.said), texts.table_or_nothing(session)
        finally:
            session.answering = None

    def finish(self, id_: str) -> Updates:
        """The session after an answer. A question that came meanwhile has events of its own."""
        p = self.parts
        session = self.known(id_)
        if session is None or session.pending or session.answering:
            return gr.skip()
        return self.turn(session) | {
            p.chat: list(session.messages),
            p.status: texts.status(*session.said),
            p.box: gr.MultimodalTextbox(submit_btn=True, stop_btn=False),
        }

    def stop(self, id_: str) -> None:
        """Stop what this session decodes, within one pass."""
        session = self.known(id_)
        if session is None:
            return
        session.interrupt()
        if (question := session.take()) is not None:
            session.messages[question.at + 1]["content"] = "(stopped before it began)"
            session.said = ("stopped before it began", "done")

    # ---- back and anew

    def clear(self, id_: str) -> Updates:
        """A new conversation; the memories stay."""
        p = self.parts
        session = self.known(id_)
        said = ("new conversation; the memories stay warm", "done")
        if session is not None:
            with session.busy():
                session.clear()
                session.said = said
        box = gr.MultimodalTextbox(value=None, submit_btn=True, stop_btn=False)
        return self.everything(session) | {p.chat: [], p.box: box, p.status: texts.status(*said)}

    def undo(self, id_: str) -> Updates:
        """Drop the last question and answer; the question returns to the box, to be changed.

        This is how a question is edited: Gradio's own editing fails on messages with an image.
        """
        p = self.parts
        session = self.known(id_)
        if session is None or not session.asked:
            return {p.status: texts.status("There is no question to take back.", kind="error")}
        with session.busy():
            question = session.undo()
            session.said = ("the last question is in the box again", "done")
        assert question is not None
        box = gr.MultimodalTextbox(
            value={"text": question.text, "files": list(question.paths)},
            submit_btn=True,
            stop_btn=False,
        )
        return self.everything(session) | {
            p.chat: list(session.messages),
            p.box: box,
            p.status: texts.status(*session.said),
        }

    def retry(self, decoder: str, id_: str, *changed: Any) -> Updates:
        """The last question once more, with the decoder chosen now."""
        session = self.known(id_)
        if session is None or not session.asked:
            said = texts.status("There is no question to repeat.", kind="error")
            return {self.parts.status: said}
        with session.busy():
            question = session.undo()
        assert question is not None
        session.configure(settings.read(changed))
        limit = settings.longest(changed)
        return self.asked(session, question.text, list(question.paths), decoder, limit)

    # ---- examples and camera

    def pick(self, id_: str, event: gr.EventData) -> Updates:
        """An example was picked: a new conversation, its image and first question in the box."""
        example = self.examples[int(event._data["index"])]
        value = {"text": example.questions[0], "files": [str(example.path)]}
        p = self.parts
        box = gr.MultimodalTextbox(value=value, submit_btn=True, stop_btn=False)
        said = f"“{example.title}” starts a new conversation: press Enter, or pick a question"
        return self.clear(id_) | {p.box: box, p.status: texts.status(said, kind="done")}

    def begin_chip(
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
        if not files and not (session and any(asked.paths for asked in session.asked)):
            known = isinstance(picked, int) and 0 <= picked < len(self.examples)
            files = [str(self.examples[picked].path)] if known else []  # its questions are about it
        asked = {"text": str(event._data["text"]), "files": files}
        suggested = {question for example in self.examples for question in example.questions}
        typed = waiting.get("text") or ""
        for updates in self.begin(asked, decoder, id_, request, *changed):
            if p.box in updates and typed not in suggested:
                kept = {"text": typed, "files": []}
                updates[p.box] = gr.MultimodalTextbox(kept, submit_btn=False, stop_btn=True)
            yield updates

    def photo(self, message: dict[str, Any] | None, event: gr.EventData) -> dict[str, Any]:
        """A picture from the camera joins what waits in the box."""
        waiting = message or {}
        path = uploaded(event._data.get("path"))
        return {"text": waiting.get("text") or "", "files": [*(waiting.get("files") or []), path]}


def image_note(session: Session, added: int) -> str:
    """What is said when an image joins a conversation that goes on."""
    before = sum(record.images for record in session.turns)
    if not added or not session.turns:
        return ""
    there = f"{before} before it" if before else "none before it"
    return f". A further image joined ({there}); the conversation goes on, nothing was reset"
