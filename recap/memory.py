"""What the target once predicted, kept by key: the row store behind Recap's three levels.

A row is a next-token prediction: k token ids, their probabilities over the full vocabulary, and a
confidence from the entropy. `PersistentMemory` keeps one row per last token and outlives requests;
`RequestMemory` keeps rows per last two and last three tokens for one request. Neither mixes rows nor
grows trees (`mixture`, `drafters`). No torch.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np


class Row(NamedTuple):
    """One stored prediction: ids best first, full-vocabulary probabilities, confidence in [0, 1]."""

    ids: list[int]
    probs: list[float]
    confidence: float


def confidence(probs: np.ndarray) -> np.ndarray:
    """1 - H / ln k for each row, H the entropy of its k entries renormalised.

    probs: [N, k] -> float32 [N]; 1 where one entry holds everything, 0 where all are equal.

    >>> confidence(np.array([[1.0, 0.0], [0.25, 0.25]])).round(3).tolist()
    [1.0, 0.0]
    """
    k = probs.shape[1]
    if k < 2:
        return np.ones(len(probs), np.float32)
    shares = probs.astype(np.float64)
    shares /= np.maximum(shares.sum(axis=1, keepdims=True), 1e-30)
    entropy = -(shares * np.log(np.maximum(shares, 1e-30))).sum(axis=1)
    return np.clip(1.0 - entropy / math.log(k), 0.0, 1.0).astype(np.float32)


def first_of_each(keys: np.ndarray) -> np.ndarray:
    """Indexes of the first occurrence of each key: inside one pass the first row of a key wins.

    >>> first_of_each(np.array([4, 2, 4, 9])).tolist()
    [0, 1, 3]
    """
    first: dict[int, int] = {}
    for place, key in enumerate(keys.tolist()):
        first.setdefault(key, place)
    return np.fromiter(first.values(), np.intp, len(first))


class PersistentMemory:
    """One row per last token, for a whole vocabulary; the latest row of a token wins.

    Lives as long as its owner (a session, a user, a service): the owner decides who shares it and
    calls `clear` when crossing a boundary. 68 bytes a vocabulary entry at k = 8.
    """

    def __init__(self, vocab_size: int, top_k: int) -> None:
        self.vocab_size, self.top_k = vocab_size, top_k
        self.ids = np.zeros((vocab_size, top_k), np.int32)
        self.probs = np.zeros((vocab_size, top_k), np.float32)
        self.confidence = np.full(vocab_size, -1.0, np.float32)  # -1: no row yet

    def __len__(self) -> int:
        return int((self.confidence >= 0).sum())

    def clear(self) -> None:
        """Forget every row."""
        self.ids.fill(0)
        self.probs.fill(0.0)
        self.confidence.fill(-1.0)

    def write(
        self, tokens: np.ndarray, ids: np.ndarray, probs: np.ndarray, conf: np.ndarray
    ) -> None:
        """Store row i under tokens[i]; of several rows of one token in this call the first wins."""
        first = first_of_each(tokens)
        kept = tokens[first]
        self.ids[kept] = ids[first]
        self.probs[kept] = probs[first]
        self.confidence[kept] = conf[first]

    def get(self, token: int) -> Row | None:
        """The row stored for a last token, or None."""
        conf = self.confidence.item(token)
        if conf < 0:
            return None
        return Row(self.ids[token].tolist(), self.probs[token].tolist(), conf)


_SHIFT = 20  # bits a token takes in a packed key: vocabularies up to 1,048,576


def key2(a: int, b: int) -> int:
    """Packed key of the last two tokens, oldest first."""
    return (a << _SHIFT) | b


def key3(a: int, b: int, c: int) -> int:
    """Packed key of the last three tokens, oldest first."""
    return (a << 2 * _SHIFT) | (b << _SHIFT) | c


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
        self._room = 0  # rows allocated, doubling up to capacity
        self._by2: dict[int, int] = {}
        self._by3: dict[int, int] = {}
        self.clear()

    def clear(self) -> None:
        """Forget every row: a new request starts."""
        self._room = min(1024, self.capacity)
        self._ids = np.zeros((self._room, self.top_k), np.int32)
        self._probs = np.zeros((self._room, self.top_k), np.float32)
        self._conf = np.zeros(self._room, np.float32)
        self._keys: list[tuple[int, int]] = [(-1, -1)] * self._room
        self._written = 0
        self._by2.clear()
        self._by3.clear()

    def __len__(self) -> int:
        """Distinct keys of both levels together."""
        return len(self._by2) + len(self._by3)

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
        start = self._written
        rows: list[int] = []
        slots: list[int] = []
        for row, pair in enumerate(keys):
            wins2 = pair[0] >= 0 and self._by2.get(pair[0], -1) < start
            wins3 = pair[1] >= 0 and self._by3.get(pair[1], -1) < start
            if not (wins2 or wins3):
                continue
            serial = self._written
            slot = self._claim(serial)
            rows.append(row)
            slots.append(slot)
            self._keys[slot] = pair
            if wins2:
                self._by2[pair[0]] = serial
            if wins3:
                self._by3[pair[1]] = serial
            self._written = serial + 1
        self._ids[slots] = ids[rows]
        self._probs[slots] = probs[rows]
        self._conf[slots] = conf[rows]

    def _claim(self, serial: int) -> int:
        """The slot of a new serial; grows the arrays, or evicts the row that stands there."""
        slot = serial % self.capacity
        if slot >= self._room:
            self._grow()
        elif serial >= self.capacity:
            old = serial - self.capacity
            pair = self._keys[slot]
            if self._by2.get(pair[0]) == old:
                del self._by2[pair[0]]
            if self._by3.get(pair[1]) == old:
                del self._by3[pair[1]]
        return slot

    def _grow(self) -> None:
        more = min(2 * self._room, self.capacity) - self._room
        self._ids = np.concatenate([self._ids, np.zeros((more, self.top_k), np.int32)])
        self._probs = np.concatenate([self._probs, np.zeros((more, self.top_k), np.float32)])
        self._conf = np.concatenate([self._conf, np.zeros(more, np.float32)])
        self._keys.extend([(-1, -1)] * more)
        self._room += more

    def get2(self, key: int) -> Row | None:
        """The row of a 2-token key, or None."""
        serial = self._by2.get(key)
        return None if serial is None else self._row(serial % self.capacity)

    def get3(self, key: int) -> Row | None:
        """The row of a 3-token key, or None."""
        serial = self._by3.get(key)
        return None if serial is None else self._row(serial % self.capacity)

    def _row(self, slot: int) -> Row:
        return Row(self._ids[slot].tolist(), self._probs[slot].tolist(), self._conf.item(slot))
