"""Recap once more, as plainly as it can be told: dictionaries, lists, every place mixed at once.

What the kernels do in arrays and put off as long as they can, done here by the rules alone. Slow.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np

from .acceptance import BINS, bin_of
from .config import RecapConfig
from .grow import _KINDS, _MATCHES

Row = tuple[list[int], list[float]]


def confidence(probs: list[float]) -> float:
    shares = [p / sum(probs) for p in probs]
    entropy = -sum(s * math.log(s) for s in shares if s > 0)
    return min(max(1 - entropy / math.log(len(probs)), 0.0), 1.0)


@dataclass
class Place:
    tail: tuple[int, ...]
    path: tuple[int, ...]
    depth: int
    score: float
    parent: Place | None = None
    named: dict[str, dict[int, float]] = field(default_factory=dict)
    mixed: dict[int, float] = field(default_factory=dict)
    looked_up: int | None = None
    classes: tuple[int, int] = (0, 0)
    asked: set[str] = field(default_factory=set)

    def class_of(self, token: int) -> int:
        return self.classes[token == self.looked_up]


class PlainRecap:
    def __init__(self, config: RecapConfig, blocked: set[int], terminal: set[int]) -> None:
        self.config, self.blocked, self.terminal = config, blocked, terminal
        self.by_key: dict[tuple[int, ...], Row] = {}
        self.text: list[int] = []
        self.before: dict[int, float] = {}
        self.verdicts: dict[tuple[int, int], list[float]] = {}  # expected, accepted

    # ---- growing

    def lookup(self, tail: list[int]) -> tuple[int, int | None]:
        """Longest suffix of the tail that stands in the text with a token behind it, and that token."""
        for length in range(len(tail), 0, -1):
            suffix = tail[-length:]
            if self.blocked & set(suffix):
                continue
            for end in range(len(self.text) - 1, length - 1, -1):
                if self.text[end - length : end] == suffix:
                    follows = self.text[end]
                    return length, None if follows in self.blocked else follows
        return 0, None

    def fill(self, place: Place) -> None:
        cfg = self.config
        raw: dict[str, float] = {}
        exact = 0
        for size, name in ((3, "3-token"), (2, "2-token"), (1, "1-token")):
            key, base = place.tail[-size:], cfg.base_weights[3 - size]
            if base <= 0 or len(key) < size or set(key[:-1]) & self.blocked:
                continue
            place.asked.add(name)
            if row := self.by_key.get(key):
                exact = max(exact, size)
                place.named[name] = dict(zip(*row, strict=True))
                sure = max(confidence(row[1]), cfg.confidence_floor) if cfg.confidence else 1.0
                raw[name] = base * sure
        length, share = 0, 0.0
        if cfg.lookup:
            place.asked.add("lookup")
            length, place.looked_up = self.lookup(self.text + list(place.path[1:]))
            if place.looked_up is not None:
                share = cfg.lookup_acceptance[min(length, len(cfg.lookup_acceptance)) - 1]
                place.named["lookup"] = {place.looked_up: 1.0}
        kind = _MATCHES[min(length, len(_MATCHES) - 1)] if place.looked_up is not None else 0
        place.classes = exact * _KINDS, exact * _KINDS + kind
        if not place.named:
            if cfg.runner_up_share > 0:
                place.asked.add("runner-up")
                above = self.before if place.parent is None else place.parent.mixed
                likely = sorted(above, key=above.get, reverse=True)[: cfg.top_k]
                place.mixed = {
                    t: cfg.runner_up_share * above[t] for t in likely if t != place.tail[-1]
                }
                if place.mixed:
                    place.named["runner-up"] = dict(place.mixed)
            return
        for name, weight in raw.items():
            for token, probability in place.named[name].items():
                more = weight / sum(raw.values()) * (1 - share) * probability
                place.mixed[token] = place.mixed.get(token, 0.0) + more
        if place.looked_up is not None:
            place.mixed[place.looked_up] = place.mixed.get(place.looked_up, 0.0) + share

    def estimate(self, class_: int, probability: float) -> float:
        if not self.config.calibrate:
            return probability
        prior = self.config.calibration_prior
        expected, accepted = self.verdicts.get((class_, bin_of(probability)), (0.0, 0.0))
        return min(probability * (accepted + prior) / (expected + prior), 0.98)

    def children(self, place: Place) -> list[tuple[float, int]]:
        """(score, token) of a place's candidates, best first."""
        cfg, last, found = self.config, place.score, []
        factor = place.score * cfg.depth_factors[min(place.depth, len(cfg.depth_factors) - 1)]
        edges = set(zip(place.path, place.path[1:], strict=False))
        for token in sorted(place.mixed, key=place.mixed.get, reverse=True):
            if token in self.blocked or (place.path[-1], token) in edges:
                continue
            last = min(factor * self.estimate(place.class_of(token), place.mixed[token]), last)
            if len(found) == cfg.max_children:
                break
            found.append((last, token))
        return found

    def propose(self, root_tail: list[int], limit: int) -> dict[tuple[int, ...], float]:
        """The tree as branches -> score."""
        self.places: dict[tuple[int, ...], Place] = {}
        tree: dict[tuple[int, ...], float] = {}
        waiting: list[tuple[float, int, int, Place, int]] = []
        root = Place(tuple(root_tail[-3:]), (root_tail[-1],), 0, 1.0)
        if limit < 1 or root.path[0] in self.blocked:
            return tree

        def open_(place: Place, handle: int) -> None:
            self.places[place.path[1:]] = place
            self.fill(place)
            for rank, (score, token) in enumerate(self.children(place)):
                waiting.append((-score, handle, rank, place, token))

        open_(root, 0)
        while waiting and len(tree) < self.config.budget:
            best = min(waiting, key=lambda entry: entry[:3])
            waiting.remove(best)
            score, _, _, above, token = best
            branch = (*above.path[1:], token)
            tree[branch] = -score
            if (
                len(tree) < self.config.budget
                and above.depth + 1 < min(limit, self.config.max_depth)
                and token not in self.terminal
            ):
                tail = (*above.tail, token)[-3:]
                path = (*above.path, token)
                open_(Place(tail, path, above.depth + 1, -score, above), len(tree))
        return tree

    # ---- learning

    def blend(self, old: Row | None, new: Row) -> Row:
        """The newest prediction mixed into a 1-token row."""
        share = self.config.newest_share
        if old is None or share == 1:
            return new
        mixed = {token: (1 - share) * probability for token, probability in zip(*old, strict=True)}
        for token, probability in zip(*new, strict=True):
            mixed[token] = mixed.get(token, 0.0) + share * probability
        best = sorted(mixed, key=mixed.get, reverse=True)[: self.config.top_k]
        return best, [float(np.float32(mixed[token])) for token in best]

    def observe(
        self,
        root_tail: list[int],
        rows: dict[tuple[int, ...], Row],
        accepted: tuple[int, ...],
        order: list[tuple[int, ...]],
    ) -> dict[str, list[int]]:
        """rows: prediction by branch, the root's under (). order: the branches as they were packed."""
        counts = {n: [0, 0, 0] for n in ("3-token", "2-token", "1-token", "lookup", "runner-up")}
        for place in self.places.values():
            for name in place.asked:
                counts[name][0] += 1
                counts[name][1] += name in place.named
        for depth in range(len(accepted)):
            place = self.places[accepted[:depth]]
            for name, tokens in place.named.items():
                counts[name][2] += accepted[depth] in tokens
        for depth in range(len(accepted) + 1):
            place = self.places.get(accepted[:depth])
            if place is None:
                break
            for branch in order:
                if branch and branch[:-1] == accepted[:depth]:
                    chance = place.mixed[branch[-1]]
                    key = place.class_of(branch[-1]), bin_of(chance)
                    assert key[1] < BINS
                    seen = self.verdicts.setdefault(key, [0.0, 0.0])
                    seen[0] += chance
                    seen[1] += branch == accepted[: depth + 1]
        confirmed = [accepted[:depth] for depth in range(len(accepted) + 1)]
        fresh: dict[tuple[int, ...], Row] = {}
        first_wins = [*confirmed, *(b for b in order if b not in confirmed)]
        for branch in first_wins[::-1]:
            token = branch[-1] if branch else root_tail[-1]
            if token not in self.blocked:
                self.by_key[(token,)] = self.blend(self.by_key.get((token,)), rows[branch])
        for branch in first_wins:
            tail = (*root_tail, *branch)[-3:]
            if tail[-1] in self.blocked:
                continue
            for size in (2, 3):
                if len(tail) >= size and not set(tail[-size:]) & self.blocked:
                    fresh.setdefault(tail[-size:], rows[branch])
        self.by_key |= fresh
        ids, probs = rows[accepted]
        self.before = dict(zip(ids, probs, strict=True))
        return counts
