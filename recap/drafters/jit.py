"""Kernels compiled on first use (numba), and the hash table that they share. No torch.

Drafting runs between two passes of the target, so its time counts in every token. The kernels work on
plain arrays, release the interpreter lock, and hold the rules of the memories, the lookup and the tree;
the classes around them hold the arrays.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numba
import numpy as np

KERNELS = (
    "jit.py",
    "recap/acceptance.py",
    "recap/grow.py",
    "recap/learn.py",
    "recap/memory.py",
    "recap/mixture.py",
    "suffix_lookup.py",
    "token_recycling.py",
    "tree.py",
)
"""Files with kernels. They call one another, so what was compiled earlier holds only while none has changed."""


def cache_folder() -> Path:
    """Where results that can be made again are kept: RECAP_CACHE, or ~/.cache/recap."""
    return Path(os.environ.get("RECAP_CACHE") or Path.home() / ".cache" / "recap")


def _kernel_folder() -> str | None:
    """The folder of this version's machine code, None where none can be written."""
    here = Path(__file__).parent
    text = b"".join((here / name).read_bytes() for name in KERNELS)
    folder = cache_folder() / f"kernels-{hashlib.sha256(text).hexdigest()[:16]}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        return None
    return str(folder) if os.access(folder, os.W_OK) else None


_FOLDER = _kernel_folder()


def kept_in() -> str | None:
    """The folder of this version's machine code, None where none can be written."""
    return _FOLDER


def kept() -> bool:
    """Whether kernels were compiled on this machine before."""
    return _FOLDER is not None and next(Path(_FOLDER).rglob("*.nbi"), None) is not None


def _compiled(function: Callable[..., Any], **options: Any) -> Any:
    if _FOLDER is None:
        return numba.njit(nogil=True, **options)(function)
    before, numba.config.CACHE_DIR = numba.config.CACHE_DIR, _FOLDER
    try:
        return numba.njit(nogil=True, cache=True, **options)(function)
    finally:
        numba.config.CACHE_DIR = before


def kernel(function: Callable[..., Any]) -> Any:
    """Compile a function on its first call; kept on disk, so that the next process need not.

    It works in the arrays that it is given and makes none: without counting references to them it is
    several times as fast.
    """
    return _compiled(function, _nrt=False)


def maker(function: Callable[..., Any]) -> Any:
    """The same for a function that makes arrays."""
    return _compiled(function)


EMPTY = -1
"""Marks a free place of a table, and stands for "no value"."""


CELL = np.dtype([("key", np.int64), ("value", np.int64)])


class Table(NamedTuple):
    """A hash table from non-negative keys to non-negative numbers: open addressing, linear probing.

    cells: CELL [a power of two]; count: int64 [1], keys in use. Not more than half may be in use.
    """

    cells: np.ndarray
    count: np.ndarray


def new_table(room: int = 0) -> Table:
    """An empty table for up to `room` keys."""
    size = 16
    while size < 2 * room:
        size *= 2
    return Table(np.full(size, EMPTY, CELL), np.zeros(1, np.int64))


def with_room(table: Table, more: int) -> Table:
    """The table itself if `more` keys fit, else a larger one with the same content."""
    need = int(table.count[0]) + more
    if 2 * need <= len(table.cells):
        return table
    grown = new_table(2 * need)
    _copy(table, grown)
    return grown


@kernel
def _home(table, key):
    """Where a key's probing starts."""
    mixed = key * np.int64(-7046029254386353131)
    return (mixed ^ (mixed >> 32)) & (len(table.cells) - 1)


@kernel
def find(table, key):
    """The key's value, EMPTY if it is not there."""
    at = _home(table, key)
    while table.cells[at].key != EMPTY:
        if table.cells[at].key == key:
            return table.cells[at].value
        at = (at + 1) & (len(table.cells) - 1)
    return EMPTY


@kernel
def put(table, key, value):
    """Set the key's value. There must be room."""
    at = _home(table, key)
    while table.cells[at].key != EMPTY:
        if table.cells[at].key == key:
            table.cells[at].value = value
            return
        at = (at + 1) & (len(table.cells) - 1)
    table.cells[at].key = key
    table.cells[at].value = value
    table.count[0] += 1


@kernel
def remove(table, key):
    """Take a key out, if it is there; the run of keys behind it closes up."""
    last = len(table.cells) - 1
    at = _home(table, key)
    while table.cells[at].key != key:
        if table.cells[at].key == EMPTY:
            return
        at = (at + 1) & last
    table.count[0] -= 1
    free, at = at, (at + 1) & last
    while table.cells[at].key != EMPTY:
        # may it move up? only if its home does not lie behind the free place
        if ((at - _home(table, table.cells[at].key)) & last) >= ((at - free) & last):
            table.cells[free].key, table.cells[free].value = (
                table.cells[at].key,
                table.cells[at].value,
            )
            free = at
        at = (at + 1) & last
    table.cells[free].key = EMPTY


@kernel
def _copy(table, to):
    for at in range(len(table.cells)):
        if table.cells[at].key != EMPTY:
            put(to, table.cells[at].key, table.cells[at].value)
