"""Memory and mixture: worked examples by hand, then properties against a plain reference."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recap.drafters.jit import find, new_table, put, remove, reserve
from recap.drafters.recap.memory import RequestMemory, key2, key3, slot_of, store_prediction
from recap.drafters.recap.mixture import (
    add_probability,
    confidence_of,
    sort_by_probability,
    source_weights,
)


def store(memory: RequestMemory, *predictions: tuple[int, int, int]) -> None:
    """One pass of (2-token key, 3-token key, id); the id + 1 comes second."""
    request = memory.reserve(len(predictions))
    start = int(request.written[0])
    for two, three, id_ in predictions:
        ids, probs = np.array([id_, id_ + 1]), np.array([0.5, 0.25], np.float32)
        store_prediction(request, start, two, three, ids, probs, 0.5)


def stored(memory: RequestMemory, *, two: int = -1, three: int = -1) -> list[int] | None:
    request = memory.arrays
    table, key = (request.by2, two) if two >= 0 else (request.by3, three)
    slot = slot_of(request, table, key)
    return request.ids[slot].tolist() if slot >= 0 else None


def test_confidence_worked_by_hand():
    # shares 2/3, 1/3 -> H = 0.6365, ln 2 = 0.6931 -> 1 - 0.9183 = 0.0817
    assert confidence_of(np.array([0.5, 0.25])) == pytest.approx(0.0817, abs=1e-4)
    # what lies outside the k entries does not count: the same shares, the same confidence
    assert confidence_of(np.array([0.05, 0.025])) == pytest.approx(0.0817, abs=1e-4)
    assert confidence_of(np.full(8, 0.01)) == pytest.approx(0.0, abs=1e-6)
    assert confidence_of(np.array([0.3])) == 1.0


def test_request_memory_worked_by_hand():
    memory = RequestMemory(top_k=2, capacity=100)
    # after "1 2 3" the target predicted 10; after "7 2 3" it predicted 11
    store(memory, (key2(2, 3), key3(1, 2, 3), 10), (key2(2, 3), key3(7, 2, 3), 11))
    assert stored(memory, three=key3(1, 2, 3)) == [10, 11]
    assert stored(memory, three=key3(7, 2, 3)) == [11, 12]
    assert stored(memory, two=key2(2, 3)) == [10, 11], "the first prediction of the pass wins"
    store(memory, (key2(2, 3), -1, 12))
    assert stored(memory, two=key2(2, 3)) == [12, 13], "the latest pass wins"
    assert stored(memory, three=key3(1, 2, 3)) == [10, 11]
    memory.clear()
    assert stored(memory, two=key2(2, 3)) is None


def test_request_memory_evicts_the_oldest_only():
    memory = RequestMemory(top_k=2, capacity=2)
    store(memory, (1, 11, 5))
    store(memory, (2, 12, 6))
    store(memory, (1, 13, 7))  # takes the slot of the first prediction
    assert stored(memory, three=11) is None
    assert stored(memory, two=1) == [7, 8], "the key had moved on to the newer prediction"
    assert stored(memory, three=12) == [6, 7]
    assert len(memory) == 4


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.lists(st.tuples(st.integers(-1, 6), st.integers(-1, 6)), min_size=1, max_size=8),
        max_size=12,
    ),
    st.integers(8, 40),  # at least one pass must fit
)
def test_request_memory_against_a_plain_reference(passes, capacity):
    """A list of what was written gives the same predictions as the ring."""
    memory = RequestMemory(top_k=2, capacity=capacity)
    written: list[tuple[int, int, int]] = []  # (key2, key3, prediction), as stored
    number = 0
    for keys in passes:
        start = len(written)
        predictions = []
        for two, three in keys:
            number += 2
            predictions.append((two, three, number))
            new2 = two >= 0 and all(w[0] != two for w in written[start:])
            new3 = three >= 0 and all(w[1] != three for w in written[start:])
            if new2 or new3:
                written.append((two if new2 else -1, three if new3 else -1, number))
        store(memory, *predictions)
    alive = written[-capacity:]
    for key in range(7):
        for column, name in enumerate(("two", "three")):
            want = [w[2] for w in written if w[column] == key][-1:]
            want = [number for number in want if number in {w[2] for w in alive}]
            assert (stored(memory, **{name: key}) or [])[:1] == want


def test_keys_do_not_collide():
    assert len({key3(a, b, c) for a in (0, 5, 9) for b in (0, 5, 9) for c in (0, 5, 9)}) == 27
    assert key2(1, 0) != key2(0, 1)


Prediction = tuple[dict[int, float], float]  # probabilities, confidence


def weights_of(predictions: list[Prediction | None], base: tuple, *, use_confidence: bool) -> list:
    weights = np.empty(len(predictions))
    confidences = np.array([-1.0 if p is None else p[1] for p in predictions])
    source_weights(confidences, np.array(base), use_confidence, 0.05, weights)
    return weights.tolist()


def mix(predictions: list[Prediction | None], weights: list[float]) -> dict[int, float]:
    tokens, mixed, count = np.zeros(30, np.int64), np.zeros(30), 0
    for prediction, weight in zip(predictions, weights, strict=True):
        for token, probability in prediction[0].items() if prediction else ():
            count = add_probability(tokens, mixed, count, token, weight * probability)
    sort_by_probability(tokens, mixed, count)
    return dict(zip(tokens[:count].tolist(), mixed[:count].tolist(), strict=True))


def test_mixture_worked_by_hand():
    # the 3-token prediction is certain (confidence 1), the 1-token one half so:
    # weights 0.7 * 1.0 and 0.1 * 0.5 -> 0.9333 and 0.0667
    predictions = [({5: 0.6, 6: 0.3}, 1.0), None, ({6: 0.5, 7: 0.5}, 0.5)]
    weights = weights_of(predictions, (0.7, 0.2, 0.1), use_confidence=True)
    assert weights == pytest.approx([0.9333, 0.0, 0.0667], abs=1e-4)
    mixed = mix(predictions, weights)
    assert mixed == pytest.approx({5: 0.56, 6: 0.3133, 7: 0.0333}, abs=1e-4)
    assert list(mixed) == [5, 6, 7], "best first"


@pytest.mark.parametrize(
    ("use_confidence", "weights"),
    [(False, [0.75, 0.25, 0.0]), (True, [0.6 / 0.61, 0.01 / 0.61, 0.0])],
)
def test_without_confidence_the_base_weights_remain(use_confidence, weights):
    sharp, flat = ({5: 0.9}, 1.0), ({6: 0.1}, 0.0)
    got = weights_of([sharp, flat, None], (0.6, 0.2, 0.2), use_confidence=use_confidence)
    assert got == pytest.approx(weights), "the flat one still counts, by the floor of 0.05"


predictions_ = st.none() | st.tuples(
    st.lists(st.integers(0, 9), min_size=1, max_size=4, unique=True).map(
        lambda ids: dict.fromkeys(ids, 1 / (2 * len(ids)))
    ),
    st.floats(0, 1),
)


@given(st.lists(predictions_, min_size=3, max_size=3))
def test_mixture_is_a_sub_distribution_explained_by_its_sources(predictions):
    weights = weights_of(predictions, (0.7, 0.2, 0.1), use_confidence=True)
    if any(predictions):
        assert math.isclose(sum(weights), 1.0)
    mixed = mix(predictions, weights)
    assert sum(mixed.values()) <= 1.0 + 1e-9
    assert set(mixed) == {token for p in predictions if p for token in p[0]}
    assert list(mixed.values()) == sorted(mixed.values(), reverse=True)


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(st.booleans(), st.integers(0, 40)), max_size=80), st.integers(1, 3))
def test_a_hash_table_against_a_dictionary(plan, step):
    """Multiples of a power of two crowd together: runs close up when a key is removed."""
    table, want = new_table(0), {}
    for number, (keep, key) in enumerate(plan):
        key <<= 20 * (step - 1)
        if keep:
            table = reserve(table, 1)
            put(table, key, number)
            want[key] = number
        else:
            remove(table, key)
            want.pop(key, None)
    assert table.count[0] == len(want)
    for key in range(41):
        key <<= 20 * (step - 1)
        assert find(table, key) == want.get(key, -1)
