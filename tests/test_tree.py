"""The candidate tree: a worked example, invariants, and acceptance."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from recap.drafters.tree import ROOT, CandidateTree, Node, TreeBuilder


def example() -> CandidateTree:
    """
    root 7 -- 5 (0.3) -- 8 (0.2)
           `- 6 (0.6) -- 9 (0.1)
                      `- 5 (0.4) -- 2 (0.3)
    """
    grown = TreeBuilder(root=7)
    five = grown.add(ROOT, 5, source="1-token", score=0.3)
    six = grown.add(ROOT, 6, source="1-token", score=0.6)
    grown.add(six, 9, source="1-token", score=0.1)
    again = grown.add(six, 5, source="2-token", score=0.4)
    grown.add(five, 8, source="3-token", score=0.2)
    grown.add(again, 2, source="lookup", score=0.3)
    return grown.pack()


def test_packed_order_worked_by_hand():
    tree = example()
    assert tree.tokens == [7, 6, 5, 2, 5, 9, 8], "the chain of best children first"
    assert tree.parents == [-1, 0, 1, 2, 0, 1, 4]
    assert tree.depths == [0, 1, 2, 3, 1, 2, 2]
    assert [n.source for n in tree.nodes[:3]] == ["1-token", "2-token", "lookup"]


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
    ("choice", "accepted", "own"),
    [
        ([4, 0, 0, 0, 0, 0, 0], [], 4),  # nothing matches: ordinary decoding
        ([6, 5, 2, 3, 0, 0, 0], [1, 2, 3], 3),  # the whole chain
        ([6, 9, 0, 0, 0, 1, 0], [1, 5], 1),  # a branch that is not contiguous
        ([5, 0, 0, 0, 8, 0, 7], [4, 6], 7),
        ([5, 5, 2, 3, 9, 0, 0], [4], 9),  # row 1 never counts: its branch was not taken
    ],
)
def test_accept_worked_by_hand(choice, accepted, own):
    assert example().accept(choice) == (accepted, own)


def test_path():
    assert example().path(3) == [1, 2, 3]
    assert example().path(ROOT) == []


def test_a_child_is_added_once():
    grown = TreeBuilder(1)
    assert grown.add(ROOT, 5, source="a", score=0.5) == grown.add(ROOT, 5, source="b", score=0.4)
    assert len(grown) == 1


@pytest.mark.parametrize(
    "nodes",
    [
        [Node(5, 1, 1, "x", 0.1)],  # parent behind its child
        [Node(5, 0, 2, "x", 0.1)],  # wrong depth
        [Node(5, 0, 1, "x", 0.1), Node(5, 0, 1, "x", 0.1)],  # twin siblings
    ],
)
def test_broken_trees_are_refused(nodes):
    with pytest.raises(AssertionError):
        CandidateTree(7, nodes)


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 5), st.floats(0, 1)), max_size=30))
def test_any_tree_packs_into_the_same_branches(plan):
    grown = TreeBuilder(99)
    paths = {ROOT: ()}
    for parent, token, score in plan:
        parent %= len(paths)
        handle = grown.add(parent, token, source="s", score=score)
        paths[handle] = (*paths[parent], token)
    tree = grown.pack()
    mask = tree.ancestor_mask()
    got = [tuple(tree.tokens[r] for r in tree.path(row)) for row in range(len(tree))]
    assert sorted(got) == sorted(set(paths.values()))
    for row in range(len(tree)):
        assert mask[row].sum() == tree.depths[row] + 1
        assert set(np.flatnonzero(mask[row])) == {0, *tree.path(row)}
    # the first rows are one chain, each the best-scored child of the row before
    row = ROOT
    while kids := [r for r in range(1, len(tree)) if tree.parents[r] == row]:
        assert kids[0] == row + 1
        assert tree.nodes[row].score == max(tree.nodes[r - 1].score for r in kids)
        row += 1
