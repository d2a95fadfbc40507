"""The Recap method in plain Python. Read this first.

What it is: every rule of the method, in dictionaries and loops, in the order in which a pass uses them.

1. *Ask* the sources what follows a branch of the tree: three memories of the target's own earlier
   predictions, keyed by the last 3, 2 and 1 tokens, and a lookup in the text so far.
2. *Mix* their answers, and grow the tree with the most probable candidate first.
3. The target verifies the whole tree in one pass (not here: see `engine`). It predicts a next token after
   every node. The longest branch that agrees with it is accepted.
4. *Learn* from the predictions of all nodes, rejected ones too.

What it is not: fast, or complete. It mixes every node at once and searches the text from the end, its
memories never run full, it does not seed them from the prompt, and it does not choose a tree size. The kernels
in `grow` and `learn` put off or skip most of this work. The tests hold them to the same trees, scores and counts.

A *branch* is the tuple of tokens below the root, () for the root itself. A *prediction* is (token ids, their
probabilities), best first.

>>> recap = Reference(RecapConfig(top_k=2, lookup=False), blocked=set(), terminal=set())
>>> recap.begin([7, 3])
>>> recap.propose(limit=10)  # nothing is known yet: a plain one-token step
{}
>>> _ = recap.observe({(): ([4, 5], [0.75, 0.25])}, accepted=())
>>> recap.confirm([4, 7, 3])  # 3 comes again, and 4 followed it
>>> {branch: round(score, 3) for branch, score in recap.propose(limit=1).items()}
{(4,): 0.75, (5,): 0.25}
"""

from __future__ import annotations

import heapq
import math
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np

from ...trace import SOURCES
from .acceptance import MATCH_CLASSES, N_MATCH_CLASSES, bin_of
from .config import RecapConfig

Branch = tuple[int, ...]
Prediction = tuple[list[int], list[float]]


def confidence(probs: list[float]) -> float:
    """1 for one certain token, 0 for a flat prediction: 1 - H / ln k.

    >>> confidence([0.5, 0.5]), confidence([1.0, 0.0])
    (0.0, 1.0)
    """
    shares = [p / sum(probs) for p in probs]
    entropy = -sum(share * math.log(share) for share in shares if share > 0)
    return min(max(1 - entropy / math.log(len(probs)), 0.0), 1.0)


@dataclass
class Node:
    """What is known about the next token after one branch."""

    asked: set[str] = field(default_factory=set)
    """Sources that were asked,"""
    predictions: dict[str, dict[int, float]] = field(default_factory=dict)
    """the probabilities that those with a prediction give to tokens,"""
    mixed: dict[int, float] = field(default_factory=dict)
    """and their mixture."""
    looked_up: int | None = None
    memory_class: int = 0
    lookup_class: int = 0

    def class_of(self, token: int) -> int:
        """The class in which a candidate's acceptance is counted."""
        return self.lookup_class if token == self.looked_up else self.memory_class


class Reference:
    """Recap for one answer at a time. blocked: never a key or a candidate. terminal: ends the answer."""

    def __init__(self, config: RecapConfig, blocked: set[int], terminal: set[int]) -> None:
        self.config, self.blocked, self.terminal = config, blocked, terminal
        self.memory: dict[tuple[int, ...], Prediction] = {}
        """All three memories: keys of 1 token persist, keys of 2 and 3 tokens live for one request."""
        self.text: list[int] = []
        """The prompt and the confirmed answer. The last token is the root of the next tree."""
        self.root_choice: dict[int, float] = {}
        """The prediction that the root was chosen from."""
        self.verdicts: dict[tuple[int, int], list[float]] = {}
        """Expected and real acceptances by class and bin of probability."""
        self.nodes: dict[Branch, Node] = {}
        """The nodes of the last tree whose sources were asked."""

    def begin(self, prompt: list[int]) -> None:
        """Start a request: only the 1-token memory and the calibration remain."""
        self.memory = {key: value for key, value in self.memory.items() if len(key) == 1}
        self.text, self.root_choice = list(prompt), {}

    def confirm(self, tokens: list[int]) -> None:
        """Append confirmed tokens to the text."""
        self.text += tokens

    # ---- 1. ask the sources

    def ask(self, branch: Branch) -> Node:
        """Ask every source what follows a branch, and mix the answers."""
        config, node, weights = self.config, Node(), {}
        tail = (*self.text[-3:], *branch)[-3:]
        for source, size, base in zip(SOURCES, (3, 2, 1), config.base_weights, strict=False):
            key = tail[-size:]
            if base <= 0 or len(key) < size or self.blocked & set(key[:-1]):
                continue
            node.asked.add(source)
            if key in self.memory:
                ids, probs = self.memory[key]
                node.predictions[source] = dict(zip(ids, probs, strict=True))
                factor = max(confidence(probs), config.confidence_floor) if config.confidence else 1
                weights[source] = base * factor
                node.memory_class = max(node.memory_class, size * N_MATCH_CLASSES)
        node.lookup_class, share = node.memory_class, 0.0
        if config.lookup:
            node.asked.add("lookup")
            length, node.looked_up = self.look_up([*self.text, *branch])
            if node.looked_up is not None:
                node.predictions["lookup"] = {node.looked_up: 1.0}
                share = _at(config.lookup_acceptance, length - 1)
                node.lookup_class += _at(MATCH_CLASSES, length)
        if not node.predictions:
            self.use_runner_ups(node, branch)
            return node
        # the lookup takes its share; the memories divide the rest by base weight x confidence
        total = sum(weights.values())
        shares = {source: (1 - share) * weight / total for source, weight in weights.items()}
        shares["lookup"] = share
        for source, probabilities in node.predictions.items():
            for token, probability in probabilities.items():
                mixed = node.mixed.get(token, 0.0)
                node.mixed[token] = mixed + shares[source] * probability
        return node

    def look_up(self, tail: list[int]) -> tuple[int, int | None]:
        """The longest suffix of `tail` that occurs in the text with a token after it -> length, that token.

        The latest occurrence counts. No match contains a blocked token, and none is proposed.
        """
        for length in range(len(tail), 0, -1):
            suffix = tail[-length:]
            if self.blocked & set(suffix):
                continue
            for end in range(len(self.text) - 1, length - 1, -1):
                if self.text[end - length : end] == suffix:
                    token = self.text[end]
                    return length, None if token in self.blocked else token
        return 0, None

    def use_runner_ups(self, node: Node, branch: Branch) -> None:
        """Where no source knows anything: the tokens that were likely where this one was chosen."""
        if self.config.runner_up_share <= 0:
            return
        node.asked.add("runner-up")
        before = self.nodes[branch[:-1]].mixed if branch else self.root_choice
        chosen = branch[-1] if branch else self.text[-1]
        likely = sorted(before, key=before.get, reverse=True)[: self.config.top_k]
        for token in likely:
            if token != chosen:
                node.mixed[token] = self.config.runner_up_share * before[token]
        if node.mixed:
            node.predictions["runner-up"] = dict(node.mixed)

    # ---- 2. grow the tree

    def propose(self, limit: int) -> dict[Branch, float]:
        """The candidates as branch -> score, the estimated probability that the branch is accepted."""
        config, tree, queue = self.config, {}, []
        max_depth = min(limit, config.max_depth)
        self.nodes = {}

        def expand(branch: Branch, score: float) -> None:
            self.nodes[branch] = self.ask(branch)
            for rank, (token, child_score) in enumerate(self.children(branch, score)):
                # best score first, then the older parent, then the better sibling
                heapq.heappush(queue, (-child_score, len(tree), rank, (*branch, token)))

        if max_depth > 0 and self.text[-1] not in self.blocked:
            expand((), 1.0)
        while queue and len(tree) < config.budget:
            score, _, _, branch = heapq.heappop(queue)
            tree[branch] = -score
            ends = len(branch) == max_depth or branch[-1] in self.terminal
            if len(tree) < config.budget and not ends:
                expand(branch, -score)
        return tree

    def children(self, branch: Branch, score: float) -> list[tuple[int, float]]:
        """(token, score) of the candidates after a branch, best first."""
        node, path = self.nodes[branch], (self.text[-1], *branch)
        edges = set(pairwise(path))
        children, last = [], score
        for token in sorted(node.mixed, key=node.mixed.get, reverse=True):
            if token in self.blocked or (path[-1], token) in edges:
                continue  # no edge repeats on one path
            estimate = self.estimate(node.class_of(token), node.mixed[token])
            last = min(score * estimate, last)  # never above a better sibling
            children.append((token, last))
        return children[: self.config.max_children]

    def estimate(self, class_: int, probability: float) -> float:
        """Correct a mixed probability by how often such candidates were accepted so far."""
        if not self.config.calibrate:
            return probability
        prior = self.config.calibration_prior
        expected, accepted = self.verdicts.get((class_, bin_of(probability)), (0.0, 0.0))
        return min(probability * (accepted + prior) / (expected + prior), 0.98)

    # ---- 4. learn from the verified tree

    def observe(
        self, predictions: dict[Branch, Prediction], accepted: Branch
    ) -> dict[str, list[int]]:
        """Learn from a pass -> lookups, hits and accepted hits by source.

        predictions: the target's, after every branch of the tree in packed order, the root's first.
        accepted: the confirmed branch.
        """
        counts = self.count(accepted)
        confirmed = [accepted[:depth] for depth in range(len(accepted) + 1)]
        self.calibrate(predictions, confirmed)
        # within a pass the first prediction of a key wins, and the confirmed branch comes first
        order = [*confirmed, *(branch for branch in predictions if branch not in confirmed)]
        fresh: dict[tuple[int, ...], Prediction] = {}
        for branch in order:
            tail = (*self.text[-3:], *branch)[-3:]
            for size in (2, 3):
                key = tail[-size:]
                if len(key) == size and not self.blocked & set(key):
                    fresh.setdefault(key, predictions[branch])
        self.memory |= fresh  # across passes the latest wins
        for branch in reversed(order):  # blended, so that the first weighs most
            token = branch[-1] if branch else self.text[-1]
            if token not in self.blocked:
                self.memory[token,] = self.blend(self.memory.get((token,)), predictions[branch])
        self.root_choice = dict(zip(*predictions[accepted], strict=True))
        return counts

    def blend(self, old: Prediction | None, new: Prediction) -> Prediction:
        """The 1-token memory mixes the newest prediction into the stored one."""
        share = self.config.newest_share
        if old is None or share == 1:
            return new
        mixed = {token: (1 - share) * probability for token, probability in zip(*old, strict=True)}
        for token, probability in zip(*new, strict=True):
            mixed[token] = mixed.get(token, 0.0) + share * probability
        best = sorted(mixed, key=mixed.get, reverse=True)[: self.config.top_k]
        return best, [float(np.float32(mixed[token])) for token in best]  # stored as float32

    def calibrate(self, branches: dict[Branch, Prediction], confirmed: list[Branch]) -> None:
        """Every candidate below an accepted node was right or wrong."""
        for branch in branches:
            above = self.nodes.get(branch[:-1])
            if branch and branch[:-1] in confirmed and above is not None:
                probability = above.mixed[branch[-1]]
                key = above.class_of(branch[-1]), bin_of(probability)
                counted = self.verdicts.setdefault(key, [0.0, 0.0])
                counted[0] += probability
                counted[1] += branch in confirmed

    def count(self, accepted: Branch) -> dict[str, list[int]]:
        """How often each source was asked, had a prediction, and named an accepted token."""
        counts = {source: [0, 0, 0] for source in SOURCES}
        for node in self.nodes.values():
            for source in node.asked:
                counts[source][0] += 1
                counts[source][1] += source in node.predictions
        for depth, token in enumerate(accepted):
            for source, tokens in self.nodes[accepted[:depth]].predictions.items():
                counts[source][2] += token in tokens
        return counts


def _at(values: tuple, index: int) -> float:
    """A value by index, the last one repeating."""
    return values[min(index, len(values) - 1)]
