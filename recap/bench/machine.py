"""What a figure was measured on: the line above every table."""

from __future__ import annotations

import platform
from pathlib import Path
from typing import Any

import torch

from ..targets.base import Target


def machine(target: Target) -> dict[str, Any]:
    """Model, processor, device, dtype and torch's CPU threads, JSON-ready."""
    return {
        "model": target.name,
        "processor": _processor(target),
        "device": target.device,
        "dtype": target.dtype,
        "threads": torch.get_num_threads(),
    }


def _processor(target: Target) -> str:
    if target.device == "cuda":
        return torch.cuda.get_device_name()
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.processor() or platform.machine())


def in_words(report: dict[str, Any]) -> str:
    """The machine of a report as a line.

    >>> in_words({"model": "demo", "processor": "x86", "device": "cpu", "dtype": "float32", "threads": 1})
    'demo on x86 (cpu), float32, 1 CPU thread'
    """
    threads = f"{report['threads']} CPU thread{'' if report['threads'] == 1 else 's'}"
    return f"{report['model']} on {report['processor']} ({report['device']}), {report['dtype']}, {threads}"
