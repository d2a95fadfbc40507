"""How many candidates a pass should carry on this machine.

A packed pass takes longer with every token: a little on a GPU, a lot on a CPU. `PassCost` holds the measured time
by packed tokens and by tokens in the cache. What packed tokens bring is learned from the passes themselves:
tokens per pass grow with a power of the packed tokens. `TreeSize` follows that power, and picks the size at
which tokens per second peak.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

Points = Sequence[tuple[int, float]]
"""(packed tokens, a measured value), ascending."""


class PassCost:
    """Seconds of one packed pass by packed tokens (the root included), interpolated between measured points.

    points: (packed tokens, seconds) with `context` tokens in the cache, from one token on. growth: (packed tokens,
    seconds that each further token in the cache adds). per_node_s: time of drafting and observing one candidate.
    largest: no tree is larger; up to there the curve goes on with its last slope. steady: nothing
    disturbed the measurement. Raises ValueError if the points do not start at one token.

    The curve need not rise everywhere: on some CPUs a pass of three tokens takes longer than one of four, and
    trees then skip that size.

    >>> cost = PassCost([(1, 0.010), (3, 0.014)], context=100, growth=[(1, 1e-5)])
    >>> [round(cost.seconds(count), 3) for count in (1, 2, 3, 5)]
    [0.01, 0.012, 0.014, 0.018]
    >>> round(cost.seconds(1, context=300), 3)
    0.012
    """

    def __init__(
        self,
        points: Points,
        *,
        context: int = 0,
        growth: Points = (),
        per_node_s: float = 0.0,
        largest: int = 256,
        steady: bool = True,
    ) -> None:
        if not points or points[0][0] != 1:
            raise ValueError("A pass cost needs points from one packed token on.")
        self.points, self.context, self.growth = list(points), context, list(growth)
        self.steady, self.largest = steady, largest
        candidates = np.maximum(np.arange(largest + 1) - 1, 0)
        self._seconds = _interpolated(points, largest) + per_node_s * candidates
        slopes = list(growth) or [(1, 0.0)]
        slopes = [(1, slopes[0][1]), *(point for point in slopes if point[0] > 1)]
        self._growth = _interpolated(slopes, largest)

    def at(self, context: int) -> np.ndarray:
        """Seconds by packed tokens with so many tokens in the cache: float64 [largest + 1]."""
        further = max(context, 0) - self.context
        # below the measured context the time falls, but never to nothing
        return np.maximum(self._seconds + further * self._growth, 0.5 * self._seconds)

    def seconds(self, packed_tokens: int, context: int | None = None) -> float:
        """Expected time of a pass (default context: as measured)."""
        seconds = self.at(self.context if context is None else context)
        return seconds.item(min(packed_tokens, self.largest))


def _interpolated(points: Points, largest: int) -> np.ndarray:
    """The value by packed tokens, float64 [largest + 1]. The last slope goes on, but never down."""
    points = [*points, (points[0][0] + 1, points[0][1])] if len(points) == 1 else list(points)
    (before, low), (last, high) = list(pairwise(points))[-1]
    slope = max((high - low) / (last - before), 0.0)
    end = max(largest, last + 1)
    counts, values = zip((0, 0.0), *points, (end, high + slope * (end - last)), strict=True)
    return np.interp(np.arange(largest + 1), counts, values)


EXPONENT = 0.37
"""Prior of the power: between a small language model on mixed text (0.34) and the demo model, whose answers are easier
to guess (0.41)."""

PRIOR_PASSES = 32.0
"""Weight of the prior, in passes."""

BEND = 0.02
"""How much the power falls with ln(packed tokens): the twentieth brings less than a power law gives it. Fitted on fixed
sizes from 4 to 64: 0.018 on SmolLM2-135M, 0.024 on the demo model."""

DECAY = 0.998
"""What each pass leaves of the weight of earlier ones: about five hundred passes count."""

TOKENS_PER_UPDATE, PASSES_PER_UPDATE = 32, 8
"""The size is computed again after so many tokens in the cache, or so many passes."""


class TreeSize:
    """The number of candidates at which expected tokens per second peak.

    Tokens per pass with n packed tokens are modelled as n ** (exponent - BEND * ln n), so that the root alone gives one.
    The exponent comes from the passes seen so far, of whatever size. It covers both uses of a verified candidate:
    it is accepted now, or its prediction proposes later. Sizing each tree by the chances of its own
    candidates would leave out the second: it packs most where everything is known already.

    cost: time of a pass. most: largest number of candidates.
    """

    def __init__(self, cost: PassCost, most: int) -> None:
        self.cost = cost
        self.most = min(most, cost.largest - 1)
        self._logs = np.log(np.arange(1, self.most + 2))
        self.clear()

    def clear(self) -> None:
        """Forget what was seen."""
        self._sums = np.zeros(3)  # decayed: passes, packed tokens, tokens confirmed
        self._counted, self._best, self._updated = 0, 0, (-1, -1)

    def copy_from(self, other: TreeSize) -> None:
        """Take over what another one has seen."""
        self._sums = other._sums.copy()
        self._counted, self._best, self._updated = other._counted, other._best, other._updated

    @property
    def exponent(self) -> float:
        """The power of one packed token's growth, from the prior and the passes seen."""
        passes = float(self._sums[0])
        if not passes:
            return EXPONENT
        packed, tokens = np.log(self._sums[1:] / passes)
        seen = float(tokens / packed + BEND * packed)
        return (seen * passes + EXPONENT * PRIOR_PASSES) / (passes + PRIOR_PASSES)

    def tokens(self) -> np.ndarray:
        """Expected tokens per pass by packed tokens, from one on: float64 [most + 1]."""
        return np.exp((self.exponent - BEND * self._logs) * self._logs)

    def best(self, context: int) -> int:
        """How many candidates to propose with so many tokens in the cache; 0 where none pays.

        Computed again every few tokens and passes.
        """
        now = context // TOKENS_PER_UPDATE, self._counted // PASSES_PER_UPDATE
        if now != self._updated:
            seconds = self.cost.at(context)[1 : self.most + 2]
            self._updated, self._best = now, int(np.argmax(self.tokens() / seconds))
        return self._best

    def count(self, packed_tokens: int, tokens: int) -> None:
        """Record that a pass confirmed `tokens`, the bonus token included.

        A plain step says nothing about trees, but lets what was seen fade.
        """
        self._counted += 1
        self._sums *= DECAY
        if packed_tokens > 1:
            self._sums += (1.0, packed_tokens, tokens)
