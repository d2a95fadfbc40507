"""The candidate tree of one pass: grown node by node, then packed into rows for the target.

It knows token ids and scores only. It does not know where candidates come from (`drafters`) nor
how they are verified (`engine`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import numpy as np

from .jit import maker

ROOT = 0
"""Packed row of the root: the last confirmed token, which has no KV entry yet."""


StoredPredictions = Callable[[int], dict[str, list[tuple[int, float]]]]


class Contribution(NamedTuple):
    """What one source said about one candidate where it was proposed.

    `weight` is the source's share in the mixture at that place (the shares sum to 1, or less where the
    lookup answers alone), `probability`
    what its stored prediction gives the token (0.0 when the token is not in its row), `confidence`
    the entropy confidence of the whole row (1 = one certain token, 0 = flat).
    """

    source: str
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
    contributions: tuple[Contribution, ...] = ()


@maker
def pack(parent, score, order, parents):
    """Packed order of a tree: the chain of best children first, so that accepting it moves no KV.

    parent: int64 [N], the handle of each handle's parent, before its children; -1 for handle 0, the root.
    score: float64 [N]. order: int64 [N], the handle of each packed row, written. parents: int64 [N], the
    packed row of each row's parent, written.
    """
    count = len(parent)
    best, row = np.zeros(count, np.int64), np.full(count, -1)
    for at in range(1, count):
        rival = best[parent[at]]
        if rival == 0 or score[at] > score[rival]:
            best[parent[at]] = at
    at, rows = ROOT, 1
    order[0], row[0] = ROOT, 0
    while best[at]:
        at = best[at]
        order[rows], row[at] = at, rows
        rows += 1
    for at in range(1, count):
        if row[at] < 0:
            order[rows], row[at] = at, rows
            rows += 1
    parents[0] = -1
    for i in range(1, count):
        parents[i] = row[parent[order[i]]]


@maker
def _ancestors(parents):
    """bool [N, N]: row j is row i or one of its ancestors. parents: int64 [N], each before its children."""
    count = len(parents)
    mask = np.zeros((count, count), np.bool_)
    mask[0, 0] = True
    for row in range(1, count):
        for above in range(row):
            mask[row, above] = mask[parents[row], above]
        mask[row, row] = True
    return mask


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

    __slots__ = ("_children", "_details", "_nodes", "_stored", "depths", "parents", "tokens")

    def __init__(self, root: int, nodes: Sequence[Node] = ()) -> None:
        self._nodes: tuple[Node, ...] | None = tuple(nodes)
        self._stored: StoredPredictions | None = None
        self.tokens: list[int] = [root, *[n.token for n in nodes]]
        self.parents: list[int] = [-1, *[n.parent for n in nodes]]
        self.depths: list[int] = [0, *[n.depth for n in nodes]]
        self._children = self._by_token()
        for row in range(1, len(self)):
            parent = self.parents[row]
            assert 0 <= parent < row, "a parent comes before its children"
            assert self.depths[row] == self.depths[parent] + 1, "depth is the parent's plus one"
        assert len(self._children) == len(self), "siblings differ in their token"

    def _by_token(self) -> dict[tuple[int, int], int]:
        """Each row by its parent and its token."""
        return dict(zip(zip(self.parents, self.tokens, strict=True), range(len(self)), strict=True))

    @classmethod
    def packed(
        cls,
        tokens: list[int],
        parents: list[int],
        depths: list[int],
        details: Callable[[], Iterable[tuple]],
        behind: StoredPredictions | None = None,
    ) -> CandidateTree:
        """From columns that are right, the root's row first (parent -1, depth 0).

        details: the (source, score, rank, contributions) of each candidate; called when `nodes` is first read.
        behind: see the method of that name.
        """
        tree = cls.__new__(cls)
        tree._nodes, tree._details, tree._stored = None, details, behind
        tree.tokens, tree.parents, tree.depths = tokens, parents, depths
        tree._children = tree._by_token()
        return tree

    @property
    def nodes(self) -> tuple[Node, ...]:
        """The candidates, in packed order; row 0, the root, is not among them."""
        if self._nodes is None:
            columns = zip(
                self.tokens[1:], self.parents[1:], self.depths[1:], self._details(), strict=True
            )
            self._nodes = tuple([Node(t, p, d, *rest) for t, p, d, rest in columns])
        return self._nodes

    def stored(self, row: int) -> dict[str, list[tuple[int, float]]]:
        """What was known about the token after a packed row: by source its (token, probability), best first.

        "mixed" is what they came to. Empty where nothing was asked, or recorded.
        """
        return {} if self._stored is None else self._stored(row)

    def __len__(self) -> int:
        """Rows of the packed pass, the root included."""
        return len(self.tokens)

    def child(self, row: int, token: int) -> int | None:
        """The packed row of `row`'s child with that token, or None."""
        return self._children.get((row, token))

    def ancestor_mask(self) -> np.ndarray:
        """bool [N, N]: row i may attend to row j, that is j is i or one of its ancestors."""
        return _ancestors(np.array(self.parents, np.int64))

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

    def __init__(self, root: int) -> None:
        # one entry a handle, the root's first
        self._tokens, self._parents, self._depths, self._scores = [root], [-1], [0], [1.0]
        self._details: list[tuple[str, float, int, tuple[Contribution, ...]]] = []
        self._index: dict[tuple[int, int], int] = {}
        self._fanout = [0]

    def __len__(self) -> int:
        """Candidates so far, the root not counted."""
        return len(self._tokens) - 1

    def add(
        self,
        parent: int,
        token: int,
        *,
        source: str,
        score: float,
        contributions: tuple[Contribution, ...] = (),
    ) -> int:
        """Add a candidate under handle `parent` (ROOT or an earlier return value) -> its handle.

        A child that is there already is not added again: its handle is returned.
        """
        handle = len(self._tokens)
        known = self._index.setdefault((parent, token), handle)
        if known != handle:
            return known
        self._tokens.append(token)
        self._parents.append(parent)
        self._depths.append(self._depths[parent] + 1)
        self._scores.append(score)
        self._details.append((source, score, self._fanout[parent], contributions))
        self._fanout[parent] += 1
        self._fanout.append(0)
        return handle

    def pack(self) -> CandidateTree:
        """The finished tree. The chain of best children comes first, so that accepting it moves no KV."""
        columns = np.array(self._parents, np.int64), np.array(self._scores, np.float64)
        order, parents = (np.empty(len(self._parents), np.int64) for _ in range(2))
        pack(*columns, order, parents)
        handles, details = order.tolist(), self._details
        return CandidateTree.packed(
            [self._tokens[handle] for handle in handles],
            parents.tolist(),
            [self._depths[handle] for handle in handles],
            lambda: [details[handle - 1] for handle in handles[1:]],
        )
