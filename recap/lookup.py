"""Longest earlier match of the current tail in prompt + confirmed answer: a suffix automaton.

Each state stands for the strings that end at the same places; `continuation` is the latest place
that followed one of them. A branch of the candidate tree carries its own state along (`step`), so
the lookup can be asked at every node, not only at the root. No torch, no probabilities.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple


class Match(NamedTuple):
    """A place in the automaton: `length` tokens of the tail match there (0: none)."""

    state: int
    length: int


NO_MATCH = Match(0, 0)

REACH = 256
"""Most nested matches that learn what followed them, the longest first. Text has a dozen or two; the same
token over and over has as many as tokens, and without this bound would take quadratic time."""


class SuffixLookup:
    """Grows token by token; blocked tokens are walls that no match crosses.

    >>> text = SuffixLookup()
    >>> text.extend([1, 2, 3, 4, 9, 2, 3])
    >>> tail = text.tail()
    >>> tail.length, text.next_token(tail)
    (2, 4)
    >>> on = text.step(tail, 4)
    >>> on.length, text.next_token(on)
    (3, 9)
    """

    def __init__(self, blocked: frozenset[int] = frozenset()) -> None:
        self.blocked = blocked
        self.text: list[int] = []
        self._next: list[dict[int, int]] = [{}]
        self._link: list[int] = [-1]
        self._len: list[int] = [0]
        self._continuation: list[int] = [-1]
        self._last = 0
        self._walls = 0

    def extend(self, tokens: Iterable[int]) -> None:
        """Append confirmed tokens. A run of blocked tokens becomes one wall."""
        for token in tokens:
            if token in self.blocked:
                if self.text and self.text[-1] < 0:
                    continue
                self._walls += 1
                token = -self._walls  # a symbol of its own: never seen before, never again
            self._append(token)

    def _append(self, token: int) -> None:
        here = len(self.text)
        self.text.append(token)
        # every string that ended at the previous place is now followed by `here`
        state = self._last
        for _ in range(REACH):
            if state <= 0:
                break
            self._continuation[state] = here
            state = self._link[state]
        new = self._new_state(self._len[self._last] + 1)
        state = self._last
        while state >= 0 and token not in self._next[state]:
            self._next[state][token] = new
            state = self._link[state]
        if state < 0:
            self._link[new] = 0
        else:
            target = self._next[state][token]
            if self._len[target] == self._len[state] + 1:
                self._link[new] = target
            else:
                clone = self._new_state(self._len[state] + 1)
                self._next[clone] = dict(self._next[target])
                self._link[clone] = self._link[target]
                self._continuation[clone] = self._continuation[target]
                while state >= 0 and self._next[state].get(token) == target:
                    self._next[state][token] = clone
                    state = self._link[state]
                self._link[target] = self._link[new] = clone
        self._last = new

    def _new_state(self, length: int) -> int:
        self._next.append({})
        self._link.append(0)
        self._len.append(length)
        self._continuation.append(-1)
        return len(self._len) - 1

    def tail(self) -> Match:
        """The longest suffix of the text that also stands earlier in it, with something behind it."""
        state = self._last
        while state > 0 and self._continuation[state] < 0:
            state = self._link[state]
        return Match(state, self._len[state]) if state > 0 else NO_MATCH

    def step(self, match: Match, token: int) -> Match:
        """The longest match after the tail grows by `token` (a candidate, not confirmed)."""
        state, length = match
        while state > 0 and token not in self._next[state]:
            state = self._link[state]
            length = self._len[state]
        following = self._next[state].get(token)
        if following is None:
            return NO_MATCH
        state, length = following, length + 1
        while state > 0 and self._continuation[state] < 0:  # stands at the text's end alone
            state = self._link[state]
            length = self._len[state]
        return Match(state, length) if state > 0 else NO_MATCH

    def next_token(self, match: Match) -> int | None:
        """What followed the match when it last stood in the text; None at a wall or without a match."""
        if match.length < 1:
            return None
        at = self._continuation[match.state]
        token = self.text[at] if at >= 0 else -1
        return token if token >= 0 else None
