"""The Recap drafter: predictions of every verified node, recalled by 3-, 2- and 1-token keys.

It grows the tree best-first by estimated acceptance. At each node the sources are asked with the branch
as part of the key (`sources`); after the pass every verified node, rejected ones included, leaves its row.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence

import numpy as np

from ..acceptance import Acceptance
from ..budget import PassCost
from ..config import RecapConfig
from ..memory import PersistentMemory, RequestMemory, confidence, key2, key3
from ..trace import LEVELS, LevelCount
from ..tree import ROOT, CandidateTree, TreeBuilder
from .base import Predictions
from .sources import CLASSES, HIT, NONE, Place, Sources

UNWEIGHED = -1
"""Stands in the queue for the best child of a place whose sources are not mixed yet."""


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
        self.memory = PersistentMemory(vocab_size, self.top_k) if memory is None else memory
        if (self.memory.vocab_size, self.memory.top_k) != (vocab_size, self.top_k):
            raise ValueError("The shared memory was made for another vocabulary or another top_k.")
        self.request = RequestMemory(self.top_k, self.config.request_rows)
        self.sources = Sources(self.config, self.memory, self.request)
        self.acceptance = Acceptance(CLASSES, prior=self.config.calibration_prior)
        self.cost = cost
        self._terminal: frozenset[int] = frozenset()
        self._tail = (NONE, NONE, NONE)  # the last three confirmed tokens, oldest first
        self._prompt: Sequence[int] = ()
        self._confirmed: list[int] = []  # prompt and answer so far
        self._asked: dict[int, Place] = {}  # by handle, places whose sources were asked
        self._order: list[int] = [ROOT]  # handle of each packed row

    def reset(self) -> None:
        """Forget everything, the persistent memory included."""
        self.memory.clear()
        self.request.clear()
        self.acceptance.clear()
        self.sources.begin(self.sources.blocked, keep=False)
        self._prompt, self._confirmed = (), []

    def begin(
        self, prompt: Sequence[int], *, blocked: frozenset[int], terminal: frozenset[int]
    ) -> None:
        self._terminal = terminal
        seen = self._confirmed
        goes_on = bool(seen) and len(prompt) >= len(seen) and list(prompt[: len(seen)]) == seen
        self._prompt, self._confirmed = prompt, []
        self.sources.begin(blocked, keep=self.config.keep_over_turns and goes_on)
        self._tail = (NONE, NONE, NONE)
        self.confirm(prompt)

    def confirm(self, tokens: Sequence[int]) -> None:
        self._confirmed.extend(tokens)
        if self.config.lookup:
            self.sources.lookup.extend(tokens)
        self._tail = (*self._tail, *tokens[-3:])[-3:]

    def seed(self, positions: Sequence[int], predictions: Predictions) -> None:
        if not (self.config.seed_prompt and len(positions)):
            return
        self._remember(predictions, len(predictions) - 1)
        prompt = self._prompt
        # the latest place first: of several rows of one key the most recent prediction wins
        order = range(len(positions) - 1, -1, -1)
        tails = [
            tuple(prompt[at] if at >= 0 else NONE for at in (p - 2, p - 1, p)) for p in positions
        ]
        self._write([tails[i] for i in order], predictions, order)

    # -- propose ---------------------------------------------------------------------------------

    def propose(self, *, limit: int, record: bool) -> CandidateTree:
        cfg, sources = self.config, self.sources
        root = self._tail[-1]
        grown = TreeBuilder(root)
        self._asked, self._order = {}, [ROOT]
        depth_limit = min(limit, cfg.max_depth)
        if depth_limit < 1 or root in sources.blocked:
            return grown.pack()
        place = Place(None, 0, 1.0, self._tail, (root,))
        place.match = sources.tail_match()
        # A queue entry is one candidate; its next sibling enters when it leaves, so the queue is short.
        # Scores that leave the queue never rise, which is what lets the budget stop early.
        queue: list[tuple[float, int, int]] = []
        self._expand(place, ROOT, queue)
        budget = cfg.budget
        pays = self.cost.watch() if self.cost is not None else None
        while queue and budget:
            score, parent, token = heapq.heappop(queue)
            score = -score
            above = self._asked[parent]
            if token == UNWEIGHED:
                sources.weigh(above)
                self._queue_next(above, parent, queue)
                continue
            if pays is not None and not pays.more(score + cfg.learning_value):
                break
            self._queue_next(above, parent, queue)
            budget -= 1
            handle = grown.add(
                parent,
                token,
                source=above.source(token) if record else "",
                score=score,
                votes=above.votes(token) if record else (),
            )
            depth = above.depth + 1
            if budget and depth < depth_limit and token not in self._terminal:
                _, b, c = above.tail
                place = Place(above, depth, score, (b, c, token), (*above.path, token))
                if cfg.lookup:
                    place.match = sources.lookup.step(above.match, token)
                self._expand(place, handle, queue)
        if pays is not None:
            grown.cut(pays.best)
            self._asked = {h: place for h, place in self._asked.items() if h <= pays.best}
        tree = grown.pack()
        self._order = grown.order
        return tree

    def _expand(self, place: Place, handle: int, queue: list[tuple[float, int, int]]) -> None:
        """Fetch what is known at a place and queue it by what its best child can score at most."""
        self._asked[handle] = place
        self.sources.fetch(place)
        chance = place.bound
        if self.config.calibrate:
            bound = self.acceptance.bound
            chance = bound(place.class_, place.bound)
            if place.continuation is not None:
                chance = max(chance, bound(place.lookup_class, place.bound))
        factors = self.config.depth_factors
        factor = place.score * factors[min(place.depth, len(factors) - 1)]
        score = min(factor * chance, place.score)
        if score >= self.config.min_score:
            heapq.heappush(queue, (-score, handle, UNWEIGHED))

    def _queue_next(self, place: Place, handle: int, queue: list[tuple[float, int, int]]) -> None:
        """Queue the place's next child, if one is left that is worth a row."""
        cfg = self.config
        factors = cfg.depth_factors
        factor = place.score * factors[min(place.depth, len(factors) - 1)]
        while place.cursor < len(place.ranked):
            token = place.ranked[place.cursor]
            place.cursor += 1
            if token in self.sources.blocked or _repeats(place.path, token):
                continue
            chance = place.mixed[token]
            if cfg.calibrate:
                looked_up = token == place.continuation
                class_ = place.lookup_class if looked_up else place.class_
                chance = self.acceptance.estimate(class_, chance)
            score = min(factor * chance, place.last)
            if score >= cfg.min_score:
                place.last = score
                heapq.heappush(queue, (-score, handle, token))
                if place.cursor >= cfg.max_children:
                    place.cursor = len(place.ranked)  # they stay: they may stand in as runners-up
            return

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
        self._write([tails[row] for row in order], predictions, order)
        self._remember(predictions, accepted[-1] if accepted else ROOT)
        if self.config.calibrate:
            self._calibrate(tree, accepted)
        return self._count(tree, accepted)

    def _remember(self, predictions: Predictions, row: int) -> None:
        """The prediction at the place where the next root comes, for the runners-up."""
        ids, probs = predictions.top_ids[row], predictions.top_probs[row]
        k = self.top_k  # the prefill may have fetched more for another drafter
        self.sources.before = dict(zip(ids[:k].tolist(), probs[:k].tolist(), strict=True))

    def _write(
        self,
        tails: Sequence[tuple[int, ...]],
        predictions: Predictions,
        order: Sequence[int],
    ) -> None:
        """Store row order[i] of the predictions under tails[i]; earlier rows of one key win."""
        blocked = self.sources.blocked
        kept = [i for i, tail in enumerate(tails) if tail[2] >= 0 and tail[2] not in blocked]
        if not kept:
            return
        rows = [order[i] for i in kept]
        ids = predictions.top_ids[rows, : self.top_k]
        probs = predictions.top_probs[rows, : self.top_k]
        conf = confidence(probs)
        self.memory.write(np.array([tails[i][2] for i in kept]), ids, probs, conf)
        keys = []
        for i in kept:
            a, b, c = tails[i]
            three, two = self.sources.keyed((a, b, c))
            keys.append((key2(b, c) if two else -1, key3(a, b, c) if three else -1))
        self.request.write(keys, ids, probs, conf)

    def _calibrate(self, tree: CandidateTree, accepted: Sequence[int]) -> None:
        """Tell the calibration which candidates under the accepted branch were right."""
        at = ROOT
        for right in (*accepted, None):
            place = self._asked.get(self._order[at])
            if place is None:
                return
            for row in range(at + 1, len(tree)):
                if tree.parents[row] == at:
                    token = tree.tokens[row]
                    looked_up = token == place.continuation
                    class_ = place.lookup_class if looked_up else place.class_
                    self.acceptance.record(class_, place.mixed[token], row == right)
            if right is not None:
                at = right

    def _count(self, tree: CandidateTree, accepted: Sequence[int]) -> dict[str, LevelCount]:
        """Look-ups, hits and accepted hits of this pass (see `trace.LevelCount`)."""
        right = [0] * len(LEVELS)
        total = sum([place.counts for place in self._asked.values()])
        lookups = [total >> 16 * level & 0xFFFF for level in range(len(LEVELS))]
        hits = [total >> HIT + 16 * level & 0xFFFF for level in range(len(LEVELS))]
        at = ROOT
        for row in accepted:
            place, token = self._asked[self._order[at]], tree.tokens[row]
            for level in range(len(LEVELS)):
                right[level] += place.named(level, token)
            at = row
        return {
            level: LevelCount(*counts)
            for level, counts in zip(LEVELS, zip(lookups, hits, right, strict=True), strict=True)
        }


def _repeats(path: Sequence[int], token: int) -> bool:
    """Whether the edge from the path's last token to `token` stands on the path already.

    >>> _repeats((5, 6, 5), 6), _repeats((5, 6, 5), 7), _repeats((5, 5), 5)
    (True, False, True)
    """
    last = path[-1]
    return token in path and any(
        path[i] == last and path[i + 1] == token for i in range(len(path) - 1)
    )
