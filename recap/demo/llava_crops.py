"""Pictures as LLaVA-NeXT sees them: an overview and one or two tiles, 6 x 6 tokens each.

`crops` is a fast version of `LlavaNextImageProcessorPil`; the tests compare the two. `places` says which
part of the drawn board each token shows, so that the board's marks can be its labels.
"""

import math
from dataclasses import dataclass

import numpy as np
import torch
from PIL import Image
from torch import Tensor
from transformers.image_processing_utils import select_best_resolution

from . import vision_encoder, world

TILE, SIDE = 168, 6  # pixels, tokens
# A square picture gets one tile, one that is wider or taller gets two.
PINPOINTS = [[TILE, TILE], [TILE, 2 * TILE], [2 * TILE, TILE]]


@dataclass(frozen=True)
class CroppedPicture:
    """One picture of the pool as the LLaVA demo model sees it."""

    crops: np.ndarray  # uint8 [1 + tiles, TILE, TILE, 3]
    size: tuple[int, int]  # of the picture: height, width
    bits: np.ndarray  # packed marks [cells, ceil(marks / 8)]


def fit(size: tuple[int, int]) -> tuple[int, int, int, int]:
    """The canvas of tiles for a picture of (height, width), and its own size on it.

    >>> fit((480, 576)), fit((576, 576))
    ((168, 336, 168, 202), (168, 168, 168, 168))
    """
    high, wide = select_best_resolution(size, PINPOINTS)
    if wide / size[1] < high / size[0]:
        return high, wide, min(math.ceil(size[0] * (wide / size[1])), high), wide
    return high, wide, high, min(math.ceil(size[1] * (high / size[0])), wide)


def crops(image: Image.Image) -> np.ndarray:
    """The overview and the tiles -> uint8 [1 + tiles, TILE, TILE, 3]; the canvas is black."""
    high, wide, inner_high, inner_wide = fit((image.height, image.width))
    canvas = np.zeros((high, wide, 3), np.uint8)
    top, left = (high - inner_high) // 2, (wide - inner_wide) // 2
    inner = image.resize((inner_wide, inner_high), Image.Resampling.BICUBIC)
    canvas[top : top + inner_high, left : left + inner_wide] = np.asarray(inner)
    whole = np.asarray(image.resize((TILE, TILE), Image.Resampling.BICUBIC))
    tiles = [canvas[y : y + TILE, x : x + TILE]
             for y in range(0, high, TILE) for x in range(0, wide, TILE)]  # fmt: skip
    return np.stack([whole, *tiles])


def normalise(pixels: np.ndarray) -> Tensor:
    """uint8 crops [B, TILE, TILE, 3] -> the processor's floats [B, 3, TILE, TILE]."""
    flat = torch.from_numpy(pixels).float() / 255
    return ((flat - torch.tensor(vision_encoder.MEAN)) / torch.tensor(vision_encoder.STD)).permute(
        0, 3, 1, 2
    )


def places(size: tuple[int, int], rows: int, cols: int) -> tuple[np.ndarray, np.ndarray]:
    """What each token of each crop shows of a board of `rows` x `cols` cells.

    -> int64 [crops, SIDE * SIDE, 4], the quarter cells (in merge order: cell * 4 + quarter) under the
    token's own quarters, the nearest where one lies outside the picture; and bool [crops, SIDE *
    SIDE], whether any of the picture is there.
    """
    high, wide, inner_high, inner_wide = fit(size)
    steps = (np.arange(2 * SIDE) + 0.5) / (2 * SIDE)
    spans = [(steps, steps)]
    for y in range(0, high, TILE):
        for x in range(0, wide, TILE):
            down = (y + steps * TILE - (high - inner_high) // 2) / inner_high
            spans.append((down, (x + steps * TILE - (wide - inner_wide) // 2) / inner_wide))
    quarters, inside = [], []
    for down, across in spans:
        r = np.clip((down * 2 * rows).astype(int), 0, 2 * rows - 1)[:, None]
        c = np.clip((across * 2 * cols).astype(int), 0, 2 * cols - 1)
        quarters.append((r // 2 * cols + c // 2) * 4 + r % 2 * 2 + c % 2)
        inside.append(((down > 0) & (down < 1))[:, None] & (across > 0) & (across < 1))

    def by_token(maps: list[np.ndarray]) -> np.ndarray:
        parts = np.stack(maps).reshape(-1, SIDE, 2, SIDE, 2)
        return parts.transpose(0, 1, 3, 2, 4).reshape(-1, SIDE * SIDE, 4)

    return by_token(quarters), by_token(inside).any(-1)


def cropped(picture: world.Picture, index: dict[str, int]) -> CroppedPicture:
    """What training keeps of a picture."""
    image = picture.image
    return CroppedPicture(
        crops(image), (image.height, image.width), vision_encoder.targets(picture, index)
    )
