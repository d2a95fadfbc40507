"""Target models: one class per family behind one protocol (`base`), and the loader that picks it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .base import KVState, Message, Segment, Target
from .catalogue import DEMO, LoadError
from .families import SUPPORTED

if TYPE_CHECKING:
    import torch

    from .transformers_target import TransformersTarget


def load_target(
    name_or_path: str | Path,
    *,
    revision: str | None = None,
    device: str | torch.device | Mapping[str, Any] | None = None,
    dtype: str | torch.dtype | None = None,
    max_pixels: int | None = None,
    attention: str = "sdpa",
    packed: bool = True,
    static: bool = False,
) -> TransformersTarget:
    """Load a model with its processor, ready to verify trees.

    name_or_path: "demo", "demo-llava", a directory, or a hub id. revision: the hub id's branch, tag or commit
    (default main). device: default "cuda" if there is one, else "cpu"; "auto" spreads the layers over all
    GPUs, and a mapping from modules to devices (a `device_map` of transformers) places them by hand. dtype:
    default bfloat16 on a GPU, float32 on a CPU. max_pixels: most pixels of an image after the Qwen models'
    own resizing (default: the checkpoint's limit); the other families have fixed sizes. attention: "sdpa" or
    "eager". packed: on a CPU, lay the weights out once so that a pass of a few tokens costs little more than
    one of a single token (`targets.packed_cpu`). static: passes of fixed shapes, on CUDA as captured graphs
    (`targets.captured`; not measured on a GPU yet).

    Raises LoadError, a ValueError, with one clear sentence.

    >>> load_target("demo").sees_images                                          # doctest: +SKIP
    True
    """
    # torch and transformers take seconds to import: not before they are used
    from .loader import load

    return load(
        name_or_path,
        revision=revision,
        device=device,
        dtype=dtype,
        max_pixels=max_pixels,
        attention=attention,
        packed=packed,
        captured=static,
    )


__all__ = [
    "DEMO",
    "SUPPORTED",
    "KVState",
    "LoadError",
    "Message",
    "Segment",
    "Target",
    "load_target",
]
