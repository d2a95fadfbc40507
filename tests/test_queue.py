"""Turns on the device and places in the queue. Order is forced by waiting on states, never by time."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from recap.server.queue import AnswerQueue, QueueFullError
from recap.targets.device_lock import FairLock

from .scripted import until


def spawn(*work: Callable[[], Any]) -> list[threading.Thread]:
    threads = [threading.Thread(target=one, daemon=True) for one in work]
    for thread in threads:
        thread.start()
    return threads


def join(threads: list[threading.Thread]) -> None:
    for thread in threads:
        thread.join(20)
        assert not thread.is_alive()


def test_answers_take_turns_pass_by_pass():
    """Three answers, the first with many passes: the others are through after three rounds."""
    lock, order, passes = FairLock(), [], {"long": 9, "short": 3, "other": 3}
    left = dict(passes)

    def rivals(name: str) -> int:
        return sum(count > 0 for one, count in left.items() if one != name)

    def answer(name: str) -> Callable[[], None]:
        def run() -> None:
            for _ in range(passes[name]):
                with lock:
                    order.append(name)
                    left[name] -= 1
                    # a pass lasts until all others who still decode wait for theirs
                    until(lambda: lock.waiting >= rivals(name))

        return run

    with lock:
        threads = []
        for name in passes:
            threads.extend(spawn(answer(name)))
            until(lambda: lock.waiting == len(threads))
    join(threads)
    assert order[:9] == ["long", "short", "other"] * 3
    assert order[9:] == ["long"] * 6


def test_the_lock_is_reentrant_and_minds_its_owner():
    lock = FairLock()
    with lock, lock:
        seen: list[str] = []

        def stranger() -> None:
            try:
                lock.release()
            except RuntimeError as error:
                seen.append(str(error))

        join(spawn(stranger))
        assert seen == ["Only the thread that holds the lock can release it."]
        waiter = spawn(lambda: lock.acquire() and lock.release())
        until(lambda: lock.waiting == 1)
    join(waiter)
    assert lock.waiting == 0
    with pytest.raises(RuntimeError):
        lock.release()


def test_an_error_in_a_pass_hands_the_lock_on():
    lock, done, waiters = FairLock(), [], []

    def fails() -> None:
        with lock:
            waiters.extend(spawn(lambda: lock.acquire() and (done.append(1), lock.release())))
            until(lambda: lock.waiting == 1)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fails()
    join(waiters)
    assert done == [1]


def test_nothing_is_lost_under_load():
    """Sixteen threads add without any other lock."""
    lock, total = FairLock(), [0]

    def add() -> None:
        for _ in range(300):
            with lock:
                seen = total[0]
                total[0] = seen + 1

    join(spawn(*[add] * 16))
    assert total == [4800]


def test_the_queue_lets_so_many_run_and_shows_places():
    queue = AnswerQueue(2, per_person=2)
    places = [queue.enter(f"p{i}") for i in range(5)]
    assert [p.number for p in places] == [0, 0, 1, 2, 3]
    assert queue.running() == 2
    assert places[3].phase.startswith("waiting: place 2 of 3 in the queue")
    assert places[0].wait(0)
    assert not places[2].wait(0)
    with places[0]:
        pass
    assert places[2].wait(0)
    assert [p.number for p in places[3:]] == [1, 2]
    with places[3]:  # gave up while waiting
        pass
    assert places[4].number == 1
    assert "about" in places[4].phase  # an answer has been timed by now
    for place in (places[1], places[2], places[4]):
        with place:
            pass
    assert (queue.running(), queue.waiting()) == (0, 0)


def test_one_person_cannot_take_every_place():
    queue = AnswerQueue(3, per_person=1)
    first, second = queue.enter("a"), queue.enter("a")
    other = queue.enter("b")
    assert (first.number, second.number, other.number) == (0, 1, 0)
    with pytest.raises(QueueFullError, match="Your earlier questions are still waiting"):
        queue.enter("a")
    with first:
        pass
    assert second.number == 0
    strangers = [queue.enter("") for _ in range(3)]  # who has no name shares no limit
    assert [p.number for p in strangers] == [0, 1, 2]


def test_a_full_line_is_one_sentence():
    queue = AnswerQueue(1, per_person=1, max_waiting=2)
    for name in "abc":
        queue.enter(name)
    with pytest.raises(
        QueueFullError, match=r"^2 questions are waiting already; try again in a minute\.$"
    ):
        queue.enter("d")


def test_a_waiting_thread_wakes_when_its_turn_comes():
    queue, woken = AnswerQueue(1), []
    first, second = queue.enter("a"), queue.enter("b")
    thread = spawn(lambda: woken.append(second.wait(20)))
    with first:
        assert woken == []
    join(thread)
    assert woken == [True]


def test_answers_go_before_comparisons():
    """A comparison starts only while no answer waits, and pauses between passes while one runs."""
    queue = AnswerQueue(2, per_person=2)
    answer = queue.enter("a")
    comparison = queue.enter("b", "comparison")
    assert (answer.number, comparison.number) == (0, 1)
    assert comparison.phase == "waiting: 1 answer goes first"
    assert not comparison.wait(0)
    with answer:
        pass
    assert comparison.wait(0)
    assert comparison.phase == ""
    assert comparison.give_way() < 1.0
    answers = [queue.enter(name) for name in "cde"]  # one more than may run
    assert [place.number for place in answers] == [0, 0, 1], "a comparison takes no answer's place"
    assert comparison.phase == "waiting: 3 answers go first"
    woken: list[float] = []
    thread = spawn(lambda: woken.append(comparison.give_way()))
    for place in answers:
        assert woken == []
        with place:
            pass
    join(thread)
    assert len(woken) == 1
    assert (queue.running(), queue.running("comparison")) == (0, 1)
    with comparison:
        pass
    assert queue.running("comparison") == 0


def test_a_cancelled_place_waits_for_nothing():
    queue = AnswerQueue(1)
    running, waiting = queue.enter("a"), queue.enter("b")
    comparison = queue.enter("c", "comparison")
    results: list[object] = []
    threads = spawn(
        lambda: results.append(waiting.wait()),
        lambda: results.append(comparison.give_way() >= 0.0),
    )
    waiting.cancel()
    comparison.cancel()
    join(threads)
    assert sorted(map(str, results)) == ["False", "True"]
    for place in (running, waiting, comparison):
        with place:
            pass
    assert (queue.running(), queue.waiting(), queue.waiting("comparison")) == (0, 0, 0)
