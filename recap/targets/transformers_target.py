"""The target that all families share: the packed pass, the prefill, the conversation's tokens.

A family adds what is its own (`causal_lm`, `qwen_vl`, `llava_next`): how images become placeholders
and features, and at which positions tokens stand. Nothing is stored on the model object; what a
conversation needs lies in its KVState:

    extra["images"]   list[ImageSpan], the images whose features are in the cache, in order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from PIL.Image import Image

from ..predictions import Predictions
from . import device_map, logits, packed_cpu
from .base import KVState, Message, Segment
from .captured import StaticPass
from .chat_template import Dialogue
from .device_lock import FairLock
from .kv_cache import KVCache
from .masks import Masks
from .vocabulary import Vocabulary


@dataclass(frozen=True, slots=True)
class ImageSpan:
    """Where one image lies in a conversation's tokens: placeholders [start, stop).

    shift: by how much positions behind it lag its token count (0 but for M-RoPE). grid: its patch
    grid (time, height, width) where the family needs one.
    """

    start: int
    stop: int
    shift: int = 0
    grid: tuple[int, int, int] | None = None


class TransformersTarget:
    """A transformers model behind the Target protocol; see `base.Target` for what each method does."""

    sees_images = False

    def __init__(
        self,
        model: Any,
        tokenizer: Any,
        *,
        name: str,
        template: str,
        eos_ids: frozenset[int],
        notes: tuple[str, ...] = (),
        packed: bool = True,
        static: bool = False,
    ) -> None:
        """packed: lay the language model's weights out for small passes where this CPU can. static: run
        packed passes in fixed shapes, as captured graphs on CUDA."""
        self.model, self.tokenizer, self.name, self.notes = model, tokenizer, name, notes
        self.eos_ids = eos_ids
        self.lock = FairLock()
        config = model.config.get_text_config()
        self.max_context = int(config.max_position_embeddings)
        self.vocab_size = int(model.get_output_embeddings().weight.shape[0])
        assert self.vocab_size < logits.LARGEST_ID, "ids travel as float32"
        first = model.get_input_embeddings().weight.device
        self._device, self._dtype = first, model.dtype
        self.device, self.dtype = str(first.type), str(model.dtype).removeprefix("torch.")
        self.blocked = self._blocked()
        self.vocabulary = Vocabulary(tokenizer, self.blocked | eos_ids)
        self.dialogue = Dialogue(
            tokenizer,
            self.vocabulary,
            template,
            eos_ids=eos_ids,
            image_token=self._image_token(),
            special_tokens=self.sees_images,
        )
        self.language, self.output_layer = self._language_model(), model.get_output_embeddings()
        self._devices = device_map.layer_devices(self.language)
        packed = packed and not self._devices and packed_cpu.available(self._device, self._dtype)
        if packed:
            packed_cpu.pack(self.language)
            # a copy: it may be the embedding's weight
            self.output_layer = packed_cpu.PackedLinear(self.output_layer)
            packed_cpu.warm(self.language, self.output_layer)
        self._layers = int(config.num_hidden_layers)
        self._masks = Masks(config, self._device, self._dtype)
        self._static: StaticPass | None = None
        # eager takes other masks, and a captured graph stays on one device
        if static and not self._devices and config._attn_implementation == "sdpa":
            self._static = StaticPass(self)
        self.passes = f"{'packed' if packed else 'plain'}{', static' if self._static else ''}"

    # What a family adds.

    def _language_model(self) -> Any:
        """The module from token ids to hidden states."""
        return self.model.model

    def _blocked(self) -> frozenset[int]:
        return frozenset()

    def _image_token(self) -> str | None:
        return None

    def image_inputs(self, images: Sequence[Image]) -> tuple[dict[str, Any], list[int]]:
        """The image processor's tensors, and the number of placeholders for each image."""
        raise ValueError(f"{self.name} reads text only: ask it without an image.")

    def _spans(self, segment: Segment, offset: int) -> list[ImageSpan]:
        """The segment's images at their places in the conversation."""
        return [ImageSpan(offset + start, offset + stop) for start, stop in segment.images]

    def _positions(self, state: KVState, depths: torch.Tensor) -> torch.Tensor:
        """Position ids for rows at these depths (int64 [N]) behind the cache -> [1, N] or [3, 1, N]."""
        return (depths + state.length)[None]

    def _chunk_positions(self, state: KVState, ids: Sequence[int]) -> torch.Tensor:
        """Position ids for ids[state.length:]; state.extra["images"] holds the new images already."""
        return self._positions(state, torch.arange(len(ids) - state.length, device=self._device))

    def _see(self, feed: torch.Tensor, inputs: dict[str, Any], **pass_: Any) -> torch.Tensor:
        """Hidden states [1, N, D] of a chunk that holds images."""
        raise NotImplementedError

    # The protocol.

    def encode(
        self, messages: Sequence[Message], known: Sequence[int], answer: Sequence[int] | None
    ) -> Segment:
        """See `Target.encode`."""
        new = [messages[-1]] if known else messages
        images = [image for message in new for image in message.images]
        inputs, counts = self.image_inputs(images) if images else ({}, [])
        if known:
            ids = self.dialogue.later(messages, counts, answer or ())
        else:
            ids = self.dialogue.first(messages, counts)
        total = len(known) + len(ids)
        if total >= self.max_context:
            lighter = "use a smaller image" if images else "ask a shorter question"
            raise ValueError(
                f"The conversation would have {total} tokens, and {self.name} takes at most "
                f"{self.max_context}: {lighter}, or start a new one."
            )
        return Segment(tuple(ids), inputs, self._find(ids, counts))

    def _find(self, ids: Sequence[int], counts: Sequence[int]) -> tuple[tuple[int, int], ...]:
        """Spans of the placeholders, `counts[i]` of them for image i."""
        if not counts:
            return ()
        token = self.tokenizer.convert_tokens_to_ids(self._image_token())
        places = [at for at, i in enumerate(ids) if i == token]
        assert len(places) == sum(counts), "one placeholder for each feature"
        spans, used = [], 0
        for count in counts:
            spans.append((places[used], places[used + count - 1] + 1))
            assert spans[-1][1] - spans[-1][0] == count, "an image's placeholders are contiguous"
            used += count
        return tuple(spans)

    def new_state(self) -> KVState:
        """An empty cache."""
        return KVState(KVCache(self._layers, devices=self._devices), 0, {"images": []})

    @torch.inference_mode()
    def prefill(
        self,
        state: KVState,
        ids: Sequence[int],
        segment: Segment,
        *,
        positions: Sequence[int],
        top_k: int,
    ) -> Predictions:
        """See `Target.prefill`."""
        offset = len(ids) - len(segment.ids)
        assert positions[0] >= state.length, "positions of the new part"
        assert positions[-1] == len(ids) - 1, "the last position is the prompt's end"
        with self.lock:
            self.crop(state, state.length)  # an interrupted pass may have left rows or images
            packed = []
            if segment.images and state.length < offset:
                # The last answer's final token first: whatever it is, it is no placeholder here.
                early = [at for at in positions if at < offset]
                packed += self._chunk(state, ids[:offset], {}, early, top_k)
                positions = positions[len(early) :]
            state.extra["images"] += self._spans(segment, offset)
            packed += self._chunk(state, ids, segment.inputs, positions, top_k)
            return logits.unpack(torch.cat(packed))

    def _chunk(
        self,
        state: KVState,
        ids: Sequence[int],
        inputs: dict[str, Any],
        rows: Sequence[int],
        top_k: int,
    ) -> list[torch.Tensor]:
        feed = torch.tensor([ids[state.length :]], device=self._device)
        pass_ = {
            "position_ids": self._chunk_positions(state, ids),
            "attention_mask": self._masks.chunk(feed.shape[1], state.length),
            "cache": state.cache,
            "use_cache": True,
        }
        if inputs:
            inputs = {name: value.to(self._device) for name, value in inputs.items()}
            hidden = self._see(feed, inputs, **pass_)
        else:
            hidden = self.language(input_ids=feed, **pass_).last_hidden_state
        wanted = torch.tensor(rows, dtype=torch.int64, device=hidden.device) - state.length
        hidden = hidden[0].index_select(0, wanted)
        state.length = len(ids)
        step = logits.chunk_rows(self.vocab_size)
        return [
            logits.pack(self.output_layer(hidden[at : at + step]), top_k)
            for at in range(0, len(rows), step)
        ]

    @torch.inference_mode()
    def verify(
        self,
        state: KVState,
        tokens: Sequence[int],
        depths: Sequence[int],
        mask: np.ndarray,
        *,
        top_k: int,
    ) -> Predictions:
        """See `Target.verify`."""
        with self.lock:
            state.cache.crop_to(state.length)  # an interrupted pass may have left rows
            if self._static is not None:
                return logits.unpack(self._static.run(state, tokens, depths, mask, top_k=top_k))
            feed = torch.from_numpy(np.array([tokens, depths], dtype=np.int64)).to(self._device)
            hidden = self.language(
                input_ids=feed[:1],
                position_ids=self._positions(state, feed[1]),
                attention_mask=self._masks.tree(mask, np.asarray(depths), state.length),
                cache=state.cache,
                use_cache=True,
            ).last_hidden_state
            return logits.unpack(logits.pack(self.output_layer(hidden[0]), top_k))

    def compact(self, state: KVState, rows: Sequence[int]) -> None:
        """See `Target.keep`."""
        assert rows[0] == 0, "the root is always kept"
        with self.lock, torch.inference_mode():
            if self._static is not None:
                self._static.compact(state, rows)
            else:
                state.cache.compact(state.length, rows)
        state.length += len(rows)

    def crop(self, state: KVState, length: int) -> None:
        """See `Target.crop`."""
        if any(span.start < length < span.stop for span in state.extra["images"]):
            raise ValueError("The cache cannot be cut inside an image.")
        state.cache.crop_to(length)
        if self._static is not None:
            self._static.crop(state, length)
        state.length = length
        state.extra["images"] = [s for s in state.extra["images"] if s.stop <= length]

    def decode(self, ids: Sequence[int]) -> str:
        """See `Target.decode`."""
        return self.vocabulary.decode(ids)

    def token_text(self, token: int) -> str:
        """See `Target.token_text`."""
        return self.vocabulary.token_text(token)
