"""What the target once predicted, kept by key: the row store behind Recap's three levels.

A row is a next-token prediction: k token ids, their probabilities over the full vocabulary, and a
confidence from the entropy. `PersistentMemory` keeps one row per last token and outlives requests;
`RequestMemory` keeps rows per last two and last three tokens for one request. Neither mixes rows nor
grows trees (`mixture`, `drafters`). No torch.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from ..jit import Table, find, kernel, new_table, put, remove, with_room


class Row(NamedTuple):
    """One stored prediction: ids best first, full-vocabulary probabilities, confidence in [0, 1]."""

    ids: list[int]
    probs: list[float]
    confidence: float


@kernel
def confidence_of(probs):
    """1 - H / ln k of one row, H the entropy of its k entries renormalised. probs: [k]."""
    k = len(probs)
    if k < 2:
        return 1.0
    total = 0.0
    for i in range(k):
        total += probs[i]
    total = max(total, 1e-30)
    entropy = 0.0
    for i in range(k):
        share = probs[i] / total
        entropy -= share * math.log(max(share, 1e-30))
    return min(max(1.0 - entropy / math.log(k), 0.0), 1.0)


def confidence(probs: np.ndarray) -> np.ndarray:
    """1 - H / ln k for each row, H the entropy of its k entries renormalised.

    probs: [N, k] -> float32 [N]; 1 where one entry holds everything, 0 where all are equal.

    >>> confidence(np.array([[1.0, 0.0], [0.25, 0.25]])).round(3).tolist()
    [1.0, 0.0]
    """
    rows = np.ascontiguousarray(probs, np.float32)
    return np.array([confidence_of(row) for row in rows], np.float32)


class Store(NamedTuple):
    """The arrays of a persistent memory, as kernels see them."""

    ids: np.ndarray  # int32 [V, k]
    probs: np.ndarray  # float32 [V, k]
    confidence: np.ndarray  # float32 [V], -1: no row yet


class PersistentMemory:
    """One row per last token, for a whole vocabulary.

    Lives as long as its owner (a session, a user, a service): the owner decides who shares it and
    calls `clear` when crossing a boundary. 68 bytes a vocabulary entry at k = 8.
    """

    guard: Any = contextlib.nullcontext()
    """Held around every use of the arrays; a lock where several answers share the memory."""

    def __init__(self, vocab_size: int, top_k: int) -> None:
        self.vocab_size, self.top_k = vocab_size, top_k
        self.ids = np.zeros((vocab_size, top_k), np.int32)
        self.probs = np.zeros((vocab_size, top_k), np.float32)
        self.confidence = np.full(vocab_size, -1.0, np.float32)  # -1: no row yet

    def __len__(self) -> int:
        return int((self.confidence >= 0).sum())

    @property
    def store(self) -> Store:
        """The arrays, to be used under `guard`."""
        return Store(self.ids, self.probs, self.confidence)

    def clear(self) -> None:
        """Forget every row."""
        with self.guard:
            self.ids.fill(0)
            self.probs.fill(0.0)
            self.confidence.fill(-1.0)

    def write(
        self, tokens: np.ndarray, ids: np.ndarray, probs: np.ndarray, conf: np.ndarray
    ) -> None:
        """Store row i under tokens[i]; of several rows of one token in this call the first wins."""
        with self.guard:
            for token, *row in list(zip(tokens, ids, probs, conf, strict=True))[::-1]:
                self.ids[token], self.probs[token], self.confidence[token] = row

    def get(self, token: int) -> Row | None:
        """The row stored for a last token, or None."""
        with self.guard:
            conf = self.confidence.item(token)
            if conf < 0:
                return None
            return Row(self.ids[token].tolist(), self.probs[token].tolist(), conf)


_SHIFT = 20  # bits a token takes in a packed key: vocabularies up to 1,048,576
LARGEST_VOCAB = 1 << _SHIFT


@kernel
def key2(a, b):
    """Packed key of the last two tokens, oldest first."""
    return (a << _SHIFT) | b


@kernel
def key3(a, b, c):
    """Packed key of the last three tokens, oldest first."""
    return (a << 2 * _SHIFT) | (b << _SHIFT) | c


class Ring(NamedTuple):
    """The arrays of a request memory, as kernels see them: rows, and serial numbers by key."""

    ids: np.ndarray  # int32 [room, k]
    probs: np.ndarray  # float32 [room, k]
    confidence: np.ndarray  # float32 [room]
    keys: np.ndarray  # int64 [room, 2], the row's 2- and 3-token key
    by2: Table
    by3: Table
    written: np.ndarray  # int64 [1], rows written so far
    capacity: int


@kernel
def keep_row(ring, start, two, three, ids, probs, conf):
    """Store one row under its keys (-1: none), unless rows from serial `start` on have them already.

    A row that is overwritten takes the keys that still point at it along.
    """
    wins2 = two >= 0 and find(ring.by2, two) < start
    wins3 = three >= 0 and find(ring.by3, three) < start
    if not (wins2 or wins3):
        return
    serial = ring.written[0]
    slot = serial % ring.capacity
    old = serial - ring.capacity
    if old >= 0:
        if find(ring.by2, ring.keys[slot, 0]) == old:
            remove(ring.by2, ring.keys[slot, 0])
        if find(ring.by3, ring.keys[slot, 1]) == old:
            remove(ring.by3, ring.keys[slot, 1])
    ring.keys[slot, 0], ring.keys[slot, 1] = two, three
    if wins2:
        put(ring.by2, two, serial)
    if wins3:
        put(ring.by3, three, serial)
    for i in range(ring.ids.shape[1]):
        ring.ids[slot, i], ring.probs[slot, i] = ids[i], probs[i]
    ring.confidence[slot] = conf
    ring.written[0] = serial + 1


@kernel
def _keep_rows(ring, keys, ids, probs, conf):
    """Store row i under keys[i], int64 [n, 2]."""
    start = ring.written[0]
    for i in range(len(keys)):
        keep_row(ring, start, keys[i, 0], keys[i, 1], ids[i], probs[i], conf[i])


@kernel
def slot2(ring, two):
    """The slot of a 2-token key's row, -1 if there is none."""
    serial = find(ring.by2, two)
    return serial if serial < 0 else serial % ring.capacity


@kernel
def slot3(ring, three):
    """The slot of a 3-token key's row, -1 if there is none."""
    serial = find(ring.by3, three)
    return serial if serial < 0 else serial % ring.capacity


class RequestMemory:
    """Rows by the last two and the last three tokens, for one request; bounded, oldest out first.

    A verified node has one row and up to two keys, so both levels share one ring of rows. Each key
    points at the serial number of its latest row; a row that the ring overwrites takes the keys that
    still point at it along.
    """

    def __init__(self, top_k: int, capacity: int) -> None:
        if capacity < 1:
            raise ValueError("request_rows must be at least 1.")
        self.top_k, self.capacity = top_k, capacity
        self.clear()

    def clear(self) -> None:
        """Forget every row: a new request starts."""
        self._make(min(1024, self.capacity))

    def _make(self, room: int) -> None:
        self.ring = Ring(
            np.zeros((room, self.top_k), np.int32),
            np.zeros((room, self.top_k), np.float32),
            np.zeros(room, np.float32),
            np.full((room, 2), -1, np.int64),
            new_table(room),
            new_table(room),
            np.zeros(1, np.int64),
            self.capacity,
        )

    def __len__(self) -> int:
        """Distinct keys of both levels together."""
        return int(self.ring.by2.count[0] + self.ring.by3.count[0])

    def reserve(self, rows: int) -> Ring:
        """The ring, with room for so many rows more: to be called before a kernel stores them."""
        ring = self.ring
        room, need = len(ring.ids), min(int(ring.written[0]) + rows, self.capacity)
        if need > room:
            self._make(min(max(2 * room, need), self.capacity))
            for new, old in zip(self.ring[:4], ring[:4], strict=True):
                new[:room] = old
            self.ring.written[0] = ring.written[0]
            self.ring = self.ring._replace(by2=ring.by2, by3=ring.by3)
        tables = {name: with_room(getattr(ring, name), rows) for name in ("by2", "by3")}
        self.ring = self.ring._replace(**tables)
        return self.ring

    def write(
        self,
        keys: Sequence[tuple[int, int]],
        ids: np.ndarray,
        probs: np.ndarray,
        conf: np.ndarray,
    ) -> None:
        """Store row i under keys[i] = (2-token key, 3-token key), -1 for a key that does not exist.

        Of several rows with one key in this call the first wins; across calls the latest wins.
        """
        _keep_rows(self.reserve(len(keys)), np.array(keys, np.int64), ids, probs, conf)

    def get2(self, key: int) -> Row | None:
        """The row of a 2-token key, or None."""
        return self._row(slot2(self.ring, key))

    def get3(self, key: int) -> Row | None:
        """The row of a 3-token key, or None."""
        return self._row(slot3(self.ring, key))

    def _row(self, slot: int) -> Row | None:
        if slot < 0:
            return None
        ring = self.ring
        return Row(ring.ids[slot].tolist(), ring.probs[slot].tolist(), ring.confidence.item(slot))
