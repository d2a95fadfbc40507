"""Qwen2-VL, Qwen2.5-VL and Qwen3-VL: images of any size, and positions on three axes (M-RoPE).

An image of h x w merged patches takes h * w tokens but only max(h, w) positions. Text behind it stands at
(token index + shift), shift <= 0, the same on all three axes. The shift is kept per conversation; the model
object's `rope_deltas` is neither read nor written.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from PIL.Image import Image
from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil

from ..base import KVState, Segment
from ..chat_template import CHATML
from ..images import refuse_thin, to_rgb
from ..transformers_target import ImageSpan, TransformersTarget

MARKS = (
    "image_token_id",
    "video_token_id",
    "vision_start_token_id",
    "vision_end_token_id",
    "vision_token_id",
)


class QwenVLTarget(TransformersTarget):
    """max_pixels: bounds an image after the processor's own resizing."""

    image_processor_class = Qwen2VLImageProcessorPil

    def __init__(
        self,
        model: Any,
        tokenizer: Any,
        image_processor: Any = None,
        *,
        max_pixels: int | None = None,
        **settings: Any,
    ) -> None:
        super().__init__(model, tokenizer, image_processor, **settings)
        if max_pixels is not None:
            least = min(image_processor.size["shortest_edge"], max_pixels)
            image_processor.size = {"shortest_edge": least, "longest_edge": max_pixels}
        self._merge = int(model.config.vision_config.spatial_merge_size)

    @staticmethod
    def fallback_template(config: Any) -> tuple[str, str]:
        """See `TransformersTarget.fallback_template`."""
        return CHATML, "The checkpoint has no chat template: the family's usual ChatML is used."

    def _blocked(self) -> frozenset[int]:
        marks = {getattr(self.model.config, mark, None) for mark in MARKS}
        return frozenset(int(mark) for mark in marks if mark is not None)

    def image_inputs(self, images: Sequence[Image]) -> tuple[dict[str, Any], list[int]]:
        """See `TransformersTarget.image_inputs`."""
        for image in images:
            refuse_thin(image)
        made = self.image_processor([to_rgb(image) for image in images], return_tensors="pt")
        grids = made["image_grid_thw"]
        counts = (grids.prod(-1) // self._merge**2).tolist()
        return {"pixel_values": made["pixel_values"], "image_grid_thw": grids}, counts

    def _spans(self, segment: Segment, offset: int) -> list[ImageSpan]:
        grids = segment.inputs["image_grid_thw"].tolist() if segment.images else []
        spans = []
        for (start, stop), (time, height, width) in zip(segment.images, grids, strict=True):
            shift = max(height, width) // self._merge - (stop - start)
            spans.append(ImageSpan(offset + start, offset + stop, shift, (time, height, width)))
        return spans

    def positions(self, state: KVState, depths: torch.Tensor) -> torch.Tensor:
        """See `TransformersTarget.positions`."""
        shift = sum(span.shift for span in state.extra["images"])
        return (depths + (state.length + shift)).expand(3, 1, -1)

    def _chunk_positions(self, state: KVState, ids: Sequence[int]) -> torch.Tensor:
        spans: list[ImageSpan] = state.extra["images"]
        if not spans or spans[-1].stop <= state.length:
            return super()._chunk_positions(state, ids)
        kinds = torch.zeros(1, len(ids), dtype=torch.int32)  # 1 at an image's placeholders
        for span in spans:
            kinds[0, span.start : span.stop] = 1
        positions, _ = self.model.model.get_rope_index(
            torch.tensor([list(ids)]),
            mm_token_type_ids=kinds,
            image_grid_thw=torch.tensor([span.grid for span in spans]),
        )
        return positions[..., state.length :].to(self._device)
