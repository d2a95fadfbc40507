"""The lookup against a search that tries every suffix."""

from hypothesis import given, settings
from hypothesis import strategies as st

from recap.drafters.suffix_lookup import NO_MATCH, REACH, SuffixLookup


def brute(text: list[int], blocked: set[int], tail: list[int]) -> tuple[int, int | None]:
    """Longest suffix of `tail` that stands in `text` with a place behind it -> (length, next)."""
    for length in range(len(tail), 0, -1):
        suffix = tail[len(tail) - length :]
        if blocked & set(suffix):
            continue
        for end in range(len(text) - 1, length - 1, -1):
            if text[end - length : end] == suffix:
                return length, None if text[end] in blocked else text[end]
    return 0, None


def test_worked_example():
    text = SuffixLookup()
    text.extend([1, 2, 3, 4, 5, 2, 3, 6, 1, 2, 3])
    tail = text.tail()
    assert tail.length == 3, "1 2 3 stands at the start"
    assert text.next_token(tail) == 4
    assert text.next_token(text.step(tail, 6)) == 1, "2 3 6 was followed by 1"
    assert text.step(tail, 6).length == 3
    assert text.step(tail, 99) == NO_MATCH


def test_latest_of_equal_matches_wins():
    text = SuffixLookup()
    text.extend([7, 1, 7, 2, 7, 3, 7])
    assert text.next_token(text.tail()) == 3


def test_one_token_over_and_over_takes_linear_time():
    text = SuffixLookup()
    text.extend([7] * (4 * REACH))
    assert text.extend([7] * 10) == REACH, "nested matches that one more token goes through"
    assert text.tail().length == 4 * REACH + 9
    assert text.next_token(text.tail()) == 7


def test_no_match_crosses_a_wall():
    text = SuffixLookup(blocked=frozenset({0}))
    text.extend([1, 0, 0, 0, 2, 1])
    assert text.tail().length == 1
    assert text.next_token(text.tail()) is None, "a blocked token is never a candidate"
    text.extend([0, 2])
    assert text.tail().length == 1, "'0 2' must not match across the wall"
    assert text.next_token(text.tail()) == 1


@settings(max_examples=300, deadline=None)
@given(
    st.lists(st.integers(0, 3), max_size=40),
    st.lists(st.integers(0, 3), max_size=4),
    st.booleans(),
)
def test_against_brute_force(tokens, branch, walls):
    blocked = {0} if walls else set()
    text = SuffixLookup(frozenset(blocked))
    text.extend(tokens)
    match = text.tail()
    tail = list(tokens)
    # the tail itself must stand earlier, with something behind it
    want = brute(tokens, blocked, tail)
    assert (match.length, text.next_token(match)) == want
    for token in branch:
        match = text.step(match, token)
        tail.append(token)
        want = brute(tokens, blocked, tail)
        assert (match.length, text.next_token(match)) == want
