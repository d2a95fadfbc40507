"""What a figure was measured on: the line above every table."""

from __future__ import annotations

from typing import Any

from ..targets.base import Target
from ..targets.hardware import cpu_threads, processor


def machine(target: Target) -> dict[str, Any]:
    """Model, processor, device, dtype and torch's CPU threads, JSON-ready."""
    return {
        "model": target.name,
        "processor": processor(target.device),
        "device": target.device,
        "dtype": target.dtype,
        "threads": cpu_threads(),
    }


def in_words(report: dict[str, Any]) -> str:
    """The machine of a report as a line.

    >>> in_words({"model": "demo", "processor": "x86", "device": "cpu", "dtype": "float32", "threads": 1})
    'demo on x86 (cpu), float32, 1 CPU thread'
    """
    threads = f"{report['threads']} CPU thread{'' if report['threads'] == 1 else 's'}"
    return f"{report['model']} on {report['processor']} ({report['device']}), {report['dtype']}, {threads}"
