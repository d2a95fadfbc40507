"""One person's session: a conversation, a drafter per decoder with its memories, and the last traces.

Nothing here knows of Gradio, nor of other sessions; `service` keeps them.
"""

from __future__ import annotations

import copy
import secrets
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from .budget import PassCost
from .chat import Conversation
from .config import RecapConfig
from .drafters import Drafter, make_drafter
from .engine import Answer
from .memory import PersistentMemory
from .targets.base import Target
from .trace import Turn


@dataclass(frozen=True, slots=True)
class RecapSettings:
    """What a person may change for Recap. fit: let the measured pass cost choose the tree's size, up to
    the config's budget. warm: the persistent memory stays from answer to answer."""

    config: RecapConfig = field(default_factory=RecapConfig)
    fit: bool = True
    warm: bool = True


@dataclass
class TurnRecord:
    """One question of a session and every decoder's run of it; `decoder` made the answer shown.

    at: place of the question in the session's messages. paces: decoder -> (seconds, tokens) after each
    pass. memory: Recap's persistent memory as it was before this turn. again: Recap's run of the turn
    with changed settings. untraced: Recap's run with recording off.
    """

    question: str
    paths: tuple[str, ...]
    decoder: str
    at: int = 0
    runs: dict[str, Turn] = field(default_factory=dict)
    paces: dict[str, tuple[list[float], list[int]]] = field(default_factory=dict)
    memory: PersistentMemory | None = None
    again: Turn | None = None
    untraced: Turn | None = None
    trace: str = ""
    key: str = field(default_factory=lambda: secrets.token_urlsafe(6))

    @property
    def images(self) -> int:
        """Images that came with the question."""
        return len(self.paths)


class Session:
    """One person's conversation, memories and last traces."""

    def __init__(self, target: Target, owner: str = "", cost: PassCost | None = None) -> None:
        self.id = secrets.token_urlsafe(16)
        self.owner = owner
        self.target, self.cost = target, cost
        self.conversation = Conversation(target)
        self.settings = RecapSettings()
        self.turns: list[TurnRecord] = []
        self.messages: list[dict[str, Any]] = []
        self.used = time.monotonic()
        self._drafters: dict[str, Drafter] = {}
        self._busy = threading.Lock()
        self._answer: Answer | None = None
        self._interrupts = 0
        self._seen = 0  # interrupts when the work that runs now began
        self._wanted = 0

    # ---- memories

    def drafter(self, name: str) -> Drafter:
        """This session's drafter of that name, its memory kept from earlier turns (if warm)."""
        if name not in self._drafters:
            if name == "recap":
                self._drafters[name] = self.recap(None)
            else:
                self._drafters[name] = make_drafter(name, vocab_size=self.target.vocab_size)
        drafter = self._drafters[name]
        if name == "recap" and not self.settings.warm:
            drafter.reset()
        return drafter

    def recap(self, memory: PersistentMemory | None) -> Drafter:
        """A Recap drafter with the session's settings over `memory` (None: an empty one)."""
        config, cost = self.settings.config, self.cost if self.settings.fit else None
        size = self.target.vocab_size
        return make_drafter("recap", vocab_size=size, config=config, memory=memory, cost=cost)

    def configure(self, settings: RecapSettings) -> None:
        """Use these settings from the next run on; what Recap remembers stays if its rows fit."""
        if settings == self.settings:
            return
        self.settings = settings
        old = self._drafters.pop("recap", None)
        if old is not None and old.top_k == settings.config.top_k:
            self._drafters["recap"] = self.recap(memory_of(old))

    def remembered(self) -> PersistentMemory | None:
        """A copy of what Recap's persistent memory holds now."""
        return copy.deepcopy(memory_of(self.drafter("recap")))

    def forget(self) -> None:
        """Empty every memory of this session; the conversation stays."""
        for drafter in self._drafters.values():
            drafter.reset()

    def clear(self) -> None:
        """A new conversation. Memories stay, as they do between requests in one isolation area."""
        self.conversation = Conversation(self.target)
        self.turns, self.messages = [], []

    def undo(self) -> TurnRecord | None:
        """Drop the last question and its answer -> its record, None if there is none."""
        if not self.turns:
            return None
        record = self.turns.pop()
        self.conversation.undo()
        del self.messages[record.at :]
        return record

    # ---- one thing at a time

    @contextmanager
    def busy(self, *, patient_s: float | None = None) -> Iterator[bool]:
        """Hold the session for one piece of work -> True; what runs in it now is stopped first.

        patient_s: stop nothing but wait that long for one's turn. If it does not come, nothing is held
        and the value is False.
        """
        if patient_s is None:
            self._wanted += 1
            self.interrupt()
            self._busy.acquire()
            self._wanted -= 1
        elif not self._busy.acquire(timeout=patient_s):
            yield False
            return
        elif self._wanted:  # something that does not wait wants the session: let it pass
            self._busy.release()
            yield False
            return
        self._seen = self._interrupts
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
        """Note the answer that `interrupt` should stop; one that came before it existed stops it too."""
        self._answer = answer
        if self._interrupts != self._seen:
            answer.stop()
        return answer

    def interrupt(self) -> bool:
        """Stop what runs, within one pass -> whether anything ran."""
        self._interrupts += 1
        answer = self._answer
        if answer is not None:
            answer.stop()
        return answer is not None


def memory_of(drafter: Drafter) -> PersistentMemory | None:
    """The persistent memory of a Recap drafter, None for other drafters."""
    return getattr(drafter, "memory", None)
