"""Packed weights: the same products, and only where they apply."""

import pytest
import torch
from torch import nn

from recap import load_target
from recap.targets import packed_cpu as packed

from . import tiny

CPU = torch.device("cpu")
here = pytest.mark.skipif(
    not packed.available(CPU, torch.float32), reason="this CPU's torch has no oneDNN"
)


@here
@pytest.mark.parametrize("count", [1, 2, 7, 64, 200])
@pytest.mark.parametrize("bias", [True, False])
def test_same_products(count, bias):
    torch.manual_seed(0)
    linear = nn.Linear(96, 160, bias=bias)
    x = torch.randn(1, count, 96)
    with torch.inference_mode():
        torch.testing.assert_close(packed.PackedLinear(linear)(x), linear(x))


@here
def test_the_language_half_is_packed_and_the_rest_is_not(tmp_path):
    where = tiny.build("qwen2_5_vl", tmp_path)
    fast, plain = load_target(where), load_target(where, packed=False)

    def kinds(module):
        return {type(m) for m in module.modules() if "Linear" in type(m).__name__}

    assert kinds(fast.model.model.language_model) == {packed.PackedLinear}
    assert kinds(fast.model.model.visual) == {nn.Linear}
    assert kinds(plain.model) == {nn.Linear}


def test_not_on_a_gpu_nor_in_doubles():
    assert not packed.available(torch.device("cuda"), torch.bfloat16)
    assert not packed.available(CPU, torch.float64)


@here
def test_kernels_are_built_at_load_as_far_as_the_time_allows(monkeypatch):
    layers = nn.Sequential(nn.Linear(48, 40), nn.Linear(40, 48, bias=False))
    assert packed.warm(layers) == 0, "nothing is packed"
    packed.pack(layers)
    assert packed.warm(layers, layers) == packed.WARM_TOKENS
    monkeypatch.setattr(packed, "WARM_S", 0.0)
    assert packed.warm(layers) == 0
