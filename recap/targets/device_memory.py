"""How much device memory a model needs, and which GPU would hold it."""

from __future__ import annotations

from typing import Any

import torch

CARDS = (
    ("t4-small", 16),
    ("l4x1", 24),
    ("l40sx1", 48),
    ("a100-large", 80),
    ("rtx-pro-6000", 96),
)
"""GPUs of the hub by memory in GB, the smallest first."""

CACHES_GB = 2.0
"""Needed besides the weights, for KV caches and passes of a few conversations."""


def weights_gb(model: Any) -> float:
    """GB that a model's weights take in its dtype."""
    return sum(p.numel() * p.element_size() for p in model.parameters()) / 1e9


def free_gb(device: torch.device) -> float | None:
    """GB that are free on a GPU; None for other devices."""
    if device.type != "cuda" or not torch.cuda.is_available():
        return None
    return torch.cuda.mem_get_info(device)[0] / 1e9


def does_not_fit(name: str, gb: float, dtype: torch.dtype, free: float | None) -> str:
    """The sentence for a model whose weights take `gb` in `dtype`, more than is free.

    >>> does_not_fit("m", 33.2, torch.float32, 22.5)
    'm needs 35 GB in float32 and the device has 22 GB free: load it in bfloat16, which takes 19 GB.'
    >>> does_not_fit("m", 16.6, torch.bfloat16, 14.6)
    'm needs 19 GB in bfloat16 and the device has 15 GB free: use a GPU of 24 GB (l4x1) or a smaller model.'
    """
    need = gb + CACHES_GB
    has = "less free" if free is None else f"{free:.0f} GB free"
    start = f"{name} needs {need:.0f} GB in {str(dtype).removeprefix('torch.')} and the device has {has}"
    half = gb / 2 + CACHES_GB
    if dtype.itemsize > 2 and (free is None or half <= free):
        return f"{start}: load it in bfloat16, which takes {half:.0f} GB."
    card = next(((card, size) for card, size in CARDS if size > need), None)
    if card is None:
        return f"{start}: no single GPU of the hub holds it; use a smaller model."
    return f"{start}: use a GPU of {card[1]} GB ({card[0]}) or a smaller model."
