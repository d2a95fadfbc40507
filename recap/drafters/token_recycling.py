"""Token Recycling (Luo et al., ACL 2025, arXiv 2408.08696): one table by the last token, a static tree.

The method to beat. The table keeps the 8 best next tokens of every token, without probabilities; the
tree has a fixed shape of 80 candidates. Unlike the original, unseen tokens carry no row instead of a
row of zeros: the acceptance is the same and no rows are wasted.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from ..predictions import Predictions
from ..trace import SourceCount
from .base import marks
from .jit import kernel, maker
from .recap.grow import usable
from .recap.learn import confirmed_first
from .tree import CandidateTree, pack

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


class Shape(NamedTuple):
    """The nodes of a static tree that are in use, parents first; 0 stands for the root."""

    number: np.ndarray  # int64 [nodes]
    parent: np.ndarray  # int64 [nodes], the number of the parent
    rank: np.ndarray  # int64 [nodes], place in the parent's row
    depth: np.ndarray  # int64 [nodes]
    weight: np.ndarray  # float64 [nodes]
    asking: np.ndarray  # bool [81], by number: it has children


class Filled(NamedTuple):
    """A tree by handle, the root first; int64 [nodes + 1] but for the score."""

    token: np.ndarray
    parent: np.ndarray
    depth: np.ndarray
    rank: np.ndarray  # place among the siblings that are there
    score: np.ndarray  # float64
    fanout: np.ndarray


@maker
def fill(shape, table, valid, blocked, limit, root, tree):
    """Put the table's tokens into the static tree -> handles in use, rows asked for, rows found.

    table: int32 [V, k]; valid, blocked: bool [V]. The whole row of a token is asked for at once.
    """
    handle_of, found = np.zeros(len(shape.asking), np.int64), np.zeros(len(shape.asking), np.bool_)
    tree.token[0], tree.parent[0], tree.depth[0], tree.fanout[0] = root, -1, 0, 0
    found[0] = usable(blocked, root) and valid[root]
    count, lookups, hits = 1, 1, int(found[0])
    for i in range(len(shape.number)):
        if shape.depth[i] > limit:
            break
        if not found[shape.parent[i]]:
            continue
        above = handle_of[shape.parent[i]]
        token = table[tree.token[above], shape.rank[i]]
        if not usable(blocked, token):
            continue
        number = shape.number[i]
        handle_of[number] = count
        tree.token[count], tree.parent[count], tree.depth[count] = token, above, shape.depth[i]
        tree.score[count], tree.rank[count] = shape.weight[i], tree.fanout[above]
        tree.fanout[count] = 0
        tree.fanout[above] += 1
        count += 1
        if shape.asking[number] and shape.depth[i] < limit:
            found[number] = valid[token]
            lookups += 1
            hits += int(found[number])
    return count, lookups, hits


@kernel
def recycle(table, valid, tokens, rows, top_ids):
    """Store row rows[i] under its token; of several rows of one token the first wins."""
    for i in range(len(rows) - 1, -1, -1):  # the last to be written stays
        token = tokens[rows[i]]
        if 0 <= token < len(valid):
            valid[token] = True
            for j in range(table.shape[1]):
                table[token, j] = top_ids[rows[i], j]


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
        number, (parent, rank, depth, weight) = (
            [n for n, _ in nodes],
            zip(*(node for _, node in nodes), strict=True),
        )
        columns = [np.array(column, np.int64) for column in (number, parent, rank, depth)]
        asking = np.zeros(len(static_nodes()) + 1, np.bool_)
        asking[columns[1]] = True
        self._shape = Shape(*columns, np.array(weight, np.float64), asking)
        room = len(nodes) + 1
        kinds = [np.int64] * 4 + [np.float64, np.int64]
        self._filled = Filled(*(np.zeros(room, kind) for kind in kinds))
        self._order, self._parents = (np.zeros(room, np.int64) for _ in range(2))
        self.table = np.zeros((vocab_size, self.top_k), np.int32)
        self.valid = np.zeros(vocab_size, bool)
        self._blocked = marks(frozenset(), vocab_size)
        self._last = -1
        self._lookups = self._hits = 0

    def reset(self) -> None:
        """Forget the table."""
        self.valid.fill(False)

    def begin(
        self, prompt: Sequence[int], *, blocked: frozenset[int], terminal: frozenset[int]
    ) -> None:
        self._blocked = marks(blocked, len(self.valid))
        self._last = prompt[-1]
        if not self.warm:
            self.reset()

    def seed(self, positions: Sequence[int], predictions: Predictions) -> None:
        """The original does not learn from the prompt."""

    def confirm(self, tokens: Sequence[int]) -> None:
        self._last = tokens[-1]

    def propose(self, *, limit: int, record: bool) -> CandidateTree:
        tree = self._filled
        count, self._lookups, self._hits = fill(
            self._shape, self.table, self.valid, self._blocked, limit, self._last, tree
        )
        order, parents = self._order[:count], self._parents[:count]
        pack(tree.parent[:count], tree.score[:count], order, parents)
        scores, ranks = tree.score[order[1:]].tolist(), tree.rank[order[1:]].tolist()
        return CandidateTree.packed(
            tree.token[order].tolist(),
            parents.tolist(),
            tree.depth[order].tolist(),
            lambda: [("table", score, rank, ()) for score, rank in zip(scores, ranks, strict=True)],
        )

    def observe(
        self, tree: CandidateTree, predictions: Predictions, accepted: Sequence[int]
    ) -> dict[str, SourceCount]:
        rows = confirmed_first(len(tree), np.array(accepted, np.int64))
        top_ids = np.ascontiguousarray(predictions.top_ids, np.int64)
        recycle(self.table, self.valid, np.array(tree.tokens, np.int64), rows, top_ids)
        return {"table": SourceCount(self._lookups, self._hits, len(accepted))}
