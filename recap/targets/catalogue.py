"""The models that the repository contains, and the error that says why one cannot be loaded. No torch here."""

from __future__ import annotations

from pathlib import Path

DEMO = Path(__file__).parents[2] / "assets" / "demo_model"
"""The embedded demo model."""
DEMO_LLAVA = DEMO.with_name("demo_llava")
"""The LLaVA demo model: trained on the same pictures, of the LLaVA-NeXT family."""


def bundled() -> dict[str, Path]:
    """The models of the repository by the names that they are loaded by."""
    return {"demo": DEMO, "demo-llava": DEMO_LLAVA}


class LoadError(ValueError):
    """A model cannot be loaded; the message is one sentence for the user."""
