"""What Recap takes from a verified tree: a row for every node, verdicts for the calibration, counts.

Kernels on arrays, no torch.
"""

from __future__ import annotations

import numpy as np

from ..jit import EMPTY, kernel, maker
from .acceptance import record
from .grow import N_SOURCES, keys_of, usable
from .memory import confidence_of, keep_row
from .mixture import add, rank


@kernel
def blend(ids, probs, new_ids, new_probs, share, spare):
    """Mix a new prediction into a row, in place: the k most probable of both stay.

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
        count = add(tokens, mixed, count, ids[j], (1.0 - share) * probs[j])
    for j in range(k):
        count = add(tokens, mixed, count, new_ids[j], share * new_probs[j])
    rank(tokens, mixed, count)
    for j in range(k):
        ids[j], probs[j] = tokens[j], mixed[j]


@kernel
def remember(memory, ring, blocked, tails, rows, top_ids, top_probs, share, spare):
    """Store the predictions of these rows under their tails.

    Of several rows with one 2- or 3-token key the first wins. Under its last token each row is mixed into what was
    known, the first one last, so that it weighs most. tails: int64 [N, 3], the last
    three tokens up to each row, oldest first, -1 where there is none. rows: int64. top_ids, top_probs: [N, >= k].
    share, spare: see `blend`.
    """
    k = ring.ids.shape[1]
    start = ring.written[0]
    for i in range(len(rows) - 1, -1, -1):
        row = rows[i]
        token = tails[row, 2]
        if not usable(blocked, token):
            continue
        if share < 1.0 and memory.confidence[token] >= 0.0:
            ids, probs = memory.ids[token], memory.probs[token]
            blend(ids, probs, top_ids[row, :k], top_probs[row, :k], share, spare)
        else:
            for j in range(k):
                memory.ids[token, j], memory.probs[token, j] = top_ids[row, j], top_probs[row, j]
        memory.confidence[token] = confidence_of(memory.probs[token])
    for i in range(len(rows)):
        row = rows[i]
        a, b, c = tails[row, 0], tails[row, 1], tails[row, 2]
        if usable(blocked, c):
            two, three = keys_of(blocked, a, b, c)
            if two >= 0:
                sure = confidence_of(top_probs[row, :k])
                keep_row(ring, start, two, three, top_ids[row, :k], top_probs[row, :k], sure)


@maker
def tails_of(tokens, parents, a, b):
    """The last three tokens up to each packed row -> int64 [N, 3]. a, b: the two before the root."""
    tails = np.empty((len(tokens), 3), np.int64)
    tails[0, 0], tails[0, 1], tails[0, 2] = a, b, tokens[0]
    for row in range(1, len(tokens)):
        above = parents[row]
        tails[row, 0], tails[row, 1] = tails[above, 1], tails[above, 2]
        tails[row, 2] = tokens[row]
    return tails


@maker
def confirmed_first(count, accepted):
    """Packed rows, the root and the accepted ones first: inside a pass the confirmed branch wins."""
    rows, at = np.empty(count, np.int64), 1
    taken = np.zeros(count, np.bool_)
    rows[0], taken[0] = 0, True
    for row in accepted:
        rows[at], taken[row] = row, True
        at += 1
    for row in range(count):
        if not taken[row]:
            rows[at] = row
            at += 1
    return rows


@kernel
def calibrate(tree, ratios, order, parents, accepted):
    """Tell the calibration which candidates under the accepted branch were right."""
    at = 0
    for step in range(len(accepted) + 1):
        if order[at] < 0 or not tree.nodes[order[at]].open:
            return
        right = accepted[step] if step < len(accepted) else EMPTY
        for row in range(at + 1, len(parents)):
            if parents[row] == at:
                node = order[row]
                record(ratios, tree.nodes[node].kind, tree.nodes[node].chance, row == right)
        if right < 0:
            return
        at = right


@maker
def count(tree, order, accepted):
    """Look-ups, hits and accepted hits of this tree by source -> int64 [N_SOURCES, 3]."""
    counts = np.zeros((N_SOURCES, 3), np.int64)
    for row in range(len(order)):
        at = order[row]
        if at >= 0 and tree.nodes[at].open:
            for source in range(N_SOURCES):
                counts[source, 0] += (tree.nodes[at].asked >> source) & 1
                counts[source, 1] += tree.sure[at, source] >= 0.0
    for row in accepted:
        if order[row] >= 0:
            for source in range(N_SOURCES):
                counts[source, 2] += (tree.nodes[order[row]].named >> source) & 1
    return counts


@maker
def learn(
    tree,
    rules,
    memory,
    ring,
    ratios,
    blocked,
    tokens,
    parents,
    order,
    accepted,
    top_ids,
    top_probs,
    a,
    b,
    spare,
):
    """All of it, for one verified tree -> its counts.

    tokens, parents: packed, int64 [N]. order: int64 [N], the handle of each packed row in the grown tree, -1
    where it has none. accepted: packed rows, int64. top_ids, top_probs: [N, >= k], by packed row. spare: see `blend`.
    """  # fmt: skip
    counts = count(tree, order, accepted)
    if rules.calibrate:
        calibrate(tree, ratios, order, parents, accepted)
    rows = confirmed_first(len(tokens), accepted)
    tails = tails_of(tokens, parents, a, b)
    remember(memory, ring, blocked, tails, rows, top_ids, top_probs, rules.newest_share, spare)
    return counts
