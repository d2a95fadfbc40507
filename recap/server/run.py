"""One run of a decoder in a thread of its own, and how others follow it.

The thread owns what the run holds (the session, a place in the queue, a fork's KV cache) and lets go of it
when the run ends, however it ends. Whoever follows a run may leave at any time: leaving sets a flag and
waits for nothing, because Gradio closes generators on its event loop.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from ..conversation import Conversation
from ..drafters import Drafter
from ..engine import Answer, stream
from ..trace import Step, Turn, dumps, step_line, turn_line
from .queue import Place
from .session import TurnRecord

FIRST_S = 0.4
"""The first update comes after this time: a shorter answer comes whole."""

UPDATE_S = 0.25
"""Least time between two updates."""

SHARE = 0.02
"""Most of the time that updates may take: decoder and page share one interpreter."""

CLOCK_S = 0.5
"""While no pass has ended (a long prompt, the queue), the clock moves this often."""

_THREADS = ThreadPoolExecutor(256, thread_name_prefix="run")
"""Reused threads: torch is 5 % slower in a thread's first fifth of a second."""


class StoppedError(ValueError):
    """The run was stopped before anything of the answer was there; the message is one sentence."""

    def __init__(self) -> None:
        super().__init__("Stopped before the answer began.")


@dataclass(frozen=True, slots=True)
class Progress:
    """Where a run stands.

    phase: one line. text: of the answer so far. live: the newest step of a run that goes on, one JSON object
    {start, passes, tokens, text, beside, step}. turn: set once the run has ended.
    """

    decoder: str
    phase: str
    text: str = ""
    live: str = ""
    turn: Turn | None = None


@dataclass
class _Decoding:
    """The answer that a run decodes at the moment."""

    answer: Answer
    record: TurnRecord
    label: str
    beside: bool
    reading: str
    steps: list[Step] = field(default_factory=list)
    head: dict[str, Any] = field(default_factory=dict)

    def start(self) -> dict[str, Any]:
        """The trace's `start` line as data; `turn` tells one turn from the next."""
        if not self.head:
            name = self.answer.drafter.name
            more: dict[str, Any] = {"turn": self.record.key, "question": self.record.question}
            if self.label != name:
                more["label"] = self.label
            self.head = json.loads(self.answer.start_line()) | more
        return self.head


class Run:
    """`work(run)` in a thread of its own. decoder: the one to name while nothing else is known."""

    def __init__(self, work: Callable[[Run], None], decoder: str = "") -> None:
        self.decoder = decoder
        self.error: BaseException | None = None
        self.waited_s = 0.0
        """Seconds in the queue."""
        self.turn: Turn | None = None
        """The run's result, where it is one turn."""
        self._work = work
        self._stopped = threading.Event()
        self._ended = threading.Event()
        self._begun = time.monotonic()
        self._place: Place | None = None
        self._decoding: _Decoding | None = None

    def start(self) -> Run:
        """Begin in a thread."""
        _THREADS.submit(self._run)
        return self

    def _run(self) -> None:
        try:
            self._work(self)
        except BaseException as error:
            self.error = error
        finally:
            self._ended.set()

    # ---- for the thread that works

    @property
    def stopped(self) -> bool:
        """Whether the run was asked to end."""
        return self._stopped.is_set()

    def wait_for(self, place: Place) -> None:
        """Wait for a turn in the queue. Raises StoppedError if the run is stopped meanwhile."""
        self._place = place
        begun = time.monotonic()
        if self.stopped or not place.wait():
            raise StoppedError
        self.waited_s = time.monotonic() - begun
        self._begun = time.monotonic()

    def decode(
        self,
        conversation: Conversation,
        drafter: Drafter,
        record: TurnRecord,
        *,
        max_new_tokens: int,
        label: str = "",
        beside: bool = True,
        traced: bool = True,
    ) -> Turn:
        """Answer the conversation's open question -> its turn.

        label: of the run in the record, default the decoder's name; `store` puts it there. beside: it is
        not the answer of the chat. traced: record each node.
        """
        label = label or drafter.name
        answer = stream(
            conversation,
            drafter,
            max_new_tokens=max_new_tokens,
            record=traced,
            should_stop=self._stopped.is_set,
        )
        now = _Decoding(answer, record, label, beside, _reading(conversation))
        self._decoding, self._begun = now, time.monotonic()
        for step in answer:
            now.steps.append(step)
            if self._place is not None:
                self._place.give_way()
        return answer.turn

    def store(self) -> Turn | None:
        """Put the answer decoded last, whole or broken off, into its record -> its turn, None if there is
        not one token of it."""
        now = self._decoding
        turn = None if now is None else now.answer.turn
        if now is None or turn is None or not turn.tokens:
            return None
        record, label = now.record, now.label
        record.runs[label] = turn
        record.order = [*(done for done in record.order if done != label), label]
        if now.answer.record:
            lines = [dumps(now.start()), *map(step_line, now.steps), turn_line(turn)]
            record.traces[label] = "\n".join(lines) + "\n"
            record.paces[label] = pace(now.steps)
        return turn

    # ---- for everybody else

    def stop(self) -> None:
        """Ask the run to end, within one pass. Returns at once."""
        self._stopped.set()
        if self._place is not None:
            self._place.cancel()

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait for the end -> whether it has come."""
        return self._ended.wait(timeout_s)

    def result(self) -> Turn | None:
        """Wait for the end -> the turn. Raises what the work raised."""
        self.wait()
        if self.error is not None:
            raise self.error
        return self.turn

    def follow(self) -> Iterator[Progress]:
        """Progress a few times a second, and once at the end; then raises what the work raised.

        Leaving early stops the run and waits for nothing.
        """
        try:
            pause = FIRST_S
            while not self.wait(pause):
                begun = time.monotonic()
                progress = self.progress()
                yield progress
                took = time.monotonic() - begun
                pause = max(UPDATE_S, took / SHARE) if progress.live else CLOCK_S
        finally:
            self.stop()
        turn = self.result()
        if turn is not None:
            yield Progress(turn.decoder, summary(turn), turn.text, turn=turn)

    def progress(self) -> Progress:
        """Where the run stands now."""
        now = self._decoding
        name = self.decoder if now is None else now.answer.drafter.name
        if self._place is not None and (waiting := self._place.phase):
            return Progress(name, waiting)
        if now is None:
            return Progress(name, "preparing the question")
        if not now.steps:
            return Progress(name, f"{now.reading}, {time.monotonic() - self._begun:.0f} s")
        answer, step = now.answer, now.steps[-1]
        passes, tokens, text = answer.steps, answer.tokens, answer.text
        each = (tokens - 1) / max(1, passes)
        speed = f", {(tokens - 1) / answer.decode_s:.0f} tokens/s" if answer.decode_s else ""
        live = dumps({
            "start": now.start(),
            "passes": passes,
            "tokens": tokens,
            "text": text,
            "beside": now.beside,
        })  # fmt: skip
        live = f'{live[:-1]},"step":{step_line(step)}}}'
        return Progress(name, f"step {passes}, {each:.1f} tokens per step{speed}", text, live)


def _reading(conversation: Conversation) -> str:
    """What happens before the first pass."""
    new = conversation.prompt_tokens - conversation.state.length
    if new < 1:
        return "starting"  # an earlier run read the prompt
    images = len(conversation.messages[-1].images)
    what = "the image" if images == 1 else f"{images} images"
    return f"encoding {what}, reading {new} tokens" if images else f"reading {new} tokens"


def pace(steps: Iterable[Step]) -> tuple[list[float], list[int]]:
    """(seconds of decoding, tokens) after each pass; the first token comes from the prefill."""
    seconds, tokens = [0.0], [1]
    for step in steps:
        seconds.append(seconds[-1] + step.seconds)
        tokens.append(tokens[-1] + len(step.token_ids))
    return seconds, tokens


ENDS = {
    "eos": "done",
    "length": "cut at the longest answer allowed",
    "stopped": "stopped",
    "failed": "broken off by an error",
}
"""Finish reason -> how the page says it."""


def summary(turn: Turn) -> str:
    """The status line of a finished answer."""
    waited = f", {turn.wait_s:.1f} s of waiting for others" if turn.wait_s >= 0.1 else ""
    return (
        f"{ENDS[turn.finish_reason]}: {turn.tokens} tokens in {turn.passes} "
        f"{'step' if turn.passes == 1 else 'steps'}, {turn.tokens_per_pass:.2f} tokens per step, "
        f"{turn.tokens_per_s:.0f} tokens/s (prompt: {turn.prompt_tokens - turn.cached_tokens} new tokens "
        f"read in {turn.prefill_s:.2f} s{waited})"
    )
