"""Everything that Recap may know about the next token at one place of a tree, asked and mixed.

A `Place` is a node while its tree grows. `Sources.fetch` finds the rows of the 3-, 2- and 1-token keys and
what followed the longest match; `Sources.weigh` mixes them, or, where all of these are silent, takes the
runners-up of the place before. Most places at a tree's edge are never weighed: their bound says that
none of their children could enter. Growing the tree is not done here (`recap`).
"""

from __future__ import annotations

from ..config import RecapConfig
from ..lookup import NO_MATCH, Match, SuffixLookup
from ..memory import PersistentMemory, RequestMemory, key2, key3
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

HIT = 80
"""Hits are counted this many bits above look-ups."""
COUNT = tuple(1 << 16 * level for level in range(len(LEVELS)))
"""One look-up of each level in a single number, so that a tree's counts are one sum."""
_HITS = tuple(one << HIT for one in COUNT)


class Place:
    """A node while the tree grows, with what the sources said there.

    tail: its key, the last three tokens up to it. path: the tokens of its branch, root first. bound: no
    token's mixed probability is above it. ranked: tokens by mixed probability once it is weighed, `cursor`
    the next one to try; `last` the score of the child before. counts: look-ups and hits (`COUNT`).
    """

    __slots__ = (
        "answers",
        "bound",
        "class_",
        "continuation",
        "counts",
        "cursor",
        "depth",
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
        "share",
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
        self.mixed: dict[int, float] = {}
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
        self._base, self._looks = config.base_weights, config.lookup
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
        self.fetch(place)
        self.weigh(place)

    def fetch(self, place: Place) -> None:
        """Find what every source whose key exists at this place knows, without mixing it."""
        a, b, c = place.tail
        blocked, (w3, w2, w1) = self.blocked, self._base
        counts = level = answers = 0
        best, three, two, one = 0.0, None, None, None
        if w1 > 0:
            counts = COUNT[2]
            one = self.memory.get(c)
            if one is not None:
                counts += _HITS[2]
                level = answers = 1
                best = one[1][0]
        if b >= 0 and b not in blocked:
            if w2 > 0:
                counts += COUNT[1]
                two = self.request.get2(key2(b, c))
                if two is not None:
                    counts += _HITS[1]
                    level = 2
                    answers += 1
                    best = max(best, two[1][0])
            if w3 > 0 and a >= 0 and a not in blocked:
                counts += COUNT[0]
                three = self.request.get3(key3(a, b, c))
                if three is not None:
                    counts += _HITS[0]
                    level = 3
                    answers += 1
                    best = max(best, three[1][0])
        share, matched, continuation = 0.0, 0, None
        if self._looks:
            counts += COUNT[3]
            match = place.match
            length = match[1]
            if length:
                continuation = self.lookup.next_token(match)
                if continuation is not None:
                    counts += _HITS[3]
                    shares = self.config.lookup_acceptance
                    share = shares[min(length, len(shares)) - 1]
                    matched = _MATCHES[min(length, len(_MATCHES) - 1)]
                    best = best * (1.0 - share) + share
                    answers += 1
        place.rows, place.continuation, place.share = (three, two, one), continuation, share
        place.class_, place.lookup_class = level * _KINDS, level * _KINDS + matched
        place.counts, place.answers = counts, answers
        place.bound = best if answers else self.config.runner_up_share

    def weigh(self, place: Place) -> None:
        """Mix what was fetched at this place into `mixed`, and rank it."""
        cfg, rows, share = self.config, place.rows, place.share
        if place.answers == 0:
            place.weights = (0.0, 0.0, 0.0, 0.0)
            if cfg.runner_up_share > 0:
                place.mixed = place.runners = self._runners(place)
                place.counts += COUNT[4] + (_HITS[4] if place.runners else 0)
            place.ranked = list(place.mixed)
            return
        weights = level_weights(
            rows, cfg.base_weights, use_confidence=cfg.confidence, floor=cfg.confidence_floor
        )
        mixed = mix(rows, weights, looked_up=place.continuation, lookup_share=share)
        place.weights = (*[w * (1.0 - share) for w in weights], share)
        place.mixed = mixed
        place.ranked = (
            sorted(mixed, key=mixed.__getitem__, reverse=True) if place.answers > 1 else list(mixed)
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
