"""Plain greedy decoding: no candidates, one packed token per pass. The baseline, in the same engine."""

from __future__ import annotations

from collections.abc import Sequence

from ..predictions import Predictions
from ..trace import SourceCount
from .base import Drafter
from .tree import CandidateTree


class AutoregressiveDrafter(Drafter):
    """Proposes nothing, and asks for no probabilities, so that the pass is as cheap as it can be."""

    name = "autoregressive"
    top_k = 0
    seeds = False

    def __init__(self, vocab_size: int = 0) -> None:
        self._last = -1

    def confirm(self, tokens: Sequence[int]) -> None:
        self._last = tokens[-1]

    def propose(self, *, limit: int, record: bool) -> CandidateTree:
        return CandidateTree([self._last], [-1], [0])

    def observe(
        self, tree: CandidateTree, predictions: Predictions, accepted: Sequence[int]
    ) -> dict[str, SourceCount]:
        return {}
