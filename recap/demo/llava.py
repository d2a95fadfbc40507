"""The architecture of the LLaVA demo model: LLaVA-NeXT with a CLIP vision encoder and a Qwen2 language model.

The language model starts from the first demo model's: without pictures M-RoPE equals RoPE, so the weights fit.
"""

import torch
from transformers import LlavaNextConfig, LlavaNextForConditionalGeneration

from . import llava_crops, model
from .model import IDS


def config() -> LlavaNextConfig:
    """The configuration: one token for every 28 x 28 pixels of a tile."""
    text = model.config().text_config.to_dict()
    shared = (
        "vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers",
        "num_attention_heads", "num_key_value_heads", "max_position_embeddings", "rms_norm_eps",
        "bos_token_id", "eos_token_id", "pad_token_id", "tie_word_embeddings",
    )  # fmt: skip
    return LlavaNextConfig(
        text_config={
            **{name: text[name] for name in shared},
            "model_type": "qwen2",
            "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0},
        },
        vision_config={
            "model_type": "clip_vision_model",
            "hidden_size": 288,
            "intermediate_size": 768,
            "num_hidden_layers": 5,
            "num_attention_heads": 9,
            "patch_size": llava_crops.TILE // llava_crops.SIDE,
            "image_size": llava_crops.TILE,
            "projection_dim": 256,
        },
        image_token_index=IDS["<|image_pad|>"],
        image_grid_pinpoints=llava_crops.PINPOINTS,
        image_seq_length=llava_crops.SIDE**2,
        vision_feature_layer=-1,
        vision_feature_select_strategy="default",
        tie_word_embeddings=True,
    )  # fmt: skip


def build(first: dict[str, torch.Tensor] | None = None, seed: int = 1):
    """A fresh `LlavaNextForConditionalGeneration` in float32.

    first: state dict of the first demo model, whose language model is taken over. Attention is written out ("eager"): on a CPU its backward
    pass is far faster.
    """
    torch.manual_seed(seed)
    whole = LlavaNextForConditionalGeneration._from_config(config(), attn_implementation="eager")
    whole = whole.float()
    for name, p in whole.model.vision_tower.named_parameters():
        if p.dim() == 2 and "position" not in name:  # CLIP's own start is too small at these widths
            last = "out_proj" in name or "fc2" in name
            torch.nn.init.normal_(p, std=(0.5 if last else 1.0) * p.shape[1] ** -0.5)
    torch.nn.init.normal_(whole.model.vision_tower.embeddings.patch_embedding.weight, std=0.02)
    projector = whole.model.multi_modal_projector
    torch.nn.init.normal_(projector.linear_1.weight, std=projector.linear_1.in_features**-0.5)
    # The tokens to reproduce are large: their standard deviation is about seven.
    torch.nn.init.normal_(projector.linear_2.weight, std=8 * projector.linear_2.in_features**-0.5)
    if first is not None:
        prefix = "model.language_model."
        state = {k.removeprefix(prefix): v for k, v in first.items() if k.startswith(prefix)}
        whole.model.language_model.load_state_dict(state)
    return whole


def encode(whole, pixels: torch.Tensor, midway: list[torch.Tensor] | None = None) -> torch.Tensor:
    """Crops [B, 3, TILE, TILE] -> projected tokens [B, SIDE * SIDE, hidden], before any packing.

    The tower's tokens after `LETTER_LAYER` layers [B, SIDE * SIDE, width] are appended to `midway`.
    """
    out = whole.model.vision_tower(pixels, output_hidden_states=midway is not None)
    if midway is not None:
        midway.append(out.hidden_states[LETTER_LAYER][:, 1:])
    return whole.model.multi_modal_projector(out.last_hidden_state[:, 1:])


LETTER_LAYER = 2  # after this many layers, the tokens must spell their letters
