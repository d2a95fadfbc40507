"""Pictures as people have them -> upright RGB, ready for any model's own image processor."""

from __future__ import annotations

import contextlib
import io
import warnings
from pathlib import Path

import numpy as np
from PIL import Image, ImageOps, UnidentifiedImageError

WIDEST = 200
"""Qwen's resize rule refuses a side ratio above this."""


def to_rgb(image: Image.Image) -> Image.Image:
    """Upright 8-bit RGB: EXIF rotation applied, transparency laid over white, 16 bits scaled to 8.

    Raises ValueError where the file is damaged.
    """
    try:
        image.load()
    except (OSError, SyntaxError) as error:  # Pillow reports broken files as either
        raise ValueError("The image file is damaged and cannot be read to its end.") from error
    with contextlib.suppress(Exception):  # a broken EXIF block is no reason to refuse a picture
        image = ImageOps.exif_transpose(image)
    if image.mode == "RGB":
        return image
    if image.mode.startswith("I") or image.mode == "F":
        return Image.fromarray(_eight_bits(np.asarray(image))).convert("RGB")
    if image.mode in ("RGBA", "LA", "PA", "RGBa", "La") or "transparency" in image.info:
        clear = (image.convert("LA") if image.mode == "La" else image).convert("RGBA")
        white = Image.new("RGBA", clear.size, "white")
        return Image.alpha_composite(white, clear).convert("RGB")
    return image.convert("RGB")


def _eight_bits(values: np.ndarray) -> np.ndarray:
    """uint8 from 16-bit, 32-bit or float samples; values that fit into 8 bits stay as they are."""
    values = np.nan_to_num(values.astype(np.float64))
    top = values.max(initial=0.0)
    if 0.0 < top <= 1.0 and values.min() >= 0.0 and not np.array_equal(values, np.round(values)):
        values = values * 255.0
    elif top > 255.0:
        values = values / (257.0 if top <= 65535.0 else top / 255.0)
    return np.clip(np.round(values), 0, 255).astype(np.uint8)


def refuse_thin(image: Image.Image) -> None:
    """Raise ValueError where one side is more than 200 times the other."""
    wide, high = image.size
    if max(wide, high) > WIDEST * min(wide, high):
        raise ValueError(
            f"The image is {wide} x {high} pixels, and this model takes at most {WIDEST} to 1: "
            "crop it or add a margin."
        )


def _open(file: str | Path | bytes) -> Image.Image:
    return Image.open(io.BytesIO(file) if isinstance(file, bytes) else file)


def open_image(file: str | Path | bytes, name: str | None = None) -> Image.Image:
    """The picture in a file or in its bytes, fully read. Raises ValueError with one sentence.

    name: what the picture is called in that sentence; the file's path by default.
    """
    path = name or file
    try:
        # Pillow's remarks on large or damaged files say less than the sentences below
        with warnings.catch_warnings(action="ignore"), _open(file) as picture:
            picture.load()
            return to_rgb(picture)
    except FileNotFoundError:
        raise ValueError(f"There is no image file {path}.") from None
    except IsADirectoryError:
        raise ValueError(f"{path} is a directory, not an image file.") from None
    except Image.DecompressionBombError:
        raise ValueError(f"{path} has too many pixels: make it smaller.") from None
    except UnidentifiedImageError:
        raise ValueError(f"{path} is not an image: use a PNG, JPEG, WebP or GIF file.") from None
    except (OSError, SyntaxError, ValueError):
        raise ValueError(f"{path} cannot be read as an image; it may be damaged.") from None
