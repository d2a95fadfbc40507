"""What the sessions of one service share: the queue, the areas, the room for KV caches, the figures.

Nothing here knows of Gradio. A session that stands alone (a test, a script) has one of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from .memory_scope import Areas
from .metrics import Metrics
from .queue import AnswerQueue

if TYPE_CHECKING:
    from .session import Session

KV_BYTES = 8_000_000_000
"""Default room for the KV caches of all conversations together."""


class Shared:
    """kv_bytes: most bytes of KV cache that conversations keep while nobody uses them; beyond it the least
    recently used caches are given back, and filled again at their next question. sessions: set by the
    store that holds them, least recently used first. ready: whether the model is loaded. remarks: sentences
    for everybody's page (a memory file that was refused, ...)."""

    def __init__(
        self,
        queue: AnswerQueue | None = None,
        areas: Areas | None = None,
        *,
        kv_bytes: int = KV_BYTES,
    ) -> None:
        self.queue = AnswerQueue() if queue is None else queue  # an empty queue is falsy
        self.areas = areas or Areas()
        self.kv_bytes = kv_bytes
        self.sessions: Iterable[Session] = ()
        self.ready: Callable[[], bool] = lambda: False
        self.remarks: list[str] = []
        self.metrics = Metrics(self.figures)

    def figures(self) -> dict[str, float]:
        """The values of `metrics.GAUGES` now."""
        sessions = list(self.sessions)
        return {
            "queue_waiting": len(self.queue),
            "answers_running": self.queue.running,
            "sessions": len(sessions),
            "kv_bytes": sum(session.conversation.kv_bytes for session in sessions),
            "memory_rows": self.areas.rows,
            "ready": float(self.ready()),
        }

    def trim(self, kv_bytes: int | None = None) -> int:
        """Give the KV caches of quiet sessions back until all take at most kv_bytes -> how many."""
        room = self.kv_bytes if kv_bytes is None else kv_bytes
        sessions = list(self.sessions)
        held = sum(session.conversation.kv_bytes for session in sessions)
        evicted = 0
        for session in sessions:
            if held <= room:
                break
            size = session.conversation.kv_bytes
            if not size:
                continue
            with session.quiet() as mine:
                if mine:
                    session.conversation.evict()
                    held, evicted = held - size, evicted + 1
        return evicted
