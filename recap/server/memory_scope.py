"""Isolation areas: who shares a persistent memory with whom.

What a memory holds came out of somebody's requests, so sharing one shares traces of them: candidates and
their timing tell what others were answered. The boundary is chosen for the whole service:

    session   each page has its own and takes it along when it goes (the default)
    user      a signed-in person's pages share one; who is not signed in has a page's own
    shared    everybody shares one, and the page says so

Only the 1-token memory can be shared. Memories of 2- and 3-token keys, Token Recycling's table and the
calibration stay with their session. No torch.
"""

from __future__ import annotations

import copy
import threading
from collections import OrderedDict
from typing import Any

from ..drafters.recap.memory import PersistentMemory

BOUNDARIES = {
    "session": "Recap's memory belongs to this page alone and goes with it, as the conversation does: a reload "
    "starts anew.",
    "user": "Recap's memory is kept for the person who is signed in, over pages and visits; without "
    "a sign-in it belongs to this page alone.",
    "shared": "Recap's memory is shared by everybody who uses this server: what the model said to one "
    "shapes the guesses shown to others, never their answers. Ask nothing private here.",
}
"""Boundary -> what the page says about it."""


class GuardedMemory(PersistentMemory):
    """A persistent memory that several answers may use at once; a copy of it is an ordinary one."""

    def __init__(self, vocab_size: int, top_k: int) -> None:
        self.guard = threading.RLock()
        super().__init__(vocab_size, top_k)

    def __deepcopy__(self, memo: dict[int, Any]) -> PersistentMemory:
        twin = PersistentMemory(self.vocab_size, self.top_k)
        with self.guard:
            twin.ids, twin.probs = self.ids.copy(), self.probs.copy()
            twin.confidence = self.confidence.copy()
        memo[id(self)] = twin
        return twin


class Areas:
    """The memories that outlive a session, by area; none at the boundary "session".

    limit: most areas at once, least recently used first to go (a memory of a vocabulary of 150,000 takes
    10 MB).
    """

    def __init__(self, boundary: str = "session", *, limit: int = 64) -> None:
        if boundary not in BOUNDARIES:
            raise ValueError(f"There is no boundary “{boundary}”: {', '.join(BOUNDARIES)} are.")
        self.boundary, self.limit = boundary, limit
        self._memories: OrderedDict[tuple[str, int, int], GuardedMemory] = OrderedDict()
        self._lock = threading.Lock()

    @property
    def said(self) -> str:
        """What a person should know about it."""
        return BOUNDARIES[self.boundary]

    def name(self, user: str) -> str:
        """The area of a person's requests; "" is the session's own."""
        if self.boundary == "shared":
            return "shared"
        return f"user {user}" if self.boundary == "user" and user else ""

    def memory(self, user: str, vocab_size: int, top_k: int) -> GuardedMemory | None:
        """The memory of a person's area; None where the session keeps its own."""
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

    def put(self, memory: PersistentMemory) -> None:
        """Fill the shared area with what was saved earlier."""
        mine = self.memory("", memory.vocab_size, memory.top_k)
        if self.boundary != "shared" or mine is None:
            raise ValueError("Only a shared memory can be filled from a file.")
        with mine.guard:
            mine.clear()
            mine.ids[:], mine.probs[:] = memory.ids, memory.probs
            mine.confidence[:] = memory.confidence

    def clear(self, user: str) -> bool:
        """Empty a signed-in person's area -> whether there was one. The shared one is nobody's to empty."""
        if self.boundary != "user" or not user:
            return False
        with self._lock:
            mine = [m for (name, *_), m in self._memories.items() if name == self.name(user)]
        for memory in mine:
            memory.clear()
        return bool(mine)

    def copies(self) -> list[PersistentMemory]:
        """Copies of all memories, to be saved."""
        with self._lock:
            memories = list(self._memories.values())
        return [copy.deepcopy(memory) for memory in memories]

    @property
    def rows(self) -> int:
        """Rows in all areas together."""
        with self._lock:
            return sum(len(memory) for memory in self._memories.values())
