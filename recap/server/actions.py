"""What a session can have done: an answer, a comparison of decoders on the same turn, an image swap.

Each starts a `Run` and returns it. A run that ends in any way (done, stopped, follower gone, error, out of
memory) leaves conversation, records and metrics saying the same thing: `_close_turn` is the one place where
an answer ends.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from functools import partial

from PIL.Image import Image

from ..compare import divergence, teacher_forced
from ..conversation import Conversation
from ..drafters import DECODERS
from ..targets.images import ImageFile, loaded
from ..trace import Turn, dumps
from .out_of_memory import DeviceFullError, is_out_of_memory, release
from .run import Run
from .session import Session, TurnRecord

LOG = logging.getLogger("recap")

CHEAP_S = 20.0
"""A comparison run that is expected to take longer is not started unless it is asked for."""

LEAST_CONTEXT = 8
"""Tokens that an answer needs."""

MAX_IMAGES, MAX_IMAGES_OF_CONVERSATION = 8, 64
"""Most images with one question, and in one conversation."""


def _start(session: Session, work: Callable[[Run], None], decoder: str = "") -> Run:
    run = Run(work, decoder)
    session.started(run)
    return run.start()


# ---- an answer


def answer(session: Session, record: TurnRecord) -> Run:
    """Answer a record's question with its decoder, once its turn in the queue has come.

    Stops whatever runs in the session. The record joins `session.records` (unless it is there already). The
    run raises ValueError with one sentence if the question is refused: empty, a bad image, a full queue or
    context. Other errors break the answer off: what was made of it stays, in the conversation and in the
    record alike.
    """
    session.interrupt()
    if record not in session.records:
        session.records.append(record)
    return _start(session, partial(_answer, session, record), record.decoder)


def _answer(session: Session, record: TurnRecord, run: Run) -> None:
    context, conversation = session.context, session.conversation
    try:
        with session.exclusive(run):
            if session.conversation is not conversation or record not in session.records:
                record.refuse("The conversation was cleared before the answer began.")
                return  # a new chat, or the question was taken back
            messages, error = len(conversation.messages), None
            try:
                if record.decoder not in DECODERS:
                    raise ValueError(
                        f"Unknown decoder “{record.decoder}”: use {', '.join(DECODERS)}."
                    )
                with context.queue.enter(session.person) as place:
                    run.wait_for(place)
                    record.state = "running"
                    limit = _ask(session, record)
                    session.snapshot(record)
                    drafter = session.drafter(record.decoder)
                    run.decode(conversation, drafter, record, max_new_tokens=limit, beside=False)
            except Exception as raised:
                error = raised
            run.turn = _close_turn(session, record, run, messages, error)
            if run.turn is not None:
                context.metrics.answered(run.turn, waited_s=run.waited_s)
            if error is not None:
                context.metrics.failed(error)
                run.error = _refusal(error)
    finally:
        context.trim()


def _close_turn(
    session: Session,
    record: TurnRecord,
    run: Run,
    messages: int,
    error: Exception | None,
) -> Turn | None:
    """Make conversation and record agree, however the answer ended -> the turn that stays, or None.

    messages: how many the conversation had before the question. With at least one token the answer stays,
    whole or broken off; without one the question goes too.
    """
    conversation = session.conversation
    turn = run.store()
    if turn is not None:
        record.state, record.answer = "answered", turn
        if error is not None:
            record.note = str(_refusal(error))
    else:
        while len(conversation.messages) > messages:
            conversation.undo()
        record.refuse(str(_refusal(error)) if error else "Stopped before the answer began.")
    if error is not None and not isinstance(error, ValueError):
        _recover(session, error)
    return turn


def _refusal(error: Exception) -> ValueError:
    """The error as one sentence for a person."""
    if is_out_of_memory(error):
        return DeviceFullError()
    if isinstance(error, ValueError):
        return error
    first = (str(error).strip().splitlines() or [""])[0]
    return ValueError(f"The model failed with {type(error).__name__}: {first.rstrip('.')}.")


def _recover(session: Session, error: Exception) -> None:
    """After an error in a pass: the cache is filled again at the next question, since nobody knows what
    the pass left in it; a full device gets back what nobody uses."""
    session.conversation.evict()
    if is_out_of_memory(error):
        error.__traceback__ = None  # it holds the tensors of the pass
        session.context.trim(0)
        release()
    else:
        LOG.error("A run failed.", exc_info=error)


def _ask(session: Session, record: TurnRecord) -> int:
    """Put the question to the conversation -> tokens that its answer may have."""
    text, target, conversation = record.question, session.target, session.conversation
    if not text and not record.paths:
        raise ValueError("Type a question first.")
    if record.paths and not target.sees_images:
        raise ValueError(f"The model “{target.name}” reads text only; ask without an image.")
    if len(record.paths) > MAX_IMAGES:
        raise ValueError(
            f"There are {len(record.paths)} images, and {MAX_IMAGES} are the most with one question."
        )
    before = sum(len(turn.paths) for turn in session.turns)
    if record.paths and before + len(record.paths) > MAX_IMAGES_OF_CONVERSATION:
        raise ValueError(
            f"This conversation has {before} images, and {MAX_IMAGES_OF_CONVERSATION} are the most; start a "
            "new chat to go on."
        )
    images = [ImageFile(path) for path in record.paths]
    conversation.ask(text or "What do you see?", images)
    left = target.max_context - conversation.prompt_tokens
    if left < LEAST_CONTEXT:
        conversation.undo()
        raise ValueError(
            f"This conversation has reached the model's {target.max_context} tokens; start a new chat to go on."
        )
    return min(record.max_new_tokens, left)


# ---- a comparison


def compare(
    session: Session,
    decoders: Sequence[str] = DECODERS,
    *,
    only_cheap: bool = False,
    again: bool = False,
) -> Run:
    """Run decoders on the last turn from the same state; the chat is not touched.

    decoders: of these, the ones that have not run this turn yet. again: all of them, each from what it knew
    before the turn, and Recap once more with recording off, to show what the trace costs. only_cheap: leave
    out what is expected to take long. The order rotates from comparison to comparison. The run waits in
    the queue behind all answers and pauses for them between passes. It ends early, with what it has, when it
    is stopped.
    """
    work = partial(_compare, session, tuple(decoders), only_cheap, again)
    return _start(session, work)


def compare_settings(session: Session) -> Run:
    """Recap once more on the last turn with the session's present settings, as the run "again".

    It starts from what it knew before that turn (nothing, if not warm), so that the two runs differ in
    the settings alone.
    """
    session.interrupt()
    return _start(session, partial(_compare, session, ("again",), False, True), "recap")


def _compare(
    session: Session, decoders: Sequence[str], only_cheap: bool, again: bool, run: Run
) -> None:
    with session.exclusive(run):
        if run.stopped or not session.turns:
            return
        record = session.turns[-1]
        labels = [name for name in decoders if again or name not in record.runs]
        labels = [name for name in labels if not only_cheap or is_cheap(record.answer, name)]
        if not labels:
            return
        first = session.comparisons % len(labels)
        session.comparisons += 1
        labels = [*labels[first:], *labels[:first]]
        if again and "recap" in labels:
            labels.append("untraced")
        try:
            with session.context.queue.enter(session.person, "comparison") as place:
                run.wait_for(place)
                _run_labels(session, record, labels, again, run)
        except Exception as error:
            if not isinstance(error, ValueError):
                _recover(session, error)
            if not run.stopped:
                raise _refusal(error) from None
        finally:
            session.forked_kv_bytes = 0
            session.context.trim()


def _run_labels(
    session: Session, record: TurnRecord, labels: Sequence[str], again: bool, run: Run
) -> None:
    limit = compared_limit(record.answer)
    with session.conversation.fork() as fork:
        session.forked_kv_bytes = fork.kv_bytes
        for number, label in enumerate(labels):
            if number:
                fork.rewind()
            name = label if label in DECODERS else "recap"
            drafter = session.drafter_before(record, name) if again else session.drafter(name)
            run.decode(
                fork,
                drafter,
                record,
                max_new_tokens=limit,
                label=label,
                traced=label != "untraced",
            )
            session.forked_kv_bytes = fork.kv_bytes
            if run.stopped:
                return
            run.store()
    note_divergences(session, record)


def note_divergences(session: Session, record: TurnRecord) -> None:
    """Note where the runs of a turn differ and how close the choice was there."""
    record.divergences.clear()
    reference = reference_of(record)
    limit = compared_tokens(record)
    for label, turn in shown_runs(record).items():
        ids, others = turn.token_ids[:limit], record.runs[reference].token_ids[:limit]
        if label != reference and (found := divergence(session.conversation, ids, others)):
            record.divergences[label] = found


def shown_runs(record: TurnRecord) -> dict[str, Turn]:
    """The runs to show, decoders in their usual order, "again" last."""
    labels = [label for label in (*DECODERS, "again") if label in record.runs]
    return {label: record.runs[label] for label in labels}


def reference_of(record: TurnRecord) -> str:
    """The run that the others are compared with: plain decoding, else the answer itself."""
    return "autoregressive" if "autoregressive" in record.runs else record.decoder


def compared_tokens(record: TurnRecord) -> int | None:
    """A stopped or shortened answer is compared as far as it goes; None is the whole answer."""
    return None if record.answer.finish_reason == "eos" else record.answer.tokens


def compared_limit(answer: Turn) -> int:
    """How many tokens a comparison run may make."""
    return answer.tokens + 16 if answer.finish_reason == "eos" else answer.tokens


def is_cheap(answer: Turn, decoder: str) -> bool:
    """Whether running `decoder` too is expected to take little time. Token Recycling always runs."""
    pass_s = answer.decode_s / max(1, answer.passes)
    return decoder in ("recap", "token_recycling") or answer.tokens * pass_s < CHEAP_S


# ---- an image swap


def swap_image(session: Session, other: Image, title: str) -> Run:
    """Find the tokens of the last answer that another image would change.

    other: it stands in for each of the conversation's images, resized to that image's size so that every
    token keeps its place. The target is teacher-forced along the answers with both, and its choices are
    compared (see `recap.bench.image_swap`). What was found goes to the record's `swapped` and into its
    trace. The run raises ValueError with one sentence if there is
    nothing to swap.
    """
    return _start(session, partial(_swap_image, session, other, title))


def _swap_image(session: Session, other: Image, title: str, run: Run) -> None:
    with session.exclusive(run):
        turns = session.turns
        asked = [message for message in session.conversation.messages if message.role == "user"]
        if not any(message.images for message in asked):
            raise ValueError("Ask something about an image first.")
        with session.context.queue.enter(session.person, "comparison") as place:
            run.wait_for(place)
            true, swapped = Conversation(session.target), Conversation(session.target)
            try:
                for message, turn in zip(asked, turns, strict=True):
                    ids = turn.answer.token_ids
                    true.ask(message.text, message.images)
                    swapped.ask(
                        message.text, [other.resize(loaded(i).size) for i in message.images]
                    )
                    pairs = zip(
                        teacher_forced(true, ids), teacher_forced(swapped, ids), strict=True
                    )
                    changes = [one != two for one, two in pairs]
                    session.forked_kv_bytes = true.kv_bytes + swapped.kv_bytes
                    place.give_way()
                    if run.stopped:
                        raise ValueError("Stopped before it was known.")
            except RuntimeError as error:
                _recover(session, error)
                raise _refusal(error) from None
            finally:
                true.close()
                swapped.close()
                session.forked_kv_bytes = 0
        line = {"type": "swap", "image": title, "ids": list(ids), "changes": changes}
        turns[-1].swapped, turns[-1].swap_line = changes, dumps(line) + "\n"
