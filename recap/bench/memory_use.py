"""What Recap's memories weigh, allocated by a long synthetic request at a real vocabulary's size.

    python -m recap.bench.memory_use [--vocab 151936] [--top-k 8] [--tokens 4000] [--nodes 63]

The drafter is the real one, the target's predictions are synthetic (`overhead`). A memory's size is what
letting it go frees (`tracemalloc`), Python objects included. Both memories are bounded by
the config: the persistent one by the vocabulary and top_k, the request-local one by request_rows.
"""

from __future__ import annotations

import argparse
import gc
import json
import sys
import tracemalloc
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from ..drafters.recap.config import RecapConfig
from ..drafters.recap.drafter import RecapDrafter
from ..drafters.recap.memory import RequestMemory, key2, key3
from .overhead import SyntheticLanguage

LIMITS_MB = {"persistent_mb": 32.0, "request_mb": 50.0, "request_full_mb": 50.0}
"""What the memories may weigh at the default sizes, in units of 10^6 bytes."""


def measure(*, vocab: int, tokens: int, config: RecapConfig, seed: int = 0) -> dict[str, Any]:
    """Sizes after one request of `tokens` generated tokens -> megabytes (10^6 bytes) by name.

    persistent_mb: the 1-token memory. request_mb: the 2- and 3-token memory; request_full_mb: the same with
    every row of its ring in use under keys of its own, which is its bound. lookup_mb: the suffix
    automaton over prompt and answer, no memory of predictions, but as long-lived as the request.
    """
    language = SyntheticLanguage(vocab, words=min(2000, vocab), seed=seed)
    prompt = language.prompt(300)
    tracemalloc.start()
    try:
        drafter = RecapDrafter(vocab, config)
        drafter.begin(prompt, blocked=frozenset(), terminal=frozenset())
        drafter.confirm([prompt[0]])
        grown = rows = passes = 0
        while grown < tokens:
            tree = drafter.propose(limit=1000, record=False)
            predictions = language.predict(tree.tokens)
            accepted, own = tree.accept(predictions.choice)
            drafter.observe(tree, predictions, accepted)
            drafter.confirm([*(tree.tokens[row] for row in accepted), own])
            grown, rows, passes = grown + len(accepted) + 1, rows + len(tree), passes + 1
        keys = len(drafter.request)
        parts = {"request_mb": "request", "persistent_mb": "memory", "lookup_mb": "lookup"}
        sizes = {
            name: _freed(partial(setattr, drafter, part, None)) for name, part in parts.items()
        }
        full = [_full(config, seed)]
        sizes["request_full_mb"] = _freed(full.clear)
    finally:
        tracemalloc.stop()
    return {
        "vocab": vocab,
        "top_k": config.top_k,
        "request_rows": config.request_rows,
        "tokens": grown,
        "passes": passes,
        "rows_verified": rows,
        "request_keys": keys,
        **sizes,
    }


def _full(config: RecapConfig, seed: int) -> RequestMemory:
    """A request-local memory that has wrapped around once, no two rows with a key in common."""
    request = RequestMemory(config.top_k, config.request_rows)
    rng = np.random.default_rng(seed)
    for _ in range(0, 2 * config.request_rows, 64):
        tails = rng.integers(0, 1 << 20, size=(64, 3)).tolist()
        ids = np.zeros((64, config.top_k), np.int64)
        probs = np.zeros((64, config.top_k), np.float32)
        keys = [(key2(b, c), key3(a, b, c)) for a, b, c in tails]
        request.write(keys, ids, probs, probs[:, 0])
    return request


def _freed(drop: Callable[[], object]) -> float:
    """Megabytes that dropping something frees: all that it alone kept alive."""
    gc.collect()
    before = tracemalloc.get_traced_memory()[0]
    drop()
    gc.collect()
    return round((before - tracemalloc.get_traced_memory()[0]) / 1e6, 2)


def main(argv: Sequence[str] | None = None) -> int:
    """Print the sizes -> exit status, 1 where one is above its limit."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--vocab", type=int, default=151_936)
    parser.add_argument("--top-k", type=int, default=RecapConfig().top_k)
    parser.add_argument("--tokens", type=int, default=4000)
    parser.add_argument("--nodes", type=int, default=RecapConfig().budget)
    parser.add_argument("--request-rows", type=int, default=RecapConfig().request_rows)
    options = parser.parse_args(argv)
    config = RecapConfig(
        top_k=options.top_k, budget=options.nodes, request_rows=options.request_rows
    )
    sizes = measure(vocab=options.vocab, tokens=options.tokens, config=config)
    print(json.dumps(sizes))
    above = [name for name, limit in LIMITS_MB.items() if sizes[name] > limit]
    for name in above:
        print(f"recap: {name} is {sizes[name]}, above {LIMITS_MB[name]}.", file=sys.stderr)
    return 1 if above else 0


if __name__ == "__main__":
    sys.exit(main())
