"""Linear layers in a packed weight layout for small passes: the CPU's fast path, for every decoder alike.

A small pass reads every weight once, so its time should hardly depend on the number of packed tokens. The
CPU's general matrix product lays the weights out again in each call and loses that: on many CPUs two tokens
take nearly twice the time of one. oneDNN takes weights in its own blocked layout, which costs one reordering
at load. The products are the same sums in another order: float32 stays greedy-identical (tested), and the
weights are not rounded.
"""

from __future__ import annotations

import time

import torch
from torch import Tensor, nn

TOKENS = 64
"""Packed tokens that the layout is chosen for; smaller passes are fast in it too."""

WARM_TOKENS = 32
"""Passes of up to this many tokens have their kernels built at load."""

WARM_S = 1.0
"""Most seconds that this may take."""


class PackedLinear(nn.Module):
    """An inference-only `nn.Linear` whose weight [out, in] lies in oneDNN's layout."""

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__()
        self.in_features, self.out_features = linear.in_features, linear.out_features
        self.dtype = linear.weight.dtype
        weight = linear.weight.detach()
        # not a buffer: it has no dense storage that could be moved, cast or saved
        self._packed = torch.ops.mkldnn._reorder_linear_weight(weight, TOKENS)
        self.bias = linear.bias

    def forward(self, x: Tensor) -> Tensor:
        """x [..., in] -> [..., out]."""
        return torch.ops.mkldnn._linear_pointwise(x, self._packed, self.bias, "none", [], "")


def available(device: torch.device, dtype: torch.dtype) -> bool:
    """Whether this machine has fast packed products for the dtype (a CPU with oneDNN)."""
    if device.type != "cpu" or not torch.backends.mkldnn.is_available():
        return False
    if dtype == torch.bfloat16:
        return torch.ops.mkldnn._is_mkldnn_bf16_supported()
    if dtype == torch.float16:
        return torch.ops.mkldnn._is_mkldnn_fp16_supported()
    return dtype == torch.float32


@torch.inference_mode()
def warm(*modules: nn.Module) -> int:
    """Build oneDNN's kernels for small passes: the first pass of each size is twice as slow without.

    Returns the largest number of packed tokens that is ready, 0 if none: large layers use up the time.
    """
    layers: dict[tuple[int, int, bool], PackedLinear] = {}
    for module in modules:
        for layer in module.modules():
            if isinstance(layer, PackedLinear):
                shape = (layer.in_features, layer.out_features, layer.bias is not None)
                layers.setdefault(shape, layer)
    end = time.perf_counter() + WARM_S
    for count in range(1, WARM_TOKENS + 1):
        for layer in layers.values():
            if time.perf_counter() > end:
                return count - 1
            layer(torch.zeros(1, count, layer.in_features, dtype=layer.dtype))
    return WARM_TOKENS if layers else 0


def pack(module: nn.Module) -> None:
    """Replace the plain linear layers inside a module; their dense weights are freed."""
    for parent in list(module.modules()):
        for name, child in list(parent.named_children()):
            if type(child) is nn.Linear:
                setattr(parent, name, PackedLinear(child))
