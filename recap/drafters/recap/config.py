"""Every constant of the Recap drafter, each with its reason. Frozen: the settings of a run do not change."""

from __future__ import annotations

from dataclasses import dataclass

LIMITS: dict[str, tuple[str, float, float]] = {
    "top_k": ("a whole number", 1, 64),
    "newest_share": ("a number", 1e-6, 1.0),
    "base_weights": ("numbers", 0.0, 1e6),
    "confidence_floor": ("a number", 0.0, 1.0),
    "budget": ("a whole number", 0, 1024),
    "max_depth": ("a whole number", 1, 64),
    "max_children": ("a whole number", 1, 64),
    "calibration_prior": ("a number", 1e-6, 1e6),
    "lookup_acceptance": ("numbers", 0.0, 1.0),
    "runner_up_share": ("a number", 0.0, 1.0),
    "request_capacity": ("a whole number", 1, 1 << 24),
}
"""Type, least and greatest value. Above it a pass takes longer, or a memory more space, than can pay."""


@dataclass(frozen=True, slots=True)
class RecapConfig:
    """Settings of the `recap` drafter.

    The rules of the method are fixed in code: three keys, a weighted mixture, best-first growth, lookup,
    and learning from every verified node. What the paper leaves open is a field here. Raises ValueError for
    a value of the wrong type or outside `LIMITS`.
    """

    top_k: int = 8
    """Entries per stored prediction. Token Recycling keeps 8 too, so the comparison is about structure."""

    newest_share: float = 0.7
    """Weight of the newest prediction in the stored one of the 1-token memory. One token says little, so what often
    followed it is worth keeping. The 2- and 3-token memories hold the newest alone: mixing gave nothing there."""

    base_weights: tuple[float, float, float] = (0.70, 0.20, 0.10)
    """Mixture weights of the 3-, 2- and 1-token sources: a longer key is more exact. Renormalised over the sources
    that have a prediction. 0 switches a source off."""

    confidence: bool = True
    """Scale a source's weight by 1 - H / ln k of its prediction, so that a flat one counts less."""

    confidence_floor: float = 0.05
    """Least confidence factor. Even a flat prediction counts a little, so coverage is never lost."""

    budget: int = 63
    """Most candidates per pass, the root not counted. On a GPU 64 packed tokens cost little more than one. On a CPU the
    best budget is far smaller; `tree_size` finds it. The tree is filled as far as the sources name tokens, however
    unlikely, because every verified node teaches the memories."""

    max_depth: int = 10
    """Longest branch. Deeper candidates are accepted too rarely to pay."""

    max_children: int = 8
    """Most children per node. It equals top_k, so that the mixture's tail is cut, not its head."""

    calibrate: bool = True
    """Correct a candidate's estimated acceptance by how often candidates of its class were accepted so far. A class is
    the longest key with a prediction, the length of the lookup's match, and a bin of probability."""

    calibration_prior: float = 4.0
    """Pseudo-count of the calibration, in expected acceptances. With less evidence the mixture is trusted."""

    lookup: bool = True
    """Propose what followed the longest earlier match of the current tail in prompt and answer."""

    lookup_acceptance: tuple[float, ...] = (0.10, 0.25, 0.40, 0.55, 0.65, 0.75, 0.80, 0.85)
    """The lookup's share of the mixture for a match of 1, 2, 3, ... tokens (the last one repeats): roughly how often
    its token is right."""

    runner_up_share: float = 0.3
    """Where no other source answers: probability given to the tokens that were likely one position earlier and were
    not chosen there. They often come next (LogitSpec, 2025). 0 switches this source off."""

    seed_prompt: bool = True
    """Fill the memories from the prefill's predictions inside the prompt."""

    request_capacity: int = 65_536
    """Predictions that the 2- and 3-token memories keep per request, the oldest go first. Bounds them to about 22 MB:
    84 bytes per prediction with top_k 8, and two tables of keys."""

    def __post_init__(self) -> None:
        for name, (kind, least, most) in LIMITS.items():
            value = getattr(self, name)
            several = kind == "numbers"
            allowed = (int,) if kind == "a whole number" else (int, float)
            values = (
                value if several and isinstance(value, (tuple, list)) else [value] * (not several)
            )
            if not values or not all(type(v) in allowed and least <= v <= most for v in values):
                raise ValueError(
                    f"{name} must be {kind} from {least:g} to {most:,}, not {value!r}."
                )
        if len(self.base_weights) != 3:
            raise ValueError("base_weights must be three numbers (3-, 2-, 1-token).")
        for name in ("confidence", "calibrate", "lookup", "seed_prompt"):
            if type(getattr(self, name)) is not bool:
                raise ValueError(f"{name} must be True or False, not {getattr(self, name)!r}.")
