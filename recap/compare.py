"""Several decoders on one question from the same state, and where their answers part.

Each runs on a fork of the conversation, so the conversation itself does not move.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from .conversation import Conversation
from .drafters.base import Drafter
from .engine import Answer, stream

LIKELIEST = 8
"""Tokens a place that `gap` looks at."""

CHUNK = 64
"""Answer tokens that are teacher_forced through the target in one pass."""


def answer_on_fork(
    conversation: Conversation,
    drafter: Drafter,
    *,
    max_new_tokens: int = 512,
    record: bool = False,
) -> Answer:
    """An answer to the last question (answered or not) on a copy of the conversation.

    The prompt must have been prefilled once; it is prefilled again on the copy only if this drafter
    wants rows from inside the prompt and they were not fetched.
    """
    return stream(conversation.fork(), drafter, max_new_tokens=max_new_tokens, record=record)


def first_difference(ids: Sequence[int], reference: Sequence[int]) -> int | None:
    """Index of the first token that differs (or that only one of them has); None if identical.

    >>> first_difference([4, 5, 6], [4, 5, 7]), first_difference([4], [4]), first_difference([4], [])
    (2, None, 0)
    """
    for place, (one, other) in enumerate(zip(ids, reference, strict=False)):
        if one != other:
            return place
    return None if len(ids) == len(reference) else min(len(ids), len(reference))


@dataclass(frozen=True, slots=True)
class Divergence:
    """How close the choice was where two answers part.

    place: of the first token that differs, from 1. logits: distance of the two tokens' logits at that
    place (0 is a tie); None if one of them was not among the target's likeliest there.
    """

    place: int
    logits: float | None = None


def divergence(
    conversation: Conversation, ids: Sequence[int], reference: Sequence[int]
) -> Divergence | None:
    """Where and how closely an answer's tokens differ from the reference's; None if they do not.

    Both must answer the conversation's last question. What they have in common is verified once more, as
    one chain, on a copy of the conversation: logits of other passes differ in their last bits.
    """
    place = first_difference(ids, reference)
    if place is None:
        return None
    if not 0 < place < min(len(ids), len(reference)):
        return Divergence(place + 1)
    twin = conversation.fork()
    chain = np.tri(place, dtype=bool)
    seen = twin.target.verify(twin.state, ids[:place], range(place), chain, top_k=LIKELIEST)
    likely = seen.top_ids[-1].tolist()
    if ids[place] not in likely or reference[place] not in likely:
        return Divergence(place + 1)
    a, b = (float(seen.top_probs[-1][likely.index(t)]) for t in (ids[place], reference[place]))
    return Divergence(place + 1, abs(math.log(a / b)) if min(a, b) > 0 else None)


def teacher_forced(conversation: Conversation, answer: Sequence[int]) -> list[int]:
    """The target's greedy token at every place of `answer`, teacher_forced along it; the answer becomes the conversation's.

    The conversation has an open question and its prompt is prefilled.
    """
    target, state = conversation.target, conversation.state
    chosen = [conversation.prefill(seed=False, top_k=0).first_token]
    fed = list(answer[:-1])  # the last token has no KV yet, as after any answer
    for start in range(0, len(fed), CHUNK):
        chunk = fed[start : start + CHUNK]
        chain = np.tri(len(chunk), dtype=bool)
        made = target.verify(state, chunk, list(range(len(chunk))), chain, top_k=0)
        target.compact(state, list(range(len(chunk))))
        chosen += made.choice.tolist()
    conversation.append(answer)
    conversation.finish()
    return chosen
