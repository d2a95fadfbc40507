"""Sessions around one loaded model: who talks to it, with which memories, and for how long.

A session holds one conversation and one drafter per decoder, so persistent memories never cross from
one person to another. The store is bounded and forgets idle sessions. Nothing here knows of Gradio;
the page keeps a session's id and nothing else. The lock over the device is the target's own and is
held for one pass at a time; `Session.busy` only keeps one session from answering twice at once.
"""

from __future__ import annotations

import secrets
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from .chat import Conversation
from .config import RecapConfig
from .drafters import DECODERS, Drafter, make_drafter
from .engine import Answer
from .targets.base import Target
from .trace import Turn


class NotReadyError(RuntimeError):
    """The model is still loading, or could not be loaded; the message says which."""


class ModelLoader:
    """Loads the target in the background, so that the page answers first."""

    def __init__(self, name: str, load: Callable[[], Target]) -> None:
        self.name = name
        self.error = ""
        self.seconds = 0.0
        self._target: Target | None = None
        self._load = load
        self._done = threading.Event()
        threading.Thread(target=self._run, name="load model", daemon=True).start()

    def _run(self) -> None:
        begun = time.monotonic()
        try:
            self._target = self._load()
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


@dataclass
class TurnRecord:
    """One question of a session and every decoder's run of it; `decoder` made the answer shown."""

    question: str
    images: int
    decoder: str
    runs: dict[str, Turn] = field(default_factory=dict)
    trace: str = ""


class Session:
    """One person's conversation, memories and last traces."""

    def __init__(self, target: Target, owner: str) -> None:
        self.id = secrets.token_urlsafe(16)
        self.owner = owner
        self.target = target
        self.conversation = Conversation(target)
        self.config = RecapConfig()
        self.warm = True
        self.turns: list[TurnRecord] = []
        self.messages: list[dict[str, Any]] = []
        self.used = time.monotonic()
        self._drafters: dict[str, Drafter] = {}
        self._busy = threading.Lock()
        self._answer: Answer | None = None
        self._interrupts = 0

    # ---- memories

    def drafter(self, name: str) -> Drafter:
        """This session's drafter of that name, its memory kept from earlier turns (if warm)."""
        if name not in self._drafters:
            settings = {"config": self.config} if name == "recap" else {}
            self._drafters[name] = make_drafter(name, vocab_size=self.target.vocab_size, **settings)
        drafter = self._drafters[name]
        if not self.warm:
            drafter.reset()
        return drafter

    def configure(self, config: RecapConfig, *, warm: bool) -> None:
        """Use these settings from the next answer on; what Recap remembers stays if rows fit."""
        if config != self.config:
            old = self._drafters.pop("recap", None)
            self.config = config
            memory = getattr(old, "memory", None)
            if memory is not None and old is not None and old.top_k == config.top_k:
                self._drafters["recap"] = make_drafter(
                    "recap", vocab_size=self.target.vocab_size, config=config, memory=memory
                )
        self.warm = warm

    def forget(self) -> None:
        """Empty every memory of this session; the conversation stays."""
        for drafter in self._drafters.values():
            drafter.reset()

    def clear(self) -> None:
        """A new conversation. Memories stay, as they do between requests in one isolation area."""
        self.conversation = Conversation(self.target)
        self.turns, self.messages = [], []

    # ---- one thing at a time

    @contextmanager
    def busy(self, *, yielding: bool = False) -> Iterator[bool]:
        """Hold the session for one piece of work -> True; what runs in it now is stopped first.

        yielding: give way instead. If other work runs, nothing is held and the value is False.
        """
        if yielding:
            if not self._busy.acquire(blocking=False):
                yield False
                return
        else:
            self.interrupt()
            self._busy.acquire()
        self.used = time.monotonic()
        try:
            yield True
        finally:
            self._answer = None
            self.used = time.monotonic()
            self._busy.release()

    @property
    def is_busy(self) -> bool:
        """Some work of this session is going on."""
        return self._busy.locked()

    @property
    def interrupts(self) -> int:
        """How often work was asked to stop: work that sees it change ends."""
        return self._interrupts

    def running(self, answer: Answer) -> Answer:
        """Note the answer that `interrupt` should stop."""
        self._answer = answer
        return answer

    def interrupt(self) -> bool:
        """Stop what runs, within one pass -> whether anything ran."""
        self._interrupts += 1
        answer = self._answer
        if answer is not None:
            answer.stop()
        return answer is not None


class Sessions:
    """A bounded store of sessions, least recently used first to go, idle ones before them."""

    def __init__(self, *, limit: int = 32, idle_s: float = 1800.0) -> None:
        self.limit, self.idle_s = limit, idle_s
        self._sessions: OrderedDict[str, Session] = OrderedDict()
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._sessions)

    def get(self, id_: str) -> Session | None:
        """The session with that id, or None if it is not there (any more)."""
        with self._lock:
            session = self._sessions.get(id_)
            if session is not None:
                session.used = time.monotonic()
                self._sessions.move_to_end(id_)
            return session

    def new(self, target: Target, *, owner: str = "") -> Session:
        """A new session; makes room for it. `owner` names whose page it is, for `drop_owner`."""
        session = Session(target, owner)
        with self._lock:
            self._sweep()
            while len(self._sessions) >= self.limit:
                quiet = (i for i, s in self._sessions.items() if not s.is_busy)
                self._remove(next(quiet, next(iter(self._sessions))))
            self._sessions[session.id] = session
        return session

    def of_owner(self, owner: str) -> Session | None:
        """The newest session of that owner."""
        with self._lock:
            found = [s for s in self._sessions.values() if s.owner == owner]
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


__all__ = ["DECODERS", "ModelLoader", "NotReadyError", "Session", "Sessions", "TurnRecord"]
