"""What can be loaded, and the error that says why something cannot. No torch here."""

from __future__ import annotations

from pathlib import Path

QWEN_VL = ("qwen2_vl", "qwen2_5_vl", "qwen3_vl")
LLAVA = ("llava_next",)
TEXT = ("llama", "mistral", "qwen2", "qwen3")
"""`model_type` in a checkpoint's config.json, by adapter."""

SUPPORTED = (
    "Qwen2-VL, Qwen2.5-VL, Qwen3-VL, LLaVA-NeXT (1.6), "
    "and the text models Llama, Mistral, Qwen2 and Qwen3"
)
DEMO = Path(__file__).parents[2] / "assets" / "demo_model"
"""The model that the repository brings along."""


class LoadError(ValueError):
    """A model cannot be loaded; the message is one sentence for the user."""
