"""What one answer was made of: plain records, and their form as NDJSON (one record per line).

The page, the benchmark and the tests read these records and nothing else. No torch, no Gradio.

A trace holds the lines `start`, `step` (one per pass) and `turn`, in that order, for each run of a turn. A line
`swap` may follow: {image: the name of an image that replaced the turn's, ids: the answer's tokens, changes:
for each of them whether the target, teacher-forced along the answer, would choose another one}. The field
`type` tells lines apart. Lines are only ever appended, so a live view and a replay read the same string.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field
from typing import Any

FORMAT = 2
"""Version of the NDJSON form, in the `start` line."""

SOURCES = ("3-token", "2-token", "1-token", "lookup", "runner-up")
"""Recap's sources: the three memories, the lookup, and, where none of these has an answer, the runners-up of
the parent's prediction. Token Recycling has the one source "table"."""


@dataclass(frozen=True, slots=True)
class SourceCount:
    """How often one source was asked, answered, and was right.

    lookups: nodes at which the source was asked for the next token. hits: how many of them it had an answer
    for. accepted: how many of these had a token of the answer in the tree and confirmed by the target. So
    lookups >= hits >= accepted.
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
    """One packed token as shown: node 0 is the root (parent -1, depth 0, source "root").

    contributions: what each source gives this candidate, (source, weight in the mixture, probability,
    confidence of its stored prediction).
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

    accepted: the confirmed nodes in order, without the root. bonus: the target's own next token after them.
    token_ids, texts: what was added to the answer, that is the accepted tokens and the bonus token, cut at an
    end-of-answer token. Times in seconds: draft_s for proposing, verify_s for the packed pass with its
    device-to-host copy, observe_s for KV compaction and the drafter's update. nodes: empty when recording is
    off; packed_tokens always counts them. stored: the predictions that were stored for the root and each
    accepted node, (node, {source: ((text, probability), ...)}), best first; "mixed" is their mixture.
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

    token_ids: includes the end-of-answer token if the target emitted one. passes: decoding passes after the
    first token, which comes from the prefill; plain decoding has exactly (tokens - 1) and 1.0 tokens per pass.
    prefill_s: image encoding, prompt, and what the drafter makes of the prompt. decode_s: the passes' draft,
    verify and observe times. wait_s: how long they waited for other passes on the device. finish_reason: "eos",
    "length", "stopped" or "failed", see `engine.Answer`.
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
        """Tokens after the first, divided by passes; 1.0 for plain decoding, 0.0 without a pass."""
        return (self.tokens - 1) / self.passes if self.passes else 0.0

    @property
    def tokens_per_s(self) -> float:
        """Decoding speed after the first token, without the prefill; 0.0 without a pass."""
        return (self.tokens - 1) / self.decode_s if self.passes and self.decode_s > 0 else 0.0

    def as_dict(self) -> dict[str, Any]:
        """Plain data for JSON, with the derived figures."""
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
    """One step as one line. Nodes and contributions are arrays, which keeps the line small:

    node = [token, text, parent, depth, source, score, rank, contributions],
    contribution = [source, weight, probability, confidence],
    stored = [node, {source: [[text, probability], ...]}].
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
        "nodes": [_node(node) for node in step.nodes],
        "stored": [
            [node, {name: [[t, _brief(p)] for t, p in row] for name, row in stored.items()}]
            for node, stored in step.stored
        ],
    }
    return dumps(data)


def _node(n: StepNode) -> list[Any]:
    contributions = [[s, round(w, 4), _brief(p), round(c, 4)] for s, w, p, c in n.contributions]
    place = [n.token, n.text, n.parent, n.depth, n.source]
    return [*place, round(n.score, 5), n.rank, contributions]


def _brief(probability: float) -> float:
    """Rounded to four digits; a positive probability stays positive.

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
    """The records of a trace.

    Raises ValueError with one sentence for a file that is no trace of this format, and with the line number at
    a line that is not a record.
    """
    started = False
    for number, line in enumerate(lines.split("\n") if isinstance(lines, str) else lines, 1):
        if not line.strip():
            continue
        try:
            record = json.loads(line)
        except json.JSONDecodeError as error:
            raise ValueError(f"Line {number} of the trace is not JSON: {error.msg}.") from None
        kind = record.get("type") if isinstance(record, dict) else None
        if kind == "start" and record.get("format") != FORMAT:
            raise ValueError(
                f"This trace has format {record.get('format', 1)}, and format {FORMAT} is read here: record it again."
            )
        started = started or kind == "start"
        if not started:
            raise ValueError("This is not a Recap trace: its first line is not a start record.")
        if kind not in ("start", "step", "turn", "swap"):
            raise ValueError(f"Line {number} of the trace is not a record of a trace.")
        yield record
    if not started:
        raise ValueError("This is not a Recap trace: it is empty.")


def add_counts(
    total: dict[str, SourceCount], more: dict[str, SourceCount]
) -> dict[str, SourceCount]:
    """Sum the counts of two passes, source by source."""
    return {k: total.get(k, SourceCount()) + more.get(k, SourceCount()) for k in {**total, **more}}
