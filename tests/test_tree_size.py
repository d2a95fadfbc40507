"""Tree size by pass cost, and the calibration of acceptance: by hand, and against brute force."""

import itertools
import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recap.drafters import make_drafter
from recap.drafters.recap.acceptance import BINS, Acceptance, bin_of, bound, estimate, record
from recap.drafters.recap.config import RecapConfig
from recap.drafters.recap.tree_size import BEND, EXPONENT, PassCost, TreeSize
from recap.engine import generate, stream
from recap.pass_timing import measure_pass_cost, pass_cost

from .scripted import ScriptedTarget
from .test_engine import ask


def law(exponent: float, packed_tokens: int) -> float:
    """Tokens per pass as `TreeSize` models them."""
    return packed_tokens ** (exponent - BEND * math.log(packed_tokens))


def trained(size: TreeSize, exponent: float, packed_tokens: int, passes: int = 3000) -> TreeSize:
    """The size after that many passes of text that follows the law."""
    for _ in range(passes):
        size.count(packed_tokens, law(exponent, packed_tokens))
    return size


@pytest.mark.parametrize(
    ("points", "most", "best"),
    [
        ([(1, 10.0), (64, 10.0)], 63, 63),  # packed tokens are free: trees are full
        ([(1, 10.0), (64, 10.0)], 40, 40),
        ([(1, 1.0), (2, 50.0)], 63, 0),  # they are expensive: no trees
        ([(1, 1.0), (2, 50.0)], 0, 0),
        ([(1, 2.0), (3, 5.0), (4, 2.1), (8, 9.0)], 63, 3),  # three candidates pay, two do not
    ],
)
def test_the_size_worked_by_hand(points, most, best):
    assert TreeSize(PassCost(points), most).best(0) == best


def test_no_tree_is_larger_than_the_pass_cost_reaches():
    assert TreeSize(PassCost([(1, 1.0)], largest=20), 100).best(0) == 19


@given(
    st.lists(st.floats(0.01, 3.0), min_size=6, max_size=6),
    st.floats(0.05, 0.6),
    st.integers(0, 63),
    st.integers(0, 2000),
)
def test_the_size_is_the_one_with_most_tokens_per_second(steps, exponent, most, context):
    seconds = [1.0]
    for step in steps:
        seconds.append(seconds[-1] + step)
    points = list(zip((1, 2, 4, 8, 16, 32, 64), seconds, strict=True))
    cost = PassCost(points, context=100, growth=[(1, 1e-4), (64, 5e-3)])
    size = trained(TreeSize(cost, most), exponent, 12, passes=40)

    def rate(count: int) -> float:
        return law(size.exponent, count + 1) / cost.seconds(count + 1, context)

    assert rate(size.best(context)) == pytest.approx(max(rate(n) for n in range(most + 1)))


def test_what_is_accepted_decides_how_large_trees_are():
    cost = PassCost([(1, 1.0), (64, 4.0)])
    sizes = {e: trained(TreeSize(cost, 63), e, 16) for e in (0.05, 0.2, 0.4, 0.6)}
    for exponent, size in sizes.items():
        # the prior still counts for its 32 passes next to the 500 that are remembered
        assert size.exponent == pytest.approx(exponent, abs=0.03)
    best = [size.best(0) for size in sizes.values()]
    assert best == sorted(set(best))
    assert best[0] == 0
    assert best[-1] > 15
    assert trained(TreeSize(cost, 63), 0.4, 6).exponent == pytest.approx(
        trained(TreeSize(cost, 63), 0.4, 50).exponent, abs=0.001
    ), "whatever size the trees had"


def test_a_size_that_did_not_pay_is_tried_again():
    """Plain steps teach nothing about trees, so what was seen fades."""
    size = trained(TreeSize(PassCost([(1, 1.0), (64, 4.0)]), 63), 0.05, 16)
    best = []
    for _ in range(3000):
        best.append(size.best(0))
        size.count(1, 1)
    assert not any(best[:200])
    assert best[-1] > 0
    size.clear()
    assert size.exponent == EXPONENT


def test_the_size_follows_passes_and_context():
    cost = PassCost([(1, 1.0), (64, 4.0)], growth=[(1, 0.0), (64, 0.01)])
    size = TreeSize(cost, 63)
    first = size.best(0)
    assert size.best(31) == first, "computed only now and then"
    assert size.best(3200) < first, "packed tokens are expensive in a long conversation"
    for _ in range(400):
        size.count(16, 1.0)
    assert size.best(0) < first


def test_costs_are_what_was_measured_and_go_on():
    cost = PassCost([(1, 2.0), (3, 5.0), (4, 3.0), (8, 4.0)])
    assert [cost.seconds(count) for count in (1, 2, 3, 4, 6, 8, 16)] == [2, 3.5, 5, 3, 3.5, 4, 6]
    assert PassCost([(1, 2.0), (4, 1.0)]).seconds(100) == 1.0, (
        "beyond the points nothing becomes free"
    )
    assert PassCost([(1, 2.0)]).seconds(30) == 2.0
    with pytest.raises(ValueError, match="one packed token"):
        PassCost([(2, 1.0)])


def test_a_longer_conversation_costs_more():
    cost = PassCost([(1, 2.0), (3, 4.0)], context=100, growth=[(1, 0.01), (3, 0.03)])
    assert cost.seconds(1) == cost.seconds(1, 100) == 2.0
    assert [cost.seconds(count, 300) for count in (1, 2, 3)] == [4.0, 7.0, 10.0]
    assert [cost.seconds(count, 0) for count in (1, 3)] == [1.0, 2.0], "at least half of it"
    assert PassCost([(1, 2.0)]).seconds(1, 5000) == 2.0


def test_acceptance_corrects_what_it_has_seen():
    learned = Acceptance(prior=4.0)
    assert estimate(learned.ratios, 0, 0.6) == 0.6, "nothing seen: the mixture is trusted"
    for turn in range(100):  # guessed 0.6, right 3 times out of 10
        record(learned.ratios, 0, 0.6, turn % 10 < 3)
    # (30 accepted + 4) / (60 expected + 4) = 0.53
    assert estimate(learned.ratios, 0, 0.6) == pytest.approx(0.6 * 34 / 64)
    assert estimate(learned.ratios, 1, 0.6) == 0.6, "classes are apart"
    for _ in range(1000):
        record(learned.ratios, 1, 0.72, True)
    assert estimate(learned.ratios, 1, 0.9) <= 0.98
    learned.clear()
    assert estimate(learned.ratios, 0, 0.6) == 0.6


@given(st.floats(0.0, 1.0))
def test_bins(probability):
    assert 0 <= bin_of(probability) < BINS


@given(
    st.lists(st.tuples(st.floats(0.0, 1.0), st.booleans()), max_size=60),
    st.floats(0.0, 1.0),
    st.floats(0.0, 1.0),
)
def test_no_estimate_is_above_its_bound(verdicts, one, other):
    learned = Acceptance(prior=0.5)
    for probability, accepted in verdicts:
        record(learned.ratios, 0, probability, accepted)
    low, high = sorted((one, other))
    assert estimate(learned.ratios, 0, low) <= bound(learned.ratios, 0, high) + 1e-9


def timed(monkeypatch, seconds) -> None:
    """Passes take seconds(packed tokens, tokens in the cache), whatever the machine does."""

    def one_pass(target, state, usable, packed_tokens, top_k):
        return seconds(packed_tokens, state.length)

    monkeypatch.setattr("recap.pass_timing._pass", one_pass)


def test_the_cost_is_measured_through_the_protocol():
    cost = measure_pass_cost(ScriptedTarget(), sizes=(1, 2, 4), context=32, repeats=2)
    assert [count for count, _ in cost.points] == [1, 2, 4]
    assert (cost.context, [count for count, _ in cost.growth]) == (32, [1, 8, 32])
    assert all(seconds > 0 for _, seconds in cost.points)
    short = measure_pass_cost(ScriptedTarget(), sizes=(1, 2), context=32, far=0, repeats=2)
    assert short.growth == []


def test_a_measured_cost_is_remembered(tmp_path, monkeypatch):
    target = ScriptedTarget()
    timed(monkeypatch, lambda packed_tokens, length: 1.0 + packed_tokens)
    first = pass_cost(target, folder=tmp_path)
    [file] = tmp_path.glob("*.json")
    timed(monkeypatch, lambda packed_tokens, length: 9.0)
    again = pass_cost(target, folder=tmp_path)
    assert (again.points, again.growth, again.context) == (
        first.points,
        first.growth,
        first.context,
    )
    kept = {"points": [[1, 5.0], [2, 9.0]], "growth": [[1, 0.5]], "context": 10}
    file.write_text(json.dumps(kept))
    assert pass_cost(target, folder=tmp_path).seconds(2, 20) == pytest.approx(14.0, abs=1e-4)
    for text in ("broken", '{"points": [[1, 5.0]]}', "[]"):
        file.write_text(text)
        assert pass_cost(target, folder=tmp_path).points[0] == (1, 9.0)
        assert len(json.loads(file.read_text())["growth"]) == 3


def test_growth_is_what_the_longer_cache_adds(monkeypatch):
    """2 + n / 10 milliseconds for n packed tokens, and a microsecond for each of them and token cached."""

    def seconds(packed_tokens, length):
        return (2 + packed_tokens / 10) / 1e3 + 1e-6 * packed_tokens * length

    timed(monkeypatch, seconds)
    cost = measure_pass_cost(ScriptedTarget(), sizes=(1, 8, 16), context=100)
    for count in (1, 8, 16):
        for context in (100, 500, 2000):
            assert cost.seconds(count, context) == pytest.approx(seconds(count, context), rel=0.02)


def test_what_a_busy_machine_disturbed_is_not_remembered(tmp_path, monkeypatch):
    ticks = itertools.count(1)
    timed(monkeypatch, lambda *_: float(next(ticks)))
    monkeypatch.setattr("recap.pass_timing.STEADY_S", 0.0)
    assert not pass_cost(ScriptedTarget(), folder=tmp_path).steady
    assert list(tmp_path.glob("*.json")) == []
    timed(monkeypatch, lambda *_: 0.5)
    assert pass_cost(ScriptedTarget(), folder=tmp_path).steady
    assert len(list(tmp_path.glob("*.json"))) == 1


@pytest.mark.parametrize("seed", range(4))
def test_trees_are_smaller_where_packed_tokens_are_expensive_and_the_answer_is_the_same(seed):
    target = ScriptedTarget(vocab_size=16, order=2, seed=seed, eos=False)
    want = target.greedy([3, 4, 5, 6, 3, 4], 100)
    passes = {}
    for name, points in {
        "expensive": [(1, 1.0), (64, 20.0)],
        "free": [(1, 1.0), (64, 1.01)],
    }.items():
        drafter = make_drafter("recap", vocab_size=16, cost=PassCost(points))
        turn = generate(ask(target), drafter, max_new_tokens=100)
        assert list(turn.token_ids) == want
        passes[name] = turn.passes
    drafter = make_drafter("recap", vocab_size=16, cost=PassCost([(1, 1.0), (2, 50.0)]))
    assert {step.packed_tokens for step in stream(ask(target), drafter, max_new_tokens=30)} == {1}
    fixed = make_drafter("recap", vocab_size=16, config=RecapConfig(budget=63))
    assert passes["free"] <= passes["expensive"]
    assert passes["free"] <= generate(ask(target), fixed, max_new_tokens=100).passes * 1.2


def test_trees_grow_with_what_the_text_gives():
    """The same machine, one text that a memory can follow and one that it cannot."""
    sizes = {}
    for order in (1, 6):
        target = ScriptedTarget(vocab_size=32, order=order, seed=1, eos=False)
        cost = PassCost([(1, 1.0), (64, 4.0)])
        drafter = make_drafter("recap", vocab_size=32, cost=cost)
        for _ in range(2):
            steps = list(stream(ask(target), drafter, max_new_tokens=150))
        sizes[order] = sum(step.packed_tokens for step in steps) / len(steps)
    assert sizes[1] > 2 * sizes[6]
    drafter.reset()
    assert drafter.size.exponent == EXPONENT
