"""Token Recycling (Luo et al., ACL 2025, arXiv 2408.08696): one table by the last token, a static tree.

The method to beat. The table keeps the 8 best next tokens of every token, without probabilities; the
tree has a fixed shape of 80 candidates. Unlike the original, unseen tokens carry no row instead of a
row of zeros: the acceptance is the same and no rows are wasted.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..memory import first_of_each
from ..trace import LevelCount
from ..tree import ROOT, CandidateTree, TreeBuilder, Vote
from .base import Predictions

STATIC_TREE: tuple[tuple[int, ...], ...] = (
    (8,),
    (8, 4, 3, 2, 1, 1, 1, 1),
    (8, 3, 2, 1, 1, 1, 1, 1, 2, 1, 0, 0, 1, 0, 0, 1, 0, 1, 1, 0, 0),
    (5, 2, 1, 1, 1, 0, 0, 0, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0, 1, 0, 0, 1, 1, 0, 0),
    (3, 1, 1, 0, 0, 1, 0, 0, 0, 0, 1, 0, 1, 0, 0),
    (2, 0, 0, 1, 0, 0, 0, 0),
    (0, 0, 0),
)
"""Children of each node, level by level in breadth-first order: 8 + 21 + 25 + 15 + 8 + 3 = 80."""


class TokenRecyclingDrafter:
    """Static 80-node tree over a table of the last predictions by token.

    warm: keep the table between answers (as the official evaluation does); False clears it at every
    `begin`. budget: use only the first so many nodes of the tree in order of rank, for machines on
    which 80 rows are too many (None: the published tree).
    """

    name = "token_recycling"
    top_k = 8
    seeds = False

    def __init__(self, vocab_size: int, *, warm: bool = True, budget: int | None = None) -> None:
        self.warm = warm
        self.budget = budget
        self.table = np.zeros((vocab_size, self.top_k), np.int32)
        self.valid = np.zeros(vocab_size, bool)
        self._blocked: frozenset[int] = frozenset()
        self._last = -1
        self._asked: dict[int, list[int] | None] = {}
        self._order: list[int] = [ROOT]

    def reset(self) -> None:
        """Forget the table."""
        self.valid.fill(False)

    def begin(
        self, prompt: Sequence[int], *, blocked: frozenset[int], terminal: frozenset[int]
    ) -> None:
        self._blocked = blocked
        self._last = prompt[-1]
        if not self.warm:
            self.reset()

    def seed(self, positions: Sequence[int], predictions: Predictions) -> None:
        """The original does not learn from the prompt."""

    def confirm(self, tokens: Sequence[int]) -> None:
        self._last = tokens[-1]

    def propose(self, *, limit: int, record: bool) -> CandidateTree:
        grown = TreeBuilder(self._last)
        self._asked = {}
        # handles of one level in breadth-first order; None where the table had no row
        level: list[tuple[int, int, float] | None] = [(ROOT, self._last, 1.0)]
        for depth, fanouts in enumerate(STATIC_TREE[: limit if limit < 6 else None]):
            following: list[tuple[int, int, float] | None] = []
            for place, fanout in zip(level, fanouts, strict=True):
                if not fanout:
                    continue
                children: list[int] | None = None
                if place is not None:
                    handle, token, score = place
                    usable = self.valid[token] and token not in self._blocked
                    children = self.table[token].tolist() if usable else None
                    self._asked[handle] = children
                for rank in range(fanout):
                    full = self.budget is not None and len(grown) >= self.budget
                    child = children[rank] if children is not None else -1
                    if child < 0 or child in self._blocked or full:
                        following.append(None)
                        continue
                    # ranks, not probabilities: only the order of siblings carries meaning
                    child_score = score / (rank + 2)
                    votes = (Vote("table", 1.0, 0.0, 0.0),) if record else ()
                    added = grown.add(handle, child, source="table", score=child_score, votes=votes)
                    following.append((added, child, child_score))
            level = following
            if depth + 1 >= limit:
                break
        tree = grown.pack()
        self._order = grown.order
        return tree

    def observe(
        self, tree: CandidateTree, predictions: Predictions, accepted: Sequence[int]
    ) -> dict[str, LevelCount]:
        confirmed = {ROOT, *accepted}
        order = np.array([ROOT, *accepted, *(r for r in range(len(tree)) if r not in confirmed)])
        tokens = np.asarray(tree.tokens)[order]
        first = first_of_each(tokens)
        self.table[tokens[first]] = predictions.top_ids[order[first]]
        self.valid[tokens[first]] = True
        hits = sum(children is not None for children in self._asked.values())
        return {"table": LevelCount(len(self._asked), hits, len(accepted))}
