"""What drafting costs without a model: time per step, and what Recap's memories weigh.

    python -m recap.bench.overhead [--nodes 63] [--vocab 151936] [--steps 400]

The predictions are synthetic (a fixed random successor table with a realistic decay), the drafters and the
tree are the real ones. Top-k over the vocabulary belongs to the pass and is not in these figures. A memory is
weighed full, by what letting it go frees (`tracemalloc`), Python objects included.
"""

from __future__ import annotations

import argparse
import gc
import json
import statistics
import sys
import time
import tracemalloc
from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from ..drafters import Drafter, make_drafter
from ..drafters.recap.config import RecapConfig
from ..drafters.recap.drafter import RecapDrafter
from ..predictions import Predictions

PROFILE = np.array([0.42, 0.17, 0.09, 0.06, 0.04, 0.03, 0.02, 0.02], np.float32)
"""Probabilities of the best eight tokens."""

WARM_STEPS = 200
"""Steps before the clock counts."""

LIMITS_MB = {"persistent_mb": 32.0, "request_mb": 50.0}
"""Most that the memories may weigh at the default sizes, in units of 10^6 bytes."""


class SyntheticLanguage:
    """Successors by the last token over a subset of the vocabulary, shuffled a little at random."""

    def __init__(self, vocab: int) -> None:
        self.rng = np.random.default_rng(0)
        words = min(2000, vocab)
        self.words = self.rng.choice(vocab, size=words, replace=False)
        self.index = np.full(vocab, 0)
        self.index[self.words] = np.arange(words)
        self.table = np.stack([self.rng.permutation(words)[:8] for _ in range(words)])

    def begin(self, drafter: Drafter) -> None:
        """Give the drafter a prompt of 300 random words and a first token."""
        prompt = self.words[self.rng.integers(0, len(self.words), size=300)].tolist()
        drafter.begin(prompt, blocked=frozenset(), terminal=frozenset())
        drafter.confirm([prompt[0]])

    def predict(self, tokens: Sequence[int]) -> Predictions:
        ids = self.words[self.table[self.index[np.asarray(tokens)]]]
        swapped = self.rng.random(len(tokens)) < 0.3
        ids[swapped, :2] = ids[swapped, 1::-1]
        return Predictions(ids[:, 0], ids, np.tile(PROFILE, (len(tokens), 1)))

    def step(self, drafter: Drafter, *, record: bool = False) -> tuple[int, float, float]:
        """One step -> packed tokens, milliseconds of drafting and of observing."""
        begun = time.perf_counter()
        tree = drafter.propose(limit=1000, record=record)
        tree.ancestor_mask()
        drafted = time.perf_counter()
        predictions = self.predict(tree.tokens)
        verified = time.perf_counter()
        accepted, bonus = tree.accept(predictions.choice)
        drafter.observe(tree, predictions, accepted)
        drafter.confirm([*(tree.tokens[node] for node in accepted), bonus])
        observed = time.perf_counter()
        return len(tree), 1e3 * (drafted - begun), 1e3 * (observed - verified)


def step_times(
    decoder: str, *, nodes: int, vocab: int, steps: int, record: bool
) -> dict[str, float]:
    """Median and 95th percentile of milliseconds per step."""
    settings = {"config": RecapConfig(budget=nodes)} if decoder == "recap" else {}
    drafter, language = (
        make_drafter(decoder, vocab_size=vocab, **settings),
        SyntheticLanguage(vocab),
    )
    language.begin(drafter)
    timed = [language.step(drafter, record=record) for _ in range(WARM_STEPS + steps)]
    packed, draft, observe = zip(*timed[WARM_STEPS:], strict=True)
    both = [a + b for a, b in zip(draft, observe, strict=True)]
    return {
        "packed_tokens": statistics.median(packed),
        "draft_ms": round(statistics.median(draft), 3),
        "observe_ms": round(statistics.median(observe), 3),
        "both_ms": round(statistics.median(both), 3),
        "both_p95_ms": round(float(np.percentile(both, 95)), 3),
    }


def memory_sizes(*, vocab: int, config: RecapConfig) -> dict[str, float]:
    """Megabytes (10^6 bytes) of Recap's memories after a prompt that fills them twice with distinct keys.

    persistent_mb: the 1-token memory. request_mb: the 2- and 3-token memory. lookup_mb: the suffix automaton
    over that prompt.
    """
    rng = np.random.default_rng(0)
    prompt = rng.integers(0, vocab, size=2 * config.request_capacity).tolist()
    ids = rng.integers(0, vocab, size=(len(prompt), config.top_k))
    probs = np.resize(PROFILE, ids.shape)
    tracemalloc.start()
    try:
        drafter = RecapDrafter(vocab, config)
        drafter.begin(prompt, blocked=frozenset(), terminal=frozenset())
        drafter.seed(range(len(prompt)), Predictions(ids[:, 0], ids, probs))
        parts = {"request_mb": "request", "persistent_mb": "memory", "lookup_mb": "lookup"}
        return {name: _freed(partial(setattr, drafter, part, None)) for name, part in parts.items()}
    finally:
        tracemalloc.stop()


def _freed(drop: Callable[[], object]) -> float:
    """Megabytes that dropping something frees: all that it alone kept alive."""
    gc.collect()
    before = tracemalloc.get_traced_memory()[0]
    drop()
    gc.collect()
    return round((before - tracemalloc.get_traced_memory()[0]) / 1e6, 2)


def main(argv: Sequence[str] | None = None) -> int:
    """Print times and sizes -> exit status, 1 where a memory is above its limit."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nodes", type=int, default=63, help="Recap's candidates per pass")
    parser.add_argument("--vocab", type=int, default=151_936, help="tokens of the vocabulary")
    parser.add_argument("--steps", type=int, default=400, help="steps to time")
    options = parser.parse_args(argv)
    for decoder in ("recap", "token_recycling"):
        for record in (False, True):
            what = {"nodes": options.nodes, "vocab": options.vocab, "steps": options.steps}
            times = step_times(decoder, **what, record=record)
            print(json.dumps({"decoder": decoder, "record": record, **times}))
    config = RecapConfig(budget=options.nodes)
    sizes = memory_sizes(vocab=options.vocab, config=config)
    print(json.dumps(sizes))
    above = [name for name, limit in LIMITS_MB.items() if sizes[name] > limit]
    for name in above:
        print(f"recap: {name} is {sizes[name]}, above {LIMITS_MB[name]}.", file=sys.stderr)
    return 1 if above else 0


if __name__ == "__main__":
    sys.exit(main())
