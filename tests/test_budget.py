"""The calibrated budget and the calibrated acceptance: by hand, and against brute force."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recap.acceptance import BINS, Acceptance, bin_of
from recap.budget import PassCost
from recap.calibration import measure_pass_cost, pass_cost
from recap.config import RecapConfig
from recap.drafters import make_drafter
from recap.engine import generate, stream

from .scripted import ScriptedTarget
from .test_engine import ask


def watch_all(cost: PassCost, scores: list[float]) -> int:
    watch = cost.watch()
    for score in scores:
        if not watch.more(score):
            break
    return watch.best


def test_a_row_is_added_only_while_it_pays():
    # a second row costs half a pass more, further rows little: one poor candidate does not pay,
    # four good ones do
    cost = PassCost([(1, 10.0), (2, 15.0), (8, 18.0)])
    assert watch_all(cost, [0.4]) == 0
    assert watch_all(cost, [0.4, 0.35, 0.3, 0.25]) == 4
    assert watch_all(cost, [0.6, 0.01, 0.01]) == 1
    free = PassCost([(1, 10.0), (64, 10.0)])
    assert watch_all(free, [0.01] * 63) == 63


@given(
    st.lists(st.floats(0.001, 1.0), min_size=1, max_size=40).map(lambda s: sorted(s)[::-1]),
    st.lists(st.floats(0.0, 3.0), min_size=6, max_size=6),
)
def test_the_best_size_is_never_missed_by_much(scores, steps):
    rows = (1, 2, 4, 8, 16, 32, 64)
    seconds = [1.0]
    for step in steps:
        seconds.append(seconds[-1] + step)
    cost = PassCost(list(zip(rows, seconds, strict=True)))

    def rate(count: int) -> float:
        return (1 + sum(scores[:count])) / cost.seconds(count + 1)

    best = max(rate(count) for count in range(len(scores) + 1))
    assert rate(watch_all(cost, scores)) >= 0.9 * best


def test_costs_are_what_was_measured_and_go_on():
    cost = PassCost([(1, 2.0), (3, 5.0), (4, 3.0), (8, 4.0)])
    assert [cost.seconds(rows) for rows in (1, 2, 3, 4, 6, 8, 16)] == [2, 3.5, 5, 3, 3.5, 4, 6]
    assert PassCost([(1, 2.0), (4, 1.0)]).seconds(100) == 1.0, "beyond the points nothing gets free"
    # a dear size is passed over: three candidates (four rows) pay, two do not
    assert watch_all(cost, [0.1, 0.1, 0.1]) == 0
    assert watch_all(cost, [0.5, 0.5, 0.5]) == 3
    with pytest.raises(ValueError, match="one row"):
        PassCost([(2, 1.0)])


def test_acceptance_corrects_what_it_has_seen():
    learned = Acceptance(2, prior=4.0)
    assert learned.estimate(0, 0.6) == 0.6, "nothing seen: the mixture is trusted"
    for turn in range(100):  # guessed 0.6, right 3 times out of 10
        learned.record(0, 0.6, turn % 10 < 3)
    # (30 accepted + 4) / (60 expected + 4) = 0.53
    assert learned.estimate(0, 0.6) == pytest.approx(0.6 * 34 / 64)
    assert learned.estimate(1, 0.6) == 0.6, "classes are apart"
    for _ in range(1000):
        learned.record(1, 0.72, True)
    assert learned.estimate(1, 0.9) <= 0.98
    learned.clear()
    assert learned.estimate(0, 0.6) == 0.6


@given(st.floats(0.0, 1.0))
def test_bins(probability):
    assert 0 <= bin_of(probability) < BINS


@given(
    st.lists(st.tuples(st.floats(0.0, 1.0), st.booleans()), max_size=60),
    st.floats(0.0, 1.0),
    st.floats(0.0, 1.0),
)
def test_no_estimate_is_above_its_bound(verdicts, one, other):
    learned = Acceptance(1, prior=0.5)
    for probability, accepted in verdicts:
        learned.record(0, probability, accepted)
    low, high = sorted((one, other))
    assert learned.estimate(0, low) <= learned.bound(0, high) + 1e-9


def test_the_cost_is_measured_through_the_protocol_and_remembered(tmp_path):
    target = ScriptedTarget()
    cost = measure_pass_cost(target, rows=(1, 2, 4), context=32, repeats=2)
    assert [rows for rows, _ in cost.points] == [1, 2, 4]
    while not (first := pass_cost(target, folder=tmp_path)).steady:
        pass  # a machine so busy that its times say nothing
    [file] = tmp_path.glob("*.json")
    assert pass_cost(target, folder=tmp_path).points == first.points
    file.write_text(json.dumps({"points": [[1, 5.0], [2, 9.0]]}))
    assert pass_cost(target, folder=tmp_path).points == [(1, 5.0), (2, 9.0)]
    file.write_text("broken")
    assert pass_cost(target, folder=tmp_path).points[0][0] == 1


def test_what_a_busy_machine_disturbed_is_not_kept(tmp_path, monkeypatch):
    target = ScriptedTarget()
    seconds = iter(range(1, 10**6))
    monkeypatch.setattr("recap.calibration._pass", lambda *_: float(next(seconds)))
    assert not pass_cost(target, folder=tmp_path).steady
    assert list(tmp_path.glob("*.json")) == []
    monkeypatch.setattr("recap.calibration._pass", lambda *_: 0.5)
    assert pass_cost(target, folder=tmp_path).steady
    assert len(list(tmp_path.glob("*.json"))) == 1


@pytest.mark.parametrize("seed", range(4))
def test_a_calibrated_tree_is_smaller_where_rows_are_dear_and_the_tokens_are_the_same(seed):
    target = ScriptedTarget(vocab_size=16, order=2, seed=seed, eos=False)
    want = target.greedy([3, 4, 5, 6, 3, 4], 100)
    passes = {}
    for name, points in {"dear": [(1, 1.0), (64, 20.0)], "free": [(1, 1.0), (64, 1.01)]}.items():
        drafter = make_drafter("recap", vocab_size=16, cost=PassCost(points))
        turn = generate(ask(target), drafter, max_new_tokens=100)
        assert list(turn.token_ids) == want
        passes[name] = turn.passes
    drafter = make_drafter("recap", vocab_size=16, cost=PassCost([(1, 1.0), (2, 50.0)]))
    assert {step.rows for step in stream(ask(target), drafter, max_new_tokens=30)} == {1}
    fixed = make_drafter("recap", vocab_size=16, config=RecapConfig(budget=63))
    assert passes["free"] <= passes["dear"]
    assert passes["free"] <= generate(ask(target), fixed, max_new_tokens=100).passes * 1.2


def test_what_a_row_teaches_makes_trees_larger():
    """A candidate that is not worth its row in this pass may be worth it for the next ones."""
    rows = {}
    for value in (0.0, 0.9):
        target = ScriptedTarget(vocab_size=16, order=2, seed=1, eos=False)
        drafter = make_drafter(
            "recap",
            vocab_size=16,
            config=RecapConfig(learning_value=value),
            cost=PassCost([(1, 1.0), (64, 13.6)]),
        )
        steps = list(stream(ask(target), drafter, max_new_tokens=100))
        rows[value] = sum(step.rows for step in steps) / len(steps)
    assert rows[0.9] > 1.5 * rows[0.0]
