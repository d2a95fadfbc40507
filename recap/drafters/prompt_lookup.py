"""Prompt lookup: a chain copied from after the longest earlier match of the tail."""

from __future__ import annotations

from collections.abc import Sequence

from ..predictions import Predictions
from ..trace import SourceCount
from .base import Drafter
from .suffix_lookup import SuffixLookup, continue_text
from .tree import CandidateTree, Contribution


class PromptLookupDrafter(Drafter):
    """Copies up to `chain` tokens that followed the longest earlier match in prompt and answer."""

    name = "prompt_lookup"
    top_k = 0
    seeds = False

    def __init__(self, vocab_size: int = 0, *, chain: int = 10) -> None:
        self.chain = chain
        self._lookup = SuffixLookup()
        self._terminal: frozenset[int] = frozenset()
        self._last = -1
        self._lookups = 0

    def reset(self) -> None:
        self._lookup = SuffixLookup(self._lookup.blocked)

    def begin(
        self, prompt: Sequence[int], *, blocked: frozenset[int], terminal: frozenset[int]
    ) -> None:
        self._lookup = SuffixLookup(blocked)
        self._terminal = terminal
        self.confirm(prompt)

    def confirm(self, tokens: Sequence[int]) -> None:
        self._lookup.extend(tokens)
        self._last = tokens[-1]

    def propose(self, *, limit: int, record: bool) -> CandidateTree:
        copied, self._lookups = continue_text(self._lookup.automaton, min(self.chain, limit))
        tokens = copied.tolist()
        ends = [count for count, token in enumerate(tokens, start=1) if token in self._terminal]
        if ends:
            del tokens[ends[0] :]
            self._lookups = ends[0]
        count = len(tokens) + 1
        contributions = (Contribution("lookup", 1.0, 1.0, 1.0),) if record else ()
        return CandidateTree(
            [self._last, *tokens],
            list(range(-1, count - 1)),
            list(range(count)),
            lambda: [("lookup", 1.0, 0, contributions)] * (count - 1),
        )

    def observe(
        self, tree: CandidateTree, predictions: Predictions, accepted: Sequence[int]
    ) -> dict[str, SourceCount]:
        return {"lookup": SourceCount(self._lookups, len(tree) - 1, len(accepted))}
