"""Drafters: everything that proposes a candidate tree. One file per decoder, one protocol (`base`)."""

from __future__ import annotations

import functools
import logging
import shutil
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from ..predictions import Predictions
from . import jit
from .base import Drafter
from .plain import AutoregressiveDrafter
from .prompt_lookup import PromptLookupDrafter
from .recap.drafter import RecapDrafter
from .token_recycling import TokenRecyclingDrafter

log = logging.getLogger("recap")

DRAFTERS: dict[str, Callable[..., Drafter]] = {
    "recap": RecapDrafter,
    "token_recycling": TokenRecyclingDrafter,
    "prompt_lookup": PromptLookupDrafter,
    "autoregressive": AutoregressiveDrafter,
}
"""Every decoder by its name, in the order of comparisons. A new one is a line here."""

DECODERS = tuple(DRAFTERS)


@functools.cache
def warm() -> float:
    """Make every drafter's kernels ready, once per process -> the seconds that it took.

    The first start on a machine compiles them (10 to 30 seconds); later ones read them from disk.
    """
    start = time.perf_counter()
    compiled, folder = jit.is_compiled(), jit.KERNEL_FOLDER
    if not compiled:
        again = "" if folder else f", at every start, because {jit.cache_folder()} is not writable"
        log.warning("Compiling the drafters, once per machine: up to half a minute%s.", again)
    try:
        _run_kernels()
    except Exception:
        if not compiled:
            raise
        log.warning("The compiled drafters in %s are damaged: compiling them again.", folder)
        shutil.rmtree(str(folder), ignore_errors=True)
        _run_kernels()
    return time.perf_counter() - start


def _run_kernels() -> None:
    """Draft and learn with every drafter on a tiny vocabulary, to compile whatever a run needs."""
    jit.reserve(jit.new_table(), 100)
    one = Predictions(np.zeros(1, np.int64), np.zeros((1, 8), np.int64), np.ones((1, 8), "f4"))
    for drafter in (RecapDrafter(8), TokenRecyclingDrafter(8), PromptLookupDrafter(8)):
        drafter.begin([1, 2, 3, 1], blocked=frozenset(), terminal=frozenset())
        drafter.seed([3], one)
        drafter.confirm([2])
        for _ in range(2):
            tree = drafter.propose(limit=1, record=False)
            tree.ancestor_mask()
            columns = (one.choice, one.top_ids, one.top_probs)
            predictions = Predictions(*(np.repeat(c, len(tree), axis=0) for c in columns))
            drafter.observe(tree, predictions, [])
            drafter.confirm([2])


def make_drafter(name: str, *, vocab_size: int, **settings: Any) -> Drafter:
    """A new drafter with empty memories.

    vocab_size: width of the target's logits (`target.vocab_size`). settings: keyword arguments of the
    drafter's class, such as config=RecapConfig(...) for "recap" or warm=False for "token_recycling".
    Raises ValueError for an unknown name.
    """
    if name not in DRAFTERS:
        raise ValueError(f"Unknown decoder “{name}”: use {', '.join(DECODERS)}.")
    warm()
    return DRAFTERS[name](vocab_size, **settings)


__all__ = ["DECODERS", "Drafter", "Predictions", "make_drafter", "warm"]
