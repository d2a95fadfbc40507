"""Published data sets, read as their files are published: one table says where question and image are.

Three containers are read for each of them: the authors' JSON next to its image folder, the TSV that
VLMEvalKit publishes (index, question, A, B, ..., hint, category, and the image in base64 or the index of
the row that has it), and parquet as on the hub (images as {"bytes", "path"}). MME's authors publish a
folder of text files. A hint and choices are added to the question where a row has them.

The field names are those of the data sets' documentation; `docs/datasets.md` says which readers were
tried on published files.
"""

from __future__ import annotations

import base64
import binascii
import csv
import json
import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from .samples import Sample, parse, read_text

Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Format:
    """Where question, image and topic are in one data set.

    files: patterns of the image's file name with fields in braces, tried in order next to the annotations.
    rows: field of the JSON object that holds the list. kind: fields that may hold the topic. prompt: the
    question where the data set has none.
    """

    files: tuple[str, ...]
    rows: str = ""
    kind: tuple[str, ...] = ("category", "l2-category")
    prompt: str = ""


FORMATS: dict[str, Format] = {
    "textvqa": Format(
        ("train_images/{image_id}.jpg", "test_images/{image_id}.jpg", "{image_id}.jpg"), "data"
    ),
    "chartqa": Format(("png/{imgname}", "{imgname}"), kind=("type",)),
    "ocrbench": Format(("OCRBench_Images/{image_path}", "{image_path}"), kind=("question_type", "type", "category")),
    "mathvista": Format(("{image}", "images/{image}"), kind=("question_type", "task", "category")),
    "scienceqa": Format(
        ("{split}/{id}/{image}", "images/{split}/{id}/{image}"), kind=("topic", "subject", "category")
    ),
    "seedbench": Format(
        ("SEED-Bench-image/{data_id}", "{data_id}"), "questions", ("question_type_id", "category")
    ),
    "mme": Format(("{image}",)),
    "mmtbench": Format(("{image_path}",)),
    "coco": Format(
        ("val2014/{file_name}", "val2017/{file_name}", "test2014/{file_name}", "{file_name}"),
        "images", prompt="Describe the image in one sentence.",
    ),
    "gqa": Format(("images/{imageId}.jpg", "{imageId}.jpg"), kind=("category",)),
}  # fmt: skip

_QUESTION = ("question", "query", "caption_prompt")
_ID = ("question_id", "questionId", "pid", "id", "index", "data_id", "image_id")
_IMAGE = ("decoded_image", "image", "images")
_LETTERS = "ABCDEFGHIJ"


def read(name: str, path: Path, limit: int | None = None) -> list[Sample]:
    """The first `limit` samples of a published data set. Raises ValueError with one sentence."""
    format_ = FORMATS[name]
    records = enumerate(_rows(path, format_), start=1)
    folder = path if path.is_dir() else path.parent
    return parse(
        islice(records, limit), lambda row: _sample(name, format_, row, folder), path, "Row"
    )


def _rows(path: Path, format_: Format) -> Iterator[Row]:
    if path.is_dir():
        shards = sorted(path.glob("*.parquet"))
        yield from (row for shard in shards for row in _parquet(shard)) if shards else _mme(path)
    elif path.suffix == ".parquet":
        yield from _parquet(path)
    elif path.suffix == ".tsv":
        yield from _tsv(path)
    else:
        yield from _json(path, format_)


def _json(path: Path, format_: Format) -> Iterator[Row]:
    text = read_text(path)
    try:
        if path.suffix == ".jsonl":
            data = [json.loads(line) for line in text.splitlines() if line.strip()]
        else:
            data = json.loads(text)
    except ValueError as error:
        raise ValueError(f"{path.name} is not JSON: {error}.") from None
    if isinstance(data, dict) and format_.rows in data:
        data = data[format_.rows]
    if isinstance(data, dict):  # by question number
        data = [{"id": key, **row} if isinstance(row, dict) else row for key, row in data.items()]
    yield from data


def _tsv(path: Path) -> Iterator[Row]:
    csv.field_size_limit(sys.maxsize)  # images are inside the fields
    images: dict[str, str] = {}
    try:
        with path.open(encoding="utf-8", newline="") as file:
            for row in csv.DictReader(file, delimiter="\t"):
                image = row.get("image") or ""
                if 0 < len(image) <= 64:  # the index of the row that holds it
                    row["image"] = images.get(image, image)
                elif image:
                    images[row.get("index") or ""] = image
                yield {key: value for key, value in row.items() if value not in (None, "")}
    except OSError as error:
        raise ValueError(f"{path} cannot be read: {error.strerror}.") from None
    except (UnicodeDecodeError, csv.Error):
        raise ValueError(f"{path.name} is not a table with tabs between its fields.") from None


def _parquet(path: Path) -> Iterator[Row]:
    try:
        from pyarrow import ArrowException, parquet
    except ImportError:
        raise ValueError(
            f"{path.name} is a parquet file: pip install pyarrow to read it."
        ) from None
    try:
        with parquet.ParquetFile(path) as file:
            for batch in file.iter_batches(batch_size=32):
                yield from batch.to_pylist()
    except (OSError, ArrowException) as error:
        raise ValueError(f"{path} cannot be read as parquet: {error}.") from None


def _mme(folder: Path) -> Iterator[Row]:
    """MME: CATEGORY/[questions_answers_YN/]NAME.txt of "question TAB answer", image NAME next to it or in images/."""
    for file in sorted(folder.rglob("*.txt")):
        category = file.relative_to(folder).parts[0]
        folders = (file.parent, file.parent.parent / "images")
        images = [p for f in folders for p in f.glob(f"{file.stem}.*") if p.suffix != ".txt"]
        image = images[0] if images else file.with_suffix(".jpg")
        for number, line in enumerate(file.read_text(encoding="utf-8").splitlines()):
            if line.strip():
                yield {
                    "id": f"{category}/{file.stem}-{number}",
                    "question": line.split("\t")[0],
                    "image": str(image.relative_to(folder)),
                    "category": category,
                }


def _sample(name: str, format_: Format, row: Any, folder: Path) -> Sample:
    if not isinstance(row, dict):
        raise TypeError("it is not a JSON object")
    question = format_.prompt or _first(row, _QUESTION)
    if question is None:
        raise KeyError(_QUESTION[0])
    hint = [str(row["hint"])] if row.get("hint") else []
    text = "\n".join([*hint, str(question), *_choices(row)])
    id_ = _first(row, _ID)
    kind = next((str(row[k]) for k in format_.kind if row.get(k) not in (None, "")), "")
    return Sample(
        name if id_ is None else f"{name}-{id_}", (text,), _images(row, format_, folder), kind
    )


def _first(row: Row, fields: tuple[str, ...]) -> Any:
    return next((row[f] for f in fields if row.get(f) not in (None, "")), None)


def _choices(row: Row) -> list[str]:
    given = row.get("choices")
    if given is None:
        by_letter = [row.get(a, row.get(f"choice_{a.lower()}")) for a in _LETTERS]
        given = [c for c in by_letter if c not in (None, "")]
    return [f"{a}. {c}" for a, c in zip(_LETTERS, given, strict=False)]


def _images(row: Row, format_: Format, folder: Path) -> tuple[Path | bytes, ...]:
    """Inline images where the row has them, else the first pattern whose file exists."""
    for value in (row.get(f) for f in _IMAGE):
        inline = _inline(value)
        if inline:
            return inline
    if row.get("image", "") is None:
        return ()
    files = []
    for pattern in format_.files:
        with suppress(KeyError):  # the row lacks a field of the pattern
            files.append(folder / pattern.format_map(row))
    return (next((f for f in files if f.is_file()), files[0]),) if files else ()


def _inline(value: Any) -> tuple[bytes, ...]:
    if isinstance(value, bytes):
        return (value,)
    if isinstance(value, dict):
        return _inline(value.get("bytes"))
    if isinstance(value, list):
        return tuple(data for one in value for data in _inline(one))
    # with a dot it is a file's name
    if isinstance(value, str) and len(value) > 64 and "." not in value:
        if value.startswith("["):
            return _inline(json.loads(value.replace("'", '"')))
        try:
            return (base64.b64decode(value, validate=True),)
        except binascii.Error:
            raise ValueError("its image is not base64") from None
    return ()
