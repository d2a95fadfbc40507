"""A model that is too large for the device: what it needs, and what would hold it."""

from __future__ import annotations

import pytest
import torch

from recap import load_target
from recap.targets import LoadError, device_memory, loader

from . import tiny


def test_a_model_that_does_not_fit_says_what_would(tmp_path, monkeypatch):
    """A stand-in for a full GPU: there is none here, so `to` raises torch's error itself."""

    def full(self, *args, **more):
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 130.00 MiB")

    place = tiny.build("llama", tmp_path)
    monkeypatch.setattr("transformers.LlamaForCausalLM.to", full)
    monkeypatch.setattr(loader, "_device", lambda _: torch.device("cuda"))
    monkeypatch.setattr(device_memory, "weights_gb", lambda model: 16.6)
    monkeypatch.setattr(device_memory, "free_gb", lambda device: 14.6)
    with pytest.raises(LoadError) as caught:
        load_target(place, dtype="bfloat16")
    assert str(caught.value) == (
        f"{place} needs 19 GB in bfloat16 and the device has 15 GB free: "
        "use a GPU of 24 GB (l4x1) or a smaller model."
    )


@pytest.mark.parametrize(
    ("gb", "dtype", "free", "end"),
    [
        (33.2, torch.float32, 22.5, "load it in bfloat16, which takes 19 GB."),
        (33.2, torch.float32, 7.0, "use a GPU of 48 GB (l40sx1) or a smaller model."),
        (60.0, torch.bfloat16, None, "use a GPU of 80 GB (a100-large) or a smaller model."),
        (150.0, torch.bfloat16, 79.0, "no single GPU of the hub holds it; use a smaller model."),
    ],
)
def test_what_would_hold_it(gb, dtype, free, end):
    said = device_memory.does_not_fit("owner/model", gb, dtype, free)
    assert said.endswith(end)
    assert ("less free" in said) == (free is None)


def test_weights_are_counted():
    layer = torch.nn.Linear(1000, 1000, bias=False, dtype=torch.bfloat16)
    assert device_memory.weights_gb(layer) == 0.002
    assert device_memory.free_gb(torch.device("cpu")) is None
