"""Drafters: everything that proposes a candidate tree. One file a decoder, one protocol (`base`)."""

from __future__ import annotations

from typing import Any

from .autoregressive import AutoregressiveDrafter
from .base import Drafter, Predictions
from .prompt_lookup import PromptLookupDrafter
from .recap import RecapDrafter
from .token_recycling import TokenRecyclingDrafter

DECODERS = ("recap", "token_recycling", "prompt_lookup", "autoregressive")
"""Names that `make_drafter` knows, in the order of comparisons."""


def make_drafter(name: str, *, vocab_size: int, **settings: Any) -> Drafter:
    """A fresh drafter with empty memories.

    vocab_size: width of the target's logits (`target.vocab_size`). settings: keyword arguments of the
    drafter's class, such as config=RecapConfig(...) for "recap" or warm=False for "token_recycling".
    Raises ValueError for an unknown name.
    """
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


__all__ = ["DECODERS", "Drafter", "Predictions", "make_drafter"]
