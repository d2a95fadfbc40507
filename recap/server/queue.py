"""Who may use the device when: a fair lock for passes, and a queue for answers.

The lock is held for one pass. It is handed over in the order of asking, so running answers take turns pass
by pass and a long one never keeps a short one waiting for more than one pass of each other answer. The queue
bounds how many answers run at once, in all and for one person; who waits can see the place.

Neither knows of models, sessions or the page. No torch.
"""

from __future__ import annotations

import threading
import time
from types import TracebackType


class QueueFullError(ValueError):
    """No place in the queue is left; the message is one sentence for a person."""


class AnswerQueue:
    """Answers at once: at most `limit` in all and `per_person` of one person, `waiting` more in line.

    An answer runs when its turn has come: nobody before it in line could run instead. Seconds an answer
    takes are remembered, so that a wait can be estimated.
    """

    def __init__(self, limit: int = 8, *, per_person: int = 2, waiting: int = 64) -> None:
        self.limit, self.per_person, self.most_waiting = limit, per_person, waiting
        self._changed = threading.Condition()
        self._line: list[Place] = []
        self._running: list[Place] = []
        self._typical_s = 0.0

    def __len__(self) -> int:
        """How many wait."""
        return len(self._line)

    @property
    def running(self) -> int:
        """How many answers run."""
        return len(self._running)

    def enter(self, person: str) -> Place:
        """A place in line for a person's answer; use it in a `with` block.

        Raises QueueFullError if the line is full, or the person has as many in line as may run at once.
        """
        with self._changed:
            if len(self._line) >= self.most_waiting:
                raise QueueFullError(
                    f"{len(self._line)} questions wait already; try again in a minute."
                )
            if person and sum(p.person == person for p in self._line) >= self.per_person:
                raise QueueFullError("Your earlier questions still wait for their turn.")
            place = Place(self, person)
            self._line.append(place)
            self._admit()
            return place

    def _admit(self) -> None:
        """Let everyone run who may; the lock is held."""
        for place in list(self._line):
            if len(self._running) >= self.limit:
                break
            mine = sum(p.person == place.person for p in self._running)
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
                self._typical_s = 0.7 * self._typical_s + 0.3 * took if self._typical_s else took
            elif place in self._line:
                self._line.remove(place)
            self._admit()


class Place:
    """One answer's place in an AnswerQueue, until its `with` block is left."""

    def __init__(self, queue: AnswerQueue, person: str) -> None:
        self._queue, self.person = queue, person
        self.begun = 0.0

    def wait(self, timeout_s: float) -> bool:
        """Wait for the turn -> whether it has come."""
        with self._queue._changed:
            return self._queue._changed.wait_for(lambda: self.number == 0, timeout_s)

    @property
    def number(self) -> int:
        """Place in line from 1; 0 once the answer may run."""
        line = self._queue._line
        return line.index(self) + 1 if self in line else 0

    @property
    def said(self) -> str:
        """The wait in words, for the page."""
        with self._queue._changed:
            number, of = self.number, len(self._queue._line)
            rounds = (number + self._queue.limit - 1) // self._queue.limit
            seconds = rounds * self._queue._typical_s
        about = f", about {max(1, round(seconds))} s" if seconds else ""
        return f"waiting: place {number} of {of} in the queue{about}"

    def __enter__(self) -> Place:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._queue._leave(self)
