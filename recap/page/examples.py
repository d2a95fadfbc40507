"""The example gallery: what `assets/examples/examples.json` lists, as data for `assets/picker.js`."""

from __future__ import annotations

import base64
import io
import json
from dataclasses import dataclass
from pathlib import Path

import gradio as gr
from PIL import Image

from .inspector import asset, drawn
from .names import ASSETS

EXAMPLES = ASSETS / "examples"

THUMB = (184, 138)

NEAR = {"menu": "receipt", "line": "bar", "pie": "bar"}
"""The kind of picture that stands in where the gallery has only one of a kind."""


@dataclass(frozen=True, slots=True)
class Example:
    """One image with questions to ask about it, first ones first. kind: what sort of picture it is."""

    path: Path
    title: str
    alt: str
    questions: tuple[str, ...]
    kind: str = ""


def load_examples(folder: Path = EXAMPLES) -> list[Example]:
    """The examples of a folder; none if it has no examples.json."""
    listing = folder / "examples.json"
    if not listing.is_file():
        return []
    found = []
    for item in json.loads(listing.read_text(encoding="utf-8")):
        questions = dict.fromkeys(q for asked in item["conversations"] for q in asked)
        path, kind = folder / item["file"], item.get("kind", "")
        found.append(Example(path, item["title"], item["alt"], tuple(questions), kind))
    return found


def stand_in(path: str | Path, examples: list[Example]) -> Example | None:
    """Another picture than the one at `path`: an example of its kind if it is an example itself, else
    the first other one; None if there is none."""
    shown = Path(path).read_bytes()
    own = next((e for e in examples if e.path.read_bytes() == shown), None)
    kinds = (own.kind, NEAR.get(own.kind)) if own is not None and own.kind else ()
    others = [e for e in examples if e is not own]
    return min(others, key=lambda e: kinds.index(e.kind) if e.kind in kinds else 2, default=None)


def thumbnail(path: Path) -> str:
    """A small JPEG of the image as a data URI, so that the page asks for no further file."""
    with Image.open(path) as picture:
        small = picture.convert("RGB")
        small.thumbnail(THUMB)
        buffer = io.BytesIO()
        small.save(buffer, "JPEG", quality=82)
    return "data:image/jpeg;base64," + base64.b64encode(buffer.getvalue()).decode()


def picker(examples: list[Example]) -> gr.HTML:
    """The gallery component; it triggers "pick" with {index} and "ask" with {text}."""
    value = [
        {"title": e.title, "alt": e.alt, "questions": e.questions, "thumb": thumbnail(e.path)}
        for e in examples
    ]
    page = '<div class="rc-picker"></div>'
    return drawn("examples", page, asset("picker.js"), json.dumps(value))
