"""Token Recycling (Luo et al., ACL 2025, arXiv 2408.08696): one table by the last token, a static tree.

The method to beat. The table keeps the 8 best next tokens of every token, without probabilities. The tree
has a fixed shape of 80 candidates. Unlike the original, an unseen token has no prediction instead of
eight zeros: the acceptance is the same, and no candidates are wasted.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from ..predictions import Predictions
from ..trace import SourceCount
from .base import Drafter, as_mask
from .jit import array_kernel, kernel
from .tree import CandidateTree, confirmed_first, pack, usable

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
    """The 80 nodes, parents first: (parent, rank, depth, weight), numbered from 1; 0 is the root.

    The weight falls with every rank on the branch. It orders nodes for smaller budgets and is not a
    probability.

    >>> nodes = static_nodes()
    >>> len(nodes), nodes[0], nodes[8][:3]
    (80, (0, 0, 1, 0.5), (1, 0, 2))
    """
    nodes: list[tuple[int, int, int, float]] = []
    parents, weights = [0], [1.0]
    for depth, fanouts in enumerate(STATIC_TREE, start=1):
        following: list[int] = []
        for parent, fanout in zip(parents, fanouts, strict=True):
            for rank in range(fanout):
                nodes.append((parent, rank, depth, weights[parent] / (rank + 2)))
                weights.append(nodes[-1][3])
                following.append(len(nodes))
        parents = following
    return nodes


class Shape(NamedTuple):
    """The nodes of a static tree that are in use, parents first; number 0 is the root."""

    number: np.ndarray  # int64 [nodes]
    parent: np.ndarray  # int64 [nodes], the number of the parent
    rank: np.ndarray  # int64 [nodes], index in the parent's prediction
    depth: np.ndarray  # int64 [nodes]
    weight: np.ndarray  # float64 [nodes]
    has_children: np.ndarray  # bool [81], by number


NODE = np.dtype([
    ("token", np.int64),
    ("parent", np.int64),
    ("depth", np.int64),
    ("rank", np.int64),  # position among the siblings that exist
    ("fanout", np.int64),
    ("score", np.float64),
])  # fmt: skip


@array_kernel
def fill(shape, table, valid, blocked, limit, root, nodes):
    """Put the table's tokens into the static tree -> nodes in use, lookups, hits.

    table: int32 [V, k]. valid, blocked: bool [V]. nodes: NODE, written. A lookup asks for a token's whole
    prediction.
    """
    index_of = np.zeros(len(shape.has_children), np.int64)
    found = np.zeros(len(shape.has_children), np.bool_)
    nodes[0].token, nodes[0].parent, nodes[0].depth, nodes[0].fanout = root, -1, 0, 0
    found[0] = usable(blocked, root) and valid[root]
    count, lookups, hits = 1, 1, int(found[0])
    for i in range(len(shape.number)):
        if shape.depth[i] > limit:
            break
        if not found[shape.parent[i]]:
            continue
        above = index_of[shape.parent[i]]
        token = table[nodes[above].token, shape.rank[i]]
        if not usable(blocked, token):
            continue
        number, node = shape.number[i], nodes[count]
        index_of[number] = count
        count += 1
        node.token, node.parent, node.depth = token, above, shape.depth[i]
        node.score, node.rank, node.fanout = shape.weight[i], nodes[above].fanout, 0
        nodes[above].fanout += 1
        if shape.has_children[number] and shape.depth[i] < limit:
            found[number] = valid[token]
            lookups += 1
            hits += int(found[number])
    return count, lookups, hits


@kernel
def recycle(table, valid, tokens, order, top_ids):
    """Store the prediction of every packed token; of several for one token the first in `order` wins."""
    for i in range(len(order) - 1, -1, -1):  # the last one written stays
        token = tokens[order[i]]
        if 0 <= token < len(valid):
            valid[token] = True
            for j in range(table.shape[1]):
                table[token, j] = top_ids[order[i], j]


class TokenRecyclingDrafter(Drafter):
    """A static tree of 80 candidates over a table of each token's last prediction.

    warm: keep the table between answers, as the official evaluation does; False clears it at every
    `begin`. budget: use only that many of the heaviest nodes, for machines on which 80 candidates are too
    many (None: the published tree). Like the original, it does not learn from the prompt.
    """

    name = "token_recycling"
    top_k = 8
    seeds = False

    def __init__(self, vocab_size: int, *, warm: bool = True, budget: int | None = None) -> None:
        self.warm = warm
        numbered = list(enumerate(static_nodes(), start=1))
        # a stable sort keeps parents before their children among equals
        heaviest = sorted(numbered, key=lambda node: -node[1][3])[:budget]
        number, nodes = zip(*sorted(heaviest), strict=True) if heaviest else ((), ())
        parent, rank, depth, weight = zip(*nodes, strict=True) if nodes else ((),) * 4
        columns = [np.array(column, np.int64) for column in (number, parent, rank, depth)]
        has_children = np.zeros(len(numbered) + 1, np.bool_)
        has_children[columns[1]] = True
        self._shape = Shape(*columns, np.array(weight, np.float64), has_children)
        self._nodes = np.zeros(len(number) + 1, NODE)
        self._order, self._parents = (np.zeros(len(number) + 1, np.int64) for _ in range(2))
        self.table = np.zeros((vocab_size, self.top_k), np.int32)
        self.valid = np.zeros(vocab_size, bool)
        self._blocked = as_mask(frozenset(), vocab_size)
        self._last = -1
        self._lookups = self._hits = 0

    def reset(self) -> None:
        """Forget the table."""
        self.valid.fill(False)

    def begin(
        self, prompt: Sequence[int], *, blocked: frozenset[int], terminal: frozenset[int]
    ) -> None:
        self._blocked = as_mask(blocked, len(self.valid))
        self._last = prompt[-1]
        if not self.warm:
            self.reset()

    def confirm(self, tokens: Sequence[int]) -> None:
        self._last = tokens[-1]

    def propose(self, *, limit: int, record: bool) -> CandidateTree:
        count, self._lookups, self._hits = fill(
            self._shape, self.table, self.valid, self._blocked, limit, self._last, self._nodes
        )
        nodes, order, parents = self._nodes[:count], self._order[:count], self._parents[:count]
        pack(nodes["parent"], nodes["score"], order, parents)
        scores, ranks = nodes["score"][order[1:]].tolist(), nodes["rank"][order[1:]].tolist()
        return CandidateTree(
            nodes["token"][order].tolist(),
            parents.tolist(),
            nodes["depth"][order].tolist(),
            lambda: [("table", score, rank, ()) for score, rank in zip(scores, ranks, strict=True)],
        )

    def observe(
        self, tree: CandidateTree, predictions: Predictions, accepted: Sequence[int]
    ) -> dict[str, SourceCount]:
        order = confirmed_first(len(tree), np.array(accepted, np.int64))
        top_ids = np.ascontiguousarray(predictions.top_ids, np.int64)
        recycle(self.table, self.valid, np.array(tree.tokens, np.int64), order, top_ids)
        return {"table": SourceCount(self._lookups, self._hits, len(accepted))}
