"""The pool of drawn pictures that training reads: shards of patches, marks and facts on disk."""

import os
import pickle
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from . import vision_encoder, world

SHARD = 1024


@dataclass(frozen=True)
class Item:
    """One picture of the pool."""

    kind: str
    facts: dict
    rows: int
    cols: int
    patches: np.ndarray  # uint8 [4 * cells, 588]
    bits: np.ndarray  # packed marks [cells, ceil(marks / 8)]
    letters: np.ndarray  # packed letters [4 * cells, ceil(letters / 8)]


def item(picture: world.Picture, index: dict[str, int]) -> Item:
    """What training keeps of a picture."""
    patches = vision_encoder.prepare(picture.image, picture.rows, picture.cols)
    bits, letters = vision_encoder.targets(picture, index), vision_encoder.spelling(picture)
    return Item(picture.kind, picture.facts, picture.rows, picture.cols, patches, bits, letters)


def path(folder: Path, number: int) -> Path:
    """The file of a shard."""
    return folder / f"shard{number:04d}.pkl"


def fill(
    folder: Path, shards: int, kind: str | None = None, seed: str = "train",
    names: Sequence[str] = (), convert: Callable = item,
) -> None:  # fmt: skip
    """Draw the missing shards; each picture depends on its number and `seed` only.

    kind: one kind of picture, or all. convert: makes the stored item from a picture and the numbers of
    its marks. names: the marks that count (default: all).
    """
    folder.mkdir(parents=True, exist_ok=True)
    index = {mark: i for i, mark in enumerate(names or vision_encoder.marks())}
    for number in range(shards):
        if path(folder, number).exists():
            continue
        start = time.time()
        seeds = [f"{seed}{number * SHARD + i}" for i in range(SHARD)]
        pictures = (world.draw(kind, n) if kind else world.draw_any(n) for n in seeds)
        items = [convert(picture, index) for picture in pictures]
        part = path(folder, number).with_suffix(".part")
        part.write_bytes(pickle.dumps(items, protocol=5))
        os.replace(part, path(folder, number))
        print(f"shard {number}: {time.time() - start:.1f} s", flush=True)


def load(folder: Path, number: int) -> list:
    """The items of a shard, as `convert` made them."""
    return pickle.loads(path(folder, number).read_bytes())


def groups(items: list[Item], batch: int, rng: np.random.Generator) -> list[list[Item]]:
    """Shuffled batches of pictures of one size."""
    by_size: dict[tuple[int, int], list[Item]] = {}
    for i in rng.permutation(len(items)):
        it = items[i]
        by_size.setdefault((it.rows, it.cols), []).append(it)
    out = [v[i : i + batch] for v in by_size.values() for i in range(0, len(v), batch)]
    return [out[i] for i in rng.permutation(len(out))]
