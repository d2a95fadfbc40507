"""Samples to measure on: built-in text prompts, the demo model's examples, or any JSONL with images."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ASSETS = Path(__file__).parents[2] / "assets"


@dataclass(frozen=True, slots=True)
class Sample:
    """One conversation: questions in order, images with the first one."""

    id: str
    turns: tuple[str, ...]
    images: tuple[Path, ...] = ()
    kind: str = ""


def load_suite(name: str) -> list[Sample]:
    """Samples of "text" (text prompts), "demo" (the example images), or a JSONL file.

    A JSONL line is {"id", "turns": [question, ...], "image": file or "images": [file, ...], and
    optionally "category"}; files are looked for beside the JSONL file and in its folder `images`
    (MMSpec's published form). Raises ValueError with one sentence.
    """
    if name == "text":
        return _text()
    if name == "demo":
        return _demo()
    return _jsonl(Path(name))


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
    try:
        lines = path.read_text(encoding="utf-8").split("\n")
    except OSError:
        raise ValueError(
            f'There is no suite "{path}": use "text", "demo", or a JSONL file with id, turns, image.'
        ) from None
    except UnicodeDecodeError:
        raise ValueError(f"{path.name} is no JSONL file: it is not text in UTF-8.") from None
    samples = []
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            samples.append(_sample(json.loads(line), path.parent))
        except KeyError as error:
            raise ValueError(f"Line {number} of {path.name} is no sample: no {error}.") from None
        except (ValueError, TypeError) as error:
            raise ValueError(f"Line {number} of {path.name} is no sample: {error}.") from None
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
    images = []
    for name in names:
        places = [folder / name, folder / "images" / name]
        images.append(next((p for p in places if p.is_file()), places[0]))
    kind = data.get("category", data.get("kind", ""))
    return Sample(str(data["id"]), tuple(turns), tuple(images), kind)
