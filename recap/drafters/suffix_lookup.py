"""Longest earlier match of the current tail in prompt + confirmed answer: a suffix automaton.

Each state stands for the strings that end at the same places; `continuation` is the latest place
that followed one of them. A branch of the candidate tree carries its own state along (`step`), so
the lookup can be asked at every node, not only at the root. No torch, no probabilities.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from .jit import EMPTY, Table, find, kernel, maker, new_table, put, with_room


class Match(NamedTuple):
    """A place in the automaton: `length` tokens of the tail match there (0: none)."""

    state: int
    length: int


NO_MATCH = Match(0, 0)

REACH = 256
"""Most nested matches that learn what followed them, the longest first. Text has a dozen or two; the same
token over and over has as many as tokens, and without this bound would take quadratic time."""


STATE = np.dtype([
    ("length", np.int64),  # of the longest string
    ("link", np.int64),  # the state of the longest suffix with other ends; -1 for state 0
    ("continuation", np.int64),  # a place in the text, -1: none
    ("first", np.int64),  # its first edge, -1: none
])  # fmt: skip
EDGE = np.dtype([("token", np.int64), ("target", np.int64), ("follows", np.int64)])


class Automaton(NamedTuple):
    """The arrays, as kernels see them. State 0 is the empty string.

    An edge goes from a state by a token to a state; `found` finds it by state and token, and those of one
    state are also a list (`first`, then `follows`), for a state is copied when it is split.
    """

    text: np.ndarray  # int64 [tokens]
    states: np.ndarray  # STATE
    edges: np.ndarray  # EDGE
    found: Table
    size: np.ndarray  # int64 [4]: tokens, states, edges, the state of the whole text


@kernel
def _edge(text, state, token):
    """The edge from a state by a token, -1 if there is none."""
    return find(text.found, (state << 32) | (token & 0xFFFFFFFF))


@kernel
def _add_edge(text, state, token, target):
    edge = text.size[2]
    text.size[2] = edge + 1
    text.edges[edge].token, text.edges[edge].target = token, target
    text.edges[edge].follows = text.states[state].first
    text.states[state].first = edge
    put(text.found, (state << 32) | (token & 0xFFFFFFFF), edge)


@kernel
def _new_state(text, length, link, continuation):
    state = text.size[1]
    text.size[1] = state + 1
    made = text.states[state]
    made.length, made.link, made.continuation, made.first = length, link, continuation, EMPTY
    return state


@kernel
def _append(text, token):
    """One token more -> how many nested matches learned what followed them."""
    here, last = text.size[0], text.size[3]
    text.text[here] = token
    text.size[0] = here + 1
    # every string that ended at the previous place is now followed by `here`
    state, learned = last, 0
    while state > 0 and learned < REACH:
        text.states[state].continuation = here
        state = text.states[state].link
        learned += 1
    new = _new_state(text, text.states[last].length + 1, 0, EMPTY)
    state = last
    while state >= 0 and _edge(text, state, token) < 0:
        _add_edge(text, state, token, new)
        state = text.states[state].link
    if state >= 0:
        target = text.edges[_edge(text, state, token)].target
        if text.states[target].length != text.states[state].length + 1:
            split = text.states[target]
            clone = _new_state(text, text.states[state].length + 1, split.link, split.continuation)
            edge = split.first
            while edge >= 0:
                _add_edge(text, clone, text.edges[edge].token, text.edges[edge].target)
                edge = text.edges[edge].follows
            while state >= 0:
                edge = _edge(text, state, token)
                if edge < 0 or text.edges[edge].target != target:
                    break
                text.edges[edge].target = clone
                state = text.states[state].link
            split.link = clone
            target = clone
        text.states[new].link = target
    text.size[3] = new
    return learned


@kernel
def _extend(text, tokens):
    """Append tokens -> the most nested matches that one of them went through."""
    most = 0
    for token in tokens:
        most = max(most, _append(text, token))
    return most


@kernel
def known(text, state, length):
    """The longest suffix of a match with something behind it -> state, length (0, 0: none)."""
    while state > 0 and text.states[state].continuation < 0:  # stands at the text's end alone
        state = text.states[state].link
        length = text.states[state].length
    if state > 0:
        return state, length
    return 0, 0


@kernel
def tail_of(text):
    """The longest suffix of the text that also stands earlier in it -> state, length."""
    return known(text, text.size[3], text.states[text.size[3]].length)


@kernel
def step_on(text, state, length, token):
    """A match after the tail grows by a token -> state, length."""
    edge = _edge(text, state, token)
    while state > 0 and edge < 0:
        state = text.states[state].link
        length = text.states[state].length
        edge = _edge(text, state, token)
    if edge < 0:
        return 0, 0
    return known(text, text.edges[edge].target, length + 1)


@kernel
def continuation_of(text, state, length):
    """What followed a match when it last stood in the text; -1 at a wall or without a match."""
    if length < 1:
        return EMPTY
    at = text.states[state].continuation
    return max(text.text[at], EMPTY) if at >= 0 else EMPTY


@maker
def copy_on(text, most):
    """Up to `most` tokens that followed the tail's match, each found by the longest match with those before.

    -> int64 tokens, and how often the text was asked.
    """
    found = np.empty(most, np.int64)
    state, length = tail_of(text)
    count = asked = 0
    while count < most:
        token = continuation_of(text, state, length)
        asked += 1
        if token < 0:
            break
        found[count] = token
        count += 1
        state, length = step_on(text, state, length, token)
    return found[:count], asked


class SuffixLookup:
    """Grows token by token; blocked tokens are walls that no match crosses.

    >>> text = SuffixLookup()
    >>> _ = text.extend([1, 2, 3, 4, 9, 2, 3])
    >>> tail = text.tail()
    >>> tail.length, text.next_token(tail)
    (2, 4)
    >>> on = text.step(tail, 4)
    >>> on.length, text.next_token(on)
    (3, 9)
    """

    def __init__(self, blocked: frozenset[int] = frozenset()) -> None:
        self.blocked = blocked
        self.automaton = _empty(1024)
        self._walls = 0
        self._at_wall = False

    @property
    def text(self) -> list[int]:
        """The tokens so far, a negative number for each wall."""
        return self.automaton.text[: self.automaton.size[0]].tolist()

    def extend(self, tokens: Iterable[int]) -> int:
        """Append confirmed tokens -> the most nested matches that one of them went through.

        A run of blocked tokens becomes one wall.
        """
        symbols = []
        for token in tokens:
            if token in self.blocked:
                if self._at_wall:
                    continue
                self._walls += 1
                token = -1 - self._walls  # a symbol of its own: never seen before, never again
            self._at_wall = token < 0
            symbols.append(token)
        self._reserve(len(symbols))
        return _extend(self.automaton, np.array(symbols, np.int64))

    def _reserve(self, more: int) -> None:
        """Room for so many tokens: at most two states and three edges each."""
        old = self.automaton
        tokens = int(old.size[0]) + more
        if tokens > len(old.text):
            new = _empty(max(tokens, 2 * len(old.text)))
            for name, array in old._asdict().items():
                if name != "found":
                    getattr(new, name)[: len(array)] = array
            self.automaton = new._replace(found=old.found)
        count = int(self.automaton.size[2])
        found = with_room(self.automaton.found, max(3 * tokens + 3 - count, 0))
        self.automaton = self.automaton._replace(found=found)

    def tail(self) -> Match:
        """The longest suffix of the text that also stands earlier in it, with something behind it."""
        return Match(*tail_of(self.automaton))

    def step(self, match: Match, token: int) -> Match:
        """The longest match after the tail grows by `token` (a candidate, not confirmed)."""
        return Match(*step_on(self.automaton, *match, token))

    def next_token(self, match: Match) -> int | None:
        """What followed the match when it last stood in the text; None at a wall or without a match."""
        token = continuation_of(self.automaton, *match)
        return token if token >= 0 else None


def _empty(tokens: int) -> Automaton:
    """The automaton of the empty text, with room for so many tokens."""
    made = Automaton(
        np.zeros(tokens, np.int64),
        np.zeros(2 * tokens + 2, STATE),
        np.zeros(3 * tokens + 3, EDGE),
        new_table(0),
        np.array([0, 1, 0, 0]),
    )
    made.states[0] = (0, EMPTY, EMPTY, EMPTY)
    return made
