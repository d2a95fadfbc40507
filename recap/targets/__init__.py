"""Target models: one file a family, one protocol (`base`), one door (`load_target`)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .base import Target


def load_target(name_or_path: str = "demo", **settings: Any) -> Target:
    """Load a target by hub id, local directory or "demo". See `recap.targets.loader.load_target`.

    torch and transformers are imported here, not before: memory, tree and trace work without them.
    """
    from .loader import load_target as load

    return load(name_or_path, **settings)


__all__ = ["load_target"]
