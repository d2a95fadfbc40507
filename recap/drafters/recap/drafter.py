"""The Recap drafter: predictions of every verified node, recalled by 3-, 2- and 1-token keys.

It grows the tree best-first by estimated acceptance, and asks its sources at each node with the branch as part
of the key (`grow`). After the pass every verified node, rejected ones included, stores its prediction
(`learn`). `reference` is the same method without kernels.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Sequence

import numpy as np

from ...predictions import Predictions
from ...trace import SOURCES, SourceCount
from ..base import Drafter, as_mask
from ..jit import EMPTY
from ..suffix_lookup import SuffixLookup
from ..tree import CandidateTree, Contribution, StoredPredictions, pack
from .acceptance import Acceptance
from .config import RecapConfig
from .grow import NO_TOKEN, TreeArrays, allocate, grow, rules_of
from .learn import learn, remember
from .memory import LARGEST_VOCAB, PersistentMemory, RequestMemory
from .mixture import LOOKUP
from .tree_size import PassCost, TreeSize


class RecapDrafter(Drafter):
    """Drafts from what the target itself predicted earlier.

    vocab_size: width of the target's logits. memory: a persistent 1-token memory to share with other drafters
    of the same memory scope; by default the drafter owns one. cost: seconds of a pass by packed tokens on this
    machine. With it, `size` picks the tree size at which tokens per second peak, up to the config's budget.
    Raises ValueError for a memory that does not fit, or a vocabulary above `LARGEST_VOCAB`.
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
        self.request = RequestMemory(self.top_k, self.config.request_capacity)
        self.acceptance = Acceptance(prior=self.config.calibration_prior)
        self.lookup = SuffixLookup()
        self.size = None if cost is None else TreeSize(cost, self.config.budget)
        self.rules = rules_of(self.config)
        self.reserve(self.config.budget)
        self.tail = (NO_TOKEN,) * 3
        """The last three confirmed tokens, oldest first."""
        self._spare = np.zeros(2 * self.top_k, np.int64), np.zeros(2 * self.top_k)
        self._tokens: list[int] = []  # of the tree grown last, to recognise it
        self._prompt: Sequence[int] = ()
        self._length = 0  # tokens of prompt and answer
        self._sets = (frozenset[int](), frozenset[int]())
        self.blocked, self.terminal = (as_mask(tokens, vocab_size) for tokens in self._sets)
        self._forget_runner_ups()

    def reserve(self, candidates: int) -> None:
        """Make space for trees of up to so many candidates."""
        self.tree = allocate(candidates, self.top_k)
        self._order = np.zeros(candidates + 1, np.int64)  # the grown node of each packed one
        self._parents = np.zeros(candidates + 1, np.int64)

    def _forget_runner_ups(self) -> None:
        self.runner_ups = np.zeros(0, np.int64), np.zeros(0)
        """Ids and probabilities of the prediction that the root was chosen from."""

    def reset(self) -> None:
        """Forget everything, the persistent memory included."""
        self.memory.clear()
        self.request.clear()
        self.acceptance.clear()
        if self.size is not None:
            self.size.clear()
        self.lookup = SuffixLookup(self.lookup.blocked)
        self._forget_runner_ups()
        self._prompt, self._length = (), 0

    def learn_from(self, other: RecapDrafter) -> None:
        """Copy another drafter's calibration and what it knows about tree sizes."""
        self.acceptance = copy.deepcopy(other.acceptance)
        if self.size is not None and other.size is not None:
            self.size.copy_from(other.size)

    def begin(
        self, prompt: Sequence[int], *, blocked: frozenset[int], terminal: frozenset[int]
    ) -> None:
        if self._sets != (blocked, terminal):
            self._sets = (blocked, terminal)
            self.blocked, self.terminal = (as_mask(s, self.memory.vocab_size) for s in self._sets)
        self.request.clear()
        self.lookup = SuffixLookup(blocked)
        self._forget_runner_ups()
        self._prompt, self._length = prompt, 0
        self.tail = (NO_TOKEN,) * 3
        self.confirm(prompt)

    def confirm(self, tokens: Sequence[int]) -> None:
        self._length += len(tokens)
        if self.config.lookup:
            self.lookup.extend(tokens)
        self.tail = (*self.tail, *tokens[-3:])[-3:]

    def seed(self, positions: Sequence[int], predictions: Predictions) -> None:
        if not (self.config.seed_prompt and len(positions)):
            return
        self._keep_runner_ups(predictions, len(predictions) - 1)
        prompt = (NO_TOKEN, NO_TOKEN, *self._prompt)
        # latest position first: of several predictions for one key the most recent wins
        tails = [prompt[at : at + 3] for at in positions]
        self.remember(tails, range(len(positions))[::-1], predictions)

    def remember(
        self, tails: Sequence[Sequence[int]], order: Sequence[int], predictions: Predictions
    ) -> None:
        """Store predictions; of several with one key the first in `order` wins.

        tails: the last three tokens up to each prediction, oldest first, -1 where there is none.
        """
        request = self.request.reserve(len(order))
        with self.memory.guard:
            remember(
                self.memory.arrays,
                request,
                self.blocked,
                np.array(tails, np.int64),
                np.array(order, np.int64),
                *_top(predictions),
                self.rules.newest_share,
                self._spare,
            )

    def propose(self, *, limit: int, record: bool) -> CandidateTree:
        most = self.config.budget if self.size is None else self.size.best(self._length)
        with self.memory.guard:
            grow(
                self.tree,
                self.rules,
                self.memory.arrays,
                self.request.arrays,
                self.lookup.automaton,
                self.acceptance.ratios,
                self.blocked,
                self.terminal,
                self.runner_ups,
                most,
                limit,
                self.tail,
            )
        return self.packed(record)

    def packed(self, record: bool) -> CandidateTree:
        """The grown tree in packed order, with each node's contributions if they are recorded."""
        tree = self.tree
        count = tree.size[0]
        nodes, order, parents = tree.nodes[:count], self._order[:count], self._parents[:count]
        pack(nodes["parent"], nodes["score"], order, parents)
        self._tokens = nodes["token"][order].tolist()
        return CandidateTree(
            self._tokens,
            parents.tolist(),
            nodes["depth"][order].tolist(),
            _details(tree, order[1:], record),
            self._stored(order) if record else None,
        )

    def _stored(self, order: np.ndarray) -> StoredPredictions:
        """What the sources predict after each packed token. Copied, because the memories move on."""
        tree, k = self.tree, self.top_k
        nodes, confidences = tree.nodes[order], tree.confidences[order]
        slots = np.where(
            (nodes["fetched"][:, None] > 0) & (tree.slots[order] >= 0), tree.slots[order], 0
        )
        predictions = [
            (memory.ids[slots[:, source]], memory.probs[slots[:, source]])
            for source, memory in enumerate((*[self.request.arrays] * 2, self.memory))
        ]  # without a slot some prediction is copied: `confidences` marks it as none
        mixed = tree.ranked[order, :k], tree.mixed[order, :k]

        def stored(at: int) -> dict[str, list[tuple[int, float]]]:
            if not nodes[at]["fetched"]:
                return {}
            found = {
                SOURCES[source]: _pairs(ids[at], probs[at])
                for source, (ids, probs) in enumerate(predictions)
                if confidences[at, source] >= 0.0
            }
            if confidences[at, LOOKUP] >= 0.0:
                found[SOURCES[LOOKUP]] = [(int(nodes[at]["continuation"]), 1.0)]
            if count := min(nodes[at]["count"], k):
                found["mixed"] = _pairs(*(column[at, :count] for column in mixed))
            return found

        return stored

    def observe(
        self, tree: CandidateTree, predictions: Predictions, accepted: Sequence[int]
    ) -> dict[str, SourceCount]:
        order = self._order[: len(tree)]
        if tree.tokens is not self._tokens:
            # grown elsewhere: its predictions count, but no source was asked here
            order = np.full(len(tree), EMPTY, np.int64)
        elif self.size is not None:
            self.size.count(len(tree), len(accepted) + 1)
        request = self.request.reserve(len(tree))
        with self.memory.guard:
            counts = learn(
                self.tree,
                self.rules,
                self.memory.arrays,
                request,
                self.acceptance.ratios,
                self.blocked,
                (np.array(tree.tokens, np.int64), np.array(tree.parents, np.int64), order),
                np.array(accepted, np.int64),
                _top(predictions),
                self.tail,
                self._spare,
            )
        self._keep_runner_ups(predictions, accepted[-1] if len(accepted) else 0)
        return {
            source: SourceCount(*numbers)
            for source, numbers in zip(SOURCES, counts.tolist(), strict=True)
        }

    def _keep_runner_ups(self, predictions: Predictions, at: int) -> None:
        """Keep the prediction that the next root is chosen from."""
        k = self.top_k  # the prefill may have fetched more for another drafter
        self.runner_ups = (
            predictions.top_ids[at, :k].astype(np.int64),
            predictions.top_probs[at, :k].astype(np.float64),
        )


def _top(predictions: Predictions) -> tuple[np.ndarray, np.ndarray]:
    """Ids and probabilities as the kernels take them."""
    return (
        np.ascontiguousarray(predictions.top_ids, np.int64),
        np.ascontiguousarray(predictions.top_probs, np.float32),
    )


def _pairs(ids: np.ndarray, probs: np.ndarray) -> list[tuple[int, float]]:
    return list(zip(ids.tolist(), probs.tolist(), strict=True))


def _details(tree: TreeArrays, order: np.ndarray, record: bool) -> Callable[[], Iterable[tuple]]:
    """The (source, score, rank, contributions) of these nodes, built when they are asked for.

    Copies what it needs, because the arrays serve the next tree.
    """
    scores, ranks = tree.nodes["score"][order], tree.nodes["rank"][order]
    if not record:
        return lambda: [
            ("", *pair, ()) for pair in zip(scores.tolist(), ranks.tolist(), strict=True)
        ]
    above = tree.nodes["parent"][order]
    by_source = (tree.weights[above], tree.probabilities[order], tree.confidences[above])

    def details() -> Iterable[tuple]:
        best = (by_source[0] * by_source[1]).argmax(axis=1)
        columns = (scores, ranks, best, *by_source)
        for score, rank, source, *numbers in zip(*(c.tolist() for c in columns), strict=True):
            contributions = [
                Contribution(*one)
                for one in zip(SOURCES, *numbers, strict=True)
                if one[-1] >= 0.0  # the source has a prediction
            ]
            yield SOURCES[source], score, rank, tuple(contributions)

    return details
