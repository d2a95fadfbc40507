"""A target without a model: its next token is a pure function of the last tokens.

It replaces a model where the loop, the drafters and the command line are tested, and takes milliseconds. It
keeps the real contract (KV slots of a pass after the cache, `compact`, `crop`) and reads its context through
the mask and the compacted slots. So a wrong mask, parent or compaction changes its answers, as in a real model.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence

import numpy as np

from recap.drafters.tree import CandidateTree
from recap.predictions import Predictions
from recap.targets.base import KVState, Message, Segment


class ScriptedTarget:
    """Vocabulary 0..vocab-1; 0 is blocked, 1 ends the answer (if `eos`), text is a list of numbers."""

    name, device, dtype = "scripted", "cpu", "float32"
    passes = "scripted"
    sees_images = False
    notes: tuple[str, ...] = ()
    max_context = 10_000

    def __init__(self, vocab_size: int = 40, *, seed: int = 0, order: int = 3, eos: bool = True):
        self.vocab_size, self.seed, self.order = vocab_size, seed, order
        self.eos_ids = frozenset({1}) if eos else frozenset()
        self.blocked = frozenset({0})
        self.lock = threading.RLock()
        self._known: dict[tuple[int, ...], np.ndarray] = {}

    def logits(self, context: Sequence[int]) -> np.ndarray:
        """float [vocab] from the last `order` tokens alone."""
        tail = tuple(int(t) for t in context[-self.order :])
        if tail in self._known:
            return self._known[tail]
        rng = np.random.default_rng([self.seed, *tail])
        out = rng.normal(size=self.vocab_size)
        # few successors each, so that memories have something to be right about
        favourites = rng.integers(2, self.vocab_size, size=3)
        out[favourites] += np.array([4.0, 3.0, 2.5])
        out[0] = -50.0
        out[1] = 3.0 if rng.random() < 0.05 else -50.0
        self._known[tail] = out
        return out

    def predict(self, contexts: Sequence[Sequence[int]], top_k: int) -> Predictions:
        logits = np.stack([self.logits(c) for c in contexts])
        probs = np.exp(logits - logits.max(axis=1, keepdims=True))
        probs /= probs.sum(axis=1, keepdims=True)
        ids = np.argsort(-logits, axis=1, kind="stable")
        top = ids[:, :top_k]
        return Predictions(ids[:, 0], top, np.take_along_axis(probs, top, axis=1).astype("f4"))

    def encode(
        self, messages: Sequence[Message], known: Sequence[int], answer: Sequence[int] | None
    ) -> Segment:
        try:
            ids = tuple(int(word) for word in messages[-1].text.split())
        except ValueError:
            raise ValueError("Type numbers, separated by blanks.") from None
        return Segment(ids)

    def new_state(self) -> KVState:
        return KVState(cache=[])

    def prefill(self, state, ids, segment, *, positions, top_k):
        state.cache = list(ids)
        state.length = len(ids)
        return self.predict([ids[: at + 1] for at in positions], top_k)

    def verify(self, state, tokens, depths, mask, *, top_k):
        assert mask.shape == (len(tokens), len(tokens))
        state.extra["packed"] = list(tokens)
        contexts = []
        for node in range(len(tokens)):
            seen = [tokens[j] for j in range(len(tokens)) if mask[node, j]]
            assert depths[node] == len(seen) - 1, "depth counts the ancestors"
            contexts.append([*state.cache[: state.length], *seen])
        return self.predict(contexts, top_k)

    def compact(self, state, nodes):
        packed = state.extra.pop("packed")
        del state.cache[state.length :]
        state.cache.extend(packed[node] for node in nodes)
        state.length += len(nodes)

    def crop(self, state, length):
        del state.cache[length:]
        state.length = length

    def decode(self, ids):
        return " ".join(str(i) for i in ids if i not in self.eos_ids)

    def token_text(self, token):
        return str(token)

    def greedy(self, prompt: Sequence[int], count: int) -> list[int]:
        """The reference: one token after the other, no engine."""
        context = list(prompt)
        while len(context) < len(prompt) + count:
            context.append(int(self.logits(context).argmax()))
            if context[-1] in self.eos_ids:
                break
        return context[len(prompt) :]


class HeldTarget(ScriptedTarget):
    """Its passes wait until the test sets `go`."""

    def __init__(self) -> None:
        super().__init__(seed=3, eos=False)
        self.go = threading.Event()
        self.states: list[int] = []
        """Whose pass it was, by the id of its KV state."""

    @property
    def passes(self) -> int:
        """Passes begun so far."""
        return len(self.states)

    def verify(self, state, *args, **kwargs):
        self.states.append(id(state))
        assert self.go.wait(20)
        return super().verify(state, *args, **kwargs)


def branches(tree: CandidateTree) -> list[tuple[int, ...]]:
    """The tokens from the root down to each packed node, () for the root."""
    return [tuple(tree.tokens[above] for above in tree.path(node)) for node in range(len(tree))]


def until(condition: Callable[[], bool], patience_s: float = 20.0) -> None:
    """Wait for what another thread does."""
    deadline = time.monotonic() + patience_s
    while not condition():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.001)
