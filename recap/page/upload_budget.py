"""How much the uploads of a server, and of one address, may take on disk."""

from __future__ import annotations

import contextlib
import threading
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path

from .uploads import since

KEPT_S = 3600.0
"""An upload counts against its address for so long."""


class UploadBudget:
    """Admits uploads as long as they fit; the oldest files that no conversation needs make room.

    folder: where uploads are stored. total: bytes of all of them. share: bytes of one address within
    KEPT_S. needed: the paths that conversations may read again.
    """

    def __init__(
        self,
        folder: Path,
        *,
        total: int,
        share: int,
        needed: Callable[[], set[str]] = set,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.folder, self.total, self.share = folder, total, share
        self._needed, self._clock = needed, clock
        self._by_address: dict[str, deque[tuple[float, int]]] = {}
        self._lock = threading.Lock()

    def admit(self, address: str, size: int) -> str:
        """Count an upload of `size` bytes -> "" if it may come, else one sentence."""
        with self._lock:
            now = self._clock()
            own = self._by_address.setdefault(address, deque())
            while own and own[0][0] < now - KEPT_S:
                own.popleft()
            if sum(size for _, size in own) + size > self.share:
                return (
                    f"Your uploads of the last hour have reached {self.share / 1e6:.0f} MB; use smaller "
                    "images or try again later."
                )
            if not self._make_room(size):
                return "The server's space for uploads is full; try again later."
            own.append((now, size))
            for other in [name for name, sizes in self._by_address.items() if not sizes]:
                del self._by_address[other]
            return ""

    def _make_room(self, size: int) -> bool:
        """Delete the oldest files that nobody needs until `size` more bytes fit -> whether they do."""
        files = []
        for path in self.folder.rglob("*"):
            with contextlib.suppress(OSError):
                if path.is_file():
                    files.append((since(path), path.stat().st_size, path))
        used = sum(size for _, size, _ in files)
        if used + size <= self.total:
            return True
        needed = {str(Path(path).resolve()) for path in self._needed()}
        for _, taken, path in sorted(files):
            if used + size <= self.total:
                break
            if str(path.resolve()) not in needed:
                with contextlib.suppress(OSError):
                    path.unlink()
                    used -= taken
        return used + size <= self.total
