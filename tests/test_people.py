"""Many people on one service: nobody's words reach another, everybody gets a turn, faults stay where they are.

A scripted target stands in for the model where only the service matters.
"""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Iterator

import numpy as np
import pytest

from recap.drafters.recap.memory import PersistentMemory
from recap.page.environment import Settings
from recap.server import actions
from recap.server.autosave import Keeper
from recap.server.context import Shared
from recap.server.memory_scope import BOUNDARIES, Areas, GuardedMemory
from recap.server.model_loader import ModelLoader
from recap.server.out_of_memory import DeviceFullError, out_of_memory
from recap.server.queue import AnswerQueue, QueueFullError
from recap.server.session import Session
from recap.server.sessions import Sessions
from recap.targets import LoadError

from .scripted import ScriptedTarget
from .test_queue import join, spawn, until

VOCABULARY = 3000
RARE = "2801 2802 2803 2804 2805 2806 2807"
PROBE = "7 8 2801"
"""Ends with a token of RARE: a memory that saw RARE has a row for it."""


class WideTarget(ScriptedTarget):
    """So many tokens that one person's never come up by chance for another."""

    def __init__(self) -> None:
        super().__init__(VOCABULARY, seed=3, order=1, eos=False)


@pytest.fixture(scope="module")
def wide() -> WideTarget:
    return WideTarget()


def finish(progresses: Iterator[actions.Progress]) -> actions.Progress:
    return list(progresses)[-1]


def told(session: Session, text: str, *, tokens: int = 12) -> dict[str, str]:
    """Ask, compare, ask for it again -> everything that a person could see of it, times left out."""
    finish(actions.answer(session, text, [], "recap", max_new_tokens=tokens))
    for _ in actions.compare(session):
        pass
    for _ in actions.again(session):
        pass
    record = session.turns[-1]
    lines = [without_times(json.loads(line)) for line in record.trace.splitlines()]
    turns = {name: without_times(turn.as_dict()) for name, turn in record.runs.items()}
    return {"trace": json.dumps(lines), "turns": json.dumps(turns)}


def without_times(data: dict) -> dict:
    return {k: v for k, v in data.items() if not k.endswith("_s") and k not in ("turn", "ms")}


def sessions_at(boundary: str) -> Sessions:
    return Sessions(limit=8, shared=Shared(areas=Areas(boundary)))


@pytest.mark.parametrize("boundary", ["session", "user"])
@pytest.mark.parametrize(
    ("planter", "prober"), [("ann", "bob"), ("ann", ""), ("", "ann"), ("", "")]
)
def test_nothing_of_one_person_reaches_another(boundary, planter, prober, wide):
    """The probe is told the same, to the last candidate, whether or not something was planted before."""
    alone = told(sessions_at(boundary).new(wide, user=prober), PROBE)
    service = sessions_at(boundary)
    first = service.new(wide, owner="a", user=planter)
    told(first, RARE)
    told(first, RARE)
    assert told(service.new(wide, owner="b", user=prober), PROBE) == alone


def test_the_probe_finds_what_is_shared(wide):
    """Where memories are shared the same probe sees a difference, or the test above would prove nothing."""
    for boundary, users in (("shared", ("", "")), ("user", ("ann", "ann"))):
        alone = told(sessions_at(boundary).new(wide, user=users[1]), PROBE)
        service = sessions_at(boundary)
        told(service.new(wide, owner="a", user=users[0]), RARE)
        after = told(service.new(wide, owner="b", user=users[1]), PROBE)
        assert after != alone
        answers = [json.loads(seen["turns"])["recap"]["token_ids"] for seen in (alone, after)]
        assert answers[0] == answers[1]  # never the answer itself


def test_a_request_local_memory_never_leaves_its_request(wide):
    """Also where the 1-token memory is shared: 2- and 3-token keys start empty in another session."""
    service = sessions_at("shared")
    told(service.new(wide), RARE)
    other = service.new(wide)
    finish(actions.answer(other, PROBE, [], "recap", max_new_tokens=1))
    drafter = other.drafter("recap")
    assert len(drafter.memory) > 0
    fresh = Session(wide)
    finish(actions.answer(fresh, PROBE, [], "recap", max_new_tokens=1))
    assert len(drafter.request) == len(fresh.drafter("recap").request)


def test_clearing_a_persons_area_is_theirs_alone(wide):
    service = sessions_at("user")
    ann, again, bob = (service.new(wide, user=user) for user in ("ann", "ann", "bob"))
    for session in (ann, bob):
        told(session, RARE)
    assert again.drafter("recap").memory is ann.drafter("recap").memory
    held = len(bob.drafter("recap").memory)
    again.forget()
    assert len(ann.drafter("recap").memory) == 0
    assert len(bob.drafter("recap").memory) == held > 0
    alone = told(sessions_at("user").new(wide, user="ann"), PROBE)
    assert told(service.new(wide, user="ann"), PROBE) == alone


def test_nobody_empties_what_everybody_shares(wide):
    service = sessions_at("shared")
    one, two = service.new(wide), service.new(wide)
    told(one, RARE)
    memory = two.drafter("recap").memory
    held = len(memory)
    two.forget()
    assert len(memory) == held > 0
    two.configure(type(two.settings)(warm=False))
    told(two, PROBE)  # a cold run learns by itself and leaves the shared one alone
    assert len(memory) == held


def test_areas_are_bounded_and_checked():
    areas = Areas("user", limit=2)
    first = areas.memory("a", 40, 8)
    assert areas.memory("a", 40, 8) is first
    for user in "bc":
        areas.memory(user, 40, 8)
    assert areas.memory("a", 40, 8) is not first
    assert areas.memory("", 40, 8) is None
    assert Areas().memory("a", 40, 8) is None
    assert Areas("shared").memory("a", 40, 8) is not None
    with pytest.raises(ValueError, match="no boundary “all”: session, user, shared are"):
        Areas("all")
    with pytest.raises(ValueError, match="Only a shared memory"):
        areas.put(PersistentMemory(40, 8))
    assert all(said.endswith(".") for said in BOUNDARIES.values())


def test_a_shared_memory_can_be_copied_while_it_is_written():
    memory, stop, copies = GuardedMemory(500, 8), threading.Event(), []
    rows = np.arange(500)

    def write() -> None:
        value = 0
        while not stop.is_set():
            value += 1
            ids = np.full((500, 8), value, np.int32)
            memory.write(rows, ids, ids.astype("f4"), np.full(500, 0.5, "f4"))
            memory.get(value % 500)

    writers = spawn(write, write)
    until(lambda: len(memory) > 0)
    for _ in range(50):
        copies.append(__import__("copy").deepcopy(memory))
    stop.set()
    join(writers)
    for copy in copies:
        assert type(copy) is PersistentMemory
        assert len(set(copy.ids[:, 0].tolist())) == 1  # whole writes, never a half one
        assert (copy.ids[:, 0] == copy.probs[:, 0]).all()


# ---- the queue


class HeldTarget(ScriptedTarget):
    """Passes wait for the test's word."""

    def __init__(self) -> None:
        super().__init__(seed=3, eos=False)
        self.go = threading.Event()
        self.passes = 0

    def verify(self, *args, **kwargs):
        self.passes += 1
        assert self.go.wait(20)
        return super().verify(*args, **kwargs)


def test_one_answer_at_a_time_and_the_next_is_told_its_place(monkeypatch):
    monkeypatch.setattr(actions, "QUEUE_S", 0.01)
    target = HeldTarget()
    service = Sessions(shared=Shared(AnswerQueue(1)))
    first, second, third = (service.new(target, owner=name) for name in "abc")
    running = actions.answer(first, "5 6 7", [], "autoregressive", max_new_tokens=5)
    next(running)
    until(lambda: target.passes == 1)
    waiting = actions.answer(second, "5 6 7", [], "recap", max_new_tokens=5)
    assert next(waiting).phase == "waiting: place 1 of 1 in the queue"
    last = actions.answer(third, "5 6 7", [], "recap", max_new_tokens=5)
    assert next(last).phase == "waiting: place 2 of 2 in the queue"
    last.close()  # gone: the page was closed
    assert len(service.shared.queue) == 1
    assert third.conversation.ids == []
    target.go.set()
    turns = [finish(one).turn for one in (running, waiting)]
    assert turns[0].token_ids == turns[1].token_ids
    assert service.shared.queue.running == 0


def test_a_stop_while_waiting_is_one_sentence(monkeypatch):
    monkeypatch.setattr(actions, "QUEUE_S", 0.01)
    target = HeldTarget()
    service = Sessions(shared=Shared(AnswerQueue(1)))
    first, second = service.new(target, owner="a"), service.new(target, owner="b")
    running = actions.answer(first, "5 6", [], "recap", max_new_tokens=5)
    next(running)
    waiting = actions.answer(second, "5 6", [], "recap", max_new_tokens=5)
    next(waiting)
    second.interrupt()
    with pytest.raises(ValueError, match=r"^Stopped before its turn came\.$"):
        finish(waiting)
    assert not second.is_busy
    target.go.set()
    finish(running)


def test_a_full_queue_changes_nothing():
    target = HeldTarget()
    service = Sessions(shared=Shared(AnswerQueue(1, waiting=1)))
    places = [service.shared.queue.enter(name) for name in "xy"]
    session = service.new(target, owner="z")
    with pytest.raises(QueueFullError, match="1 questions wait already"):
        finish(actions.answer(session, "5 6", [], "recap"))
    assert not session.is_busy
    assert session.conversation.ids == []
    for place in places:
        with place:
            pass


def test_a_full_house_stops_nobody():
    """All sessions at work: a newcomer is told so, and the answers go on."""
    target = HeldTarget()
    service = Sessions(limit=2)
    old, new = service.new(target, owner="a"), service.new(target, owner="b")
    answers = [actions.answer(s, "5 6 7", [], "recap", max_new_tokens=4) for s in (old, new)]
    for answer in answers:
        next(answer)
    with pytest.raises(QueueFullError, match="All 2 places on this server are in use"):
        service.new(target, owner="c")
    assert len(service) == 2
    target.go.set()
    for answer in answers:
        assert finish(answer).turn.finish_reason == "length"
    third = service.new(target, owner="c")
    assert service.get(third.id) is third
    assert service.get(old.id) is None


def test_a_closed_page_frees_its_session_within_a_pass():
    target = HeldTarget()
    service = Sessions()
    session = service.new(target, owner="a")
    answer = actions.answer(session, "5 6 7", [], "recap", max_new_tokens=5000)
    next(answer)
    until(lambda: target.passes == 1)
    assert service.drop_owner("a") == 1
    assert len(service) == 0
    target.go.set()
    answer.close()
    assert target.passes <= 2
    assert not session.is_busy
    assert (session.turns, session._drafters) == ([], {})
    assert service.shared.queue.running == 0


# ---- faults


class OutOfMemoryError(RuntimeError):
    """Stands in for torch's: on a CPU there is no device whose memory could run out."""


class SmallTarget(ScriptedTarget):
    """Its memory is full at a pass, or at reading a question, whenever the test says so."""

    def __init__(self) -> None:
        super().__init__(seed=3, eos=False)
        self.full_at = ""

    def verify(self, state, tokens, *args, **kwargs):
        if self.full_at == "pass" and state.length > 5:
            raise OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")
        return super().verify(state, tokens, *args, **kwargs)

    def prefill(self, *args, **kwargs):
        if self.full_at == "prefill":
            raise OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")
        return super().prefill(*args, **kwargs)


@pytest.mark.parametrize("place", ["prefill", "pass"])
def test_a_full_device_is_one_sentence_and_the_others_go_on(place):
    target = SmallTarget()
    service = Sessions(shared=Shared(AnswerQueue(4)))
    unlucky, other = service.new(target, owner="a"), service.new(target, owner="b")
    finish(actions.answer(unlucky, "5 6", [], "recap", max_new_tokens=2))
    going = actions.answer(other, "5 6", [], "recap", max_new_tokens=4)
    next(going)
    until(lambda: other._answer.turn is not None)  # made, though nobody has read it yet
    before = list(unlucky.conversation.ids)
    target.full_at = place
    with pytest.raises(DeviceFullError, match=r"^The device's memory was full and [^\n]+\.$"):
        finish(actions.answer(unlucky, "7 8 9", [], "recap", max_new_tokens=9))
    target.full_at = ""
    assert unlucky.conversation.ids == before
    assert len(unlucky.turns) == 1
    assert finish(going).turn.tokens == 4
    fresh = Session(target)
    finish(actions.answer(fresh, "5 6", [], "recap", max_new_tokens=2))
    for session in (unlucky, fresh):
        finish(actions.answer(session, "7 8 9", [], "recap", max_new_tokens=9))
    assert unlucky.turns[-1].runs["recap"].token_ids == fresh.turns[-1].runs["recap"].token_ids


def test_torchs_own_error_is_known_and_others_are_not_hidden():
    import torch

    undone = []
    with pytest.raises(DeviceFullError), out_of_memory(lambda: undone.append(1)):
        raise torch.OutOfMemoryError("CUDA out of memory")
    with pytest.raises(RuntimeError, match="other"), out_of_memory(lambda: undone.append(2)):
        raise RuntimeError("other")
    assert undone == [1]


def test_a_comparison_that_does_not_fit_leaves_the_answer(monkeypatch):
    target = SmallTarget()
    session = Session(target)
    finish(actions.answer(session, "5 6 7", [], "recap", max_new_tokens=9))
    target.full_at = "pass"
    assert all(p.turn is None for p in actions.compare(session))
    assert set(session.turns[-1].runs) == {"recap"}
    assert not session.is_busy


class Cache(list):
    """A KV cache of the scripted target that says how large it is."""

    @property
    def nbytes(self) -> int:
        return 1000 * len(self)


class SizedTarget(ScriptedTarget):
    def prefill(self, state, ids, segment, *, positions, top_k):
        made = super().prefill(state, ids, segment, positions=positions, top_k=top_k)
        state.cache = Cache(state.cache)
        return made


def test_the_least_recently_used_caches_make_room():
    target = SizedTarget(seed=3, eos=False)
    service = Sessions(shared=Shared(kv_bytes=50_000))
    old, middle, new = (service.new(target, owner=name) for name in "abc")
    for session in (old, middle, new):
        finish(actions.answer(session, "5 6 7 8", [], "recap", max_new_tokens=20))
    held = [s.conversation.kv_bytes for s in (old, middle, new)]
    assert held[0] == 0
    assert held[1] > 0 < held[2]
    assert service.shared.figures()["kv_bytes"] == sum(held) <= 50_000
    alone = Session(target)
    for session in (old, alone):
        if session is alone:
            finish(actions.answer(alone, "5 6 7 8", [], "recap", max_new_tokens=20))
        finish(actions.answer(session, "9 10", [], "recap", max_new_tokens=20))
    assert old.turns[-1].runs["recap"].token_ids == alone.turns[-1].runs["recap"].token_ids
    with middle.busy():
        service.shared.trim(0)
        assert middle.conversation.kv_bytes > 0  # in use: not touched


# ---- loading


def test_the_demo_model_answers_for_one_that_cannot_be_loaded():
    demo = ScriptedTarget()

    def fail():
        raise LoadError("There is no model x on the hub (or it is private), and no such directory.")

    loader = ModelLoader("x", fail, fallback=lambda: demo)
    assert loader.wait(5)
    assert loader.target is demo
    assert loader.note == (
        "The model “x” could not be loaded: There is no model x on the hub (or it is private), and no "
        "such directory. The embedded demo model answers instead."
    )
    assert loader.error == ""
    loader = ModelLoader("x", fail, fallback=fail)
    assert loader.wait(5)
    assert loader.error.startswith("There is no model x")
    assert not loader.loaded


# ---- figures and logs


def test_figures_and_logs_hold_no_words(wide, caplog):
    service = sessions_at("shared")
    with caplog.at_level(logging.INFO, logger="recap"):
        session = service.new(wide, owner="secretname", user="ann")
        told(session, RARE)
        with pytest.raises(ValueError, match="numbers"):
            finish(actions.answer(session, "my secret words", [], "recap"))
    text = service.shared.metrics.text().decode()
    logged = "\n".join(record.message for record in caplog.records)
    for line in logged.splitlines():
        assert json.loads(line)["event"] in ("answer", "error")
    for word in ("secret", "ann", *RARE.split()):
        assert f'"{word}' not in text
        assert word not in logged
    figures = dict(line.rsplit(" ", 1) for line in text.splitlines() if line[:1] != "#")
    assert figures['recap_answers_total{decoder="recap",finish="length"}'] == "1.0"
    assert figures['recap_tokens_total{decoder="recap"}'] == "12.0"
    assert float(figures['recap_passes_total{decoder="recap"}']) >= 1
    assert figures['recap_errors_total{kind="ValueError"}'] == "1.0"
    assert figures["recap_sessions"] == "1.0"
    assert float(figures["recap_memory_rows"]) > 0
    assert figures["recap_queue_waiting"] == "0.0"


# ---- the shared memory's file


def test_the_shared_memory_outlives_the_service(wide, tmp_path, caplog):
    path = tmp_path / "memory"
    keeper = Keeper(Areas("shared"), path)
    assert not keeper.save()  # nothing to save before the model is there
    first = sessions_at("shared")
    keeper = Keeper(first.shared.areas, path)
    keeper.open(wide)
    told(first.new(wide), RARE)
    assert keeper.save()
    warm = told(first.new(wide), PROBE)

    second = sessions_at("shared")
    again = Keeper(second.shared.areas, path)
    again.open(wide)
    assert again.note == ""
    assert told(second.new(wide), PROBE) == warm

    third = sessions_at("shared")
    foreign = Keeper(third.shared.areas, path)
    foreign.open(ScriptedTarget())
    assert "belongs to another model" in foreign.note
    assert third.shared.areas.rows == 0


def test_settings_of_many_people():
    read = Settings.from_environment
    people = {"RECAP_USERS": "Ann:one two, Ben:x:y"}
    assert read(people).sign_in == [("Ann", "one two"), ("Ben", "x:y")]
    assert read({}).sign_in is None
    assert "one two" not in repr(read(people))
    shared = read(
        people | {"RECAP_AREA": "user", "RECAP_ANSWERS": "3", "RECAP_KV_MB": "7"}
    ).shared()
    assert shared.areas.boundary == "user"
    assert shared.queue.limit == 3
    assert shared.kv_bytes == 7_000_000
    for environment, match in (
        ({"RECAP_AREA": "all"}, "RECAP_AREA must be session, user, shared, not “all”"),
        ({"RECAP_MEMORY_FILE": "x"}, "set RECAP_AREA to shared too"),
        ({"RECAP_AREA": "user"}, "set RECAP_USERS too"),
        ({"RECAP_USERS": "Ann"}, "must hold name:password pairs"),
        ({"RECAP_USERS": "Ann:a, Ann:b"}, "no name twice"),
        ({"RECAP_ANSWERS": "0"}, "must be a whole number above 0"),
        ({"RECAP_KV_MB": "٣"}, "must be a whole number above 0"),
    ):
        with pytest.raises(SystemExit, match=match):
            read(environment)
