"""The one reader of pictures, for page, API, command line and benchmark: a file -> upright 8-bit sRGB.

Nothing is decoded before the file's size and, from its header, its size in pixels are known to be within
the limits. The format is what the bytes say; the file's name says nothing. Only pixels are kept: no camera
position, nor whatever else the file carries.
"""

from __future__ import annotations

import contextlib
import io
import stat
import threading
import time
import warnings
from collections import OrderedDict
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pillow_heif
from PIL import Image, ImageCms, ImageOps, UnidentifiedImageError

pillow_heif.register_heif_opener()

FORMATS = ("PNG", "JPEG", "WEBP", "HEIF", "AVIF", "GIF", "BMP", "TIFF", "JPEG2000", "ICO")
"""Pillow's names of the formats that are read; others that Pillow knows (EPS, ...) are never tried."""

TRY = "try a PNG, JPEG, HEIC, WebP, AVIF, GIF, BMP, TIFF, JPEG 2000 or ICO file"

SIGNATURES = (
    (b"%pdf", "is a PDF, not an image"),
    (b"<!doctype html", "is a web page, not an image"),
    (b"<html", "is a web page, not an image"),
    (b"%!ps", "is an EPS drawing, not an image of pixels"),
    (b"8bps", "is a Photoshop file, which is not read here"),
    (b"\xff\x0a", "is a JPEG XL image, which is not read here"),
    (b"\0\0\0\x0cjxl ", "is a JPEG XL image, which is not read here"),
    (b"dds ", "is a DDS texture, which is not read here"),
    (b"qoif", "is a QOI image, which is not read here"),
    (b"\x1a\x45\xdf\xa3", "is a video, not an image"),
)
"""How a file begins (in lower case) that is none of FORMATS, and what to call it."""

MAX_SIDE_RATIO = 200
"""Qwen's resizing refuses a side ratio above this."""

_DECODING = threading.Lock()
"""One picture is decoded at a time: the memory that this takes is then bounded by the limit on pixels."""


@dataclass(frozen=True, slots=True)
class Limits:
    """bytes: largest file. pixels: most pixels, width x height. Both hold before anything is decoded."""

    bytes: int = 20_000_000
    pixels: int = 50_000_000


_limits = Limits()


def limits() -> Limits:
    """The limits in force."""
    return _limits


def set_limits(wanted: Limits) -> None:
    """Change the limits for everything that is read in this process from now on."""
    global _limits
    _limits = wanted


@dataclass(frozen=True, slots=True)
class Picture:
    """A file as read. image: upright RGB. note: a sentence on what was left out, or empty."""

    image: Image.Image
    note: str = ""


CACHE_BYTES, CACHE_S = 256_000_000, 30.0
"""Decoded files are kept for so long, so that the page's copy and the model's reading decode a file once."""

_decoded: OrderedDict[tuple[str, int, int], tuple[float, Picture]] = OrderedDict()
_decoded_lock = threading.Lock()


@dataclass(frozen=True, slots=True)
class ImageFile:
    """An image that stays on disk: a conversation keeps it instead of the pixels."""

    path: str

    def load(self) -> Image.Image:
        """The image; see `read`."""
        return self.read().image

    def read(self) -> Picture:
        """The picture; see `read_picture`. Its image is shared: do not change it."""
        try:
            about = Path(self.path).stat()
        except OSError:
            return read_picture(self.path)  # it says what is wrong
        key = (self.path, about.st_mtime_ns, about.st_size)
        with _decoded_lock:
            known = _decoded.get(key)
        if known is not None:
            return known[1]
        picture = read_picture(self.path)
        with _decoded_lock:
            _decoded[key] = (time.monotonic(), picture)
        forget_decoded(CACHE_S)
        return picture


def forget_decoded(older_s: float = 0.0) -> None:
    """Drop decoded files that are older, and the oldest beyond CACHE_BYTES."""
    now = time.monotonic()
    with _decoded_lock:
        total = sum(3 * p.image.width * p.image.height for _, p in _decoded.values())
        for key, (at, picture) in list(_decoded.items()):
            if at < now - older_s or total > CACHE_BYTES:
                del _decoded[key]
                total -= 3 * picture.image.width * picture.image.height


def loaded(image: Image.Image | ImageFile) -> Image.Image:
    """The pixels of an image, wherever it is."""
    return image.load() if isinstance(image, ImageFile) else image


def open_image(file: str | Path | bytes, name: str | None = None) -> Image.Image:
    """The image in a file; see `read_picture`."""
    return read_picture(file, name).image


def read_picture(file: str | Path | bytes, name: str | None = None) -> Picture:
    """A file, or its bytes, as an upright RGB image; of several frames the first.

    name: what errors call it (default: the file's name). Raises ValueError with one sentence if it is not an
    image, larger than the limits in force, or damaged.
    """
    name = f"“{name or ('the image' if isinstance(file, bytes) else display_name(file))}”"
    head = _check_file(file, name)
    try:
        with (
            _DECODING,
            warnings.catch_warnings(action="ignore"),  # Pillow's remarks on damaged or large files
            Image.open(io.BytesIO(file) if isinstance(file, bytes) else file, formats=FORMATS) as p,
        ):
            _check_pixels(p.size, name)
            image, note = to_rgb(p), _left_out(p, name)
            _check_pixels(image.size, name)  # a frame may be larger than the header says
            bare = Image.new("RGB", image.size)  # without the metadata, which Pillow carries along
            bare.paste(image)
            return Picture(bare, note)
    except _RefusedError:
        raise
    except UnidentifiedImageError:
        raise ValueError(f"{name} {_kind(head)}; {TRY}.") from None
    except Image.DecompressionBombError:
        raise ValueError(f"{name} has too many pixels; try a smaller image.") from None
    except Exception:  # Pillow's readers raise anything on a damaged file
        raise ValueError(f"{name} cannot be read as an image; it may be damaged.") from None


def to_rgb(image: Image.Image) -> Image.Image:
    """Upright 8-bit sRGB: EXIF rotation and colour profile applied, transparency laid over white.

    More than 8 bits become 8. A broken profile or EXIF block is ignored. Raises ValueError where the file
    is damaged.
    """
    try:
        deep_key = _is_deep_png(image)
        image.load()
    except (OSError, SyntaxError) as error:  # Pillow reports broken files as either
        raise ValueError("The image file is damaged and cannot be read to its end.") from error
    with contextlib.suppress(Exception):
        image = ImageOps.exif_transpose(image)
    profile, key = image.info.get("icc_profile"), image.info.get("transparency")
    if image.mode == "RGB" and profile is None and key is None:
        return image
    if image.mode.startswith("I") or image.mode == "F":
        samples = np.asarray(image)
        grey = Image.fromarray(_eight_bits(samples)).convert("RGB")
        if isinstance(key, int):
            grey.paste("white", mask=Image.fromarray(samples == key))
        return grey
    if image.mode == "RGB" and deep_key and key is not None:
        image.info["transparency"] = tuple(value >> 8 for value in key)  # as the pixels were
    alpha = None
    if image.mode in ("RGBA", "LA", "PA", "RGBa", "La") or key is not None:
        image = (image.convert("LA") if image.mode == "La" else image).convert("RGBA")
        alpha = image.getchannel("A")
    if image.mode not in ("RGB", "L", "CMYK", "LAB"):
        image = image.convert("RGB")
    image = _to_srgb(image, profile) if profile else image.convert("RGB")
    if alpha is None:
        return image
    return Image.composite(image, Image.new("RGB", image.size, "white"), alpha)


def _to_srgb(image: Image.Image, profile: bytes) -> Image.Image:
    """The colours that a profile means; without it where it is broken or made for another mode."""
    try:
        source = ImageCms.ImageCmsProfile(io.BytesIO(profile))
        if "sRGB" not in ImageCms.getProfileDescription(source):
            srgb = ImageCms.createProfile("sRGB")
            return ImageCms.profileToProfile(image, source, srgb, outputMode="RGB")
    except (ImageCms.PyCMSError, OSError, ValueError):
        pass
    return image.convert("RGB")


def _is_deep_png(image: Image.Image) -> bool:
    """Whether an unread file holds 16-bit colours, which Pillow cuts to 8 (but not its transparent one)."""
    return any("16B" in str(tile) for tile in getattr(image, "tile", ()))


def _eight_bits(values: np.ndarray) -> np.ndarray:
    """uint8 from 16-bit, 32-bit or float samples; values that fit into 8 bits stay as they are.

    Samples of 10, 12 or 14 significant bits, which cameras and scanners store in 16, use the whole range.
    """
    values = np.nan_to_num(values.astype(np.float64))
    top = values.max(initial=0.0)
    if 0.0 < top <= 1.0 and values.min() >= 0.0 and not np.array_equal(values, np.round(values)):
        values = values * 255.0
    elif top > 255.0:
        white = next((2.0**bits - 1.0 for bits in (10, 12, 14, 16) if top < 2**bits), top)
        values = values * (255.0 / white)
    return np.clip(np.round(values), 0, 255).astype(np.uint8)


def refuse_thin(image: Image.Image) -> None:
    """Raise ValueError where one side is more than 200 times the other."""
    width, height = image.size
    if max(width, height) > MAX_SIDE_RATIO * min(width, height):
        raise ValueError(
            f"The image is {width} x {height} pixels, and this model takes at most {MAX_SIDE_RATIO} "
            "to 1: crop it or add a margin."
        )


def display_name(path: str | Path) -> str:
    """A file's name, fit to stand in a sentence: printable, at most 60 characters.

    >>> display_name("/tmp/a\\nb.png")
    'a?b.png'
    """
    name = "".join(c if c.isprintable() else "?" for c in Path(path).name) or "the file"
    return name if len(name) <= 60 else f"{name[:40]}…{name[-16:]}"


class _RefusedError(ValueError):
    """A finished sentence: it is not replaced by a general one."""


def _check_file(file: str | Path | bytes, name: str) -> bytes:
    """The first bytes; refuses what is not a file, empty, or too large."""
    try:
        if isinstance(file, bytes):
            size, head = len(file), file[:1024]
        else:
            about = Path(file).stat()
            if not stat.S_ISREG(about.st_mode):
                raise _RefusedError(f"{name} is not a file.")
            size, head = about.st_size, b""
            if size <= _limits.bytes:
                with Path(file).open("rb") as opened:
                    head = opened.read(1024)
    except FileNotFoundError:
        raise ValueError(
            f"{name} cannot be read, there is no such file: choose it again."
        ) from None
    except _RefusedError:
        raise
    except (OSError, ValueError):
        raise ValueError(f"{name} cannot be read: choose it again.") from None
    if size > _limits.bytes:
        raise ValueError(
            f"{name} has {size / 1e6:.1f} MB, and {_limits.bytes / 1e6:.0f} MB are the most: save it smaller."
        )
    if not size:
        raise ValueError(f"{name} is empty: choose it again.")
    return head


def _check_pixels(size: tuple[int, int], name: str) -> None:
    width, height = size
    if width * height > _limits.pixels:
        raise _RefusedError(
            f"{name} has {width * height / 1e6:.0f} million pixels ({width} x {height}), and "
            f"{_limits.pixels / 1e6:.0f} million are the most: make it smaller."
        )


def _kind(head: bytes) -> str:
    """What a file is that is none of FORMATS, from its first bytes."""
    start = head.lstrip(b"\xef\xbb\xbf \t\r\n").lower()
    if b"<svg" in start:
        return "is an SVG drawing, not an image of pixels"
    if start[4:8] == b"ftyp":
        return "is a video or an image of a kind that is not read here"
    return next((kind for sign, kind in SIGNATURES if start.startswith(sign)), "is not an image")


def _left_out(picture: Image.Image, name: str) -> str:
    if not getattr(picture, "is_animated", False) or picture.format == "MPO":
        return ""  # a phone's MPO holds a preview next to the photograph
    if picture.format in ("TIFF", "HEIF"):
        return f"{name} holds several pictures: the first is used."
    return f"{name} is animated: its first frame is used."
