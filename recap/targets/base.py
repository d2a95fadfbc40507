"""What the engine asks of a target model: encode a conversation, prefill, verify a tree, keep rows."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from PIL.Image import Image

from ..predictions import Predictions


@dataclass(frozen=True, slots=True)
class Message:
    """One message of a conversation. `role` is "user" or "assistant"; images come before the text."""

    role: str
    text: str
    images: tuple[Image, ...] = ()


@dataclass
class KVState:
    """The target's memory of one conversation: KV cache and whatever positions need.

    Opaque to the engine but for `length` (rows in the cache = confirmed tokens but the last one).
    Owned by one conversation; the model object itself holds nothing between calls.
    """

    cache: Any
    length: int = 0
    extra: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Segment:
    """New tokens to prefill behind what a conversation already holds.

    ids: token ids to append (placeholders expanded). inputs: the processor's further tensors for the
    NEW images alone (pixel_values, image_grid_thw, image_sizes, ...), empty for text. images: for each
    of them where its placeholders lie, (start, stop) counted from the segment's first token.
    """

    ids: tuple[int, ...]
    inputs: dict[str, Any] = field(default_factory=dict)
    images: tuple[tuple[int, int], ...] = ()


class Target(Protocol):
    """A loaded model with its processor. `lock` serialises passes over the device.

    `prefill`, `verify` and `keep` take the lock themselves for as long as they run; hold it to keep
    others out for longer.
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
    """How passes run here ("packed", "plain, static", ...): what their cost depends on beside the model."""
    notes: tuple[str, ...]
    """Sentences on what was changed for losslessness (a neutralised repetition penalty, ...)."""
    max_context: int
    """Most tokens of prompt and answer together; the engine ends an answer there."""

    def encode(
        self, messages: Sequence[Message], known: Sequence[int], answer: Sequence[int] | None
    ) -> Segment:
        """The tokens to append for the last message (a user's).

        known: exact ids of the conversation so far, the last answer included; empty at the start.
        answer: ids of the last answer as generated (with EOS if it was emitted), None at the start.
        Raises ValueError with one clear sentence for input that the model cannot take.
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
        """Run ids[state.length:] through the model, filling the cache.

        ids: all tokens of the conversation, ending with segment.ids (the part in front of them that is
        not yet in the cache may be the last answer's final token). positions: absolute positions
        (ascending, all >= state.length, the last one len(ids) - 1) whose predictions are wanted.
        Afterwards state.length == len(ids). To fill a new cache from an old conversation, replay its
        segments one by one, each with all ids up to its end.
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
        """One packed pass. tokens, depths [N]; mask bool [N, N] (row i attends to row j).

        Writes N rows behind the cache; `keep` must follow. state.length does not change.
        """
        ...

    def compact(self, state: KVState, rows: Sequence[int]) -> None:
        """Keep these packed rows of the last pass (ascending, row 0 first) and drop the others.

        state.length grows by len(rows).
        """
        ...

    def crop(self, state: KVState, length: int) -> None:
        """Shorten the cache to its first `length` rows. Raises ValueError inside an image."""
        ...

    def decode(self, ids: Sequence[int]) -> str:
        """Text of an answer, special tokens left out."""
        ...

    def token_text(self, token: int) -> str:
        """One token as shown in a tree, specials included; partial UTF-8 as replacement marks."""
        ...
