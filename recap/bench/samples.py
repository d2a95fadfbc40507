"""One sample of a suite, and what every reader of suites shares: reading the file, naming its first mistake."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from PIL import Image

from ..targets.images import open_image


@dataclass(frozen=True, slots=True)
class Sample:
    """One conversation: questions in order, images with the first one.

    images: files, or the bytes of a file where a data set holds the images itself. kind: topic or category.
    """

    id: str
    turns: tuple[str, ...]
    images: tuple[Path | bytes, ...] = ()
    kind: str = ""

    def open_images(self) -> list[Image.Image]:
        """The images, decoded. Raises ValueError with one sentence."""
        return [
            open_image(image, f"the image of sample {self.id}" if type(image) is bytes else None)
            for image in self.images
        ]


def read_text(path: Path) -> str:
    """The text of a suite's file. Raises ValueError with one sentence."""
    try:
        return path.read_text(encoding="utf-8-sig")
    except OSError:
        raise ValueError(
            f'There is no suite "{path}": use "text", "demo", or a JSONL file with id, turns, image.'
        ) from None
    except UnicodeDecodeError:
        raise ValueError(f"{path.name} is not a JSONL file: it is not UTF-8 text.") from None


def parse(
    records: Iterable[tuple[int, Any]], make: Callable[[Any], Sample], path: Path, word: str
) -> list[Sample]:
    """Samples of (number, record) pairs. Raises ValueError that names the first bad record.

    word: what a record is called in that sentence, "Line" or "Row".
    """
    samples = []
    for number, record in records:
        try:
            samples.append(make(record))
        except KeyError as error:
            raise ValueError(f"{word} {number} of {path.name} is no sample: no {error}.") from None
        except (ValueError, TypeError) as error:
            raise ValueError(f"{word} {number} of {path.name} is no sample: {error}.") from None
    if not samples:
        raise ValueError(f"{path.name} has no samples.")
    return samples
