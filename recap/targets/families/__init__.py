"""The model families that can be loaded. A new one is a file next to this one and a line in `FAMILIES`.

The file defines a `TransformersTarget` with what is the family's own: how images become placeholders and
features, at which positions tokens stand, and a chat template for checkpoints without one. This registry
imports no torch.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..transformers_target import TransformersTarget

FAMILIES: dict[str, tuple[str, str]] = {
    # model_type in config.json: (its name for people, its class)
    "qwen2_vl": ("Qwen2-VL", "qwen_vl.QwenVLTarget"),
    "qwen2_5_vl": ("Qwen2.5-VL", "qwen_vl.QwenVLTarget"),
    "qwen3_vl": ("Qwen3-VL", "qwen_vl.QwenVLTarget"),
    "llava_next": ("LLaVA-NeXT (1.6)", "llava_next.LlavaNextTarget"),
    "llama": ("Llama", "causal_lm.CausalLMTarget"),
    "mistral": ("Mistral", "causal_lm.CausalLMTarget"),
    "qwen2": ("Qwen2", "causal_lm.CausalLMTarget"),
    "qwen3": ("Qwen3", "causal_lm.CausalLMTarget"),
}


def target_class(model_type: str) -> type[TransformersTarget] | None:
    """The class for a checkpoint's `model_type`; None if it is not supported. Imports torch."""
    if model_type not in FAMILIES:
        return None
    module, name = FAMILIES[model_type][1].split(".")
    return getattr(importlib.import_module(f"{__name__}.{module}"), name)


def _names(text_only: bool) -> list[str]:
    return [n for n, path in FAMILIES.values() if path.startswith("causal_lm.") == text_only]


def _enumerate(names: Iterable[str]) -> str:
    *rest, last = names
    return f"{', '.join(rest)} and {last}"


SUPPORTED = f"{', '.join(_names(False))}, and the text models {_enumerate(_names(True))}"
"""The families by name, for a sentence."""
