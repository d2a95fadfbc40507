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
from ..tree import ROOT, CandidateTree, TreeBuilder
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


def static_nodes() -> list[tuple[int, int, int, float]]:
    """The 80 nodes, parents first: (parent, rank, depth, weight); nodes count from 1, 0 is the root.

    The weight falls with every rank on the branch; it orders nodes for smaller budgets and is no
    probability.

    >>> nodes = static_nodes()
    >>> len(nodes), nodes[0], nodes[8][:3]
    (80, (0, 0, 1, 0.5), (1, 0, 2))
    """
    nodes: list[tuple[int, int, int, float]] = []
    level, weights = [0], [1.0]
    for depth, fanouts in enumerate(STATIC_TREE, start=1):
        following: list[int] = []
        for parent, fanout in zip(level, fanouts, strict=True):
            for rank in range(fanout):
                nodes.append((parent, rank, depth, weights[parent] / (rank + 2)))
                weights.append(nodes[-1][3])
                following.append(len(nodes))
        level = following
    return nodes


class TokenRecyclingDrafter:
    """Static 80-node tree over a table of the last predictions by token.

    warm: keep the table between answers (as the official evaluation does); False clears it at every
    `begin`. budget: only the so many heaviest nodes of the tree, for machines on which 80 rows are too
    many (None: the published tree).
    """

    name = "token_recycling"
    top_k = 8
    seeds = False

    def __init__(self, vocab_size: int, *, warm: bool = True, budget: int | None = None) -> None:
        self.warm = warm
        self.budget = budget
        nodes = list(enumerate(static_nodes(), start=1))
        if budget is not None:  # a stable sort keeps parents before children among equals
            heaviest = sorted(nodes, key=lambda node: -node[1][3])[:budget]
            nodes = sorted(heaviest)
        self._nodes = nodes
        self._asking = {parent for _, (parent, *_) in nodes}
        self.table = np.zeros((vocab_size, self.top_k), np.int32)
        self.valid = np.zeros(vocab_size, bool)
        self._blocked: frozenset[int] = frozenset()
        self._last = -1
        self._lookups = self._hits = 0

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
        self._lookups = self._hits = 0
        # static node -> handle and its row of the table
        at: dict[int, tuple[int, list[int] | None]] = {0: (ROOT, self._ask(self._last))}
        for number, (parent, rank, depth, weight) in self._nodes:
            if depth > limit:
                break
            handle, children = at.get(parent, (ROOT, None))
            token = children[rank] if children is not None else -1
            if token < 0 or token in self._blocked:
                continue
            handle = grown.add(handle, token, source="table", score=weight)
            if number in self._asking and depth < limit:
                at[number] = (handle, self._ask(token))
        return grown.pack()

    def _ask(self, token: int) -> list[int] | None:
        """The token's row, None if it was never seen or is blocked."""
        self._lookups += 1
        if not self.valid[token] or token in self._blocked:
            return None
        self._hits += 1
        return self.table[token].tolist()

    def observe(
        self, tree: CandidateTree, predictions: Predictions, accepted: Sequence[int]
    ) -> dict[str, LevelCount]:
        confirmed = {ROOT, *accepted}
        order = np.array([ROOT, *accepted, *(r for r in range(len(tree)) if r not in confirmed)])
        tokens = np.asarray(tree.tokens)[order]
        first = first_of_each(tokens)
        self.table[tokens[first]] = predictions.top_ids[order[first]]
        self.valid[tokens[first]] = True
        return {"table": LevelCount(self._lookups, self._hits, len(accepted))}
