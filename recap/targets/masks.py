"""Who may attend to whom in one pass: the tree behind a confirmed prefix, or a causal chunk.

A sliding window is counted in positions (prefix rows by index, tree rows by depth), never in packed
rows, so that a node sees exactly what it would see in a sequential pass.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

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


class Masks:
    """Masks in the form that one model's attention takes them.

    sdpa takes bool (True = attend), eager only additive ones: bool is silently wrong there. A model
    with two kinds of layers takes a dict of masks by kind, any other a single one.
    """

    def __init__(self, config: Any, device: torch.device, dtype: torch.dtype) -> None:
        """`config`: the text model's."""
        self._device, self._dtype = device, dtype
        self._eager = config._attn_implementation == "eager"
        kinds = set(getattr(config, "layer_types", None) or ())
        window = getattr(config, "sliding_window", None)
        self._windows: dict[str, int | None] | None = None  # by kind of layer, where kinds differ
        if "sliding_attention" in kinds:
            self._windows = {k: window if k == "sliding_attention" else None for k in sorted(kinds)}
        self._window = None if kinds else window  # one window for all layers (Mistral)
        self._plain = self._windows is None and self._window is None and not self._eager
        self._true = torch.ones(1, 1, 1, 0, dtype=torch.bool, device=device)

    def tree(self, ancestors: np.ndarray, depths: np.ndarray, length: int) -> Any:
        """For a packed pass of N rows behind `length`: [1, 1, N, length + N], or a dict of them."""
        if len(depths) == 1 and self._plain:
            return self._all_true(length + 1)
        return self._make(lambda window: tree_mask(ancestors, depths, length, window))

    @property
    def kinds(self) -> tuple[str | None, ...]:
        """The kinds of layers that take a mask of their own; (None,) where all take the same."""
        return (None,) if self._windows is None else tuple(self._windows)

    def host(
        self, ancestors: np.ndarray, depths: np.ndarray, length: int
    ) -> dict[str | None, np.ndarray]:
        """A packed pass's mask for each kind, bool [N, length + N] on the host."""
        windows = {None: self._window} if self._windows is None else self._windows
        return {k: tree_mask(ancestors, depths, length, w) for k, w in windows.items()}

    def chunk(self, rows: int, length: int) -> Any:
        """For a prefill of `rows` tokens behind `length`; None leaves it to sdpa's causal kernel."""
        if length == 0 and self._plain:
            return None
        return self._make(lambda window: chunk_mask(rows, length, window))

    def _make(self, mask: Callable[[int | None], np.ndarray]) -> Any:
        if self._windows is None:
            return self._put(mask(self._window))
        return {kind: self._put(mask(window)) for kind, window in self._windows.items()}

    def _put(self, mask: np.ndarray) -> torch.Tensor:
        tensor = torch.from_numpy(mask).to(self._device)[None, None]
        return as_bias(tensor, self._dtype) if self._eager else tensor

    def _all_true(self, length: int) -> torch.Tensor:
        """[1, 1, 1, length] of True for the plain one-token pass, cut from a kept one.

        No mask at all would do, but is oddly slow in bfloat16 on a CPU.
        """
        if self._true.shape[-1] < length:
            size = max(1024, 2 * length)
            self._true = torch.ones(1, 1, 1, size, dtype=torch.bool, device=self._device)
        return self._true[..., :length]
