"""A KV cache that is allocated ahead, written in place, and compacted by moving slots.

One tensor holds the keys and values of all layers (of all layers on one device, where a model spans
several). Keeping an accepted branch is then one gather and one write for the whole model, and nothing at
all when the branch already lies contiguous. Every layer keeps the full length, sliding windows included:
a rejected branch must never push out a slot that the accepted one still needs. The window belongs into the
attention mask (`targets.masks`).

The cache does not know trees or tokens: a KV slot is a number. Batch size 1 only.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

import torch
from transformers.cache_utils import Cache, CacheLayerMixin

GRAIN = 256
"""Capacity is a multiple of this many slots."""


class KVStore:
    """The tensors behind a cache: one block [layers, 2 (keys, values), 1, H, capacity, D] per device.

    The cache and its layers share the store and do not reference each other, so that a cache is freed as
    soon as it is dropped, without the garbage collector.
    """

    def __init__(self, layers: int, capacity: int, devices: Sequence[torch.device]) -> None:
        self.layers, self.least_capacity, self.devices = layers, capacity, tuple(devices)
        self.blocks: list[torch.Tensor] = []
        self.views: list[tuple[torch.Tensor, torch.Tensor]] = []  # keys and values of each layer

    @property
    def capacity(self) -> int:
        """Slots allocated."""
        return self.blocks[0].shape[4] if self.blocks else 0

    def reserve(self, length: int, like: torch.Tensor) -> None:
        """Make capacity for `length` slots of the shape [..., H, N, D] of `like`; what is written stays."""
        if length <= self.capacity:
            return
        first = max(length + GRAIN, self.least_capacity)  # an answer follows the prompt
        wanted = max(length, 2 * self.capacity) if self.capacity else first
        wanted = -(-wanted // GRAIN) * GRAIN
        _, heads, _, width = like.shape
        blocks: list[torch.Tensor] = []
        for device, run in groupby(self.devices or (like.device,) * self.layers):
            shape = (len(list(run)), 2, 1, heads, wanted, width)
            blocks.append(torch.empty(shape, dtype=like.dtype, device=device))
        for new, old in zip(blocks, self.blocks, strict=False):
            new[..., : self.capacity, :] = old
        self.blocks = blocks
        self.views = [(both[0], both[1]) for block in blocks for both in block]


class KVLayer(CacheLayerMixin):
    """One layer's view of the store; transformers' attention calls `update` on it."""

    is_sliding = False
    is_croppable = True

    def __init__(self, store: KVStore, index: int) -> None:
        super().__init__()
        self.store, self.index, self.length = store, index, 0

    def lazy_initialization(self, key_states: torch.Tensor, value_states: torch.Tensor) -> None:
        """Nothing to do: the store allocates for all layers at the first write."""

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *args, **kwargs
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Write [1, H, N, D] behind the filled slots -> views [1, H, length, D] of all filled slots."""
        start, stop = self.length, self.length + key_states.shape[-2]
        self.store.reserve(stop, key_states)
        keys, values = self.store.views[self.index]
        assert keys.shape[:2] == key_states.shape[:2], "batch size 1, the same heads in every layer"
        keys[:, :, start:stop] = key_states
        values[:, :, start:stop] = value_states
        self.length = stop
        return keys[:, :, :stop], values[:, :, :stop]

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        """(length, offset) of the keys that a query of that many tokens sees."""
        return self.length + query_length, 0

    def get_seq_length(self) -> int:
        """Slots filled."""
        return self.length

    def get_max_length(self) -> int:
        """-1: no limit."""
        return -1

    def reset(self) -> None:
        """Empty the layer; the memory stays allocated."""
        self.length = 0

    def crop(self, tokens_to_remove: int) -> None:
        """Drop the last slots; transformers passes a negative count."""
        if tokens_to_remove > 0:
            raise ValueError("A cache is cropped by a negative count of slots.")
        self.length = max(0, self.length + tokens_to_remove)


class KVCache(Cache):
    """The KV slots of one conversation. Capacity doubles when it is used up."""

    def __init__(
        self, layers: int, capacity: int = 0, *, devices: Sequence[torch.device] = ()
    ) -> None:
        """capacity: slots to allocate at the first write at least. devices: one for each layer where they
        differ; otherwise everything lies where the first write does."""
        assert len(devices) in (0, layers), "a device for each layer"
        self.store = KVStore(layers, capacity, devices)
        super().__init__(layers=[KVLayer(self.store, index) for index in range(layers)])

    @property
    def length(self) -> int:
        """Slots filled in every layer."""
        return self.layers[0].length if self.layers else 0

    @property
    def capacity(self) -> int:
        """Slots allocated."""
        return self.store.capacity

    @property
    def nbytes(self) -> int:
        """Bytes allocated, on all devices together."""
        return sum(block.nbytes for block in self.store.blocks)

    @property
    def slots(self) -> torch.Tensor:
        """All slots, [layers, 2 (keys, values), 1, H, capacity, D]; the first `length` are filled."""
        assert len(self.store.blocks) == 1, "written, and on one device"
        return self.store.blocks[0]

    def __deepcopy__(self, memo: dict[int, object]) -> KVCache:
        """A cache of its own with the same slots, for a forked conversation."""
        least = self.capacity or self.store.least_capacity
        fork = KVCache(len(self.layers), least, devices=self.store.devices)
        memo[id(self)] = fork
        if self.length:
            with torch.inference_mode():
                fork.store.reserve(self.length, self.store.views[0][0])
                for new, old in zip(fork.store.blocks, self.store.blocks, strict=True):
                    new[..., : self.length, :] = old[..., : self.length, :]
        for layer in fork.layers:
            layer.length = self.length
        return fork

    def compact(self, confirmed: int, kept: Sequence[int]) -> None:
        """Of the slots behind the first `confirmed`, keep these (ascending, from 0) and drop the rest.

        Moves only what is not in place: [0, 1, 2, 7] moves one slot, [0, 1, 2] none.
        """
        assert list(kept) == sorted(set(kept)), "slots ascend"
        assert not kept or confirmed + kept[-1] < self.length, "the last pass wrote these slots"
        in_place = next((i for i, slot in enumerate(kept) if slot != i), len(kept))
        if in_place < len(kept):
            source = torch.tensor([confirmed + slot for slot in kept[in_place:]])
            start, stop = confirmed + in_place, confirmed + len(kept)
            for block in self.store.blocks:
                block[..., start:stop, :] = block.index_select(4, source.to(block.device))
        self.crop_to(confirmed + len(kept))

    def append(self, slots: torch.Tensor) -> None:
        """Add slots [layers, 2, 1, H, N, D] that were computed elsewhere."""
        start, stop = self.length, self.length + slots.shape[4]
        self.store.reserve(stop, slots[0, 0])
        self.slots[..., start:stop, :] = slots
        for layer in self.layers:
            layer.length = stop

    def crop_to(self, length: int) -> None:
        """Shorten every layer to its first `length` slots."""
        assert all(layer.length >= length for layer in self.layers), "cropping never lengthens"
        for layer in self.layers:
            layer.length = length
