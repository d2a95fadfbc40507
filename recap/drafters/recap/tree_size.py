"""How many candidates a pass should carry on this machine.

A packed pass costs more with every row: little on a GPU, much on a CPU. `PassCost` holds the measured
time by rows and by tokens in the cache. What a row brings is learned from the passes themselves: tokens a
pass grow with a power of the rows, which `TreeSize` follows, to pick the size where tokens a second peak.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

Points = Sequence[tuple[int, float]]
"""(rows, a figure), rows ascending."""


class PassCost:
    """Seconds of one packed pass by rows (the root included), interpolated between measured points.

    points: (rows, seconds) with `context` tokens in the cache, from one row on. growth: (rows, seconds that each
    further token in the cache adds). per_node_s: what drafting and observing one candidate takes on top. steady:
    nothing disturbed the measurement. The curve need not rise everywhere: on some CPUs a pass of three rows takes
    longer than one of four, and trees then pass over that size. Beyond the last point the curve goes on with its last
    slope, as far as `largest` rows; no fitted tree is larger.

    >>> cost = PassCost([(1, 0.010), (3, 0.014)], context=100, growth=[(1, 1e-5)])
    >>> [round(cost.seconds(rows), 3) for rows in (1, 2, 3, 5)]
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
            raise ValueError("A pass cost needs points from one row on.")
        self.points, self.context, self.growth = list(points), context, list(growth)
        self.steady = steady
        self.table = _table(points, largest)
        self.table += per_node_s * np.maximum(np.arange(largest + 1) - 1, 0)
        grows = [(1, 0.0)] if not growth else list(growth)
        self._grows = _table([(1, grows[0][1]), *(p for p in grows if p[0] > 1)], largest)

    def at(self, context: int) -> np.ndarray:
        """Seconds by rows, float64 [largest + 1], with so many tokens in the cache."""
        further = max(context, 0) - self.context
        # below the measured context the time falls, but never to nothing
        return np.maximum(self.table + further * self._grows, 0.5 * self.table)

    def seconds(self, rows: int, context: int | None = None) -> float:
        """Expected time of a pass with that many rows (and tokens in the cache; else as measured)."""
        table = self.table if context is None else self.at(context)
        return table.item(min(rows, len(table) - 1))


def _table(points: Points, largest: int) -> np.ndarray:
    """The figure by rows, float64 [largest + 1], 0 for none; beyond the last point its slope goes on, but never down."""
    points = list(points)
    if len(points) == 1:
        points.append((2, points[0][1]))
    rows, figures = [0], [0.0]
    for (row, figure), (next_row, next_figure) in pairwise(points):
        rows.append(row)
        figures.append(figure)
        slope = (next_figure - figure) / (next_row - row)
    rows += [next_row, max(largest, next_row + 1)]
    figures += [next_figure, next_figure + max(slope, 0.0) * (rows[-1] - next_row)]
    return np.interp(np.arange(largest + 1), rows, figures)


EXPONENT = 0.37
"""Of the growth of tokens a pass with the rows, before any pass was seen: between a small language model on mixed text
(0.34) and the demo model, whose answers are easier to guess (0.41)."""

PRIOR_PASSES = 32.0
"""Passes that weigh as much as `EXPONENT` does."""

BEND = 0.02
"""How much the exponent falls with ln(rows): the twentieth row brings less than a power law would give it. Fitted on fixed
sizes from 4 to 64 rows: 0.018 on SmolLM2-135M, 0.024 on the demo model."""

KEEP = 0.998
"""What a pass leaves of the weight of those before it: about five hundred passes count."""

EACH_TOKENS, EACH_PASSES = 32, 8
"""How often the size is worked out anew, by tokens in the cache and by passes."""


class TreeSize:
    """The number of candidates at which expected tokens a second peak.

    Tokens a pass with R rows are taken as R ** (exponent - BEND * ln R), the root alone giving one token. The
    exponent comes from the passes seen so far, of whatever size. It holds what rows bring in the long run: a
    verified candidate is accepted now, or its row proposes later, and both show in the mean. Sizing each tree by
    its own candidates' chances instead would spend rows where all is known and save them where there is something to learn.

    cost: time of a pass. most: largest number of candidates.
    """

    def __init__(self, cost: PassCost, most: int) -> None:
        self.cost = cost
        self.most = min(most, len(cost.table) - 2)
        self._logs = np.log(np.arange(1, self.most + 2))
        self.clear()

    def clear(self) -> None:
        """Forget what was seen."""
        self._passes = self._rows = self._tokens = 0.0
        self._counted, self._best, self._when = 0, 0, (-1, -1)

    def copy_from(self, other: TreeSize) -> None:
        """Take over what another one has seen."""
        self._passes, self._rows, self._tokens = other._passes, other._rows, other._tokens
        self._counted, self._best, self._when = other._counted, other._best, other._when

    @property
    def exponent(self) -> float:
        """Of one row's growth, the prior and the passes seen."""
        if not self._passes:
            return EXPONENT
        rows, tokens = np.log(self._rows / self._passes), np.log(self._tokens / self._passes)
        seen = float(tokens / rows + BEND * rows)
        return (seen * self._passes + EXPONENT * PRIOR_PASSES) / (self._passes + PRIOR_PASSES)

    def tokens(self) -> np.ndarray:
        """Expected tokens a pass by rows: float64 [most + 1], one row first."""
        return np.exp((self.exponent - BEND * self._logs) * self._logs)

    def best(self, context: int) -> int:
        """How many candidates to propose with so many tokens in the cache; 0 where none pays.

        It moves slowly: worked out anew for every few tokens and passes, not for each.
        """
        when = context // EACH_TOKENS, self._counted // EACH_PASSES
        if when != self._when:
            seconds = self.cost.at(context)[1 : self.most + 2]
            self._when, self._best = when, int(np.argmax(self.tokens() / seconds))
        return self._best

    def count(self, rows: int, tokens: int) -> None:
        """A pass of so many rows confirmed so many tokens, the target's own included.

        Plain steps say nothing about trees, but let what was seen fade.
        """
        self._counted += 1
        self._passes, self._rows, self._tokens = (
            KEEP * self._passes,
            KEEP * self._rows,
            KEEP * self._tokens,
        )
        if rows > 1:
            self._passes += 1.0
            self._rows += rows
            self._tokens += tokens
