"""The architecture of the demo model's twin: LLaVA-NeXT with a CLIP tower, and Qwen2 for words.

Its words are the demo model's: without pictures M-RoPE is plain RoPE, so the layers of the one fit
into the other.
"""

import torch
from transformers import LlavaNextConfig, LlavaNextForConditionalGeneration

from . import model, views
from .model import IDS


def config() -> LlavaNextConfig:
    """The twin's configuration: a token for every 28 x 28 pixels of a tile."""
    text = model.config().text_config.to_dict()
    keep = (
        "vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers",
        "num_attention_heads", "num_key_value_heads", "max_position_embeddings", "rms_norm_eps",
        "bos_token_id", "eos_token_id", "pad_token_id", "tie_word_embeddings",
    )  # fmt: skip
    return LlavaNextConfig(
        text_config={
            **{name: text[name] for name in keep},
            "model_type": "qwen2",
            "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0},
        },
        vision_config={
            "model_type": "clip_vision_model",
            "hidden_size": 288,
            "intermediate_size": 768,
            "num_hidden_layers": 5,
            "num_attention_heads": 9,
            "patch_size": views.TILE // views.SIDE,
            "image_size": views.TILE,
            "projection_dim": 256,
        },
        image_token_index=IDS["<|image_pad|>"],
        image_grid_pinpoints=views.PINPOINTS,
        image_seq_length=views.SIDE**2,
        vision_feature_layer=-1,
        vision_feature_select_strategy="default",
        tie_word_embeddings=True,
    )  # fmt: skip


def build(words: dict[str, torch.Tensor] | None = None, seed: int = 1):
    """A fresh `LlavaNextForConditionalGeneration` in float32, with the words of a demo model.

    `words` is that model's state dict. Attention is written out ("eager"): on a CPU its backward
    pass is far faster.
    """
    torch.manual_seed(seed)
    whole = LlavaNextForConditionalGeneration._from_config(config(), attn_implementation="eager")
    whole = whole.float()
    for name, p in whole.model.vision_tower.named_parameters():
        if p.dim() == 2 and "position" not in name:  # livelier than CLIP's own start
            last = "out_proj" in name or "fc2" in name
            torch.nn.init.normal_(p, std=(0.5 if last else 1.0) * p.shape[1] ** -0.5)
    torch.nn.init.normal_(whole.model.vision_tower.embeddings.patch_embedding.weight, std=0.02)
    projector = whole.model.multi_modal_projector
    torch.nn.init.normal_(projector.linear_1.weight, std=projector.linear_1.in_features**-0.5)
    # The eye's tokens that it is to make are large: their deviation is about seven.
    torch.nn.init.normal_(projector.linear_2.weight, std=8 * projector.linear_2.in_features**-0.5)
    if words is not None:
        prefix = "model.language_model."
        state = {k.removeprefix(prefix): v for k, v in words.items() if k.startswith(prefix)}
        whole.model.language_model.load_state_dict(state)
    return whole


def see(whole, pixels: torch.Tensor, midway: list[torch.Tensor] | None = None) -> torch.Tensor:
    """Crops [B, 3, TILE, TILE] -> projected tokens [B, SIDE * SIDE, hidden], before any packing.

    The tower's tokens after `eye.READ` layers [B, SIDE * SIDE, width] are put into `midway`.
    """
    out = whole.model.vision_tower(pixels, output_hidden_states=midway is not None)
    if midway is not None:
        midway.append(out.hidden_states[READ][:, 1:])
    return whole.model.multi_modal_projector(out.last_hidden_state[:, 1:])


READ = 2  # after so many layers the tokens are asked for their letters
