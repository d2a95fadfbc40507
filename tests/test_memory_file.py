"""The file of a shared memory is the old one or the new one, or refused; also when the process is killed."""

from __future__ import annotations

import os
import random
import signal
import sys
from pathlib import Path
from types import FrameType

import numpy as np
import pytest

from recap.drafters.recap.memory import PersistentMemory
from recap.server.memory_scope import MemoryFile, MemoryScopes, binding, read, write

from .scripted import ScriptedTarget

KILLS = int(os.environ.get("RECAP_KILLS", "40"))


class SizedTarget(ScriptedTarget):
    """A vocabulary as large as the file needs to be worth killing."""

    def __init__(self, vocab_size: int = 500) -> None:
        super().__init__(vocab_size)


def filled(value: int, memory: PersistentMemory, tokens: int = 300) -> PersistentMemory:
    """The memory with numbers that say which one it is."""
    memory.clear()
    memory.ids[:tokens], memory.probs[:tokens] = value, 1 / value
    memory.confidence[:tokens] = 0.5
    return memory


def same(one: PersistentMemory, other: PersistentMemory) -> bool:
    parts = ("ids", "probs", "confidence")
    return all(np.array_equal(getattr(one, p), getattr(other, p)) for p in parts)


def file_at(path: Path, target: ScriptedTarget) -> tuple[MemoryFile, PersistentMemory]:
    """A server's memory file, opened, and the shared memory that it keeps."""
    file = MemoryFile(MemoryScopes("shared"), path)
    file.open(target)
    return file, file.scopes.memory("", target.vocab_size, 8)


def test_what_is_saved_is_read_again(tmp_path):
    path, target = tmp_path / "deep" / "memory", SizedTarget()
    assert not MemoryFile(MemoryScopes("shared"), path).save(), "nothing before the model is there"
    file, memory = file_at(path, target)
    assert (len(memory), file.note) == (0, "")
    for value in (3, 4):
        filled(value, memory)
        assert file.save()
        assert same(file_at(path, target)[1], memory)
    assert [p.name for p in path.parent.iterdir()] == ["memory"]


def refused(path: Path, match: str) -> None:
    """Opening sets the file aside with one sentence, and the server starts with an empty memory."""
    before = path.read_bytes()
    file, memory = file_at(path, SizedTarget())
    assert match in file.note
    assert file.note.endswith(f"it is kept as {path.name}.refused.")
    assert "\n" not in file.note
    assert len(memory) == 0
    assert not path.exists()
    assert path.with_name(f"{path.name}.refused").read_bytes() == before


def test_a_foreign_or_damaged_file_is_refused_and_kept(tmp_path):
    path, rng = tmp_path / "memory", random.Random(4)
    file, memory = file_at(path, SizedTarget(501))
    filled(3, memory)
    file.save()
    refused(path, "belongs to another model or tokenizer")
    for content in (b"words", b"", b"PK\x03\x04"):
        path.write_bytes(content)
        refused(path, "is damaged or no memory file")
    file, memory = file_at(path, SizedTarget())
    filled(3, memory)
    file.save()
    good = path.read_bytes()
    for at in [0, len(good) // 2, *(rng.randrange(60, len(good) - 800) for _ in range(20))]:
        path.write_bytes(good[:at] + bytes([good[at] ^ 1]) + good[at + 1 :])
        opened, kept = file_at(path, SizedTarget())
        assert opened.note or same(kept, memory), "a flip in padding harms nothing"
    for cut in (10, len(good) // 2, len(good) - 1):
        path.write_bytes(good[:cut])
        refused(path, "is damaged or no memory file")


@pytest.mark.parametrize("changes", [{"shape": (10, 8)}, {"shape": (500,)}, {"recap_memory": 9}])
def test_a_file_that_lies_about_itself_is_refused(tmp_path, changes):
    path = tmp_path / "memory"
    with path.open("wb") as out:
        write(out, filled(3, PersistentMemory(500, 8)), binding(SizedTarget()))
    with np.load(path) as saved:
        parts = {name: saved[name] for name in saved.files}
    with path.open("wb") as out:
        np.savez(out, **parts | {name: np.array(value) for name, value in changes.items()})
    refused(path, "version 9" if "recap_memory" in changes else "is damaged or no memory file")


def test_a_failed_save_leaves_the_old_file(tmp_path, monkeypatch):
    path, target = tmp_path / "memory", SizedTarget()
    file, memory = file_at(path, target)
    filled(3, memory)
    file.save()
    monkeypatch.setattr(os, "fsync", lambda _: (_ for _ in ()).throw(OSError("disk full")))
    filled(4, memory)
    assert not file.save()
    assert same(file_at(path, target)[1], filled(3, PersistentMemory(500, 8)))
    assert [p.name for p in tmp_path.iterdir()] == ["memory"]


def test_what_a_memory_belongs_to():
    assert binding(ScriptedTarget(40)) == binding(ScriptedTarget(40))
    assert binding(ScriptedTarget(40)) != binding(ScriptedTarget(41))
    other = ScriptedTarget(40)
    other.name = "another"
    assert binding(ScriptedTarget(40)) != binding(other)


def killed(file: MemoryFile, *, line: int, spin: int = 0) -> bool:
    """A process that saves is killed once it has run so many lines of `save` and `write`, and a while
    later -> whether it got so far."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        left = line

        def trace(frame: FrameType, event: str, _: object) -> object:
            nonlocal left
            if frame.f_code not in (MemoryFile.save.__code__, write.__code__):
                return None
            left -= event == "line"
            if left < 1:
                sys.settrace(None)
                os.write(writer, b"here")
                if not spin:
                    signal.pause()
            return trace

        sys.settrace(trace)
        file.save()
        os._exit(0)
    os.close(writer)
    got = os.read(reader, 4)
    for _ in range(spin):
        pass
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    os.close(reader)
    return got == b"here"


def test_a_killed_process_leaves_the_old_or_the_new_file(tmp_path):
    """kill -9 before each line of a save and at random places inside; RECAP_KILLS=100 for the full number."""
    path, rng, value, line, kills = tmp_path / "memory", random.Random(7), 3, 0, 0
    target = SizedTarget(20_000)
    file, memory = file_at(path, target)
    wanted = {v: filled(v, PersistentMemory(20_000, 8), 15_000) for v in (3, 4)}
    filled(value, memory, 15_000)
    file.save()
    seen = set()

    def check() -> int:
        found = read(path, binding(target))
        held = int(found.ids[0, 0])
        assert same(found, wanted[held])
        seen.add(held == value)
        return held

    filled(7 - value, memory, 15_000)
    while killed(file, line=(line := line + 1)):
        value, kills = check(), kills + 1
        filled(7 - value, memory, 15_000)
    assert kills > 15
    assert seen == {True, False}, "both happened: the old one stayed, the new one came"
    value = check()
    while kills < KILLS:
        filled(7 - value, memory, 15_000)
        killed(file, line=rng.randrange(1, line), spin=rng.randrange(300_000))
        value, kills = check(), kills + 1
    file_at(path, target)  # opening sweeps what the killed ones left
    assert [p.name for p in tmp_path.iterdir()] == ["memory"]
