"""A KV cache that is allocated ahead, written in place, and compacted by moving rows.

One tensor holds keys and values of all layers (of all on one device, where a model lies on several), so
that keeping an accepted branch is one gather and one write for the whole model, and nothing at all when
the branch lies contiguous already. Every layer
keeps the full length, sliding windows included: a rejected branch must never have pushed out a row
that the accepted one still needs. The window belongs into the mask (`targets.masks`).

It does not know trees or tokens: rows are numbers. Batch size 1 only.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

import torch
from transformers.cache_utils import Cache, CacheLayerMixin

GRAIN = 256
"""Capacity is a multiple of this many rows."""


class KVLayer(CacheLayerMixin):
    """One layer's view of the store; what transformers' attention calls `update` on."""

    is_sliding = False
    is_croppable = True

    def __init__(self, store: KVCache, index: int) -> None:
        super().__init__()
        self.store, self.index, self.length = store, index, 0

    def lazy_initialization(self, key_states: torch.Tensor, value_states: torch.Tensor) -> None:
        """Nothing to do: the store allocates for all layers at the first write."""

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *args, **kwargs
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Write [1, H, N, D] behind the filled part -> views [1, H, length, D] of all filled rows."""
        start, self.length = self.length, self.length + key_states.shape[-2]
        keys, values = self.store.layer(self.index, self.length, like=key_states)
        keys[:, :, start : self.length] = key_states
        values[:, :, start : self.length] = value_states
        return keys[:, :, : self.length], values[:, :, : self.length]

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        """(length, offset) of the keys that a query of that many rows sees."""
        return self.length + query_length, 0

    def get_seq_length(self) -> int:
        """Rows filled."""
        return self.length

    def get_max_length(self) -> int:
        """-1: it grows."""
        return -1

    def reset(self) -> None:
        """Empty the layer; the memory stays allocated."""
        self.length = 0

    def crop(self, tokens_to_remove: int) -> None:
        """Drop the last rows; the count is negative, as transformers has it."""
        if tokens_to_remove > 0:
            raise ValueError("A cache is cropped by a negative count of rows.")
        self.length = max(0, self.length + tokens_to_remove)


class KVCache(Cache):
    """The KV rows of one conversation, [layers, 2, 1, H, capacity, D], capacity doubling."""

    def __init__(
        self, layers: int, capacity: int = 0, *, devices: Sequence[torch.device] = ()
    ) -> None:
        """capacity: rows to allocate at the first write, when more than that write needs. devices: of
        each layer, where they differ; else all lie where the first write is."""
        super().__init__(layers=[KVLayer(self, index) for index in range(layers)])
        assert len(devices) in (0, layers), "a device for each layer"
        self._devices = tuple(devices)
        self._blocks: list[torch.Tensor] = []  # one for each run of layers on one device
        self._views: list[tuple[torch.Tensor, torch.Tensor]] = []
        self._capacity = capacity

    @property
    def length(self) -> int:
        """Rows filled in every layer."""
        return self.layers[0].length if self.layers else 0

    @property
    def capacity(self) -> int:
        """Rows allocated."""
        return self._blocks[0].shape[4] if self._blocks else 0

    @property
    def nbytes(self) -> int:
        """Bytes allocated on the device, or on all of them."""
        return sum(block.nbytes for block in self._blocks)

    def layer(
        self, index: int, length: int, *, like: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Keys and values of one layer, each [1, H, capacity, D], with room for `length` rows."""
        if length > self.capacity:
            self._grow(length, like)
        views = self._views[index]
        assert views[0].shape[:2] == like.shape[:2], "one batch row, the same heads in every layer"
        return views

    def _grow(self, length: int, like: torch.Tensor) -> None:
        first = max(length + GRAIN, self._capacity)  # room for an answer behind the prompt
        wanted = max(length, 2 * self.capacity) if self.capacity else first
        wanted = -(-wanted // GRAIN) * GRAIN
        _, heads, _, width = like.shape
        devices = self._devices or (like.device,) * len(self.layers)
        blocks: list[torch.Tensor] = []
        for device, run in groupby(devices):
            shape = (len(list(run)), 2, 1, heads, wanted, width)
            blocks.append(torch.empty(shape, dtype=like.dtype, device=device))
        for new, old in zip(blocks, self._blocks, strict=False):
            new[..., : self.capacity, :] = old
        self._blocks = blocks
        self._views = [(both[0], both[1]) for block in blocks for both in block]

    def __deepcopy__(self, memo: dict[int, object]) -> KVCache:
        """A cache of its own with the same rows, for a conversation that is forked."""
        twin = KVCache(len(self.layers), self.capacity or self._capacity, devices=self._devices)
        memo[id(self)] = twin
        if self.length:
            with torch.inference_mode():
                twin._grow(self.length, self._views[0][0])
                for its, mine in zip(twin._blocks, self._blocks, strict=True):
                    its[..., : self.length, :] = mine[..., : self.length, :]
        for mine, its in zip(self.layers, twin.layers, strict=True):
            its.length = mine.length
        return twin

    def compact(self, confirmed: int, rows: Sequence[int]) -> None:
        """Of the rows behind the first `confirmed`, keep these (ascending, counted from 0), drop the rest.

        Moves only what is not in place: [0, 1, 2, 7] moves one row, [0, 1, 2] none.
        """
        assert list(rows) == sorted(set(rows)), "rows ascend"
        assert not rows or confirmed + rows[-1] < self.length, "rows were written by the last pass"
        still = next((i for i, row in enumerate(rows) if row != i), len(rows))
        if still < len(rows):
            source = torch.tensor([confirmed + r for r in rows[still:]])
            start, stop = confirmed + still, confirmed + len(rows)
            for block in self._blocks:
                block[..., start:stop, :] = block.index_select(4, source.to(block.device))
        self.crop_to(confirmed + len(rows))

    @property
    def rows(self) -> torch.Tensor:
        """All rows, [layers, 2 (keys, values), 1, H, capacity, D]; the first `length` are filled."""
        assert len(self._blocks) == 1, "written, and on one device"
        return self._blocks[0]

    def append(self, rows: torch.Tensor) -> None:
        """Add rows [layers, 2, 1, H, N, D] that were computed elsewhere."""
        start, stop = self.length, self.length + rows.shape[4]
        if stop > self.capacity:
            self._grow(stop, rows[0, 0])
        self.rows[..., start:stop, :] = rows
        for layer in self.layers:
            layer.length = stop

    def release(self) -> None:
        """Empty the cache and give its memory back at once. A dropped cache waits for the garbage
        collector, because it and its layers know each other."""
        self._blocks, self._views = [], []
        self.crop_to(0)

    def crop_to(self, length: int) -> None:
        """Shorten every layer to its first `length` rows."""
        assert length <= self.length, "cropping never lengthens"
        for layer in self.layers:
            layer.length = length
