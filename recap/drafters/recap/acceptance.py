"""How often candidates are really accepted, learned online from the target's own verdicts.

The mixture's probability is a guess: a stored prediction is older than the place where it is used. Every pass
shows which candidates below the accepted branch were right. `Acceptance` counts accepted and expected
ones per class (longest key with a prediction x length of the lookup's match) and per bin of mixed
probability. The ratio of both corrects the next guess.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from ..jit import kernel

MATCH_CLASSES = (0, 1, 2, 3, 4, 4, 5, 5, 5, 6)
"""Class of a lookup's match by its length, the last one repeats. 0: the lookup does not name the token."""
N_MATCH_CLASSES = max(MATCH_CLASSES) + 1
CLASSES = 4 * N_MATCH_CLASSES
"""Classes of candidates: longest key with a prediction (0 to 3 tokens) x class of the lookup's match."""

BINS = 12
"""Bins of the mixed probability, half an octave each; the last holds everything below 2 ** -5.5."""

_STEPS = 4096  # of the table; the last bin's edge, 2 ** -5.5, is at step 90
_BIN = np.array(
    [BINS - 1, *(min(int(-2.0 * math.log2(i / _STEPS)), BINS - 1) for i in range(1, _STEPS))]
)

EDGES = np.array([*(2.0 ** (-0.5 * bin_) + 1.0 / _STEPS for bin_ in range(1, BINS)), 0.0])
"""Upper edge of the next bin after each one, which bounds every lower probability (0 for the last bin)."""


@kernel
def bin_of(probability):
    """Half-octave bin: 0 for (0.71, 1], 1 for (0.5, 0.71], ...

    >>> [bin_of(p) for p in (1.0, 0.75, 0.7, 0.5, 0.49, 0.001)]
    [0, 0, 1, 2, 2, 11]
    """
    return _BIN[int(probability * _STEPS)] if 0.0 <= probability < 1.0 else 0


class Ratios(NamedTuple):
    """The arrays, as kernels see them: float64 [classes, BINS], and two numbers."""

    expected: np.ndarray
    accepted: np.ndarray
    ratio: np.ndarray
    below: np.ndarray  # highest estimate of the class in any lower bin
    prior: float
    ceiling: float


@kernel
def estimate(ratios, class_, probability):
    """Corrected probability that a candidate is accepted, given that its parent is."""
    return min(probability * ratios.ratio[class_, bin_of(probability)], ratios.ceiling)


@kernel
def bound(ratios, class_, probability):
    """No candidate of this class with at most this probability is estimated higher."""
    where = bin_of(probability)
    highest = max(probability * ratios.ratio[class_, where], ratios.below[class_, where])
    return min(highest, ratios.ceiling)


@kernel
def record(ratios, class_, probability, accepted):
    """Count a candidate below an accepted node: its mixed probability, and the target's verdict."""
    where = bin_of(probability)
    ratios.expected[class_, where] += probability
    ratios.accepted[class_, where] += accepted
    ratios.ratio[class_, where] = (ratios.accepted[class_, where] + ratios.prior) / (
        ratios.expected[class_, where] + ratios.prior
    )
    highest = 0.0
    for bin_ in range(BINS - 1, 0, -1):
        highest = max(highest, ratios.ratio[class_, bin_] * EDGES[bin_ - 1])
        ratios.below[class_, bin_ - 1] = highest


class Acceptance:
    """Ratios of accepted to expected candidates, per class and bin.

    prior: pseudo-count with ratio 1, in expected acceptances, so that a rarely seen class keeps the
    mixture's guess. ceiling: largest estimate of one candidate.
    """

    def __init__(self, *, prior: float = 4.0, ceiling: float = 0.98) -> None:
        tables = [np.zeros((CLASSES, BINS)) for _ in range(4)]
        self.ratios = Ratios(*tables, float(prior), float(ceiling))
        self.clear()

    def clear(self) -> None:
        """Forget what was counted."""
        self.ratios.expected.fill(0.0)
        self.ratios.accepted.fill(0.0)
        self.ratios.ratio.fill(1.0)
        self.ratios.below[:] = EDGES
