"""How many candidates a pass should carry on this machine.

A packed pass costs more with every row: little on a GPU, much on a CPU. `PassCost` holds the measured
time by rows; `watch` follows a growing tree and says where the expected tokens per second are highest.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from .compiled import kernel


class PassCost:
    """Seconds of one packed pass by rows (the root included), interpolated between measured points.

    points: (rows, seconds), rows ascending from 1. per_node_s: what drafting and observing one
    candidate takes on top. steady: nothing disturbed the measurement. The curve need not rise everywhere: on some CPUs a pass of three rows takes
    longer than one of four, and trees then pass over that size.

    >>> cost = PassCost([(1, 0.010), (3, 0.014)])
    >>> [round(cost.seconds(rows), 3) for rows in (1, 2, 3, 5)]
    [0.01, 0.012, 0.014, 0.018]
    """

    def __init__(
        self,
        points: Sequence[tuple[int, float]],
        *,
        per_node_s: float = 0.0,
        largest: int = 256,
        steady: bool = True,
    ) -> None:
        if not points or points[0][0] != 1:
            raise ValueError("A pass cost needs points from one row on.")
        points = list(points)
        if len(points) == 1:
            points.append((2, points[0][1]))
        table = [0.0, points[0][1]]
        slope = 0.0
        for (rows, seconds), (next_rows, next_seconds) in pairwise(points):
            slope = (next_seconds - seconds) / (next_rows - rows)
            table += [seconds + slope * more for more in range(1, next_rows - rows + 1)]
        slope = max(slope, 0.0)
        while len(table) <= largest:  # beyond the last point: its slope goes on
            table.append(table[-1] + slope)
        rows = np.arange(len(table))
        self.table = np.array(table) + per_node_s * np.maximum(rows - 1, 0)
        self.points, self.steady = points, steady

    def seconds(self, rows: int) -> float:
        """Expected time of a pass with that many rows."""
        return self.table.item(min(rows, len(self.table) - 1))

    def watch(self) -> Watch:
        """Follow one tree while it grows."""
        return Watch(self.table)


GAIN, NODES, RATE, BEST = range(4)
"""Places in the state of a watch: expected tokens and candidates so far, the best rate, its candidates."""


@kernel
def start_watch(table, state):
    """Nothing but the root: the target's own token is certain."""
    state[:] = (1.0, 0.0, 1.0 / table[1], 0.0)


@kernel
def more(table, state, score):
    """Count the next best candidate in -> whether growing on can still pay."""
    nodes, gain = int(state[NODES]) + 1, state[GAIN] + score
    state[NODES], state[GAIN] = nodes, gain
    if nodes + 1 >= len(table):
        return False
    rate = gain / table[nodes + 1]
    if rate > state[RATE]:
        state[RATE], state[BEST] = rate, nodes
        return True
    # could as many more of the same quality as fit ever beat the best rate?
    ahead = 1
    while nodes + 1 + ahead < len(table):
        if gain + ahead * score > state[RATE] * table[nodes + 1 + ahead]:
            return True
        ahead *= 2
    return False


class Watch:
    """Finds the size of one growing tree at which expected tokens per second peak.

    Candidates must come best first. `best` is the number of candidates to keep.
    """

    def __init__(self, table: np.ndarray) -> None:
        self._table, self._state = table, np.zeros(4)
        start_watch(table, self._state)

    @property
    def best(self) -> int:
        """The number of candidates to keep."""
        return int(self._state[BEST])

    def more(self, score: float) -> bool:
        """Count the next best candidate in -> whether growing on can still pay.

        score: what the candidate is expected to gain, in tokens (its chance of acceptance, and what its
        row is worth later); later ones gain no more.
        """
        return more(self._table, self._state, score)
