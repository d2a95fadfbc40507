"""`python -m recap bench`: decoders over a suite, from the same state, prefill apart from decoding.

Each sample is one conversation. At every turn all decoders answer from the same KV state on forks of
it; the conversation goes on with the answer of the last decoder named (plain decoding by default), so
all of them see the same history. The order of
decoders rotates with the sample. Memories that persist do so over the samples, per decoder. Recording
is off while the clock runs; the clock is read after the device's results are on the host.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..chat import Conversation
from ..compare import answer_apart, first_difference
from ..drafters import DECODERS, Drafter
from ..targets.base import Target
from ..trace import LevelCount, Turn, add_levels
from .ablations import ablated, bootstrap
from .suites import Sample, load_suite


@dataclass
class Tally:
    """One decoder's sums over a suite."""

    tokens: int = 0
    passes: int = 0
    rows: int = 0
    decode_s: float = 0.0
    draft_ms: list[float] = field(default_factory=list)
    verify_ms: list[float] = field(default_factory=list)
    observe_ms: list[float] = field(default_factory=list)
    levels: dict[str, LevelCount] = field(default_factory=dict)
    differences: list[dict[str, Any]] = field(default_factory=list)

    def figures(self, plain: Tally | None) -> dict[str, Any]:
        """The figures of the report; speedup against plain decoding in the same run."""
        speed = self.tokens / self.decode_s if self.decode_s else 0.0
        base = plain.tokens / plain.decode_s if plain and plain.decode_s else 0.0
        return {
            "tokens": self.tokens,
            "passes": self.passes,
            "tokens_per_pass": round(self.tokens / self.passes, 3) if self.passes else 0.0,
            "rows_per_pass": round(self.rows / self.passes, 1) if self.passes else 0.0,
            "decode_tokens_per_s": round(speed, 2),
            "speedup": round(speed / base, 3) if base else None,
            "identical": None if plain is None else not self.differences,
            "first_difference": self.differences[0] if self.differences else None,
            "draft_ms": _median(self.draft_ms),
            "verify_ms": _median(self.verify_ms),
            "observe_ms": _median(self.observe_ms),
            "levels": {
                k: {"lookups": v.lookups, "hits": v.hits, "accepted": v.accepted}
                for k, v in self.levels.items()
            },
        }


def _median(values: Sequence[float]) -> float:
    return round(statistics.median(values), 3) if values else 0.0


def run_suite(
    target: Target,
    samples: Sequence[Sample],
    drafters: dict[str, Drafter],
    *,
    max_new_tokens: int,
    progress: bool = False,
) -> dict[str, Any]:
    """Measure the drafters -> one JSON-ready object (figures per decoder, rows per sample)."""
    from ..cli import open_image

    tallies = {name: Tally() for name in drafters}
    rows: list[dict[str, Any]] = []
    failed: list[dict[str, str]] = []
    begun = time.perf_counter()
    for place, sample in enumerate(samples):
        if progress:
            _progress(place, len(samples), begun, sample.id)
        try:
            images = [open_image(str(path)) for path in sample.images]
            conversation = Conversation(target)
            for number, question in enumerate(sample.turns):
                conversation.ask(question, images if number == 0 else ())
                turns = _turn(conversation, drafters, tallies, place + number, max_new_tokens)
                rows.extend(
                    {"sample": sample.id, "kind": sample.kind, "turn": number, "drafter": name}
                    | _row(turn)
                    for name, turn in turns.items()
                )
        except ValueError as error:
            failed.append({"sample": sample.id, "error": str(error)})
    if progress:
        _progress(len(samples), len(samples), begun, "done")
    plain = tallies.get("autoregressive")
    figures = {name: tally.figures(plain) for name, tally in tallies.items()}
    for name, figure in figures.items():
        figure["tokens_per_pass_95"] = _interval([r for r in rows if r["drafter"] == name])
    return {
        "model": target.name,
        "device": target.device,
        "dtype": target.dtype,
        "threads": _threads(),
        "samples_run": len(samples) - len(failed),
        "failed": failed,
        "max_new_tokens": max_new_tokens,
        "decoders": figures,
        "samples": rows,
    }


def _turn(
    conversation: Conversation,
    drafters: dict[str, Drafter],
    tallies: dict[str, Tally],
    rotate: int,
    max_new_tokens: int,
) -> dict[str, Turn]:
    """All decoders on the pending question; the conversation goes on with the last named one's answer."""
    names = list(drafters)
    order = names[rotate % len(names) :] + names[: rotate % len(names)]
    conversation.prefill(seed=True, top_k=max(d.top_k for d in drafters.values()))
    turns: dict[str, Turn] = {}
    for name in order:
        answer = answer_apart(conversation, drafters[name], max_new_tokens=max_new_tokens)
        tally = tallies[name]
        for step in answer:
            tally.rows += step.rows
            tally.draft_ms.append(1e3 * step.draft_s)
            tally.verify_ms.append(1e3 * step.verify_s)
            tally.observe_ms.append(1e3 * step.observe_s)
        turn = turns[name] = answer.turn
        tally.tokens += turn.tokens - 1  # the first token comes from the prefill
        tally.passes += turn.passes
        tally.decode_s += turn.decode_s
        tally.levels = add_levels(tally.levels, turn.levels)
        if name == names[-1]:
            kept = answer.conversation
    conversation.adopt(kept)
    reference = turns.get("autoregressive")
    if reference is not None:
        for name, turn in turns.items():
            place = first_difference(turn.token_ids, reference.token_ids)
            if place is not None:
                tallies[name].differences.append({"token": place, "text": reference.text[:80]})
    return {name: turns[name] for name in names}


def _interval(rows: Sequence[dict[str, Any]]) -> list[float] | None:
    """95 % interval of tokens a pass, conversations drawn with replacement; None below two of them."""
    tokens: dict[str, int] = {}
    passes: dict[str, int] = {}
    for row in rows:
        tokens[row["sample"]] = tokens.get(row["sample"], 0) + row["tokens"] - 1
        passes[row["sample"]] = passes.get(row["sample"], 0) + row["passes"]
    if len(tokens) < 2:
        return None
    low, high = bootstrap(list(tokens.values()), list(passes.values()))
    return [round(low, 3), round(high, 3)]


def _row(turn: Turn) -> dict[str, Any]:
    return {
        "decoder": turn.decoder,
        "tokens": turn.tokens,
        "passes": turn.passes,
        "tokens_per_pass": round(turn.tokens_per_pass, 3),
        "decode_s": round(turn.decode_s, 4),
        "prefill_s": round(turn.prefill_s, 4),
    }


def _threads() -> int:
    import torch

    return torch.get_num_threads()


def _progress(done: int, total: int, begun: float, label: str) -> None:
    spent = time.perf_counter() - begun
    left = f", about {spent / done * (total - done):.0f} s left" if done else ""
    print(f"\r{done}/{total} samples{left}  {label:<24}", end="", file=sys.stderr, flush=True)
    if done == total:
        print(file=sys.stderr)


def table(report: dict[str, Any]) -> str:
    """The report's figures as a markdown table."""
    lines = [
        "| decoder | tokens a pass | 95 % interval | rows a pass | tokens/s | speedup | draft ms | "
        "verify ms | observe ms | identical |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for name, f in report["decoders"].items():
        speedup = f"{f['speedup']:.2f}" if f["speedup"] is not None else "-"
        lines.append(
            f"| {name} | {f['tokens_per_pass']:.2f} | {_span(f['tokens_per_pass_95'])} | "
            f"{f['rows_per_pass']:.1f} | "
            f"{f['decode_tokens_per_s']:.1f} | {speedup} | {f['draft_ms']:.2f} | "
            f"{f['verify_ms']:.1f} | {f['observe_ms']:.2f} | "
            f"{ {True: 'yes', False: 'no', None: '-'}[f['identical']] } |"
        )
    return "\n".join(lines)


def _span(interval: list[float] | None) -> str:
    return "-" if interval is None else f"{interval[0]:.2f} to {interval[1]:.2f}"


def add_command(commands: Any) -> None:
    """Register `bench` with the command line."""
    from ..cli import add_model_options

    bench = commands.add_parser("bench", help="measure decoders over a suite")
    bench.add_argument("--suite", default="demo", help='"demo", "text", or a JSONL file')
    bench.add_argument(
        "--decoders",
        default=",".join(DECODERS),
        help='names with commas between; "token_recycling:16" gives one a budget of its own',
    )
    bench.add_argument("--max-new-tokens", type=int, default=120, metavar="N")
    bench.add_argument("--limit", type=int, metavar="N", help="only the first N samples")
    bench.add_argument("--out", type=Path, metavar="FILE", help="write the report here (JSON)")
    bench.add_argument(
        "--ablations",
        action="store_true",
        help="Recap with one thing changed at a time, beside plain decoding (instead of --decoders)",
    )
    add_model_options(bench)
    bench.set_defaults(run=run_bench)


def run_bench(options: argparse.Namespace) -> int:
    """`python -m recap bench`."""
    from ..cli import drafter_from, load_from

    for option, value in (("max-new-tokens", options.max_new_tokens), ("limit", options.limit)):
        if value is not None and value < 1:
            raise ValueError(f"--{option} must be at least 1.")
    samples = load_suite(options.suite)[: options.limit]
    names = [name.strip() for name in options.decoders.split(",") if name.strip()]
    if not names:
        raise ValueError(f"--decoders names none: choose from {', '.join(DECODERS)}.")
    if options.out is not None:
        _try_out(options.out)  # now, not after an hour of measuring
    target = load_from(options)
    if options.ablations:
        whole = drafter_from("recap", options, target)
        budget = None if options.budget == "auto" else whole.config.budget
        drafters = ablated(target.vocab_size, budget=budget, cost=whole.cost)
        names = ["autoregressive"]
    else:
        drafters = {}
    drafters |= {name: drafter_from(name, options, target) for name in names}
    report = run_suite(
        target,
        samples,
        drafters,
        max_new_tokens=options.max_new_tokens,
        progress=sys.stderr.isatty(),
    )
    print(f"{report['model']}, {report['device']}, {report['dtype']}, {report['threads']} threads")
    print(f"{report['samples_run']} samples, at most {options.max_new_tokens} tokens an answer\n")
    print(table(report))
    for failure in report["failed"]:
        print(f"failed: {failure['sample']}: {failure['error']}")
    if options.out is not None:
        options.out.write_text(json.dumps(report, indent=1), encoding="utf-8")
    return 0 if report["samples_run"] else 1


def _try_out(path: Path) -> None:
    """Open the report's file for writing, what it holds untouched. Raises ValueError with one sentence."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.open("a").close()
    except OSError as error:
        raise ValueError(f"The report cannot be written to {path}: {error.strerror}.") from None
