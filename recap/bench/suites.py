"""Suites to measure on: built-in text prompts, the demo model's examples, any JSONL file, or a published data set."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

from .formats import FORMATS, read
from .samples import Sample, parse, read_text

EXAMPLES = Path(__file__).parents[2] / "assets" / "examples"


def load_suite(name: str, limit: int | None = None) -> list[Sample]:
    """The first `limit` samples of a suite.

    "text": the fourteen conversations that Recap was developed on. "text-dev", "text-test": 36 others each,
    of twelve kinds; constants are chosen on the first, figures shown on the second. "demo": the example
    images. FORMAT:FILE: a published data set (see `formats`). Else a JSONL file.

    A JSONL line is {"id", "turns": [question, ...] or "question", "image": file or "images": [file, ...],
    and optionally "topic" or "category"}. Image files are looked for next to the JSONL file and in the
    folder `images` next to it (MMSpec's published form). Raises ValueError with one sentence.
    """
    format_, colon, path = name.partition(":")
    if name == "text":
        samples = _text("prompts.json")
    elif name in ("text-dev", "text-test"):
        samples = _text("conversations.json", split=name.removeprefix("text-"))
    elif name == "demo":
        samples = _demo()
    elif colon and format_ in FORMATS:
        samples = read(format_, Path(path), limit)
    else:
        samples = _jsonl(Path(name))
    return _unique(samples[:limit])


def _unique(samples: list[Sample]) -> list[Sample]:
    """The same samples; where an id comes again, a number is appended to it."""
    seen: Counter[str] = Counter()
    made = []
    for sample in samples:
        seen[sample.id] += 1
        count = seen[sample.id]
        made.append(sample if count == 1 else replace(sample, id=f"{sample.id}#{count}"))
    return made


def _text(file: str, split: str | None = None) -> list[Sample]:
    data = json.loads(Path(__file__).with_name(file).read_text(encoding="utf-8"))
    return [
        Sample(d["id"], tuple(d["turns"]), kind=d["kind"]) for d in data if d.get("split") == split
    ]


def _demo() -> list[Sample]:
    return [
        Sample(
            f"{Path(entry['file']).stem}-{number}",
            tuple(turns),
            (EXAMPLES / entry["file"],),
            entry["kind"],
        )
        for entry in json.loads((EXAMPLES / "examples.json").read_text(encoding="utf-8"))
        for number, turns in enumerate(entry["conversations"])
    ]


def _jsonl(path: Path) -> list[Sample]:
    if path.is_dir():
        files = sorted(path.glob("*.jsonl"), key=lambda file: (file.stem != "mmspec", file))
        path = files[0] if files else path / "?.jsonl"
    lines = enumerate(read_text(path).split("\n"), start=1)
    numbered = [(number, line) for number, line in lines if line.strip()]
    return parse(numbered, lambda line: _sample(json.loads(line), path.parent), path, "Line")


def _sample(data: Any, folder: Path) -> Sample:
    if not isinstance(data, dict):
        raise TypeError("it is not a JSON object")
    names = data.get("images") or ([data["image"]] if data.get("image") else [])
    turns = data.get("turns") or [data["question"]]
    for field, values in (("images", names), ("turns", turns)):
        if not (isinstance(values, list) and all(isinstance(v, str) for v in values)):
            raise TypeError(f"{field} is not a list of texts")
    kind = next((str(data[k]) for k in ("topic", "category", "kind") if data.get(k)), "")
    images = tuple(_find_image(folder, name) for name in names)
    return Sample(str(data["id"]), tuple(turns), images, kind)


def _find_image(folder: Path, name: str) -> Path:
    """The image file next to the suite, or in the folder `images` there."""
    beside, inside = folder / name, folder / "images" / name
    return inside if inside.is_file() and not beside.is_file() else beside
