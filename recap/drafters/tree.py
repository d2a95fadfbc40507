"""The candidate tree of one pass: built node by node, then packed for the target.

It knows token ids and scores. It does not know where candidates come from (the drafters), nor how they
are verified (the engine).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import numpy as np

from .jit import array_kernel, kernel

ROOT = 0
"""Index of the root: the last confirmed token, which has no KV slot yet."""


StoredPredictions = Callable[[int], dict[str, list[tuple[int, float]]]]


class Contribution(NamedTuple):
    """What one source gives one candidate.

    weight: the source's share of the mixture at the parent; the shares sum to at most 1. probability: what
    the source's prediction gives the token, 0 if the token is not in it. confidence: of the whole
    prediction, by entropy (1: one certain token, 0: flat).
    """

    source: str
    weight: float
    probability: float
    confidence: float


class Node(NamedTuple):
    """One candidate token.

    parent: index in the packed tree, 0 for the root. depth: from 1. source: the one that contributed most, ""
    without recording. score: estimated probability that the branch is accepted up to here. rank: position
    among its siblings, 0 for the best.
    """

    token: int
    parent: int
    depth: int
    source: str
    score: float
    rank: int = 0
    contributions: tuple[Contribution, ...] = ()


@kernel
def usable(blocked, token):
    """Whether a token may be a key or a candidate. blocked: bool [V]."""
    return 0 <= token < len(blocked) and not blocked[token]


@array_kernel
def pack(parent, score, order, parents):
    """Packed order of a tree: the chain of best children first, so that accepting it moves no KV slot.

    parent: int64 [N], each node's parent in the order of growth, -1 for the root. score: float64 [N].
    Written: order, int64 [N], the grown node of each packed one; parents: int64 [N], packed.
    """
    count = len(parent)
    best, packed = np.zeros(count, np.int64), np.full(count, -1)
    for node in range(1, count):
        rival = best[parent[node]]
        if rival == 0 or score[node] > score[rival]:
            best[parent[node]] = node
    node, at = ROOT, 1
    order[0], packed[0] = ROOT, 0
    while best[node]:
        node = best[node]
        order[at], packed[node] = node, at
        at += 1
    for node in range(1, count):
        if packed[node] < 0:
            order[at], packed[node] = node, at
            at += 1
    parents[0] = -1
    for at in range(1, count):
        parents[at] = packed[parent[order[at]]]


@array_kernel
def confirmed_first(count, accepted):
    """All packed indices, the root and the accepted ones first: within a pass the confirmed branch wins."""
    order, at = np.empty(count, np.int64), 1
    taken = np.zeros(count, np.bool_)
    order[0], taken[0] = ROOT, True
    for node in accepted:
        order[at], taken[node] = node, True
        at += 1
    for node in range(count):
        if not taken[node]:
            order[at] = node
            at += 1
    return order


@array_kernel
def _ancestors(parents):
    """bool [N, N]: node j is node i or one of its ancestors. parents: int64 [N], each before its children."""
    count = len(parents)
    mask = np.zeros((count, count), np.bool_)
    mask[0, 0] = True
    for node in range(1, count):
        for above in range(node):
            mask[node, above] = mask[parents[node], above]
        mask[node, node] = True
    return mask


class CandidateTree:
    """A root and its candidates in packed order: parents before children, likeliest chain first.

    tokens, parents, depths: one entry per packed token, the root first (parent -1, depth 0). details:
    returns the (source, score, rank, contributions) of each candidate; called when `nodes` is first read.
    stored: see the method of that name. `TreeBuilder` makes a tree node by node.
    """

    __slots__ = ("_children", "_details", "_nodes", "_stored", "depths", "parents", "tokens")

    def __init__(
        self,
        tokens: list[int],
        parents: list[int],
        depths: list[int],
        details: Callable[[], Iterable[tuple]] = tuple,
        stored: StoredPredictions | None = None,
    ) -> None:
        self.tokens, self.parents, self.depths = tokens, parents, depths
        self._details, self._stored = details, stored
        self._nodes: tuple[Node, ...] | None = None
        edges = zip(parents, tokens, strict=True)
        self._children = dict(zip(edges, range(len(tokens)), strict=True))

    @property
    def nodes(self) -> tuple[Node, ...]:
        """The candidates in packed order, without the root."""
        if self._nodes is None:
            columns = zip(
                self.tokens[1:], self.parents[1:], self.depths[1:], self._details(), strict=True
            )
            self._nodes = tuple([Node(*where, *detail) for *where, detail in columns])
        return self._nodes

    def stored(self, node: int) -> dict[str, list[tuple[int, float]]]:
        """The predictions that the sources had stored for the token after a packed node, if recorded.

        By source, (token, probability) pairs, best first; "mixed" is their mixture.
        """
        return {} if self._stored is None else self._stored(node)

    def __len__(self) -> int:
        """Packed tokens, the root included."""
        return len(self.tokens)

    def ancestor_mask(self) -> np.ndarray:
        """bool [N, N]: token i may attend to token j, that is, j is i or one of its ancestors."""
        return _ancestors(np.array(self.parents, np.int64))

    def path(self, node: int) -> list[int]:
        """Packed indices from the root's child down to `node`; empty for the root."""
        path: list[int] = []
        while node > ROOT:
            path.append(node)
            node = self.parents[node]
        return path[::-1]

    def accept(self, choice: Sequence[int]) -> tuple[list[int], int]:
        """Walk down the tree while the target's greedy next token is a child.

        choice: the target's next token after each packed token. Returns the accepted indices (without the
        root, possibly none) and the bonus token, which is the target's choice after the last of them.

        >>> CandidateTree([7, 6], [-1, 0], [0, 1]).accept([6, 4])
        ([1], 4)
        """
        node, accepted = ROOT, []
        while (child := self._children.get((node, int(choice[node])))) is not None:
            accepted.append(child)
            node = child
        return accepted, int(choice[node])


class TreeBuilder:
    """Builds a tree in any order in which parents come before their children.

    >>> builder = TreeBuilder(root=7)
    >>> a = builder.add(ROOT, 5, source="1-token", score=0.2)
    >>> b = builder.add(ROOT, 6, source="1-token", score=0.6)
    >>> c = builder.add(b, 9, source="2-token", score=0.5)
    >>> tree = builder.pack()
    >>> tree.tokens, tree.parents, tree.depths
    ([7, 6, 9, 5], [-1, 0, 1, 0], [0, 1, 2, 1])
    """

    def __init__(self, root: int) -> None:
        self._tokens, self._parents, self._depths, self._scores = [root], [-1], [0], [1.0]
        self._details: list[tuple[str, float, int, tuple[Contribution, ...]]] = []
        self._index: dict[tuple[int, int], int] = {}
        self._fanout = [0]

    def __len__(self) -> int:
        """Candidates so far, without the root."""
        return len(self._details)

    def add(
        self,
        parent: int,
        token: int,
        *,
        source: str,
        score: float,
        contributions: tuple[Contribution, ...] = (),
    ) -> int:
        """Add a candidate below `parent` (ROOT or an earlier return value) and return its handle.

        If that child exists already, nothing changes and its handle is returned.
        """
        handle = len(self._tokens)
        existing = self._index.setdefault((parent, token), handle)
        if existing != handle:
            return existing
        self._tokens.append(token)
        self._parents.append(parent)
        self._depths.append(self._depths[parent] + 1)
        self._scores.append(score)
        self._details.append((source, score, self._fanout[parent], contributions))
        self._fanout[parent] += 1
        self._fanout.append(0)
        return handle

    def pack(self) -> CandidateTree:
        """The finished tree, the chain of best children first."""
        order, parents = (np.empty(len(self._parents), np.int64) for _ in range(2))
        pack(np.array(self._parents), np.array(self._scores, np.float64), order, parents)
        handles, details = order.tolist(), self._details
        return CandidateTree(
            [self._tokens[handle] for handle in handles],
            parents.tolist(),
            [self._depths[handle] for handle in handles],
            lambda: [details[handle - 1] for handle in handles[1:]],
        )
