"""Plain greedy decoding: no candidates, one row a pass. The baseline, in the same engine."""

from __future__ import annotations

from collections.abc import Sequence

from ..predictions import Predictions
from ..trace import SourceCount
from .tree import CandidateTree


class AutoregressiveDrafter:
    """Proposes nothing; asks for no probabilities, so that the pass is as cheap as it can be."""

    name = "autoregressive"
    top_k = 0
    seeds = False

    def __init__(self) -> None:
        self._last = -1

    def reset(self) -> None:
        pass

    def begin(
        self, prompt: Sequence[int], *, blocked: frozenset[int], terminal: frozenset[int]
    ) -> None:
        pass

    def seed(self, positions: Sequence[int], predictions: Predictions) -> None:
        pass

    def confirm(self, tokens: Sequence[int]) -> None:
        self._last = tokens[-1]

    def propose(self, *, limit: int, record: bool) -> CandidateTree:
        return CandidateTree(self._last)

    def observe(
        self, tree: CandidateTree, predictions: Predictions, accepted: Sequence[int]
    ) -> dict[str, SourceCount]:
        return {}
