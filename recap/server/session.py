"""One person's session: a conversation, a drafter per decoder with its memories, and the turns so far.

Knows nothing of Gradio, nor of other sessions; `sessions` stores them, `run` and `actions` do the work.
"""

from __future__ import annotations

import copy
import secrets
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from ..compare import Divergence
from ..conversation import Conversation
from ..drafters import Drafter, make_drafter
from ..drafters.recap.config import RecapConfig
from ..drafters.recap.drafter import RecapDrafter
from ..drafters.recap.tree_size import PassCost
from ..targets.base import Target
from ..trace import Turn
from .context import ServerContext

LEARNING = ("recap", "token_recycling")
"""Decoders whose memory outlives an answer."""

State = Literal["waiting", "running", "answered", "refused"]


@dataclass(frozen=True, slots=True)
class RecapSettings:
    """What a person may change for Recap. fit: let the measured pass cost choose the tree's size, up to
    the config's budget. warm: the persistent memory stays from answer to answer."""

    config: RecapConfig = field(default_factory=RecapConfig)
    fit: bool = True
    warm: bool = True


@dataclass
class TurnRecord:
    """One question and every decoder's run of it; `decoder` makes the answer of the chat.

    state: "waiting" and "running" until the answer ends; then "answered" (some of it is in the
    conversation, all or part of it) or "refused" (nothing is). note: a sentence to show with it, the
    reason if it was refused or broke off. answer: the turn that stands in the chat. runs: label -> Turn; a label is a decoder's name, or "again"
    (Recap with changed settings), or "untraced" (Recap with recording off). traces: label -> the run's
    trace lines. paces: label -> (seconds, tokens) after each pass. order: labels as they ran.
    divergences: label -> where its tokens leave the reference's. before: the drafters that learn as they
    were before the turn (kept for the last turn alone). swapped: for each token of the answer whether another
    image would change it, and swap_line: the same as a line of the trace.
    """

    question: str
    paths: tuple[str, ...] = ()
    decoder: str = "recap"
    max_new_tokens: int = 256
    state: State = "waiting"
    note: str = ""
    answer: Turn | None = None
    runs: dict[str, Turn] = field(default_factory=dict)
    traces: dict[str, str] = field(default_factory=dict)
    paces: dict[str, tuple[list[float], list[int]]] = field(default_factory=dict)
    order: list[str] = field(default_factory=list)
    divergences: dict[str, Divergence] = field(default_factory=dict)
    before: dict[str, Drafter] = field(default_factory=dict)
    swapped: list[bool] = field(default_factory=list)
    swap_line: str = ""
    key: str = field(default_factory=lambda: secrets.token_urlsafe(6))

    @property
    def trace(self) -> str:
        """All runs' lines, the answer's own first, then what an image swap found."""
        parts = self.trace_parts
        return "".join([parts.pop(self.decoder, ""), *parts.values()])

    @property
    def trace_parts(self) -> dict[str, str]:
        """The trace's lines by run, what an image swap found under "swap"."""
        return self.traces | ({"swap": self.swap_line} if self.swap_line else {})

    def refuse(self, reason: str) -> None:
        """Nothing of this question is in the conversation; `reason` is one sentence."""
        self.state, self.note = "refused", reason


class Stoppable(Protocol):
    """Work that runs in a session."""

    def stop(self) -> None:
        """Ask it to end, within one pass. Returns at once."""
        ...


class Session:
    """One person's conversation, memories and turns."""

    def __init__(
        self,
        target: Target,
        owner: str = "",
        cost: PassCost | None = None,
        *,
        user: str = "",
        context: ServerContext | None = None,
    ) -> None:
        self.id = secrets.token_urlsafe(16)
        self.owner, self.user = owner, user
        self.context = context or ServerContext()
        self.target, self.cost = target, cost
        self.conversation = Conversation(target)
        self.settings = RecapSettings()
        self.records: list[TurnRecord] = []
        """Every question of the chat, those that were refused included."""
        self.comparisons = 0
        """How many were made: their order goes round with it."""
        self.forked_kv_bytes = 0
        """KV cache that a comparison in this session holds at the moment."""
        self.used = time.monotonic()
        self.left: float | None = None
        """When its page went away; None while it is there."""
        self.seen: float | None = None
        """When its page said last that it is there; None if it never did (a program's session)."""
        self._drafters: dict[str, Drafter] = {}
        self._busy = threading.Lock()
        self._runs: list[Stoppable] = []
        self._closed = False

    @property
    def turns(self) -> list[TurnRecord]:
        """The questions with an answer, or a part of one, in the conversation."""
        return [record for record in self.records if record.state == "answered"]

    @property
    def person(self) -> str:
        """Whose answers count together in the queue: the signed-in person's, else the page's."""
        return f"user {self.user}" if self.user else self.owner

    # ---- memories

    @property
    def scope(self) -> str:
        """The memory scope of Recap's persistent memory; "" is this session's own."""
        return self.context.scopes.name(self.user)

    def drafter(self, name: str) -> Drafter:
        """This session's drafter of that name, its memory kept from earlier turns (if warm)."""
        if name not in self._drafters:
            self._drafters[name] = self._new_recap() if name == "recap" else self._make(name)
        drafter = self._drafters[name]
        if name == "recap" and not self.settings.warm:
            if self.scope:  # others use that memory: leave it alone
                return self.recap(None)
            drafter.reset()
        return drafter

    def _new_recap(self) -> Drafter:
        config, vocab_size = self.settings.config, self.target.vocab_size
        memory = self.context.scopes.memory(self.user, vocab_size, config.top_k)
        return self._make("recap", config=config, memory=memory, cost=self._cost)

    @property
    def _cost(self) -> PassCost | None:
        return self.cost if self.settings.fit else None

    def recap(self, like: Drafter | None, *, share: bool = False) -> Drafter:
        """A Recap drafter with the session's settings that knows what `like` learned: its memory, its
        calibration and its tree size.

        share: use the very same memory instead of a copy. Where `like` is no Recap drafter, or its stored
        predictions have another size, the new one knows nothing.
        """
        config = self.settings.config
        if not isinstance(like, RecapDrafter) or like.top_k != config.top_k:
            return self._make("recap", config=config, cost=self._cost)
        memory = like.memory if share else copy.deepcopy(like.memory)
        made = self._make("recap", config=config, memory=memory, cost=self._cost)
        made.learn_from(like)
        return made

    def _make(self, name: str, **settings: Any) -> Any:
        return make_drafter(name, vocab_size=self.target.vocab_size, **settings)

    def configure(self, settings: RecapSettings) -> None:
        """Use these settings from the next run on; what Recap remembers stays if its size fits."""
        if settings == self.settings:
            return
        self.settings = settings
        if old := self._drafters.pop("recap", None):
            self._drafters["recap"] = self.recap(old, share=True)

    def snapshot(self, record: TurnRecord) -> None:
        """Keep what the drafters know before a turn, for runs of it that start from there."""
        for earlier in self.records:
            earlier.before = {}
        recap, table = (self.drafter(name) for name in LEARNING)
        record.before = {"recap": self.recap(recap), "token_recycling": copy.deepcopy(table)}

    def drafter_before(self, record: TurnRecord, name: str) -> Drafter:
        """A drafter that knows what it knew before the turn; for an earlier turn, what it knows now. The
        session's own drafters learn nothing from it."""
        if name not in LEARNING:
            return self._make(name)
        known = record.before.get(name) or self.drafter(name)
        if name == "recap":
            return self.recap(known if self.settings.warm else None)
        return copy.deepcopy(known)

    def forget(self) -> None:
        """Empty every memory of this session and of its person's scope; the conversation stays. Nobody
        can empty a memory that everybody shares."""
        if self.scope:
            self._drafters.pop("recap", None)
            self.context.scopes.clear(self.user)
        for drafter in self._drafters.values():
            drafter.reset()

    # ---- the conversation

    def clear(self) -> None:
        """A new conversation. The memories stay."""
        self.conversation.close()
        self.conversation = Conversation(self.target)
        self.records = []

    def undo(self) -> TurnRecord | None:
        """Drop the last question and its answer -> its record, None if there is none."""
        if not self.records:
            return None
        record = self.records.pop()
        if record.state == "answered":
            self.conversation.undo()
        return record

    @property
    def kv_bytes(self) -> int:
        """Bytes of KV cache held, a running comparison's fork included."""
        return self.conversation.kv_bytes + self.forked_kv_bytes

    def evict(self) -> None:
        """Give the KV cache back; it is filled again at the next question."""
        self.conversation.evict()

    # ---- one thing at a time

    @contextmanager
    def exclusive(self, run: Stoppable | None = None) -> Iterator[None]:
        """Hold the session, after whatever holds it now. run: what `interrupt` stops meanwhile."""
        try:
            with self._busy:
                self.used = time.monotonic()
                yield
        finally:
            self.used = time.monotonic()
            self.ended(run)

    @contextmanager
    def taken_over(self) -> Iterator[None]:
        """Stop everything that runs in the session, then hold it."""
        self.interrupt()
        with self.exclusive():
            yield

    @contextmanager
    def if_free(self) -> Iterator[bool]:
        """Hold the session unless something runs in it -> whether it is held. This does not count as use."""
        held = self._busy.acquire(blocking=False)
        try:
            yield held
        finally:
            if held:
                self._busy.release()

    def started(self, run: Stoppable) -> None:
        """Note work that is about to run or to wait for the session."""
        self._runs.append(run)
        if self._closed:
            run.stop()

    def ended(self, run: Stoppable | None = None) -> None:
        """The work is over; a session that was closed meanwhile is freed now."""
        if run in self._runs:
            self._runs.remove(run)
        if self._closed and not self._runs:
            self._free()

    @property
    def is_busy(self) -> bool:
        """Something runs in this session, or waits for its turn."""
        return bool(self._runs) or self._busy.locked()

    def interrupt(self) -> bool:
        """Ask whatever runs to stop, within one pass -> whether anything ran. Returns at once."""
        runs = list(self._runs)
        for run in runs:
            run.stop()
        return bool(runs)

    def close(self) -> None:
        """Stop what runs and free what the session holds as soon as nothing runs. Never waits."""
        self._closed = True
        self.interrupt()
        if not self._runs:
            self._free()

    def _free(self) -> None:
        with self.if_free() as free:
            if free:
                self.conversation.close()
                self.records, self._drafters = [], {}
