"""Several decoders on one question from the same state, and where their answers differ.

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
"""How many of the likeliest tokens `divergence` looks at."""

CHUNK = 64
"""Answer tokens that go through the target in one teacher-forced pass."""


def answer_on_fork(
    conversation: Conversation,
    drafter: Drafter,
    *,
    max_new_tokens: int = 512,
    record: bool = False,
) -> Answer:
    """An answer to the last question (answered or not) on a fork of the conversation.

    The prompt must have been prefilled once; the fork prefills it again only if this drafter wants
    predictions inside the prompt that were not fetched. The fork's KV cache is freed with the answer, or by
    `answer.conversation.close()`; `adopt(answer.conversation)` goes on from it instead.
    """
    return stream(conversation.fork(), drafter, max_new_tokens=max_new_tokens, record=record)


def first_difference(ids: Sequence[int], reference: Sequence[int]) -> int | None:
    """Index of the first token that differs (or that only one of them has); None if identical.

    >>> first_difference([4, 5, 6], [4, 5, 7]), first_difference([4], [4]), first_difference([4], [])
    (2, None, 0)
    """
    for index, (one, other) in enumerate(zip(ids, reference, strict=False)):
        if one != other:
            return index
    return None if len(ids) == len(reference) else min(len(ids), len(reference))


@dataclass(frozen=True, slots=True)
class Divergence:
    """Where two answers differ first, and how close the choice was there.

    place: the token's number, from 1. logits: difference of the two tokens' logits there (0 is a tie); None
    if one of them was not among the target's likeliest.
    """

    place: int
    logits: float | None = None


def divergence(
    conversation: Conversation, ids: Sequence[int], reference: Sequence[int]
) -> Divergence | None:
    """Where and how closely an answer's tokens differ from the reference's; None if they do not.

    Both must answer the conversation's last question. Their common prefix is verified once more, as one
    chain on a fork: the logits of other passes differ in their last bits.
    """
    index = first_difference(ids, reference)
    if index is None:
        return None
    if not 0 < index < min(len(ids), len(reference)):
        return Divergence(index + 1)
    with conversation.fork() as fork:
        chain = np.tri(index, dtype=bool)
        seen = fork.target.verify(fork.state, ids[:index], range(index), chain, top_k=LIKELIEST)
    likely = seen.top_ids[-1].tolist()
    if ids[index] not in likely or reference[index] not in likely:
        return Divergence(index + 1)
    a, b = (float(seen.top_probs[-1][likely.index(t)]) for t in (ids[index], reference[index]))
    return Divergence(index + 1, abs(math.log(a / b)) if min(a, b) > 0 else None)


def teacher_forced(conversation: Conversation, answer: Sequence[int]) -> list[int]:
    """The target's greedy token at each index of `answer` when its preceding tokens are the answer's.

    Prefills the open question. The answer becomes the conversation's.
    """
    target = conversation.target
    chosen = [conversation.prefill(seed=False, top_k=0).first_token]
    state = conversation.state  # prefilling may have replaced an evicted one
    fed = list(answer[:-1])  # the last token has no KV slot yet, as after any answer
    for start in range(0, len(fed), CHUNK):
        chunk = fed[start : start + CHUNK]
        chain = np.tri(len(chunk), dtype=bool)
        with target.lock:  # nobody else's pass comes between the two
            made = target.verify(state, chunk, range(len(chunk)), chain, top_k=0)
            target.compact(state, range(len(chunk)))
        chosen += made.choice.tolist()
    conversation.append(answer)
    conversation.finish()
    return chosen
