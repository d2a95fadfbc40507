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
from .drafters import warm
from .scheduler import QueueFullError
from .session import Session
from .shared import Shared
from .targets.base import Target
from .targets.catalogue import LoadError


class NotReadyError(RuntimeError):
    """The model is still loading, or could not be loaded; the message says which."""


def sentence_of(error: BaseException) -> str:
    """An error for the page: a LoadError's own sentence, other kinds with their name."""
    text = (str(error).strip().splitlines() or [""])[0]
    return text if isinstance(error, LoadError) else f"{type(error).__name__}: {text}"


class ModelLoader:
    """Loads the target in the background, so that the page answers first.

    measure: times the target's packed pass after loading, so that Recap's trees fit the machine.
    fallback: loads another target if that one cannot be loaded; `note` then says so, for the page.
    """

    def __init__(
        self,
        name: str,
        load: Callable[[], Target],
        measure: Callable[[Target], PassCost] | None = None,
        fallback: Callable[[], Target] | None = None,
    ) -> None:
        self.name = name
        self.note = ""
        self.error = ""
        self.phase = f"loading the model “{name}”"
        self.seconds = 0.0
        self.cost: PassCost | None = None
        self._target: Target | None = None
        self._load, self._measure, self._fallback = load, measure, fallback
        self._then: list[Callable[[Target], None]] = []
        self._lock = threading.Lock()
        self._done = threading.Event()
        threading.Thread(target=self._run, name="load model", daemon=True).start()

    def _run(self) -> None:
        begun = time.monotonic()
        try:
            beside = threading.Thread(target=warm, name="warm drafters", daemon=True)
            beside.start()
            target = self._first_or_fallback()
            self.phase = "preparing the drafters (compiled once on a machine)"
            beside.join()
            warm()  # says why, if that went wrong beside
            if self._measure is not None:
                self.phase = f"timing the packed pass of “{target.name}” on this machine"
                self.cost = self._measure(target)
            with self._lock:
                for work in self._then:
                    work(target)
                self._target = target
        except Exception as error:  # shown on the page: a server without its model still says why
            self.error = sentence_of(error)
        self.seconds = time.monotonic() - begun
        self._done.set()

    def _first_or_fallback(self) -> Target:
        try:
            return self._load()
        except Exception as error:
            if self._fallback is None:
                raise
            self.note = (
                f"The model “{self.name}” could not be loaded: {sentence_of(error)} "
                "The embedded demo model answers instead."
            )
        self.phase = "loading the embedded demo model instead"
        return self._fallback()

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until loading has ended, well or not -> whether it has."""
        return self._done.wait(timeout)

    @property
    def loaded(self) -> bool:
        """The target is there."""
        return self._target is not None

    def then(self, work: Callable[[Target], None]) -> None:
        """Do something with the target as soon as it is there, before anybody is answered by it."""
        with self._lock:
            if self._target is None:
                self._then.append(work)
                return
        work(self._target)

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
