"""Recap with one thing changed at a time, and what chance would make of the difference."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ..budget import PassCost
from ..config import RecapConfig
from ..drafters import Drafter, make_drafter

CHANGES: dict[str, dict[str, Any]] = {
    "recap": {},
    "without 3-token level": {"base_weights": (0.0, 0.2, 0.1)},
    "without 2-token level": {"base_weights": (0.7, 0.0, 0.1)},
    "1-token level alone": {"base_weights": (0.0, 0.0, 1.0)},
    "nearly strict back-off": {"base_weights": (1.0, 1e-3, 1e-6)},
    "uniform weights": {"base_weights": (1.0, 1.0, 1.0)},
    "without confidence": {"confidence": False},
    "without lookup": {"lookup": False},
    "without runners-up": {"runner_up_share": 0.0},
    "without calibrated acceptance": {"calibrate": False},
    "without seeding": {"seed_prompt": False},
    "memory kept over turns": {"keep_over_turns": True},
}


def ablated(vocab_size: int, *, budget: int | None, cost: PassCost | None) -> dict[str, Drafter]:
    """One drafter for each change, all with the same budget or the same pass cost."""
    base = RecapConfig() if budget is None else RecapConfig(budget=budget)
    return {
        name: make_drafter(
            "recap", vocab_size=vocab_size, config=replace(base, **change), cost=cost
        )
        for name, change in CHANGES.items()
    }


def bootstrap(
    tokens: Sequence[int], passes: Sequence[int], *, draws: int = 2000, seed: int = 0
) -> tuple[float, float]:
    """95 % interval of tokens a pass, samples (conversations) drawn with replacement.

    >>> low, high = bootstrap([30, 30, 30], [10, 10, 10])
    >>> (round(low, 2), round(high, 2))
    (3.0, 3.0)
    """
    rng = np.random.default_rng(seed)
    t, p = np.asarray(tokens, float), np.asarray(passes, float)
    picks = rng.integers(0, len(t), size=(draws, len(t)))
    ratios = t[picks].sum(axis=1) / np.maximum(p[picks].sum(axis=1), 1.0)
    low, high = np.percentile(ratios, [2.5, 97.5])
    return float(low), float(high)
