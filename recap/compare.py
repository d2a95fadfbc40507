"""Several decoders on one question from the same state, and where their answers part.

Each runs on a fork of the conversation, so the conversation itself does not move.
"""

from __future__ import annotations

from collections.abc import Sequence

from .chat import Conversation
from .drafters.base import Drafter
from .engine import Answer, stream
from .trace import Turn


def answer_apart(
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


def identical(turn: Turn, reference: Turn) -> bool:
    """Whether two answers have the same tokens."""
    return turn.token_ids == reference.token_ids
