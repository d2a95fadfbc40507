"""Who attends to whom in one pass: a tree behind a confirmed prefix, or a causal chunk of a prompt.

A sliding window is counted in positions (prefix tokens by index, tree nodes by depth), never in packed
indices, so that a node sees exactly what it would see in a sequential pass.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor


def tree_mask(ancestors: Tensor, depths: Tensor, length: int, window: int | None) -> Tensor:
    """bool [N, length + N], True = attend: the whole prefix and the node's own branch.

    ancestors: bool [N, N]. depths: int64 [N]. window: positions that a token looks back, itself included.
    """
    count, device = len(depths), ancestors.device
    mask = torch.ones(count, length + count, dtype=torch.bool, device=device)
    mask[:, length:] = ancestors
    if window is not None and length + count > window:
        positions = torch.cat(
            [torch.arange(length, device=device), length + depths]
        )  # [length + N]
        mask &= positions[None, :] > (length + depths)[:, None] - window
    return mask


def chunk_mask(
    count: int, length: int, window: int | None, device: torch.device | None = None
) -> Tensor:
    """bool [count, length + count]: a causal chunk of `count` tokens behind a prefix of `length`."""
    index = torch.arange(count, device=device)
    return tree_mask(index[:, None] >= index[None, :], index, length, window)


def as_bias(mask: Tensor, dtype: torch.dtype) -> Tensor:
    """A bool mask as a bias for eager attention: 0 where True, the dtype's lowest value where False."""
    bias = torch.zeros(mask.shape, dtype=dtype, device=mask.device)
    return bias.masked_fill_(~mask, torch.finfo(dtype).min)


class MaskBuilder:
    """Masks in the form that one model's attention takes, for passes of any shape and of fixed shapes.

    sdpa takes bool (True = attend). Eager attention adds the mask to the scores: bool is silently wrong
    there. A model with two kinds of layers takes a dict of masks by kind, any other model a single mask.
    """

    def __init__(self, config: Any, device: torch.device, dtype: torch.dtype) -> None:
        """`config`: the text model's."""
        self._device, self._eager = device, config._attn_implementation == "eager"
        self._dtype = dtype if self._eager else torch.bool
        kinds = set(getattr(config, "layer_types", None) or ())
        window = getattr(config, "sliding_window", None)
        self._windows: dict[str | None, int | None]  # by kind of layer; None: all layers alike
        if "sliding_attention" in kinds:
            self._windows = {k: window if k == "sliding_attention" else None for k in sorted(kinds)}
        else:
            self._windows = {None: None if kinds else window}  # Mistral: one window for all layers
        self._plain = self._windows == {None: None} and not self._eager
        self._true = torch.ones(1, 1, 1, 0, dtype=torch.bool, device=device)

    def tree(self, ancestors: np.ndarray, depths: Sequence[int], length: int) -> Any:
        """For a packed pass of N nodes behind `length`: [1, 1, N, length + N], or a dict of these."""
        if len(depths) == 1 and self._plain:
            return self._all_true(length + 1)
        return self._build(self._tree(ancestors, depths, length))

    def chunk(self, count: int, length: int) -> Any:
        """For a prefill of `count` tokens behind `length`; None leaves it to sdpa's causal kernel."""
        if length == 0 and self._plain:
            return None
        return self._build(lambda window: chunk_mask(count, length, window, self._device))

    def buffers(self, count: int, context: int) -> Any:
        """Masks [1, 1, count, context] for `fill`: passes of a fixed shape read them at fixed addresses."""
        shape = (1, 1, count, context)
        make = {
            k: torch.zeros(shape, dtype=self._dtype, device=self._device) for k in self._windows
        }
        return make.get(None, make)

    def fill(self, buffers: Any, ancestors: np.ndarray, depths: Sequence[int], length: int) -> None:
        """Write a packed pass into `buffers`. Padding behind its nodes sees the first slot alone."""
        tree = self._tree(ancestors, depths, length)
        for kind, window in self._windows.items():
            buffer, mask = (buffers if kind is None else buffers[kind])[0, 0], tree(window)
            padded = torch.zeros(buffer.shape, dtype=torch.bool, device=self._device)
            padded[: mask.shape[0], : mask.shape[1]] = mask
            padded[mask.shape[0] :, 0] = True
            buffer.copy_(self._form(padded))

    def _tree(
        self, ancestors: np.ndarray, depths: Sequence[int], length: int
    ) -> Callable[[int | None], Tensor]:
        # only the nodes' own block comes from the host
        own = torch.from_numpy(np.ascontiguousarray(ancestors)).to(self._device)
        where = torch.tensor(depths, dtype=torch.int64).to(self._device)
        return lambda window: tree_mask(own, where, length, window)

    def _build(self, mask: Callable[[int | None], Tensor]) -> Any:
        made = {k: self._form(mask(window))[None, None] for k, window in self._windows.items()}
        return made.get(None, made)

    def _form(self, mask: Tensor) -> Tensor:
        return as_bias(mask, self._dtype) if self._eager else mask

    def _all_true(self, length: int) -> Tensor:
        """[1, 1, 1, length] of True for a pass of one token, cut from a tensor that is kept.

        Such a pass needs no mask, but without one it is oddly slow in bfloat16 on a CPU.
        """
        if self._true.shape[-1] < length:
            size = max(1024, 2 * length)
            self._true = torch.ones(1, 1, 1, size, dtype=torch.bool, device=self._device)
        return self._true[..., :length]
