"""Every constant of the Recap drafter, each with its reason. Frozen: a run's settings do not drift."""

from __future__ import annotations

import math
from dataclasses import dataclass

LARGEST = {
    "top_k": 64,
    "max_depth": 64,
    "max_children": 64,
    "budget": 1024,
    "request_rows": 1 << 24,
}
"""Most that a setting may be: beyond it a pass takes longer, or a memory more room, than they can save anywhere."""


@dataclass(frozen=True, slots=True)
class RecapConfig:
    """Settings of the `recap` drafter.

    The rules of the method (three keys, mixture, best-first growth, lookup, update from all verified
    rows) are fixed in code; what the source leaves open is a field here.
    """

    top_k: int = 8
    """Entries a memory row keeps. Token Recycling keeps 8 too, so the comparison is about structure."""

    newest_share: float = 0.7
    """Weight of the newest prediction in a 1-token row, the rest is the row's as it was: one token says little, and what
    often followed it is worth keeping (some 2 % more tokens a pass, see the ablation "newest prediction alone"). The 2- and 3-token
    rows hold the newest alone: mixing gave nothing there."""

    base_weights: tuple[float, float, float] = (0.70, 0.20, 0.10)
    """Mixture weights of the 3-, 2- and 1-token level: the longer the key, the more exact. Renormalised
    over the levels that answer. 0 switches a level off."""

    confidence: bool = True
    """Scale a level's weight by 1 - H / ln k of its row, so that a flat row counts less."""

    confidence_floor: float = 0.05
    """Least confidence factor: even a flat row stays audible, so coverage is never lost."""

    depth_factors: tuple[float, ...] = (1.0,)
    """Factor on a node's score by depth, the last one repeating. 1.0 trusts the product of the mixed
    probabilities; on measured text smaller factors changed nothing beyond noise."""

    budget: int = 63
    """Most candidates in one pass (the root comes on top). On a GPU 64 rows are nearly free; on a CPU the
    best budget is far smaller: with a pass cost it is found by `recap.drafters.recap.tree_size`. It is filled as far as the sources name tokens, however
    unlikely: a verified row teaches (leaving out what is below 1e-4 costs 15 % of the tokens a pass where text is
    easy to guess)."""

    max_depth: int = 10
    """Longest branch. Beyond it the chance of acceptance is too small for the rows it takes."""

    max_children: int = 8
    """Most children of one node; equals top_k by default, so the mixture's tail is cut, not its head."""

    calibrate: bool = True
    """Correct a candidate's estimated acceptance by how often candidates of its class (most exact level
    that answered, length of the lookup's match, bin of probability) were accepted so far."""

    calibration_prior: float = 4.0
    """Pseudo-count of the calibration in expected acceptances: below it a class is trusted as it is."""

    lookup: bool = True
    """Propose what followed the longest earlier match of the current tail (prompt + answer)."""

    lookup_acceptance: tuple[float, ...] = (0.10, 0.25, 0.40, 0.55, 0.65, 0.75, 0.80, 0.85)
    """Share of the mixture given to the lookup's token by match length 1, 2, 3, ... (the last repeats):
    roughly how often such a continuation is right. A longer match earns more weight."""

    runner_up_share: float = 0.3
    """Where neither a level nor the lookup answers: chance given to the tokens that were likely one place
    earlier and did not come there (they often come next; idea of LogitSpec, 2025). 0 switches it off."""

    seed_prompt: bool = True
    """Fill the memories from the prefill's own predictions inside the prompt."""

    keep_over_turns: bool = False
    """Keep the 2- and 3-token memories over the turns of one conversation (its new prompt begins with
    all that came before). Off, as in the source: they live inside one request."""

    request_rows: int = 65_536
    """Rows kept for the 2- and 3-token levels in one request; the oldest go first. Bounds memory to
    about 22 MB: 84 bytes a row with top_k 8, and two tables of keys."""

    def __post_init__(self) -> None:
        for name, most in LARGEST.items():
            value, least = getattr(self, name), 0 if name == "budget" else 1
            if type(value) is not int or not least <= value <= most:
                raise ValueError(
                    f"{name} must be a whole number from {least} to {most:,}, not {value!r}."
                )
        for name in ("newest_share", "confidence_floor", "calibration_prior", "runner_up_share"):
            value = getattr(self, name)
            if type(value) not in (int, float) or not math.isfinite(value):
                raise ValueError(f"{name} must be a number, not {value!r}.")
        for name in ("confidence", "calibrate", "lookup", "seed_prompt", "keep_over_turns"):
            if type(getattr(self, name)) is not bool:
                raise ValueError(f"{name} must be True or False, not {getattr(self, name)!r}.")
        for name in ("base_weights", "depth_factors", "lookup_acceptance"):
            value = getattr(self, name)
            if not isinstance(value, (tuple, list)) or not all(
                type(number) in (int, float) and math.isfinite(number) for number in value
            ):
                raise ValueError(f"{name} must be a tuple of numbers, not {value!r}.")
        if len(self.base_weights) != 3 or min(self.base_weights) < 0:
            raise ValueError("base_weights must be three numbers of at least 0 (3-, 2-, 1-token).")
        if not self.depth_factors or min(self.depth_factors) < 0:
            raise ValueError("depth_factors must be one or more numbers of at least 0.")
        if not all(
            0.0 <= share <= 1.0 for share in (*self.lookup_acceptance, self.runner_up_share)
        ):
            raise ValueError("lookup_acceptance and runner_up_share must lie between 0 and 1.")
        if self.lookup and not self.lookup_acceptance:
            raise ValueError("lookup needs at least one share in lookup_acceptance.")
        if not 0.0 <= self.confidence_floor <= 1.0:
            raise ValueError("confidence_floor must lie between 0 and 1.")
        if not 0.0 < self.newest_share <= 1.0:
            raise ValueError("newest_share must be above 0 and at most 1.")
        if not 0.0 < self.calibration_prior < math.inf:
            raise ValueError("calibration_prior must be above 0.")
