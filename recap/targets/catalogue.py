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
DEMO_LLAVA = DEMO.with_name("demo_llava")
"""Its LLaVA-NeXT twin: the same world, the other family."""


def bundled() -> dict[str, Path]:
    """The models of the repository by the names that they are loaded by."""
    return {"demo": DEMO, "demo-llava": DEMO_LLAVA}


class LoadError(ValueError):
    """A model cannot be loaded; the message is one sentence for the user."""
