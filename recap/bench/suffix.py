"""Suffix decoding of PyPI's `arctic-inference` as a drafter: its cache proposes, our engine verifies.

Its own engine is vLLM. The library must be installed; it is imported when a drafter is made.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..drafters.tree import ROOT, CandidateTree, TreeBuilder
from ..predictions import Predictions
from ..trace import SourceCount


class SuffixDrafter:
    """arctic-inference's suffix trees (prompt and answer of this request, answers of earlier ones) as a drafter.

    tokens: most candidates a pass. factor: candidates a matched token. The tree is the library's own.
    """

    name = "arctic_suffix"
    top_k = 0
    seeds = False
    depth = 64

    def __init__(self, *, tokens: int, factor: float) -> None:
        self.tokens, self.factor = tokens, factor
        self._answers: list[list[int]] = []
        self.reset()

    def reset(self) -> None:
        from arctic_inference.suffix_decoding import SuffixDecodingCache

        self._cache = SuffixDecodingCache(max_tree_depth=self.depth)
        self._request = -1
        self._answers.clear()
        self._context: list[int] = []

    def __getstate__(self) -> dict[str, Any]:
        return {"tokens": self.tokens, "factor": self.factor, "answers": self._answers}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(tokens=state["tokens"], factor=state["factor"])
        for answer in state["answers"]:  # the library's trees cannot be pickled: grown again
            self._start([], frozenset())
            self.confirm(answer)

    def _start(self, prompt: Sequence[int], blocked: frozenset[int]) -> None:
        if self._request >= 0:
            self._cache.stop_request(self._request)
        self._request += 1
        self._cache.start_request(self._request, list(prompt))
        self._blocked = blocked
        self._context = list(prompt[-self.depth :])
        self._answers.append([])

    def begin(
        self, prompt: Sequence[int], *, blocked: frozenset[int], terminal: frozenset[int]
    ) -> None:
        self._terminal = terminal
        self._start(prompt, blocked)

    def seed(self, positions: Sequence[int], predictions: Predictions) -> None:
        pass

    def confirm(self, tokens: Sequence[int]) -> None:
        tokens = list(tokens)
        self._cache.add_active_response(self._request, tokens)
        self._answers[-1] += tokens
        self._context = [*self._context, *tokens][-self.depth :]

    def propose(self, *, limit: int, record: bool) -> CandidateTree:
        grown = TreeBuilder(self._context[-1])
        if limit < 1:
            return grown.pack()
        draft = self._cache.speculate(
            self._request,
            self._context,
            max_spec_tokens=self.tokens,
            max_spec_factor=self.factor,
            use_tree_spec=True,
        )
        at = {-1: (ROOT, 0)}  # node of the draft -> handle, depth; what is left out has no children
        rows = zip(draft.token_ids, draft.parents, draft.probs, strict=True)
        for node, (token, parent, chance) in enumerate(rows):
            handle, depth = at.get(parent, (None, limit))
            if handle is None or depth >= limit or token in self._blocked:
                continue
            handle = grown.add(handle, token, source="lookup", score=chance)
            if token not in self._terminal:
                at[node] = (handle, depth + 1)
        return grown.pack()

    def observe(
        self, tree: CandidateTree, predictions: Predictions, accepted: Sequence[int]
    ) -> dict[str, SourceCount]:
        return {"lookup": SourceCount(1, int(len(tree) > 1), len(accepted))}
