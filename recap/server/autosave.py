"""Keeps the shared memory in a file: read once the model is there, saved while it grows and at the end."""

from __future__ import annotations

import threading
from pathlib import Path

from ..targets.base import Target
from .memory_file import MemoryFileError, binding, load, save
from .memory_scope import Areas
from .metrics import log


class Keeper:
    """The file of a service's shared memory. note: what the page should say of a file that was refused."""

    def __init__(self, areas: Areas, path: Path) -> None:
        self.areas, self.path, self.note = areas, path, ""
        self._belongs = ""
        self._lock = threading.Lock()

    def open(self, target: Target) -> None:
        """Fill the shared memory from the file, if there is one for this model."""
        self._belongs = binding(target)
        try:
            memory = load(self.path, belongs=self._belongs)
        except MemoryFileError as error:
            self.note = str(error)
            log("memory file refused")
            return
        if memory is not None and memory.vocab_size == target.vocab_size:
            self.areas.put(memory)
            log("memory file read", rows=len(memory))

    def save(self) -> bool:
        """Save the shared memory -> whether that worked. Before `open` there is nothing to save."""
        with self._lock:
            memories = self.areas.copies() if self._belongs else []
            try:
                for memory in memories[-1:]:
                    save(memory, self.path, belongs=self._belongs)
            except OSError as error:
                log("memory file not written", kind=type(error).__name__)
                return False
            return bool(memories)
