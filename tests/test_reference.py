"""Recap's kernels against the plain telling of its rules: the same trees, counts and verdicts."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recap import RecapConfig
from recap.drafters import make_drafter
from recap.drafters.recap.drafter import RecapDrafter
from recap.drafters.recap.reference import PlainRecap
from recap.predictions import Predictions

VOCAB = 14
CHECKED = """
from tests.test_reference import both, kernels_with_odd_input
from recap import RecapConfig
for seed in range(6):
    both(RecapConfig(top_k=2 + seed, budget=1 + 9 * seed), seed, 40)
kernels_with_odd_input()
"""
BLOCKED, TERMINAL = frozenset({0}), frozenset({1})


class Language:
    """Successors by the last two tokens; now and then another order, so that memories disagree."""

    def __init__(self, seed: int, k: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.k = k
        self.table = np.array([self.rng.permutation(VOCAB) for _ in range(VOCAB * VOCAB)])

    def predict(self, a: int, b: int) -> tuple[list[int], list[float]]:
        ids = self.table[a * VOCAB + b].copy()
        if self.rng.random() < 0.4:
            at = self.rng.integers(0, 3)
            ids[[at, at + 1]] = ids[[at + 1, at]]
        probs = np.sort(self.rng.dirichlet(np.full(VOCAB, 0.15)))[::-1] + 1e-4
        probs = np.float32(probs / probs.sum())
        return ids[: self.k].tolist(), probs[: self.k].tolist()


def kernels_with_odd_input() -> None:
    """What no target says, and no test of the rules: chances that are none, tokens out of range, NaN."""
    for chance in (0.0, 1.0, 1.5, -1.0, float("nan"), float("inf")):
        for name, settings_ in (
            ("recap", {"config": RecapConfig(request_rows=7)}),
            ("token_recycling", {}),
        ):
            drafter = make_drafter(name, vocab_size=VOCAB, **settings_)
            drafter.begin([3, 900, 4, 4, 4], blocked=BLOCKED, terminal=TERMINAL)
            drafter.confirm([4])
            for ids in ([4, 5, 900, -7, 6, 0, 1, 2], [5] * 8, [4] * 8):
                tree = drafter.propose(limit=20, record=True)
                rows = np.array([ids] * len(tree))
                probs = np.full(rows.shape, chance, np.float32)
                drafter.observe(tree, Predictions(rows[:, 0], rows, probs), [])
                drafter.confirm([4])
                assert all(0 <= token < VOCAB for token in tree.tokens)


def both(config: RecapConfig, seed: int, passes: int) -> tuple[int, int]:
    """Run both side by side and compare them after every pass -> candidates and tokens in all."""
    language = Language(seed, config.top_k)
    prompt = [int(t) for t in language.rng.integers(0, VOCAB, 12)] + [3]
    drafter = RecapDrafter(VOCAB, config)
    plain = PlainRecap(config, set(BLOCKED), set(TERMINAL))
    drafter.begin(prompt, blocked=BLOCKED, terminal=TERMINAL)
    text = list(prompt)
    candidates = 0
    for number in range(passes):
        plain.text = text
        limit = 1 + (number * 7) % 9
        tree = drafter.propose(limit=limit, record=True)
        want = plain.propose(text, limit)
        order = [tuple(tree.tokens[r] for r in tree.path(row)) for row in range(len(tree))]
        got = {branch: node.score for branch, node in zip(order[1:], tree.nodes, strict=True)}
        if set(got) != set(
            want
        ):  # equals, by products in another order: from here on both are right
            odd = [
                side[branch]
                for side in (got, want)
                for branch in set(got) ^ set(want)
                if branch in side
            ]
            assert odd == pytest.approx([odd[0]] * len(odd), rel=1e-9), f"pass {number}"
            assert sorted(got.values()) == pytest.approx(sorted(want.values()), rel=1e-9)
            break
        assert got == pytest.approx(want, rel=1e-6), f"pass {number}"
        candidates += len(want)
        rows = {branch: language.predict(*(text + list(branch))[-2:]) for branch in order}
        columns = [rows[branch] for branch in order]
        said = Predictions(
            np.array([ids[0] for ids, _ in columns]),
            np.array([ids for ids, _ in columns]),
            np.array([probs for _, probs in columns], np.float32),
        )
        accepted, own = tree.accept(said.choice)
        counts = drafter.observe(tree, said, accepted)
        right = tuple(tree.tokens[row] for row in accepted)
        for name, values in plain.observe(text, rows, right, order).items():
            level = counts[name]
            seen = [level.lookups, level.hits, level.accepted]
            if name == "runner-up":  # they are asked only where a child of theirs could enter
                assert all(a <= b for a, b in zip(seen[:2], values[:2], strict=True))
                seen[:2] = values[:2]
            assert seen == values, f"pass {number}, {name}"
        drafter.confirm([*right, own])
        text = [*text, *right, own]
    ratios = drafter.acceptance.ratios
    if not config.calibrate:
        plain.verdicts.clear()
    for (class_, bin_), (expected, accepted) in plain.verdicts.items():
        assert ratios.expected[class_, bin_] == pytest.approx(expected)
        assert ratios.accepted[class_, bin_] == accepted
    return candidates, len(text) - len(prompt)


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    k=st.integers(2, 8),
    budget=st.integers(1, 40),
    depth=st.integers(1, 7),
    children=st.integers(1, 9),
    base=st.sampled_from([(0.7, 0.2, 0.1), (0, 0.5, 0.5), (1, 0, 0), (0, 0, 1), (1, 1e-12, 1e-24)]),
    switches=st.tuples(*[st.booleans()] * 3),
    runner_up=st.sampled_from([0.0, 0.3]),
    factors=st.sampled_from([(1.0,), (1.0, 0.9, 0.5)]),
    share=st.sampled_from([1.0, 0.7, 0.2]),
)
def test_the_same_trees_counts_and_verdicts(
    seed, k, budget, depth, children, base, switches, runner_up, factors, share
):
    confidence, calibrate, lookup = switches
    config = RecapConfig(
        top_k=k,
        budget=budget,
        max_depth=depth,
        max_children=children,
        base_weights=base,
        confidence=confidence,
        calibrate=calibrate,
        lookup=lookup,
        runner_up_share=runner_up,
        depth_factors=factors,
        newest_share=share,
    )
    both(config, seed, 25)


def test_it_is_worth_comparing():
    """With the settings as they are, trees are large and candidates are accepted."""
    candidates, tokens = both(RecapConfig(top_k=4), 5, 60)
    assert candidates > 60 * 10
    assert tokens > 60 * 1.2


def test_odd_input_is_survived():
    kernels_with_odd_input()


@pytest.mark.slow
def test_no_kernel_reaches_beyond_its_arrays(tmp_path):
    """Compiled anew with every index checked: without that a wrong one would overwrite memory."""
    done = subprocess.run(
        [sys.executable, "-c", CHECKED],
        env={**os.environ, "NUMBA_BOUNDSCHECK": "1", "RECAP_CACHE": str(tmp_path)},
        cwd=Path(__file__).parents[1],
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr


def test_equal_branches_may_come_in_either_order():
    """Runners-up of runners-up: 8 behind 11 has the chance of 11 behind 8."""
    both(
        RecapConfig(
            top_k=4,
            budget=3,
            max_depth=2,
            max_children=2,
            base_weights=(1, 0, 0),
            confidence=False,
            lookup=False,
        ),
        0,
        25,
    )
