"""The target that all families share: the packed pass, the prefill, the conversation's tokens.

A family (`targets.families`) adds what is its own: how images become placeholders and features, and at
which positions tokens stand. Nothing is stored on the model object; what a conversation needs lies in its
KVState:

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
from .captured import CapturedPass, PassModel
from .chat_template import PLAIN, ChatTemplate
from .device_lock import FairLock
from .images import loaded
from .kv_cache import KVCache
from .masks import MaskBuilder
from .vocabulary import Vocabulary


@dataclass(frozen=True, slots=True)
class ImageSpan:
    """Where one image lies in a conversation's tokens: placeholders [start, stop).

    shift: by how much positions behind it lag the token count (0 but for M-RoPE). grid: its patch grid
    (time, height, width) where the family needs one.
    """

    start: int
    stop: int
    shift: int = 0
    grid: tuple[int, int, int] | None = None


class TransformersTarget:
    """A transformers model behind the Target protocol; `base.Target` says what each method does."""

    image_processor_class: Any = None
    """The family's image processor (a PIL one), None for a text model."""

    def __init__(
        self,
        model: Any,
        tokenizer: Any,
        image_processor: Any = None,
        *,
        name: str,
        template: str,
        eos_ids: frozenset[int],
        notes: tuple[str, ...] = (),
        packed: bool = True,
        captured: bool = False,
        max_pixels: int | None = None,
    ) -> None:
        """packed: lay the language model's weights out for small passes where this CPU can. captured: run
        packed passes in fixed shapes, as captured graphs on CUDA. max_pixels: see `load_target`."""
        self.model, self.tokenizer, self.image_processor = model, tokenizer, image_processor
        self.name, self.notes, self.eos_ids = name, notes, eos_ids
        self.lock = FairLock()
        config = model.config.get_text_config()
        self.max_context = int(config.max_position_embeddings)
        self.language, self.output_layer = self._language_model(), model.get_output_embeddings()
        self.vocab_size = int(self.output_layer.weight.shape[0])
        assert self.vocab_size < logits.LARGEST_ID, "ids travel as float32"
        self._device, self._dtype = model.get_input_embeddings().weight.device, model.dtype
        self.device, self.dtype = self._device.type, str(model.dtype).removeprefix("torch.")
        self.blocked = self._blocked()
        self.vocabulary = Vocabulary(tokenizer, self.blocked | eos_ids)
        self.chat_template = ChatTemplate(
            tokenizer,
            self.vocabulary,
            template,
            eos_ids=eos_ids,
            image_token=self._image_token(),
            special_tokens=self.sees_images,
        )
        self._layer_devices = device_map.layer_devices(self.language)
        one_device = not self._layer_devices
        packed = packed and one_device and packed_cpu.available(self._device, self._dtype)
        if packed:
            packed_cpu.pack(self.language)
            # a copy: the output layer may share the embedding's weight
            self.output_layer = packed_cpu.PackedLinear(self.output_layer)
            packed_cpu.warm(self.language, self.output_layer)
        self._layers = int(config.num_hidden_layers)
        self._masks = MaskBuilder(config, self._device, self._dtype)
        self.captured: CapturedPass | None = None
        """Runs the packed passes, if they run in fixed shapes."""
        if captured and one_device:
            self.captured = self.new_captured_pass()
        self.passes = f"{'packed' if packed else 'plain'}{', captured' if self.captured else ''}"

    def new_captured_pass(self) -> CapturedPass:
        """A runner of this target's packed passes in fixed shapes, for `captured`."""
        return CapturedPass(
            PassModel(self.language, self.output_layer, self._masks, self.positions, self._device)
        )

    # What a family adds.

    @property
    def sees_images(self) -> bool:
        """Whether the model takes images."""
        return self.image_processor_class is not None

    @staticmethod
    def fallback_template(config: Any) -> tuple[str, str]:
        """A chat template for a checkpoint without one, and the sentence that says so."""
        return PLAIN, "The tokenizer has no chat template: turns are plain User / Assistant lines."

    def _language_model(self) -> Any:
        """The module from token ids to hidden states."""
        return self.model.model.language_model if self.sees_images else self.model.model

    def _blocked(self) -> frozenset[int]:
        """Tokens that no draft may contain: image placeholders."""
        return frozenset()

    def _image_token(self) -> str | None:
        if not self.sees_images:
            return None
        return self.tokenizer.convert_ids_to_tokens(self.model.config.image_token_id)

    def image_inputs(self, images: Sequence[Image]) -> tuple[dict[str, Any], list[int]]:
        """The image processor's tensors, and the number of placeholders for each image."""
        raise ValueError(f"{self.name} reads text only: ask it without an image.")

    def _spans(self, segment: Segment, offset: int) -> list[ImageSpan]:
        """The segment's images at their places in the conversation."""
        return [ImageSpan(offset + start, offset + stop) for start, stop in segment.images]

    def positions(self, state: KVState, depths: torch.Tensor) -> torch.Tensor:
        """Position ids of tokens at these depths (int64 [N]) behind the cache -> [1, N] or [3, 1, N]."""
        return (depths + state.length)[None]

    def _chunk_positions(self, state: KVState, ids: Sequence[int]) -> torch.Tensor:
        """Position ids of ids[state.length:]; state.extra["images"] already holds the new images."""
        return self.positions(state, torch.arange(len(ids) - state.length, device=self._device))

    # The protocol.

    def encode(
        self, messages: Sequence[Message], known: Sequence[int], answer: Sequence[int] | None
    ) -> Segment:
        """See `Target.encode`."""
        new = [messages[-1]] if known else messages
        images = [loaded(image) for message in new for image in message.images]
        inputs, counts = self.image_inputs(images) if images else ({}, [])
        if known:
            ids = self.chat_template.later(messages, counts, answer or ())
        else:
            ids = self.chat_template.first(messages, counts)
        total = len(known) + len(ids)
        if total >= self.max_context:
            lighter = "use a smaller image" if images else "ask a shorter question"
            raise ValueError(
                f"The conversation would have {total} tokens, and {self.name} takes at most "
                f"{self.max_context}: {lighter}, or start a new one."
            )
        return Segment(tuple(ids), inputs, self._placeholders(ids, counts))

    def _placeholders(
        self, ids: Sequence[int], counts: Sequence[int]
    ) -> tuple[tuple[int, int], ...]:
        """Spans of the placeholders, `counts[i]` of them for image i."""
        if not counts:
            return ()
        token = self.tokenizer.convert_tokens_to_ids(self._image_token())
        found = [index for index, i in enumerate(ids) if i == token]
        assert len(found) == sum(counts), "one placeholder for each feature"
        spans, used = [], 0
        for count in counts:
            spans.append((found[used], found[used + count - 1] + 1))
            assert spans[-1][1] - spans[-1][0] == count, "an image's placeholders are contiguous"
            used += count
        return tuple(spans)

    def new_state(self) -> KVState:
        """An empty cache."""
        return KVState(KVCache(self._layers, devices=self._layer_devices), 0, {"images": []})

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
            self.crop(state, state.length)  # an interrupted pass may have left slots or images
            packed = []
            if segment.images and state.length < offset:
                # The last answer's final token first: whatever it is, it is no placeholder here.
                early = [position for position in positions if position < offset]
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
        positions: Sequence[int],
        top_k: int,
    ) -> list[torch.Tensor]:
        """Run ids[state.length:] -> packed logits at the positions. inputs: of the images among them."""
        feed = torch.tensor([ids[state.length :]], device=self._device)
        model = self.model.model if inputs else self.language
        hidden = model(
            input_ids=feed,
            position_ids=self._chunk_positions(state, ids),
            attention_mask=self._masks.chunk(feed.shape[1], state.length),
            cache=state.cache,
            use_cache=True,
            **{name: value.to(self._device) for name, value in inputs.items()},
        ).last_hidden_state
        index = torch.tensor(positions, dtype=torch.int64, device=hidden.device) - state.length
        hidden = hidden[0].index_select(0, index)
        state.length = len(ids)
        return [
            logits.pack(self.output_layer(part), top_k)
            for part in hidden.split(logits.chunk_size(self.vocab_size))
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
            state.cache.crop_to(state.length)  # an interrupted pass may have left slots
            if self.captured is not None:
                return logits.unpack(self.captured.run(state, tokens, depths, mask, top_k=top_k))
            feed = torch.from_numpy(np.array([tokens, depths], dtype=np.int64)).to(self._device)
            hidden = self.language(
                input_ids=feed[:1],
                position_ids=self.positions(state, feed[1]),
                attention_mask=self._masks.tree(mask, depths, state.length),
                cache=state.cache,
                use_cache=True,
            ).last_hidden_state
            return logits.unpack(logits.pack(self.output_layer(hidden[0]), top_k))

    def compact(self, state: KVState, kept: Sequence[int]) -> None:
        """See `Target.compact`."""
        assert kept[0] == 0, "the root is always kept"
        with self.lock, torch.inference_mode():
            if self.captured is not None:
                self.captured.compact(state, kept)
            else:
                state.cache.compact(state.length, kept)
            state.length += len(kept)

    def crop(self, state: KVState, length: int) -> None:
        """See `Target.crop`."""
        if any(span.start < length < span.stop for span in state.extra["images"]):
            raise ValueError("The cache cannot be cut inside an image.")
        with self.lock:
            state.cache.crop_to(length)
            if self.captured is not None:
                self.captured.crop(state, length)
            state.length = length
            state.extra["images"] = [s for s in state.extra["images"] if s.stop <= length]

    def decode(self, ids: Sequence[int]) -> str:
        """See `Target.decode`."""
        return self.vocabulary.decode(ids)

    def token_text(self, token: int) -> str:
        """See `Target.token_text`."""
        return self.vocabulary.token_text(token)
