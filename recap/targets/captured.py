"""The packed pass in fixed shapes, so that a GPU can replay it as one captured CUDA graph.

In eager mode a large model spends most of a small pass on launching kernels. A captured graph launches
once, but it is bound to shapes and addresses. So packed tokens are padded to a few sizes, attention always
reads one of a few lengths of context behind a mask, and all conversations decode in one working store:
what a conversation's own cache holds is copied in once, and each kept slot is then written to both.

Without CUDA the same passes run call by call; that is how they are tested.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from transformers.cache_utils import Cache, CacheLayerMixin

from . import logits
from .base import KVState
from .masks import MaskBuilder

SIZES = (1, 2, 4, 8, 12, 16, 24, 32, 48, 64, 96, 128)
"""Packed tokens that a pass is padded to; above the last, multiples of 64."""

LEAST_CONTEXT = 512
"""Shortest context that attention reads; longer ones double it."""


def padded_size(count: int) -> int:
    """The smallest size that holds so many packed tokens.

    >>> [padded_size(count) for count in (1, 3, 64, 81, 129)]
    [1, 4, 64, 96, 192]
    """
    return next((size for size in SIZES if size >= count), -(-count // 64) * 64)


def padded_context(length: int) -> int:
    """The shortest context that holds so many slots.

    >>> [padded_context(length) for length in (20, 512, 513)]
    [512, 512, 1024]
    """
    return max(LEAST_CONTEXT, 1 << (length - 1).bit_length())


class _Layer(CacheLayerMixin):
    """One layer of the working store: writes at `slots`, always returns the whole context."""

    is_sliding = False
    is_croppable = False

    def __init__(self, keys: torch.Tensor, values: torch.Tensor, slots: torch.Tensor) -> None:
        super().__init__()
        self.keys, self.values, self._slots = keys, values, slots
        self.is_initialized = True

    def lazy_initialization(self, key_states: torch.Tensor, value_states: torch.Tensor) -> None:
        """Nothing to do: allocated already."""

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *args, **kwargs
    ) -> tuple[torch.Tensor, torch.Tensor]:
        self.keys.index_copy_(2, self._slots, key_states)
        self.values.index_copy_(2, self._slots, value_states)
        return self.keys, self.values

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        return self.keys.shape[2], 0

    def get_seq_length(self) -> int:
        return 0

    def get_max_length(self) -> int:
        return self.keys.shape[2]

    def reset(self) -> None:
        """Nothing to do: the mask says what counts."""


@dataclass(frozen=True, slots=True)
class PassModel:
    """What a packed pass needs of a target.

    language: from token ids to hidden states. output_layer: from hidden states to logits. positions: from a
    conversation and depths [N] to position ids [1, N] or [3, 1, N].
    """

    language: Any
    output_layer: Any
    masks: MaskBuilder
    positions: Callable[[KVState, torch.Tensor], torch.Tensor]
    device: torch.device


@dataclass(slots=True)
class _Shape:
    """The inputs of all passes of one size, at addresses that never change."""

    inputs: dict[str, Any]
    slots: torch.Tensor
    graphs: dict[int, tuple[Any, torch.Tensor]] = field(default_factory=dict)
    """CUDA graph and its packed result, by top_k."""


class CapturedPass:
    """Runs packed passes in fixed shapes. Use it under the target's lock.

    capture: replay the passes as CUDA graphs; the default on CUDA.
    """

    def __init__(self, model: PassModel, *, capture: bool | None = None) -> None:
        self._model = model
        self._capture = model.device.type == "cuda" if capture is None else capture
        self._store: torch.Tensor | None = None  # [layers, 2, 1, H, context, D]
        self._owner: weakref.ref | None = None  # the KVCache whose slots are in the store
        self._valid = 0  # how many of its first slots are
        self._shapes: dict[tuple[int, int], _Shape] = {}
        self._pool: Any = None

    @property
    def context(self) -> int:
        """Slots that the store holds."""
        return 0 if self._store is None else self._store.shape[4]

    def run(
        self,
        state: KVState,
        tokens: Sequence[int],
        depths: Sequence[int],
        mask: np.ndarray,
        *,
        top_k: int,
    ) -> torch.Tensor:
        """One packed pass -> its packed logits, on the device (see `logits.pack`)."""
        size = padded_size(len(tokens))
        context = padded_context(state.length + size)
        self._attach(state, context)
        shape = self._shapes.get((size, context))
        if shape is None:
            shape = self._shapes[size, context] = self._new_shape(state, size, context)
        self._feed(shape, state, tokens, depths, mask)
        if not self._capture:
            packed = self._forward(shape, top_k)
        else:
            if top_k not in shape.graphs:
                shape.graphs[top_k] = self._record(shape, top_k)
            graph, packed = shape.graphs[top_k]
            graph.replay()
        return packed[: len(tokens)]

    def compact(self, state: KVState, kept: Sequence[int]) -> None:
        """Keep these packed tokens of the last pass: move their slots up, add them to the cache."""
        assert self._owns(state), "the last pass was this conversation's"
        start, stop = state.length, state.length + len(kept)
        if kept[-1] == len(kept) - 1:
            slots = self._store[..., start:stop, :]
        else:
            source = torch.tensor([start + index for index in kept], device=self._model.device)
            slots = self._store.index_select(4, source)
            self._store[..., start:stop, :] = slots
        state.cache.append(slots)
        self._valid = stop

    def crop(self, state: KVState, length: int) -> None:
        """The conversation was shortened: forget its slots behind `length`."""
        if self._owns(state):
            self._valid = min(self._valid, length)

    def _owns(self, state: KVState) -> bool:
        return self._owner is not None and self._owner() is state.cache

    def _attach(self, state: KVState, context: int) -> None:
        """Bring the conversation's slots into the store."""
        cached = state.cache.slots
        if self.context < context:
            self._store = cached.new_zeros(*cached.shape[:4], context, cached.shape[5])
            self._shapes.clear()  # they are bound to the old addresses
            self._owner = None
        if not self._owns(state):
            self._owner, self._valid = weakref.ref(state.cache), 0
        if self._valid < state.length:
            new = slice(self._valid, state.length)
            self._store[..., new, :] = cached[..., new, :]
            self._valid = state.length

    def _new_shape(self, state: KVState, size: int, context: int) -> _Shape:
        zeros = torch.zeros(size, dtype=torch.int64, device=self._model.device)
        slots = zeros.clone()
        layers = [
            _Layer(both[0][:, :, :context], both[1][:, :, :context], slots) for both in self._store
        ]
        inputs = {
            "input_ids": zeros.clone()[None],
            "position_ids": self._model.positions(state, zeros).clone(),
            "attention_mask": self._model.masks.buffers(size, context),
            "cache": Cache(layers=layers),
            "use_cache": True,
        }
        return _Shape(inputs, slots)

    def _feed(
        self,
        shape: _Shape,
        state: KVState,
        tokens: Sequence[int],
        depths: Sequence[int],
        mask: np.ndarray,
    ) -> None:
        """Write this pass's inputs. Padding stands at the root's position."""
        count, size = len(tokens), len(shape.slots)
        host = np.zeros((2, size), np.int64)
        host[0, :count], host[1, :count] = tokens, depths
        feed = torch.from_numpy(host).to(self._model.device)
        shape.inputs["input_ids"].copy_(feed[:1])
        shape.inputs["position_ids"].copy_(self._model.positions(state, feed[1]))
        shape.slots.copy_(torch.arange(state.length, state.length + size))
        self._model.masks.fill(shape.inputs["attention_mask"], mask, depths, state.length)

    def _forward(self, shape: _Shape, top_k: int) -> torch.Tensor:
        hidden = self._model.language(**shape.inputs).last_hidden_state
        return logits.pack(self._model.output_layer(hidden[0]), top_k)

    def _record(self, shape: _Shape, top_k: int) -> tuple[Any, torch.Tensor]:
        """Capture the pass as a CUDA graph -> (graph, its result)."""
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(3):  # kernels are chosen and workspaces allocated before the capture
                self._forward(shape, top_k)
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=self._pool):
            packed = self._forward(shape, top_k)
        self._pool = graph.pool()
        return graph, packed
