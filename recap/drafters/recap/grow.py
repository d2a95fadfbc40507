"""Recap's tree, grown best-first by estimated acceptance: the rules that `recap` runs between two passes.

A node is a candidate; a place is a node behind which a token may follow, the root too. Opening a place
fetches what the sources know there; most places at a tree's edge are never weighed, because the bound on
their best child says that none of them could enter. Kernels on arrays (`Grown`), no torch.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ..jit import EMPTY, kernel
from ..suffix_lookup import continuation_of, step_on, tail_of
from .acceptance import bound, estimate
from .config import RecapConfig
from .memory import key2, key3, slot2, slot3
from .mixture import add, level_weights, rank

NONE = -1
"""A token that does not exist: no key reaches across it. In the queue it stands for the best child of a
place whose sources are not mixed yet."""

THREE, TWO, ONE, LOOKUP, RUNNER_UP = range(5)
"""Sources, in the order of `trace.SOURCES`."""
N_SOURCES = 5

_MATCHES = (0, 1, 2, 3, 4, 4, 5, 5, 5, 6)
"""Class of a lookup's match by its length, the last repeats."""
_KINDS = max(_MATCHES) + 1
CLASSES = 4 * _KINDS
"""Classes of the calibration: most exact level that answered (0 to 3) x class of the lookup's match."""


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
    base: np.ndarray  # float64 [3]
    depth_factors: np.ndarray  # float64 [>= 1], the last repeats
    shares: np.ndarray  # float64 [>= 1], of the lookup by its match's length, the last repeats


def rules_of(config: RecapConfig) -> Rules:
    """A config's rules."""
    return Rules(
        config.budget,
        config.max_depth,
        config.max_children,
        config.top_k,
        config.newest_share,
        config.runner_up_share,
        config.confidence_floor,
        config.confidence,
        config.calibrate,
        config.lookup,
        np.array(config.base_weights, np.float64),
        np.array(config.depth_factors, np.float64),
        np.array(config.lookup_acceptance or (0.0,), np.float64),
    )


NODE = np.dtype([
    ("token", np.int64),
    ("parent", np.int64),
    ("depth", np.int64),
    ("rank", np.int64),  # place among the siblings
    ("score", np.float64),  # estimated chance that the branch up to here is accepted
    ("chance", np.float64),  # mixed probability behind the parent
    ("kind", np.int64),  # class of the calibration
    ("named", np.int64),  # bit for each source that named the token
    ("first", np.int64),  # the two tokens before it: with its own they are its key
    ("second", np.int64),
    # of a place
    ("open", np.int64),  # 1 if the node is one
    ("fanout", np.int64),  # children so far
    ("state", np.int64),  # the lookup's match
    ("length", np.int64),
    ("continuation", np.int64),  # the lookup's token
    ("share", np.float64),  # the lookup's share of the mixture
    ("class_", np.int64),  # of the calibration, for candidates that the lookup does not name
    ("lookup_class", np.int64),  # and for the one that it names
    ("asked", np.int64),  # bit for each source that was asked
    ("answers", np.int64),  # sources that answered
    ("bound", np.float64),  # no mixed probability is above it
    ("count", np.int64),  # tokens that it ranks, 0 until it is weighed
    ("cursor", np.int64),  # the next one to try
    ("last", np.float64),  # the score of the child before
])  # fmt: skip
"""A candidate, and the place behind it."""

ENTRY = np.dtype([("score", np.float64), ("parent", np.int64), ("token", np.int64)])
"""An entry of the queue: a place's next candidate, NONE for its best one while it is not weighed."""


class Grown(NamedTuple):
    """A tree while it grows, by handle: 0 is the root, parents come before their children."""

    nodes: np.ndarray  # NODE
    slots: np.ndarray  # int64 [nodes, 3], where a place's rows lie, -1: no row
    contributions: np.ndarray  # float64 [nodes, N_SOURCES], what each source gave the token
    sure: np.ndarray  # float64 [nodes, N_SOURCES], confidence of a place's sources, -1: no answer
    weights: np.ndarray  # float64 [nodes, N_SOURCES], their shares in the mixture
    ranked: np.ndarray  # int64 [nodes, 3 k + 1], a place's tokens by mixed probability
    mixed: np.ndarray  # float64 [nodes, 3 k + 1], these
    # a heap of ENTRY: best score first, then the older parent, then the smaller token
    queue: np.ndarray
    size: np.ndarray  # int64 [2]: nodes, entries in the queue


def room_for(budget: int, top_k: int) -> Grown:
    """Arrays for trees of up to that many candidates."""
    nodes, tokens = budget + 1, 3 * top_k + 1
    return Grown(
        np.zeros(nodes, NODE),
        np.zeros((nodes, 3), np.int64),
        *(np.zeros((nodes, N_SOURCES)) for _ in range(3)),
        np.zeros((nodes, tokens), np.int64),
        np.zeros((nodes, tokens)),
        # a place enters once, and each of its children once, when the one before has left
        np.zeros(2 * nodes + 2, ENTRY),
        np.zeros(2, np.int64),
    )


@kernel
def usable(blocked, token):
    """Whether the token may be a key or a candidate. blocked: bool [V]."""
    return 0 <= token < len(blocked) and not blocked[token]


@kernel
def keys_of(blocked, a, b, c):
    """2- and 3-token key of a tail, -1 where there is none: no key crosses a blocked token."""
    if not (usable(blocked, b) and c >= 0):
        return EMPTY, EMPTY
    return key2(b, c), (key3(a, b, c) if usable(blocked, a) else EMPTY)


@kernel
def open_place(tree, rules, memory, ring, text, blocked, at):
    """Find what every source whose key exists at a node knows, without mixing it.

    The node's token, the two before it and its match are there already.
    """
    tree.nodes[at].open, tree.nodes[at].count, tree.nodes[at].cursor = True, 0, 0
    tree.nodes[at].last = tree.nodes[at].score
    tree.nodes[at].fanout = 0
    for source in range(N_SOURCES):
        tree.sure[at, source], tree.weights[at, source] = -1.0, 0.0
        if source <= ONE:
            tree.slots[at, source] = EMPTY
    token = tree.nodes[at].token
    level, asked, best, answers = 0, 0, 0.0, 0
    if rules.base[ONE] > 0.0:
        asked |= 1 << ONE
        if 0 <= token < len(memory.confidence) and memory.confidence[token] >= 0.0:
            tree.slots[at, ONE], tree.sure[at, ONE] = token, memory.confidence[token]
            level, answers, best = 1, 1, float(memory.probs[token, 0])
    two, three = keys_of(blocked, tree.nodes[at].first, tree.nodes[at].second, token)
    if two >= 0 and rules.base[TWO] > 0.0:
        asked |= 1 << TWO
        slot = slot2(ring, two)
        if slot >= 0:
            tree.slots[at, TWO], tree.sure[at, TWO] = slot, ring.confidence[slot]
            level, answers, best = 2, answers + 1, max(best, ring.probs[slot, 0])
    if three >= 0 and rules.base[THREE] > 0.0:
        asked |= 1 << THREE
        slot = slot3(ring, three)
        if slot >= 0:
            tree.slots[at, THREE], tree.sure[at, THREE] = slot, ring.confidence[slot]
            level, answers, best = 3, answers + 1, max(best, ring.probs[slot, 0])
    tree.nodes[at].continuation, tree.nodes[at].share, matched = NONE, 0.0, 0
    if rules.lookup:
        asked |= 1 << LOOKUP
        length = tree.nodes[at].length
        followed = continuation_of(text, tree.nodes[at].state, length)
        if followed >= 0:
            tree.nodes[at].continuation, tree.sure[at, LOOKUP] = followed, 1.0
            share = rules.shares[min(length, len(rules.shares)) - 1]
            tree.nodes[at].share = share
            matched = _MATCHES[min(length, len(_MATCHES) - 1)]
            answers, best = answers + 1, best * (1.0 - share) + share
    tree.nodes[at].class_ = level * _KINDS
    tree.nodes[at].lookup_class = level * _KINDS + matched
    tree.nodes[at].asked, tree.nodes[at].answers = asked, answers
    tree.nodes[at].bound = best if answers else rules.runner_up_share


@kernel
def row_of(tree, memory, ring, at, level):
    """Ids and probabilities of a level's row at a place. It must have one."""
    slot = tree.slots[at, level]
    if level == ONE:
        return memory.ids[slot], memory.probs[slot]
    return ring.ids[slot], ring.probs[slot]


@kernel
def weigh(tree, rules, memory, ring, likely, at):
    """Mix what was fetched at a place, and rank it.

    likely: (ids, probabilities) of the runners-up where the root stands. Where no source answers, what was
    likely where this token came stands in for it.
    """
    tokens, mixed, weights, count = tree.ranked[at], tree.mixed[at], tree.weights[at], 0
    if tree.nodes[at].answers == 0:
        if rules.runner_up_share > 0.0:
            tree.nodes[at].asked |= 1 << RUNNER_UP
            above = tree.nodes[at].parent
            ids, probs = likely
            known = len(ids)
            if at > 0:
                ids, probs = tree.ranked[above], tree.mixed[above]
                known = min(tree.nodes[above].count, rules.top_k)
            for i in range(known):
                if ids[i] != tree.nodes[at].token:
                    tokens[count], mixed[count] = ids[i], rules.runner_up_share * probs[i]
                    count += 1
            if count:
                tree.sure[at, RUNNER_UP], weights[RUNNER_UP] = 0.0, 1.0
        tree.nodes[at].count = count
        return
    share = tree.nodes[at].share
    level_weights(
        tree.sure[at], rules.base, rules.confidence, rules.confidence_floor, weights[: ONE + 1]
    )
    for level in range(ONE + 1):
        weights[level] *= 1.0 - share
        if weights[level] > 0.0:
            ids, probs = row_of(tree, memory, ring, at, level)
            for i in range(len(ids)):
                count = add(tokens, mixed, count, ids[i], weights[level] * probs[i])
    weights[LOOKUP] = share
    if tree.nodes[at].continuation >= 0:
        count = add(tokens, mixed, count, tree.nodes[at].continuation, share)
    if tree.nodes[at].answers > 1:
        rank(tokens, mixed, count)
    tree.nodes[at].count = count


@kernel
def add_node(tree, memory, ring, above, token, probability, score):
    """A candidate behind a weighed place -> its handle. It is no place yet."""
    at = tree.size[0]
    tree.size[0] = at + 1
    tree.nodes[at].token, tree.nodes[at].parent, tree.nodes[at].depth = (
        token,
        above,
        tree.nodes[above].depth + 1,
    )
    tree.nodes[at].score, tree.nodes[at].chance, tree.nodes[at].open = score, probability, False
    tree.nodes[at].rank = tree.nodes[above].fanout
    tree.nodes[above].fanout += 1
    looked_up = token == tree.nodes[above].continuation
    tree.nodes[at].kind = tree.nodes[above].lookup_class if looked_up else tree.nodes[above].class_
    named = 0
    for source in range(N_SOURCES):
        tree.contributions[at, source] = 0.0
    for level in range(ONE + 1):
        if tree.slots[above, level] >= 0:
            ids, probs = row_of(tree, memory, ring, above, level)
            for i in range(len(ids)):
                if ids[i] == token:
                    named |= 1 << level
                    tree.contributions[at, level] = probs[i]
                    break
    if looked_up:
        named |= 1 << LOOKUP
        tree.contributions[at, LOOKUP] = 1.0
    if tree.sure[above, RUNNER_UP] >= 0.0:
        named |= 1 << RUNNER_UP
        tree.contributions[at, RUNNER_UP] = probability
    tree.nodes[at].named = named
    tree.nodes[at].first, tree.nodes[at].second = tree.nodes[above].second, tree.nodes[above].token
    return at


@kernel
def begin_tree(tree, rules, text, a, b, root):
    """A tree of nothing but the root, whose place is not open yet. a, b: the tokens before it."""
    tree.size[0], tree.size[1] = 1, 0
    tree.nodes[0].token, tree.nodes[0].parent, tree.nodes[0].depth, tree.nodes[0].rank = (
        root,
        NONE,
        0,
        0,
    )
    tree.nodes[0].score, tree.nodes[0].chance, tree.nodes[0].open = 1.0, 1.0, False
    tree.nodes[0].first, tree.nodes[0].second = a, b
    tree.nodes[0].state, tree.nodes[0].length = 0, 0
    if rules.lookup:
        tree.nodes[0].state, tree.nodes[0].length = tail_of(text)


@kernel
def follow(tree, rules, text, at):
    """Carry the lookup's match on from a node's parent."""
    above = tree.nodes[at].parent
    tree.nodes[at].state, tree.nodes[at].length = 0, 0
    if rules.lookup:
        tree.nodes[at].state, tree.nodes[at].length = step_on(
            text, tree.nodes[above].state, tree.nodes[above].length, tree.nodes[at].token
        )


@kernel
def _sooner(one, other):
    """Whether one entry of the queue leaves before another."""
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
    while at > 0 and _sooner(queue[at], queue[(at - 1) // 2]):
        _swap(queue[at], queue[(at - 1) // 2])
        at = (at - 1) // 2


@kernel
def _pop(queue, size):
    """The best entry -> score, parent, token."""
    best = queue[0].score, queue[0].parent, queue[0].token
    count = size[1] - 1
    size[1] = count
    _swap(queue[0], queue[count])
    at = 0
    while 2 * at + 1 < count:
        child = 2 * at + 1
        if child + 1 < count and _sooner(queue[child + 1], queue[child]):
            child += 1
        if not _sooner(queue[child], queue[at]):
            break
        _swap(queue[at], queue[child])
        at = child
    return best


@kernel
def _factor(nodes, rules, at):
    """What a place's own score leaves to its children."""
    return nodes[at].score * rules.depth_factors[min(nodes[at].depth, len(rules.depth_factors) - 1)]


@kernel
def _queue_place(tree, rules, ratios, at):
    """Queue a place by what its best child can score at most."""
    chance = tree.nodes[at].bound
    if rules.calibrate:
        chance = bound(ratios, tree.nodes[at].class_, tree.nodes[at].bound)
        if tree.nodes[at].continuation >= 0:
            chance = max(chance, bound(ratios, tree.nodes[at].lookup_class, tree.nodes[at].bound))
    score = min(_factor(tree.nodes, rules, at) * chance, tree.nodes[at].score)
    _push(tree.queue, tree.size, score, at, NONE)


@kernel
def repeats(nodes, at, token):
    """Whether the edge from a node's token to `token` stands on the node's branch already."""
    last = nodes[at].token
    while at > 0:
        above = nodes[at].parent
        if nodes[above].token == last and nodes[at].token == token:
            return True
        at = above
    return False


@kernel
def _queue_next(tree, rules, ratios, blocked, at):
    """Queue a place's next child, if one is left; `cursor` stays behind it."""
    while tree.nodes[at].cursor < tree.nodes[at].count:
        here = tree.nodes[at].cursor
        tree.nodes[at].cursor = here + 1
        token, chance = tree.ranked[at, here], tree.mixed[at, here]
        if not usable(blocked, token) or repeats(tree.nodes, at, token):
            continue
        if rules.calibrate:
            looked_up = token == tree.nodes[at].continuation
            class_ = tree.nodes[at].lookup_class if looked_up else tree.nodes[at].class_
            chance = estimate(ratios, class_, chance)
        score = min(_factor(tree.nodes, rules, at) * chance, tree.nodes[at].last)
        tree.nodes[at].last = score
        _push(tree.queue, tree.size, score, at, token)
        return


@kernel
def _mixed_of(tree, at, token):
    """The mixed probability of a token that a place ranks."""
    for i in range(tree.nodes[at].count):
        if tree.ranked[at, i] == token:
            return tree.mixed[at, i]
    return 0.0


@kernel
def grow(
    tree, rules, memory, ring, text, ratios, blocked, terminal, likely, most, limit, a, b, root
):
    """Grow a tree behind the root, of up to `most` candidates and `limit` levels, the most probable first.

    A queue entry is one candidate; its next sibling enters when it leaves, so the queue is short. blocked,
    terminal: bool [V].
    """
    begin_tree(tree, rules, text, a, b, root)
    depth_limit, budget = min(limit, rules.max_depth), min(most, rules.budget)
    if depth_limit < 1 or not usable(blocked, root):
        return
    open_place(tree, rules, memory, ring, text, blocked, 0)
    _queue_place(tree, rules, ratios, 0)
    while tree.size[1] and budget:
        score, above, token = _pop(tree.queue, tree.size)
        if token == NONE:
            weigh(tree, rules, memory, ring, likely, above)
            _queue_next(tree, rules, ratios, blocked, above)
            continue
        if tree.nodes[above].fanout + 1 < rules.max_children:
            _queue_next(tree, rules, ratios, blocked, above)
        budget -= 1
        probability = _mixed_of(tree, above, token)
        at = add_node(tree, memory, ring, above, token, probability, score)
        if budget and tree.nodes[at].depth < depth_limit and not terminal[token]:
            follow(tree, rules, text, at)
            open_place(tree, rules, memory, ring, text, blocked, at)
            _queue_place(tree, rules, ratios, at)
