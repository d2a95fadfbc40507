"""The vision encoder in training: batches of pictures of one size, and linear heads that name every cell.

`encode` is the forward pass of transformers' own weights, batched over pictures of one size (the stock
pass loops over images); `tests/test_demo_world.py` holds the two equal. `prepare` is a fast version of
`Qwen2VLImageProcessorPil`; the same file tests it against the original.
"""

import functools
import string

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn
from transformers.models.qwen2_5_vl.modeling_qwen2_5_vl import (
    Qwen2_5_VisionTransformerPretrainedModel as VisionEncoder,
)
from transformers.models.qwen2_5_vl.modeling_qwen2_5_vl import rotate_half

from . import world

LETTERS = string.ascii_letters + string.digits + ".%"
LETTER_BLOCK = 2  # after this many blocks, the patches must spell their letters
PATCH, MERGE, CELL = 14, 2, 28
MEAN = (0.48145466, 0.4578275, 0.40821073)
STD = (0.26862954, 0.26130258, 0.27577711)


def prepare(image: Image.Image, rows: int, cols: int) -> np.ndarray:
    """Shrink and cut into patches, in the processor's order -> uint8 [4 * rows * cols, 3 * 14 * 14]."""
    small = image.resize((cols * CELL, rows * CELL), Image.Resampling.BICUBIC)
    a = np.asarray(small).transpose(2, 0, 1)
    a = a.reshape(3, rows, MERGE, PATCH, cols, MERGE, PATCH).transpose(1, 4, 2, 5, 0, 3, 6)
    return np.ascontiguousarray(a).reshape(rows * cols * MERGE**2, 3 * PATCH**2)


def normalise(patches: Tensor) -> Tensor:
    """uint8 patches [..., 588] -> the processor's floats (one of the two equal frames)."""
    mean = torch.tensor(MEAN).repeat_interleave(PATCH**2)
    std = torch.tensor(STD).repeat_interleave(PATCH**2)
    return (patches.float() / 255 - mean) / std


@functools.lru_cache(maxsize=64)
def _positions(rows: int, cols: int) -> Tensor:
    """Row and column of each patch in merge order -> [4 * rows * cols, 2]."""
    y, x = torch.meshgrid(torch.arange(rows * 2), torch.arange(cols * 2), indexing="ij")

    def order(a: Tensor) -> Tensor:
        return a.reshape(rows, 2, cols, 2).permute(0, 2, 1, 3).reshape(-1)

    return torch.stack((order(y), order(x)), dim=-1)


def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Full attention [B, heads, S, head], written out: on a CPU its backward pass is far faster."""
    scores = (q * q.shape[-1] ** -0.5) @ k.transpose(-1, -2)
    return scores.softmax(-1).to(v.dtype) @ v


def encode(
    encoder: VisionEncoder, pixels: Tensor, rows: int, cols: int, midway: list[Tensor] | None = None
) -> Tensor:
    """One frame's pixels [B, 4 * cells, 588] -> merged tokens [B, cells, hidden].

    The two temporal halves of the patch kernel see the same frame, so their weights are summed.
    All blocks attend to the whole picture. The patches after `LETTER_BLOCK` blocks are appended to `midway`.
    """
    config = encoder.config
    kernel = encoder.patch_embed.proj.weight.sum(2).flatten(1)  # [C, 588]
    x = nn.functional.linear(pixels, kernel)
    batch, length, width = x.shape
    cos, sin = encoder.rotary_pos_emb(x, _positions(rows, cols))
    cos, sin = cos[:, None], sin[:, None]  # [S, 1, head]

    def rotate(a: Tensor) -> Tensor:
        a = a.float()
        return (a * cos + rotate_half(a) * sin).to(x.dtype)

    for i, block in enumerate(encoder.blocks):
        qkv = block.attn.qkv(block.norm1(x)).view(batch, length, 3, config.num_heads, -1)
        q, k, v = qkv.unbind(2)
        heads = [t.transpose(1, 2).to(qkv.dtype) for t in (rotate(q), rotate(k), v)]
        mixed = attend(*heads).transpose(1, 2).reshape(batch, length, width)
        x = x + block.attn.proj(mixed)
        x = x + block.mlp(block.norm2(x))
        if midway is not None and i + 1 == LETTER_BLOCK:
            midway.append(x)
    return encoder.merger(x.reshape(-1, width)).view(batch, rows * cols, -1)


@functools.lru_cache(maxsize=1)
def marks() -> tuple[str, ...]:
    """Every mark that a cell may carry, in a fixed order."""
    found = {"ones:none", *(f"tens:{digit}" for digit in range(10))}
    for kind in world.KINDS:
        for i in range(3 if kind == "other" else 900):
            found.update(*world.draw(kind, f"marks{i}", unit=8).cells)
    return tuple(sorted(found))


def targets(picture: world.Picture, index: dict[str, int]) -> np.ndarray:
    """Which marks each cell carries -> bool [cells, marks], packed to bits."""
    rows = np.zeros((len(picture.cells), len(index)), bool)
    for i, cell in enumerate(picture.cells):
        for mark in cell:
            if mark in index:
                rows[i, index[mark]] = True
    return np.packbits(rows, axis=1)


def spelling(picture: world.Picture) -> np.ndarray:
    """Which letters each patch carries, in merge order -> bool [4 * cells, letters], packed."""
    rows = np.zeros((len(picture.glyphs), len(LETTERS)), bool)
    for i, glyphs in enumerate(picture.glyphs):
        for glyph in glyphs:
            rows[i, LETTERS.index(glyph)] = True
    y, x = _positions(picture.rows, picture.cols).T.numpy()
    return np.packbits(rows[y * picture.cols * 2 + x], axis=1)


class Heads(nn.Module):
    """The heads of the first stage: merged token -> marks, patch at `LETTER_BLOCK` -> letters."""

    def __init__(self, hidden: int, count: int, width: int) -> None:
        super().__init__()
        self.marks = nn.Linear(hidden, count)
        self.letters = nn.Linear(width, len(LETTERS))
        nn.init.constant_(self.marks.bias, -4.0)
        nn.init.constant_(self.letters.bias, -4.0)

    def forward(self, tokens: Tensor, midway: Tensor) -> tuple[Tensor, Tensor]:
        return self.marks(tokens), self.letters(nn.functional.rms_norm(midway, midway.shape[-1:]))
