"""What happens on the page: each method is one event. They keep a session's id and nothing else."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import gradio as gr

from ..service import ModelLoader, NotReadyError, Sessions
from ..session import Session
from . import settings, texts, work
from .compared import Compared, Updates
from .examples import Example
from .messages import clean
from .uploads import for_page, name_list

FREED = (
    "*This conversation had been idle or disconnected for too long and was freed on the server. "
    "A new one starts here; the model no longer knows what came before.*"
)


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
        known = self.sessions.get(id_) if id_ else None
        if known is not None:
            return known, False
        owner = request.session_hash or ""
        new = self.sessions.new(self.loader.target, owner=owner, cost=self.loader.cost)
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
            yield {
                p.model: texts.status(str(error), kind="error"),
                p.status: texts.status(str(error), kind="error"),
            }
            return
        yield {
            p.model: texts.model_line(target, self.loader.seconds),
            p.status: texts.status("ready", kind="done"),
            p.notes: texts.notes(target),
        }

    # ---- chat

    def answer(
        self,
        message: dict[str, Any] | None,
        decoder: str,
        id_: str,
        request: gr.Request,
        *changed: Any,
    ) -> Iterator[Updates]:
        """One question from the text box, streamed. changed: the settings, as `settings.read` takes them."""
        p = self.parts
        try:
            text = clean((message or {}).get("text") or "")
        except ValueError as error:
            yield {p.status: texts.status(str(error), kind="error")}
            return
        files = [str(f) for f in (message or {}).get("files") or []]
        if not text and not files:
            yield {p.status: texts.status("Type a question first.", kind="error")}
            return
        while not self.loader.wait(0.5):
            yield {p.status: texts.status(self.loader.phase)}
        try:
            session, freed = self.session(id_, request)
        except NotReadyError as error:
            yield {p.status: texts.status(str(error), kind="error")}
            return
        if freed:
            session.messages.append({"role": "assistant", "content": FREED})
        session.configure(settings.read(changed))
        limit = settings.longest(changed)
        yield from self.stream(session, text, files, decoder, limit)

    def stream(
        self, session: Session, text: str, files: list[str], decoder: str, limit: int
    ) -> Iterator[Updates]:
        """The updates of one question; a refusal is one sentence in the chat, which goes on."""
        p = self.parts
        copies, left_out = for_page(files)
        note = image_note(session, len(files)) + (f". {left_out}" if left_out else "")
        session.interrupt()
        said = [{"path": f, "alt_text": "uploaded image"} for f in copies]
        user = {"role": "user", "content": [*said, text] if text else said or [name_list(files)]}
        reply: dict[str, Any] = {"role": "assistant", "content": "…"}
        at = len(session.messages)
        session.messages += [user, reply]
        yield {
            p.box: gr.MultimodalTextbox(value=None, submit_btn=False, stop_btn=True),
            p.chat: list(session.messages),
            p.state: session.id,
            p.status: texts.status(
                "preparing the question" + (": encoding the image" if files else "")
            ),
            p.results: texts.waiting(),
        }
        box = gr.MultimodalTextbox(submit_btn=True, stop_btn=False)
        try:
            for progress in work.answer(session, text, files, decoder, max_new_tokens=limit):
                reply["content"] = progress.text or "…"
                done = progress.turn is not None
                yield {
                    p.chat: list(session.messages),
                    p.trace: progress.trace,
                    p.status: texts.status(
                        progress.phase + (note if done else ""), kind="done" if done else ""
                    ),
                }
            record = session.turns[-1]
            record.at = at
            yield {p.box: box, p.results: texts.results_table(record)}
        except ValueError as error:
            reply["content"] = f"*{error}*"
            yield {
                p.box: box,
                p.chat: list(session.messages),
                p.status: texts.status(str(error), kind="error"),
                p.results: texts.nothing(),
            }

    def stop(self, id_: str) -> None:
        """Stop what this session decodes, within one pass."""
        session = self.sessions.get(id_) if id_ else None
        if session is not None:
            session.interrupt()

    def clear(self, id_: str) -> Updates:
        """A new conversation; the memories stay."""
        p = self.parts
        session = self.sessions.get(id_) if id_ else None
        if session is not None:
            with session.busy():
                session.clear()
        return {
            p.chat: [],
            p.box: gr.MultimodalTextbox(value=None, submit_btn=True, stop_btn=False),
            p.status: texts.status("new conversation; the memories stay warm", kind="done"),
            p.results: texts.nothing(),
        }

    def undo(self, id_: str) -> Updates:
        """Drop the last question and answer; the question returns to the box, to be changed.

        This is how a question is edited: Gradio's own editing fails on messages with an image.
        """
        p = self.parts
        session = self.sessions.get(id_) if id_ else None
        if session is None or not session.messages:
            return {p.status: texts.status("There is nothing to undo.", kind="error")}
        with session.busy():
            text, files = take_back(session)
        box = gr.MultimodalTextbox(
            value={"text": text, "files": files}, submit_btn=True, stop_btn=False
        )
        said = texts.status("the last question was taken back", kind="done")
        return {p.chat: list(session.messages), p.box: box, p.status: said}

    def retry(self, decoder: str, id_: str, *changed: Any) -> Iterator[Updates]:
        """The last question once more, with the decoder chosen now."""
        session = self.sessions.get(id_) if id_ else None
        if session is None or not session.messages:
            return
        with session.busy():
            text, files = take_back(session)
        session.configure(settings.read(changed))
        yield from self.stream(session, text, files, decoder, settings.longest(changed))

    # ---- examples

    def pick(self, id_: str, event: gr.EventData) -> Updates:
        """An example was picked: a new conversation, its image and first question in the box."""
        example = self.examples[int(event._data["index"])]
        value = {"text": example.questions[0], "files": [str(example.path)]}
        p = self.parts
        box = gr.MultimodalTextbox(value=value, submit_btn=True, stop_btn=False)
        said = f"“{example.title}” starts a new conversation: press Enter, or pick a question"
        return self.clear(id_) | {p.box: box, p.status: texts.status(said, kind="done")}

    def take_question(self, message: dict[str, Any] | None, event: gr.EventData) -> dict[str, Any]:
        """A question chip was pressed: into the box, beside the image that waits there."""
        return {"text": str(event._data["text"]), "files": (message or {}).get("files") or []}


def take_back(session: Session) -> tuple[str, list[str]]:
    """Drop the last exchange, refused or answered -> its question and files."""
    record = session.turns[-1] if session.turns else None
    if record is not None and len(session.messages) <= record.at + 2:
        session.undo()
        return record.question, list(record.paths)
    content = session.messages[-2]["content"]
    del session.messages[-2:]
    return "".join(part for part in content if isinstance(part, str)), []


def image_note(session: Session, added: int) -> str:
    """What is said when an image joins a conversation that goes on."""
    before = sum(record.images for record in session.turns)
    if not added or not session.turns:
        return ""
    there = f"{before} before it" if before else "none before it"
    return f". A further image joined ({there}); the conversation goes on, nothing was reset"
