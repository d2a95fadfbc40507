"""Memory scopes: who shares Recap's persistent memory with whom, and the file that keeps a shared one.

A memory holds what requests left behind, so sharing one shares traces of them: candidates and their
timing show what others were answered. The boundary is chosen for the whole server:

    session   each page has its own memory, which goes with the page (the default)
    user      the pages of a signed-in person share one; without a sign-in a page has its own
    shared    everybody shares one, and the page says so

Only the 1-token memory can be shared. The 2- and 3-token memories, Token Recycling's table and the
calibration stay with their session. No torch.
"""

from __future__ import annotations

import contextlib
import copy
import hashlib
import os
import threading
from collections import OrderedDict
from pathlib import Path
from typing import Any

import numpy as np

from ..drafters.recap.memory import PersistentMemory
from ..targets.base import Target
from .metrics import log

BOUNDARIES = {
    "session": "Recap's memory belongs to this page alone and goes with it, like the conversation: after a "
    "reload it is empty.",
    "user": "Recap's memory is kept for the person who is signed in, across pages and visits; without "
    "a sign-in it belongs to this page alone.",
    "shared": "Recap's memory is shared by everybody who uses this server: what the model answered to one "
    "person shapes the guesses shown to others, never their answers. Ask nothing private here.",
}
"""Boundary -> what the page says about it."""

FILE_VERSION = 2


class GuardedMemory(PersistentMemory):
    """A persistent memory that several answers may use at once; a copy of it is an ordinary one."""

    def __init__(self, vocab_size: int, top_k: int) -> None:
        self.guard = threading.RLock()
        super().__init__(vocab_size, top_k)

    def __deepcopy__(self, memo: dict[int, Any]) -> PersistentMemory:
        twin = PersistentMemory(self.vocab_size, self.top_k)
        with self.guard:
            fill(twin, self)
        memo[id(self)] = twin
        return twin


def fill(memory: PersistentMemory, other: PersistentMemory) -> None:
    """Copy all stored predictions of `other`, which has the same shape."""
    memory.ids[:], memory.probs[:] = other.ids, other.probs
    memory.confidence[:] = other.confidence


class MemoryScopes:
    """The memories that outlive a session, one per scope; none with the boundary "session".

    limit: most memories at once; the least recently used goes first. A memory for a vocabulary of
    150,000 takes 10 MB.
    """

    def __init__(self, boundary: str = "session", *, limit: int = 64) -> None:
        if boundary not in BOUNDARIES:
            raise ValueError(f"Unknown boundary “{boundary}”: use {', '.join(BOUNDARIES)}.")
        self.boundary, self.limit = boundary, limit
        self._memories: OrderedDict[tuple[str, int, int], GuardedMemory] = OrderedDict()
        self._lock = threading.Lock()

    @property
    def notice(self) -> str:
        """What a person should know about the boundary."""
        return BOUNDARIES[self.boundary]

    def name(self, user: str) -> str:
        """The scope of a person's requests; "" is the session's own."""
        if self.boundary == "shared":
            return "shared"
        return f"user {user}" if self.boundary == "user" and user else ""

    def memory(self, user: str, vocab_size: int, top_k: int) -> GuardedMemory | None:
        """The memory of a person's scope; None where the session keeps its own."""
        name = self.name(user)
        if not name:
            return None
        key = (name, vocab_size, top_k)
        with self._lock:
            if key not in self._memories:
                while len(self._memories) >= self.limit:
                    self._memories.popitem(last=False)
                self._memories[key] = GuardedMemory(vocab_size, top_k)
            self._memories.move_to_end(key)
            return self._memories[key]

    def clear(self, user: str) -> bool:
        """Empty a signed-in person's scope -> whether there was one. Nobody can empty the shared one."""
        if self.boundary != "user" or not user:
            return False
        with self._lock:
            own = [m for (name, *_), m in self._memories.items() if name == self.name(user)]
        for memory in own:
            memory.clear()
        return bool(own)

    @property
    def predictions(self) -> int:
        """Stored predictions in all scopes together."""
        with self._lock:
            return sum(len(memory) for memory in self._memories.values())

    def newest(self) -> PersistentMemory | None:
        """A copy of the memory used last, or None."""
        with self._lock:
            memory = next(reversed(self._memories.values()), None)
        return None if memory is None else copy.deepcopy(memory)


class MemoryFile:
    """The file of a server's shared memory: one npz, written next to its place and renamed into it.

    A process that dies leaves the old file or the new one. A file that is damaged, or belongs to another
    model or tokenizer, is set aside under another name; `note` then says so in one sentence.
    """

    def __init__(self, scopes: MemoryScopes, path: Path) -> None:
        self.scopes, self.path, self.note = scopes, path, ""
        self._binding = ""
        self._lock = threading.Lock()

    def open(self, target: Target) -> None:
        """Fill the shared memory from the file, if there is one for this model."""
        self._binding = binding(target)
        for part in self.path.parent.glob(f"{self.path.name}.*.part"):
            part.unlink(missing_ok=True)  # of a process that was killed
        try:
            memory = read(self.path, self._binding)
        except FileNotFoundError:
            return
        except OSError as error:
            self.note = f"The memory file {self.path} cannot be read: {error.strerror}."
        except ValueError as error:
            aside = self.path.with_name(f"{self.path.name}.refused")
            with contextlib.suppress(OSError):
                self.path.replace(aside)
            self.note = f"The memory file {self.path} {error}: it is kept as {aside.name}."
        else:
            own = self.scopes.memory("", memory.vocab_size, memory.top_k)
            with own.guard:
                fill(own, memory)
            log("memory file read", predictions=len(memory))
            return
        log("memory file refused")

    def save(self) -> bool:
        """Save the shared memory -> whether that worked. Before `open` there is nothing to save."""
        with self._lock:
            memory = self.scopes.newest() if self._binding else None
            if memory is None:
                return False
            part = self.path.with_name(f"{self.path.name}.{os.getpid()}.part")
            try:
                self.path.parent.mkdir(parents=True, exist_ok=True)
                with part.open("wb") as file:
                    write(file, memory, self._binding)
                    file.flush()
                    os.fsync(file.fileno())
                part.replace(self.path)
            except OSError as error:
                log("memory file not written", kind=type(error).__name__)
                return False
            finally:
                part.unlink(missing_ok=True)
            return True


def binding(target: Target) -> str:
    """What stored predictions are valid for: a hash of the model's name and its tokenizer's vocabulary."""
    vocabulary = getattr(getattr(target, "tokenizer", None), "get_vocab", dict)()
    parts = (target.name, target.vocab_size, sorted(vocabulary.items()))
    return hashlib.sha256(repr(parts).encode()).hexdigest()


def write(file: Any, memory: PersistentMemory, belongs_to: str) -> None:
    """Write the stored predictions of a memory that nobody changes meanwhile."""
    tokens = np.flatnonzero(memory.confidence >= 0)
    np.savez(
        file,
        recap_memory=np.array(FILE_VERSION),
        belongs_to=np.array(belongs_to),
        shape=np.array([memory.vocab_size, memory.top_k]),
        tokens=tokens.astype(np.int32),
        ids=memory.ids[tokens],
        probs=memory.probs[tokens],
        confidence=memory.confidence[tokens],
    )


def read(path: Path, belongs_to: str) -> PersistentMemory:
    """The memory in a file. Raises ValueError, the end of a sentence, if it is not one for this model."""
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as saved:
            parts = {name: saved[name] for name in saved.files}  # numpy checks each part's CRC
        version = int(parts["recap_memory"])
    except OSError:
        raise
    except Exception:  # zip, zlib and numpy each raise their own
        raise ValueError("is damaged or no memory file") from None
    if version != FILE_VERSION:
        raise ValueError(f"has version {version}, and only {FILE_VERSION} can be read")
    if str(parts["belongs_to"]) != belongs_to:
        raise ValueError("belongs to another model or tokenizer")
    try:
        memory = PersistentMemory(*(int(n) for n in parts["shape"]))
        tokens = parts["tokens"]
        memory.ids[tokens], memory.probs[tokens] = parts["ids"], parts["probs"]
        memory.confidence[tokens] = parts["confidence"]
    except (KeyError, ValueError, IndexError, TypeError):
        raise ValueError("is damaged or no memory file") from None
    return memory
