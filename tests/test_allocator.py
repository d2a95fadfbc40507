"""What the server's allocator settings are for, in a process of its own."""

from __future__ import annotations

import subprocess
import sys

import pytest

CHURN = """
import ctypes, sys
from recap.server import allocator
if sys.argv[1] == "steady":
    assert allocator.steady()
libc = ctypes.CDLL(None)
libc.malloc.restype, libc.malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
libc.free.argtypes = [ctypes.c_void_p]
libc.memset.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t]
libc.free(libc.malloc(16 << 20))  # from now on glibc takes blocks of that size from the heap
blocks = []
for _ in range(60):
    block = libc.malloc(2 << 20)
    libc.memset(block, 1, 2 << 20)
    blocks.append(block)
    libc.malloc(100_000)  # a small survivor above it
for block in blocks:
    libc.free(block)
print(int(open("/proc/self/statm").read().split()[1]) * 4096 // 1_000_000)
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="for glibc")
def test_freed_blocks_go_back_to_the_system():
    def resident_mb(how: str) -> int:
        made = subprocess.run(
            [sys.executable, "-c", CHURN, how], capture_output=True, text=True, check=True
        )
        return int(made.stdout)

    assert resident_mb("as it is") - resident_mb("steady") > 60
