"""A target of a published model's shape with random weights, to time passes where nothing can be downloaded.

It is made from a config.json as the hub serves it. It decodes noise and sees no images; its passes take the
time that those of the real weights take.
"""

from __future__ import annotations

import argparse
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

from ..options import set_threads
from ..targets.chat_template import PLAIN
from ..targets.families import target_class
from ..targets.families.llava_next import LlavaNextTarget
from ..targets.loader import DTYPES
from ..targets.transformers_target import TransformersTarget


def read_config(path: Path) -> Any:
    """The model config in a config.json (or its folder). Raises ValueError with one sentence."""
    file = path / "config.json" if path.is_dir() else path
    try:
        data = json.loads(file.read_text(encoding="utf-8"))
        config = CONFIG_MAPPING[data["model_type"]].from_dict(data)
    except OSError:
        raise ValueError(f"There is no config.json at {path}.") from None
    except (ValueError, KeyError, TypeError):
        raise ValueError(f"{file} is not a model's config.json.") from None
    if target_class(config.model_type) in (None, LlavaNextTarget):
        raise ValueError(f'Shapes of type "{config.model_type}" are not supported.')
    return config


def random_target_from(options: argparse.Namespace) -> TransformersTarget:
    """The random target that the command's options describe. Raises ValueError with one sentence."""
    set_threads(options)
    cuda = torch.cuda.is_available()
    device = options.device or ("cuda" if cuda else "cpu")
    if device.partition(":")[0] not in ("cpu", "cuda") or (device != "cpu" and not cuda):
        raise ValueError(f"There is no device {device} here: choose cpu or cuda.")
    dtype = options.dtype or ("bfloat16" if device != "cpu" else "float32")
    if dtype not in DTYPES:
        raise ValueError(f'There is no dtype "{dtype}": {", ".join(DTYPES)} are.')
    config, folder = read_config(options.shape), options.shape.parent.name
    name = f"{config.model_type} of {folder or options.shape.name}, random weights"
    kind = DTYPES[dtype]
    return random_target(config, device=device, dtype=kind, name=name, static=options.static)


def random_target(
    config: Any, *, device: str, dtype: torch.dtype, name: str, static: bool = False
) -> TransformersTarget:
    """A target with that config and random weights, made on the device."""
    family = target_class(config.model_type)
    vision = family.image_processor_class is not None
    auto = AutoModelForImageTextToText if vision else AutoModelForCausalLM
    with torch.device(device):
        model = auto.from_config(config, dtype=dtype, attn_implementation="sdpa").eval()
    model.requires_grad_(False)
    settings: dict[str, Any] = {"name": name, "template": PLAIN, "eos_ids": frozenset()}
    return family(model, _tokenizer(), captured=static, **settings)


def _tokenizer() -> PreTrainedTokenizerFast:
    """Bytes alone: nothing here reads or writes text."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    raw = Tokenizer(models.BPE({letter: i for i, letter in enumerate(alphabet)}, []))
    raw.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    raw.decoder = decoders.ByteLevel()
    return PreTrainedTokenizerFast(tokenizer_object=raw)


def weight_bytes(target: TransformersTarget) -> int:
    """Bytes of weights that one small pass reads: the language model and the output layer.

    Of the embedding only the packed tokens' vectors are read; a tied output layer is read whole.
    """
    head = target.model.get_output_embeddings()
    total = head.in_features * head.out_features * target.model.dtype.itemsize
    for module in target.language.modules():
        if module is target.model.get_input_embeddings() or module is head:
            continue
        total += sum(parameter.nbytes for parameter in module.parameters(recurse=False))
        if hasattr(module, "in_features") and not hasattr(module, "weight"):  # packed
            total += module.in_features * module.out_features * target.model.dtype.itemsize
    return total
