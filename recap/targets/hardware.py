"""What computes here, in words: for the page, for reports, and for the key of measured pass times."""

from __future__ import annotations

import platform
from pathlib import Path


def processor(device: str) -> str:
    """A GPU's name, or the CPU's. device: a target's, such as "cpu" or "cuda"."""
    if device.startswith("cuda"):
        import torch  # not before a model is loaded: it takes seconds

        return torch.cuda.get_device_name(device)
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.processor() or platform.machine())


def cpu_threads() -> int:
    """Threads that torch uses for one operation on the CPU."""
    import torch

    return torch.get_num_threads()
