"""From measured answers to figures: the benchmark's report and its table.

A row is one answer by one decoder as `run` writes it. Repeats of one answer count once: the tokens of the
first, the median of their times.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from typing import Any

from ..trace import SourceCount, add_counts
from .bootstrap import interval, rounded

PLAIN = "autoregressive"
"""The decoder that speed and tokens are compared with."""

Row = dict[str, Any]


class Answers:
    """All answers of one decoder, repeats put together, by (sample, turn)."""

    def __init__(self, rows: Iterable[Row]) -> None:
        self.rows: dict[tuple[str, int], list[Row]] = {}
        for row in rows:
            self.rows.setdefault((row["sample"], row["turn"]), []).append(row)

    def seconds(self, key: tuple[str, int]) -> float:
        """Median decoding time of that answer's repeats."""
        return statistics.median(row["decode_s"] for row in self.rows[key])

    def sums(self, *, only: Answers | None = None) -> dict[str, tuple[int, int, float]]:
        """Sample -> (decoded tokens, passes, seconds), over the answers that `only` has too."""
        sums: dict[str, tuple[int, int, float]] = {}
        for key, (row, *_) in self.rows.items():
            if only is not None and key not in only.rows:
                continue
            tokens, passes, seconds = sums.get(row["sample"], (0, 0, 0.0))
            sums[row["sample"]] = (
                tokens + row["tokens"] - row["prefill_tokens"],
                passes + row["passes"],
                seconds + self.seconds(key),
            )
        return sums


def figures(rows: Sequence[Row], names: Sequence[str]) -> dict[str, dict[str, Any]]:
    """The figures of every decoder; None where there is nothing to compare with.

    tokens: decoded ones, those of the prompt's pass left out. speedup: against plain decoding, over the
    answers that both have. draft_ms, verify_ms, observe_ms: median of a pass; prefill_ms: of an answer, the reading of the prompt. *_95: interval over samples.
    match_ratio: share of answers with exactly the plain tokens.
    """
    answers = {name: Answers(r for r in rows if r["decoder"] == name) for name in names}
    plain = answers.get(PLAIN)
    return {name: _figures(mine, plain) for name, mine in answers.items()}


def _figures(mine: Answers, plain: Answers | None) -> dict[str, Any]:
    firsts = [repeats[0] for repeats in mine.rows.values()]
    sums = mine.sums()
    tokens, passes, seconds = (
        (sum(column) for column in zip(*sums.values(), strict=True)) if sums else (0, 0, 0.0)
    )
    steps = [step for repeats in mine.rows.values() for row in repeats for step in row["steps"]]
    timed = [step for step in steps if step[3] > 0]
    packed = [step[0] for step in steps if step[0]]
    differences = [r["first_difference"] for r in firsts if r["first_difference"] is not None]
    sources: dict[str, SourceCount] = {}
    for row in firsts:
        sources = add_counts(sources, {k: SourceCount(*v) for k, v in row["sources"].items()})
    speedup, speedup_95 = _speedup(mine, plain)
    per_sample = list(sums.values())
    return {
        "tokens": tokens,
        "passes": passes,
        "tokens_per_pass": _ratio(tokens, passes),
        "tokens_per_pass_95": rounded(
            interval(lambda t, p: t / p, *list(zip(*per_sample, strict=True))[:2])
            if per_sample
            else None
        ),
        "rows_per_pass": round(statistics.mean(packed), 1) if packed else 0.0,
        "decode_tokens_per_s": _ratio(tokens, seconds, 2),
        "speedup": speedup,
        "speedup_95": speedup_95,
        "identical": None if plain is None else not differences,
        "match_ratio": None
        if plain is None or not firsts
        else round(1.0 - len(differences) / len(firsts), 4),
        "first_difference": differences[0] if differences else None,
        "prefill_ms": _median([1e3 * r["prefill_s"] for r in firsts]),
        "draft_ms": _median([s[2] for s in timed]),
        "verify_ms": _median([s[3] for s in timed]),
        "observe_ms": _median([s[4] for s in timed]),
        "sources": {
            k: {"lookups": v.lookups, "hits": v.hits, "accepted": v.accepted}
            for k, v in sources.items()
        },
        "answers": len(firsts),
    }


def _speedup(mine: Answers, plain: Answers | None) -> tuple[float | None, list[float] | None]:
    if plain is None:
        return None, None
    ours, theirs = mine.sums(only=plain), plain.sums(only=mine)
    both = [(*ours[s], *theirs[s]) for s in ours]
    if not both:
        return None, None
    columns = list(zip(*both, strict=True))
    t, _, s, plain_t, _, plain_s = (sum(column) for column in columns)
    if not (s and plain_s and plain_t):
        return None, None
    span = interval(lambda a, b, c, d: (a / b) / (c / d), *(columns[i] for i in (0, 2, 3, 5)))
    return round((t / s) / (plain_t / plain_s), 3), rounded(span)


def groups(rows: Sequence[Row], names: Sequence[str]) -> dict[str, dict[str, dict[str, Any]]]:
    """Figures apart by topic and by single- and multi-turn samples, where there are several of each."""
    kept = ("answers", "tokens_per_pass", "tokens_per_pass_95", "decode_tokens_per_s", "speedup")
    parts: dict[str, list[Row]] = {}
    for row in rows:
        parts.setdefault(f"topic: {row['kind'] or 'none'}", []).append(row)
    samples = {row["sample"] for row in rows}
    if not 1 < len(parts) < len(samples):  # one topic, or as many as samples: nothing to see
        parts = {}
    turns: dict[str, list[Row]] = {}
    for row in rows:
        turns.setdefault("multi-turn" if row["turns"] > 1 else "single-turn", []).append(row)
    if len(turns) > 1:
        parts |= turns
    return {
        part: {n: {k: f[k] for k in kept} for n, f in figures(some, names).items()}
        for part, some in parts.items()
    }


def _ratio(one: float, other: float, digits: int = 3) -> float:
    return round(one / other, digits) if other else 0.0


def _median(values: Sequence[float]) -> float:
    return round(statistics.median(values), 3) if values else 0.0


def table(report: dict[str, Any]) -> str:
    """The report's figures as a markdown table."""
    lines = [
        "| decoder | tokens a pass | 95 % interval | rows a pass | tokens/s | speedup | 95 % interval | "
        "draft ms | verify ms | observe ms | identical |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for name, f in report["decoders"].items():
        if not f["answers"]:
            lines.append(f"| {name} |" + " - |" * 10)
            continue
        same = {True: "yes", None: "-"}.get(f["identical"]) or f"{f['match_ratio']:.0%} of answers"
        times = [
            f"{f[k]:.2f}" if f["verify_ms"] else "-"
            for k in ("draft_ms", "verify_ms", "observe_ms")
        ]
        speedup = "-" if f["speedup"] is None else f"{f['speedup']:.2f}"
        lines.append(
            f"| {name} | {f['tokens_per_pass']:.2f} | {span(f['tokens_per_pass_95'])} | "
            f"{f['rows_per_pass'] or '-'} | {f['decode_tokens_per_s']:.1f} | {speedup} | "
            f"{span(f['speedup_95'])} | {' | '.join(times)} | {same} |"
        )
    return "\n".join(lines)


def group_table(report: dict[str, Any]) -> str:
    """Tokens a pass (and speed against plain) of each decoder in each group; empty without groups."""
    if not report["groups"]:
        return ""
    names = list(report["decoders"])
    lines = ["| samples | answers | " + " | ".join(names) + " |", "|---" * (len(names) + 2) + "|"]
    for part, by_name in report["groups"].items():
        cells = []
        for name in names:
            f = by_name[name]
            fast = "" if f["speedup"] is None else f" ({f['speedup']:.2f}x)"
            cells.append(f"{f['tokens_per_pass']:.2f}{fast}" if f["answers"] else "-")
        most = max(f["answers"] for f in by_name.values())
        lines.append(f"| {part} | {most} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def span(bounds: list[float] | None) -> str:
    """An interval in words.

    >>> span([1.0, 2.5]), span(None)
    ('1.00 to 2.50', '-')
    """
    return "-" if bounds is None else f"{bounds[0]:.2f} to {bounds[1]:.2f}"


def in_words(setting: dict[str, Any]) -> str:
    """A peer's setting as a person reads it.

    >>> in_words({"gamma": 4, "factor": 2.0})
    'gamma 4, factor 2.0'
    """
    return ", ".join(f"{name} {value}" for name, value in setting.items())
