"""Who may attend to whom in one pass: the tree behind a confirmed prefix, or a causal chunk.

A sliding window is counted in positions (prefix rows by index, tree rows by depth), never in packed
rows, so that a node sees exactly what it would see in a sequential pass.
"""

from __future__ import annotations

import numpy as np
import torch


def tree_mask(
    ancestors: np.ndarray, depths: np.ndarray, length: int, window: int | None
) -> np.ndarray:
    """bool [N, length + N], True = attend: the whole prefix and the node's own branch.

    ancestors: bool [N, N]. depths: int [N]. window: positions a row may look back, itself included.
    """
    rows = len(depths)
    mask = np.ones((rows, length + rows), dtype=bool)
    mask[:, length:] = ancestors
    if window is not None and length + int(depths.max(initial=0)) >= window:
        where = np.concatenate([np.arange(length), length + depths])  # [length + N]
        mask &= where[None, :] > (length + depths)[:, None] - window
    return mask


def chunk_mask(rows: int, length: int, window: int | None) -> np.ndarray:
    """bool [rows, length + rows]: a causal chunk of `rows` tokens behind a prefix of `length`."""
    own = np.arange(rows)
    return tree_mask(own[:, None] >= own[None, :], own, length, window)


def as_bias(mask: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """A bool mask as the additive one that eager attention takes: 0 = attend, lowest = not."""
    bias = torch.zeros(mask.shape, dtype=dtype, device=mask.device)
    return bias.masked_fill_(~mask, torch.finfo(dtype).min)
