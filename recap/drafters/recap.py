"""The Recap drafter: predictions of every verified node, recalled by 3-, 2- and 1-token keys.

It grows the tree best-first. At each node the levels are asked with the branch as part of the key,
mixed by weight and confidence, and joined by the longest match in prompt + answer.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence

import numpy as np

from ..acceptance import Acceptance
from ..budget import PassCost
from ..config import RecapConfig
from ..lookup import NO_MATCH, Match, SuffixLookup
from ..memory import PersistentMemory, RequestMemory, Row, confidence, key2, key3
from ..mixture import level_weights, mix
from ..trace import LEVELS, LevelCount
from ..tree import ROOT, CandidateTree, TreeBuilder, Vote
from .base import Predictions

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
_CLASSES = 4 * (max(_MATCHES) + 1)
_NONE = -1  # a token that does not exist: no key reaches across it


class _Asked:
    """What the sources answered at one place in the tree, kept until the pass is observed."""

    __slots__ = ("class_", "continuation", "keys", "mixed", "rows", "runners", "weights")

    def __init__(
        self,
        keys: tuple[bool, bool, bool],
        rows: tuple[Row | None, Row | None, Row | None],
        weights: list[float],
        continuation: int | None,
        mixed: dict[int, float],
        matched: int,
    ) -> None:
        self.runners: dict[int, float] | None = None  # asked only where nothing else answered
        self.keys, self.rows, self.weights = keys, rows, weights
        self.continuation, self.mixed = continuation, mixed
        level = 3 if rows[0] else 2 if rows[1] else 1 if rows[2] else 0
        kinds = _CLASSES // 4
        # classes of calibration: for the tokens of the levels, and for the lookup's own token
        self.class_ = (level * kinds, level * kinds + _MATCHES[min(matched, len(_MATCHES) - 1)])


class _Place:
    """A node while the tree grows: where it hangs, its key tokens, its match, its children in wait."""

    __slots__ = ("children", "depth", "match", "parent", "score", "tail", "token")

    def __init__(
        self,
        parent: int,
        token: int,
        depth: int,
        score: float,
        tail: tuple[int, int, int],
        match: Match,
    ) -> None:
        self.parent, self.token, self.depth, self.score = parent, token, depth, score
        self.tail, self.match = tail, match
        self.children: list[tuple[float, int]] = []


class RecapDrafter:
    """Drafts from what the target itself predicted earlier.

    vocab_size: width of the target's logits. memory: a persistent 1-token memory to share with other
    drafters of the same isolation area; by default the drafter owns one. cost: time of a packed pass by
    rows on this machine; with it a tree grows only as far as its candidates pay for their rows, up to
    the config's budget.
    """

    name = "recap"

    def __init__(
        self,
        vocab_size: int,
        config: RecapConfig | None = None,
        memory: PersistentMemory | None = None,
        cost: PassCost | None = None,
    ) -> None:
        self.config = config or RecapConfig()
        self.top_k = self.config.top_k
        self.seeds = self.config.seed_prompt
        self.memory = memory or PersistentMemory(vocab_size, self.top_k)
        self.request = RequestMemory(self.top_k, self.config.request_rows)
        self.acceptance = Acceptance(_CLASSES, prior=self.config.calibration_prior)
        self.cost = cost
        self.lookup = SuffixLookup()
        self._blocked: frozenset[int] = frozenset()
        self._terminal: frozenset[int] = frozenset()
        self._tail = (_NONE, _NONE, _NONE)  # the last three confirmed tokens, oldest first
        self._prompt: Sequence[int] = ()
        self._before: dict[int, float] = {}  # what was likely where the root now stands
        self._asked: dict[int, _Asked] = {}
        self._order: list[int] = [ROOT]

    def reset(self) -> None:
        """Forget everything, the persistent memory included."""
        self.memory.clear()
        self.request.clear()
        self.acceptance.clear()

    def begin(
        self, prompt: Sequence[int], *, blocked: frozenset[int], terminal: frozenset[int]
    ) -> None:
        self._blocked, self._terminal = blocked, terminal
        self._prompt = prompt
        self.request.clear()
        self.lookup = SuffixLookup(blocked)
        self._tail = (_NONE, _NONE, _NONE)
        self._before = {}
        self.confirm(prompt)

    def confirm(self, tokens: Sequence[int]) -> None:
        if self.config.lookup:
            self.lookup.extend(tokens)
        self._tail = (*self._tail, *tokens[-3:])[-3:]

    def seed(self, positions: Sequence[int], predictions: Predictions) -> None:
        if not (self.config.seed_prompt and len(positions)):
            return
        prompt = self._prompt
        self._remember(predictions, len(predictions) - 1)
        tails = [
            (
                prompt[at - 2] if at >= 2 else _NONE,
                prompt[at - 1] if at >= 1 else _NONE,
                prompt[at],
            )
            for at in positions
        ]
        # the latest place first: of several rows of one key the most recent prediction wins
        order = np.arange(len(tails))[::-1]
        self._write([tails[i] for i in order], predictions, order)

    # -- propose ---------------------------------------------------------------------------------

    def propose(self, *, limit: int, record: bool) -> CandidateTree:
        cfg = self.config
        root = self._tail[-1]
        grown = TreeBuilder(root)
        self._asked, self._order = {}, [ROOT]
        depth_limit = min(limit, cfg.max_depth)
        if depth_limit < 1 or root in self._blocked:
            return grown.pack()
        places = [_Place(-1, root, 0, 1.0, self._tail, self._match())]
        # a queue entry is one candidate; its next sibling enters when it leaves, so the queue is short
        queue: list[tuple[float, int, int, int]] = []
        self._expand(places, ROOT, queue)
        budget = cfg.budget
        pays = self.cost.watch() if self.cost is not None else None
        while queue and budget:
            if pays is not None and not pays.more(-queue[0][0]):
                break
            negative, parent, rank, token = heapq.heappop(queue)
            above = places[parent]
            if rank + 1 < len(above.children):
                score, sibling = above.children[rank + 1]
                heapq.heappush(queue, (-score, parent, rank + 1, sibling))
            budget -= 1
            depth = above.depth + 1
            asked = self._asked[parent]
            handle = grown.add(
                parent,
                token,
                source=_source(asked, token) if record else "",
                score=-negative,
                votes=_votes(asked, token) if record else (),
            )
            _, b, c = above.tail
            place = _Place(parent, token, depth, -negative, (b, c, token), NO_MATCH)
            places.append(place)
            if budget and depth < depth_limit and token not in self._terminal:
                if cfg.lookup:
                    place.match = self.lookup.step(above.match, token)
                self._expand(places, handle, queue)
        if pays is not None:
            grown.cut(pays.best)
            self._asked = {h: asked for h, asked in self._asked.items() if h <= pays.best}
        tree = grown.pack()
        self._order = grown.order
        return tree

    def _match(self) -> Match:
        return self.lookup.tail() if self.config.lookup else NO_MATCH

    def _expand(
        self, places: list[_Place], handle: int, queue: list[tuple[float, int, int, int]]
    ) -> None:
        """Ask all sources at a place and queue its best child; the siblings wait behind it."""
        cfg = self.config
        place = places[handle]
        asked = self._asked[handle] = self._ask(place.tail, place.match)
        if not asked.mixed and cfg.runner_up_share > 0:
            self._ask_runners(asked, places, handle)
        mixed = asked.mixed
        if not mixed:
            return
        factors = cfg.depth_factors
        factor = place.score * factors[min(place.depth, len(factors) - 1)]
        used = _edges_from(places, handle)
        blocked = self._blocked
        children = place.children
        estimate = self.acceptance.estimate if cfg.calibrate else None
        for token in sorted(mixed, key=mixed.__getitem__, reverse=True):
            chance = mixed[token]
            if estimate is not None:
                chance = estimate(asked.class_[token == asked.continuation], chance)
            score = factor * chance
            if score < cfg.min_score or len(children) == cfg.max_children:
                break
            if token not in blocked and token not in used:
                children.append((score, token))
        if estimate is not None:
            children.sort(reverse=True)
        if children:
            score, token = children[0]
            heapq.heappush(queue, (-score, handle, 0, token))

    def _ask(self, tail: tuple[int, int, int], match: Match) -> _Asked:
        """Ask each enabled level whose key exists, and the lookup; mix the answers."""
        cfg = self.config
        a, b, c = tail
        w3, w2, w1 = cfg.base_weights
        has1 = w1 > 0
        has2 = w2 > 0 and b >= 0 and b not in self._blocked
        has3 = w3 > 0 and a >= 0 and b >= 0 and not (a in self._blocked or b in self._blocked)
        rows = (
            self.request.get3(key3(a, b, c)) if has3 else None,
            self.request.get2(key2(b, c)) if has2 else None,
            self.memory.get(c) if has1 else None,
        )
        weights = level_weights(
            rows, cfg.base_weights, use_confidence=cfg.confidence, floor=cfg.confidence_floor
        )
        continuation = self.lookup.next_token(match)
        share = 0.0
        if continuation is not None:
            shares = cfg.lookup_acceptance
            share = shares[min(match.length, len(shares)) - 1]
        mixed = mix(rows, weights, looked_up=continuation, lookup_share=share)
        if share and any(weights):
            weights = [w * (1.0 - share) for w in weights]
        matched = match.length if continuation is not None else 0
        return _Asked((has3, has2, has1), rows, [*weights, share], continuation, mixed, matched)

    def _ask_runners(self, asked: _Asked, places: Sequence[_Place], handle: int) -> None:
        """Nothing is known behind this token: try what was likely where it came, in its stead."""
        place = places[handle]
        before = self._before if handle == ROOT else self._asked[place.parent].mixed
        best = sorted(before, key=before.__getitem__, reverse=True)[: self.top_k]
        share = self.config.runner_up_share
        asked.runners = {t: share * before[t] for t in best if t != place.token}
        asked.mixed = asked.runners

    def _remember(self, predictions: Predictions, row: int) -> None:
        """The prediction at the place where the next root comes."""
        self._before = dict(
            zip(predictions.top_ids[row].tolist(), predictions.top_probs[row].tolist(), strict=True)
        )

    # -- observe ---------------------------------------------------------------------------------

    def observe(
        self, tree: CandidateTree, predictions: Predictions, accepted: Sequence[int]
    ) -> dict[str, LevelCount]:
        tails = [self._tail]
        for row in range(1, len(tree)):
            _, b, c = tails[tree.parents[row]]
            tails.append((b, c, tree.tokens[row]))
        confirmed = {ROOT, *accepted}
        order = [ROOT, *accepted, *(r for r in range(len(tree)) if r not in confirmed)]
        self._write([tails[row] for row in order], predictions, np.asarray(order))
        self._remember(predictions, accepted[-1] if accepted else ROOT)
        if self.config.calibrate:
            self._calibrate(tree, accepted)
        return self._count(tree, accepted)

    def _calibrate(self, tree: CandidateTree, accepted: Sequence[int]) -> None:
        """Tell the calibration which candidates under the accepted branch were right."""
        at = ROOT
        for right in (*accepted, None):
            asked = self._asked.get(self._order[at])
            if asked is None:
                return
            for row in range(at + 1, len(tree)):
                if tree.parents[row] == at:
                    token = tree.tokens[row]
                    class_ = asked.class_[token == asked.continuation]
                    self.acceptance.record(class_, asked.mixed[token], row == right)
            if right is not None:
                at = right

    def _write(
        self,
        tails: Sequence[tuple[int, int, int]],
        predictions: Predictions,
        order: np.ndarray,
    ) -> None:
        """Store row order[i] of the predictions under tails[i]; earlier rows of one key win."""
        blocked = self._blocked
        kept = [i for i, tail in enumerate(tails) if tail[2] not in blocked and tail[2] >= 0]
        if not kept:
            return
        rows = order[kept]
        ids = predictions.top_ids[rows]
        probs = predictions.top_probs[rows]
        conf = confidence(probs)
        self.memory.write(np.array([tails[i][2] for i in kept]), ids, probs, conf)
        keys = []
        for i in kept:
            a, b, c = tails[i]
            if b < 0 or b in blocked:
                keys.append((-1, -1))
            elif a < 0 or a in blocked:
                keys.append((key2(b, c), -1))
            else:
                keys.append((key2(b, c), key3(a, b, c)))
        self.request.write(keys, ids, probs, conf)

    def _count(self, tree: CandidateTree, accepted: Sequence[int]) -> dict[str, LevelCount]:
        """Look-ups, hits and accepted hits of this pass (see `trace.LevelCount`)."""
        lookups, hits, right = ([0] * len(LEVELS) for _ in range(3))
        for asked in self._asked.values():
            for level, (key, row) in enumerate(zip(asked.keys, asked.rows, strict=True)):
                lookups[level] += key
                hits[level] += row is not None
            if self.config.lookup:
                lookups[3] += 1
                hits[3] += asked.continuation is not None
            if asked.runners is not None:
                lookups[4] += 1
                hits[4] += bool(asked.runners)
        at = ROOT
        for row in accepted:
            asked, token = self._asked[self._order[at]], tree.tokens[row]
            for level, stored in enumerate(asked.rows):
                right[level] += stored is not None and token in stored.ids
            right[3] += asked.continuation == token
            right[4] += asked.runners is not None and token in asked.runners
            at = row
        return {
            level: LevelCount(*counts)
            for level, counts in zip(LEVELS, zip(lookups, hits, right, strict=True), strict=True)
        }


def _edges_from(places: Sequence[_Place], handle: int) -> set[int]:
    """Tokens that already followed this place's token on its own branch: no edge repeats."""
    token, used = places[handle].token, set()
    while (parent := places[handle].parent) >= 0:
        if places[parent].token == token:
            used.add(places[handle].token)
        handle = parent
    return used


def _contributions(asked: _Asked, token: int) -> list[tuple[float, float]]:
    """(weight in the mixture, probability the source gives the token), for each of LEVELS."""
    said = []
    for row, weight in zip(asked.rows, asked.weights[:3], strict=True):
        inside = row is not None and token in row.ids
        said.append((weight, row.probs[row.ids.index(token)] if inside else 0.0))
    said.append((asked.weights[3], 1.0 if asked.continuation == token else 0.0))
    said.append((1.0, asked.runners.get(token, 0.0)) if asked.runners else (0.0, 0.0))
    return said


def _source(asked: _Asked, token: int) -> str:
    """The level with the largest contribution to this token."""
    said = _contributions(asked, token)
    return LEVELS[max(range(len(LEVELS)), key=lambda level: said[level][0] * said[level][1])]


def _votes(asked: _Asked, token: int) -> tuple[Vote, ...]:
    """What each source that answered at this place said about the token."""
    said = _contributions(asked, token)
    votes = [
        Vote(LEVELS[level], *said[level], row.confidence)
        for level, row in enumerate(asked.rows)
        if row is not None
    ]
    if asked.continuation is not None:
        votes.append(Vote("lookup", *said[3], 1.0))
    if asked.runners:
        votes.append(Vote("runner-up", *said[4], 0.0))
    return tuple(votes)
