"""LLaVA-NeXT (LLaVA-1.6): an overview and tiles of each image, plain positions.

The number of placeholders is what the model's own packing gives for the image's size, so that tokens
and features agree at every size.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from PIL.Image import Image
from transformers.models.llava_next.modeling_llava_next import image_size_to_num_patches

from ..images import to_rgb
from ..transformers_target import TransformersTarget


class LlavaNextTarget(TransformersTarget):
    """`image_processor` is the model's own (PIL)."""

    sees_images = True

    def __init__(self, model: Any, tokenizer: Any, image_processor: Any, **rest: Any) -> None:
        super().__init__(model, tokenizer, **rest)
        self.image_processor = image_processor
        # The model cuts features along its own list of resolutions: the processor must use the same.
        image_processor.image_grid_pinpoints = [list(p) for p in model.config.image_grid_pinpoints]

    def _language_model(self) -> Any:
        return self.model.model.language_model

    def _blocked(self) -> frozenset[int]:
        return frozenset([int(self.model.config.image_token_id)])

    def _image_token(self) -> str:
        return self.tokenizer.convert_ids_to_tokens(self.model.config.image_token_id)

    def image_inputs(self, images: Sequence[Image]) -> tuple[dict[str, Any], list[int]]:
        made = self.image_processor([to_rgb(image) for image in images], return_tensors="pt")
        sizes = made["image_sizes"]
        counts = [self.count_features(high, wide) for high, wide in sizes.tolist()]
        return {"pixel_values": made["pixel_values"], "image_sizes": sizes}, counts

    def count_features(self, height: int, width: int) -> int:
        """How many features the model makes of an image of that size: its packing of empty ones."""
        config = self.model.config
        side = config.vision_config.image_size
        tiles = image_size_to_num_patches([height, width], config.image_grid_pinpoints, side)
        cells = (side // config.vision_config.patch_size) ** 2
        strategy = config.vision_feature_select_strategy
        packed, _ = self.model.model.pack_image_features(
            [torch.zeros(tiles, cells, 1)],
            torch.tensor([[height, width]]),
            vision_feature_select_strategy=strategy,
            image_newline=torch.zeros(1),
        )
        return int(packed[0].shape[0])

    def _see(self, feed: torch.Tensor, inputs: dict[str, Any], **pass_: Any) -> torch.Tensor:
        return self.model.model(input_ids=feed, **inputs, **pass_).last_hidden_state
