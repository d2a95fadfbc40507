"""What the page has done for it: answer a question, and run other decoders on the same turn.

Generators that yield `Progress` a few times a second (see `running`).
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import partial

from PIL.Image import Image

from ..compare import answer_on_fork, divergence, teacher_forced
from ..conversation import Conversation
from ..drafters import DECODERS
from ..page.messages import clean
from ..page.uploads import read_image
from ..trace import Turn, dumps
from .out_of_memory import DeviceFullError, out_of_memory
from .queue import Place
from .run import Progress, run
from .session import Session, TurnRecord

QUEUE_S = 0.5
"""While a question waits for its turn, its place is told this often."""

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
            f"This conversation has reached the model's {session.target.max_context} tokens; start a new chat to go on."
        )
    return min(max_new_tokens, room)


def answer(
    session: Session,
    text: str,
    paths: Sequence[str],
    decoder: str,
    *,
    max_new_tokens: int = 256,
    at: int = -1,
) -> Iterator[Progress]:
    """Ask and answer one question with `decoder`, once its turn in the queue has come.

    at: see `TurnRecord.at`. Raises ValueError as `ask` does, and with one sentence if the queue or the
    device's memory is full; the conversation then is as it was.
    """
    if decoder not in DECODERS:
        raise ValueError(f"There is no decoder “{decoder}”.")
    shared, asked = session.shared, time.monotonic()
    try:
        with session.busy(), shared.queue.enter(session.person) as place:
            yield from in_line(session, place, decoder)
            waited_s = time.monotonic() - asked
            with out_of_memory(partial(give_back, session, len(session.conversation.messages))):
                room = ask(session, text, paths, max_new_tokens=max_new_tokens)
                record = TurnRecord(text, tuple(paths), decoder, at)
                session.begin(record)
                drafter, talk = session.drafter(decoder), session.conversation
                for progress in run(session, talk, record, drafter, room, beside=False):
                    if progress.turn is not None:
                        record.runs[decoder] = progress.turn
                        record.order.append(decoder)
                        session.turns.append(record)
                        shared.metrics.answered(progress.turn, waited_s=waited_s)
                    yield progress
    except Exception as error:
        shared.metrics.failed(error)
        raise
    finally:
        shared.trim()


def in_line(session: Session, place: Place, decoder: str) -> Iterator[Progress]:
    """What the page hears until the turn comes. Raises ValueError if it is stopped before."""
    seen = session.interrupts
    while not place.wait(QUEUE_S):
        if session.interrupts != seen:
            raise ValueError("Stopped before its turn came.")
        yield Progress(decoder, place.said)


def give_back(session: Session, messages: int) -> None:
    """After the device was full: the question goes, and all caches that nobody uses now."""
    conversation = session.conversation
    while len(conversation.messages) > messages:
        conversation.undo()
    conversation.evict()
    session.shared.trim(0)


def compare(
    session: Session,
    chosen: Sequence[str] = DECODERS,
    *,
    only_cheap: bool = False,
    anew: bool = False,
) -> Iterator[Progress]:
    """Run decoders on the last turn from the same state, in an order that goes round from comparison to
    comparison; the chat is not touched.

    chosen: of these, the ones that have not run this turn yet; anew: all of them, each with what it knew
    before the turn. Ends early, with what it has, when the session is interrupted (a new question).
    """
    with session.busy(patient_s=PATIENT_S) as held:
        if not held or not session.turns:
            return
        record = session.turns[-1]
        shown = record.runs[record.decoder]
        names = [name for name in DECODERS if name in chosen and (anew or name not in record.runs)]
        names = [name for name in names if not only_cheap or is_cheap(shown, name)]
        if not names:
            return
        seen, twin = session.interrupts, session.conversation.fork()
        limit = compared_limit(shown)
        first = session.comparisons % len(names)
        session.comparisons += 1
        if anew:
            record.order.clear()
        with suppress(DeviceFullError), out_of_memory(partial(session.shared.trim, 0)):
            for turned, name in enumerate([*names[first:], *names[:first]]):
                if turned:
                    twin.rewind()
                drafter = session.as_before(record, name) if anew else session.drafter(name)
                for progress in run(session, twin, record, drafter, limit):
                    if progress.turn is not None and session.interrupts == seen:
                        record.runs[name] = progress.turn
                        record.order.append(name)
                    yield progress
                if session.interrupts != seen:
                    return
            note_gaps(session, record)


def note_gaps(session: Session, record: TurnRecord) -> None:
    """Where runs of a turn differ: how close the choice was. The reference is plain decoding."""
    record.divergences.clear()
    name, reference = reference_of(record)
    limit = compared_tokens(record)
    for decoder, turn in runs_of(record).items():
        if decoder == name:
            continue
        ids, other = turn.token_ids[:limit], reference.token_ids[:limit]
        if (found := divergence(session.conversation, ids, other)) is not None:
            record.divergences[decoder] = found


def runs_of(record: TurnRecord) -> dict[str, Turn]:
    """All runs of a turn, decoders in their usual order; "again" is the one with new settings."""
    runs = {name: record.runs[name] for name in DECODERS if name in record.runs}
    return runs | ({"again": record.again} if record.again is not None else {})


def reference_of(record: TurnRecord) -> tuple[str, Turn]:
    """The run that the others are compared with: plain decoding, else the answer itself."""
    name = "autoregressive" if "autoregressive" in record.runs else record.decoder
    return name, record.runs[name]


def compared_tokens(record: TurnRecord) -> int | None:
    """A stopped or shortened answer is compared as far as it goes; None is the whole answer."""
    shown = record.runs[record.decoder]
    return None if shown.finish_reason == "eos" else shown.tokens


def again(session: Session) -> Iterator[Progress]:
    """Recap once more on the last turn with the session's present settings; the chat is not touched.

    It starts from what it knew before that turn (nothing, if not warm), so that the two runs differ in
    the settings alone.
    """
    with session.busy() as held:
        if not held or not session.turns:
            return
        record = session.turns[-1]
        limit = compared_limit(record.runs[record.decoder])
        twin, drafter = session.conversation.fork(), session.as_before(record, "recap")
        for progress in run(session, twin, record, drafter, limit, label="Recap, new settings"):
            if progress.turn is not None and progress.turn.finish_reason != "stopped":
                record.again = progress.turn
                note_gaps(session, record)
            yield progress


def untraced(session: Session) -> None:
    """Recap once more on the last turn, as it was first run, but with recording off: what tracing costs.

    The Turn goes to the record's `untraced`. Nothing is drawn and the chat is not touched.
    """
    with session.busy(patient_s=PATIENT_S) as held:
        if not held or not session.turns:
            return
        record = session.turns[-1]
        answer_ = session.running(
            answer_on_fork(
                session.conversation,
                session.as_before(record, "recap"),
                max_new_tokens=compared_limit(record.runs[record.decoder]),
            )
        )
        for _ in answer_:
            pass
        if answer_.turn is not None and answer_.turn.finish_reason != "stopped":
            record.untraced = answer_.turn


def image_changes(session: Session, other: Image, title: str) -> tuple[int, int]:
    """Where would another image change the last answer? -> (tokens that it changes, tokens).

    other: the image that stands in for each of the conversation's, resized to its size so that every token
    keeps its place. The target is teacher_forced along what was said, with both images, and its choices are compared
    (see `recap.bench.image_swap`). What was found is a line of the turn's trace. Raises ValueError
    with one sentence if there is nothing to swap.
    """
    with session.busy(patient_s=PATIENT_S) as held:
        if not held or not session.turns:
            raise ValueError("Ask something about an image first.")
        asked = [m for m in session.conversation.messages if m.role == "user"]
        if not any(message.images for message in asked):
            raise ValueError("There is no image in this conversation.")
        record, seen = session.turns[-1], session.interrupts
        true, swapped = Conversation(session.target), Conversation(session.target)
        try:
            with out_of_memory(partial(session.shared.trim, 0)):
                for message, turn in zip(asked, session.turns, strict=True):
                    ids = turn.runs[turn.decoder].token_ids
                    true.ask(message.text, message.images)
                    swapped.ask(message.text, [other.resize(i.size) for i in message.images])
                    pairs = zip(
                        teacher_forced(true, ids), teacher_forced(swapped, ids), strict=True
                    )
                    changes = [one != two for one, two in pairs]
                    if session.interrupts != seen:
                        raise ValueError("Stopped before it was known.")
        finally:
            true.evict()
            swapped.evict()
        line = {"type": "swap", "image": title, "ids": list(ids), "changes": changes}
        record.trace += dumps(line) + "\n"
        return sum(changes), len(changes)


def compared_limit(shown: Turn) -> int:
    """How many tokens a comparison run may make: a shortened answer is compared as far as it goes."""
    return shown.tokens + 16 if shown.finish_reason == "eos" else shown.tokens


def is_cheap(shown: Turn, decoder: str) -> bool:
    """Whether running `decoder` too is expected to take little time. Recycling runs always."""
    pass_s = shown.decode_s / max(1, shown.passes)
    return decoder in ("recap", "token_recycling") or shown.tokens * pass_s < CHEAP_S
