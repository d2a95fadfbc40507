"""What the page has done for it: answer a question, and run other decoders on the same turn.

Generators that yield `Progress` at most 20 times a second (see `running`).
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence

from ..drafters import DECODERS
from ..engine import stream
from ..session import Session, TurnRecord
from ..trace import Turn
from .messages import clean
from .running import Progress, run
from .uploads import read_image

PATIENT_S = 30.0
"""A comparison waits this long for what runs in its session, and never stops it."""

CHEAP_S = 20.0
"""A comparison run that is expected to take longer than this is not started by itself."""


def ask(session: Session, text: str, paths: Sequence[str], *, max_new_tokens: int) -> int:
    """Put a question to the session's conversation -> tokens its answer may have.

    Raises ValueError with one sentence if there is nothing to ask, an image is bad, or no room is left.
    """
    text = clean(text)
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
    with session.busy(patient_s=PATIENT_S) as held:
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


def untraced(session: Session) -> None:
    """Recap once more on the last turn, as it was first run, but with recording off: what tracing costs.

    The Turn goes to the record's `untraced`. Nothing is drawn and the chat is not touched.
    """
    with session.busy(patient_s=PATIENT_S) as held:
        if not held or not session.turns:
            return
        record = session.turns[-1]
        memory = copy.deepcopy(record.memory) if session.settings.warm else None
        limit = compared_limit(record.runs[record.decoder])
        answer_ = session.running(
            stream(
                session.conversation.fork(),
                session.recap(memory),
                max_new_tokens=limit,
                record=False,
            )
        )
        for _ in answer_:
            pass
        if answer_.turn is not None and answer_.turn.finish_reason != "stopped":
            record.untraced = answer_.turn


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
