"""Longest earlier match of the current tail in the prompt and the confirmed answer: a suffix automaton.

Each state stands for the strings that end at the same positions. Its `continuation` is the latest position
that followed one of them. A branch of the candidate tree carries its own match along (`advance`), so
the lookup can be asked at every node, not only at the root.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from .jit import EMPTY, Table, array_kernel, find, kernel, new_table, put, reserve

REACH = 256
"""Most nested matches that learn what followed them, the longest first.

Text has a dozen or two. One token repeated has as many as tokens, and would take quadratic time.
"""


STATE = np.dtype([
    ("length", np.int64),  # of the longest string
    ("link", np.int64),  # the state of the longest suffix that ends elsewhere too; -1 for state 0
    ("continuation", np.int64),  # a position in the text, -1: none
    ("first", np.int64),  # its first edge, -1: none
])  # fmt: skip
EDGE = np.dtype([("token", np.int64), ("target", np.int64), ("next", np.int64)])


class Automaton(NamedTuple):
    """The arrays, as kernels see them. State 0 is the empty string.

    An edge leads from a state by a token to a state. `index` finds it by state and token. The edges of one
    state are also a linked list (`first`, then `next`), because a state is copied when it is split.
    """

    text: np.ndarray  # int64 [tokens]
    states: np.ndarray  # STATE
    edges: np.ndarray  # EDGE
    index: Table
    size: np.ndarray  # int64 [4]: tokens, states, edges, the state of the whole text


@kernel
def _edge(text, state, token):
    """The edge from a state by a token, -1 if there is none."""
    return find(text.index, (state << 32) | (token & 0xFFFFFFFF))


@kernel
def _add_edge(text, state, token, target):
    edge = text.size[2]
    text.size[2] = edge + 1
    text.edges[edge].token, text.edges[edge].target = token, target
    text.edges[edge].next = text.states[state].first
    text.states[state].first = edge
    put(text.index, (state << 32) | (token & 0xFFFFFFFF), edge)


@kernel
def _new_state(text, length, link, continuation):
    state = text.size[1]
    text.size[1] = state + 1
    made = text.states[state]
    made.length, made.link, made.continuation, made.first = length, link, continuation, EMPTY
    return state


@kernel
def _append(text, token):
    """Append one token -> how many nested matches learned what followed them."""
    here, last = text.size[0], text.size[3]
    text.text[here] = token
    text.size[0] = here + 1
    # every string that ended at the previous position is now followed by `here`
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
                edge = text.edges[edge].next
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
    """Append tokens -> the most nested matches that one of them updated."""
    most = 0
    for token in tokens:
        most = max(most, _append(text, token))
    return most


@kernel
def _with_continuation(text, state, length):
    """The longest suffix of a match that something followed -> state, length (0, 0: none)."""
    while state > 0 and text.states[state].continuation < 0:  # it ends at the text's end alone
        state = text.states[state].link
        length = text.states[state].length
    return (state, length) if state > 0 else (0, 0)


@kernel
def tail_match(text):
    """The longest suffix of the text that also occurs earlier in it -> state, length."""
    return _with_continuation(text, text.size[3], text.states[text.size[3]].length)


@kernel
def advance(text, state, length, token):
    """The longest match after the tail grows by a token -> state, length."""
    edge = _edge(text, state, token)
    while state > 0 and edge < 0:
        state = text.states[state].link
        length = text.states[state].length
        edge = _edge(text, state, token)
    if edge < 0:
        return 0, 0
    return _with_continuation(text, text.edges[edge].target, length + 1)


@kernel
def continuation_of(text, state, length):
    """The token after the latest occurrence of a match; -1 at a wall or without a match."""
    if length < 1:
        return EMPTY
    at = text.states[state].continuation
    return max(text.text[at], EMPTY) if at >= 0 else EMPTY


@array_kernel
def continue_text(text, most):
    """Up to `most` tokens, each the continuation of the longest match of the text and those before it.

    Returns int64 tokens, and how many lookups they took.
    """
    tokens = np.empty(most, np.int64)
    state, length = tail_match(text)
    count = lookups = 0
    while count < most:
        token = continuation_of(text, state, length)
        lookups += 1
        if token < 0:
            break
        tokens[count] = token
        count += 1
        state, length = advance(text, state, length, token)
    return tokens[:count], lookups


class SuffixLookup:
    """The automaton of a text that grows. Blocked tokens are walls that no match crosses.

    >>> lookup = SuffixLookup()
    >>> _ = lookup.extend([1, 2, 3, 4, 9, 2, 3])
    >>> state, length = tail_match(lookup.automaton)
    >>> length, continuation_of(lookup.automaton, state, length)
    (2, 4)
    >>> continue_text(lookup.automaton, 3)[0].tolist()
    [4, 9, 2]
    """

    def __init__(self, blocked: frozenset[int] = frozenset()) -> None:
        self.blocked = blocked
        self.automaton = _empty(1024)
        self._walls = 0
        self._at_wall = False

    def extend(self, tokens: Iterable[int]) -> int:
        """Append confirmed tokens -> the most nested matches that one of them updated.

        A run of blocked tokens becomes one wall.
        """
        symbols = []
        for token in tokens:
            if token in self.blocked:
                if self._at_wall:
                    continue
                self._walls += 1
                token = -1 - self._walls  # a symbol that never occurs again
            self._at_wall = token < 0
            symbols.append(token)
        self._reserve(len(symbols))
        return _extend(self.automaton, np.array(symbols, np.int64))

    def _reserve(self, more: int) -> None:
        """Make space for so many tokens: at most two states and three edges each."""
        old = self.automaton
        tokens = int(old.size[0]) + more
        if tokens > len(old.text):
            new = _empty(max(tokens, 2 * len(old.text)))
            for name in ("text", "states", "edges", "size"):
                array = getattr(old, name)
                getattr(new, name)[: len(array)] = array
            self.automaton = new._replace(index=old.index)
        count = int(self.automaton.size[2])
        index = reserve(self.automaton.index, max(3 * tokens + 3 - count, 0))
        self.automaton = self.automaton._replace(index=index)


def _empty(tokens: int) -> Automaton:
    """The automaton of the empty text, with space for so many tokens."""
    made = Automaton(
        np.zeros(tokens, np.int64),
        np.zeros(2 * tokens + 2, STATE),
        np.zeros(3 * tokens + 3, EDGE),
        new_table(0),
        np.array([0, 1, 0, 0]),
    )
    made.states[0] = (0, EMPTY, EMPTY, EMPTY)
    return made
