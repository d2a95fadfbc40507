"""What a page shows of its session, beyond the session itself: the status line, the question that waits.

The chat is not kept: it is made from the session's records, so that page and model cannot disagree.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from weakref import WeakKeyDictionary

from ..server.session import Session, TurnRecord
from ..targets.images import display_name
from ..trace import dumps
from . import texts

FREED = (
    "*This conversation had been idle or disconnected for too long and was freed on the server. "
    "A new one starts here; the model no longer knows what came before.*"
)


@dataclass
class View:
    """status: the line under the chat and its kind, see `texts.status`. pending: the question that waits for
    its answer event. images: record key -> the page's copies of its images. freed: an earlier conversation
    of this page was freed. sent: the key of the turn whose trace the page has, and its parts as sent."""

    status: tuple[str, str] = ("", "")
    pending: TurnRecord | None = None
    images: dict[str, list[str]] = field(default_factory=dict)
    freed: bool = False
    sent: tuple[str, dict[str, str]] = ("", {})
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def take(self) -> TurnRecord | None:
        """The question that waits for its answer, once; None if there is none (any more)."""
        with self._lock:
            record, self.pending = self.pending, None
        return record

    @contextmanager
    def answering(self, record: TurnRecord) -> Iterator[None]:
        """The status while a question is answered, and how it ended."""
        try:
            yield
        finally:
            if record.state == "refused":
                self.status = (record.note, "error")

    def is_newest(self, session: Session) -> bool:
        """Whether the session stands as it will be: no newer question waits or runs."""
        return self.pending is None and not any(
            record.state in ("waiting", "running") for record in session.records
        )

    def trace(self, session: Session) -> str | None:
        """What the page lacks of the last turn's trace; None if it lacks nothing.

        A turn's trace is sent once. Afterwards only runs that are new or ran again go, behind a line
        {"type": "more", "turn": key} (see `merge` in assets/trace.js).
        """
        record = session.turns[-1] if session.turns else None
        if record is None:
            self.sent = ("", {})
            return ""
        key, known = self.sent
        parts = record.trace_parts
        self.sent = (record.key, parts)
        if key != record.key:
            return record.trace
        more = [lines for label, lines in parts.items() if known.get(label) is not lines]
        return dumps({"type": "more", "turn": key}) + "\n" + "".join(more) if more else None

    def chat(self, session: Session) -> list[dict[str, Any]]:
        """The messages of the chat, as `gr.Chatbot` takes them."""
        messages: list[dict[str, Any]] = []
        if self.freed:
            messages.append({"role": "assistant", "content": FREED})
        for record in session.records:
            images = self.images.get(record.key, [])
            content: list[Any] = [{"path": path, "alt_text": "uploaded image"} for path in images]
            content += texts.verbatim(record.question or ("" if images else names(record)))
            messages.append({"role": "user", "content": content})
            messages.append({"role": "assistant", "content": reply(record)})
        return messages


def names(record: TurnRecord) -> str:
    """The names of a question's files, for one without words whose files cannot be shown."""
    return ", ".join(display_name(path) for path in record.paths)


def reply(record: TurnRecord) -> Any:
    """The content of the message that answers a question."""
    if record.state in ("waiting", "running"):
        return "…"
    if record.state == "refused":
        return texts.verbatim(record.note)
    answer = record.answer
    blocks = [{"type": "text", "text": answer.text or "(no words)"}]
    if answer.finish_reason in ("stopped", "failed"):
        reason = record.note if answer.finish_reason == "failed" else "Stopped here."
        blocks += texts.verbatim(reason)
    return blocks


class Views:
    """The view of every session, for as long as the session lives."""

    def __init__(self) -> None:
        self._views: WeakKeyDictionary[Session, View] = WeakKeyDictionary()
        self._lock = threading.Lock()

    def of(self, session: Session) -> View:
        """The view of that session."""
        with self._lock:
            return self._views.setdefault(session, View())
