"""The queue in front of the device: how many answers run at once, and who goes first.

Answers come before comparisons. A comparison starts only while no answer waits, and pauses between two
passes while an answer runs. Knows nothing of models, sessions or the page.
"""

from __future__ import annotations

import threading
import time
from types import TracebackType
from typing import Literal

Rank = Literal["answer", "comparison"]


class QueueFullError(ValueError):
    """No place in the queue is left; the message is one sentence for a person."""


class AnswerQueue:
    """At most `limit` answers at once, `per_person` of one person, and `max_waiting` more in line.

    As many comparisons may run at once, in the gaps that answers leave. The time that answers took is
    remembered to estimate waits.
    """

    def __init__(self, limit: int = 8, *, per_person: int = 2, max_waiting: int = 64) -> None:
        self.limit, self.per_person, self.max_waiting = limit, per_person, max_waiting
        self._changed = threading.Condition()
        self._line: list[Place] = []
        self._running: list[Place] = []
        self._typical_s = 0.0

    def waiting(self, rank: Rank = "answer") -> int:
        """How many of that rank wait for their turn."""
        return sum(place.rank == rank for place in list(self._line))

    def running(self, rank: Rank = "answer") -> int:
        """How many of that rank run."""
        return sum(place.rank == rank for place in list(self._running))

    def enter(self, person: str, rank: Rank = "answer") -> Place:
        """A place in line; use it in a `with` block.

        Raises QueueFullError if the line is full, or if `person` already waits with as many answers as
        may run at once. "" is nobody in particular and has no limit of its own.
        """
        with self._changed:
            if rank == "answer":
                waiting = [place for place in self._line if place.rank == rank]
                if len(waiting) >= self.max_waiting:
                    raise QueueFullError(
                        f"{len(waiting)} questions are waiting already; try again in a minute."
                    )
                if person and sum(p.person == person for p in waiting) >= self.per_person:
                    raise QueueFullError("Your earlier questions are still waiting for their turn.")
            place = Place(self, person, rank)
            self._line.append(place)
            self._admit()
            return place

    def _admit(self) -> None:
        """Start every place whose turn has come. The caller holds the lock."""
        for place in sorted(self._line, key=lambda place: place.rank == "comparison"):
            if self.running(place.rank) >= self.limit:
                continue
            if place.rank == "comparison" and (self.running() or self.waiting()):
                break
            mine = sum(p.person == place.person for p in self._running if p.rank == place.rank)
            if place.person and mine >= self.per_person:
                continue
            self._line.remove(place)
            self._running.append(place)
            place.begun = time.monotonic()
        self._changed.notify_all()

    def _leave(self, place: Place) -> None:
        with self._changed:
            if place in self._running:
                self._running.remove(place)
                took = time.monotonic() - place.begun
                if place.rank == "answer":
                    self._typical_s = (
                        0.7 * self._typical_s + 0.3 * took if self._typical_s else took
                    )
            elif place in self._line:
                self._line.remove(place)
            self._admit()


class Place:
    """One answer's or comparison's place in an AnswerQueue, until its `with` block is left."""

    def __init__(self, queue: AnswerQueue, person: str, rank: Rank) -> None:
        self.queue, self.person, self.rank = queue, person, rank
        self.begun = 0.0
        self.cancelled = False

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait for the turn -> whether it has come. Returns False at once after `cancel`."""
        with self.queue._changed:
            self.queue._changed.wait_for(lambda: self.cancelled or self.number == 0, timeout_s)
            return self.number == 0 and not self.cancelled

    def give_way(self) -> float:
        """For a comparison, between two passes: wait while answers run or wait -> seconds waited."""
        queue, begun = self.queue, time.monotonic()
        if self.rank == "answer" or not (queue._running or queue._line):
            return 0.0
        with queue._changed:
            queue._changed.wait_for(
                lambda: self.cancelled or not (queue.running() or queue.waiting())
            )
        return time.monotonic() - begun

    def cancel(self) -> None:
        """End every wait of this place now."""
        with self.queue._changed:
            self.cancelled = True
            self.queue._changed.notify_all()

    @property
    def number(self) -> int:
        """Place in line from 1, counting the own rank; 0 once it may run."""
        line = [place for place in self.queue._line if place.rank == self.rank]
        return line.index(self) + 1 if self in line else 0

    @property
    def phase(self) -> str:
        """The wait in words, for the page; "" while nothing is waited for."""
        queue = self.queue
        with queue._changed:
            number, total = self.number, queue.waiting(self.rank)
            ahead = queue.running() + queue.waiting()
            rounds = (number + queue.limit - 1) // queue.limit
            seconds = rounds * queue._typical_s
        if self.rank == "comparison":
            if not ahead:
                return ""
            return f"waiting: {ahead} {'answer goes' if ahead == 1 else 'answers go'} first"
        if not number:
            return ""
        estimate = f", about {max(1, round(seconds))} s" if seconds else ""
        return f"waiting: place {number} of {total} in the queue{estimate}"

    def __enter__(self) -> Place:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.queue._leave(self)
