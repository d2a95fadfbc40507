"""Prompt lookup: a chain copied from behind the longest earlier match of the tail."""

from __future__ import annotations

from collections.abc import Sequence

from ..lookup import SuffixLookup
from ..trace import LevelCount
from ..tree import ROOT, CandidateTree, TreeBuilder, Vote
from .base import Predictions


class PromptLookupDrafter:
    """Copies up to `chain` tokens that followed the longest earlier match in prompt + answer."""

    name = "prompt_lookup"
    top_k = 0
    seeds = False

    def __init__(self, chain: int = 10) -> None:
        self.chain = chain
        self._text = SuffixLookup()
        self._last = -1
        self._lookups = 0

    def reset(self) -> None:
        self._text = SuffixLookup(self._text.blocked)

    def begin(
        self, prompt: Sequence[int], *, blocked: frozenset[int], terminal: frozenset[int]
    ) -> None:
        self._text = SuffixLookup(blocked)
        self._terminal = terminal
        self.confirm(prompt)

    def seed(self, positions: Sequence[int], predictions: Predictions) -> None:
        pass

    def confirm(self, tokens: Sequence[int]) -> None:
        self._text.extend(tokens)
        self._last = tokens[-1]

    def propose(self, *, limit: int, record: bool) -> CandidateTree:
        grown = TreeBuilder(self._last)
        match = self._text.tail()
        at = ROOT
        self._lookups = 0
        while len(grown) < min(self.chain, limit):
            token = self._text.next_token(match)
            self._lookups += 1
            if token is None:
                break
            votes = (Vote("lookup", 1.0, 1.0, 1.0),) if record else ()
            at = grown.add(at, token, source="lookup", score=1.0, votes=votes)
            if token in self._terminal:
                break
            match = self._text.step(match, token)
        return grown.pack()

    def observe(
        self, tree: CandidateTree, predictions: Predictions, accepted: Sequence[int]
    ) -> dict[str, LevelCount]:
        return {"lookup": LevelCount(self._lookups, len(tree) - 1, len(accepted))}
