"""What one answer was made of: plain records, and their form as NDJSON (one line a record).

The page, the benchmark and the tests read these records and nothing else. No torch, no Gradio.

A trace is the lines `start`, `step` (one a pass) and `turn`, in that order, for each run of a turn; then
perhaps a line `swap`: {image: the name of one that stood in for the turn's, ids: the answer's tokens,
changes: for each of them whether the target, led along the answer, would choose another there}. The
field `type` tells lines apart. Lines are only ever appended, so a live view and a replay read the same string.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field
from typing import Any

FORMAT = 2
"""Version of the NDJSON form, in the `start` line."""

SOURCES = ("3-token", "2-token", "1-token", "lookup", "runner-up")
"""Recap's sources: the three memories, the lookup, and, where none of these answers, the runners-up of
the place before. Token Recycling has the one level "table"."""


@dataclass(frozen=True, slots=True)
class SourceCount:
    """How often one source was asked, answered, and was right.

    `lookups`: places in a tree where the source was asked for the next token. `hits`: of these, the
    places where it had an answer. `accepted`: of these, the places where a token of its answer stood
    in the tree and was confirmed by the target. So lookups >= hits >= accepted.
    """

    lookups: int = 0
    hits: int = 0
    accepted: int = 0

    def __add__(self, other: SourceCount) -> SourceCount:
        return SourceCount(
            self.lookups + other.lookups, self.hits + other.hits, self.accepted + other.accepted
        )


@dataclass(frozen=True, slots=True)
class StepNode:
    """One packed row as shown: row 0 is the root (parent -1, depth 0, source "root").

    `contributions` holds what each level said: (level, weight in the mixture, probability it gives this
    token, confidence of its row).
    """

    token: int
    text: str
    parent: int
    depth: int
    source: str
    score: float
    rank: int = 0
    contributions: tuple[tuple[str, float, float, float], ...] = ()


@dataclass(frozen=True, slots=True)
class Step:
    """One pass of the target.

    `accepted`: packed rows that were confirmed, in order, root excluded. `own`: the target's own next
    token after them. `token_ids`, `texts`: what the answer grew by, that is the accepted tokens and
    `own`, cut at an end-of-answer token or at max_new_tokens. Times in seconds: `draft_s` proposing,
    `verify_s` the packed pass with its device-to-host copy, `observe_s` memory update and KV
    compaction. `nodes` is empty when recording is off; `rows` counts the packed rows always. `known`: what was
    known behind the root and each accepted row, where the target judged: (row, {source: ((text, probability),
    ...)}), best first, "mixed" being what the sources came to.
    """

    index: int
    packed_tokens: int
    accepted: tuple[int, ...]
    bonus: int
    bonus_text: str
    token_ids: tuple[int, ...]
    texts: tuple[str, ...]
    sources: dict[str, SourceCount]
    draft_s: float
    verify_s: float
    observe_s: float
    nodes: tuple[StepNode, ...] = ()
    stored: tuple[tuple[int, dict[str, tuple[tuple[str, float], ...]]], ...] = ()

    @property
    def seconds(self) -> float:
        """Decoding time of this pass: draft, verify and observe."""
        return self.draft_s + self.verify_s + self.observe_s


@dataclass(frozen=True, slots=True)
class Turn:
    """One finished answer.

    `token_ids` includes the end-of-answer token if the target emitted one. The first token comes from
    the prefill; `passes` counts the decoding passes after it, so plain decoding has exactly
    (tokens - 1) passes and `tokens_per_pass` 1.0. `decode_s` sums draft, verify and observe times;
    `prefill_s` holds image encoding, prompt, and what the drafter makes of the prompt. `finish_reason`: "eos", "length", "stopped" or
    "failed" (an error broke the answer off). `wait_s`: seconds that its passes waited for passes of others.
    """

    decoder: str
    model: str
    device: str
    dtype: str
    text: str
    token_ids: tuple[int, ...]
    prompt_tokens: int
    cached_tokens: int
    passes: int
    prefill_s: float
    decode_s: float
    finish_reason: str
    wait_s: float = 0.0
    sources: dict[str, SourceCount] = field(default_factory=dict)

    @property
    def tokens(self) -> int:
        """Answer tokens, the end-of-answer token included."""
        return len(self.token_ids)

    @property
    def tokens_per_pass(self) -> float:
        """Tokens after the first, by decoding passes; 1.0 for plain decoding, 0.0 without a pass."""
        return (self.tokens - 1) / self.passes if self.passes else 0.0

    @property
    def tokens_per_s(self) -> float:
        """Decoding speed after the first token, prefill apart; 0.0 without a pass."""
        return (self.tokens - 1) / self.decode_s if self.passes and self.decode_s > 0 else 0.0

    def as_dict(self) -> dict[str, Any]:
        """Plain data for JSON, derived figures included."""
        data = asdict(self)
        data["token_ids"] = list(self.token_ids)
        data["tokens"] = self.tokens
        data["tokens_per_pass"] = round(self.tokens_per_pass, 4)
        data["tokens_per_s"] = round(self.tokens_per_s, 2)
        return data


def start_line(*, decoder: str, model: str, device: str, dtype: str, **more: Any) -> str:
    """The first line of a trace; `more` may hold first_token, first_text, prompt_tokens, ..."""
    head = {"type": "start", "format": FORMAT, "decoder": decoder, "model": model}
    return dumps(head | {"device": device, "dtype": dtype} | more)


def step_line(step: Step) -> str:
    """One step as one line. Nodes and contributions travel as arrays to stay small:

    node = [token, text, parent, depth, source, score, rank, contributions],
    vote = [level, weight, probability, confidence],
    known = [row, {source: [[text, probability], ...]}].
    """
    data = {
        "type": "step",
        "index": step.index,
        "packed_tokens": step.packed_tokens,
        "accepted": step.accepted,
        "bonus": step.bonus,
        "bonus_text": step.bonus_text,
        "token_ids": step.token_ids,
        "texts": step.texts,
        "sources": {k: [v.lookups, v.hits, v.accepted] for k, v in step.sources.items()},
        "ms": [round(1e3 * s, 3) for s in (step.draft_s, step.verify_s, step.observe_s)],
        "nodes": [
            [
                n.token,
                n.text,
                n.parent,
                n.depth,
                n.source,
                round(n.score, 5),
                n.rank,
                [[v[0], round(v[1], 4), _brief(v[2]), round(v[3], 4)] for v in n.contributions],
            ]
            for n in step.nodes
        ],
        "stored": [
            [row, {name: [[t, _brief(p)] for t, p in row_] for name, row_ in said.items()}]
            for row, said in step.stored
        ],
    }
    return dumps(data)


def _brief(probability: float) -> float:
    """Four places; what is not nothing does not become it.

    >>> [_brief(p) for p in (0.0, 1e-9, 0.12346)]
    [0.0, 0.0001, 0.1235]
    """
    return max(round(probability, 4), 1e-4) if probability > 0.0 else 0.0


def turn_line(turn: Turn) -> str:
    """The last line of a trace."""
    return dumps({"type": "turn"} | turn.as_dict())


def dumps(data: dict[str, Any]) -> str:
    """One line of JSON that is safe inside HTML too (`<` is escaped, so no tag can end)."""
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"))
    text = text.encode("utf-8", "replace").decode("utf-8")  # lone surrogates become "?"
    return text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")


def parse(lines: str | Iterable[str]) -> Iterator[dict[str, Any]]:
    """The records of a trace. Raises ValueError with the line number at a line that is not JSON."""
    for number, line in enumerate(lines.split("\n") if isinstance(lines, str) else lines, 1):
        if not line.strip():
            continue
        try:
            yield json.loads(line)
        except json.JSONDecodeError as error:
            raise ValueError(f"Line {number} of the trace is not JSON: {error.msg}.") from None


def add_counts(
    total: dict[str, SourceCount], more: dict[str, SourceCount]
) -> dict[str, SourceCount]:
    """Sum two level counts, key by key."""
    return {k: total.get(k, SourceCount()) + more.get(k, SourceCount()) for k in {**total, **more}}
