"""Tiny models of every supported family, with random weights, on disk as the hub would serve them.

A directory holds config, weights, tokenizer, chat template and image processor, so that tests go
through the real loading code. Weights are drawn wide, so that outputs vary with their context and
repeat themselves enough for drafts to be accepted; the rows of control tokens in the output layer are
zero, so that a random model never emits an image placeholder.
"""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from safetensors.torch import load_file, save_file
from tokenizers import (
    AddedToken,
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
    trainers,
)
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    AutoModelForImageTextToText,
    PreTrainedTokenizerFast,
)
from transformers.models.llava_next.image_processing_pil_llava_next import (
    LlavaNextImageProcessorPil,
)
from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil

TEXT = "the red square is left of the blue circle and the total on the receipt is 12.50 euros. " * 3

QWEN_SPECIALS = (
    "<|endoftext|>",
    "<|im_start|>",
    "<|im_end|>",
    "<|vision_start|>",
    "<|vision_end|>",
    "<|vision_pad|>",
    "<|image_pad|>",
    "<|video_pad|>",
)

QWEN_TEMPLATE = (
    "{% for message in messages %}{% if loop.first and message['role'] != 'system' %}<|im_start|>system\n"
    "You are a helpful assistant.<|im_end|>\n{% endif %}<|im_start|>{{ message['role'] }}\n"
    "{% if message['content'] is string %}{{ message['content'] }}<|im_end|>\n{% else %}"
    "{% for content in message['content'] %}{% if content['type'] == 'image' %}"
    "<|vision_start|><|image_pad|><|vision_end|>{% elif 'text' in content %}{{ content['text'] }}"
    "{% endif %}{% endfor %}<|im_end|>\n{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)

LLAVA_TEMPLATE = (
    "{% for message in messages %}{% if message['role'] == 'user' %}{{ '[INST] ' }}"
    "{% for content in message['content'] | selectattr('type', 'equalto', 'image') %}{{ '<image>\n' }}"
    "{% endfor %}{% for content in message['content'] | selectattr('type', 'equalto', 'text') %}"
    "{{ content['text'] + ' [/INST]' }}{% endfor %}{% else %}{{ ' ' + message['content'][0]['text'] + '</s> ' }}"
    "{% endif %}{% endfor %}"
)

LLAMA_TEMPLATE = (
    "{{ bos_token }}{% for message in messages %}{% if message['role'] == 'user' %}"
    "{{ '[INST] ' + message['content'] | trim + ' [/INST]' }}{% else %}"
    "{{ ' ' + message['content'] + eos_token }}{% endif %}{% endfor %}"
)


def byte_tokenizer() -> PreTrainedTokenizerFast:
    """A byte-level BPE as the Qwen models have it: 256 bytes, 24 merges, the family's controls."""
    raw = Tokenizer(models.BPE())
    raw.normalizer = normalizers.NFC()
    raw.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    raw.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=280, initial_alphabet=alphabet, show_progress=False)
    raw.train_from_iterator([TEXT], trainer)
    raw.add_special_tokens([AddedToken(s, special=True, normalized=False) for s in QWEN_SPECIALS])
    return PreTrainedTokenizerFast(
        tokenizer_object=raw, eos_token="<|im_end|>", pad_token="<|endoftext|>"
    )


def piece_tokenizer(*, image: bool) -> PreTrainedTokenizerFast:
    """A SentencePiece-like BPE with byte fallback, as Llama and Mistral have it."""
    letters = sorted(
        set("▁abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.,:;?!()[]/\n")
    )
    pieces = ["<unk>", "<s>", "</s>", *(f"<0x{b:02X}>" for b in range(256)), *letters]
    merges = [("t", "h"), ("th", "e"), ("▁", "the"), ("i", "s"), ("▁", "is"), ("r", "e")]
    pieces += ["".join(pair) for pair in merges]
    vocab = {piece: i for i, piece in enumerate(pieces)}
    raw = Tokenizer(models.BPE(vocab, merges, unk_token="<unk>", byte_fallback=True))
    raw.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    raw.decoder = decoders.Sequence(
        [
            decoders.Replace("▁", " "),
            decoders.ByteFallback(),
            decoders.Fuse(),
            decoders.Strip(" ", 1, 0),
        ]
    )
    specials = ["<unk>", "<s>", "</s>", *(["<image>", "<pad>"] if image else [])]
    raw.add_special_tokens([AddedToken(s, special=True, normalized=False) for s in specials])
    raw.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 1)])
    return PreTrainedTokenizerFast(
        tokenizer_object=raw, bos_token="<s>", eos_token="</s>", unk_token="<unk>"
    )


TEXT_SIZES: dict[str, Any] = {
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 4096,
}
QWEN_VISION = {"depth": 2, "num_heads": 2, "patch_size": 14, "in_chans": 3}
VISIONS: dict[str, dict[str, Any]] = {
    "qwen2_vl": {**QWEN_VISION, "embed_dim": 32, "hidden_size": 64, "mlp_ratio": 2},
    "qwen2_5_vl": {
        **QWEN_VISION,
        "hidden_size": 32,
        "intermediate_size": 64,
        "out_hidden_size": 64,
        "fullatt_block_indexes": [1],
        "window_size": 56,
    },
    "qwen3_vl": {
        **QWEN_VISION,
        "hidden_size": 32,
        "intermediate_size": 64,
        "out_hidden_size": 64,
        "num_position_embeddings": 64,
        "deepstack_visual_indexes": [0, 1],
    },
}
PINPOINTS = [[56, 112], [112, 56], [112, 112], [168, 56], [56, 168], [112, 168]]  # (high, wide)
CLIP = {
    "model_type": "clip_vision_model",
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 3,
    "num_attention_heads": 2,
    "image_size": 56,
    "patch_size": 14,
    "projection_dim": 32,
}

# The structure of two published checkpoints' files, as the hub serves them; sizes are scaled below.
HUB_QWEN: dict[str, Any] = {
    "architectures": ["Qwen2_5_VLForConditionalGeneration"],
    "attention_dropout": 0.0,
    "hidden_act": "silu",
    "initializer_range": 0.02,
    "max_window_layers": 28,
    "model_type": "qwen2_5_vl",
    "rms_norm_eps": 1e-06,
    "rope_theta": 1000000.0,
    "sliding_window": 32768,
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
    "transformers_version": "4.41.2",
    "use_cache": True,
    "use_sliding_window": False,
    "vision_config": {
        "hidden_act": "silu",
        "in_chans": 3,
        "patch_size": 14,
        "spatial_merge_size": 2,
        "spatial_patch_size": 14,
        "tokens_per_second": 2,
        "temporal_patch_size": 2,
    },
    "rope_scaling": {"type": "mrope", "mrope_section": [16, 24, 24]},
}
HUB_QWEN_GENERATION: dict[str, Any] = {
    "do_sample": True,
    "repetition_penalty": 1.05,
    "temperature": 1e-06,
    "transformers_version": "4.49.0",
}
HUB_QWEN_PREPROCESSOR: dict[str, Any] = {
    "min_pixels": 3136,
    "max_pixels": 12845056,
    "patch_size": 14,
    "temporal_patch_size": 2,
    "merge_size": 2,
    "image_mean": [0.48145466, 0.4578275, 0.40821073],
    "image_std": [0.26862954, 0.26130258, 0.27577711],
    "image_processor_type": "Qwen2VLImageProcessor",
    "processor_class": "Qwen2_5_VLProcessor",
}
HUB_LLAVA: dict[str, Any] = {
    "architectures": ["LlavaNextForConditionalGeneration"],
    "ignore_index": -100,
    "image_token_index": 32000,
    "model_type": "llava_next",
    "projector_hidden_act": "gelu",
    "text_config": {
        "architectures": ["MistralForCausalLM"],
        "model_type": "mistral",
        "rms_norm_eps": 1e-05,
        "rope_theta": 1000000.0,
        "sliding_window": None,
        "torch_dtype": "bfloat16",
    },
    "torch_dtype": "float16",
    "transformers_version": "4.39.0.dev0",
    "use_image_newline_parameter": True,
    "vision_config": {"model_type": "clip_vision_model", "vocab_size": 32000},
    "vision_feature_layer": -2,
    "vision_feature_select_strategy": "default",
}
HUB_LLAVA_PROCESSOR: dict[str, Any] = {
    "image_token": "<image>",
    "num_additional_image_tokens": 1,
    "patch_size": 14,
    "processor_class": "LlavaNextProcessor",
    "vision_feature_select_strategy": "default",
}

KINDS = ("qwen2_5_vl", "qwen2_vl", "qwen3_vl", "llava_next", "llama")


def build(kind: str, where: Path, *, seed: int = 0, **changes: Any) -> Path:
    """Write a tiny checkpoint of a family -> its directory. `changes` go into the text config."""
    if kind in VISIONS:
        tokenizer = byte_tokenizer()
        text = TEXT_SIZES | _qwen_ids(tokenizer, text_only=True) | changes
        text |= {"vocab_size": 296, "rope_parameters": _mrope(kind)}
        if kind == "qwen3_vl":
            text["head_dim"] = 16
        config = AutoConfig.for_model(
            kind,
            text_config=text,
            vision_config=VISIONS[kind],
            tie_word_embeddings=False,
            **_qwen_ids(tokenizer),
        )
        Qwen2VLImageProcessorPil(max_pixels=112 * 112, min_pixels=28 * 28).save_pretrained(where)
        template = QWEN_TEMPLATE
    elif kind == "llava_next":
        tokenizer = piece_tokenizer(image=True)
        text = TEXT_SIZES | {"model_type": "mistral", "vocab_size": 384, "sliding_window": None}
        config = AutoConfig.for_model(
            kind,
            text_config=text | changes,
            vision_config=CLIP,
            image_token_index=tokenizer.convert_tokens_to_ids("<image>"),
            image_grid_pinpoints=PINPOINTS,
            eos_token_id=tokenizer.eos_token_id,
        )
        _llava_images().save_pretrained(where)
        template = LLAVA_TEMPLATE
    else:
        tokenizer = piece_tokenizer(image=False)
        ids = {"bos_token_id": 1, "eos_token_id": 2, "vocab_size": 352}
        config = AutoConfig.for_model(kind, **(TEXT_SIZES | ids | changes))
        template = LLAMA_TEMPLATE
    tokenizer.chat_template = template
    tokenizer.save_pretrained(where)
    _weights(config, where, tokenizer, seed)
    return where


def build_hub_qwen(where: Path, source: Path | None = None, *, seed: int = 0) -> Path:
    """Qwen2.5-VL-7B-Instruct's files in their old flat layout, from `source` or as kept above."""
    read = _reader(source)
    tokenizer = byte_tokenizer()
    tokenizer.chat_template = None
    tokenizer.save_pretrained(where)
    config = read("config.json", HUB_QWEN) | TEXT_SIZES | _qwen_ids(tokenizer)
    config |= {
        "vocab_size": 296,
        "vision_token_id": tokenizer.convert_tokens_to_ids("<|vision_pad|>"),
    }
    config["vision_config"] = config["vision_config"] | VISIONS["qwen2_5_vl"]
    config["rope_scaling"] = config["rope_scaling"] | {"mrope_section": [2, 3, 3]}
    generation = read("generation_config.json", HUB_QWEN_GENERATION)
    ends = [tokenizer.convert_tokens_to_ids(t) for t in ("<|im_end|>", "<|endoftext|>")]
    generation |= {"bos_token_id": ends[1], "pad_token_id": ends[1], "eos_token_id": ends}
    template = read("chat_template.json", {"chat_template": QWEN_TEMPLATE})
    preprocessor = read("preprocessor_config.json", HUB_QWEN_PREPROCESSOR) | {"max_pixels": 12544}
    _write(where, config, tokenizer, seed)
    for file, data in (
        ("generation_config.json", generation),
        ("chat_template.json", template),
        ("preprocessor_config.json", preprocessor),
    ):
        (where / file).write_text(json.dumps(data))
    return where


def build_hub_llava(where: Path, source: Path | None = None, *, seed: int = 0) -> Path:
    """llava-v1.6-mistral-7b-hf's files in their old layout, from `source` or as kept above."""
    read = _reader(source)
    tokenizer = piece_tokenizer(image=True)
    tokenizer.save_pretrained(where)
    config = read("config.json", HUB_LLAVA)
    config["image_token_index"] = tokenizer.convert_tokens_to_ids("<image>")
    config["image_grid_pinpoints"] = PINPOINTS
    config["text_config"] = config["text_config"] | TEXT_SIZES | {"vocab_size": 384}
    config["vision_config"] = config["vision_config"] | CLIP
    config["vocab_size"] = 384
    _write(where, config, tokenizer, seed)
    _rename(where, "vision_tower.", "vision_tower.vision_model.")  # the published weights' names
    processor = read("processor_config.json", HUB_LLAVA_PROCESSOR)
    (where / "processor_config.json").write_text(json.dumps(processor))
    images = _llava_images().to_dict()
    images["image_processor_type"] = "LlavaNextImageProcessor"
    (where / "preprocessor_config.json").write_text(json.dumps(images, default=list))
    (where / "chat_template.json").write_text(json.dumps({"chat_template": LLAVA_TEMPLATE}))
    return where


def picture(width: int, height: int, seed: int = 0) -> Image.Image:
    """An RGB image of smooth noise."""
    rng = np.random.default_rng(seed)
    small = rng.integers(0, 256, (4, 4, 3), dtype=np.uint8)
    return Image.fromarray(small).resize((width, height), Image.Resampling.BILINEAR)


def _mrope(kind: str) -> dict[str, Any]:
    rope: dict[str, Any] = {"rope_type": "default", "rope_theta": 1e4, "mrope_section": [2, 3, 3]}
    if kind == "qwen3_vl":
        rope["mrope_interleaved"] = True
    return rope


def _qwen_ids(tokenizer: PreTrainedTokenizerFast, *, text_only: bool = False) -> dict[str, int]:
    find = tokenizer.convert_tokens_to_ids
    ids = {"bos_token_id": find("<|endoftext|>"), "eos_token_id": find("<|im_end|>")}
    if not text_only:
        ids |= {
            "image_token_id": find("<|image_pad|>"),
            "video_token_id": find("<|video_pad|>"),
            "vision_start_token_id": find("<|vision_start|>"),
            "vision_end_token_id": find("<|vision_end|>"),
        }
    return ids


def _llava_images() -> LlavaNextImageProcessorPil:
    return LlavaNextImageProcessorPil(
        size={"shortest_edge": 56},
        crop_size={"height": 56, "width": 56},
        image_grid_pinpoints=PINPOINTS,
    )


def _reader(source: Path | None) -> Any:
    def read(file: str, own: dict[str, Any]) -> dict[str, Any]:
        if source is not None and (source / file).is_file():
            return json.loads((source / file).read_text())
        return copy.deepcopy(own)

    return read


def _write(where: Path, config: dict[str, Any], tokenizer: Any, seed: int) -> None:
    """Weights for a raw config, which stays on disk as it is."""
    where.mkdir(parents=True, exist_ok=True)
    (where / "config.json").write_text(json.dumps(config))
    _weights(AutoConfig.from_pretrained(where), where, tokenizer, seed)
    (where / "config.json").write_text(json.dumps(config))


def _rename(where: Path, prefix: str, published: str) -> None:
    weights = load_file(where / "model.safetensors")
    renamed = {
        published + key.removeprefix(prefix) if key.startswith(prefix) else key: weight
        for key, weight in weights.items()
    }
    save_file(renamed, where / "model.safetensors", metadata={"format": "pt"})


SPREAD = 0.25
"""Standard deviation of the random weights; wide, so that attention looks at places, not at averages."""


def _weights(config: Any, where: Path, tokenizer: Any, seed: int) -> None:
    auto = AutoModelForImageTextToText if hasattr(config, "vision_config") else AutoModelForCausalLM
    config.dtype = torch.float32
    torch.manual_seed(seed)
    model = auto.from_config(config, dtype=torch.float32).eval()
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if weight.ndim >= 2:
                weight.normal_(0.0, SPREAD, generator=generator)
            elif "bias" in name:
                weight.normal_(0.0, 0.1, generator=generator)
        head = model.get_output_embeddings().weight
        head[: len(tokenizer)][[i for i in tokenizer.added_tokens_decoder]] = 0.0
        head[len(tokenizer) :] = 0.0
    model.save_pretrained(where)


if __name__ == "__main__":  # python -m tests.tiny llava_next models/tiny-llava
    import argparse

    parser = argparse.ArgumentParser(description="Write a tiny model with random weights.")
    parser.add_argument("kind", choices=KINDS)
    parser.add_argument("out", type=Path)
    options = parser.parse_args()
    print(build(options.kind, options.out))
