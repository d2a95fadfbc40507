"""A fair lock over the device: held for one pass, granted in the order of the requests."""

from __future__ import annotations

import threading
from collections import deque
from types import TracebackType


class FairLock:
    """A reentrant lock that goes to the thread that has waited longest; a `with` block holds it."""

    def __init__(self) -> None:
        self._mutex = threading.Lock()
        self._line: deque[tuple[int, threading.Lock]] = deque()
        self._owner: int | None = None
        self._depth = 0

    @property
    def waiting(self) -> int:
        """How many threads wait for the lock."""
        return len(self._line)

    def acquire(self) -> bool:
        """Take the lock, after every thread that asked earlier -> True."""
        me = threading.get_ident()
        with self._mutex:
            if self._owner == me:
                self._depth += 1
                return True
            if self._owner is None:
                self._owner, self._depth = me, 1
                return True
            turn = threading.Lock()
            turn.acquire()
            self._line.append((me, turn))
        try:
            turn.acquire()
        except BaseException:  # interrupted while waiting: leave the queue, or pass the turn on
            with self._mutex:
                mine = self._owner == me
                if not mine:
                    self._line.remove((me, turn))
            if mine:
                self.release()
            raise
        return True

    def release(self) -> None:
        """Give the lock back, or to the thread that has waited longest."""
        with self._mutex:
            if self._owner != threading.get_ident():
                raise RuntimeError("Only the thread that holds the lock can release it.")
            self._depth -= 1
            if self._depth:
                return
            if self._line:
                self._owner, turn = self._line.popleft()
                self._depth = 1
                turn.release()
            else:
                self._owner = None

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.release()
