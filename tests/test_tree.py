"""The candidate tree: a worked example, invariants, and acceptance."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from recap.drafters.tree import ROOT, CandidateTree, TreeBuilder

from .scripted import branches


def example() -> CandidateTree:
    """
    root 7 -- 5 (0.3) -- 8 (0.2)
           `- 6 (0.6) -- 9 (0.1)
                      `- 5 (0.4) -- 2 (0.3)
    """
    builder = TreeBuilder(root=7)
    five = builder.add(ROOT, 5, source="1-token", score=0.3)
    six = builder.add(ROOT, 6, source="1-token", score=0.6)
    builder.add(six, 9, source="1-token", score=0.1)
    other_five = builder.add(six, 5, source="2-token", score=0.4)
    builder.add(five, 8, source="3-token", score=0.2)
    builder.add(other_five, 2, source="lookup", score=0.3)
    assert builder.add(ROOT, 5, source="x", score=0.9) == five, "a child is added once"
    assert len(builder) == 6
    return builder.pack()


def test_packed_order_worked_by_hand():
    tree = example()
    assert tree.tokens == [7, 6, 5, 2, 5, 9, 8], "the chain of best children first"
    assert tree.parents == [-1, 0, 1, 2, 0, 1, 4]
    assert tree.depths == [0, 1, 2, 3, 1, 2, 2]
    assert [(n.source, n.score, n.rank) for n in tree.nodes[:4]] == [
        ("1-token", 0.6, 1),
        ("2-token", 0.4, 1),
        ("lookup", 0.3, 0),
        ("1-token", 0.3, 0),
    ]
    assert tree.path(3) == [1, 2, 3]
    assert tree.path(ROOT) == []


def test_mask_worked_by_hand():
    mask = example().ancestor_mask().astype(int)
    assert mask.tolist() == [
        [1, 0, 0, 0, 0, 0, 0],
        [1, 1, 0, 0, 0, 0, 0],
        [1, 1, 1, 0, 0, 0, 0],
        [1, 1, 1, 1, 0, 0, 0],
        [1, 0, 0, 0, 1, 0, 0],
        [1, 1, 0, 0, 0, 1, 0],
        [1, 0, 0, 0, 1, 0, 1],
    ]


@pytest.mark.parametrize(
    ("choice", "accepted", "bonus"),
    [
        ([4, 0, 0, 0, 0, 0, 0], [], 4),  # nothing matches: ordinary decoding
        ([6, 5, 2, 3, 0, 0, 0], [1, 2, 3], 3),  # the whole chain
        ([6, 9, 0, 0, 0, 1, 0], [1, 5], 1),  # a branch that is not contiguous
        ([5, 0, 0, 0, 8, 0, 7], [4, 6], 7),
        ([5, 5, 2, 3, 9, 0, 0], [4], 9),  # node 1 does not count: its branch was not taken
    ],
)
def test_accept_worked_by_hand(choice, accepted, bonus):
    assert example().accept(choice) == (accepted, bonus)


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 5), st.floats(0, 1)), max_size=30))
def test_any_tree_packs_into_the_same_branches(plan):
    builder = TreeBuilder(99)
    paths = {ROOT: ()}
    for parent, token, score in plan:
        parent %= len(paths)
        handle = builder.add(parent, token, source="s", score=score)
        paths[handle] = (*paths[parent], token)
    tree = builder.pack()
    mask = tree.ancestor_mask()
    got = branches(tree)
    assert sorted(got) == sorted(set(paths.values()))
    for node in range(len(tree)):
        assert tree.parents[node] < node
        assert tree.depths[node] == len(got[node])
        assert set(np.flatnonzero(mask[node])) == {0, *tree.path(node)}
    # the first nodes are one chain, each the best-scored child of the node before
    node = ROOT
    while children := [n for n in range(1, len(tree)) if tree.parents[n] == node]:
        assert children[0] == node + 1
        assert tree.nodes[node].score == max(tree.nodes[n - 1].score for n in children)
        node += 1
