"""A model on several devices: its layers one after the other, as accelerate places them.

accelerate moves a layer's inputs to the layer's device. Ours is to give every layer its KV slots there, and
to refuse weights that were left in host memory or on disk, which every pass would read again.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from . import device_memory
from .catalogue import LoadError


def device_map(device: Any) -> str | dict[str, Any] | None:
    """What `from_pretrained` takes as its device_map; None for a model on one device."""
    if isinstance(device, Mapping):
        return dict(device)
    if device == "auto" and torch.cuda.device_count() > 1:
        return "auto"
    return None


def layer_devices(language: Any) -> tuple[torch.device, ...]:
    """The device of each decoder layer; () if all lie on one."""
    devices = tuple(next(layer.parameters()).device for layer in language.layers)
    return devices if len(set(devices)) > 1 else ()


def refuse_offloaded(name: str, model: Any) -> None:
    """Raise LoadError if a part of the model was placed on no device that computes."""
    devices = {str(device) for device in getattr(model, "hf_device_map", {}).values()}
    if "disk" in devices or ("cpu" in devices and devices - {"cpu"}):
        free = sum(
            device_memory.free_gb(torch.device("cuda", i)) or 0.0
            for i in range(torch.cuda.device_count())
        )
        raise LoadError(
            device_memory.does_not_fit(
                name, device_memory.weights_gb(model), model.dtype, free or None
            )
        )
