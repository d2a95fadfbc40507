"""Target models: one adapter a family behind one protocol (`base`), and the loader that picks it."""

from __future__ import annotations

from .base import KVState, Message, Segment, Target
from .loader import DEMO, SUPPORTED, LoadError, load_target

__all__ = [
    "DEMO",
    "SUPPORTED",
    "KVState",
    "LoadError",
    "Message",
    "Segment",
    "Target",
    "load_target",
]
