"""The candidate tree of one pass: grown node by node, then packed into rows for the target.

It knows token ids and scores only. It does not know where candidates come from (`drafters`) nor
how they are verified (`engine`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
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

    __slots__ = ("_children", "_details", "_nodes", "depths", "parents", "tokens")

    def __init__(self, root: int, nodes: Sequence[Node] = ()) -> None:
        self._nodes: tuple[Node, ...] | None = tuple(nodes)
        self._fill(
            [root, *[n.token for n in nodes]],
            [-1, *[n.parent for n in nodes]],
            [0, *[n.depth for n in nodes]],
        )

    def _fill(self, tokens: list[int], parents: list[int], depths: list[int]) -> None:
        self.tokens, self.parents, self.depths = tokens, parents, depths
        for row in range(1, len(tokens)):
            parent = parents[row]
            assert 0 <= parent < row, "a parent comes before its children"
            assert depths[row] == depths[parent] + 1, "depth is the parent's plus one"
        self._children = dict(
            zip(zip(parents, tokens, strict=True), range(len(tokens)), strict=True)
        )
        assert len(self._children) == len(tokens), "siblings differ in their token"

    @classmethod
    def packed(
        cls,
        tokens: list[int],
        parents: list[int],
        depths: list[int],
        details: Callable[[], Iterable[tuple]],
    ) -> CandidateTree:
        """From columns, the root's row first (parent -1, depth 0).

        details: the (source, score, rank, votes) of each candidate; called when `nodes` is first read.
        """
        tree = cls.__new__(cls)
        tree._nodes, tree._details = None, details
        tree._fill(tokens, parents, depths)
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

    __slots__ = ("_depths", "_details", "_fanout", "_index", "_parents", "_scores", "_tokens",
                 "order", "root")  # fmt: skip

    def __init__(self, root: int) -> None:
        self.root = root
        self.order: list[int] = []
        """After `pack`: the handle of each packed row (row 0 is ROOT)."""
        # one entry a handle, the root's first
        self._tokens, self._parents, self._depths, self._scores = [root], [-1], [0], [1.0]
        self._details: list[tuple[str, float, int, tuple[Vote, ...]]] = []
        self._index: dict[tuple[int, int], int] = {}
        self._fanout = [0]

    def __len__(self) -> int:
        """Candidates so far, the root not counted."""
        return len(self._tokens) - 1

    def add(
        self, parent: int, token: int, *, source: str, score: float, votes: tuple[Vote, ...] = ()
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
        self._details.append((source, score, self._fanout[parent], votes))
        self._fanout[parent] += 1
        self._fanout.append(0)
        return handle

    def cut(self, count: int) -> None:
        """Keep the first `count` candidates that were added (parents came first, so it stays a tree)."""
        for handle in range(count + 1, len(self._tokens)):
            parent = self._parents[handle]
            del self._index[parent, self._tokens[handle]]
            self._fanout[parent] -= 1
        for column in (self._tokens, self._parents, self._depths, self._scores, self._fanout):
            del column[count + 1 :]
        del self._details[count:]

    def pack(self) -> CandidateTree:
        """The finished tree. The chain of best children comes first, so that accepting it moves no KV."""
        parents, scores = self._parents, self._scores
        count = len(parents)
        best = [0] * count
        for handle in range(1, count):
            rival = best[parents[handle]]
            if not rival or scores[handle] > scores[rival]:
                best[parents[handle]] = handle
        order = [ROOT]
        while best[order[-1]]:
            order.append(best[order[-1]])
        on_chain = set(order)
        order += [handle for handle in range(1, count) if handle not in on_chain]
        row_of = [ROOT] * count
        for row, handle in enumerate(order):
            row_of[handle] = row
        self.order = order
        details = self._details
        return CandidateTree.packed(
            [self._tokens[handle] for handle in order],
            [-1, *[row_of[parents[handle]] for handle in order[1:]]],
            [self._depths[handle] for handle in order],
            lambda: [details[handle - 1] for handle in order[1:]],
        )
