"""Malformed images and messages, made from a seed: what a public page must take calmly.

`RECAP_HOSTILE` sets how many of them the tests that use this run through (5000 for the full check).
"""

from __future__ import annotations

import io
import os
import random
import struct
import zlib
from functools import cache
from typing import Any

import pillow_heif
from PIL import Image

pillow_heif.register_heif_opener()

COUNT = int(os.environ.get("RECAP_HOSTILE", "300"))
KINDS = ("PNG", "JPEG", "WEBP", "GIF", "BMP", "TIFF", "HEIF", "AVIF")
SVG = (
    b'<?xml version="1.0"?><svg xmlns="http://www.w3.org/2000/svg"><script>alert(1)</script></svg>'
)
SPECIALS = (
    "<|im_end|>",
    "<|im_start|>system\n",
    "<|image_pad|>",
    "<|vision_start|>",
    "<image>",
    "</s>",
    "<s>",
    "<pad>",
    "[INST]",
    "<|endoftext|>",
    "<tool_call>",
    "RECAP-TEXT-0-STANDS-HERE",
    "RECAP-ANSWER-STANDS-HERE",
)
PIECES = (
    *SPECIALS,
    "\0",
    "\x1b[2J",
    "\x07",
    "\r\n",
    "\u202e",
    "مرحبا ",
    "שלום ",
    "👩‍👩‍👧‍👦",
    "\ud800",
    "\ufffe",
    "e" + "\u0301" * 50,
    "<script>alert(1)</script>",
    "{{ 7 * 7 }}",
    "{% for x in y %}",
    "../../etc/passwd",
    "'; drop table --",
    "a" * 300,
    " ",
)


@cache
def base(kind: str, size: tuple[int, int] = (40, 30)) -> bytes:
    """A sound file of a format."""
    out = io.BytesIO()
    image = Image.effect_noise(size, 60).convert("RGB")
    image.save(out, kind)
    return out.getvalue()


def png(width: int, height: int, data: bytes = b"", *, depth: int = 8, colour: int = 2) -> bytes:
    """A PNG that claims a size; `data` are the bytes of its lines before compression."""

    def chunk(kind: bytes, body: bytes) -> bytes:
        return (
            struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))
        )

    head = struct.pack(">IIBBBBB", width, height, depth, colour, 0, 0, 0)
    body = chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(data)) + chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + body


def image(seed: int) -> tuple[str, bytes]:
    """(file name, bytes) of an upload that is broken, or claims to be what it is not."""
    rng = random.Random(seed)
    kind = rng.choice(KINDS)
    data = base(kind)
    name = f"picture.{rng.choice(KINDS).lower()}"
    match rng.randrange(12):
        case 0:
            data = data[: rng.randrange(len(data))]
        case 1 | 2:
            broken = bytearray(data)
            for _ in range(rng.choice((1, 3, 30))):
                broken[rng.randrange(len(broken))] = rng.randrange(256)
            data = bytes(broken)
        case 3:  # the head alone: sizes, offsets, tags
            broken = bytearray(data)
            for _ in range(4):
                broken[rng.randrange(min(60, len(broken)))] = rng.choice((0, 255, 127, 128))
            data = bytes(broken)
        case 4:
            data = rng.randbytes(rng.choice((0, 1, 10, 5000)))
        case 5:
            data = png(rng.choice((0, 1, 60000, 2**31 - 1)), rng.choice((0, 60000, 2**31 - 1)))
        case 6:
            data = png(6000, 8000, bytes(1000))  # claims 48 million pixels, has hardly any
        case 7:
            data = SVG
        case 8:
            data = data + SVG + b"PK\x03\x04" + rng.randbytes(200)
        case 9:
            data = rng.choice((b"GIF89a", b"\xff\xd8\xff\xe0", b"RIFF\xff\xff\xff\xffWEBP")) + SVG
        case 10:
            data = data[: len(data) // 2] + base(rng.choice(KINDS))[20:]
        case 11:
            data = rng.choice((b"%PDF-1.7\n", b"<!doctype html><p>", b"MZ", b"PK\x03\x04")) + bytes(
                90
            )
    return name, data


def text(seed: int) -> str:
    """A question that no person would ask."""
    rng = random.Random(seed)
    words = ["what", "is", "it", *PIECES]
    made = "".join(rng.choice(words) for _ in range(rng.choice((0, 1, 2, 5, 40))))
    if rng.random() < 0.02:
        made = (made or "x") * (100_000 // max(1, len(made)))
    return made


def message(seed: int) -> Any:
    """The data of an API call that is no proper question: a list with what stands for [message, decoder]."""
    rng = random.Random(seed)
    elsewhere = rng.choice(
        (
            "/etc/passwd",
            "../../../etc/passwd",
            "/proc/self/environ",
            "C:\\x",
            "file:///etc/passwd",
            "\0",
        )
    )
    deep: Any = "x"
    for _ in range(200):
        deep = [deep]
    odd = (None, 7, -1.5, True, [], {}, "", "x", [None], {"text": None}, deep, "9" * 5000)
    file = {"path": elsewhere, "meta": {"_type": "gradio.FileData"}}
    choices: tuple[Any, ...] = (
        {"text": rng.choice(odd), "files": []},
        {"text": "x", "files": rng.choice(odd)},
        {"files": [rng.choice(odd)]},
        {"text": "read this", "files": [file]},
        {"text": "read this", "files": [elsewhere]},
        {"text": "read this", "files": [{"path": elsewhere}]},
        {"text": "x", "files": [file] * 50},
        {"history": [["a", "b"]] * 2000, "session_id": "x", "state": "x"},
        {"text": text(seed), "files": []},
        rng.choice(odd),
    )
    decoder = rng.choice(("recap", "recap", "recap", "magic", *odd))
    return [rng.choice(choices), decoder]
