"""A memory on disk is the old one or the new one, or refused; also when the process is killed."""

from __future__ import annotations

import json
import os
import random
import signal
import sys
from pathlib import Path
from types import FrameType

import numpy as np
import pytest

from recap.drafters.recap.memory import PersistentMemory
from recap.server.memory_file import MemoryFileError, binding, load, save

from .scripted import ScriptedTarget

KILLS = int(os.environ.get("RECAP_KILLS", "40"))


def filled(value: int, *, vocab: int = 500, top_k: int = 8, rows: int = 300) -> PersistentMemory:
    """A memory whose every number says which one it is."""
    memory = PersistentMemory(vocab, top_k)
    tokens = np.arange(rows)
    ids = np.full((rows, top_k), value, np.int32)
    memory.write(tokens, ids, np.full((rows, top_k), 1 / value, "f4"), np.full(rows, 0.5, "f4"))
    return memory


def same(one: PersistentMemory, other: PersistentMemory) -> bool:
    parts = ("ids", "probs", "confidence")
    return all(np.array_equal(getattr(one, p), getattr(other, p)) for p in parts)


def test_what_is_saved_is_read_again(tmp_path):
    path = tmp_path / "deep" / "memory"
    assert load(path, belongs="x") is None
    for value in (3, 4):
        save(filled(value), path, belongs="x")
        assert same(load(path, belongs="x"), filled(value))
    save(PersistentMemory(500, 8), path, belongs="x")
    assert len(load(path, belongs="x")) == 0
    assert [p.name for p in path.parent.iterdir()] == ["memory"]


def refused(path: Path, match: str, belongs: str = "x") -> None:
    before = path.read_bytes()
    with pytest.raises(MemoryFileError, match=match) as caught:
        load(path, belongs=belongs)
    assert "\n" not in str(caught.value)
    assert not path.exists()
    aside = path.with_name(str(caught.value).rsplit(" ", 1)[1].rstrip("."))
    assert aside.read_bytes() == before
    assert load(path, belongs=belongs) is None  # and the service starts with an empty one


def test_a_foreign_file_is_refused_and_kept(tmp_path):
    path = tmp_path / "memory"
    for number in (1, 2):
        save(filled(3), path, belongs="other")
        refused(
            path, f"belongs to another model or tokenizer: it is kept as memory.refused-{number}"
        )
    path.write_bytes(b"words")
    refused(path, "is no memory file")
    path.write_bytes(b"")
    refused(path, "is no memory file")
    path.write_bytes(json.dumps({"recap_memory": 9}).encode() + b"\n")
    refused(path, "has version 9, and 1 is read")


def test_a_damaged_file_is_refused_wherever_the_damage_is(tmp_path):
    path, rng = tmp_path / "memory", random.Random(4)
    save(filled(3), path, belongs="x")
    good = path.read_bytes()
    start = good.index(b"\n") + 1
    for at in [start, len(good) - 1, *(rng.randrange(start, len(good)) for _ in range(30))]:
        path.write_bytes(good[:at] + bytes([good[at] ^ 1]) + good[at + 1 :])
        refused(path, "is damaged")
    for cut in (start, len(good) // 2, len(good) - 1):
        path.write_bytes(good[:cut])
        refused(path, "is damaged")


def test_a_file_that_lies_about_its_rows_is_refused(tmp_path):
    path = tmp_path / "memory"
    save(filled(3), path, belongs="x")
    head, _, body = path.read_bytes().partition(b"\n")
    path.write_bytes(json.dumps(json.loads(head) | {"vocab_size": 10}).encode() + b"\n" + body)
    refused(path, "is damaged")


def test_a_failed_save_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "memory"
    save(filled(3), path, belongs="x")
    monkeypatch.setattr(os, "fsync", lambda _: (_ for _ in ()).throw(OSError("disk full")))
    with pytest.raises(OSError, match="disk full"):
        save(filled(4), path, belongs="x")
    assert same(load(path, belongs="x"), filled(3))
    assert [p.name for p in tmp_path.iterdir()] == ["memory"]


def test_what_a_memory_belongs_to():
    one, other = ScriptedTarget(40), ScriptedTarget(41)
    assert binding(one) == binding(ScriptedTarget(40))
    assert binding(one) != binding(other)
    other = ScriptedTarget(40)
    other.name = "another"
    assert binding(one) != binding(other)


def killed(memory: PersistentMemory, path: Path, *, line: int, spin: int = 0) -> bool:
    """A process that saves is killed once it has run so many lines of `save`, and a while later ->
    whether it got so far."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        left = line

        def trace(frame: FrameType, event: str, _: object) -> object:
            nonlocal left
            if frame.f_code is not save.__code__:
                return None
            left -= event == "line"
            if left < 1:
                sys.settrace(None)
                os.write(write, b"here")
                if not spin:
                    signal.pause()
            return trace

        sys.settrace(trace)
        save(memory, path, belongs="x")
        os._exit(0)
    os.close(write)
    got = os.read(read, 4)
    for _ in range(spin):
        pass
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    os.close(read)
    return got == b"here"


def test_a_killed_process_leaves_the_old_or_the_new_file(tmp_path):
    """kill -9 before each line of a save and at random places inside; RECAP_KILLS=100 for the full number."""
    path, rng, value, line, kills = tmp_path / "memory", random.Random(7), 3, 0, 0
    wanted = {value: filled(value, vocab=20000, rows=15000) for value in (3, 4)}
    save(wanted[3], path, belongs="x")
    seen = set()

    def check() -> int:
        found = load(path, belongs="x")
        assert found is not None
        held = int(found.ids[0, 0])
        assert same(found, wanted[held])
        seen.add(held == value)
        return held

    while killed(wanted[7 - value], path, line=(line := line + 1)):
        value, kills = check(), kills + 1
    assert kills > 15
    assert seen == {True, False}  # both happened: the old one stayed, the new one came
    value = check()
    while kills < KILLS:
        killed(wanted[7 - value], path, line=rng.randrange(1, line), spin=rng.randrange(300_000))
        value, kills = check(), kills + 1
    assert [p.name for p in tmp_path.iterdir()] == ["memory"]
