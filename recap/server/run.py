"""One decoder's run as a stream of updates for the page.

The decoder runs in a thread of its own and waits for nothing here. While it runs, the page gets the text
and the newest step, seldom enough to take no more than SHARE of the time; every step is written to the
trace when the run has ended. Leaving the generator early stops the decoder within one pass.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from ..conversation import Conversation
from ..drafters import Drafter
from ..engine import Answer, stream
from ..trace import Step, Turn, dumps, step_line, turn_line
from .session import Clock, Session, TurnRecord

FIRST_S = 0.4
"""A run's first update comes after this time: a shorter answer comes whole."""

UPDATE_S = 0.25
"""Least time between two updates of the page."""

SHARE = 0.02
"""Most of the time that updates may take: decoder and page share one interpreter."""

CLOCK_S = 0.5
"""While nothing happens (a long prompt), the clock moves this often."""

_THREADS = ThreadPoolExecutor(128, thread_name_prefix="decode")
"""Decoders' threads, used again: torch is 5 % slower in a thread's first fifth of a second."""


@dataclass(frozen=True, slots=True)
class Progress:
    """Where one run stands.

    decoder: its name. text: of the answer so far. live: the newest step of the run that goes on, as one
    JSON object {start, passes, tokens, text, beside, step}. turn: set at the end, when the run's steps stand in
    the record's trace.
    """

    decoder: str
    phase: str
    text: str = ""
    live: str = ""
    turn: Turn | None = None


def run(
    session: Session,
    conversation: Conversation,
    record: TurnRecord,
    drafter: Drafter,
    limit: int,
    *,
    label: str = "",
    beside: bool = True,
) -> Iterator[Progress]:
    """One run of the conversation's open question; its trace is appended to the record's.

    label: names a run that is not the decoder's usual one. beside: it is not the answer in the chat.
    """
    answer_ = session.running(stream(conversation, drafter, max_new_tokens=limit, record=True))
    reading, name = _reading(conversation), drafter.name
    worker = _Worker(answer_)
    try:
        yield Progress(name, reading)
        begun, pause, head = time.monotonic(), FIRST_S, {}
        while not worker.ended(pause):
            now = time.monotonic()
            if not worker.steps:
                yield Progress(name, f"{reading}, {now - begun:.0f} s")
                pause = CLOCK_S
            else:
                head = head or _head(answer_, record, label)
                yield _progress(answer_, head, worker.steps[-1], beside)
                pause = max(UPDATE_S, (time.monotonic() - now) / SHARE)
        turn = answer_.turn
        assert turn is not None
        lines = [dumps(head or _head(answer_, record, label)), *map(step_line, worker.steps)]
        record.trace += "\n".join([*lines, turn_line(turn)]) + "\n"
        record.paces[label or name] = pace(worker.steps)
        record.clocks[label or name] = worker.clock
        yield Progress(name, summary(turn), turn.text, turn=turn)
    finally:
        worker.stop()


def _reading(conversation: Conversation) -> str:
    """What comes before the first pass."""
    new = conversation.prompt_tokens - conversation.state.length
    if new < 1:
        return "starting"  # an earlier run read the prompt
    images = len(conversation.messages[-1].images)
    what = "the image" if images == 1 else f"{images} images"
    return f"encoding {what}, reading {new} tokens" if images else f"reading {new} tokens"


def _head(answer_: Answer, record: TurnRecord, label: str) -> dict[str, Any]:
    """The run's `start` line as data. turn: the page tells one turn from the next by it."""
    more = {"question": record.question} | ({"label": label} if label else {})
    return json.loads(answer_.start_line()) | {"turn": record.key} | more


def _progress(answer_: Answer, head: dict[str, Any], step: Step, beside: bool) -> Progress:
    """What the page hears while a run goes on."""
    passes, tokens, text = answer_.steps, answer_.tokens, answer_.text
    each = (tokens - 1) / max(1, passes)
    speed = f", {(tokens - 1) / answer_.decode_s:.0f} tokens/s" if answer_.decode_s else ""
    live = {"start": head, "passes": passes, "tokens": tokens, "text": text, "beside": beside}
    line = dumps(live)[:-1] + f',"step":{step_line(step)}}}'
    return Progress(
        answer_.drafter.name, f"pass {passes}, {each:.1f} tokens a pass{speed}", text, line
    )


def pace(steps: Iterable[Step]) -> tuple[list[float], list[int]]:
    """(seconds of decoding, tokens) after each pass; the first token comes from the prompt."""
    seconds, tokens = [0.0], [1]
    for step in steps:
        seconds.append(seconds[-1] + step.seconds)
        tokens.append(tokens[-1] + len(step.token_ids))
    return seconds, tokens


def summary(turn: Turn) -> str:
    """The status line of a finished answer."""
    how = {"eos": "done", "length": "cut at the longest answer allowed", "stopped": "stopped"}
    return (
        f"{how.get(turn.finish_reason, turn.finish_reason)}: {turn.tokens} tokens in {turn.passes} "
        f"{'pass' if turn.passes == 1 else 'passes'}, "
        f"{turn.tokens_per_pass:.2f} tokens a pass, {turn.tokens_per_s:.0f} tokens/s"
        f" (prompt: {turn.prompt_tokens - turn.cached_tokens} new tokens read in {turn.prefill_s:.2f} s)"
    )


class _Worker:
    """Runs an answer in a thread and keeps its steps."""

    def __init__(self, answer_: Answer) -> None:
        self.steps: list[Step] = []
        self.clock = Clock()
        self._answer = answer_
        self._error: BaseException | None = None
        self._ended = threading.Event()
        self._work = _THREADS.submit(self._run)

    def _run(self) -> None:
        try:
            for step in self.clock.time(self._answer):
                self.steps.append(step)
        except BaseException as error:
            self._error = error
        self._ended.set()

    def ended(self, timeout: float) -> bool:
        """Wait that long for the end -> whether it has come; raises what the answer raised."""
        ended = self._ended.wait(timeout)
        if self._error is not None:
            raise self._error
        return ended

    def stop(self) -> None:
        """Stop the answer and wait for its last pass."""
        self._answer.stop()
        self._work.result()
