"""The three memories: what the target once predicted, stored by its last 1, 2 or 3 tokens.

A stored prediction is k token ids, their probabilities over the full vocabulary, and a confidence.
`PersistentMemory` keeps one per last token and outlives requests. `RequestMemory` keeps one per last two and
per last three tokens, for one request. Neither mixes predictions nor grows trees.
"""

from __future__ import annotations

import contextlib
from typing import Any, NamedTuple

import numpy as np

from ..jit import EMPTY, Table, find, kernel, new_table, put, remove, reserve
from ..tree import usable


class PersistentArrays(NamedTuple):
    """The arrays of a persistent memory, as kernels see them."""

    ids: np.ndarray  # int32 [V, k]
    probs: np.ndarray  # float32 [V, k]
    confidence: np.ndarray  # float32 [V], -1: no prediction yet


class PersistentMemory:
    """One prediction per last token, for a whole vocabulary: 68 bytes per token at k = 8.

    It lives as long as its owner (a session, a user, a service). The owner decides who shares it, and calls
    `clear` at a boundary that no trace of a request may cross.
    """

    guard: Any = contextlib.nullcontext()
    """Held around every use of the arrays; a lock where several answers share the memory."""

    def __init__(self, vocab_size: int, top_k: int) -> None:
        self.vocab_size, self.top_k = vocab_size, top_k
        self.ids = np.zeros((vocab_size, top_k), np.int32)
        self.probs = np.zeros((vocab_size, top_k), np.float32)
        self.confidence = np.full(vocab_size, -1.0, np.float32)

    def __len__(self) -> int:
        """Tokens with a prediction."""
        return int((self.confidence >= 0).sum())

    @property
    def arrays(self) -> PersistentArrays:
        """The arrays, to be used under `guard`."""
        return PersistentArrays(self.ids, self.probs, self.confidence)

    def clear(self) -> None:
        """Forget every prediction."""
        with self.guard:
            self.ids.fill(0)
            self.probs.fill(0.0)
            self.confidence.fill(-1.0)


_SHIFT = 20  # bits per token in a packed key
LARGEST_VOCAB = 1 << _SHIFT


@kernel
def key2(a, b):
    """Packed key of the last two tokens, oldest first."""
    return (a << _SHIFT) | b


@kernel
def key3(a, b, c):
    """Packed key of the last three tokens, oldest first."""
    return (a << 2 * _SHIFT) | (b << _SHIFT) | c


@kernel
def keys_of(blocked, a, b, c):
    """2- and 3-token key of a tail, EMPTY where there is none: no key crosses a blocked token."""
    if not (usable(blocked, b) and c >= 0):
        return EMPTY, EMPTY
    return key2(b, c), (key3(a, b, c) if usable(blocked, a) else EMPTY)


class RequestArrays(NamedTuple):
    """The arrays of a request memory, as kernels see them: a ring of predictions, serial numbers by key."""

    ids: np.ndarray  # int32 [capacity so far, k]
    probs: np.ndarray  # float32 [capacity so far, k]
    confidence: np.ndarray  # float32 [capacity so far]
    keys: np.ndarray  # int64 [capacity so far, 2], the prediction's 2- and 3-token key
    by2: Table
    by3: Table
    written: np.ndarray  # int64 [1], predictions written so far
    capacity: int


@kernel
def slot_of(request, table, key):
    """Where a key's prediction lies in the ring, EMPTY if there is none. table: `by2` or `by3`."""
    serial = find(table, key)
    return serial if serial < 0 else serial % request.capacity


@kernel
def store_prediction(request, start, two, three, ids, probs, confidence):
    """Store one prediction under its keys (EMPTY: none), unless serials from `start` on hold them already.

    So of several predictions of one pass the first wins, and across passes the latest. An overwritten
    prediction takes along the keys that still point at it. The arrays must be reserved.
    """
    new2 = two >= 0 and find(request.by2, two) < start
    new3 = three >= 0 and find(request.by3, three) < start
    if not (new2 or new3):
        return
    serial = request.written[0]
    slot = serial % request.capacity
    old = serial - request.capacity
    if old >= 0:
        if find(request.by2, request.keys[slot, 0]) == old:
            remove(request.by2, request.keys[slot, 0])
        if find(request.by3, request.keys[slot, 1]) == old:
            remove(request.by3, request.keys[slot, 1])
    request.keys[slot, 0], request.keys[slot, 1] = two, three
    if new2:
        put(request.by2, two, serial)
    if new3:
        put(request.by3, three, serial)
    for i in range(request.ids.shape[1]):
        request.ids[slot, i], request.probs[slot, i] = ids[i], probs[i]
    request.confidence[slot] = confidence
    request.written[0] = serial + 1


class RequestMemory:
    """Predictions by the last two and the last three tokens, for one request; the oldest go first.

    A verified node has one prediction and up to two keys, so both memories share one ring. Each key
    points at the serial number of its latest prediction.
    """

    def __init__(self, top_k: int, capacity: int) -> None:
        self.top_k, self.capacity = top_k, capacity
        self.clear()

    def clear(self) -> None:
        """Forget every prediction: a new request starts."""
        self.arrays = self._allocate(min(1024, self.capacity))

    def _allocate(self, size: int) -> RequestArrays:
        return RequestArrays(
            np.zeros((size, self.top_k), np.int32),
            np.zeros((size, self.top_k), np.float32),
            np.zeros(size, np.float32),
            np.full((size, 2), EMPTY, np.int64),
            new_table(size),
            new_table(size),
            np.zeros(1, np.int64),
            self.capacity,
        )

    def __len__(self) -> int:
        """Distinct keys of both lengths together."""
        return int(self.arrays.by2.count[0] + self.arrays.by3.count[0])

    def reserve(self, more: int) -> RequestArrays:
        """The arrays, with space for so many more predictions. Call it before a kernel stores them."""
        old = self.arrays
        size, needed = len(old.ids), min(int(old.written[0]) + more, self.capacity)
        if needed > size:
            self.arrays = self._allocate(min(max(2 * size, needed), self.capacity))
            for column, old_column in zip(self.arrays[:4], old[:4], strict=True):
                column[:size] = old_column
        self.arrays = self.arrays._replace(
            by2=reserve(old.by2, more), by3=reserve(old.by3, more), written=old.written
        )
        return self.arrays
