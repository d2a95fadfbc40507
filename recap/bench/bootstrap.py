"""Intervals by bootstrap: samples (whole conversations) are drawn with replacement, because turns depend on each other."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

DRAWS = 2000
"""Resamples per interval."""


def interval(
    statistic: Callable[..., np.ndarray], *columns: Sequence[float], digits: int = 3
) -> list[float] | None:
    """95 % interval of a statistic of sums, rounded; None for fewer than two samples.

    columns: one number per sample each. statistic: maps the resampled sums of the columns ([DRAWS] each)
    to values [DRAWS]; values that are not finite are left out.

    >>> interval(lambda tokens, passes: tokens / passes, [30, 30, 30], [10, 10, 10])
    [3.0, 3.0]
    """
    table = np.asarray(columns, float)
    if table.size == 0 or table.shape[1] < 2:
        return None
    count = table.shape[1]
    picks = np.random.default_rng(0).integers(0, count, size=(DRAWS, count))
    with np.errstate(divide="ignore", invalid="ignore"):
        values = statistic(*(column[picks].sum(axis=1) for column in table))
    values = values[np.isfinite(values)]
    if not len(values):
        return None
    return [round(float(bound), digits) for bound in np.percentile(values, [2.5, 97.5])]
