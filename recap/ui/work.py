"""What the page has done for it: answer a question, run other decoders on the same turn, read images.

Generators that yield `Progress` at most 20 times a second. The decoder runs in a thread of its own, so
that it never waits for the screen; leaving a generator early stops the decoder within one pass.
"""

from __future__ import annotations

import copy
import json
import queue
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ..chat import Conversation
from ..drafters import DECODERS, Drafter
from ..engine import Answer, stream
from ..session import Session, TurnRecord
from ..trace import Step, Turn, dumps, step_line, turn_line
from .uploads import read_image

UPDATE_S = 0.05
"""Least time between two updates of the screen."""

CLOCK_S = 0.5
"""While nothing happens (a long prompt), the clock moves this often."""

CHEAP_S = 20.0
"""A comparison run that is expected to take longer than this is not started by itself."""


@dataclass(frozen=True, slots=True)
class Progress:
    """Where one run stands. `trace` is all of the session's trace so far; `turn` is set at the end."""

    phase: str
    text: str
    trace: str
    turn: Turn | None = None


def ask(session: Session, text: str, paths: Sequence[str], *, max_new_tokens: int) -> int:
    """Put a question to the session's conversation -> tokens its answer may have.

    Raises ValueError with one sentence if there is nothing to ask, an image is bad, or no room is left.
    """
    text = text.strip()
    if not text and not paths:
        raise ValueError("Type a question first.")
    images = [read_image(path) for path in paths]
    if images and not text:
        text = "What do you see?"
    conversation = session.conversation
    if images and not session.target.sees_images:
        raise ValueError(
            f"The model “{session.target.name}” reads text only; ask without an image."
        )
    conversation.ask(text, images)
    room = session.target.max_context - conversation.prompt_tokens
    if room < 8:
        conversation.undo()
        raise ValueError(
            f"This conversation has reached the model's {session.target.max_context} tokens; clear it to go on."
        )
    return min(max_new_tokens, room)


def answer(
    session: Session, text: str, paths: Sequence[str], decoder: str, *, max_new_tokens: int = 256
) -> Iterator[Progress]:
    """Ask and answer one question with `decoder`. Raises ValueError as `ask` does."""
    if decoder not in DECODERS:
        raise ValueError(f"There is no decoder “{decoder}”.")
    with session.busy():
        room = ask(session, text, paths, max_new_tokens=max_new_tokens)
        record = TurnRecord(text, tuple(paths), decoder)
        record.memory = session.remembered()
        drafter = session.drafter(decoder)
        for progress in run(session, session.conversation, record, drafter, room):
            if progress.turn is not None:
                record.runs[decoder] = progress.turn
                session.turns.append(record)
            yield progress


def compare(session: Session, *, only_cheap: bool = True) -> Iterator[Progress]:
    """Run the other decoders on the last turn from the same state; the chat is not touched.

    Ends early, with what it has, when the session is interrupted (a new question).
    """
    with session.busy(yielding=True) as held:
        if not held or not session.turns:
            return
        record = session.turns[-1]
        shown = record.runs[record.decoder]
        seen = session.interrupts
        twin = session.conversation.fork()
        limit = compared_limit(shown)
        first = True
        for decoder in others(record):
            if only_cheap and not is_cheap(shown, decoder):
                continue
            if not first:
                twin.rewind()
            first = False
            drafter = session.drafter(decoder)
            for progress in run(session, twin, record, drafter, limit):
                if progress.turn is not None and session.interrupts == seen:
                    record.runs[decoder] = progress.turn
                yield progress
            if session.interrupts != seen:
                return


def again(session: Session) -> Iterator[Progress]:
    """Recap once more on the last turn with the session's present settings; the chat is not touched.

    It starts from the memory as it was before that turn (an empty one if not warm), so that the two
    runs differ in the settings alone.
    """
    with session.busy() as held:
        if not held or not session.turns:
            return
        record = session.turns[-1]
        memory = copy.deepcopy(record.memory) if session.settings.warm else None
        if memory is not None and memory.top_k != session.settings.config.top_k:
            memory = None
        limit = compared_limit(record.runs[record.decoder])
        twin, drafter = session.conversation.fork(), session.recap(memory)
        for progress in run(session, twin, record, drafter, limit, label="Recap, new settings"):
            if progress.turn is not None and progress.turn.finish_reason != "stopped":
                record.again = progress.turn
            yield progress


def compared_limit(shown: Turn) -> int:
    """How many tokens a comparison run may make: a shortened answer is compared as far as it goes."""
    return shown.tokens + 16 if shown.finish_reason == "eos" else shown.tokens


def others(record: TurnRecord) -> list[str]:
    """Decoders that have not run this turn yet, Token Recycling first, then plain."""
    order = ("recap", "token_recycling", "autoregressive", "prompt_lookup")
    return [name for name in order if name not in record.runs]


def is_cheap(shown: Turn, decoder: str) -> bool:
    """Whether running `decoder` too is expected to take little time. Recycling runs always."""
    pass_s = shown.decode_s / max(1, shown.passes)
    return decoder in ("recap", "token_recycling") or shown.tokens * pass_s < CHEAP_S


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
