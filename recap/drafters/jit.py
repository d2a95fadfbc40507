"""Kernels compiled on first use (numba), and the hash table that they share.

Drafting runs between two passes of the target, so its time counts for every token. The kernels work on
plain arrays and release the interpreter lock. The classes around them own the arrays.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numba
import numpy as np


def cache_folder() -> Path:
    """The folder for results that can be computed again: RECAP_CACHE, or ~/.cache/recap."""
    return Path(os.environ.get("RECAP_CACHE") or Path.home() / ".cache" / "recap")


def _kernel_folder(sources: Path = Path(__file__).parent) -> Path | None:
    """A folder that is new whenever a source file changes: kernels are inlined into each other."""
    files = sorted(sources.rglob("*.py"))
    digest = hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()
    folder = cache_folder() / f"kernels-{digest[:16]}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        return None
    return folder if os.access(folder, os.W_OK) else None


KERNEL_FOLDER = _kernel_folder()
"""Where this version's machine code is cached, None where nothing can be written."""


def is_compiled() -> bool:
    """Whether an earlier process compiled kernels of this version."""
    return KERNEL_FOLDER is not None and next(KERNEL_FOLDER.rglob("*.nbi"), None) is not None


def _compile(function: Callable[..., Any], **options: Any) -> Any:
    if KERNEL_FOLDER is None:
        return numba.njit(nogil=True, **options)(function)
    before, numba.config.CACHE_DIR = numba.config.CACHE_DIR, str(KERNEL_FOLDER)
    try:
        return numba.njit(nogil=True, cache=True, **options)(function)
    finally:
        numba.config.CACHE_DIR = before


def kernel(function: Callable[..., Any]) -> Any:
    """Compile a function that writes into the arrays it is given and creates none.

    Without reference counts on its arrays it runs several times as fast.
    """
    return _compile(function, _nrt=False)


def array_kernel(function: Callable[..., Any]) -> Any:
    """Compile a function that creates arrays."""
    return _compile(function)


EMPTY = -1
"""Marks a free cell of a table, and stands for "no value"."""


CELL = np.dtype([("key", np.int64), ("value", np.int64)])


class Table(NamedTuple):
    """A hash table from non-negative keys to non-negative numbers: open addressing, linear probing.

    cells: CELL [a power of two], at most half of them in use; count: int64 [1], keys in use.
    """

    cells: np.ndarray
    count: np.ndarray


def new_table(capacity: int = 0) -> Table:
    """An empty table for up to `capacity` keys."""
    size = 16
    while size < 2 * capacity:
        size *= 2
    return Table(np.full(size, EMPTY, CELL), np.zeros(1, np.int64))


def reserve(table: Table, more: int) -> Table:
    """The same table if `more` keys fit, otherwise a larger copy."""
    needed = int(table.count[0]) + more
    if 2 * needed <= len(table.cells):
        return table
    larger = new_table(2 * needed)
    _copy(table, larger)
    return larger


@kernel
def _home(table, key):
    """The cell where probing for a key starts."""
    mixed = key * np.int64(-7046029254386353131)
    return (mixed ^ (mixed >> 32)) & (len(table.cells) - 1)


@kernel
def _probe(table, key):
    """The cell that holds the key, or the free cell where it would go."""
    at = _home(table, key)
    while table.cells[at].key != EMPTY and table.cells[at].key != key:
        at = (at + 1) & (len(table.cells) - 1)
    return at


@kernel
def find(table, key):
    """The key's value, EMPTY if the key is missing."""
    return table.cells[_probe(table, key)].value


@kernel
def put(table, key, value):
    """Set the key's value. A new key needs a reserved cell."""
    cell = table.cells[_probe(table, key)]
    table.count[0] += cell.key == EMPTY
    cell.key, cell.value = key, value


@kernel
def remove(table, key):
    """Remove a key if it is there, and close the gap in the run of cells after it."""
    last = len(table.cells) - 1
    free = _probe(table, key)
    if table.cells[free].key == EMPTY:
        return
    table.count[0] -= 1
    at = (free + 1) & last
    while table.cells[at].key != EMPTY:
        # a key may move back only if its home is not between the free cell and its own
        if ((at - _home(table, table.cells[at].key)) & last) >= ((at - free) & last):
            _move(table.cells[at], table.cells[free])
            free = at
        at = (at + 1) & last
    table.cells[free].key = table.cells[free].value = EMPTY


@kernel
def _move(cell, to):
    to.key, to.value = cell.key, cell.value


@kernel
def _copy(table, to):
    for at in range(len(table.cells)):
        if table.cells[at].key != EMPTY:
            put(to, table.cells[at].key, table.cells[at].value)
