"""The candidate tree of one pass: grown node by node, then packed into rows for the target.

It knows token ids and scores only. It does not know where candidates come from (`drafters`) nor
how they are verified (`engine`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

ROOT = 0
"""Packed row of the root: the last confirmed token, which has no KV entry yet."""


class Vote(NamedTuple):
    """What one source said about one candidate where it was proposed.

    `weight` is the source's share in the mixture at that place (the shares sum to 1, or less where the
    lookup answers alone), `probability`
    what its stored prediction gives the token (0.0 when the token is not in its row), `confidence`
    the entropy confidence of the whole row (1 = one certain token, 0 = flat).
    """

    level: str
    weight: float
    probability: float
    confidence: float


class Node(NamedTuple):
    """One candidate token. `parent` is a packed row (0 is the root), `depth` counts from 1.

    `source` names the level with the largest contribution ("" when recording is off), `score` estimates the probability that
    the whole branch up to here is accepted, `rank` is the place among its siblings (0 = best).
    """

    token: int
    parent: int
    depth: int
    source: str
    score: float
    rank: int = 0
    votes: tuple[Vote, ...] = ()


class CandidateTree:
    """A root and its candidates in packed order: parents before children, likeliest chain first.

    >>> grown = TreeBuilder(root=7)
    >>> a = grown.add(ROOT, 5, source="1-token", score=0.2)
    >>> b = grown.add(ROOT, 6, source="1-token", score=0.6)
    >>> c = grown.add(b, 9, source="2-token", score=0.5)
    >>> tree = grown.pack()
    >>> tree.tokens, tree.parents, tree.depths
    ([7, 6, 9, 5], [-1, 0, 1, 0], [0, 1, 2, 1])
    """

    __slots__ = ("_children", "depths", "nodes", "parents", "tokens")

    def __init__(self, root: int, nodes: Sequence[Node] = ()) -> None:
        self.nodes = tuple(nodes)
        self.tokens = [root, *(n.token for n in self.nodes)]
        self.parents = [-1, *(n.parent for n in self.nodes)]
        self.depths = [0, *(n.depth for n in self.nodes)]
        self._children: dict[tuple[int, int], int] = {}
        depths, children = self.depths, self._children
        for row, (token, parent, depth, *_) in enumerate(self.nodes, start=1):
            assert 0 <= parent < row, "a parent comes before its children"
            assert depth == depths[parent] + 1, "depth is the parent's plus one"
            children[parent, token] = row
        assert len(children) == len(self.nodes), "siblings differ in their token"

    def __len__(self) -> int:
        """Rows of the packed pass, the root included."""
        return len(self.tokens)

    def child(self, row: int, token: int) -> int | None:
        """The packed row of `row`'s child with that token, or None."""
        return self._children.get((row, token))

    def ancestor_mask(self) -> np.ndarray:
        """bool [N, N]: row i may attend to row j, that is j is i or one of its ancestors."""
        mask = np.eye(len(self), dtype=bool)
        for row in range(1, len(self)):
            mask[row] |= mask[self.parents[row]]
        return mask

    def path(self, row: int) -> list[int]:
        """Packed rows from the root's child down to `row`; empty for the root."""
        rows: list[int] = []
        while row > ROOT:
            rows.append(row)
            row = self.parents[row]
        return rows[::-1]

    def accept(self, choice: Sequence[int]) -> tuple[list[int], int]:
        """Walk down while the target's own next token is a child.

        `choice[i]` is the target's greedy next token after packed row i. Returns the accepted rows
        (root excluded, possibly empty) and the target's own token after the last of them.

        >>> CandidateTree(7, [Node(6, 0, 1, "1-token", 0.6)]).accept([6, 4])
        ([1], 4)
        """
        row, rows = ROOT, []
        while (child := self._children.get((row, int(choice[row])))) is not None:
            rows.append(child)
            row = child
        return rows, int(choice[row])


class TreeBuilder:
    """Grows a tree in any order in which parents come first; `pack()` puts the rows in order."""

    __slots__ = ("_fanout", "_index", "_nodes", "order", "root")

    def __init__(self, root: int) -> None:
        self.root = root
        self.order: list[int] = []
        """After `pack`: the handle of each packed row (row 0 is ROOT)."""
        self._nodes: list[Node] = []
        self._index: dict[tuple[int, int], int] = {}
        self._fanout: dict[int, int] = {}

    def __len__(self) -> int:
        """Candidates so far, the root not counted."""
        return len(self._nodes)

    def add(
        self, parent: int, token: int, *, source: str, score: float, votes: tuple[Vote, ...] = ()
    ) -> int:
        """Add a candidate under handle `parent` (ROOT or an earlier return value) -> its handle.

        A child that is there already is not added again: its handle is returned.
        """
        known = self._index.get((parent, token))
        if known is not None:
            return known
        depth = 1 if parent == ROOT else self._nodes[parent - 1].depth + 1
        rank = self._fanout.get(parent, 0)
        self._fanout[parent] = rank + 1
        self._nodes.append(Node(token, parent, depth, source, score, rank, votes))
        handle = len(self._nodes)
        self._index[parent, token] = handle
        return handle

    def cut(self, count: int) -> None:
        """Keep the first `count` candidates that were added (parents came first, so it stays a tree)."""
        for node in self._nodes[count:]:
            del self._index[node.parent, node.token]
        del self._nodes[count:]

    def pack(self) -> CandidateTree:
        """The finished tree. The chain of best children comes first, so that accepting it moves no KV."""
        best: dict[int, int] = {}
        for handle, node in enumerate(self._nodes, start=1):
            rival = best.get(node.parent)
            if rival is None or node.score > self._nodes[rival - 1].score:
                best[node.parent] = handle
        chain: list[int] = []
        at = ROOT
        while at in best:
            at = best[at]
            chain.append(at)
        on_chain = set(chain)
        order = chain + [h for h in range(1, len(self._nodes) + 1) if h not in on_chain]
        row_of = {ROOT: ROOT, **{handle: row for row, handle in enumerate(order, start=1)}}
        packed = []
        for handle in order:
            token, parent, *rest = self._nodes[handle - 1]
            packed.append(Node(token, row_of[parent], *rest))
        self.order = [ROOT, *order]
        return CandidateTree(self.root, packed)
