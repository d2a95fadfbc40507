"""The packed pass with fixed shapes, so that a GPU can replay it as one captured graph.

A large model in eager mode spends most of a small pass on launching kernels. A captured graph launches
once, but it is bound to shapes and addresses. So rows are padded to a few sizes, attention always reads
one of a few lengths of context behind a mask, and all conversations are decoded in one working store:
what a conversation's own cache holds is copied in once, afterwards each kept row is written to both.

Without CUDA the same pass runs call by call; so it is tested.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from transformers.cache_utils import Cache, CacheLayerMixin

from . import logits
from .base import KVState

if TYPE_CHECKING:
    from .transformers_target import TransformersTarget

ROWS = (1, 2, 4, 8, 12, 16, 24, 32, 48, 64, 96, 128)
"""Row counts that a pass is padded to; above the last, multiples of 64."""

LEAST_CONTEXT = 512
"""Shortest context that attention reads; longer ones double it."""


def padded_rows(rows: int) -> int:
    """The smallest size that holds so many rows.

    >>> [padded_rows(rows) for rows in (1, 3, 64, 81, 129)]
    [1, 4, 64, 96, 192]
    """
    return next((size for size in ROWS if size >= rows), -(-rows // 64) * 64)


def padded_context(length: int) -> int:
    """The shortest context that holds so many rows.

    >>> [padded_context(length) for length in (20, 512, 513)]
    [512, 512, 1024]
    """
    return max(LEAST_CONTEXT, 1 << (length - 1).bit_length())


class _Layer(CacheLayerMixin):
    """One layer of the working store: writes at `slots`, always gives all `context` rows."""

    is_sliding = False
    is_croppable = False

    def __init__(self, keys: torch.Tensor, values: torch.Tensor, slots: torch.Tensor) -> None:
        super().__init__()
        self.keys, self.values, self._slots = keys, values, slots
        self.is_initialized = True

    def lazy_initialization(self, key_states: torch.Tensor, value_states: torch.Tensor) -> None:
        """Allocated already."""

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
        """Nothing to forget: the mask says what counts."""


@dataclass
class _Shape:
    """The inputs of all passes of one size, at addresses that never change."""

    inputs: dict[str, Any]
    slots: torch.Tensor
    masks: dict[str | None, torch.Tensor]
    graphs: dict[int, tuple[torch.cuda.CUDAGraph, torch.Tensor]]  # by top_k: graph, packed result


class StaticPass:
    """Runs a target's packed passes in fixed shapes. Use under the target's lock.

    capture: replay them as CUDA graphs; by default where the target is on CUDA.
    """

    def __init__(self, target: TransformersTarget, *, capture: bool | None = None) -> None:
        self._target = target
        self._device = target.model.device
        self._capture = self._device.type == "cuda" if capture is None else capture
        self._rows: torch.Tensor | None = None  # [layers, 2, 1, H, context, D]
        self._owner: weakref.ref | None = None  # the KVCache whose rows are in the store
        self._valid = 0  # of these, the first so many are
        self._shapes: dict[tuple[int, int], _Shape] = {}
        self._pool: Any = None

    def run(
        self,
        state: KVState,
        tokens: Sequence[int],
        depths: Sequence[int],
        mask: np.ndarray,
        *,
        top_k: int,
    ) -> torch.Tensor:
        """One packed pass -> the packed readout of its rows, on the device (see `logits.pack`)."""
        rows = padded_rows(len(tokens))
        context = padded_context(state.length + rows)
        self._attach(state, context)
        shape = self._shapes.get((rows, context))
        if shape is None:
            shape = self._shapes[rows, context] = self._make(state, rows, context)
        self._feed(shape, state, tokens, depths, mask)
        if not self._capture:
            packed = self._forward(shape, top_k)
        else:
            if top_k not in shape.graphs:
                shape.graphs[top_k] = self._captured(shape, top_k)
            graph, packed = shape.graphs[top_k]
            graph.replay()
        return packed[: len(tokens)]

    def compact(self, state: KVState, rows: Sequence[int]) -> None:
        """Keep these rows of the last pass: move them up in the store, add them to the cache."""
        start, stop = state.length, state.length + len(rows)
        if rows[-1] == len(rows) - 1:
            kept = self._rows[..., start:stop, :]
        else:
            source = torch.tensor([start + row for row in rows], device=self._device)
            kept = self._rows.index_select(4, source)
            self._rows[..., start:stop, :] = kept
        state.cache.append(kept)
        self._valid = stop

    def crop(self, state: KVState, length: int) -> None:
        """The conversation was shortened: rows behind `length` are no longer its."""
        if self._owner is not None and self._owner() is state.cache:
            self._valid = min(self._valid, length)

    def _attach(self, state: KVState, context: int) -> None:
        """Bring the conversation's rows into the store."""
        own = state.cache.rows
        if self._rows is None or self._rows.shape[4] < context:
            self._rows = own.new_zeros(*own.shape[:4], context, own.shape[5])
            self._shapes.clear()  # they are bound to the old addresses
            self._owner = None
        if self._owner is None or self._owner() is not state.cache:
            self._owner, self._valid = weakref.ref(state.cache), 0
        if self._valid < state.length:
            new = slice(self._valid, state.length)
            self._rows[..., new, :] = own[..., new, :]
            self._valid = state.length

    def _make(self, state: KVState, rows: int, context: int) -> _Shape:
        device = self._device
        slots = torch.zeros(rows, dtype=torch.int64, device=device)
        layers = [
            _Layer(both[0][:, :, :context], both[1][:, :, :context], slots) for both in self._rows
        ]
        where = self._target._positions(state, torch.zeros(rows, dtype=torch.int64))
        masks = {
            kind: torch.zeros(1, 1, rows, context, dtype=torch.bool, device=device)
            for kind in self._target._masks.kinds
        }
        inputs = {
            "input_ids": torch.zeros(1, rows, dtype=torch.int64, device=device),
            "position_ids": torch.zeros(where.shape, dtype=torch.int64, device=device),
            "attention_mask": masks.get(None, masks),
            "cache": Cache(layers=layers),
            "use_cache": True,
        }
        return _Shape(inputs, slots, masks, {})

    def _feed(
        self,
        shape: _Shape,
        state: KVState,
        tokens: Sequence[int],
        depths: Sequence[int],
        mask: np.ndarray,
    ) -> None:
        """Write this pass's inputs. Rows that only pad stand at the root and see the first token alone."""
        count, rows = len(tokens), len(shape.slots)
        feed = np.zeros((2, rows), np.int64)
        feed[0, :count], feed[1, :count] = tokens, depths
        host = torch.from_numpy(feed)
        shape.inputs["input_ids"].copy_(host[:1])
        shape.inputs["position_ids"].copy_(self._target._positions(state, host[1]))
        shape.slots.copy_(torch.arange(state.length, state.length + rows))
        for kind, seen in self._target._masks.host(mask, np.asarray(depths), state.length).items():
            whole = np.zeros(shape.masks[kind].shape[2:], bool)
            whole[:count, : seen.shape[1]] = seen
            whole[count:, 0] = True
            shape.masks[kind][0, 0].copy_(torch.from_numpy(whole))

    def _forward(self, shape: _Shape, top_k: int) -> torch.Tensor:
        hidden = self._target.language(**shape.inputs).last_hidden_state
        return logits.pack(self._target.output_layer(hidden[0]), top_k)

    def _captured(self, shape: _Shape, top_k: int) -> tuple[torch.cuda.CUDAGraph, torch.Tensor]:
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
