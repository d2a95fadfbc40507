"""What the sessions of one server share: the queue, the memory scopes, the memory budgets, the metrics.

A session that stands alone (a test, a script) has a context of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from typing import Protocol

from .memory_scope import MemoryScopes
from .metrics import Metrics
from .queue import AnswerQueue

KV_BYTES = 8_000_000_000
"""Default budget for the KV caches of all conversations together."""


class HoldsCache(Protocol):
    """What the budget asks of a session."""

    @property
    def kv_bytes(self) -> int:
        """Bytes of KV cache that it holds, those of forks included."""
        ...

    def if_free(self) -> AbstractContextManager[bool]:
        """Hold the session unless something runs in it -> whether it is held."""
        ...

    def evict(self) -> None:
        """Give the KV cache back; it is filled again at the next question."""
        ...


class ServerContext:
    """kv_bytes: budget for KV caches that nobody uses at the moment; beyond it the least recently used are
    given back and filled again at their next question. sessions: set by the store that holds them, least
    recently used first. ready: whether the model is loaded. notices: sentences for everybody's page."""

    def __init__(
        self,
        queue: AnswerQueue | None = None,
        scopes: MemoryScopes | None = None,
        *,
        kv_bytes: int = KV_BYTES,
    ) -> None:
        self.queue = queue or AnswerQueue()
        self.scopes = scopes or MemoryScopes()
        self.kv_bytes = kv_bytes
        self.sessions: Iterable[HoldsCache] = ()
        self.ready: Callable[[], bool] = lambda: False
        self.notices: list[str] = []
        self.metrics = Metrics(self.figures)

    def figures(self) -> dict[str, float]:
        """The values of `metrics.GAUGES` now."""
        sessions, queue = list(self.sessions), self.queue
        return {
            "queue_waiting": queue.waiting(),
            "answers_running": queue.running(),
            "comparisons_waiting": queue.waiting("comparison"),
            "comparisons_running": queue.running("comparison"),
            "sessions": len(sessions),
            "kv_bytes": sum(session.kv_bytes for session in sessions),
            "memory_predictions": self.scopes.predictions,
            "ready": float(self.ready()),
        }

    def trim(self, kv_bytes: int | None = None) -> int:
        """Evict KV caches of sessions in which nothing runs until all take at most kv_bytes -> how many."""
        budget = self.kv_bytes if kv_bytes is None else kv_bytes
        sessions = list(self.sessions)
        held = sum(session.kv_bytes for session in sessions)
        evicted = 0
        for session in sessions:
            if held <= budget:
                break
            size = session.kv_bytes
            if not size:
                continue
            with session.if_free() as free:
                if free:
                    session.evict()
                    held, evicted = held - size, evicted + 1
        return evicted
