"""Grow Recap's tree best-first by estimated acceptance: the kernels that run between two passes.

At each new node, `fetch` looks up what every source predicts there, with the branch as part of the key. That
bounds the node's best child. Only when the bound reaches the head of the queue does `mix` combine the
predictions; most nodes at the tree's edge are never mixed.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ..jit import EMPTY, kernel
from ..suffix_lookup import advance, continuation_of, tail_match
from ..tree import ROOT, usable
from . import mixture
from .acceptance import MATCH_CLASSES, N_MATCH_CLASSES, bound, estimate
from .config import RecapConfig
from .memory import keys_of, slot_of
from .mixture import LOOKUP, N_SOURCES, ONE, RUNNER_UP, THREE, TWO

NO_TOKEN = -1
"""A token that does not exist: no key crosses it. In the queue it stands for the best child of a node whose
sources are not mixed yet."""


class Rules(NamedTuple):
    """The config, as kernels see it."""

    budget: int
    max_depth: int
    max_children: int
    top_k: int
    newest_share: float
    runner_up_share: float
    confidence_floor: float
    confidence: bool
    calibrate: bool
    lookup: bool
    base_weights: np.ndarray  # float64 [3]
    lookup_acceptance: np.ndarray  # float64 [>= 1], by the match's length, the last one repeats


def rules_of(config: RecapConfig) -> Rules:
    """The rules of a config."""
    values = {name: getattr(config, name) for name in Rules._fields}
    for name in ("base_weights", "lookup_acceptance"):
        values[name] = np.array(values[name], np.float64)
    for name in ("newest_share", "runner_up_share", "confidence_floor"):
        values[name] = float(values[name])
    return Rules(**values)


NODE = np.dtype([
    ("token", np.int64),
    ("previous", np.int64),  # the token before it
    ("previous2", np.int64),  # and the one before that: the three are its key
    ("parent", np.int64),
    ("depth", np.int64),
    ("rank", np.int64),  # position among its siblings
    ("score", np.float64),  # estimated probability that the branch is accepted up to here
    ("probability", np.float64),  # mixed probability at the parent
    ("class_", np.int64),  # of the calibration
    ("named", np.int64),  # a bit for each source that named the token
    # what is known about its children
    ("fetched", np.int64),  # 1 if it may have any: the fields below are filled
    ("fanout", np.int64),  # children so far
    ("match_state", np.int64),  # the lookup's match
    ("match_length", np.int64),
    ("continuation", np.int64),  # the lookup's token
    ("lookup_share", np.float64),  # the lookup's share of the mixture
    ("memory_class", np.int64),  # of children that the lookup does not name
    ("lookup_class", np.int64),  # of the one that it names
    ("asked", np.int64),  # a bit for each source that was asked
    ("hits", np.int64),  # sources with a prediction
    ("bound", np.float64),  # no mixed probability is higher
    ("count", np.int64),  # tokens in the mixture, 0 until it is mixed
    ("cursor", np.int64),  # the next one to try
    ("last_score", np.float64),  # score of the last child
])  # fmt: skip
"""A candidate, or the root."""

ENTRY = np.dtype([("score", np.float64), ("parent", np.int64), ("token", np.int64)])
"""A queue entry: a node's next child, NO_TOKEN for its best one while it is not mixed."""


class TreeArrays(NamedTuple):
    """A tree while it grows. Node 0 is the root, and parents come before their children."""

    nodes: np.ndarray  # NODE
    slots: np.ndarray  # int64 [nodes, 3], where the memories' predictions lie, EMPTY: none
    probabilities: np.ndarray  # float64 [nodes, N_SOURCES], what each source gives the node's token
    confidences: np.ndarray  # float64 [nodes, N_SOURCES], of a node's sources, -1: no prediction
    weights: np.ndarray  # float64 [nodes, N_SOURCES], their shares of the mixture
    ranked: np.ndarray  # int64 [nodes, 3 k + 1], the tokens after a node by mixed probability
    mixed: np.ndarray  # float64 [nodes, 3 k + 1], those probabilities
    queue: np.ndarray  # a heap of ENTRY: best score, then older parent, then smaller token
    size: np.ndarray  # int64 [2]: nodes, queue entries


def allocate(budget: int, top_k: int) -> TreeArrays:
    """Arrays for trees of up to `budget` candidates."""
    nodes, tokens = budget + 1, 3 * top_k + 1
    return TreeArrays(
        np.zeros(nodes, NODE),
        np.zeros((nodes, 3), np.int64),
        *(np.zeros((nodes, N_SOURCES)) for _ in range(3)),
        np.zeros((nodes, tokens), np.int64),
        np.zeros((nodes, tokens)),
        # a node enters once, and each child once, when the one before it has left
        np.zeros(2 * nodes + 2, ENTRY),
        np.zeros(2, np.int64),
    )


@kernel
def start_tree(tree, rules, text, previous2, previous, root):
    """A tree of the root alone, its predictions not fetched yet."""
    tree.size[0], tree.size[1] = 1, 0
    node = tree.nodes[ROOT]
    node.token, node.previous, node.previous2 = root, previous, previous2
    node.parent, node.depth, node.rank, node.fetched = EMPTY, 0, 0, False
    node.score = node.probability = 1.0
    node.match_state, node.match_length = tail_match(text) if rules.lookup else (0, 0)


@kernel
def fetch(tree, rules, persistent, request, text, blocked, at):
    """Look up what every source predicts after a node, without mixing it."""
    node, confidences = tree.nodes[at], tree.confidences[at]
    node.fetched, node.fanout, node.count, node.cursor = True, 0, 0, 0
    node.last_score, node.asked, node.hits = node.score, 0, 0
    for source in range(N_SOURCES):
        confidences[source], tree.weights[at, source] = -1.0, 0.0
    longest, best = 0, 0.0
    two, three = keys_of(blocked, node.previous2, node.previous, node.token)
    for source in (ONE, TWO, THREE):
        slot = tree.slots[at, source] = EMPTY
        if rules.base_weights[source] <= 0.0:
            continue
        if source == ONE:
            node.asked |= 1 << ONE
            known = 0 <= node.token < len(persistent.confidence)
            if known and persistent.confidence[node.token] >= 0.0:
                slot = node.token
        elif source == TWO and two >= 0:
            node.asked |= 1 << TWO
            slot = slot_of(request, request.by2, two)
        elif source == THREE and three >= 0:
            node.asked |= 1 << THREE
            slot = slot_of(request, request.by3, three)
        if slot >= 0:
            tree.slots[at, source] = slot
            _, probs, confidence = prediction_at(persistent, request, source, slot)
            confidences[source], best = confidence, max(best, float(probs[0]))
            longest, node.hits = 3 - source, node.hits + 1
    node.continuation, node.lookup_share, match_class = NO_TOKEN, 0.0, 0
    if rules.lookup:
        node.asked |= 1 << LOOKUP
        length = node.match_length
        token = continuation_of(text, node.match_state, length)
        if token >= 0:
            share = rules.lookup_acceptance[min(length, len(rules.lookup_acceptance)) - 1]
            node.continuation, node.lookup_share, confidences[LOOKUP] = token, share, 1.0
            match_class = MATCH_CLASSES[min(length, len(MATCH_CLASSES) - 1)]
            best, node.hits = best * (1.0 - share) + share, node.hits + 1
    node.memory_class = longest * N_MATCH_CLASSES
    node.lookup_class = node.memory_class + match_class
    node.bound = best if node.hits else rules.runner_up_share


@kernel
def prediction_at(persistent, request, source, slot):
    """Ids, probabilities and confidence of a memory's stored prediction."""
    if source == ONE:
        return persistent.ids[slot], persistent.probs[slot], persistent.confidence[slot]
    return request.ids[slot], request.probs[slot], request.confidence[slot]


@kernel
def mix(tree, rules, persistent, request, runner_ups, at):
    """Mix what was fetched at a node, best token first.

    runner_ups: ids and probabilities of the prediction that the root was chosen from.
    """
    node, tokens, mixed, weights = tree.nodes[at], tree.ranked[at], tree.mixed[at], tree.weights[at]
    if node.hits == 0:
        mix_runner_ups(tree, rules, runner_ups, at)
        return
    count, share = 0, node.lookup_share
    mixture.source_weights(
        tree.confidences[at, : ONE + 1],
        rules.base_weights,
        rules.confidence,
        rules.confidence_floor,
        weights[: ONE + 1],
    )
    for source in range(ONE + 1):
        weights[source] *= 1.0 - share
        if weights[source] > 0.0:
            ids, probs, _ = prediction_at(persistent, request, source, tree.slots[at, source])
            for i in range(len(ids)):
                probability = weights[source] * probs[i]
                count = mixture.add_probability(tokens, mixed, count, ids[i], probability)
    weights[LOOKUP] = share
    if node.continuation >= 0:
        count = mixture.add_probability(tokens, mixed, count, node.continuation, share)
    if node.hits > 1:
        mixture.sort_by_probability(tokens, mixed, count)
    node.count = count


@kernel
def mix_runner_ups(tree, rules, runner_ups, at):
    """Where no source has a prediction, take the tokens that were likely where this node's was chosen."""
    if rules.runner_up_share <= 0.0:
        return
    node, tokens, mixed = tree.nodes[at], tree.ranked[at], tree.mixed[at]
    ids, probs = runner_ups
    available = len(ids)
    if at > ROOT:
        ids, probs = tree.ranked[node.parent], tree.mixed[node.parent]
        available = min(tree.nodes[node.parent].count, rules.top_k)
    count = 0
    for i in range(available):
        if ids[i] != node.token:
            tokens[count], mixed[count] = ids[i], rules.runner_up_share * probs[i]
            count += 1
    if count:
        tree.confidences[at, RUNNER_UP], tree.weights[at, RUNNER_UP] = 0.0, 1.0
    node.asked |= 1 << RUNNER_UP
    node.count = count


@kernel
def add_node(tree, persistent, request, above, token, probability, score):
    """Add a candidate below a mixed node -> its index. Its predictions are not fetched yet."""
    at = tree.size[0]
    tree.size[0] = at + 1
    node, parent = tree.nodes[at], tree.nodes[above]
    node.token, node.previous, node.previous2 = token, parent.token, parent.previous
    node.parent, node.depth, node.rank, node.fetched = above, parent.depth + 1, parent.fanout, False
    node.score, node.probability = score, probability
    parent.fanout += 1
    node.class_, node.named = class_of(parent, token), 0
    probabilities = tree.probabilities[at]
    for source in range(N_SOURCES):
        probabilities[source] = 0.0
    for source in range(ONE + 1):
        if tree.slots[above, source] >= 0:
            ids, probs, _ = prediction_at(persistent, request, source, tree.slots[above, source])
            for i in range(len(ids)):
                if ids[i] == token:
                    node.named |= 1 << source
                    probabilities[source] = probs[i]
                    break
    if token == parent.continuation:
        node.named |= 1 << LOOKUP
        probabilities[LOOKUP] = 1.0
    if tree.confidences[above, RUNNER_UP] >= 0.0:
        node.named |= 1 << RUNNER_UP
        probabilities[RUNNER_UP] = probability
    return at


@kernel
def class_of(parent, token):
    """Class of a child with this token in the calibration."""
    return parent.lookup_class if token == parent.continuation else parent.memory_class


@kernel
def advance_match(tree, rules, text, at):
    """Extend the lookup's match of a node's parent by the node's token."""
    node, parent = tree.nodes[at], tree.nodes[tree.nodes[at].parent]
    node.match_state, node.match_length = 0, 0
    if rules.lookup:
        node.match_state, node.match_length = advance(
            text, parent.match_state, parent.match_length, node.token
        )


@kernel
def _before(one, other):
    """Whether one queue entry leaves before another."""
    if one.score != other.score:
        return one.score > other.score
    if one.parent != other.parent:
        return one.parent < other.parent
    return one.token < other.token


@kernel
def _swap(one, other):
    one.score, other.score = other.score, one.score
    one.parent, other.parent = other.parent, one.parent
    one.token, other.token = other.token, one.token


@kernel
def _push(queue, size, score, parent, token):
    at = size[1]
    size[1] = at + 1
    queue[at].score, queue[at].parent, queue[at].token = score, parent, token
    while at > 0 and _before(queue[at], queue[(at - 1) // 2]):
        _swap(queue[at], queue[(at - 1) // 2])
        at = (at - 1) // 2


@kernel
def _pop(queue, size):
    """Remove the best entry -> score, parent, token."""
    best = queue[0].score, queue[0].parent, queue[0].token
    count = size[1] - 1
    size[1] = count
    _swap(queue[0], queue[count])
    at = 0
    while 2 * at + 1 < count:
        child = 2 * at + 1
        if child + 1 < count and _before(queue[child + 1], queue[child]):
            child += 1
        if not _before(queue[child], queue[at]):
            break
        _swap(queue[at], queue[child])
        at = child
    return best


@kernel
def _queue_node(tree, rules, ratios, at):
    """Queue a node by the bound on its best child's score."""
    node = tree.nodes[at]
    best = node.bound
    if rules.calibrate:
        best = bound(ratios, node.memory_class, node.bound)
        if node.continuation >= 0:
            best = max(best, bound(ratios, node.lookup_class, node.bound))
    _push(tree.queue, tree.size, min(node.score * best, node.score), at, NO_TOKEN)


@kernel
def repeats_edge(nodes, at, token):
    """Whether the edge from a node's token to `token` is on the node's branch already."""
    last = nodes[at].token
    while at > ROOT:
        above = nodes[at].parent
        if nodes[above].token == last and nodes[at].token == token:
            return True
        at = above
    return False


@kernel
def _queue_next_child(tree, rules, ratios, blocked, at):
    """Queue a node's next child, if one is left, and move the cursor past it."""
    node = tree.nodes[at]
    while node.cursor < node.count:
        here = node.cursor
        node.cursor = here + 1
        token, probability = tree.ranked[at, here], tree.mixed[at, here]
        if not usable(blocked, token) or repeats_edge(tree.nodes, at, token):
            continue
        if rules.calibrate:
            probability = estimate(ratios, class_of(node, token), probability)
        node.last_score = min(node.score * probability, node.last_score)
        _push(tree.queue, tree.size, node.last_score, at, token)
        return


@kernel
def _mixed_probability(tree, at, token):
    for i in range(tree.nodes[at].count):
        if tree.ranked[at, i] == token:
            return tree.mixed[at, i]
    return 0.0


@kernel
def grow(
    tree, rules, persistent, request, text, ratios, blocked, terminal, runner_ups, most, limit, tail
):
    """Grow a tree of up to `most` candidates and `limit` levels, the likeliest candidate first.

    A queue entry is one candidate. Its next sibling enters when it leaves, so the queue stays short.
    blocked, terminal: bool [V]. tail: the last three confirmed tokens, the root last.
    """
    previous2, previous, root = tail
    start_tree(tree, rules, text, previous2, previous, root)
    max_depth, budget = min(limit, rules.max_depth), min(most, rules.budget)
    if max_depth < 1 or not usable(blocked, root):
        return
    fetch(tree, rules, persistent, request, text, blocked, ROOT)
    _queue_node(tree, rules, ratios, ROOT)
    while tree.size[1] and budget:
        score, above, token = _pop(tree.queue, tree.size)
        if token == NO_TOKEN:
            mix(tree, rules, persistent, request, runner_ups, above)
            _queue_next_child(tree, rules, ratios, blocked, above)
            continue
        if tree.nodes[above].fanout + 1 < rules.max_children:
            _queue_next_child(tree, rules, ratios, blocked, above)
        budget -= 1
        probability = _mixed_probability(tree, above, token)
        at = add_node(tree, persistent, request, above, token, probability, score)
        if budget and tree.nodes[at].depth < max_depth and not terminal[token]:
            advance_match(tree, rules, text, at)
            fetch(tree, rules, persistent, request, text, blocked, at)
            _queue_node(tree, rules, ratios, at)
