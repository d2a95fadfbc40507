"""One decoder's run as a stream of updates for the page.

The decoder runs in a thread of its own, so that it never waits for the screen; leaving the generator
early stops the decoder within one pass.
"""

from __future__ import annotations

import json
import queue
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass

from ..chat import Conversation
from ..drafters import Drafter
from ..engine import Answer, stream
from ..session import Session, TurnRecord
from ..trace import Step, Turn, dumps, step_line, turn_line

UPDATE_S = 0.05
"""Least time between two updates of the screen."""

CLOCK_S = 0.5
"""While nothing happens (a long prompt), the clock moves this often."""


@dataclass(frozen=True, slots=True)
class Progress:
    """Where one run stands. `trace` is all of the session's trace so far; `turn` is set at the end."""

    phase: str
    text: str
    trace: str
    turn: Turn | None = None


def run(
    session: Session,
    conversation: Conversation,
    record: TurnRecord,
    drafter: Drafter,
    limit: int,
    *,
    label: str = "",
) -> Iterator[Progress]:
    """One run of the conversation's open question; its trace is appended to the record's."""
    answer_ = session.running(stream(conversation, drafter, max_new_tokens=limit, record=True))
    worker = _Worker(answer_)
    pace: tuple[list[float], list[int]] = ([0.0], [1])
    new = conversation.prompt_tokens - conversation.state.length
    begun = shown_at = time.monotonic()
    grown, spent = 1, 0.0
    started = False
    try:
        yield Progress(f"reading {new} tokens", "", record.trace)
        while True:
            items, ended = worker.take(CLOCK_S)
            now = time.monotonic()
            if not started and (items or ended):
                started = True
                head = json.loads(answer_.start_line()) | {"turn": record.key}
                record.trace += dumps(head | ({"label": label} if label else {})) + "\n"
            if items:
                record.trace += "".join(step_line(s) + "\n" for s in items)
                for step in items:
                    grown, spent = grown + len(step.token_ids), spent + step.seconds
                    pace[0].append(spent)
                    pace[1].append(grown)
            if ended:
                break
            if not started:
                phase = f"reading {new} tokens, {now - begun:.0f} s"
            else:
                passes = answer_.steps
                speed = f"{(grown - 1) / spent:.0f} tokens/s" if spent else ""
                phase = f"pass {passes}, {(grown - 1) / max(1, passes):.1f} tokens a pass, {speed}"
            shown_at = now
            yield Progress(phase, answer_.text if started else "", record.trace)
            time.sleep(max(0.0, UPDATE_S - (time.monotonic() - shown_at)))
        turn = answer_.turn
        assert turn is not None
        record.trace += turn_line(turn) + "\n"
        record.paces[label or drafter.name] = pace
        yield Progress(summary(turn), turn.text, record.trace, turn)
    finally:
        worker.stop()


def summary(turn: Turn) -> str:
    """The status line of a finished answer."""
    how = {"eos": "done", "length": "cut at the longest answer allowed", "stopped": "stopped"}
    return (
        f"{how.get(turn.finish_reason, turn.finish_reason)}: {turn.tokens} tokens in {turn.passes} passes, "
        f"{turn.tokens_per_pass:.2f} tokens a pass, {turn.tokens_per_s:.0f} tokens/s"
        f" (prompt: {turn.prompt_tokens - turn.cached_tokens} new tokens read in {turn.prefill_s:.2f} s)"
    )


class _Worker:
    """Runs an answer in a thread and hands its steps over in batches."""

    def __init__(self, answer_: Answer) -> None:
        self._answer = answer_
        self._steps: queue.SimpleQueue[Step | None] = queue.SimpleQueue()
        self._error: BaseException | None = None
        self._ended = False
        self._thread = threading.Thread(target=self._run, name="decode", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            for step in self._answer:
                self._steps.put(step)
        except BaseException as error:
            self._error = error
        self._steps.put(None)

    def take(self, timeout: float) -> tuple[list[Step], bool]:
        """The steps since the last call (waits for one) and whether the answer has ended."""
        items: list[Step] = []
        block = True
        while not self._ended:
            try:
                step = self._steps.get(timeout=timeout) if block else self._steps.get_nowait()
            except queue.Empty:
                break
            block = False
            if step is None:
                self._ended = True
                if self._error is not None:
                    raise self._error
            else:
                items.append(step)
        return items, self._ended

    def stop(self) -> None:
        """Stop the answer and wait for its last pass."""
        self._answer.stop()
        self._thread.join()
