"""One person's session: a conversation, a drafter per decoder with its memories, and the last traces.

Nothing here knows of Gradio, nor of other sessions; `service` keeps them.
"""

from __future__ import annotations

import copy
import secrets
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from ..compare import Divergence
from ..conversation import Conversation
from ..drafters import Drafter, make_drafter
from ..drafters.recap.config import RecapConfig
from ..drafters.recap.drafter import RecapDrafter
from ..drafters.recap.tree_size import PassCost
from ..engine import Answer
from ..targets.base import Target
from ..trace import Step, Turn
from .context import Shared

LEARNING = ("recap", "token_recycling")
"""Decoders whose memory outlives an answer."""


@dataclass
class Clock:
    """What a watch says of one run, between its first pass and its last: `wall_s`, the `tokens` that
    came in that time, and the processor seconds that other threads took (`others_s`)."""

    wall_s: float = 0.0
    tokens: int = 0
    others_s: float = 0.0

    def time(self, steps: Iterable[Step]) -> Iterator[Step]:
        """Pass the steps on and note the time; to be used in the thread that decodes."""
        begun = others = None
        for step in steps:
            now, busy = time.perf_counter(), time.process_time() - time.thread_time()
            if begun is None or others is None:
                begun, others = now, busy
            else:
                self.tokens += len(step.token_ids)
            self.wall_s, self.others_s = now - begun, busy - others
            yield step

    @property
    def tokens_per_s(self) -> float:
        """Speed by the wall; 0.0 with fewer than two passes."""
        return self.tokens / self.wall_s if self.wall_s else 0.0


@dataclass(frozen=True, slots=True)
class RecapSettings:
    """What a person may change for Recap. fit: let the measured pass cost choose the tree's size, up to
    the config's budget. warm: the persistent memory stays from answer to answer."""

    config: RecapConfig = field(default_factory=RecapConfig)
    fit: bool = True
    warm: bool = True


@dataclass(frozen=True, slots=True)
class Question:
    """A question that waits for its answer: text, image files, decoder, most tokens of the answer, the
    place of its message in the session's messages, and what is to be said with the answer."""

    text: str
    paths: tuple[str, ...]
    decoder: str
    limit: int
    at: int
    note: str = ""


@dataclass
class TurnRecord:
    """One question of a session and every decoder's run of it; `decoder` made the answer shown.

    at: place of the question in the session's messages (-1: not asked on the page). paces: decoder -> (seconds, tokens) after each
    pass. clocks: decoder -> what a watch says. before: the drafters that learn as they were before this
    turn (kept for the last turn alone). order: the decoders as they ran, first to last. gaps: decoder ->
    how close the choice was where its answer first differs. again: Recap's run of the turn with changed
    settings. untraced: Recap's run with recording off.
    """

    question: str
    paths: tuple[str, ...]
    decoder: str
    at: int = -1
    runs: dict[str, Turn] = field(default_factory=dict)
    paces: dict[str, tuple[list[float], list[int]]] = field(default_factory=dict)
    clocks: dict[str, Clock] = field(default_factory=dict)
    before: dict[str, Drafter] = field(default_factory=dict)
    order: list[str] = field(default_factory=list)
    divergences: dict[str, Divergence] = field(default_factory=dict)
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

    def __init__(
        self,
        target: Target,
        owner: str = "",
        cost: PassCost | None = None,
        *,
        user: str = "",
        shared: Shared | None = None,
    ) -> None:
        self.id = secrets.token_urlsafe(16)
        self.owner, self.user = owner, user
        self.shared = shared or Shared()
        self.target, self.cost = target, cost
        self.conversation = Conversation(target)
        self.settings = RecapSettings()
        self.turns: list[TurnRecord] = []
        self.messages: list[dict[str, Any]] = []
        self.asked: list[Question] = []
        """The question of every pair of messages, refused ones included."""
        self.pending: Question | None = None
        self.answering: Question | None = None
        self.said = ("", "")
        """The page's status line and its kind, see `texts.status`."""
        self.comparisons = 0
        """How many were made: their order goes round with it."""
        self.used = time.monotonic()
        self._drafters: dict[str, Drafter] = {}
        self._busy = threading.Lock()
        self._taking = threading.Lock()
        self._answer: Answer | None = None
        self._interrupts = 0
        self._seen = 0  # interrupts when the work that runs now began
        self._wanted = 0
        self._closed = False

    # ---- memories

    def drafter(self, name: str) -> Drafter:
        """This session's drafter of that name, its memory kept from earlier turns (if warm)."""
        if name not in self._drafters:
            made = self._recap_of_area() if name == "recap" else self._make(name)
            self._drafters[name] = made
        drafter = self._drafters[name]
        if name == "recap" and not self.settings.warm:
            if self.area:  # others use that memory: leave it alone
                return self.recap(None)
            drafter.reset()
        return drafter

    @property
    def area(self) -> str:
        """The isolation area that Recap's memory belongs to; "" is this session's own."""
        return self.shared.areas.name(self.user)

    def _recap_of_area(self) -> Drafter:
        config, size = self.settings.config, self.target.vocab_size
        memory = self.shared.areas.memory(self.user, size, config.top_k)
        cost = self.cost if self.settings.fit else None
        return self._make("recap", config=config, memory=memory, cost=cost)

    def recap(self, like: Drafter | None, *, copied: bool = True) -> Drafter:
        """A Recap drafter with the session's settings that knows what `like` learned (a copy of it, or
        the very same memory), if its rows fit the settings; else nothing."""
        config, cost = self.settings.config, self.cost if self.settings.fit else None
        if not isinstance(like, RecapDrafter) or like.top_k != config.top_k:
            return self._make("recap", config=config, cost=cost)
        memory, acceptance = like.memory, like.acceptance
        if copied:
            memory, acceptance = copy.deepcopy((memory, acceptance))
        made = self._make("recap", config=config, memory=memory, cost=cost)
        made.acceptance = acceptance
        return made

    def _make(self, name: str, **settings: Any) -> Any:
        return make_drafter(name, vocab_size=self.target.vocab_size, **settings)

    def configure(self, settings: RecapSettings) -> None:
        """Use these settings from the next run on; what Recap remembers stays if its rows fit."""
        if settings == self.settings:
            return
        self.settings = settings
        if old := self._drafters.pop("recap", None):
            self._drafters["recap"] = self.recap(old, copied=False)

    def begin(self, record: TurnRecord) -> None:
        """Open a turn: keep what is known before it, for runs of it that start from there."""
        for earlier in self.turns:
            earlier.before = {}
        recap, table = (self.drafter(name) for name in LEARNING)
        record.before = {"recap": self.recap(recap), "token_recycling": copy.deepcopy(table)}

    def as_before(self, record: TurnRecord, name: str) -> Drafter:
        """A drafter that knows what it knew before the turn; for a turn whose past was dropped, what
        it knows now. This session's own drafters learn nothing from it."""
        if name not in LEARNING:
            return self._make(name)
        known = record.before.get(name) or self.drafter(name)
        if name == "recap":
            return self.recap(known if self.settings.warm else None)
        return copy.deepcopy(known)

    def forget(self) -> None:
        """Empty every memory of this session and of its person's area; the conversation stays. A memory
        that everybody shares is nobody's to empty."""
        if self.area:
            self._drafters.pop("recap", None)
            self.shared.areas.clear(self.user)
        for drafter in self._drafters.values():
            drafter.reset()

    def clear(self) -> None:
        """A new conversation. Memories stay, as they do between requests in one isolation area."""
        self.conversation = Conversation(self.target)
        self.turns, self.messages, self.asked = [], [], []
        self.pending = None

    def take(self) -> Question | None:
        """The question that waits for its answer, once; None if there is none (any more)."""
        with self._taking:
            question, self.pending = self.pending, None
        return question

    def undo(self) -> Question | None:
        """Drop the last question, answered or refused, and its answer -> it, None if there is none."""
        self.pending = None
        if not self.asked:
            return None
        question = self.asked.pop()
        del self.messages[question.at :]
        if self.turns and self.turns[-1].at >= question.at:
            self.turns.pop()
            self.conversation.undo()
        return question

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
            if self._closed:
                self.close()

    @contextmanager
    def quiet(self) -> Iterator[bool]:
        """Hold the session if nothing runs in it -> whether it is held. It does not count as use."""
        held = self._busy.acquire(blocking=False)
        try:
            yield held
        finally:
            if held:
                self._busy.release()

    def close(self) -> None:
        """Stop what runs and free what the session holds, as soon as nothing runs. It is not used again."""
        self._closed = True
        self.interrupt()
        with self.quiet() as held:
            if held:
                self.conversation.evict()
                self.turns, self._drafters = [], {}

    @property
    def person(self) -> str:
        """Whose answers count together in the queue: the signed-in person's, else the page's."""
        return f"user {self.user}" if self.user else self.owner

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
