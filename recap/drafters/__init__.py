"""Drafters: everything that proposes a candidate tree. One file a decoder, one protocol (`base`)."""

from __future__ import annotations

import functools
import logging
import shutil
import time
from typing import Any

import numpy as np

from ..predictions import Predictions
from .base import Drafter
from .jit import cache_folder, kept, kept_in, new_table, with_room
from .plain import AutoregressiveDrafter
from .prompt_lookup import PromptLookupDrafter
from .recap.drafter import RecapDrafter
from .token_recycling import TokenRecyclingDrafter

log = logging.getLogger("recap")

DECODERS = ("recap", "token_recycling", "prompt_lookup", "autoregressive")
"""Names that `make_drafter` knows, in the order of comparisons."""


@functools.cache
def warm() -> float:
    """Have every drafter's kernels ready -> the seconds that it took, once a process.

    Compiled once on a machine (10 to 30 seconds), read from disk afterwards (under one).
    """
    begun = time.perf_counter()
    if not kept():
        again = (
            "" if kept_in() else f", at every start, for nothing can be written in {cache_folder()}"
        )
        log.warning("Compiling the drafters, once on a machine: up to half a minute%s.", again)
    try:
        _use_all()
    except Exception:
        if not kept():
            raise
        log.warning("The compiled drafters in %s are damaged: making them anew.", kept_in())
        shutil.rmtree(str(kept_in()), ignore_errors=True)
        _use_all()
    return time.perf_counter() - begun


def _use_all() -> None:
    """One small tree by every drafter."""
    with_room(new_table(), 100)
    said = Predictions(np.zeros(1, np.int64), np.zeros((1, 8), np.int64), np.ones((1, 8), "f4"))
    for made in (RecapDrafter(8), TokenRecyclingDrafter(8), PromptLookupDrafter()):
        made.begin([1, 2, 3, 1], blocked=frozenset(), terminal=frozenset())
        if made.seeds:
            made.seed([3], said)
        made.confirm([2])
        for _ in range(2):
            tree = made.propose(limit=1, record=False)
            tree.ancestor_mask()
            many = Predictions(
                *(
                    np.repeat(a, len(tree), axis=0)
                    for a in (said.choice, said.top_ids, said.top_probs)
                )
            )
            made.observe(tree, many, [])
            made.confirm([2])


def make_drafter(name: str, *, vocab_size: int, **settings: Any) -> Drafter:
    """A fresh drafter with empty memories.

    vocab_size: width of the target's logits (`target.vocab_size`). settings: keyword arguments of the
    drafter's class, such as config=RecapConfig(...) for "recap" or warm=False for "token_recycling".
    Raises ValueError for an unknown name.
    """
    warm()
    match name:
        case "recap":
            return RecapDrafter(vocab_size, **settings)
        case "token_recycling":
            return TokenRecyclingDrafter(vocab_size, **settings)
        case "prompt_lookup":
            return PromptLookupDrafter(**settings)
        case "autoregressive":
            return AutoregressiveDrafter(**settings)
    raise ValueError(f'There is no decoder "{name}". Choose one of: {", ".join(DECODERS)}.')


__all__ = ["DECODERS", "Drafter", "Predictions", "make_drafter", "warm"]
