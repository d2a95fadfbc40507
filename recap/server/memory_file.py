"""A persistent memory on disk: written whole or not at all, and believed only if it is what was written.

A file is one JSON line (version, what it belongs to, checksum) and numpy's own format behind it. It is
written beside its place and put there in one step, so that a process that dies leaves the old file or the
new one. A file that is damaged, or made for another model or tokenizer, is refused and kept aside.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
from pathlib import Path
from typing import Any

import numpy as np

from ..drafters.recap.memory import PersistentMemory

VERSION = 1


class MemoryFileError(ValueError):
    """A memory file is not taken; the message is one sentence that says why and where it is now."""


def binding(target: Any) -> str:
    """What a memory's rows mean something for: a model and its tokenizer."""
    vocabulary = getattr(getattr(target, "tokenizer", None), "get_vocab", dict)()
    parts = (target.name, target.vocab_size, sorted(vocabulary.items()))
    return hashlib.sha256(repr(parts).encode()).hexdigest()


def save(memory: PersistentMemory, path: Path, *, belongs: str) -> None:
    """Write a memory (nobody may write to it meanwhile) to its place. belongs: from `binding`.

    Raises OSError if the folder cannot be written; the old file is then as it was.
    """
    rows = np.flatnonzero(memory.confidence >= 0)
    out = io.BytesIO()
    np.savez(
        out,
        tokens=rows.astype(np.int32),
        ids=memory.ids[rows],
        probs=memory.probs[rows],
        confidence=memory.confidence[rows],
    )
    body = out.getvalue()
    head = {
        "recap_memory": VERSION,
        "belongs": belongs,
        "vocab_size": memory.vocab_size,
        "top_k": memory.top_k,
        "sha256": hashlib.sha256(body).hexdigest(),
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f"{path.name}.{os.getpid()}.part")
    try:
        with part.open("wb") as file:
            file.write(json.dumps(head).encode() + b"\n" + body)
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)  # the new name survives a power cut too
    finally:
        os.close(folder)


def load(path: Path, *, belongs: str) -> PersistentMemory | None:
    """The memory in a file; None if there is no file. For a service's start: what a killed process left
    beside the file is removed.

    Raises MemoryFileError for a file that is not taken; it then has another name.
    """
    for part in path.parent.glob(f"{path.name}.*.part"):
        part.unlink(missing_ok=True)
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise MemoryFileError(f"The memory file {path} cannot be read: {error.strerror}.") from None
    why, memory = _read(data, belongs)
    if memory is None:
        aside = _aside(path)
        path.replace(aside)
        raise MemoryFileError(f"The memory file {path} {why}: it is kept as {aside.name}.")
    return memory


def _read(data: bytes, belongs: str) -> tuple[str, PersistentMemory | None]:
    """(why not, None) or ("", memory)."""
    line, _, body = data.partition(b"\n")
    try:
        head = json.loads(line)
        version = head["recap_memory"]
    except (ValueError, KeyError, TypeError):
        return "is no memory file", None
    if version != VERSION:
        return f"has version {version}, and {VERSION} is read", None
    try:
        if hashlib.sha256(body).hexdigest() != head["sha256"]:
            return "is damaged", None
        if head["belongs"] != belongs:
            return "belongs to another model or tokenizer", None
        memory = PersistentMemory(int(head["vocab_size"]), int(head["top_k"]))
        with np.load(io.BytesIO(body), allow_pickle=False) as saved:
            tokens = saved["tokens"]
            memory.ids[tokens], memory.probs[tokens] = saved["ids"], saved["probs"]
            memory.confidence[tokens] = saved["confidence"]
    except (ValueError, KeyError, TypeError, IndexError, OSError):
        return "is damaged", None
    return "", memory


def _aside(path: Path) -> Path:
    number = 1
    while (aside := path.with_name(f"{path.name}.refused-{number}")).exists():
        number += 1
    return aside
