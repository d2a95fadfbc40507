"""Sessions: bounded, isolated, one thing at a time, freed."""

from __future__ import annotations

import copy
import time
from dataclasses import replace

import pytest

from recap.compare import Divergence
from recap.drafters import make_drafter
from recap.drafters.recap.config import RecapConfig
from recap.drafters.recap.tree_size import PassCost
from recap.server import actions
from recap.server.model_loader import ModelLoader, NotReadyError
from recap.server.run import Run
from recap.server.session import RecapSettings, Session, TurnRecord
from recap.server.sessions import SILENT_S, Sessions
from recap.trace import Turn

from .scripted import HeldTarget, ScriptedTarget, until

QUESTION = "5 6 7 8 9 5 6 7 8 9 5 6"


def start(session: Session, text: str, decoder: str = "recap", *, most: int = 256) -> Run:
    """A question that begins to be answered."""
    return actions.answer(session, TurnRecord(text, (), decoder, most))


def ask(session: Session, text: str, decoder: str = "recap", *, most: int = 256) -> Turn:
    """A question, answered."""
    return start(session, text, decoder, most=most).result()


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
    with first.exclusive():
        store.new(target)
        assert store.get(first.id) is first
        assert store.get(second.id) is None


def test_idle_sessions_are_freed(target):
    store = Sessions(limit=4, idle_s=-1.0)
    store.new(target, owner="a")
    assert store.sweep() == 1
    assert len(store) == 0


def test_a_page_that_comes_back_in_time_finds_its_conversation(target):
    """A blink of the network ends the connection: the session stays for the grace time."""
    store = Sessions(limit=4, grace_s=1000.0)
    session, other = store.new(target, owner="a"), store.new(target, owner="b")
    ask(session, QUESTION, most=5)
    assert store.leave("a") == 1
    assert store.leave("") == 0
    assert store.sweep() == 0
    assert store.stay("a") == 1
    store.grace_s = -1.0
    assert store.sweep() == 0, "it is back"
    store.leave("a")
    assert store.get(session.id) is session, "a request of the page brings it back too"
    assert store.sweep() == 0
    store.leave("a")
    assert store.sweep() == 1
    assert list(store) == [other]
    assert session.conversation.kv_bytes == 0


def test_a_page_that_falls_silent_is_gone_too(target):
    """After a cut Gradio opens no second heartbeat: the page says that it is there, until it does not."""
    store = Sessions(limit=4, grace_s=60.0)
    session = store.new(target, owner="a")
    store.stay("a")
    assert store.sweep() == 0
    session.seen -= 60.0 + SILENT_S + 1
    assert store.sweep() == 1


def test_ids_cannot_be_guessed(target):
    store = Sessions()
    ids = {store.new(target).id for _ in range(20)}
    assert len(ids) == 20
    assert min(map(len, ids)) >= 20
    assert store.get("") is None


def test_two_sessions_share_nothing(target):
    """Each gets the answer that it gets alone, and the memories are apart."""
    alone = Session(target, "alone")
    expected = ask(alone, QUESTION, "recap", most=40)
    one, two = Session(target, "one"), Session(target, "two")
    runs = start(one, QUESTION, most=40), start(two, "11 12 13", most=40)
    for run in runs:
        run.result()
    ask(two, "5 6", "recap", most=10)
    assert one.turns[-1].runs["recap"].token_ids == expected.token_ids
    assert one.turns[-1].runs["recap"].sources == expected.sources  # not even a warmer memory
    assert one.drafter("recap") is not two.drafter("recap")
    assert one.conversation is not two.conversation


def test_the_comparison_does_not_touch_the_chat(target):
    session = Session(target, "")
    ask(session, QUESTION, "recap", most=30)
    before = list(session.conversation.ids), len(session.conversation.messages)
    actions.compare(session).result()
    record = session.turns[-1]
    assert set(record.runs) == {"recap", "token_recycling", "autoregressive", "prompt_lookup"}
    assert len({turn.token_ids for turn in record.runs.values()}) == 1
    assert (list(session.conversation.ids), len(session.conversation.messages)) == before
    again = ask(session, "7 8", "autoregressive", most=20)
    fresh = Session(target, "")
    ask(fresh, QUESTION, "autoregressive", most=30)
    other = ask(fresh, "7 8", "autoregressive", most=20)
    assert again.token_ids == other.token_ids


def test_new_settings_on_the_same_turn(target):
    """It starts from the memory as it was before the turn, and touches neither chat nor memory."""
    session = Session(target)
    ask(session, QUESTION, most=40)
    record, ids = session.turns[-1], list(session.conversation.ids)
    learned = copy.deepcopy(session.drafter("recap").memory)
    actions.compare_settings(session).result()
    assert record.runs["again"].token_ids == record.answer.token_ids
    assert record.runs["again"].sources == record.answer.sources, (
        "the same settings: the same trees"
    )
    session.configure(RecapSettings(RecapConfig(budget=1), fit=False))
    actions.compare_settings(session).result()
    assert record.runs["again"].token_ids == record.answer.token_ids
    assert record.runs["again"].passes >= record.answer.passes
    assert list(session.conversation.ids) == ids
    assert (session.drafter("recap").memory.ids == learned.ids).all()


def test_the_same_run_starts_from_the_same_tree_size(target):
    """What was learned about tree sizes is part of what a drafter knew before the turn."""
    cost = PassCost([(1, 0.010), (64, 0.040)])
    session = Session(target, cost=cost)
    for _ in range(4):
        ask(session, QUESTION, most=60)
    record = session.turns[-1]
    actions.compare(session, ["recap", "token_recycling"], again=True).result()
    actions.compare_settings(session).result()
    passes = {label: record.runs[label].passes for label in ("recap", "untraced", "again")}
    first = record.traces["recap"]
    assert len(set(passes.values())) == 1, passes
    fresh = make_drafter("recap", vocab_size=target.vocab_size, cost=cost)
    assert session.drafter_before(record, "recap").size.exponent != fresh.size.exponent
    session.configure(RecapSettings(RecapConfig(budget=40)))
    assert session.drafter("recap").size.exponent != fresh.size.exponent
    assert first.count('"type":"turn"') == 1


def test_a_comparison_on_demand_runs_all_again_from_what_was_known_before(target):
    """Run twice, each decoder makes the same trees: it has not learned from its first run of the turn."""
    session = Session(target)
    ask(session, QUESTION, "recap", most=40)
    ask(session, "7 8", "token_recycling", most=40)
    record = session.turns[-1]
    assert session.turns[0].before == {}  # kept for the last turn alone
    actions.compare(session).result()
    first = dict(record.runs)
    order = list(record.order)
    actions.compare(session, again=True).result()
    assert record.runs["untraced"].token_ids == record.answer.token_ids
    assert "untraced" not in record.traces
    again, size = list(record.order), len(record.trace)
    actions.compare(session, again=True).result()
    assert sorted(order) == sorted(first)
    assert sorted(again) == sorted(record.order) == sorted([*first, "untraced"])
    assert again != record.order, "the order rotates"
    assert {name: record.runs[name].sources for name in first} == {
        name: turn.sources for name, turn in first.items()
    }
    assert abs(len(record.trace) - size) < 0.02 * size, "one run per decoder, however often it ran"


def test_only_chosen_decoders_are_compared(target):
    session = Session(target)
    ask(session, QUESTION, "recap", most=20)
    actions.compare(session, ["autoregressive", "recap"]).result()
    assert set(session.turns[-1].runs) == {"recap", "autoregressive"}
    actions.compare(session, []).result()
    assert set(session.turns[-1].runs) == {"recap", "autoregressive"}


def test_where_answers_part_and_how_closely(target):
    """The margin is the distance of the two tokens' logits where the answers part."""
    session = Session(target)
    ask(session, QUESTION, "recap", most=20)
    actions.compare(session).result()
    record = session.turns[-1]
    assert record.divergences == {}
    plain = record.runs["autoregressive"]
    context = [int(w) for w in QUESTION.split()] + list(plain.token_ids[:5])
    logits = target.logits(context)
    second = int((-logits).argsort(kind="stable")[1])
    other = replace(plain, token_ids=(*plain.token_ids[:5], second, *plain.token_ids[6:]))
    record.runs["prompt_lookup"] = other
    actions.note_divergences(session, record)
    found = record.divergences["prompt_lookup"]
    assert found.place == 6
    assert found.logits == pytest.approx(logits.max() - logits[second], abs=1e-3)
    record.runs["prompt_lookup"] = replace(plain, token_ids=(*plain.token_ids[:5], 0, 0))
    actions.note_divergences(session, record)
    assert record.divergences["prompt_lookup"] == Divergence(6, None)  # 0 is nowhere near
    assert session.conversation.answer_ids == record.runs["recap"].token_ids


def test_stop_ends_within_a_pass():
    target = HeldTarget()
    session = Session(target)
    run = start(session, QUESTION, "autoregressive", most=5000)
    until(lambda: target.passes == 1)
    session.interrupt()
    target.go.set()
    turn = run.result()
    assert (turn.finish_reason, turn.passes) == ("stopped", 1)
    assert not session.is_busy
    assert agree(session)


def test_who_follows_may_leave_at_any_time():
    """Leaving waits for nothing; the run ends at its next pass, and what it made is kept everywhere."""
    target = HeldTarget()
    session = Session(target)
    run = start(session, QUESTION, most=5000)
    following = run.follow()
    until(lambda: target.passes == 1)
    next(following)
    following.close()  # the pass is still held: this would hang if it waited
    assert not run.wait(0)
    target.go.set()
    assert run.wait(20)
    assert target.passes == 1
    assert not session.is_busy
    assert not session.conversation.pending
    assert [turn.answer.finish_reason for turn in session.turns] == ["stopped"]
    assert agree(session)


def test_a_new_question_takes_over_from_the_comparison():
    target = HeldTarget()
    target.go.set()
    session = Session(target)
    ask(session, QUESTION, most=60)
    target.go.clear()
    passes = target.passes
    comparison = actions.compare(session)
    until(lambda: target.passes > passes)
    answer = start(session, "7 8", most=10)
    target.go.set()
    assert answer.result().tokens == 10
    assert comparison.wait(20)
    assert comparison.error is None
    assert len(session.turns[0].runs) < 4
    assert all(turn.finish_reason != "stopped" for turn in session.turns[0].runs.values())
    assert session.forked_kv_bytes == 0


def test_a_comparison_waits_and_never_stops_an_answer():
    target = HeldTarget()
    target.go.set()
    session = Session(target)
    ask(session, QUESTION, most=10)
    target.go.clear()
    answer = start(session, "7 8", "autoregressive", most=30)
    comparison = actions.compare(session)
    target.go.set()
    assert answer.result().tokens == 30, "not stopped"
    assert comparison.wait(20)
    assert len(session.turns[-1].runs) == 4, "and then compared"


class BrokenError(RuntimeError):
    """What a test lets happen."""


ENDS = ["prefill", "verify", "compact", "propose", "observe", "confirm"]


@pytest.mark.parametrize("at", [1, 2, 4])
@pytest.mark.parametrize("call", ENDS)
def test_however_an_answer_breaks_off_there_is_one_truth(target, monkeypatch, call, at):
    """An error in any call: conversation and records agree, and the next answer is that of a fresh session
    with the same conversation."""
    session = Session(target)
    ask(session, QUESTION, most=8)
    drafter = session.drafter("recap")
    owner = target if call in ("prefill", "verify", "compact") else drafter
    real, calls = getattr(owner, call), []

    def breaks(*args, **kwargs):
        calls.append(call)
        if len(calls) == at:
            raise BrokenError("the test says so")
        return real(*args, **kwargs)

    monkeypatch.setattr(owner, call, breaks)
    run = start(session, "7 8", most=40)
    if call == "prefill" and at > 1:
        assert run.result().tokens == 40
    else:
        with pytest.raises(
            ValueError, match=r"^The model failed with BrokenError: the test says so\.$"
        ):
            run.result()
    monkeypatch.undo()
    assert agree(session)
    assert not session.is_busy
    record = session.records[-1]
    if record.state == "answered" and record.answer.finish_reason == "failed":
        assert "BrokenError" in record.note
        actions.compare(session).result()
        tokens = record.answer.tokens
        assert all(r.token_ids[:tokens] == record.answer.token_ids for r in record.runs.values())
    # the next answer does not show what happened
    fresh = Session(target)
    for turn in session.turns:
        replay(fresh, turn)
    assert ask(session, "9 9", most=20).token_ids == ask(fresh, "9 9", most=20).token_ids
    while session.records:
        session.undo()
    assert session.conversation.ids == []


def replay(session: Session, turn: TurnRecord) -> None:
    """Put a turn into a session as it was answered."""
    session.conversation.ask(turn.question)
    session.conversation.prefill(seed=False, top_k=0)
    session.conversation.append(turn.answer.token_ids)
    session.conversation.finish()


def agree(session: Session) -> bool:
    """The conversation holds the questions and answers of `session.turns`, and nothing else."""
    asked = [m.text for m in session.conversation.messages if m.role == "user"]
    answers = [m.text for m in session.conversation.messages if m.role == "assistant"]
    return (
        asked == [turn.question for turn in session.turns]
        and answers == [turn.answer.text for turn in session.turns]
        and not session.conversation.pending
        and (
            not session.turns
            or session.conversation.answer_ids == session.turns[-1].answer.token_ids
        )
    )


def test_stopped_dropped_and_refused_questions_between_good_ones(target):
    held = HeldTarget()
    held.go.set()
    session = Session(held)
    ask(session, QUESTION, most=10)
    with pytest.raises(ValueError, match="Type numbers"):
        ask(session, "five")
    held.go.clear()
    passes = held.passes
    run = start(session, "7 8", most=500)
    until(lambda: held.passes > passes)
    run.stop()
    held.go.set()
    run.result()
    ask(session, "9", most=10)
    assert [record.state for record in session.records] == [
        "answered",
        "refused",
        "answered",
        "answered",
    ]
    assert agree(session)
    actions.compare(session).result()
    record = session.turns[-1]
    assert len({turn.token_ids for turn in record.runs.values()}) == 1
    assert record.divergences == {}
    assert session.undo().question == "9"
    assert session.undo().question == "7 8"
    assert session.undo().state == "refused"
    assert agree(session)


def test_memories_stay_over_clear_and_go_with_forget(target):
    session = Session(target, "")
    ask(session, QUESTION, "recap", most=30)
    cold = session.turns[-1].runs["recap"].sources["1-token"].hits
    session.clear()
    assert session.conversation.ids == []
    ask(session, QUESTION, "recap", most=30)
    warm = session.turns[-1].runs["recap"].sources["1-token"].hits
    session.clear()
    session.forget()
    ask(session, QUESTION, "recap", most=30)
    again = session.turns[-1].runs["recap"].sources["1-token"].hits
    assert again == cold
    assert warm >= cold


def test_new_settings_keep_what_was_learned(target):
    session = Session(target, "")
    ask(session, QUESTION, "recap", most=30)
    memory = session.drafter("recap").memory
    session.configure(RecapSettings(RecapConfig(budget=7)))
    assert session.drafter("recap").memory is memory
    assert session.drafter("recap").config.budget == 7


def test_bad_questions_are_one_sentence_and_change_nothing(target):
    session = Session(target, "")
    for text, decoder in (("", "recap"), ("five", "recap"), ("5", "magic")):
        with pytest.raises(ValueError, match=r"^[^\n]+\.$"):
            ask(session, text, decoder)
    assert session.turns == []
    assert session.conversation.ids == []
    assert not session.is_busy


def test_a_full_context_is_said(target):
    target.max_context = 20
    session = Session(target, "")
    with pytest.raises(ValueError, match="start a new chat to go on"):
        ask(session, " ".join("5" * 15), "recap")
    assert session.conversation.ids == []
    assert ask(session, "5 6", "recap").tokens == 18


def test_loader_says_what_went_wrong(target):
    loader = ModelLoader("x", lambda: target)
    assert loader.wait(60)
    assert loader.target is target

    def fail():
        raise OSError("no such directory")

    loader = ModelLoader("x", fail)
    assert loader.wait(60)
    with pytest.raises(NotReadyError, match="could not be loaded: OSError: no such directory"):
        _ = loader.target
    with pytest.raises(NotReadyError, match="still loading"):
        _ = ModelLoader("x", lambda: time.sleep(0.2)).target
