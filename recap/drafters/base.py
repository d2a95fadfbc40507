"""The protocol that every drafter follows, and what the target hands to it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np

from ..predictions import Predictions
from ..trace import SourceCount
from .tree import CandidateTree


class Drafter(Protocol):
    """Proposes a candidate tree for each pass and learns from every verified row.

    One answer: `begin`, `seed` once, then `propose` and `observe` in turn. A drafter may keep state
    between answers (a persistent memory); `reset` forgets all of it. `top_k` says how many entries a
    row of Predictions must have for this drafter (0: the greedy token alone), `seeds` whether it wants
    rows from inside the prompt.
    """

    name: str
    top_k: int
    seeds: bool

    def begin(
        self, prompt: Sequence[int], *, blocked: frozenset[int], terminal: frozenset[int]
    ) -> None:
        """A new answer starts after these prompt tokens (the whole conversation so far).

        `blocked`: tokens that are never a key, never a candidate (image placeholders and the like).
        `terminal`: tokens that end the answer; nothing is proposed behind them.
        """
        ...

    def seed(self, positions: Sequence[int], predictions: Predictions) -> None:
        """Rows from the prefill: row i is the target's prediction after prompt[positions[i]]."""
        ...

    def confirm(self, tokens: Sequence[int]) -> None:
        """These tokens are confirmed as the answer's next ones (the first comes from the prefill)."""
        ...

    def propose(self, *, limit: int, record: bool) -> CandidateTree:
        """A tree rooted at the last confirmed token, of depth at most `limit` (0: the root alone).

        `record`: fill in each node's contributions.
        """
        ...

    def observe(
        self, tree: CandidateTree, predictions: Predictions, accepted: Sequence[int]
    ) -> dict[str, SourceCount]:
        """Learn from the verified tree (row i of `predictions` belongs to packed row i).

        Called before `confirm` of the same pass. Returns this pass's counts per level.
        """
        ...

    def reset(self) -> None:
        """Forget everything, the persistent memory included."""
        ...


def marks(tokens: frozenset[int], vocab_size: int) -> np.ndarray:
    """The set as bool [V], for kernels."""
    found = np.zeros(vocab_size, np.bool_)
    found[[token for token in tokens if token < vocab_size]] = True
    return found
