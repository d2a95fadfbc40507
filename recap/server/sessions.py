"""Sessions around one loaded model: who talks to it, and for how long.

The store is bounded and forgets idle sessions. Nothing here knows of Gradio; the page keeps a
session's id and nothing else. The lock over the device is the target's own and is held for one pass at
a time; `Session.busy` only keeps one session from answering twice at once.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Iterator

from ..drafters.recap.tree_size import PassCost
from ..targets.base import Target
from .context import Shared
from .queue import QueueFullError
from .session import Session


class Sessions:
    """A bounded store of sessions, least recently used first to go, idle ones before them."""

    def __init__(
        self, *, limit: int = 32, idle_s: float = 1800.0, shared: Shared | None = None
    ) -> None:
        self.limit, self.idle_s = limit, idle_s
        self.shared = shared or Shared()
        self.shared.sessions = self
        self._sessions: OrderedDict[str, Session] = OrderedDict()
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._sessions)

    def __iter__(self) -> Iterator[Session]:
        """The sessions, least recently used first."""
        with self._lock:
            return iter(list(self._sessions.values()))

    def get(self, id_: str) -> Session | None:
        """The session with that id, or None if it is not there (any more)."""
        with self._lock:
            session = self._sessions.get(id_)
            if session is not None:
                session.used = time.monotonic()
                self._sessions.move_to_end(id_)
            return session

    def new(
        self, target: Target, *, owner: str = "", user: str = "", cost: PassCost | None = None
    ) -> Session:
        """A new session; makes room for it. `owner` names whose page it is, for `drop_owner`; `user`
        who is signed in there.

        Raises QueueFullError, one sentence, if all sessions are at work: none of them is stopped.
        """
        session = Session(target, owner, cost, user=user, shared=self.shared)
        with self._lock:
            gone = self._idle()
            quiet = [i for i, s in self._sessions.items() if not s.is_busy]
            over = len(self._sessions) + 1 - self.limit
            if over <= len(quiet):
                gone += [self._sessions.pop(id_) for id_ in quiet[: max(0, over)]]
                self._sessions[session.id] = session
        close(gone)
        if session.id not in self._sessions:
            raise QueueFullError(
                f"All {self.limit} places on this server are in use; try again in a minute."
            )
        return session

    def of_owner(self, owner: str) -> Session | None:
        """The newest session of that owner; who has no name owns none."""
        with self._lock:
            found = [s for s in self._sessions.values() if owner and s.owner == owner]
        return self.get(found[-1].id) if found else None

    def drop_owner(self, owner: str) -> int:
        """Free every session of a page that was closed -> how many."""
        with self._lock:
            ids = [i for i, s in self._sessions.items() if owner and s.owner == owner]
            gone = [self._sessions.pop(id_) for id_ in ids]
        close(gone)
        return len(gone)

    def sweep(self) -> None:
        """Free the sessions that were idle for too long."""
        with self._lock:
            gone = self._idle()
        close(gone)

    def _idle(self) -> list[Session]:
        """Take the sessions that were idle for too long out of the store; the lock is held."""
        horizon = time.monotonic() - self.idle_s
        ids = [i for i, s in self._sessions.items() if s.used < horizon and not s.is_busy]
        return [self._sessions.pop(id_) for id_ in ids]


def close(sessions: list[Session]) -> None:
    """Close sessions that left the store; not under its lock, because a pass may have to end first."""
    for session in sessions:
        session.close()
