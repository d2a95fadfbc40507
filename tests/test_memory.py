"""Memory and mixture: worked examples by hand, then properties against a plain reference."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recap.drafters.jit import find, new_table, put, remove, with_room
from recap.drafters.recap import mixture
from recap.drafters.recap.memory import PersistentMemory, RequestMemory, Row, confidence, key2, key3


def rows(*ids: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Rows that predict ids[i] with probability 0.5 and ids[i] + 1 with 0.25."""
    tokens = np.array([[i, i + 1] for i in ids])
    probs = np.tile(np.array([0.5, 0.25], np.float32), (len(ids), 1))
    return tokens, probs, np.full(len(ids), 0.5, np.float32)


def test_confidence_worked_by_hand():
    # shares 2/3, 1/3 -> H = 0.6365, ln 2 = 0.6931 -> 1 - 0.9183 = 0.0817
    assert confidence(np.array([[0.5, 0.25]]))[0] == pytest.approx(0.0817, abs=1e-4)
    # what lies outside the k entries does not count: the same shares, the same confidence
    assert confidence(np.array([[0.05, 0.025]]))[0] == pytest.approx(0.0817, abs=1e-4)
    flat = np.full((1, 8), 0.01)
    assert confidence(flat)[0] == pytest.approx(0.0, abs=1e-6)
    assert confidence(np.array([[0.3]]))[0] == 1.0


def test_persistent_memory_first_wins_in_a_pass_latest_across_passes():
    memory = PersistentMemory(vocab_size=20, top_k=2)
    assert memory.get(3) is None
    memory.write(np.array([3, 4, 3]), *rows(10, 11, 12))
    assert memory.get(3) == Row([10, 11], [0.5, 0.25], 0.5)
    assert memory.get(4).ids == [11, 12]
    assert len(memory) == 2
    memory.write(np.array([3]), *rows(15))
    assert memory.get(3).ids == [15, 16]
    memory.clear()
    assert memory.get(3) is None
    assert len(memory) == 0


def test_request_memory_worked_by_hand():
    memory = RequestMemory(top_k=2, capacity=100)
    # after "1 2 3" the target predicted 10; after "7 2 3" it predicted 11
    memory.write([(key2(2, 3), key3(1, 2, 3)), (key2(2, 3), key3(7, 2, 3))], *rows(10, 11))
    assert memory.get3(key3(1, 2, 3)).ids == [10, 11]
    assert memory.get3(key3(7, 2, 3)).ids == [11, 12]
    assert memory.get2(key2(2, 3)).ids == [10, 11], "the first row of the pass wins"
    memory.write([(key2(2, 3), -1)], *rows(12))
    assert memory.get2(key2(2, 3)).ids == [12, 13], "the latest pass wins"
    assert memory.get3(key3(1, 2, 3)).ids == [10, 11]
    memory.clear()
    assert memory.get2(key2(2, 3)) is None


def test_request_memory_evicts_the_oldest_rows_only():
    memory = RequestMemory(top_k=2, capacity=2)
    memory.write([(1, 11)], *rows(5))
    memory.write([(2, 12)], *rows(6))
    memory.write([(1, 13)], *rows(7))  # takes the slot of the first row
    assert memory.get3(11) is None
    assert memory.get2(1).ids == [7, 8], "the key had moved on to the newer row"
    assert memory.get3(12).ids == [6, 7]
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
    """A dict per level and a list of written rows say the same as the ring."""
    memory = RequestMemory(top_k=2, capacity=capacity)
    written: list[tuple[int, int, int]] = []  # (key2, key3, prediction), as stored
    number = 0
    for keys in passes:
        start = len(written)
        ids = []
        for pair in keys:
            number += 2
            ids.append(number)
            fresh2 = pair[0] >= 0 and all(w[0] != pair[0] for w in written[start:])
            fresh3 = pair[1] >= 0 and all(w[1] != pair[1] for w in written[start:])
            if fresh2 or fresh3:
                written.append((pair[0] if fresh2 else -1, pair[1] if fresh3 else -1, number))
        memory.write(keys, *rows(*ids))
    alive = written[-capacity:]
    for key in range(7):
        want2 = [w[2] for w in written if w[0] == key]
        want3 = [w[2] for w in written if w[1] == key]
        for want, level, got in ((want2, 0, memory.get2(key)), (want3, 1, memory.get3(key))):
            latest = want[-1] if want else None
            if latest is not None and not any(w[level] == key and w[2] == latest for w in alive):
                latest = None
            assert (got.ids[0] if got else None) == latest


def test_keys_do_not_collide():
    assert len({key3(a, b, c) for a in (0, 5, 9) for b in (0, 5, 9) for c in (0, 5, 9)}) == 27
    assert key2(1, 0) != key2(0, 1)


def level_weights(
    rows: list[Row | None], base: tuple[float, ...], *, use_confidence: bool, floor: float
) -> list[float]:
    weights = np.empty(len(rows))
    sure = np.array([-1.0 if row is None else row.confidence for row in rows])
    mixture.level_weights(sure, np.array(base), use_confidence, floor, weights)
    return weights.tolist()


def mix(rows: list[Row | None], weights: list[float]) -> dict[int, float]:
    tokens, mixed, count = np.zeros(30, np.int64), np.zeros(30), 0
    for row, weight in zip(rows, weights, strict=True):
        if row is not None:
            for token, probability in zip(row.ids, row.probs, strict=True):
                count = mixture.add(tokens, mixed, count, token, weight * probability)
    mixture.rank(tokens, mixed, count)
    return dict(zip(tokens[:count].tolist(), mixed[:count].tolist(), strict=True))


def test_mixture_worked_by_hand():
    # the 3-token row is certain (confidence 1), the 1-token row half so:
    # weights 0.7 * 1.0 and 0.1 * 0.5 -> 0.9333 and 0.0667
    three, one = Row([5, 6], [0.6, 0.3], 1.0), Row([6, 7], [0.5, 0.5], 0.5)
    weights = level_weights([three, None, one], (0.7, 0.2, 0.1), use_confidence=True, floor=0.05)
    assert weights == pytest.approx([0.9333, 0.0, 0.0667], abs=1e-4)
    mixed = mix([three, None, one], weights)
    assert mixed == pytest.approx({5: 0.56, 6: 0.3133, 7: 0.0333}, abs=1e-4)
    assert list(mixed) == [5, 6, 7], "best first"


def test_confidence_off_leaves_the_base_weights():
    sharp, flat = Row([5], [0.9], 1.0), Row([6], [0.1], 0.0)
    assert level_weights(
        [sharp, flat, None], (0.6, 0.2, 0.2), use_confidence=False, floor=0.05
    ) == pytest.approx([0.75, 0.25, 0.0])


row_strategy = st.none() | st.builds(
    lambda ids, conf: Row(ids, [1 / (2 * len(ids))] * len(ids), conf),
    st.lists(st.integers(0, 9), min_size=1, max_size=4, unique=True),
    st.floats(0, 1),
)


@given(st.lists(row_strategy, min_size=3, max_size=3))
def test_mixture_is_a_sub_distribution_explained_by_its_sources(levels):
    weights = level_weights(levels, (0.7, 0.2, 0.1), use_confidence=True, floor=0.05)
    if any(row is not None for row in levels):
        assert math.isclose(sum(weights), 1.0)
    mixed = mix(levels, weights)
    assert sum(mixed.values()) <= 1.0 + 1e-9
    assert set(mixed) == {t for row in levels if row for t in row.ids}
    assert list(mixed.values()) == sorted(mixed.values(), reverse=True)


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(st.booleans(), st.integers(0, 40)), max_size=80), st.integers(1, 3))
def test_a_hash_table_against_a_dictionary(plan, step):
    """Keys that are multiples of a power of two crowd together: runs close up when one is taken out."""
    table, want = new_table(0), {}
    for number, (kept, key) in enumerate(plan):
        key <<= 20 * (step - 1)
        if kept:
            table = with_room(table, 1)
            put(table, key, number)
            want[key] = number
        else:
            remove(table, key)
            want.pop(key, None)
    assert table.count[0] == len(want)
    for key in range(41):
        key <<= 20 * (step - 1)
        assert find(table, key) == want.get(key, -1)
