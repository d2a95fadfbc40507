"""Sessions around one loaded model: who talks to it, and for how long.

The store is bounded and forgets idle sessions. Nothing in it waits for the device: whatever a session holds
is freed by the thread that uses it last.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Iterator

from ..drafters.recap.tree_size import PassCost
from ..targets.base import Target
from .context import ServerContext
from .queue import QueueFullError
from .session import Session

SILENT_S = 120.0
"""A page that said that it is there and then not for so long has left. Browsers let hidden pages speak once a
minute."""


class Sessions:
    """A bounded store of sessions, least recently used first to go, idle ones before them.

    idle_s: seconds without use after which a session is freed. grace_s: the same after its page went away;
    whoever comes back earlier finds the conversation as it was.
    """

    def __init__(
        self,
        *,
        limit: int = 32,
        idle_s: float = 1800.0,
        grace_s: float = 60.0,
        context: ServerContext | None = None,
    ) -> None:
        self.limit, self.idle_s, self.grace_s = limit, idle_s, grace_s
        self.context = context or ServerContext()
        self.context.sessions = self
        self._sessions: OrderedDict[str, Session] = OrderedDict()
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._sessions)

    def __iter__(self) -> Iterator[Session]:
        """The sessions, least recently used first."""
        with self._lock:
            return iter(list(self._sessions.values()))

    def get(self, id_: str) -> Session | None:
        """The session with that id, or None if it is not there (any more). Its page is back if it had left."""
        with self._lock:
            session = self._sessions.get(id_)
            if session is not None:
                session.used, session.left = time.monotonic(), None
                self._sessions.move_to_end(id_)
            return session

    def new(
        self, target: Target, *, owner: str = "", user: str = "", cost: PassCost | None = None
    ) -> Session:
        """A new session; others that are not in use make room for it.

        owner: whose page it is, for `leave` and `stay`. user: who is signed in there. Raises QueueFullError,
        one sentence, if all sessions are at work: none of them is stopped.
        """
        session = Session(target, owner, cost, user=user, context=self.context)
        with self._lock:
            removed = self._take_idle()
            free = [id_ for id_, other in self._sessions.items() if not other.is_busy]
            excess = len(self._sessions) + 1 - self.limit
            admitted = excess <= len(free)
            if admitted:
                removed += [self._sessions.pop(id_) for id_ in free[: max(0, excess)]]
                self._sessions[session.id] = session
        close(removed)
        if not admitted:
            raise QueueFullError(
                f"All {self.limit} places on this server are in use; try again in a minute."
            )
        return session

    def of_owner(self, owner: str) -> Session | None:
        """The newest session of that owner; an owner without a name has none."""
        with self._lock:
            found = [s for s in self._sessions.values() if owner and s.owner == owner]
        return self.get(found[-1].id) if found else None

    def leave(self, owner: str) -> int:
        """A page went away, or its connection did: stop what runs for it and start its grace time -> how many
        sessions. Returns at once."""
        with self._lock:
            found = [s for s in self._sessions.values() if owner and s.owner == owner]
            for session in found:
                session.left = time.monotonic()
        for session in found:
            session.interrupt()
        return len(found)

    def stay(self, owner: str) -> int:
        """A page is there (still, or again) -> how many sessions are its."""
        with self._lock:
            found = [s for s in self._sessions.values() if owner and s.owner == owner]
            for session in found:
                session.left, session.seen = None, time.monotonic()
        return len(found)

    def sweep(self) -> int:
        """Free the sessions that were idle, or whose page was away, for too long -> how many."""
        with self._lock:
            removed = self._take_idle()
        close(removed)
        return len(removed)

    def _take_idle(self) -> list[Session]:
        """Take the sessions to be freed out of the store. The caller holds the lock."""
        now = time.monotonic()

        def is_over(session: Session) -> bool:
            left = session.left
            if left is None and session.seen is not None and session.seen < now - SILENT_S:
                left = session.seen + SILENT_S
            return session.used < now - self.idle_s or (
                left is not None and left < now - self.grace_s
            )

        ids = [i for i, s in self._sessions.items() if not s.is_busy and is_over(s)]
        return [self._sessions.pop(id_) for id_ in ids]


def close(sessions: list[Session]) -> None:
    """Close sessions that left the store. Call it without the store's lock."""
    for session in sessions:
        session.close()
