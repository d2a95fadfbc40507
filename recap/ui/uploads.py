"""Uploaded files: read as images, or refused in one sentence for a person."""

from __future__ import annotations

from pathlib import Path

from PIL import Image, ImageOps, UnidentifiedImageError


def read_image(path: str | Path) -> Image.Image:
    """An uploaded file as an RGB image, upright, its first frame -> PIL image.

    Raises ValueError with one sentence for a person if it is not an image.
    """
    name = Path(path).name
    try:
        with Image.open(path) as picture:
            picture.load()
            return ImageOps.exif_transpose(picture).convert("RGB")
    except UnidentifiedImageError:
        raise ValueError(f"“{name}” is not an image; try a PNG, JPEG, GIF or WebP file.") from None
    except Image.DecompressionBombError:
        raise ValueError(f"“{name}” has too many pixels; try a smaller image.") from None
    except (OSError, SyntaxError, ValueError):
        raise ValueError(f"“{name}” cannot be read as an image; it may be damaged.") from None


def is_image(path: str | Path) -> bool:
    """Whether the chat can show the file as an image."""
    try:
        read_image(path)
    except ValueError:
        return False
    return True


def name_list(files: list[str]) -> str:
    """The names of uploaded files, for a message without words."""
    return ", ".join(Path(f).name for f in files)
