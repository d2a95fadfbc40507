"""How often candidates are really accepted, learned online from the target's own verdicts.

The mixture's probability is a guess: a stored prediction is older than the place where it is used. Each
pass says for every candidate under the accepted branch whether it was right. `Acceptance` keeps, per
class of place (the most exact level that answered, and the length of the lookup's match) and per bin of
mixed probability, the accepted count beside the expected one; their ratio corrects the next guess. No torch.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from ..jit import kernel

BINS = 12
"""Bins of the mixed probability, half an octave each; the last holds everything below 2 ** -5.5."""

_FINE = 4096  # steps of the table; the last bin's edge, 2 ** -5.5, is 90 of them
_BIN = np.array(
    [BINS - 1, *(min(int(-2.0 * math.log2(i / _FINE)), BINS - 1) for i in range(1, _FINE))]
)

EDGES = np.array([*(2.0 ** (-0.5 * bin_) + 1.0 / _FINE for bin_ in range(1, BINS)), 0.0])
"""Upper edge of the bin after each one, which bounds every probability behind it (0: no bin follows)."""


@kernel
def bin_of(probability):
    """Half-octave bin: 0 for (0.71, 1], 1 for (0.5, 0.71], ...

    >>> [bin_of(p) for p in (1.0, 0.75, 0.7, 0.5, 0.49, 0.001)]
    [0, 0, 1, 2, 2, 11]
    """
    return _BIN[int(probability * _FINE)] if 0.0 <= probability < 1.0 else 0


class Ratios(NamedTuple):
    """The arrays, as kernels see them: float64 [classes, BINS] but for the last two."""

    expected: np.ndarray
    accepted: np.ndarray
    ratio: np.ndarray
    below: np.ndarray  # highest estimate of each class in any bin after this one
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
    """Count a candidate under an accepted node in: its mixed probability, and the target's verdict."""
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

    classes: number of classes. prior: pseudo-count with ratio 1 (in expected acceptances), so that a
    class that was hardly seen is trusted as it is. ceiling: largest estimate of one candidate.
    """

    def __init__(self, classes: int, *, prior: float = 4.0, ceiling: float = 0.98) -> None:
        tables = [np.zeros((classes, BINS)) for _ in range(4)]
        self.ratios = Ratios(*tables, float(prior), float(ceiling))
        self.clear()

    def clear(self) -> None:
        """Back to trusting the mixture."""
        self.ratios.expected.fill(0.0)
        self.ratios.accepted.fill(0.0)
        self.ratios.ratio.fill(1.0)
        self.ratios.below[:] = EDGES
