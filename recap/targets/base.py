"""What the engine asks of a target model: encode a conversation, prefill, verify a tree, compact the cache."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from PIL.Image import Image

from ..predictions import Predictions
from .images import ImageFile


@dataclass(frozen=True, slots=True)
class Message:
    """One message of a conversation. `role` is "user" or "assistant"; images come before the text."""

    role: str
    text: str
    images: tuple[Image | ImageFile, ...] = ()


@dataclass
class KVState:
    """What a target keeps of one conversation: the KV cache and whatever positions need.

    Opaque to the engine except for `length`: the KV slots filled, one for each confirmed token but the last.
    Owned by one conversation; the model object itself holds nothing between calls.
    """

    cache: Any
    length: int = 0
    extra: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Segment:
    """New tokens to prefill behind what a conversation already holds.

    ids: token ids to append (placeholders expanded). inputs: the processor's other tensors for the NEW
    images only (pixel_values, image_grid_thw, image_sizes, ...), empty for text. images: the placeholders
    of each of them, (start, stop) counted from the segment's first token.
    """

    ids: tuple[int, ...]
    inputs: dict[str, Any] = field(default_factory=dict)
    images: tuple[tuple[int, int], ...] = ()


class Target(Protocol):
    """A loaded model with its processor. `lock` serializes passes on the device.

    `prefill`, `verify`, `compact` and `crop` take the lock themselves while they run. Hold it from a `verify`
    to its `compact`: passes in fixed shapes share one working store.
    """

    name: str
    device: str
    dtype: str
    vocab_size: int
    eos_ids: frozenset[int]
    blocked: frozenset[int]
    sees_images: bool
    lock: AbstractContextManager[bool]
    passes: str
    """How passes run ("packed", "plain, captured", ...): their cost depends on it."""
    notes: tuple[str, ...]
    """Sentences on what was changed for losslessness (a neutralised repetition penalty, ...)."""
    max_context: int
    """Most tokens of a conversation, the answer included; the engine ends an answer there."""

    def encode(
        self, messages: Sequence[Message], known: Sequence[int], answer: Sequence[int] | None
    ) -> Segment:
        """The tokens to append for the last message (a user's).

        known: exact ids of the conversation so far, the last answer included; empty at the start. answer:
        ids of the last answer as generated (with EOS if it was emitted), None at the start. Raises
        ValueError with one clear sentence for input that the model cannot take.
        """
        ...

    def new_state(self) -> KVState: ...

    def prefill(
        self,
        state: KVState,
        ids: Sequence[int],
        segment: Segment,
        *,
        positions: Sequence[int],
        top_k: int,
    ) -> Predictions:
        """Run ids[state.length:] through the model and fill the cache.

        ids: all tokens of the conversation, ending with segment.ids (before them, the last answer's final
        token may not be in the cache yet). positions: absolute positions whose predictions are wanted,
        ascending, all >= state.length, the last one len(ids) - 1. Afterwards state.length == len(ids). To
        fill a new cache from an old conversation, replay its segments one by one, each with all ids up to
        its end.
        """
        ...

    def verify(
        self,
        state: KVState,
        tokens: Sequence[int],
        depths: Sequence[int],
        mask: np.ndarray,
        *,
        top_k: int,
    ) -> Predictions:
        """One packed pass. tokens, depths [N]; mask bool [N, N] (token i attends to token j).

        Writes N slots behind the cache; `compact` must follow. state.length does not change.
        """
        ...

    def compact(self, state: KVState, kept: Sequence[int]) -> None:
        """Keep the KV slots of these packed tokens of the last pass (ascending, 0 first), drop the others.

        state.length grows by len(kept).
        """
        ...

    def crop(self, state: KVState, length: int) -> None:
        """Shorten the cache to its first `length` slots. Raises ValueError inside an image."""
        ...

    def decode(self, ids: Sequence[int]) -> str:
        """Text of an answer, without special tokens."""
        ...

    def token_text(self, token: int) -> str:
        """One token as shown in a tree, special tokens by name; partial UTF-8 as U+FFFD."""
        ...
