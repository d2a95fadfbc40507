"""LLaVA-NeXT (LLaVA-1.6): an overview and tiles of each image, plain positions.

The number of placeholders is what the model's own packing makes of the image's size, so that tokens and
features agree at every size.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from PIL.Image import Image
from transformers.models.llava_next.image_processing_pil_llava_next import (
    LlavaNextImageProcessorPil,
)
from transformers.models.llava_next.modeling_llava_next import image_size_to_num_patches

from ..chat_template import INST, VICUNA
from ..images import to_rgb
from ..transformers_target import TransformersTarget


class LlavaNextTarget(TransformersTarget):
    """Images are resized to the model's own tiles, whatever `max_pixels` says."""

    image_processor_class = LlavaNextImageProcessorPil

    def __init__(self, model: Any, tokenizer: Any, image_processor: Any, **settings: Any) -> None:
        super().__init__(model, tokenizer, image_processor, **settings)
        # The model cuts features along its own list of resolutions: the processor must use the same.
        image_processor.image_grid_pinpoints = [list(p) for p in model.config.image_grid_pinpoints]
        if settings.get("max_pixels") is not None:
            note = "max_pixels has no effect: LLaVA-NeXT resizes every image to its own tiles."
            self.notes = (*self.notes, note)

    @staticmethod
    def fallback_template(config: Any) -> tuple[str, str]:
        """See `TransformersTarget.fallback_template`."""
        if config.text_config.model_type == "mistral":
            form, template = "Mistral's [INST]", INST
        else:
            form, template = "Vicuna's USER / ASSISTANT", VICUNA
        return template, f"The checkpoint has no chat template: {form} form is used."

    def _blocked(self) -> frozenset[int]:
        return frozenset([int(self.model.config.image_token_id)])

    def image_inputs(self, images: Sequence[Image]) -> tuple[dict[str, Any], list[int]]:
        """See `TransformersTarget.image_inputs`."""
        made = self.image_processor([to_rgb(image) for image in images], return_tensors="pt")
        sizes = made["image_sizes"]
        counts = [self.count_features(height, width) for height, width in sizes.tolist()]
        return {"pixel_values": made["pixel_values"], "image_sizes": sizes}, counts

    def count_features(self, height: int, width: int) -> int:
        """How many features the model makes of an image of that size: its packing of empty ones."""
        config = self.model.config
        side = config.vision_config.image_size
        tiles = image_size_to_num_patches([height, width], config.image_grid_pinpoints, side)
        patches = (side // config.vision_config.patch_size) ** 2
        packed, _ = self.model.model.pack_image_features(
            [torch.zeros(tiles, patches, 1)],
            torch.tensor([[height, width]]),
            vision_feature_select_strategy=config.vision_feature_select_strategy,
            image_newline=torch.zeros(1),
        )
        return int(packed[0].shape[0])
