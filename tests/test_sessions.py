"""Sessions: bounded, isolated, one thing at a time, freed."""

from __future__ import annotations

import copy
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from itertools import zip_longest

import pytest

from recap.compare import Divergence
from recap.drafters.recap.config import RecapConfig
from recap.server import actions
from recap.server.model_loader import ModelLoader, NotReadyError
from recap.server.session import RecapSettings, Session
from recap.server.sessions import Sessions

from .scripted import ScriptedTarget

QUESTION = "5 6 7 8 9 5 6 7 8 9 5 6"


class SlowTarget(ScriptedTarget):
    """A pass takes long enough that stopping in the middle is seen."""

    def verify(self, *args, **kwargs):
        time.sleep(0.01)
        return super().verify(*args, **kwargs)


def finish(progresses: Iterator[actions.Progress]) -> actions.Progress:
    return list(progresses)[-1]


@pytest.fixture
def target() -> ScriptedTarget:
    return ScriptedTarget(seed=3, eos=False)


def test_the_oldest_quiet_session_makes_room(target):
    store = Sessions(limit=2)
    first, second = store.new(target), store.new(target)
    assert store.get(first.id) is first  # used last: the other one goes
    third = store.new(target)
    assert store.get(second.id) is None
    assert store.get(first.id) is first
    assert store.get(third.id) is third
    assert len(store) == 2


def test_a_busy_session_is_not_the_one_to_go(target):
    store = Sessions(limit=2)
    first, second = store.new(target), store.new(target)
    with first.busy():
        store.new(target)
        assert store.get(first.id) is first
        assert store.get(second.id) is None


def test_idle_sessions_and_closed_pages_are_freed(target):
    store = Sessions(limit=4, idle_s=0.0)
    store.new(target, owner="a")
    time.sleep(0.01)
    store.sweep()
    assert len(store) == 0
    store = Sessions(limit=4)
    store.new(target, owner="a")
    other = store.new(target, owner="b")
    assert store.drop_owner("a") == 1
    assert store.drop_owner("") == 0
    assert store.get(other.id) is other


def test_ids_cannot_be_guessed(target):
    store = Sessions()
    ids = {store.new(target).id for _ in range(20)}
    assert len(ids) == 20
    assert min(map(len, ids)) >= 20
    assert store.get("") is None


def test_two_sessions_share_nothing(target):
    """Each gets the answer that it gets alone, and the memories are apart."""
    alone = Session(target, "alone")
    expected = finish(actions.answer(alone, QUESTION, [], "recap", max_new_tokens=40)).turn
    one, two = Session(target, "one"), Session(target, "two")
    pairs = zip_longest(
        actions.answer(one, QUESTION, [], "recap", max_new_tokens=40),
        actions.answer(two, "11 12 13", [], "recap", max_new_tokens=40),
    )
    for _ in pairs:
        pass
    finish(actions.answer(two, "5 6", [], "recap", max_new_tokens=10))
    assert one.turns[-1].runs["recap"].token_ids == expected.token_ids
    assert one.turns[-1].runs["recap"].sources == expected.sources  # not even a warmer memory
    assert one.drafter("recap") is not two.drafter("recap")
    assert one.conversation is not two.conversation


def test_the_comparison_does_not_touch_the_chat(target):
    session = Session(target, "")
    finish(actions.answer(session, QUESTION, [], "recap", max_new_tokens=30))
    before = list(session.conversation.ids), len(session.conversation.messages)
    for _ in actions.compare(session):
        pass
    record = session.turns[-1]
    assert set(record.runs) == {"recap", "token_recycling", "autoregressive", "prompt_lookup"}
    assert len({turn.token_ids for turn in record.runs.values()}) == 1
    assert (list(session.conversation.ids), len(session.conversation.messages)) == before
    again = finish(actions.answer(session, "7 8", [], "autoregressive", max_new_tokens=20)).turn
    fresh = Session(target, "")
    finish(actions.answer(fresh, QUESTION, [], "autoregressive", max_new_tokens=30))
    other = finish(actions.answer(fresh, "7 8", [], "autoregressive", max_new_tokens=20)).turn
    assert again.token_ids == other.token_ids


def test_new_settings_and_no_trace_on_the_same_turn(target):
    """Both start from the memory as it was before the turn, and touch neither chat nor memory."""
    session = Session(target)
    finish(actions.answer(session, QUESTION, [], "recap", max_new_tokens=40))
    record, ids = session.turns[-1], list(session.conversation.ids)
    learned = copy.deepcopy(session.drafter("recap").memory)
    finish(actions.again(session))
    actions.untraced(session)
    assert record.again.token_ids == record.untraced.token_ids == record.runs["recap"].token_ids
    assert record.again.sources == record.runs["recap"].sources  # the same settings: the same trees
    session.configure(RecapSettings(RecapConfig(budget=1), fit=False))
    finish(actions.again(session))
    assert record.again.token_ids == record.runs["recap"].token_ids
    assert record.again.passes >= record.runs["recap"].passes
    assert list(session.conversation.ids) == ids
    assert (session.drafter("recap").memory.ids == learned.ids).all()


def test_a_comparison_on_demand_runs_all_again_from_what_was_known_before(target):
    """Run twice, each decoder makes the same trees: it has not learned from its first run of the turn."""
    session = Session(target)
    finish(actions.answer(session, QUESTION, [], "recap", max_new_tokens=40))
    finish(actions.answer(session, "7 8", [], "token_recycling", max_new_tokens=40))
    record = session.turns[-1]
    assert session.turns[0].before == {}  # kept for the last turn alone
    list(actions.compare(session))
    first = dict(record.runs)
    order = list(record.order)
    list(actions.compare(session, anew=True))
    again = list(record.order)
    list(actions.compare(session, anew=True))
    assert [sorted(o) for o in (order, again, record.order)] == [sorted(first)] * 3
    assert again != record.order  # the order goes round
    assert {name: turn.sources for name, turn in record.runs.items()} == {
        name: turn.sources for name, turn in first.items()
    }


def test_only_chosen_decoders_are_compared(target):
    session = Session(target)
    finish(actions.answer(session, QUESTION, [], "recap", max_new_tokens=20))
    list(actions.compare(session, ["autoregressive", "recap"]))
    assert set(session.turns[-1].runs) == {"recap", "autoregressive"}
    assert list(actions.compare(session, [])) == []


def test_where_answers_part_and_how_closely(target):
    """The margin is the distance of the two tokens' logits where the answers part."""
    session = Session(target)
    finish(actions.answer(session, QUESTION, [], "recap", max_new_tokens=20))
    list(actions.compare(session))
    record = session.turns[-1]
    assert record.divergences == {}
    plain = record.runs["autoregressive"]
    context = [int(w) for w in QUESTION.split()] + list(plain.token_ids[:5])
    logits = target.logits(context)
    second = int((-logits).argsort(kind="stable")[1])
    other = replace(plain, token_ids=(*plain.token_ids[:5], second, *plain.token_ids[6:]))
    record.runs["prompt_lookup"] = other
    actions.note_gaps(session, record)
    found = record.divergences["prompt_lookup"]
    assert found.place == 6
    assert found.logits == pytest.approx(logits.max() - logits[second], abs=1e-3)
    record.runs["prompt_lookup"] = replace(plain, token_ids=(*plain.token_ids[:5], 0, 0))
    actions.note_gaps(session, record)
    assert record.divergences["prompt_lookup"] == Divergence(6, None)  # 0 is nowhere near
    assert session.conversation.answer_ids == record.runs["recap"].token_ids


def test_stop_ends_within_a_pass():
    session = Session(SlowTarget(seed=3, eos=False), "")
    progresses = actions.answer(session, QUESTION, [], "autoregressive", max_new_tokens=5000)
    for progress in progresses:
        if progress.text:
            break
    at = session._answer.steps
    session.interrupt()
    turn = finish(progresses).turn
    assert turn.finish_reason == "stopped"
    assert turn.passes <= at + 2
    assert not session.is_busy


def test_leaving_early_releases_the_session():
    session = Session(SlowTarget(seed=3, eos=False), "")
    progresses = actions.answer(session, QUESTION, [], "recap", max_new_tokens=5000)
    next(progresses)
    next(progresses)
    assert session.is_busy
    begun = time.monotonic()
    progresses.close()
    assert time.monotonic() - begun < 0.5
    assert not session.is_busy
    assert not session.conversation.pending


def test_a_new_question_takes_over_from_the_comparison():
    session = Session(SlowTarget(seed=3, eos=False), "")
    finish(actions.answer(session, QUESTION, [], "recap", max_new_tokens=60))
    ended = threading.Event()

    def compare() -> None:
        for _ in actions.compare(session):
            pass
        ended.set()

    thread = threading.Thread(target=compare)
    thread.start()
    while not session.is_busy:
        time.sleep(0.001)
    turn = finish(actions.answer(session, "7 8", [], "recap", max_new_tokens=10)).turn
    assert turn.tokens == 10
    assert ended.wait(2)
    thread.join()
    assert len(session.turns[0].runs) < 4
    assert all(t.finish_reason != "stopped" for t in session.turns[0].runs.values())


def test_a_comparison_waits_and_never_stops_an_answer():
    session = Session(SlowTarget(seed=3, eos=False))
    finish(actions.answer(session, QUESTION, [], "recap", max_new_tokens=10))
    answer = actions.answer(session, "7 8", [], "autoregressive", max_new_tokens=30)
    next(answer)
    thread = threading.Thread(target=lambda: list(actions.compare(session)))
    thread.start()
    assert finish(answer).turn.tokens == 30  # not stopped
    thread.join(20)
    assert len(session.turns[-1].runs) == 4  # and then compared
    with session.busy(), session.busy(patient_s=0.01) as held:
        assert held is False


def test_memories_stay_over_clear_and_go_with_forget(target):
    session = Session(target, "")
    finish(actions.answer(session, QUESTION, [], "recap", max_new_tokens=30))
    cold = session.turns[-1].runs["recap"].sources["1-token"].hits
    session.clear()
    assert session.conversation.ids == []
    finish(actions.answer(session, QUESTION, [], "recap", max_new_tokens=30))
    warm = session.turns[-1].runs["recap"].sources["1-token"].hits
    session.clear()
    session.forget()
    finish(actions.answer(session, QUESTION, [], "recap", max_new_tokens=30))
    again = session.turns[-1].runs["recap"].sources["1-token"].hits
    assert again == cold
    assert warm >= cold


def test_new_settings_keep_what_was_learned(target):
    session = Session(target, "")
    finish(actions.answer(session, QUESTION, [], "recap", max_new_tokens=30))
    memory = session.drafter("recap").memory
    session.configure(RecapSettings(RecapConfig(budget=7)))
    assert session.drafter("recap").memory is memory
    assert session.drafter("recap").config.budget == 7


def test_bad_questions_are_one_sentence_and_change_nothing(target):
    session = Session(target, "")
    for text, decoder in (("", "recap"), ("five", "recap"), ("5", "magic")):
        with pytest.raises(ValueError, match=r"^[^\n]+\.$"):
            finish(actions.answer(session, text, [], decoder))
    assert session.turns == []
    assert session.conversation.ids == []
    assert not session.is_busy


def test_a_full_context_is_said(target):
    target.max_context = 20
    session = Session(target, "")
    with pytest.raises(ValueError, match="start a new chat to go on"):
        finish(actions.answer(session, " ".join("5" * 15), [], "recap"))
    assert session.conversation.ids == []
    assert finish(actions.answer(session, "5 6", [], "recap")).turn.tokens == 18


def test_loader_says_what_went_wrong(target):
    loader = ModelLoader("x", lambda: target)
    assert loader.wait(5)
    assert loader.target is target

    def fail():
        raise OSError("no such directory")

    loader = ModelLoader("x", fail)
    assert loader.wait(5)
    with pytest.raises(NotReadyError, match="could not be loaded: OSError: no such directory"):
        _ = loader.target
    with pytest.raises(NotReadyError, match="still loading"):
        _ = ModelLoader("x", lambda: time.sleep(0.2)).target
