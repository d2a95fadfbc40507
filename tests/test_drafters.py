"""The drafters: Recap's tree worked by hand, properties of any tree, Token Recycling's static shape."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recap import Conversation, RecapConfig, make_drafter, stream
from recap.drafters.recap.acceptance import bin_of
from recap.drafters.recap.drafter import RecapDrafter
from recap.drafters.recap.memory import PersistentMemory, key2, key3, keys_of, slot_of
from recap.drafters.recap.mixture import confidence_of
from recap.drafters.recap.tree_size import PassCost
from recap.drafters.token_recycling import STATIC_TREE, TokenRecyclingDrafter
from recap.drafters.tree import CandidateTree
from recap.predictions import Predictions
from recap.trace import SourceCount

from .scripted import ScriptedTarget, branches

NOTHING = frozenset()


def predictions(pairs: list[tuple[list[int], list[float]]]) -> Predictions:
    ids, probs = (np.array(column) for column in zip(*pairs, strict=True))
    return Predictions(ids[:, 0], ids, probs.astype(np.float32))


def started(
    prompt: list[int],
    config: RecapConfig | None = None,
    *,
    blocked: frozenset[int] = NOTHING,
    terminal: frozenset[int] = NOTHING,
    cost: PassCost | None = None,
) -> RecapDrafter:
    """A drafter for tokens below 60 at the start of an answer."""
    drafter = RecapDrafter(60, config, cost=cost)
    drafter.begin(prompt, blocked=blocked, terminal=terminal)
    return drafter


def stored(drafter: RecapDrafter, *key: int) -> list[int] | None:
    """The token ids that a memory stores under 1, 2 or 3 tokens."""
    if len(key) == 1:
        memory, slot = drafter.memory, key[0] if drafter.memory.confidence[key[0]] >= 0 else -1
    else:
        memory = drafter.request.arrays
        table, packed = (memory.by2, key2) if len(key) == 2 else (memory.by3, key3)
        slot = slot_of(memory, table, packed(*key))
    return memory.ids[slot].tolist() if slot >= 0 else None


def verify(drafter: RecapDrafter, *made: tuple[list[int], list[float]]) -> list[int]:
    """One pass in which nothing is accepted -> the tokens proposed. made: prediction of each of them."""
    tree = drafter.propose(limit=5, record=False)
    drafter.observe(tree, predictions(list(made)), [])
    return tree.tokens


def runner_ups(drafter: RecapDrafter) -> dict[int, float]:
    return dict(zip(*(column.tolist() for column in drafter.runner_ups), strict=True))


def test_recap_worked_by_hand():
    """Two passes, by hand: predictions are stored under their branch's keys, the next tree is mixed from them."""
    config = RecapConfig(
        top_k=2,
        base_weights=(0.5, 0.3, 0.2),
        confidence=False,
        lookup=False,
        runner_up_share=0.0,
        max_depth=2,
    )
    drafter = started([1, 2, 3], config)
    tree = drafter.propose(limit=10, record=False)
    assert tree.tokens == [3], "empty memory: no tree, a plain one-token step"
    # after 1 2 3 the target predicts 4 (0.6) or 5 (0.2)
    counts = drafter.observe(tree, predictions([([4, 5], [0.6, 0.2])]), [])
    assert counts["1-token"].lookups == 1
    assert counts["1-token"].hits == 0
    assert stored(drafter, 1, 2, 3) == [4, 5]
    assert stored(drafter, 2, 3) == [4, 5]
    assert stored(drafter, 3) == [4, 5]
    drafter.confirm([4])
    # pass 2: root 4, nothing is stored after 4; 2 is confirmed, then 3
    assert verify(drafter, ([2, 9], [0.5, 0.4])) == [4]
    drafter.confirm([2])
    verify(drafter, ([3, 8], [0.9, 0.05]))
    drafter.confirm([3])
    # pass 4: root 3 again, context 4 2 3. The 3-token key (4 2 3) is new, 2 3 and 3 have predictions:
    # both are 4: 0.6, 5: 0.2, so the mixture is too, whatever the weights.
    # After 4 only the 1- and 2-token keys have predictions, from pass 2: 2 (0.5), 9 (0.4).
    tree = drafter.propose(limit=10, record=True)
    shown = {(tree.tokens[n.parent], n.token): round(n.score, 3) for n in tree.nodes}
    assert shown == {(3, 4): 0.6, (3, 5): 0.2, (4, 2): 0.3, (4, 9): 0.24}
    assert tree.tokens[:3] == [3, 4, 2], "likeliest chain first"
    four = tree.nodes[0]
    assert four.source == "2-token", "0.3 / 0.5 of the weight against 0.2 / 0.5"
    shares = [(c.source, round(c.weight, 2), round(c.probability, 2)) for c in four.contributions]
    assert shares == [("2-token", 0.6, 0.6), ("1-token", 0.4, 0.6)]
    # verified: 4 and then 9 are right; the rejected 5 stores its prediction too, under its own branch
    at = {branch: node for node, branch in enumerate(branches(tree))}
    made = [([7, 6], [0.5, 0.1])] * len(tree)
    made[0] = ([4, 5], [0.8, 0.1])
    made[at[4,]] = ([9, 2], [0.7, 0.2])
    made[at[5,]] = ([30, 31], [0.4, 0.3])
    counts = drafter.observe(tree, predictions(made), [at[4,], at[4, 9]])
    assert stored(drafter, 2, 3, 5) == [30, 31]
    assert stored(drafter, 2, 3) == [4, 5], "the latest pass"
    # asked: the root, node 4 and node 5; the root's 3-token key (4 2 3) was never seen
    one, two, three = (counts[f"{n}-token"] for n in (1, 2, 3))
    assert (one.lookups, one.hits, one.accepted) == (3, 2, 2)
    assert (two.lookups, two.hits, two.accepted) == (3, 2, 2)
    assert (three.lookups, three.hits, three.accepted) == (3, 1, 1)


def test_runner_ups_are_proposed_where_nothing_is_stored():
    config = RecapConfig(top_k=3, runner_up_share=0.5, lookup=False, max_depth=2, calibrate=False)
    drafter = started([1, 2, 3], config, blocked=frozenset({9}))
    verify(drafter, ([4, 5, 9], [0.6, 0.2, 0.1]))
    drafter.confirm([4])
    # nothing is stored after 4; 5 and 9 were likely where 4 was chosen, and 9 is blocked
    tree = drafter.propose(limit=5, record=True)
    assert tree.tokens == [4, 5]
    assert tree.nodes[0].source == "runner-up"
    assert tree.nodes[0].score == pytest.approx(0.5 * 0.2)
    counts = drafter.observe(
        tree, predictions([([5, 6, 7], [0.5, 0.2, 0.1]), ([8, 6, 7], [0.5, 0.2, 0.1])]), [1]
    )
    # asked at the root (right) and after 5, where 5 itself does not follow again
    assert (counts["runner-up"].lookups, counts["runner-up"].accepted) == (2, 1)
    drafter.confirm([5, 8])
    drafter.begin([1, 2], blocked=NOTHING, terminal=NOTHING)
    drafter.confirm([40])
    assert drafter.propose(limit=5, record=False).tokens == [40], "a new request starts without"


def test_request_memory_ends_with_the_request_and_the_persistent_one_does_not():
    drafter = started([1, 2, 3], RecapConfig(top_k=2))
    verify(drafter, ([4, 5], [0.6, 0.2]))
    drafter.begin([8, 9], blocked=NOTHING, terminal=NOTHING)
    assert len(drafter.request) == 0
    assert stored(drafter, 3) == [4, 5]
    drafter.reset()
    assert stored(drafter, 3) is None


def test_nothing_is_proposed_after_an_end_of_answer_token():
    drafter = started([7, 8, 3], RecapConfig(top_k=2), terminal=frozenset({4}))
    drafter.remember([(7, 8, 3), (8, 3, 4)], [0, 1], predictions([([4, 6], [0.9, 0.1])] * 2))
    tree = drafter.propose(limit=5, record=False)
    assert 4 in tree.tokens
    assert all(tree.tokens[p] != 4 for p in tree.parents[1:])


def twice_in_one_tree() -> tuple[CandidateTree, Predictions]:
    """
    root 3 -- 7 (rejected) -- 5 -- 3
           `- 5 (accepted)
    Packed, the rejected 5 and 3 come before the accepted 5. Node i predicts 10 i and 10 i + 1.
    """
    tree = CandidateTree([3, 7, 5, 3, 5], [-1, 0, 1, 2, 0], [0, 1, 2, 3, 1])
    return tree, predictions([([10 * node, 10 * node + 1], [0.6, 0.2]) for node in range(5)])


def test_inside_a_pass_the_confirmed_branch_wins_over_rejected_ones():
    drafter = started([7, 3], RecapConfig(top_k=2, calibrate=False, newest_share=1.0))
    tree, verified = twice_in_one_tree()
    counts = drafter.observe(tree, verified, [4])
    assert counts["1-token"] == SourceCount(), "a tree grown elsewhere: nothing was asked"
    assert stored(drafter, 5) == [40, 41], "node 4, confirmed, not node 2"
    assert stored(drafter, 3) == [0, 1], "the root is confirmed"
    assert stored(drafter, 7) == [10, 11], "a rejected node without a rival"
    assert stored(drafter, 3, 5) == [40, 41]
    assert stored(drafter, 7, 5) == [20, 21]
    assert stored(drafter, 7, 3) == [0, 1]
    assert runner_ups(drafter) == pytest.approx({40: 0.6, 41: 0.2}), "where the next root comes"
    recycling = TokenRecyclingDrafter(60)
    recycling.top_k, recycling.table = 2, np.zeros((60, 2), np.int32)
    recycling.observe(tree, verified, [4])
    assert recycling.table[[5, 3, 7]].tolist() == [[40, 41], [0, 1], [10, 11]]


def test_seeding_worked_by_hand():
    """The prompt 0 5 6 5 5: predictions at the first 5, at 6 and at the end; 0 is blocked."""
    drafter = started(
        [0, 5, 6, 5, 5], RecapConfig(top_k=2, newest_share=1.0), blocked=frozenset({0})
    )
    verified = predictions([([10, 11], [0.6, 0.2]), ([20, 21], [0.6, 0.2]), ([30, 31], [0.6, 0.2])])
    drafter.seed([1, 2, 4], verified)
    assert stored(drafter, 5) == [30, 31], "the latest position of a token wins"
    assert stored(drafter, 6) == [20, 21]
    assert stored(drafter, 5, 6) == [20, 21]
    assert stored(drafter, 6, 5, 5) == [30, 31]
    assert len(drafter.request) == 3, "no key crosses the blocked token"
    assert runner_ups(drafter) == pytest.approx({30: 0.6, 31: 0.2})


def test_the_calibration_counts_every_candidate_below_the_accepted_branch():
    config = RecapConfig(top_k=2, runner_up_share=0.0, max_depth=2, base_weights=(0, 0, 1))
    drafter = started([8, 4, 9, 3], config)
    # 3 is followed by 4 (0.6) or 5 (0.2); 4 by 9 (0.5), which the lookup proposes too, or 6 (0.1)
    drafter.remember([(-1, -1, 3)], [0], predictions([([4, 5], [0.6, 0.2])]))
    drafter.remember([(-1, -1, 4)], [0], predictions([([9, 6], [0.5, 0.1])]))
    tree = drafter.propose(limit=5, record=False)
    at = {branch: node for node, branch in enumerate(branches(tree))}
    assert set(at) == {(), (4,), (5,), (4, 9), (4, 6)}
    node = drafter.tree.nodes[drafter._order[at[4,]]]
    plain, looked_up = node["memory_class"], node["lookup_class"]
    assert looked_up != plain, "a match of one token"
    nothing = predictions([([50, 51], [0.5, 0.1])] * len(tree))
    drafter.observe(tree, nothing, [at[4,]])
    expected, accepted = drafter.acceptance.ratios[:2]
    assert accepted[plain][bin_of(0.6)] == 1.0, "4 was right"
    assert expected[plain][bin_of(0.6)] == pytest.approx(0.6)
    assert accepted[plain][bin_of(0.2)] == 0.0, "5 was not"
    assert expected[plain][bin_of(0.2)] == pytest.approx(0.2)
    nine, six = (drafter.tree.nodes[drafter._order[at[4, t]]]["probability"] for t in (9, 6))
    assert expected[looked_up][bin_of(nine)] == pytest.approx(nine), "9 in the lookup's class"
    assert expected[plain][bin_of(six)] == pytest.approx(six), "6 in the memories'"
    assert accepted.sum() == 1.0
    assert expected.sum() == pytest.approx(0.8 + nine + six)


def test_the_budget_is_filled_however_unlikely_the_candidates():
    """Every verified node teaches: here seven of eight stored tokens, one nearly certain."""
    drafter = started([3], RecapConfig(budget=7, max_depth=1))
    made = list(range(10, 18)), [0.9999, *(10.0**-power for power in range(6, 13))]
    drafter.remember([(-1, -1, 3)], [0], predictions([made]))
    assert drafter.propose(limit=5, record=False).tokens == [3, *range(10, 17)]


@pytest.mark.parametrize(("earlier", "share"), [([9, 3], 0.1), ([2, 3], 0.2), ([1, 2, 3], 0.3)])
def test_a_longer_match_has_the_larger_share(earlier, share):
    config = RecapConfig(
        top_k=2,
        base_weights=(0, 0, 0),
        calibrate=False,
        max_depth=1,
        lookup_acceptance=(0.1, 0.2, 0.3),
    )
    drafter = started([*earlier, 40, 1, 2, 3], config)
    tree = drafter.propose(limit=5, record=True)
    assert tree.tokens == [3, 40]
    assert tree.nodes[0].score == pytest.approx(share)


@pytest.mark.parametrize("chances", [[0.01] * 4, [0.6, 0.3, 0.05, 0.01]])
@pytest.mark.parametrize(("budget", "size"), [(63, 4), (2, 3)])
def test_a_pass_cost_sizes_the_tree(chances, budget, size):
    """Up to four packed tokens are free, a fifth is expensive: three candidates, whatever their chances."""
    config = RecapConfig(top_k=4, max_depth=1, runner_up_share=0.0, budget=budget)
    cost = PassCost([(1, 1.0), (4, 1.0), (5, 9.0)])
    drafter = started([3], config, cost=cost)
    drafter.remember([(-1, -1, 3)], [0], predictions([([4, 5, 6, 7], chances)]))
    assert len(drafter.propose(limit=5, record=False)) == size


@pytest.mark.parametrize(
    ("share", "mixed"),
    [
        (1.0, {7: 0.5, 8: 0.25, 4: 0.125}),
        (0.5, {7: 0.25, 4: 0.4375, 5: 0.125}),
        (0.75, {7: 0.375, 4: 0.28125, 8: 0.1875}),
    ],
)
def test_the_1_token_memory_mixes_the_newest_prediction_into_the_stored_one(share, mixed):
    drafter = started([3], RecapConfig(top_k=3, newest_share=share))
    for ids, probs in (([4, 5, 6], [0.75, 0.25, 0.0]), ([7, 8, 4], [0.5, 0.25, 0.125])):
        drafter.remember([(1, 2, 3)], [0], predictions([(ids, probs)]))
    probs = drafter.memory.probs[3]
    assert dict(zip(stored(drafter, 3), probs.tolist(), strict=True)) == mixed
    assert probs.tolist() == sorted(probs.tolist())[::-1]
    assert drafter.memory.confidence[3] == pytest.approx(confidence_of(probs))
    assert stored(drafter, 2, 3) == [7, 8, 4], "longer keys hold the newest alone"


def test_within_a_pass_the_confirmed_prediction_of_a_token_weighs_most():
    drafter = started([3], RecapConfig(top_k=2, newest_share=0.75))
    made = [([4, 5], [1.0, 0.0]), ([6, 7], [1.0, 0.0])]
    drafter.remember([(1, 2, 9), (5, 2, 9)], [0, 1], predictions(made))  # the first one wins
    assert stored(drafter, 9) == [4, 6]
    assert drafter.memory.probs[9].tolist() == [0.75, 0.25]


def test_a_key_does_not_cross_a_blocked_token():
    drafter = started([3], RecapConfig(top_k=2), blocked=frozenset({0}))
    keyed = [keys_of(drafter.blocked, *tail) for tail in ((1, 2, 3), (0, 2, 3), (1, 0, 3))]
    assert keyed == [(key2(2, 3), key3(1, 2, 3)), (key2(2, 3), -1), (-1, -1)]


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    budget=st.integers(1, 40),
    depth=st.integers(1, 6),
    children=st.integers(1, 8),
    lookup=st.booleans(),
    order=st.integers(1, 3),
)
def test_every_tree_keeps_the_rules(seed, budget, depth, children, lookup, order):
    """Along whole answers: budget, depth, fan-out, no blocked token, no repeated edge, sources."""
    target = ScriptedTarget(vocab_size=12, seed=seed, order=order, eos=False)
    config = RecapConfig(
        budget=budget,
        max_depth=depth,
        max_children=children,
        lookup=lookup,
        top_k=4,
        calibrate=False,
    )
    drafter = make_drafter("recap", vocab_size=12, config=config)
    conversation = Conversation(target)
    conversation.ask("3 0 0 4 5 3 0 4 5")
    for step in stream(conversation, drafter, max_new_tokens=40):
        assert step.packed_tokens - 1 <= budget
        fanout: dict[int, int] = {}
        for node in step.nodes[1:]:
            assert node.depth <= depth
            assert node.token not in target.blocked
            fanout[node.parent] = fanout.get(node.parent, 0) + 1
            # explained by its sources: one of them gives the token weight and probability
            best = max(node.contributions, key=lambda c: c[1] * c[2])
            assert best[1] * best[2] > 0
            assert node.source in {
                c[0] for c in node.contributions if c[1] * c[2] == best[1] * best[2]
            }
            mixed = sum(weight * probability for _, weight, probability, _ in node.contributions)
            parent = step.nodes[node.parent]
            assert node.score == pytest.approx(parent.score * mixed, rel=1e-5)
        assert max(fanout.values(), default=0) <= children
        for last in range(len(step.nodes)):
            path, at = [], last
            while at >= 0:
                path.append(step.nodes[at].token)
                at = step.nodes[at].parent
            edges = list(zip(path[1:], path, strict=False))
            assert len(edges) == len(set(edges)), "no edge repeats on one path"
        for count in step.sources.values():
            assert count.lookups >= count.hits >= count.accepted


def test_static_tree_has_the_published_shape():
    sizes = [sum(level) for level in STATIC_TREE]
    assert sizes == [8, 21, 25, 15, 8, 3, 0]
    assert [len(level) for level in STATIC_TREE] == [1, *sizes[:-1]]


def full_table() -> TokenRecyclingDrafter:
    """Every token t is followed by t + 1 ... t + 8."""
    drafter = TokenRecyclingDrafter(vocab_size=200)
    drafter.begin([5, 6], blocked=NOTHING, terminal=NOTHING)
    drafter.table[:] = np.arange(200)[:, None] + np.arange(1, 9)
    drafter.valid[:] = True
    return drafter


def test_token_recycling_proposes_the_static_tree():
    drafter = full_table()
    drafter.confirm([10])
    tree = drafter.propose(limit=100, record=False)
    assert len(tree) == 81
    assert [tree.depths.count(d) for d in range(7)] == [1, 8, 21, 25, 15, 8, 3]
    assert tree.tokens[:7] == [10, 11, 12, 13, 14, 15, 16], "the chain of first ranks first"
    top = [node for node in range(1, 81) if tree.depths[node] == 1]
    assert [tree.tokens[node] for node in top] == list(range(11, 19)), "ranks 0..7 of the root"
    fanout = [sum(p == node for p in tree.parents) for node in top]
    assert fanout == [8, 4, 3, 2, 1, 1, 1, 1]
    assert len(drafter.propose(limit=2, record=False)) == 1 + 8 + 21


@pytest.mark.parametrize("budget", [1, 5, 16, 40, 80])
def test_a_budgeted_static_tree_is_the_heaviest_part_of_it(budget):
    small, whole = TokenRecyclingDrafter(200, budget=budget), full_table()
    small.begin([5], blocked=NOTHING, terminal=NOTHING)
    small.table, small.valid = whole.table, whole.valid
    for drafter in (small, whole):
        drafter.confirm([10])
    tree, full = (d.propose(limit=100, record=False) for d in (small, whole))
    assert len(tree) == budget + 1
    assert set(branches(tree)) <= set(branches(full))


def test_token_recycling_skips_unseen_tokens_and_learns_every_prediction():
    drafter = TokenRecyclingDrafter(vocab_size=100)
    drafter.begin([5], blocked=NOTHING, terminal=NOTHING)
    drafter.confirm([10])
    tree = drafter.propose(limit=100, record=False)
    assert len(tree) == 1
    drafter.observe(tree, predictions([(list(range(20, 28)), [0.1] * 8)]), [])
    drafter.confirm([20])
    assert len(drafter.propose(limit=100, record=False)) == 1, "20 itself has no prediction yet"
    drafter.confirm([10])
    tree = drafter.propose(limit=100, record=False)
    assert tree.tokens[1:] == list(range(20, 28))
    made = [(list(range(30 + n, 38 + n)), [0.1] * 8) for n in range(9)]
    drafter.observe(tree, predictions(made), [])
    assert drafter.table[27].tolist() == list(range(38, 46)), "rejected nodes count too"
    cold = TokenRecyclingDrafter(vocab_size=100, warm=False)
    cold.table, cold.valid = drafter.table.copy(), drafter.valid.copy()
    for kept, one in ((True, drafter), (False, cold)):
        one.begin([5], blocked=NOTHING, terminal=NOTHING)
        assert bool(one.valid.any()) is kept


def test_prompt_lookup_copies_what_followed_the_longest_match():
    drafter = make_drafter("prompt_lookup", vocab_size=50, chain=4)
    drafter.begin([1, 2, 3, 4, 5, 6, 7, 8, 2, 3], blocked=frozenset({7}), terminal=NOTHING)
    tree = drafter.propose(limit=10, record=False)
    assert tree.tokens == [3, 4, 5, 6], "up to a blocked token"
    assert drafter.propose(limit=2, record=False).tokens == [3, 4, 5]
    drafter.confirm([40])
    assert drafter.propose(limit=10, record=False).tokens == [40]


def test_prompt_lookup_counts_every_lookup():
    drafter = make_drafter("prompt_lookup", vocab_size=50, chain=4)
    drafter.begin([1, 2, 3, 4, 7, 8, 2], blocked=frozenset({7}), terminal=NOTHING)
    tree = drafter.propose(limit=10, record=False)
    assert tree.tokens == [2, 3, 4], "asked at 2, 3 and 4; after 4 comes a wall"
    verified = predictions([([3], [0.9]), ([9], [0.9]), ([9], [0.9])])
    assert drafter.observe(tree, verified, [1]) == {"lookup": SourceCount(3, 2, 1)}
    tree = drafter.propose(limit=0, record=False)
    assert drafter.observe(tree, verified, []) == {"lookup": SourceCount()}, (
        "nothing could be proposed"
    )


def test_a_cap_on_children_leaves_runner_ups_for_the_next_node():
    config = RecapConfig(
        top_k=3, max_children=1, max_depth=2, lookup=False, base_weights=(0, 0, 1), calibrate=False
    )
    drafter = started([1, 2, 3], config)
    verify(drafter, ([4, 5, 6], [0.6, 0.3, 0.1]))
    drafter.confirm([3])
    # 4 is the only child of 3; nothing is stored after it, and 5 was second where it was chosen
    assert drafter.propose(limit=5, record=False).tokens == [3, 4, 5]


def test_reset_forgets_the_prompt_too():
    drafter = started([1, 2, 3, 1, 2])
    drafter.reset()
    assert len(drafter.lookup.automaton.text) > drafter.lookup.automaton.size[0] == 0
    assert not runner_ups(drafter)


def test_a_shared_memory_must_fit():
    with pytest.raises(ValueError, match="another top_k"):
        RecapDrafter(vocab_size=50, memory=PersistentMemory(50, 4))


def test_unknown_decoder():
    with pytest.raises(ValueError, match="use recap, token_recycling"):
        make_drafter("magic", vocab_size=10)


def test_root_alone_when_one_token_is_left():
    drafter = full_table()
    drafter.confirm([10])
    assert len(drafter.propose(limit=0, record=False)) == 1


def test_a_short_request_is_recorded_after_a_long_one():
    """The long one's predictions lie far out in its ring; nodes of earlier trees must not point there."""
    target = ScriptedTarget(vocab_size=40, order=3, eos=False)
    drafter = make_drafter("recap", vocab_size=40)
    for tokens in (400, 3):
        conversation = Conversation(target)
        conversation.ask("3 0 0 4 5 3 0 4 5")
        steps = list(stream(conversation, drafter, max_new_tokens=tokens))
        assert sum(bool(step.stored) for step in steps) >= len(steps) - 1
        assert len(drafter.request.arrays.ids) >= (1024 if tokens == 3 else 4096)


def test_a_vocabulary_too_large_for_the_keys_is_refused():
    with pytest.raises(ValueError, match="up to 1,048,576 tokens"):
        RecapDrafter((1 << 20) + 1, RecapConfig(top_k=1))


def test_tokens_that_the_vocabulary_does_not_have_are_no_keys():
    """A prompt may carry ids beyond the width of the logits."""
    drafter = RecapDrafter(20, RecapConfig(top_k=2))
    drafter.begin([1, 900, 2], blocked=frozenset({901}), terminal=frozenset({902}))
    drafter.seed([0, 1, 2], predictions([([4, 5], [0.6, 0.2])] * 3))
    assert len(drafter.memory) == 2
    assert drafter.propose(limit=5, record=False).tokens[0] == 2
    drafter.confirm([900])
    assert drafter.propose(limit=5, record=False).tokens == [900]
    table = TokenRecyclingDrafter(20)
    table.begin([1, 900], blocked=NOTHING, terminal=NOTHING)
    tree = table.propose(limit=5, record=False)
    assert tree.tokens == [900]
    table.observe(tree, predictions([(list(range(8)), [0.1] * 8)]), [])
    assert not table.valid.any()


WRONG = {
    "top_k": (0, 10**7),
    "budget": (-1, True, 1025),
    "max_depth": (2.5, 65),
    "max_children": (65,),
    "request_capacity": (0, 1 << 25),
    "base_weights": ((1.0, 1.0), (1.0, -1.0, 0.0), None, (float("nan"), 1.0, 1.0), ("a", 1.0, 1.0)),
    "lookup_acceptance": ((), (float("inf"),), 0.5),
    "runner_up_share": (1.5,),
    "confidence_floor": (-0.1,),
    "newest_share": (0.0, "a", None, 1.5),
    "calibration_prior": (0.0, float("nan")),
    "lookup": ("no",),
}


@pytest.mark.parametrize(("name", "value"), [(n, v) for n, values in WRONG.items() for v in values])
def test_a_setting_out_of_range_is_refused_in_one_sentence(name, value):
    with pytest.raises(ValueError, match=name):
        RecapConfig(**{name: value})
