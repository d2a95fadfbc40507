"""The C library's memory, kept from growing: what a server frees goes back to the system.

glibc gives every thread an arena of its own and, after the first large block was freed, takes large
blocks from the heap too, where one small survivor holds a whole megabyte. A server with forty threads
then keeps what its busiest minute took. Elsewhere than on glibc these functions do nothing.
"""

from __future__ import annotations

import ctypes
import sys

ARENAS = 2
LARGE = 1 << 20
"""Bytes of a block that is mapped by itself, and so given back when it is freed."""

_M_MMAP_THRESHOLD, _M_ARENA_MAX = -3, -8  # malloc.h


def _glibc() -> ctypes.CDLL | None:
    if not sys.platform.startswith("linux"):
        return None
    library = ctypes.CDLL(None)
    return library if hasattr(library, "gnu_get_libc_version") else None


def steady() -> bool:
    """Few arenas, large blocks by themselves; to be called before threads start -> whether it was done."""
    library = _glibc()
    if library is None:
        return False
    return bool(library.mallopt(_M_ARENA_MAX, ARENAS) and library.mallopt(_M_MMAP_THRESHOLD, LARGE))


def trim() -> bool:
    """Give free pages back -> whether there were any."""
    library = _glibc()
    return library is not None and bool(library.malloc_trim(0))
