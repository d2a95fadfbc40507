"""Qwen2-VL, Qwen2.5-VL and Qwen3-VL: images of any size, and positions on three axes (M-RoPE).

An image of h x w merged patches takes h * w tokens but only max(h, w) positions, so text behind it
stands at (token index + shift), shift <= 0, the same on all three axes. The shift is kept per
conversation; the model object's `rope_deltas` is neither read nor written.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from PIL.Image import Image

from ..base import KVState, Segment
from ..images import refuse_thin, to_rgb
from ..transformers_target import ImageSpan, TransformersTarget

MARKS = ("image_token_id", "video_token_id", "vision_start_token_id", "vision_end_token_id")


class QwenVLTarget(TransformersTarget):
    """`image_processor` is the model's own (PIL); `max_pixels` bounds an image after its resize rule."""

    sees_images = True

    def __init__(
        self,
        model: Any,
        tokenizer: Any,
        image_processor: Any,
        *,
        max_pixels: int | None,
        **rest: Any,
    ) -> None:
        super().__init__(model, tokenizer, **rest)
        self.image_processor = image_processor
        if max_pixels is not None:
            least = min(image_processor.size["shortest_edge"], max_pixels)
            image_processor.size = {"shortest_edge": least, "longest_edge": max_pixels}
        self._merge = int(model.config.vision_config.spatial_merge_size)

    def _language_model(self) -> Any:
        return self.model.model.language_model

    def _blocked(self) -> frozenset[int]:
        config = self.model.config
        marks = {getattr(config, mark, None) for mark in MARKS}
        marks.add(getattr(config, "vision_token_id", None))
        return frozenset(int(mark) for mark in marks if mark is not None)

    def _image_token(self) -> str:
        return self.tokenizer.convert_ids_to_tokens(self.model.config.image_token_id)

    def image_inputs(self, images: Sequence[Image]) -> tuple[dict[str, Any], list[int]]:
        for image in images:
            refuse_thin(image)
        made = self.image_processor([to_rgb(image) for image in images], return_tensors="pt")
        grids = made["image_grid_thw"]
        counts = (grids.prod(-1) // self._merge**2).tolist()
        return {"pixel_values": made["pixel_values"], "image_grid_thw": grids}, counts

    def _spans(self, segment: Segment, offset: int) -> list[ImageSpan]:
        grids = segment.inputs["image_grid_thw"].tolist() if segment.images else []
        spans = []
        for (start, stop), (time, high, wide) in zip(segment.images, grids, strict=True):
            shift = max(high, wide) // self._merge - (stop - start)
            spans.append(ImageSpan(offset + start, offset + stop, shift, (time, high, wide)))
        return spans

    def _positions(self, state: KVState, depths: torch.Tensor) -> torch.Tensor:
        shift = sum(span.shift for span in state.extra["images"])
        return (depths + (state.length + shift)).expand(3, 1, -1)

    def _chunk_positions(self, state: KVState, ids: Sequence[int]) -> torch.Tensor:
        spans: list[ImageSpan] = state.extra["images"]
        if not spans or spans[-1].stop <= state.length:
            return super()._chunk_positions(state, ids)
        kinds = torch.zeros(1, len(ids), dtype=torch.int32)  # 1 where an image's placeholders lie
        for span in spans:
            kinds[0, span.start : span.stop] = 1
        positions, _ = self.model.model.get_rope_index(
            torch.tensor([list(ids)]),
            mm_token_type_ids=kinds,
            image_grid_thw=torch.tensor([span.grid for span in spans]),
        )
        return positions[..., state.length :].to(self._device)

    def _see(self, feed: torch.Tensor, inputs: dict[str, Any], **pass_: Any) -> torch.Tensor:
        return self.model.model(input_ids=feed, **inputs, **pass_).last_hidden_state
