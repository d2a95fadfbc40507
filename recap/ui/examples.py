"""The example gallery: what `assets/examples/examples.json` lists, as data for `assets/picker.js`."""

from __future__ import annotations

import base64
import io
import json
from dataclasses import dataclass
from pathlib import Path

import gradio as gr
from PIL import Image

from .inspector import ASSETS

EXAMPLES = ASSETS / "examples"

THUMB = (184, 138)


@dataclass(frozen=True, slots=True)
class Example:
    """One image with questions to ask about it, first ones first."""

    path: Path
    title: str
    alt: str
    questions: tuple[str, ...]


def load_examples(folder: Path = EXAMPLES) -> list[Example]:
    """The examples of a folder; none if it has no examples.json."""
    listing = folder / "examples.json"
    if not listing.is_file():
        return []
    found = []
    for item in json.loads(listing.read_text(encoding="utf-8")):
        questions = dict.fromkeys(q for talk in item["conversations"] for q in talk)
        found.append(Example(folder / item["file"], item["title"], item["alt"], tuple(questions)))
    return found


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
    return gr.HTML(
        json.dumps(value),
        html_template='<div class="rc-picker"></div>',
        js_on_load=(ASSETS / "picker.js").read_text(encoding="utf-8"),
        apply_default_css=False,
        elem_id="examples",
    )
