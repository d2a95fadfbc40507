"""The lookup against a search that tries every suffix."""

from hypothesis import given, settings
from hypothesis import strategies as st

from recap.drafters.suffix_lookup import REACH, SuffixLookup, advance, continuation_of, tail_match


def matches(text: list[int], *branch: int, blocked=frozenset()) -> list[tuple[int, int]]:
    """(length, continuation) of the longest match of the text, and after each token of a branch."""
    automaton = made(text, blocked).automaton
    found = [tail_match(automaton)]
    for token in branch:
        found.append(advance(automaton, *found[-1], token))
    return [(length, continuation_of(automaton, state, length)) for state, length in found]


def made(text: list[int], blocked=frozenset()) -> SuffixLookup:
    lookup = SuffixLookup(frozenset(blocked))
    lookup.extend(text)
    return lookup


def brute(text: list[int], blocked: set[int], tail: list[int]) -> tuple[int, int]:
    """Longest suffix of `tail` that occurs in `text` with a token after it -> (length, that token)."""
    for length in range(len(tail), 0, -1):
        suffix = tail[len(tail) - length :]
        if blocked & set(suffix):
            continue
        for end in range(len(text) - 1, length - 1, -1):
            if text[end - length : end] == suffix:
                return length, -1 if text[end] in blocked else text[end]
    return 0, -1


def test_worked_example():
    text = [1, 2, 3, 4, 5, 2, 3, 6, 1, 2, 3]
    assert matches(text, 6) == [(3, 4), (3, 1)], "1 2 3 is at the start; 2 3 6 was followed by 1"
    assert matches(text, 99)[1] == (0, -1)


def test_latest_of_equal_matches_wins():
    assert matches([7, 1, 7, 2, 7, 3, 7]) == [(1, 3)]


def test_one_token_over_and_over_takes_linear_time():
    lookup = made([7] * (4 * REACH))
    assert lookup.extend([7] * 10) == REACH, "nested matches that one more token updates"
    assert matches([7] * (4 * REACH + 10)) == [(4 * REACH + 9, 7)]


def test_no_match_crosses_a_wall():
    text = [1, 0, 0, 0, 2, 1]
    assert matches(text, blocked={0}) == [(1, -1)], "a blocked token is never a candidate"
    assert matches([*text, 0, 2], blocked={0}) == [(1, 1)], "'0 2' does not match across the wall"


@settings(max_examples=300, deadline=None)
@given(
    st.lists(st.integers(0, 3), max_size=40),
    st.lists(st.integers(0, 3), max_size=4),
    st.booleans(),
)
def test_against_brute_force(text, branch, walls):
    blocked = {0} if walls else set()
    want = [brute(text, blocked, [*text, *branch[:count]]) for count in range(len(branch) + 1)]
    assert matches(text, *branch, blocked=blocked) == want
