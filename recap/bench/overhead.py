"""What drafting costs: propose + observe per step, without a model.

    python -m recap.bench.overhead [--nodes 63] [--vocab 151936] [--steps 400]

The predictions are synthetic (a fixed random successor table with a realistic decay), the drafters and
the tree are the real ones. Top-k over the vocabulary belongs to the pass and is not in these figures.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time

import numpy as np

from ..drafters import make_drafter
from ..drafters.recap.config import RecapConfig
from ..predictions import Predictions

_PROFILE = np.array([0.42, 0.17, 0.09, 0.06, 0.04, 0.03, 0.02, 0.02], np.float32)


class SyntheticLanguage:
    """Successors by the last token over a subset of the vocabulary, shuffled a little by the rng."""

    def __init__(self, vocab: int, words: int, seed: int = 0) -> None:
        self.rng = np.random.default_rng(seed)
        self.words = self.rng.choice(vocab, size=words, replace=False)
        self.place = np.full(vocab, 0)
        self.place[self.words] = np.arange(words)
        self.table = np.stack([self.rng.permutation(words)[:8] for _ in range(words)])

    def prompt(self, count: int) -> list[int]:
        """That many words, drawn at random."""
        return self.words[self.rng.integers(0, len(self.words), size=count)].tolist()

    def predict(self, tokens: list[int]) -> Predictions:
        ids = self.words[self.table[self.place[np.asarray(tokens)]]]
        swapped = self.rng.random(len(tokens)) < 0.3
        ids[swapped, 0], ids[swapped, 1] = ids[swapped, 1].copy(), ids[swapped, 0].copy()
        return Predictions(ids[:, 0], ids, np.tile(_PROFILE, (len(tokens), 1)))


def measure(decoder: str, *, nodes: int, vocab: int, steps: int, record: bool) -> dict[str, float]:
    """Median and 95th percentile of milliseconds a step -> figures by name."""
    language = SyntheticLanguage(vocab, words=2000)
    settings = {"config": RecapConfig(budget=nodes)} if decoder == "recap" else {}
    drafter = make_drafter(decoder, vocab_size=vocab, **settings)
    prompt = language.prompt(300)
    drafter.begin(prompt, blocked=frozenset(), terminal=frozenset())
    drafter.confirm([prompt[0]])
    draft, observe, rows = [], [], []
    for step in range(steps + 200):
        begun = time.perf_counter()
        tree = drafter.propose(limit=1000, record=record)
        tree.ancestor_mask()
        drafted = time.perf_counter()
        predictions = language.predict(tree.tokens)
        verified = time.perf_counter()
        accepted, own = tree.accept(predictions.choice)
        drafter.observe(tree, predictions, accepted)
        drafter.confirm([*(tree.tokens[row] for row in accepted), own])
        observed = time.perf_counter()
        if step >= 200:  # the memories are warm by then
            draft.append(1e3 * (drafted - begun))
            observe.append(1e3 * (observed - verified))
            rows.append(len(tree))
    both = [a + b for a, b in zip(draft, observe, strict=True)]
    return {
        "rows": statistics.median(rows),
        "draft_ms": round(statistics.median(draft), 3),
        "observe_ms": round(statistics.median(observe), 3),
        "both_ms": round(statistics.median(both), 3),
        "both_p95_ms": round(float(np.percentile(both, 95)), 3),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nodes", type=int, default=63)
    parser.add_argument("--vocab", type=int, default=151_936)
    parser.add_argument("--steps", type=int, default=400)
    options = parser.parse_args()
    for decoder in ("recap", "token_recycling"):
        for record in (False, True):
            figures = measure(
                decoder,
                nodes=options.nodes,
                vocab=options.vocab,
                steps=options.steps,
                record=record,
            )
            print(json.dumps({"decoder": decoder, "record": record, **figures}))


if __name__ == "__main__":
    main()
