"""Intervals by bootstrap: samples (whole conversations) drawn with replacement, because turns are not independent."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

DRAWS = 2000
"""Resamples an interval is made of."""


def interval(
    statistic: Callable[..., np.ndarray], *columns: Sequence[float], seed: int = 0
) -> tuple[float, float] | None:
    """95 % interval of a statistic of sums; None for fewer than two samples.

    columns: one number a sample each. statistic: takes the resampled sums of the columns ([DRAWS] each)
    and returns [DRAWS] values; those that are not finite are left out.

    >>> low, high = interval(lambda tokens, passes: tokens / passes, [30, 30, 30], [10, 10, 10])
    >>> (round(low, 2), round(high, 2))
    (3.0, 3.0)
    """
    table = np.asarray(columns, float)
    if table.shape[1] < 2:
        return None
    count = table.shape[1]
    picks = np.random.default_rng(seed).integers(0, count, size=(DRAWS, count))
    with np.errstate(divide="ignore", invalid="ignore"):
        values = statistic(*(column[picks].sum(axis=1) for column in table))
    values = values[np.isfinite(values)]
    if not len(values):
        return None
    low, high = np.percentile(values, [2.5, 97.5])
    return float(low), float(high)


def rounded(span: tuple[float, float] | None, digits: int = 3) -> list[float] | None:
    """The interval as JSON holds it."""
    return None if span is None else [round(span[0], digits), round(span[1], digits)]
