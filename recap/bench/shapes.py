"""A target of a published model's shape with random weights, for cost work: nothing is downloaded.

From a config.json as the hub serves it. It decodes noise and sees no images; its passes take exactly the
time that those of the real weights take.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import (
    CONFIG_MAPPING,
    AutoModelForCausalLM,
    AutoModelForImageTextToText,
    PreTrainedTokenizerFast,
)

from ..targets.catalogue import LLAVA, QWEN_VL, TEXT
from ..targets.chat_template import PLAIN
from ..targets.families.causal_lm import CausalLMTarget
from ..targets.families.qwen_vl import QwenVLTarget
from ..targets.transformers_target import TransformersTarget


def read_config(path: Path, scale: int = 1) -> Any:
    """The model config in a config.json (or its folder), its sizes divided by `scale`, widths of heads kept.

    Raises ValueError with one sentence.
    """
    file = path / "config.json" if path.is_dir() else path
    try:
        data = json.loads(file.read_text(encoding="utf-8"))
        config = CONFIG_MAPPING[data["model_type"]].from_dict(data)
    except OSError:
        raise ValueError(f"There is no config.json at {path}.") from None
    except (ValueError, KeyError, TypeError):
        raise ValueError(f"{file} is no model's config.json.") from None
    if config.model_type not in (*QWEN_VL, *TEXT):
        raise ValueError(f'Shapes of type "{config.model_type}" are not made here.')
    if scale < 1:
        raise ValueError("--scale must be at least 1.")
    if scale > 1:
        _shrink(config, scale)
    return config


def _shrink(config: Any, scale: int) -> None:
    text = config.get_text_config()
    width = getattr(text, "head_dim", None) or text.hidden_size // text.num_attention_heads
    text.num_key_value_heads = max(1, text.num_key_value_heads // scale)
    heads = max(1, text.num_attention_heads // scale)
    text.num_attention_heads = -(-heads // text.num_key_value_heads) * text.num_key_value_heads
    text.hidden_size = width * text.num_attention_heads
    text.intermediate_size = max(64, text.intermediate_size // scale)
    text.num_hidden_layers = max(2, text.num_hidden_layers // scale)
    text.vocab_size = max(1024, text.vocab_size // scale)
    if getattr(text, "layer_types", None):
        text.layer_types = text.layer_types[: text.num_hidden_layers]
    for name in ("bos_token_id", "eos_token_id", "pad_token_id"):
        setattr(text, name, None)
    vision = getattr(config, "vision_config", None)
    if vision is not None:  # never run here: as small as it may be
        vision.depth = 1
        for name in ("out_hidden_size", "hidden_size"):
            if (
                getattr(vision, name, None)
                == width * config.get_text_config().num_attention_heads * scale
            ):
                setattr(vision, name, text.hidden_size)


def random_target(config: Any, *, device: str, dtype: str, name: str) -> TransformersTarget:
    """A target with that config and random weights, made on the device."""
    kind = getattr(torch, dtype)
    auto = (
        AutoModelForImageTextToText
        if config.model_type in (*QWEN_VL, *LLAVA)
        else AutoModelForCausalLM
    )
    with torch.device(device):
        model = auto.from_config(config, dtype=kind, attn_implementation="sdpa").eval()
    model.requires_grad_(False)
    shared: dict[str, Any] = {"name": name, "template": PLAIN, "eos_ids": frozenset()}
    if config.model_type in QWEN_VL:
        return QwenVLTarget(model, _tokenizer(), None, max_pixels=None, **shared)
    return CausalLMTarget(model, _tokenizer(), **shared)


def _tokenizer() -> PreTrainedTokenizerFast:
    """Bytes alone: nothing here reads or writes text."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    raw = Tokenizer(models.BPE({letter: i for i, letter in enumerate(alphabet)}, []))
    raw.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    raw.decoder = decoders.ByteLevel()
    return PreTrainedTokenizerFast(tokenizer_object=raw)


def weight_bytes(target: TransformersTarget) -> int:
    """Bytes of weights that one pass of a few rows reads: the language model and the output layer.

    Of the embedding only the rows' vectors are read; a tied output layer is read whole.
    """
    embedding = target.model.get_input_embeddings()
    head = target.model.get_output_embeddings()
    size = target.model.dtype.itemsize
    total = head.in_features * head.out_features * size
    for module in target._language.modules():
        if module is embedding or module is head:
            continue
        if hasattr(module, "in_features"):  # packed layers hold no parameter that could be counted
            total += module.in_features * module.out_features * size
        else:
            own = module.parameters(recurse=False)
            total += sum(parameter.nbytes for parameter in own)
        bias = getattr(module, "bias", None)
        if hasattr(module, "in_features") and bias is not None:
            total += bias.nbytes
    return total
