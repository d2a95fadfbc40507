"""Everything that Recap may know about the next token at one place of a tree, asked and mixed.

A `Place` is a node while its tree grows. `Sources.ask` fills it in: the rows of the 3-, 2- and 1-token
keys, what followed the longest match, and, where all of these are silent, the runners-up of the place
before. Growing the tree is not done here (`recap`).
"""

from __future__ import annotations

from ..config import RecapConfig
from ..lookup import NO_MATCH, Match, SuffixLookup
from ..memory import PersistentMemory, RequestMemory, Row, key2, key3
from ..mixture import level_weights, mix
from ..trace import LEVELS
from ..tree import Vote

NONE = -1
"""A token that does not exist: no key reaches across it."""

_MATCHES = (
    0,
    1,
    2,
    3,
    4,
    4,
    5,
    5,
    5,
    6,
)  # class of a lookup's match by its length, the last repeats
_KINDS = max(_MATCHES) + 1
CLASSES = 4 * _KINDS
"""Classes of the calibration: most exact level that answered (0 to 3) x class of the lookup's match."""


class Place:
    """A node while the tree grows, with what the sources said there.

    tail: its key, the last three tokens up to it. path: the tokens of its branch, root first. ranked:
    tokens by mixed probability, `cursor` the next one to try; `last` the score of the child before.
    """

    __slots__ = (
        "class_",
        "continuation",
        "cursor",
        "depth",
        "keys",
        "last",
        "lookup_class",
        "match",
        "mixed",
        "parent",
        "path",
        "ranked",
        "rows",
        "runners",
        "score",
        "tail",
        "weights",
    )

    def __init__(
        self,
        parent: Place | None,
        depth: int,
        score: float,
        tail: tuple[int, int, int],
        path: tuple[int, ...],
    ) -> None:
        self.parent, self.depth, self.score = parent, depth, score
        self.tail, self.path = tail, path
        self.match = NO_MATCH
        self.last, self.cursor = score, 0
        self.ranked: list[int] = []
        self.runners: dict[int, float] | None = None

    def probability(self, level: int, token: int) -> float:
        """What one of LEVELS gives the token; 0.0 when it did not name it."""
        if level < 3:
            row = self.rows[level]
            return row.probs[row.ids.index(token)] if row is not None and token in row.ids else 0.0
        if level == 3:
            return 1.0 if self.continuation == token else 0.0
        return self.runners.get(token, 0.0) if self.runners else 0.0

    def named(self, level: int, token: int) -> bool:
        """Whether that level had the token in its answer."""
        if level < 3:
            row = self.rows[level]
            return row is not None and token in row.ids
        return self.continuation == token if level == 3 else token in (self.runners or ())

    def weight(self, level: int) -> float:
        """The level's share in the mixture at this place."""
        if level < 4:
            return self.weights[level]
        return 1.0 if self.runners else 0.0

    def source(self, token: int) -> str:
        """The level with the largest contribution to this token."""
        return LEVELS[
            max(range(len(LEVELS)), key=lambda n: self.weight(n) * self.probability(n, token))
        ]

    def votes(self, token: int) -> tuple[Vote, ...]:
        """What each source that answered here said about the token."""
        said = []
        for level, name in enumerate(LEVELS):
            if level < 3:
                answered, sure = self.rows[level] is not None, 0.0
                if answered:
                    sure = self.rows[level].confidence
            else:
                answered = self.continuation is not None if level == 3 else bool(self.runners)
                sure = 1.0 if level == 3 else 0.0
            if answered:
                said.append(Vote(name, self.weight(level), self.probability(level, token), sure))
        return tuple(said)


class Sources:
    """The memories and the lookup of one drafter, asked together."""

    def __init__(
        self, config: RecapConfig, memory: PersistentMemory, request: RequestMemory
    ) -> None:
        self.config, self.memory, self.request = config, memory, request
        self.lookup = SuffixLookup()
        self.blocked: frozenset[int] = frozenset()
        self.before: dict[int, float] = {}
        """What was likely where the root now stands: the runners-up of the last pass."""

    def begin(self, blocked: frozenset[int], *, keep: bool) -> None:
        """A new request: request-local memory (unless it is to be kept) and lookup start empty."""
        self.blocked = blocked
        if not keep:
            self.request.clear()
        self.lookup = SuffixLookup(blocked)
        self.before = {}

    def tail_match(self) -> Match:
        """Where the confirmed tail stood before."""
        return self.lookup.tail() if self.config.lookup else NO_MATCH

    def keyed(self, tail: tuple[int, int, int]) -> tuple[bool, bool]:
        """Whether a 3-token and a 2-token key exist for this tail: no key crosses a blocked token.

        >>> from ..memory import PersistentMemory, RequestMemory
        >>> config = RecapConfig()
        >>> sources = Sources(config, PersistentMemory(9, 2), RequestMemory(2, 8))
        >>> sources.keyed((1, 2, 3)), sources.keyed((NONE, 2, 3)), sources.keyed((1, NONE, 3))
        ((True, True), (False, True), (False, False))
        """
        a, b, _ = tail
        two = b >= 0 and b not in self.blocked
        return two and a >= 0 and a not in self.blocked, two

    def ask(self, place: Place) -> None:
        """Ask every source whose key exists at this place and mix what they say."""
        cfg = self.config
        a, b, c = tail = place.tail
        w3, w2, w1 = cfg.base_weights
        three, two = self.keyed(tail)
        three, two, one = three and w3 > 0, two and w2 > 0, w1 > 0
        rows: tuple[Row | None, Row | None, Row | None] = (
            self.request.get3(key3(a, b, c)) if three else None,
            self.request.get2(key2(b, c)) if two else None,
            self.memory.get(c) if one else None,
        )
        place.keys, place.rows = (three, two, one), rows
        match = place.match
        continuation = self.lookup.next_token(match) if match.length else None
        place.continuation = continuation
        share, matched = 0.0, 0
        if continuation is not None:
            shares = cfg.lookup_acceptance
            share = shares[min(match.length, len(shares)) - 1]
            matched = _MATCHES[min(match.length, len(_MATCHES) - 1)]
        weights = level_weights(
            rows, cfg.base_weights, use_confidence=cfg.confidence, floor=cfg.confidence_floor
        )
        mixed = mix(rows, weights, looked_up=continuation, lookup_share=share)
        if not mixed and cfg.runner_up_share > 0:
            mixed = place.runners = self._runners(place)
        place.weights = (*(w * (1.0 - share) for w in weights), share)
        place.mixed = mixed
        level = 3 if rows[0] else 2 if rows[1] else 1 if rows[2] else 0
        place.class_ = level * _KINDS
        place.lookup_class = level * _KINDS + matched
        answers = (continuation is not None) + sum(row is not None for row in rows)
        place.ranked = (
            sorted(mixed, key=mixed.__getitem__, reverse=True) if answers > 1 else list(mixed)
        )

    def _runners(self, place: Place) -> dict[int, float]:
        """Nothing is known behind this token: what was likely where it came, in its stead."""
        above, token = place.parent, place.tail[2]
        if above is None:
            likely, before = list(self.before), self.before
        else:
            likely, before = above.ranked[: self.config.top_k], above.mixed
        share = self.config.runner_up_share
        return {t: share * before[t] for t in likely if t != token}
