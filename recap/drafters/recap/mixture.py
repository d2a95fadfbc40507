"""Mix the sources' predictions into one distribution over next tokens.

Each memory with a prediction gets its base weight x the confidence of that prediction, renormalised over
the memories with one. None simply wins. The lookup takes its own share, by the length of its match.
"""

from __future__ import annotations

import math

from ..jit import kernel

THREE, TWO, ONE, LOOKUP, RUNNER_UP = range(5)
"""Sources, in the order of `trace.SOURCES`. The first three are the memories."""
N_SOURCES = 5


@kernel
def confidence_of(probs):
    """Confidence of one prediction: 1 - H / ln k, H the entropy of its k entries renormalised. probs: [k].

    >>> import numpy as np
    >>> [round(confidence_of(np.array(probs)), 3) for probs in ([1.0, 0.0], [0.5, 0.25], [0.25, 0.25])]
    [1.0, 0.082, 0.0]
    """
    k = len(probs)
    if k < 2:
        return 1.0
    total = 0.0
    for i in range(k):
        total += probs[i]
    total = max(total, 1e-30)
    entropy = 0.0
    for i in range(k):
        share = probs[i] / total
        entropy -= share * math.log(max(share, 1e-30))
    return min(max(1.0 - entropy / math.log(k), 0.0), 1.0)


@kernel
def source_weights(confidences, base, use_confidence, floor, weights):
    """Weights of the memories, summing to 1 over those with a prediction (0 for the others).

    confidences: [3], -1 without a prediction. base: [3]. weights: [3], written.

    >>> import numpy as np
    >>> weights = np.empty(3)
    >>> source_weights(np.array([1.0, -1.0, 0.0]), np.array([0.7, 0.2, 0.1]), True, 0.1, weights)
    >>> weights.round(3).tolist()
    [0.986, 0.0, 0.014]
    """
    total = 0.0
    for source in range(len(base)):
        weights[source] = 0.0
        if confidences[source] >= 0.0:
            factor = max(confidences[source], floor) if use_confidence else 1.0
            weights[source] = base[source] * factor
            total += weights[source]
    if total > 0.0:
        for source in range(len(base)):
            weights[source] /= total


@kernel
def add_probability(tokens, mixed, count, token, probability):
    """Add to a token's probability -> how many tokens there are.

    tokens, mixed: the distribution so far in their first `count` entries, each token once.

    >>> import numpy as np
    >>> tokens, mixed, count = np.zeros(3, np.int64), np.zeros(3), 0
    >>> for token, probability in ((5, 0.25), (6, 0.125), (6, 0.25)):
    ...     count = add_probability(tokens, mixed, count, token, probability)
    >>> tokens[:count].tolist(), mixed[:count].tolist()
    ([5, 6], [0.25, 0.375])
    """
    for i in range(count):
        if tokens[i] == token:
            mixed[i] += probability
            return count
    tokens[count], mixed[count] = token, probability
    return count + 1


@kernel
def sort_by_probability(tokens, mixed, count):
    """Sort, best first; equal ones keep their order. Few and nearly sorted, hence an insertion sort."""
    for i in range(1, count):
        token, probability, at = tokens[i], mixed[i], i
        while at > 0 and mixed[at - 1] < probability:
            tokens[at], mixed[at] = tokens[at - 1], mixed[at - 1]
            at -= 1
        tokens[at], mixed[at] = token, probability
