"""Mix what the levels say into one distribution over next tokens.

Each level that answers gets base weight x confidence, renormalised over the levels that answer; none
simply wins. The lookup takes its own share, by the length of its match. Pure functions, no torch.
"""

from __future__ import annotations

from ..jit import kernel


@kernel
def level_weights(confidences, base, use_confidence, floor, weights):
    """Weights of the levels, summing to 1 over those that answered (0 for the others).

    confidences: [levels], -1 where a level has no row. base: [levels]. weights: [levels], written.

    >>> import numpy as np
    >>> weights = np.empty(3)
    >>> level_weights(np.array([1.0, -1.0, 0.0]), np.array([0.7, 0.2, 0.1]), True, 0.1, weights)
    >>> weights.round(3).tolist()
    [0.986, 0.0, 0.014]
    """
    total = 0.0
    for level in range(len(base)):
        weights[level] = 0.0
        if confidences[level] >= 0.0:
            factor = max(confidences[level], floor) if use_confidence else 1.0
            weights[level] = base[level] * factor
            total += weights[level]
    if total > 0.0:
        for level in range(len(base)):
            weights[level] /= total


@kernel
def add(tokens, mixed, count, token, probability):
    """A source gives a token some probability -> how many tokens are named by then.

    tokens, mixed: what was named before in their first `count` places; each token stands there once.

    >>> import numpy as np
    >>> tokens, mixed = np.zeros(3, np.int64), np.zeros(3)
    >>> count = 0
    >>> for token, probability in ((5, 0.25), (6, 0.125), (6, 0.25)):
    ...     count = add(tokens, mixed, count, token, probability)
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
def rank(tokens, mixed, count):
    """Sort by probability, best first; equals keep their order. Few and nearly sorted: by insertion."""
    for i in range(1, count):
        token, probability, at = tokens[i], mixed[i], i
        while at > 0 and mixed[at - 1] < probability:
            tokens[at], mixed[at] = tokens[at - 1], mixed[at - 1]
            at -= 1
        tokens[at], mixed[at] = token, probability
