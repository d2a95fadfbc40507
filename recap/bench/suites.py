"""Samples to measure on: built-in text prompts, the demo model's examples, any JSONL, or a published data set."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from PIL import Image

ASSETS = Path(__file__).parents[2] / "assets"


@dataclass(frozen=True, slots=True)
class Sample:
    """One conversation: questions in order, images with the first one.

    images: files, or the bytes of one where a data set holds them itself. kind: its topic or category.
    """

    id: str
    turns: tuple[str, ...]
    images: tuple[Path | bytes, ...] = ()
    kind: str = ""

    def pictures(self) -> list[Image.Image]:
        """The images, read. Raises ValueError with one sentence."""
        from ..targets.images import open_image

        return [
            open_image(str(image)) if isinstance(image, Path) else _inline(image, self.id)
            for image in self.images
        ]


def _inline(data: bytes, where: str) -> Image.Image:
    from ..targets.images import to_rgb

    try:
        with Image.open(io.BytesIO(data)) as picture:
            return to_rgb(picture)
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError):
        raise ValueError(f"The image of sample {where} cannot be read.") from None


def load_suite(name: str, limit: int | None = None) -> list[Sample]:
    """The first `limit` samples of "text" (text prompts), "demo" (the example images), NAME:FILE (see `formats`), or a JSONL file.

    A JSONL line is {"id", "turns": [question, ...] or "question", "image": file or "images": [file, ...],
    and optionally "topic" or "category"}; files are looked for beside the JSONL file and in its folder
    `images` (MMSpec's published form). Raises ValueError with one sentence.
    """
    from .formats import FORMATS, read

    format_, colon, path = name.partition(":")
    if name == "text":
        samples = _text()
    elif name == "demo":
        samples = _demo()
    elif colon and format_ in FORMATS:
        samples = read(format_, Path(path), limit)
    else:
        samples = _jsonl(Path(name))
    return _apart(samples[:limit])


def _apart(samples: list[Sample]) -> list[Sample]:
    """The same samples; one whose id another one has already gets a number behind it."""
    seen: dict[str, int] = {}
    for place, sample in enumerate(samples):
        count = seen[sample.id] = seen.get(sample.id, 0) + 1
        if count > 1:
            samples[place] = replace(sample, id=f"{sample.id}#{count}")
    return samples


def _text() -> list[Sample]:
    data = json.loads((Path(__file__).parent / "prompts.json").read_text(encoding="utf-8"))
    return [Sample(d["id"], tuple(d["turns"]), kind=d["kind"]) for d in data]


def _demo() -> list[Sample]:
    folder = ASSETS / "examples"
    samples = []
    for entry in json.loads((folder / "examples.json").read_text(encoding="utf-8")):
        stem = Path(entry["file"]).stem
        for number, turns in enumerate(entry["conversations"]):
            samples.append(
                Sample(f"{stem}-{number}", tuple(turns), (folder / entry["file"],), entry["kind"])
            )
    return samples


def _jsonl(path: Path) -> list[Sample]:
    if path.is_dir():
        found = sorted(path.glob("*.jsonl"))
        path = next(
            (f for f in found if f.stem == "mmspec"), found[0] if found else path / "?.jsonl"
        )
    lines = read_text(path).split("\n")
    numbered = [(n, line) for n, line in enumerate(lines, start=1) if line.strip()]
    return parsed(numbered, lambda line: _sample(json.loads(line), path.parent), path, "Line")


def read_text(path: Path) -> str:
    """A suite's file. Raises ValueError with one sentence."""
    try:
        return path.read_text(encoding="utf-8-sig")
    except OSError:
        raise ValueError(
            f'There is no suite "{path}": use "text", "demo", or a JSONL file with id, turns, image.'
        ) from None
    except UnicodeDecodeError:
        raise ValueError(f"{path.name} is no JSONL file: it is not text in UTF-8.") from None


def parsed(
    records: list[tuple[Any, Any]], sample: Callable[[Any], Sample], path: Path, word: str
) -> list[Sample]:
    """Samples of (place, record) pairs. Raises ValueError that names the place of the first bad one."""
    samples = []
    for place, record in records:
        try:
            samples.append(sample(record))
        except KeyError as error:
            raise ValueError(f"{word} {place} of {path.name} is no sample: no {error}.") from None
        except (ValueError, TypeError) as error:
            raise ValueError(f"{word} {place} of {path.name} is no sample: {error}.") from None
    if not samples:
        raise ValueError(f"{path.name} has no samples.")
    return samples


def _sample(data: dict[str, Any], folder: Path) -> Sample:
    if not isinstance(data, dict):
        raise TypeError("it is no JSON object")
    names = data.get("images") or ([data["image"]] if data.get("image") else [])
    turns = data.get("turns") or [data["question"]]
    for field, values in (("images", names), ("turns", turns)):
        if not (isinstance(values, list) and all(isinstance(v, str) for v in values)):
            raise TypeError(f"{field} is no list of texts")
    images = tuple(find_image(folder, name) for name in names)
    kind = next((str(data[k]) for k in ("topic", "category", "kind") if data.get(k)), "")
    return Sample(str(data["id"]), tuple(turns), images, kind)


def find_image(folder: Path, name: str, *more: str) -> Path:
    """The file of that name beside the suite, in its `images`, or in one of `more` folders there."""
    places = [folder / name, folder / "images" / name, *(folder / m / name for m in more)]
    return next((p for p in places if p.is_file()), places[0])
