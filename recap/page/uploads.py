"""Uploaded files: read as images, or refused in one sentence for a person.

Nothing is decoded before its size in bytes and, from its header, in pixels is known to be small enough.
The format is what the file's bytes say; its name says nothing. Only pixels are kept: `for_page` writes them
to a new file for the page, so that what a browser gets is what the model reads, upright, and carries
neither a camera's position nor whatever else was hidden in the upload.
"""

from __future__ import annotations

import contextlib
import stat
import threading
import time
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pillow_heif
from gradio.processing_utils import save_pil_to_cache
from gradio.utils import get_upload_folder
from PIL import Image, UnidentifiedImageError

from ..targets.images import to_rgb

pillow_heif.register_heif_opener()

FORMATS = ("PNG", "JPEG", "WEBP", "HEIF", "AVIF", "GIF", "BMP", "TIFF")
"""Pillow's names of what is accepted; other formats that Pillow knows (EPS, ...) are never tried."""

TRY = "try a PNG, JPEG, HEIC, WebP, AVIF, GIF, BMP or TIFF file"

SHOWN_SIDE = 1600
"""Longest side in pixels of an image as the page shows it; the model gets all pixels."""

_ONE = threading.Lock()
"""One picture is decoded at a time: what decoding takes is then bounded by the cap on pixels."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Largest upload. bytes: of the file. pixels: width x height, before anything is decoded."""

    bytes: int = 20_000_000
    pixels: int = 50_000_000


LIMITS = Limits()
"""The limits in force; `launch.serve` sets them from the environment."""


@dataclass(frozen=True, slots=True)
class Picture:
    """An upload as read. image: upright RGB. note: a sentence on what was left out, or empty."""

    image: Image.Image
    note: str = ""


def read(path: str | Path, limits: Limits | None = None) -> Picture:
    """An uploaded file as an upright RGB image, transparency over white, of several frames the first.

    limits: other ones than LIMITS. Raises ValueError with one sentence for a person if it is no image,
    too large, or damaged.
    """
    limits = limits or LIMITS
    name = display_name(path)
    head = _head(Path(path), name, limits)
    try:
        # Pillow's own remarks on damaged or large files stay out of the log
        with (
            _ONE,
            warnings.catch_warnings(action="ignore"),
            Image.open(path, formats=FORMATS) as picture,
        ):
            wide, high = picture.size
            if wide * high > limits.pixels:
                raise ValueError(
                    f"“{name}” has {wide * high / 1e6:.0f} million pixels ({wide} x {high}), and "
                    f"{limits.pixels / 1e6:.0f} million are the most: make it smaller."
                )
            return Picture(_upright(picture, name, limits), _frames(picture, name))
    except UnidentifiedImageError:
        raise ValueError(f"“{name}” {_kind(head)}; {TRY}.") from None
    except Image.DecompressionBombError:
        raise ValueError(f"“{name}” has too many pixels; try a smaller image.") from None
    except ValueError as error:
        if str(error).startswith(f"“{name}”"):
            raise
        raise ValueError(_damaged(name)) from None
    except Exception:  # Pillow's readers raise anything on a damaged file
        raise ValueError(_damaged(name)) from None


def read_image(path: str | Path) -> Image.Image:
    """An uploaded file as an RGB image; see `read`."""
    return read(path).image


def for_page(paths: Sequence[str | Path]) -> tuple[list[str], str]:
    """Copies of uploaded images for the page -> (their paths in Gradio's cache, what was left out).

    Files that cannot be read are skipped: asking about them says why.
    """
    copies, notes = [], []
    for path in paths:
        try:
            picture = read(path)
        except ValueError:
            continue
        image = picture.image.copy()
        image.thumbnail((SHOWN_SIDE, SHOWN_SIDE))
        kind = "png" if image.width * image.height <= 500_000 else "jpeg"
        folder = get_upload_folder()
        copies.append(save_pil_to_cache(image, cache_dir=folder, name="image", format=kind))
        notes += [picture.note] if picture.note else []
    return copies, " ".join(notes)


def is_image(path: str | Path) -> bool:
    """Whether the chat can show the file as an image."""
    try:
        read(path)
    except ValueError:
        return False
    return True


def name_list(files: list[str]) -> str:
    """The names of uploaded files, for a message without words."""
    return ", ".join(display_name(f) for f in files)


def sweep(*, older_s: float) -> int:
    """Delete uploads and their copies that are older than so many seconds -> how many.

    Only in a folder that this server made for itself (app.py does), never in one that others use too.
    """
    folder = Path(get_upload_folder())
    if not folder.name.startswith("recap-"):
        return 0
    horizon, gone = time.time() - older_s, 0
    for path in folder.rglob("*"):
        with contextlib.suppress(OSError):
            if path.is_file() and path.stat().st_mtime < horizon:
                path.unlink()
                gone += 1
    return gone


def display_name(path: str | Path) -> str:
    """A file's name, fit to stand in a sentence: printable, at most 60 characters.

    >>> display_name("/tmp/a\\nb.png")
    'a?b.png'
    """
    name = "".join(c if c.isprintable() else "?" for c in Path(path).name) or "the file"
    return name if len(name) <= 60 else f"{name[:40]}…{name[-16:]}"


def _head(path: Path, name: str, limits: Limits) -> bytes:
    """The file's first bytes; refuses what is no file, empty, or too large."""
    try:
        about = path.stat()
        if not stat.S_ISREG(about.st_mode):
            raise ValueError(f"“{name}” is not a file.")
        if about.st_size > limits.bytes:
            raise ValueError(
                f"“{name}” has {about.st_size / 1e6:.1f} MB, and {limits.bytes / 1e6:.0f} MB are the "
                "most: save it smaller."
            )
        with path.open("rb") as file:
            head = file.read(1024)
    except (OSError, ValueError) as error:
        if str(error).startswith("“"):
            raise
        raise ValueError(f"“{name}” cannot be read: upload it again.") from None
    if not head:
        raise ValueError(f"“{name}” is empty: upload it again.")
    return head


def _kind(head: bytes) -> str:
    """What a file is that is no image we take, from its first bytes."""
    start = head.lstrip(b"\xef\xbb\xbf \t\r\n").lower()
    if b"<svg" in start:
        return "is an SVG drawing, not a picture of pixels"
    if start.startswith(b"%pdf"):
        return "is a PDF, not an image"
    if start.startswith((b"<!doctype html", b"<html")):
        return "is a web page, not an image"
    if start[4:8] == b"ftyp" or start.startswith(b"\x1a\x45\xdf\xa3"):
        return "is a video or an image of a kind that is not read here"
    return "is not an image"


def _damaged(name: str) -> str:
    return f"“{name}” cannot be read as an image; it may be damaged."


def _frames(picture: Image.Image, name: str) -> str:
    if not getattr(picture, "is_animated", False) or picture.format == "MPO":
        return ""  # a phone's MPO holds a preview beside the photograph
    if picture.format in ("TIFF", "HEIF"):
        return f"“{name}” holds several pictures: the first is used."
    return f"“{name}” is animated: its first frame is used."


def _upright(picture: Image.Image, name: str, limits: Limits) -> Image.Image:
    image = to_rgb(picture)
    if image.width * image.height > limits.pixels:  # a frame may be larger than the header says
        raise ValueError(f"“{name}” has too many pixels; try a smaller image.")
    bare = Image.new("RGB", image.size)  # without the file's metadata, which Pillow carries along
    bare.paste(image)
    return bare
