"""Text-only causal language models: Llama, Mistral, Qwen2 and others of the same plain build."""

from __future__ import annotations

from ..transformers_target import TransformersTarget


class CausalLMTarget(TransformersTarget):
    """One position per token, no images: everything is in `TransformersTarget`."""
