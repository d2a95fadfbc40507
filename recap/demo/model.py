"""The architecture of the demo model: Qwen2.5-VL at a few million parameters."""

import torch
from transformers import Qwen2_5_VLConfig, Qwen2_5_VLForConditionalGeneration

SPECIAL = (
    "<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|vision_start|>", "<|vision_end|>",
    "<|vision_pad|>", "<|image_pad|>", "<|video_pad|>",
)  # fmt: skip
IDS = {token: i for i, token in enumerate(SPECIAL)}
VOCAB = 1024
MIN_PIXELS, MAX_PIXELS = 56 * 56, 168 * 168


def config() -> Qwen2_5_VLConfig:
    """The demo model's configuration."""
    return Qwen2_5_VLConfig(
        text_config={
            "vocab_size": VOCAB,
            "hidden_size": 256,
            "intermediate_size": 768,
            "num_hidden_layers": 4,
            "num_attention_heads": 8,
            "num_key_value_heads": 4,
            "max_position_embeddings": 4096,
            "rms_norm_eps": 1e-6,
            "rope_parameters": {
                "rope_type": "default", "rope_theta": 10000.0, "mrope_section": [4, 6, 6],
            },
            "bos_token_id": IDS["<|endoftext|>"],
            "eos_token_id": IDS["<|im_end|>"],
            "pad_token_id": IDS["<|endoftext|>"],
            "tie_word_embeddings": True,
        },
        vision_config={
            "depth": 5,
            "hidden_size": 192,
            "intermediate_size": 512,
            "num_heads": 6,
            "out_hidden_size": 256,
            "patch_size": 14,
            "spatial_merge_size": 2,
            "temporal_patch_size": 2,
            "window_size": 112,
            "fullatt_block_indexes": [0, 1, 2, 3, 4],
            "tokens_per_second": 2,
        },
        image_token_id=IDS["<|image_pad|>"],
        video_token_id=IDS["<|video_pad|>"],
        vision_start_token_id=IDS["<|vision_start|>"],
        vision_end_token_id=IDS["<|vision_end|>"],
        tie_word_embeddings=True,
    )  # fmt: skip


def build(seed: int = 1) -> Qwen2_5_VLForConditionalGeneration:
    """A fresh model in float32 from a seed."""
    torch.manual_seed(seed)
    whole = Qwen2_5_VLForConditionalGeneration(config()).float()
    for name, p in whole.model.named_parameters():
        if p.dim() == 2 and "embed_tokens" not in name:  # 0.02 is too small at these widths
            last = "o_proj" in name or "down_proj" in name or "attn.proj" in name
            torch.nn.init.normal_(p, std=(0.5 if last else 1.0) * p.shape[1] ** -0.5)
    # Large enough next to what the layers add; the last norm keeps the logits small.
    language = whole.model.language_model
    torch.nn.init.normal_(language.embed_tokens.weight, std=0.5)
    torch.nn.init.constant_(language.norm.weight, 0.04)
    return whole
