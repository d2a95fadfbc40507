"""Suffix decoding of PyPI's `arctic-inference` as a drafter: its cache proposes, our engine verifies.

Its own engine is vLLM. The library must be installed; it is imported when a drafter is made.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module

from ..drafters.tree import ROOT, CandidateTree, TreeBuilder
from ..predictions import Predictions
from ..trace import SourceCount

DEPTH = 64
"""Longest suffix that is looked up."""


class SuffixDrafter:
    """arctic-inference's suffix trees (prompt and answer of this request, earlier answers) as a drafter.

    tokens: most candidates per pass. factor: candidates per matched token. The tree is the library's own.
    """

    name = "arctic_suffix"
    top_k = 0
    seeds = False

    def __init__(self, *, tokens: int, factor: float) -> None:
        self.tokens, self.factor = tokens, factor
        self._library = import_module("arctic_inference.suffix_decoding")
        self.reset()

    def reset(self) -> None:
        self._cache = self._library.SuffixDecodingCache(max_tree_depth=DEPTH)
        self._request = -1
        self._context: list[int] = []

    def begin(
        self, prompt: Sequence[int], *, blocked: frozenset[int], terminal: frozenset[int]
    ) -> None:
        if self._request >= 0:
            self._cache.stop_request(self._request)
        self._request += 1
        self._cache.start_request(self._request, list(prompt))
        self._blocked, self._terminal = blocked, terminal
        self._context = list(prompt[-DEPTH:])

    def seed(self, positions: Sequence[int], predictions: Predictions) -> None:
        """It keeps no predictions."""

    def confirm(self, tokens: Sequence[int]) -> None:
        self._cache.add_active_response(self._request, list(tokens))
        self._context = [*self._context, *tokens][-DEPTH:]

    def propose(self, *, limit: int, record: bool) -> CandidateTree:
        builder = TreeBuilder(self._context[-1])
        if limit < 1:
            return builder.pack()
        draft = self._cache.speculate(
            self._request,
            self._context,
            max_spec_tokens=self.tokens,
            max_spec_factor=self.factor,
            use_tree_spec=True,
        )
        added = {
            -1: (ROOT, 0)
        }  # node of the draft -> handle, depth; a node left out has no children
        nodes = zip(draft.token_ids, draft.parents, draft.probs, strict=True)
        for node, (token, parent, probability) in enumerate(nodes):
            handle, depth = added.get(parent, (None, limit))
            if handle is None or depth >= limit or token in self._blocked:
                continue
            handle = builder.add(handle, token, source="lookup", score=probability)
            if token not in self._terminal:
                added[node] = (handle, depth + 1)
        return builder.pack()

    def observe(
        self, tree: CandidateTree, predictions: Predictions, accepted: Sequence[int]
    ) -> dict[str, SourceCount]:
        return {"lookup": SourceCount(1, int(len(tree) > 1), len(accepted))}
