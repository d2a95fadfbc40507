"""Sessions around one loaded model: who talks to it, and for how long.

The store is bounded and forgets idle sessions. Nothing here knows of Gradio; the page keeps a
session's id and nothing else. The lock over the device is the target's own and is held for one pass at
a time; `Session.busy` only keeps one session from answering twice at once.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator

from .budget import PassCost
from .session import Session
from .targets.base import Target


class NotReadyError(RuntimeError):
    """The model is still loading, or could not be loaded; the message says which."""


class ModelLoader:
    """Loads the target in the background, so that the page answers first.

    measure: times the target's packed pass after loading, so that Recap's trees fit the machine.
    """

    def __init__(
        self,
        name: str,
        load: Callable[[], Target],
        measure: Callable[[Target], PassCost] | None = None,
    ) -> None:
        self.name = name
        self.error = ""
        self.phase = f"loading the model “{name}”"
        self.seconds = 0.0
        self.cost: PassCost | None = None
        self._target: Target | None = None
        self._load, self._measure = load, measure
        self._done = threading.Event()
        threading.Thread(target=self._run, name="load model", daemon=True).start()

    def _run(self) -> None:
        begun = time.monotonic()
        try:
            target = self._load()
            if self._measure is not None:
                self.phase = f"timing the packed pass of “{self.name}” on this machine"
                self.cost = self._measure(target)
            self._target = target
        except Exception as error:  # shown on the page: a server without its model still says why
            self.error = f"{type(error).__name__}: {error}"
        self.seconds = time.monotonic() - begun
        self._done.set()

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until loading has ended, well or not -> whether it has."""
        return self._done.wait(timeout)

    @property
    def target(self) -> Target:
        """The loaded target. Raises NotReadyError while there is none."""
        if self._target is None:
            if self.error:
                raise NotReadyError(f"The model “{self.name}” could not be loaded: {self.error}")
            raise NotReadyError("The model is still loading; try again in a moment.")
        return self._target


class Sessions:
    """A bounded store of sessions, least recently used first to go, idle ones before them."""

    def __init__(self, *, limit: int = 32, idle_s: float = 1800.0) -> None:
        self.limit, self.idle_s = limit, idle_s
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

    def new(self, target: Target, *, owner: str = "", cost: PassCost | None = None) -> Session:
        """A new session; makes room for it. `owner` names whose page it is, for `drop_owner`."""
        session = Session(target, owner, cost)
        with self._lock:
            self._sweep()
            while len(self._sessions) >= self.limit:
                quiet = (i for i, s in self._sessions.items() if not s.is_busy)
                self._remove(next(quiet, next(iter(self._sessions))))
            self._sessions[session.id] = session
        return session

    def of_owner(self, owner: str) -> Session | None:
        """The newest session of that owner; who has no name owns none."""
        with self._lock:
            found = [s for s in self._sessions.values() if owner and s.owner == owner]
        return self.get(found[-1].id) if found else None

    def drop_owner(self, owner: str) -> int:
        """Free every session of a page that was closed -> how many."""
        with self._lock:
            gone = [i for i, s in self._sessions.items() if owner and s.owner == owner]
            for id_ in gone:
                self._remove(id_)
        return len(gone)

    def sweep(self) -> None:
        """Free the sessions that were idle for too long."""
        with self._lock:
            self._sweep()

    def _sweep(self) -> None:
        horizon = time.monotonic() - self.idle_s
        for id_ in [i for i, s in self._sessions.items() if s.used < horizon and not s.is_busy]:
            self._remove(id_)

    def _remove(self, id_: str) -> None:
        self._sessions.pop(id_).interrupt()
