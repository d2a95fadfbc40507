"""Many people on one service: nobody's words reach another, everybody gets a turn, faults stay where they are.

A scripted target stands in for the model where only the service matters.
"""

from __future__ import annotations

import copy
import gc
import json
import logging
import threading

import pytest
import torch
from PIL import Image

from recap.drafters.recap.memory import PersistentMemory
from recap.page.environment import Settings
from recap.page.examples import EXAMPLES
from recap.page.launch import housekeeping
from recap.page.uploads import for_page
from recap.server import actions
from recap.server.context import ServerContext
from recap.server.memory_scope import BOUNDARIES, GuardedMemory, MemoryFile, MemoryScopes
from recap.server.model_loader import ModelLoader
from recap.server.out_of_memory import DeviceFullError, is_out_of_memory
from recap.server.queue import AnswerQueue, QueueFullError
from recap.server.session import Session, TurnRecord
from recap.server.sessions import Sessions
from recap.targets import LoadError, images, load_target

from .scripted import HeldTarget, ScriptedTarget, until
from .test_queue import join, spawn
from .test_sessions import agree, ask, start

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


def told(session: Session, text: str, *, tokens: int = 12) -> dict[str, str]:
    """Ask, compare, ask for it again -> everything that a person could see of it, times left out."""
    ask(session, text, "recap", most=tokens)
    actions.compare(session).result()
    actions.compare_settings(session).result()
    record = session.turns[-1]
    lines = [without_times(json.loads(line)) for line in record.trace.splitlines()]
    turns = {name: without_times(turn.as_dict()) for name, turn in record.runs.items()}
    return {"trace": json.dumps(lines), "turns": json.dumps(turns)}


def without_times(data: dict) -> dict:
    return {k: v for k, v in data.items() if not k.endswith("_s") and k not in ("turn", "ms")}


def sessions_at(boundary: str) -> Sessions:
    return Sessions(limit=8, context=ServerContext(scopes=MemoryScopes(boundary)))


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
    ask(other, PROBE, "recap", most=1)
    drafter = other.drafter("recap")
    assert len(drafter.memory) > 0
    fresh = Session(wide)
    ask(fresh, PROBE, "recap", most=1)
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


def test_scopes_are_bounded_and_checked():
    scopes = MemoryScopes("user", limit=2)
    first = scopes.memory("a", 40, 8)
    assert scopes.memory("a", 40, 8) is first
    for user in "bc":
        scopes.memory(user, 40, 8)
    assert scopes.memory("a", 40, 8) is not first
    assert scopes.memory("", 40, 8) is None
    assert MemoryScopes().memory("a", 40, 8) is None
    assert MemoryScopes("shared").memory("a", 40, 8) is not None
    with pytest.raises(ValueError, match="Unknown boundary “all”: use session, user, shared"):
        MemoryScopes("all")
    assert all(notice.endswith(".") for notice in BOUNDARIES.values())


def test_a_shared_memory_can_be_copied_while_it_is_written():
    memory, stop, copies = GuardedMemory(500, 8), threading.Event(), []

    def write() -> None:
        value = 0
        while not stop.is_set():
            value += 1
            with memory.guard:
                memory.ids[:], memory.probs[:], memory.confidence[:] = value, value, 0.5

    writers = spawn(write, write)
    until(lambda: len(memory) > 0)
    for _ in range(50):
        copies.append(copy.deepcopy(memory))
    stop.set()
    join(writers)
    for made in copies:
        assert type(made) is PersistentMemory
        assert len(set(made.ids[:, 0].tolist())) == 1, "whole writes, never a half one"
        assert (made.ids[:, 0] == made.probs[:, 0]).all()


# ---- the queue


def test_one_answer_at_a_time_and_the_next_is_told_its_place():
    target = HeldTarget()
    service = Sessions(context=ServerContext(AnswerQueue(1)))
    queue = service.context.queue
    sessions = [service.new(target, owner=name) for name in "abc"]
    runs = []
    for number, session in enumerate(sessions):
        runs.append(start(session, "5 6 7", most=5))
        until(lambda n=number: queue.waiting() == n and queue.running() == 1)
    phases = [run.progress().phase for run in runs[1:]]
    assert phases == [f"waiting: place {n} of 2 in the queue" for n in (1, 2)]
    following = runs[2].follow()
    next(following)
    following.close()  # gone: the page was closed
    assert runs[2].wait(20)
    assert queue.waiting() == 1
    assert sessions[2].conversation.ids == []
    target.go.set()
    assert runs[0].result().token_ids == runs[1].result().token_ids
    assert runs[1].waited_s > 0
    assert queue.running() == 0


def test_a_stop_while_waiting_is_one_sentence():
    target = HeldTarget()
    service = Sessions(context=ServerContext(AnswerQueue(1)))
    first, second = service.new(target, owner="a"), service.new(target, owner="b")
    running = start(first, "5 6", most=5)
    until(lambda: target.passes == 1)
    waiting = start(second, "5 6", most=5)
    until(lambda: service.context.queue.waiting() == 1)
    second.interrupt()
    with pytest.raises(ValueError, match=r"^Stopped before the answer began\.$"):
        waiting.result()
    assert not second.is_busy
    assert agree(second)
    target.go.set()
    running.result()


def test_a_comparison_lets_answers_go_first():
    """It takes nobody's place in the queue, pauses between passes, is counted, and goes on afterwards."""
    target = HeldTarget()
    target.go.set()
    service = Sessions(context=ServerContext(AnswerQueue(1)))
    one, two = service.new(target, owner="a"), service.new(target, owner="b")
    ask(one, "5 6 7", most=60)
    target.go.clear()
    passes = target.passes
    comparison = actions.compare(one, ["autoregressive"])
    until(lambda: target.passes == passes + 1)
    assert service.context.figures()["comparisons_running"] == 1
    answer = start(two, "5 6 7", "autoregressive", most=30)
    until(lambda: service.context.queue.running() == 1)
    assert comparison.progress().phase == "waiting: 1 answer goes first"
    target.go.set()
    assert answer.result().tokens == 30
    assert comparison.wait(20)
    assert set(one.turns[-1].runs) == {"recap", "autoregressive"}
    its = target.states[passes]
    first, *_, last = [i for i, state in enumerate(target.states) if i > passes and state != its]
    assert its not in target.states[first:last], "no pass of a comparison between an answer's"
    assert service.context.figures()["comparisons_running"] == 0


def test_a_full_queue_changes_nothing():
    target = HeldTarget()
    service = Sessions(context=ServerContext(AnswerQueue(1, max_waiting=1)))
    places = [service.context.queue.enter(name) for name in "xy"]
    session = service.new(target, owner="z")
    with pytest.raises(QueueFullError, match="1 questions are waiting already"):
        ask(session, "5 6", "recap")
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
    runs = [start(session, "5 6 7", most=4) for session in (old, new)]
    with pytest.raises(QueueFullError, match="All 2 places on this server are in use"):
        service.new(target, owner="c")
    assert len(service) == 2
    target.go.set()
    for run in runs:
        assert run.result().finish_reason == "length"
    third = service.new(target, owner="c")
    assert service.get(third.id) is third
    assert service.get(old.id) is None


def test_a_session_that_is_closed_is_freed_by_its_own_run():
    """Closing waits for nothing; the run's end frees what the session held."""
    target = HeldTarget()
    service = Sessions(grace_s=-1.0)
    session = service.new(target, owner="a")
    run = start(session, "5 6 7", most=5000)
    until(lambda: target.passes == 1)
    assert service.leave("a") == 1
    session.close()
    target.go.set()
    assert run.wait(20)
    assert target.passes == 1
    assert not session.is_busy
    assert service.sweep() == 1
    assert (session.turns, session._drafters) == ([], {})
    assert service.context.queue.running() == 0


# ---- faults


class OutOfMemoryError(RuntimeError):
    """Stands in for torch's: on a CPU there is no device whose memory could run out."""


class SmallTarget(ScriptedTarget):
    """Its memory is full at a pass, or at reading a question, whenever the test says so."""

    def __init__(self) -> None:
        super().__init__(seed=3, eos=False)
        self.full_at = ""

    def verify(self, state, tokens, *args, **kwargs):
        if self.full_at == "pass" and state.length > 8:
            raise RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate`")
        return super().verify(state, tokens, *args, **kwargs)

    def prefill(self, *args, **kwargs):
        if self.full_at == "prefill":
            raise OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")
        return super().prefill(*args, **kwargs)


@pytest.mark.parametrize("place", ["prefill", "pass"])
def test_a_full_device_is_one_sentence_and_the_others_go_on(place):
    """What was made stays, in the conversation and in the records; the cache is filled again."""
    target = SmallTarget()
    service = Sessions(context=ServerContext(AnswerQueue(4)))
    unlucky, other = service.new(target, owner="a"), service.new(target, owner="b")
    ask(unlucky, "5 6", most=2)
    ask(other, "5 6", most=4)
    target.full_at = place
    with pytest.raises(DeviceFullError, match=r"^The device's memory was full: [^\n]+\.$"):
        ask(unlucky, "7 8 9", most=9)
    target.full_at = ""
    assert agree(unlucky)
    assert [record.state for record in unlucky.records] == [
        "answered",
        "refused" if place == "prefill" else "answered",
    ]
    if place == "pass":
        assert unlucky.turns[-1].answer.finish_reason == "failed"
        assert unlucky.turns[-1].note.startswith("The device's memory was full")
    unlucky.undo()
    fresh = Session(target)
    ask(fresh, "5 6", most=2)
    for session in (unlucky, fresh):
        ask(session, "7 8 9", most=9)
    assert unlucky.turns[-1].answer.token_ids == fresh.turns[-1].answer.token_ids
    ask(other, "7", most=4)


@pytest.mark.parametrize(
    "words",
    [
        "CUDA out of memory. Tried to allocate 2.00 GiB",
        "CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`",
        "cuDNN error: CUDNN_STATUS_ALLOC_FAILED",
        "[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried to allocate 8 bytes",
    ],
)
def test_every_way_in_which_memory_runs_out_is_known(words):
    assert is_out_of_memory(RuntimeError(words))
    assert is_out_of_memory(torch.OutOfMemoryError("CUDA out of memory"))
    assert not is_out_of_memory(ValueError(words)), "what a person typed is no fault"
    assert not is_out_of_memory(RuntimeError("shapes do not match"))


def test_memory_runs_out_where_it_is_allocated(monkeypatch):
    """Raised by torch's own allocation, in the KV cache of a fork."""
    target = load_target("demo")
    session = Session(target)
    actions.answer(session, TurnRecord("Hello", (), "recap", 4)).result()
    real = torch.empty
    huge = 1 << 62

    def full(shape, **settings):
        return real(huge, dtype=torch.uint8) if len(shape) == 6 else real(shape, **settings)

    monkeypatch.setattr("recap.targets.kv_cache.torch.empty", full)
    for begin in (actions.compare, actions.compare_settings):
        with pytest.raises(DeviceFullError):
            begin(session).result()
    monkeypatch.undo()
    assert set(session.turns[-1].runs) == {"recap"}
    assert agree(session)
    actions.compare(session).result()
    assert len(session.turns[-1].runs) == 4


@pytest.mark.parametrize(("each", "match"), [(9, "8 are the most"), (8, "64 are the most")])
def test_images_have_one_limit_for_page_and_api(each, match):
    """Of a question, and of a conversation."""

    class Seeing(ScriptedTarget):
        sees_images = True

    session = Session(Seeing(seed=3, eos=False))
    path = str(next(EXAMPLES.glob("*.png")))
    good = 0 if each == 9 else 8
    for _ in range(good):
        actions.answer(session, TurnRecord("5 6 7", (path,) * each, "recap", 2)).result()
    one_more = actions.answer(session, TurnRecord("5 6 7", (path,) * each, "recap", 2))
    with pytest.raises(ValueError, match=match):
        one_more.result()
    assert sum(len(turn.paths) for turn in session.turns) == good * each
    assert agree(session)


def test_housekeeping_goes_on_after_an_error(tmp_path, monkeypatch, caplog):
    """An error in one task is logged and counted; the others run, now and the next time."""
    service, file = Sessions(), MemoryFile(MemoryScopes("shared"), tmp_path / "memory")
    calls: list[str] = []
    monkeypatch.setattr(service, "sweep", lambda: calls.append("sweep") or 1 / 0)
    monkeypatch.setattr(file, "save", lambda: calls.append("save"))
    run = housekeeping(service, file)
    for now in (100.0, 105.0, 161.0):
        run(now)
    assert calls == ["sweep", "save", "sweep", "sweep", "save"]
    assert "ZeroDivisionError" in caplog.text
    errors = 'recap_errors_total{kind="ZeroDivisionError"} 3.0'
    assert errors in service.context.metrics.text().decode()


def test_pixels_are_not_kept_with_a_conversation(tmp_path, monkeypatch):
    """A conversation keeps the file; one question decodes it once, for the page's copy and for the model."""
    path = tmp_path / "photo.png"
    Image.new("RGB", (900, 700), "red").save(path)
    decoded: list[str] = []
    read = images.read_picture
    monkeypatch.setattr(
        images, "read_picture", lambda file, *more: decoded.append(str(file)) or read(file, *more)
    )
    images.forget_decoded()
    session = Session(load_target("demo"))
    for_page([path])
    record = TurnRecord("What do you see?", (str(path),), "recap", 4)
    first = actions.answer(session, record).result()
    assert decoded == [str(path)]
    images.forget_decoded()
    gc.collect()
    assert not any(
        type(found) is Image.Image and found.size == (900, 700) for found in gc.get_objects()
    )
    # an evicted cache is filled again from the file
    ask(session, "What can you do?", most=4)
    session.evict()
    actions.compare(session).result()
    assert len({turn.token_ids for turn in session.turns[-1].runs.values()}) == 1
    assert session.turns[0].answer.token_ids == first.token_ids


def test_a_comparison_that_does_not_fit_leaves_the_answer():
    target = SmallTarget()
    session = Session(target)
    ask(session, "5 6 7", most=9)
    target.full_at = "pass"
    with pytest.raises(DeviceFullError):
        actions.compare(session).result()
    assert set(session.turns[-1].runs) == {"recap"}
    assert agree(session)
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
    service = Sessions(context=ServerContext(kv_bytes=50_000))
    old, middle, new = (service.new(target, owner=name) for name in "abc")
    for session in (old, middle, new):
        ask(session, "5 6 7 8", "recap", most=20)
    held = [s.conversation.kv_bytes for s in (old, middle, new)]
    assert held[0] == 0
    assert held[1] > 0 < held[2]
    assert service.context.figures()["kv_bytes"] == sum(held) <= 50_000
    alone = Session(target)
    for session in (old, alone):
        if session is alone:
            ask(alone, "5 6 7 8", "recap", most=20)
        ask(session, "9 10", "recap", most=20)
    assert old.turns[-1].runs["recap"].token_ids == alone.turns[-1].runs["recap"].token_ids
    with middle.exclusive():
        service.context.trim(0)
        assert middle.conversation.kv_bytes > 0  # in use: not touched


# ---- loading


def test_the_demo_model_answers_for_one_that_cannot_be_loaded():
    demo = ScriptedTarget()

    def fail():
        raise LoadError("There is no model x on the hub (or it is private), and no such directory.")

    loader = ModelLoader("x", fail, fallback=lambda: demo)
    assert loader.wait(60)
    assert loader.target is demo
    assert loader.note == (
        "The model “x” could not be loaded: There is no model x on the hub (or it is private), and no "
        "such directory. The embedded demo model answers instead."
    )
    assert loader.error == ""
    loader = ModelLoader("x", fail, fallback=fail)
    assert loader.wait(60)
    assert loader.error.startswith("There is no model x")
    assert not loader.loaded


# ---- figures and logs


def test_figures_and_logs_hold_no_words(wide, caplog):
    service = sessions_at("shared")
    with caplog.at_level(logging.INFO, logger="recap"):
        session = service.new(wide, owner="secretname", user="ann")
        told(session, RARE)
        with pytest.raises(ValueError, match="numbers"):
            ask(session, "my secret words", "recap")
    text = service.context.metrics.text().decode()
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
    assert float(figures["recap_memory_predictions"]) > 0
    assert figures["recap_queue_waiting"] == "0.0"


# ---- the shared memory's file


def test_the_shared_memory_outlives_the_service(wide, tmp_path, caplog):
    path = tmp_path / "memory"
    keeper = MemoryFile(MemoryScopes("shared"), path)
    assert not keeper.save()  # nothing to save before the model is there
    first = sessions_at("shared")
    keeper = MemoryFile(first.context.scopes, path)
    keeper.open(wide)
    told(first.new(wide), RARE)
    assert keeper.save()
    warm = told(first.new(wide), PROBE)

    second = sessions_at("shared")
    again = MemoryFile(second.context.scopes, path)
    again.open(wide)
    assert again.note == ""
    assert told(second.new(wide), PROBE) == warm

    third = sessions_at("shared")
    foreign = MemoryFile(third.context.scopes, path)
    foreign.open(ScriptedTarget())
    assert "belongs to another model" in foreign.note
    assert third.context.scopes.predictions == 0


def test_settings_of_many_people():
    read = Settings.from_environment
    people = {"RECAP_USERS": "Ann:one two, Ben:x:y"}
    assert read(people).sign_in == [("Ann", "one two"), ("Ben", "x:y")]
    assert read({}).sign_in is None
    assert "one two" not in repr(read(people))
    shared = read(
        people | {"RECAP_MEMORY_SCOPE": "user", "RECAP_ANSWERS": "3", "RECAP_KV_MB": "7"}
    ).context()
    assert shared.scopes.boundary == "user"
    assert shared.queue.limit == 3
    assert shared.kv_bytes == 7_000_000
    for environment, match in (
        (
            {"RECAP_MEMORY_SCOPE": "all"},
            "RECAP_MEMORY_SCOPE must be session, user, shared, not “all”",
        ),
        ({"RECAP_MEMORY_FILE": "x"}, "set RECAP_MEMORY_SCOPE to shared too"),
        ({"RECAP_MEMORY_SCOPE": "user"}, "set RECAP_USERS too"),
        ({"RECAP_USERS": "Ann"}, "must hold name:password pairs"),
        ({"RECAP_USERS": "Ann:a, Ann:b"}, "no name twice"),
        ({"RECAP_ANSWERS": "0"}, "must be a whole number above 0"),
        ({"RECAP_KV_MB": "٣"}, "must be a whole number above 0"),
    ):
        with pytest.raises(SystemExit, match=match):
            read(environment)
