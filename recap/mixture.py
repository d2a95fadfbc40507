"""Mix what the levels say into one distribution over next tokens.

Each level that answers gets base weight x confidence, renormalised over the levels that answer; none
simply wins. The lookup takes its own share, by the length of its match. Pure functions, no torch.
"""

from __future__ import annotations

from collections.abc import Sequence

from .memory import Row


def level_weights(
    rows: Sequence[Row | None], base: Sequence[float], *, use_confidence: bool, floor: float
) -> list[float]:
    """Weights of the levels, summing to 1 over those that answered (0 for the others).

    >>> sharp, flat = Row([5], [0.9], 1.0), Row([6], [0.1], 0.0)
    >>> [round(w, 3) for w in level_weights([sharp, None, flat], (0.7, 0.2, 0.1),
    ...                                     use_confidence=True, floor=0.1)]
    [0.986, 0.0, 0.014]
    """
    raw = [0.0] * len(rows)
    for level, row in enumerate(rows):
        if row is not None:
            raw[level] = base[level] * (max(row.confidence, floor) if use_confidence else 1.0)
    total = sum(raw)
    return [w / total for w in raw] if total > 0 else raw


def mix(
    rows: Sequence[Row | None],
    weights: Sequence[float],
    *,
    looked_up: int | None = None,
    lookup_share: float = 0.0,
) -> dict[int, float]:
    """Mixed probability of every token that some level names.

    The memory levels share 1 - lookup_share when the lookup has a token and some level answers.
    Without an answering level the looked-up token has lookup_share alone: that estimates its chance.

    >>> mixed = mix([Row([5, 6], [0.5, 0.25], 1.0), Row([6], [0.5], 1.0)], [0.5, 0.5])
    >>> mixed
    {5: 0.25, 6: 0.375}
    >>> mix([None], [0.0], looked_up=4, lookup_share=0.6)
    {4: 0.6}
    """
    if looked_up is None:
        lookup_share = 0.0
    mixed: dict[int, float] = {}
    for row, weight in zip(rows, weights, strict=True):
        if row is None or weight <= 0.0:
            continue
        share = weight * (1.0 - lookup_share)
        if mixed:
            for token, probability in zip(row.ids, row.probs, strict=True):
                mixed[token] = mixed.get(token, 0.0) + share * probability
        else:
            mixed = {t: share * p for t, p in zip(row.ids, row.probs, strict=True)}
    if looked_up is not None:
        mixed[looked_up] = mixed.get(looked_up, 0.0) + lookup_share
    return mixed
