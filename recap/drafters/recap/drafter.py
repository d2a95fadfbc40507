"""The Recap drafter: predictions of every verified node, recalled by 3-, 2- and 1-token keys.

It grows the tree best-first by estimated acceptance. At each node the sources are asked with the branch
as part of the key (`growth`); after the pass every verified node, rejected ones included, leaves its row
(`learning`).
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Sequence

import numpy as np

from ...predictions import Predictions
from ...trace import SOURCES, SourceCount
from ..base import marks
from ..jit import EMPTY
from ..suffix_lookup import SuffixLookup
from ..tree import CandidateTree, Contribution, StoredPredictions, pack
from .acceptance import Acceptance
from .config import RecapConfig
from .grow import CLASSES, LOOKUP, NONE, ONE, THREE, TWO, Grown, grow, room_for, rules_of
from .learn import learn, remember
from .memory import LARGEST_VOCAB, PersistentMemory, RequestMemory
from .tree_size import PassCost, TreeSize


class RecapDrafter:
    """Drafts from what the target itself predicted earlier.

    vocab_size: width of the target's logits. memory: a persistent 1-token memory to share with other
    drafters of the same isolation area; by default the drafter owns one. cost: time of a packed pass by
    rows on this machine; with it trees have the size at which tokens a second peak, at most the config's
    budget, and `size` follows what is accepted.
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
        if vocab_size > LARGEST_VOCAB:
            raise ValueError(
                f"Recap packs three tokens in one key, for vocabularies of up to {LARGEST_VOCAB:,} "
                f"tokens; this one has {vocab_size:,}."
            )
        self.request = RequestMemory(self.top_k, self.config.request_rows)
        self.acceptance = Acceptance(CLASSES, prior=self.config.calibration_prior)
        self.lookup = SuffixLookup()
        self.size = None if cost is None else TreeSize(cost, self.config.budget)
        self._spare = np.zeros(2 * self.top_k, np.int64), np.zeros(2 * self.top_k)
        self._rules = rules_of(self.config)
        self._make_room(self.config.budget)
        self._tokens: list[int] = []  # of the tree that was grown last: the very list
        self._tail = (NONE, NONE, NONE)  # the last three confirmed tokens, oldest first
        self._prompt: Sequence[int] = ()
        self._confirmed: list[int] = []  # prompt and answer so far
        self._sets = (frozenset[int](), frozenset[int]())
        self._blocked, self._terminal = (marks(s, vocab_size) for s in self._sets)
        self._forget_likely()

    def _make_room(self, candidates: int) -> None:
        """Arrays for trees of up to so many candidates."""
        self._grown = room_for(candidates, self.top_k)
        self._order = np.zeros(candidates + 1, np.int64)  # handle of each packed row
        self._parents = np.zeros(candidates + 1, np.int64)

    def _forget_likely(self) -> None:
        """The runners-up of the last pass: ids and probabilities where the root now stands."""
        self._likely = np.zeros(0, np.int64), np.zeros(0)

    def reset(self) -> None:
        """Forget everything, the persistent memory included."""
        self.memory.clear()
        self.request.clear()
        self.acceptance.clear()
        if self.size is not None:
            self.size.clear()
        self.lookup = SuffixLookup(self.lookup.blocked)
        self._forget_likely()
        self._prompt, self._confirmed = (), []

    def learn_from(self, other: RecapDrafter) -> None:
        """Take over a copy of another drafter's calibration and of what it knows about tree sizes."""
        self.acceptance = copy.deepcopy(other.acceptance)
        if self.size is not None and other.size is not None:
            self.size.copy_from(other.size)

    def begin(
        self, prompt: Sequence[int], *, blocked: frozenset[int], terminal: frozenset[int]
    ) -> None:
        if self._sets != (blocked, terminal):
            self._sets = (blocked, terminal)
            self._blocked, self._terminal = (marks(s, self.memory.vocab_size) for s in self._sets)
        seen = self._confirmed
        goes_on = bool(seen) and len(prompt) >= len(seen) and list(prompt[: len(seen)]) == seen
        if not (self.config.keep_over_turns and goes_on):
            self.request.clear()
        self.lookup = SuffixLookup(blocked)
        self._forget_likely()
        self._prompt, self._confirmed = prompt, []
        self._tail = (NONE, NONE, NONE)
        self.confirm(prompt)

    def confirm(self, tokens: Sequence[int]) -> None:
        self._confirmed.extend(tokens)
        if self.config.lookup:
            self.lookup.extend(tokens)
        self._tail = (*self._tail, *tokens[-3:])[-3:]

    def seed(self, positions: Sequence[int], predictions: Predictions) -> None:
        if not (self.config.seed_prompt and len(positions)):
            return
        self._keep_likely(predictions, len(predictions) - 1)
        prompt = (NONE, NONE, *self._prompt)
        # the latest place first: of several rows of one key the most recent prediction wins
        tails = [prompt[p : p + 3] for p in positions]
        self.remember(tails, range(len(positions))[::-1], predictions)

    def remember(
        self, tails: Sequence[Sequence[int]], rows: Sequence[int], predictions: Predictions
    ) -> None:
        """Store these rows of the predictions, of several with one key the first.

        tails: the last three tokens up to each row, oldest first, -1 where there is none.
        """
        ring = self.request.reserve(len(rows))
        told = np.array(tails, np.int64), np.array(rows, np.int64)
        with self.memory.guard:
            share = self.config.newest_share
            told = (*told, *_top(predictions), share, self._spare)
            remember(self.memory.store, ring, self._blocked, *told)

    def propose(self, *, limit: int, record: bool) -> CandidateTree:
        most = self.config.budget
        if self.size is not None:
            most = self.size.best(len(self._confirmed))
        with self.memory.guard:
            grow(
                self._grown,
                self._rules,
                self.memory.store,
                self.request.ring,
                self.lookup.automaton,
                self.acceptance.ratios,
                self._blocked,
                self._terminal,
                self._likely,
                most,
                limit,
                *self._tail,
            )
        return self._packed(record)

    def _packed(self, record: bool) -> CandidateTree:
        """The grown tree as rows; recorded, with what each source said."""
        grown = self._grown
        count = grown.size[0]
        order, parents = self._order[:count], self._parents[:count]
        pack(grown.nodes["parent"][:count], grown.nodes["score"][:count], order, parents)
        self._tokens = grown.nodes["token"][order].tolist()
        return CandidateTree.packed(
            self._tokens,
            parents.tolist(),
            grown.nodes["depth"][order].tolist(),
            _details(grown, order[1:], record),
            self._stored(order) if record else None,
        )

    def _stored(self, order: np.ndarray) -> StoredPredictions:
        """What the sources know behind each packed row; copied, for both memories move on."""
        grown, k = self._grown, self.top_k
        nodes, sure = grown.nodes[order], grown.sure[order]
        slots = np.where(nodes["open"][:, None] > 0, grown.slots[order], 0)
        said = [
            (store.ids[slots[:, level]], store.probs[slots[:, level]])
            for level, store in (
                (THREE, self.request.ring),
                (TWO, self.request.ring),
                (ONE, self.memory),
            )
        ]  # without a row some row is fetched: `sure` says that it is none
        mixed = grown.ranked[order, :k], grown.mixed[order, :k]

        def behind(row: int) -> dict[str, list[tuple[int, float]]]:
            if not nodes[row]["open"]:
                return {}
            known = {
                SOURCES[level]: _pairs(ids[row], probs[row])
                for level, (ids, probs) in enumerate(said)
                if sure[row, level] >= 0.0
            }
            if sure[row, LOOKUP] >= 0.0:
                known[SOURCES[LOOKUP]] = [(int(nodes[row]["continuation"]), 1.0)]
            if count := min(nodes[row]["count"], k):
                known["mixed"] = _pairs(*(column[row, :count] for column in mixed))
            return known

        return behind

    def observe(
        self, tree: CandidateTree, predictions: Predictions, accepted: Sequence[int]
    ) -> dict[str, SourceCount]:
        order = self._order[: len(tree)]
        if tree.tokens is not self._tokens:
            # not grown here: its rows count, the places behind them do not
            order = np.full(len(tree), EMPTY, np.int64)
        elif self.size is not None:
            self.size.count(len(tree), len(accepted) + 1)
        ring = self.request.reserve(len(tree))
        a, b, _ = self._tail
        with self.memory.guard:
            counts = learn(
                self._grown,
                self._rules,
                self.memory.store,
                ring,
                self.acceptance.ratios,
                self._blocked,
                np.array(tree.tokens, np.int64),
                np.array(tree.parents, np.int64),
                order,
                np.array(accepted, np.int64),
                *_top(predictions),
                a,
                b,
                self._spare,
            )
        self._keep_likely(predictions, accepted[-1] if len(accepted) else 0)
        return {
            level: SourceCount(*row) for level, row in zip(SOURCES, counts.tolist(), strict=True)
        }

    def _keep_likely(self, predictions: Predictions, row: int) -> None:
        """The prediction at the place where the next root comes, for the runners-up."""
        k = self.top_k  # the prefill may have fetched more for another drafter
        self._likely = (
            predictions.top_ids[row, :k].astype(np.int64),
            predictions.top_probs[row, :k].astype(np.float64),
        )


def _top(predictions: Predictions) -> tuple[np.ndarray, np.ndarray]:
    """Ids and probabilities of all rows, as the kernels take them."""
    return (
        np.ascontiguousarray(predictions.top_ids, np.int64),
        np.ascontiguousarray(predictions.top_probs, np.float32),
    )


def _pairs(ids: np.ndarray, probs: np.ndarray) -> list[tuple[int, float]]:
    return list(zip(ids.tolist(), probs.tolist(), strict=True))


def _details(grown: Grown, handles: np.ndarray, record: bool) -> Callable[[], Iterable[tuple]]:
    """The (source, score, rank, contributions) of these nodes, made when they are asked for.

    Copies what it needs: the arrays serve the next tree.
    """
    scores, ranks = grown.nodes["score"][handles], grown.nodes["rank"][handles]
    if not record:
        return lambda: [
            ("", score, rank, ())
            for score, rank in zip(scores.tolist(), ranks.tolist(), strict=True)
        ]
    above = grown.nodes["parent"][handles]
    said = grown.contributions[handles], grown.weights[above], grown.sure[above]

    def made() -> Iterable[tuple]:
        sources = (said[0] * said[1]).argmax(axis=1)
        columns = (scores, ranks, sources, *said)
        for score, rank, source, *by_level in zip(*(c.tolist() for c in columns), strict=True):
            contributions = [
                Contribution(level, weight, probability, sure)
                for level, probability, weight, sure in zip(SOURCES, *by_level, strict=True)
                if sure >= 0.0
            ]
            yield SOURCES[source], score, rank, tuple(contributions)

    return made
