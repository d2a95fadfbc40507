"""How often candidates are really accepted, learned online from the target's own verdicts.

The mixture's probability is a guess: a stored prediction is older than the place where it is used. Each
pass says for every candidate under the accepted branch whether it was right. `Acceptance` keeps, per
class of place (the most exact level that answered, and the length of the lookup's match) and per bin of
mixed probability, the accepted count beside the expected one; their ratio corrects the next guess. No torch.
"""

from __future__ import annotations

import math

BINS = 12
"""Bins of the mixed probability, half an octave each; the last holds everything below 2 ** -5.5."""


def bin_of(probability: float) -> int:
    """Half-octave bin: 0 for (0.71, 1], 1 for (0.5, 0.71], ...

    >>> [bin_of(p) for p in (1.0, 0.75, 0.7, 0.5, 0.49, 0.001)]
    [0, 0, 1, 2, 2, 11]
    """
    return _BIN[int(probability * _FINE)] if probability < 1.0 else 0


_FINE = 4096  # steps of the table; the last bin's edge, 2 ** -5.5, is 90 of them
_BIN = [BINS - 1, *(min(int(-2.0 * math.log2(i / _FINE)), BINS - 1) for i in range(1, _FINE))]


EDGES = (*(2.0 ** (-0.5 * bin_) + 1.0 / _FINE for bin_ in range(1, BINS)), 0.0)
"""Upper edge of the bin after each one, which bounds every probability behind it (0: no bin follows)."""


class Acceptance:
    """Ratios of accepted to expected candidates, per class and bin.

    classes: number of classes. prior: pseudo-count with ratio 1 (in expected acceptances), so that a
    class that was hardly seen is trusted as it is. ceiling: largest estimate of one candidate.
    """

    def __init__(self, classes: int, *, prior: float = 4.0, ceiling: float = 0.98) -> None:
        self.prior, self.ceiling = prior, ceiling
        self.expected = [[0.0] * BINS for _ in range(classes)]
        self.accepted = [[0.0] * BINS for _ in range(classes)]
        self.ratio = [[1.0] * BINS for _ in range(classes)]
        self._below = [list(EDGES) for _ in range(classes)]
        """Highest estimate of each class in any bin after this one."""
        self._stale: set[int] = set()  # classes whose `_below` is to be made anew

    def clear(self) -> None:
        """Back to trusting the mixture."""
        for table, value in ((self.expected, 0.0), (self.accepted, 0.0), (self.ratio, 1.0)):
            for row in table:
                row[:] = [value] * BINS
        for row in self._below:
            row[:] = EDGES
        self._stale.clear()

    def estimate(self, class_: int, probability: float) -> float:
        """Corrected probability that this candidate is accepted, given that its parent is."""
        corrected = probability * self.ratio[class_][bin_of(probability)]
        return corrected if corrected < self.ceiling else self.ceiling

    def bound(self, class_: int, probability: float) -> float:
        """No candidate of this class with at most this probability is estimated higher."""
        if class_ in self._stale:
            self._stale.remove(class_)
            highest, below, ratio = 0.0, self._below[class_], self.ratio[class_]
            for bin_ in range(BINS - 1, 0, -1):
                highest = max(highest, ratio[bin_] * EDGES[bin_ - 1])
                below[bin_ - 1] = highest
        where = bin_of(probability)
        return min(
            max(probability * self.ratio[class_][where], self._below[class_][where]), self.ceiling
        )

    def record(self, class_: int, probability: float, accepted: bool) -> None:
        """A candidate under an accepted node, its mixed probability, and the target's verdict."""
        where = bin_of(probability)
        expected, right = self.expected[class_], self.accepted[class_]
        expected[where] += probability
        right[where] += accepted
        self.ratio[class_][where] = (right[where] + self.prior) / (expected[where] + self.prior)
        self._stale.add(class_)
