"""The protocol that every drafter follows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np

from ..predictions import Predictions
from ..trace import SourceCount
from .tree import CandidateTree


class Drafter(Protocol):
    """Proposes a candidate tree for each pass and learns from every verified node.

    For each answer: `begin`, `seed`, and `confirm` with the first token once, then `propose`, `observe` and
    `confirm` for each pass. State may outlive an answer (a persistent memory); `reset` clears it. A class that
    inherits from this one leaves out the methods in which it has nothing to do.

    top_k: entries per prediction that the drafter needs (0: the greedy token alone). seeds: whether it
    wants predictions from inside the prompt.
    """

    name: str
    top_k: int
    seeds: bool

    def begin(
        self, prompt: Sequence[int], *, blocked: frozenset[int], terminal: frozenset[int]
    ) -> None:
        """Start a new answer after these tokens (the whole conversation so far).

        blocked: tokens that are never a key or a candidate, such as image placeholders. terminal: tokens
        that end the answer; nothing is proposed after them.
        """
        ...

    def seed(self, positions: Sequence[int], predictions: Predictions) -> None:
        """Learn from the prefill: prediction i is the target's after prompt[positions[i]]."""
        ...

    def confirm(self, tokens: Sequence[int]) -> None:
        """Append confirmed tokens to the answer."""
        ...

    def propose(self, *, limit: int, record: bool) -> CandidateTree:
        """A tree below the last confirmed token, at most `limit` deep (0: the root alone).

        record: fill in each node's contributions.
        """
        ...

    def observe(
        self, tree: CandidateTree, predictions: Predictions, accepted: Sequence[int]
    ) -> dict[str, SourceCount]:
        """Learn from the verified tree, before `confirm` of the same pass -> this pass's counts by source.

        predictions: prediction i belongs to packed token i. accepted: packed indices.
        """
        ...

    def reset(self) -> None:
        """Forget everything, the persistent memory included."""
        ...


def as_mask(tokens: frozenset[int], vocab_size: int) -> np.ndarray:
    """The set as bool [V], for kernels."""
    mask = np.zeros(vocab_size, np.bool_)
    mask[[token for token in tokens if token < vocab_size]] = True
    return mask
