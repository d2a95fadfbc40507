"""Recap's kernels against the plain version of the method: the same trees, counts and verdicts."""

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
from recap.drafters.recap.reference import Reference
from recap.predictions import Predictions
from recap.trace import SourceCount

from .scripted import branches

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
    """Successors by the last two tokens, sometimes in another order, so that memories disagree."""

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
    """What no target predicts, and no rule covers: odd probabilities, tokens out of range, NaN."""
    for probability in (0.0, 1.0, 1.5, -1.0, float("nan"), float("inf")):
        for name, settings_ in (
            ("recap", {"config": RecapConfig(request_capacity=7)}),
            ("token_recycling", {}),
        ):
            drafter = make_drafter(name, vocab_size=VOCAB, **settings_)
            drafter.begin([3, 900, 4, 4, 4], blocked=BLOCKED, terminal=TERMINAL)
            drafter.confirm([4])
            for ids in ([4, 5, 900, -7, 6, 0, 1, 2], [5] * 8, [4] * 8):
                tree = drafter.propose(limit=20, record=True)
                top_ids = np.array([ids] * len(tree))
                probs = np.full(top_ids.shape, probability, np.float32)
                drafter.observe(tree, Predictions(top_ids[:, 0], top_ids, probs), [])
                drafter.confirm([4])
                assert all(0 <= token < VOCAB for token in tree.tokens)


def both(config: RecapConfig, seed: int, passes: int) -> tuple[int, int]:
    """Run both side by side, comparing every pass -> candidates and tokens in all.

    Two answers, so that what a request leaves behind is compared too.
    """
    language = Language(seed, config.top_k)
    drafter = RecapDrafter(VOCAB, config)
    reference = Reference(config, set(BLOCKED), set(TERMINAL))
    candidates = tokens = 0
    for _ in range(2):
        prompt = [*language.rng.integers(0, VOCAB, 12).tolist(), 3]
        drafter.begin(prompt, blocked=BLOCKED, terminal=TERMINAL)
        reference.begin(prompt)
        for number in range(passes):
            step = one_pass(drafter, reference, language, limit=1 + (number * 7) % 9)
            if step is None:
                return candidates, tokens
            candidates, tokens = candidates + step[0], tokens + step[1]
    ratios = drafter.acceptance.ratios
    seen = reference.verdicts if config.calibrate else {}
    assert ratios.accepted.sum() == sum(accepted for _, accepted in seen.values())
    for (class_, bin_), (expected, accepted) in seen.items():
        assert ratios.expected[class_, bin_] == pytest.approx(expected)
        assert ratios.accepted[class_, bin_] == accepted
    return candidates, tokens


def one_pass(drafter, reference, language, limit) -> tuple[int, int] | None:
    """Propose, verify and observe with both -> candidates and tokens, None where equals differ."""
    text = list(reference.text)
    tree = drafter.propose(limit=limit, record=True)
    want = reference.propose(limit)
    order = branches(tree)
    got = {branch: node.score for branch, node in zip(order[1:], tree.nodes, strict=True)}
    if set(got) != set(want):
        # equal scores, rounded differently: only these may differ, and from here on both are right
        odd = [(got | want)[branch] for branch in set(got) ^ set(want)]
        assert odd == pytest.approx([odd[0]] * len(odd), rel=1e-9)
        assert sorted(got.values()) == pytest.approx(sorted(want.values()), rel=1e-9)
        return None
    assert got == pytest.approx(want, rel=1e-6)
    made = {branch: language.predict(*(text + list(branch))[-2:]) for branch in order}
    ids, probs = zip(*made.values(), strict=True)
    predictions = Predictions(np.array(ids)[:, 0], np.array(ids), np.array(probs, np.float32))
    accepted, bonus = tree.accept(predictions.choice)
    branch = tuple(tree.tokens[node] for node in accepted)
    counts = drafter.observe(tree, predictions, accepted)
    for source, (lookups, hits, right) in reference.observe(made, branch).items():
        count = counts[source]
        if source == "runner-up":  # the kernels ask it only where a child of it could enter
            assert count.lookups <= lookups
            assert count.hits <= hits
            assert count.accepted == right
        else:
            assert count == SourceCount(lookups, hits, right), source
    for side in (drafter, reference):
        side.confirm([*branch, bonus])
    return len(want), len(branch) + 1


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
    share=st.sampled_from([1.0, 0.7, 0.2]),
)
def test_the_same_trees_counts_and_verdicts(
    seed, k, budget, depth, children, base, switches, runner_up, share
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
        newest_share=share,
    )
    both(config, seed, 15)


def test_it_is_worth_comparing():
    """With the default settings trees are large and candidates are accepted."""
    candidates, tokens = both(RecapConfig(top_k=4), 5, 30)
    assert candidates > 60 * 10
    assert tokens > 60 * 1.2


def test_odd_input_is_survived():
    kernels_with_odd_input()


@pytest.mark.slow
def test_no_kernel_reaches_beyond_its_arrays(tmp_path):
    """Compiled again with every index checked: without that a wrong one would overwrite memory."""
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
    """Runner-ups of runner-ups: 8 after 11 has the probability of 11 after 8."""
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
