"""What Recap takes from a verified tree: a prediction per node, verdicts for the calibration, counts."""

from __future__ import annotations

import numpy as np

from ..jit import EMPTY, array_kernel, kernel
from ..tree import ROOT, confirmed_first, usable
from .acceptance import record
from .memory import keys_of, store_prediction
from .mixture import N_SOURCES, add_probability, confidence_of, sort_by_probability


@kernel
def blend(ids, probs, new_ids, new_probs, share, spare):
    """Mix a new prediction into a stored one, in place: the k most probable tokens of both stay.

    ids, probs, new_ids, new_probs: [k]. share: the new one's weight. spare: int64 and float64 [2 k], written.

    >>> ids, probs = np.array([5, 6]), np.array([0.75, 0.25])
    >>> spare = np.zeros(4, np.int64), np.zeros(4)
    >>> blend(ids, probs, np.array([7, 6]), np.array([0.5, 0.5]), 0.5, spare)
    >>> ids.tolist(), probs.tolist()
    ([5, 6], [0.375, 0.375])
    """
    tokens, mixed = spare
    k, count = len(ids), 0
    for j in range(k):
        count = add_probability(tokens, mixed, count, ids[j], (1.0 - share) * probs[j])
    for j in range(k):
        count = add_probability(tokens, mixed, count, new_ids[j], share * new_probs[j])
    sort_by_probability(tokens, mixed, count)
    for j in range(k):
        ids[j], probs[j] = tokens[j], mixed[j]


@kernel
def remember(persistent, request, blocked, tails, order, top_ids, top_probs, share, spare):
    """Store predictions under their tails, in three memories.

    tails: int64 [N, 3], the last three tokens up to each node, oldest first, -1 where there is none.
    order: int64, the nodes to store. Of several with one 2- or 3-token key the first wins. In the 1-token
    memory each is mixed into the stored one, the first one last, so that it weighs most.
    top_ids, top_probs: [N, >= k]. share, spare: see `blend`.
    """
    k = request.ids.shape[1]
    start = request.written[0]
    for i in range(len(order) - 1, -1, -1):
        node = order[i]
        token = tails[node, 2]
        if not usable(blocked, token):
            continue
        ids, probs = persistent.ids[token], persistent.probs[token]
        if share < 1.0 and persistent.confidence[token] >= 0.0:
            blend(ids, probs, top_ids[node, :k], top_probs[node, :k], share, spare)
        else:
            for j in range(k):
                ids[j], probs[j] = top_ids[node, j], top_probs[node, j]
        persistent.confidence[token] = confidence_of(probs)
    for i in range(len(order)):
        node = order[i]
        a, b, c = tails[node, 0], tails[node, 1], tails[node, 2]
        if usable(blocked, c):
            two, three = keys_of(blocked, a, b, c)
            if two >= 0:
                ids, probs = top_ids[node, :k], top_probs[node, :k]
                store_prediction(request, start, two, three, ids, probs, confidence_of(probs))


@array_kernel
def tails_of(tokens, parents, tail):
    """The last three tokens up to each packed one -> int64 [N, 3]. tail: those up to the root."""
    tails = np.empty((len(tokens), 3), np.int64)
    tails[ROOT, 0], tails[ROOT, 1], tails[ROOT, 2] = tail[0], tail[1], tokens[ROOT]
    for node in range(1, len(tokens)):
        above = parents[node]
        tails[node, 0], tails[node, 1] = tails[above, 1], tails[above, 2]
        tails[node, 2] = tokens[node]
    return tails


@kernel
def calibrate(tree, ratios, order, parents, accepted):
    """Record which candidates below the accepted branch were right."""
    at = ROOT
    for step in range(len(accepted) + 1):
        if order[at] < 0 or not tree.nodes[order[at]].fetched:
            return
        right = accepted[step] if step < len(accepted) else EMPTY
        for child in range(at + 1, len(parents)):
            if parents[child] == at:
                node = tree.nodes[order[child]]
                record(ratios, node.class_, node.probability, child == right)
        if right < 0:
            return
        at = right


@array_kernel
def count(tree, order, accepted):
    """Lookups, hits and accepted hits of this tree by source -> int64 [N_SOURCES, 3]."""
    counts = np.zeros((N_SOURCES, 3), np.int64)
    for at in order:
        if at >= 0 and tree.nodes[at].fetched:
            for source in range(N_SOURCES):
                counts[source, 0] += (tree.nodes[at].asked >> source) & 1
                counts[source, 1] += tree.confidences[at, source] >= 0.0
    for packed in accepted:
        if order[packed] >= 0:
            for source in range(N_SOURCES):
                counts[source, 2] += (tree.nodes[order[packed]].named >> source) & 1
    return counts


@array_kernel
def learn(
    tree, rules, persistent, request, ratios, blocked, packed, accepted, predictions, tail, spare
):
    """Learn everything from one verified tree -> its counts.

    packed: tokens, parents, and the grown node of each packed one (-1: not grown here), int64 [N] each.
    accepted: packed indices, int64. predictions: ids and probabilities, [N, >= k]. tail: the last three
    confirmed tokens. spare: see `blend`.
    """
    tokens, parents, order = packed
    top_ids, top_probs = predictions
    counts = count(tree, order, accepted)
    if rules.calibrate:
        calibrate(tree, ratios, order, parents, accepted)
    first = confirmed_first(len(tokens), accepted)
    tails = tails_of(tokens, parents, tail)
    share = rules.newest_share
    remember(persistent, request, blocked, tails, first, top_ids, top_probs, share, spare)
    return counts
