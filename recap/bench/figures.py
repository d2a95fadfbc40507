"""From measured answers to figures: the benchmark's figures per decoder and their tables.

A record is one answer by one decoder as `run` writes it. Repeats of one answer count once: the tokens of
the first, the median of their times.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from typing import Any

from ..trace import SourceCount, add_counts
from .bootstrap import interval
from .tables import NONE, Table, decimal, span

PLAIN = "autoregressive"
"""The decoder that speed and tokens are compared with."""

TIMES = ("draft_ms", "verify_ms", "observe_ms")
"""The three parts of a pass, in the order in which `runners.Pass` holds them."""

Record = dict[str, Any]


class Answers:
    """All answers of one decoder by (sample, turn), the repeats of each in a list."""

    def __init__(self, records: Iterable[Record]) -> None:
        self.by_turn: dict[tuple[str, int], list[Record]] = {}
        for record in records:
            self.by_turn.setdefault((record["sample"], record["turn"]), []).append(record)

    def sums(self, *, only: Answers | None = None) -> dict[str, tuple[int, int, float]]:
        """Sample -> (decoded tokens, passes, seconds), over the answers that `only` has too."""
        sums: dict[str, tuple[int, int, float]] = {}
        for key, repeats in self.by_turn.items():
            if only is not None and key not in only.by_turn:
                continue
            first = repeats[0]
            tokens, passes, seconds = sums.get(first["sample"], (0, 0, 0.0))
            sums[first["sample"]] = (
                tokens + first["tokens"] - first["prefill_tokens"],
                passes + first["passes"],
                seconds + statistics.median(r["decode_s"] for r in repeats),
            )
        return sums


def figures(records: Sequence[Record], names: Sequence[str]) -> dict[str, dict[str, Any]]:
    """The figures of every decoder; None where there is nothing to compare with.

    tokens: decoded ones; those of the prompt's pass are left out. speedup: against plain decoding, over the
    answers that both have. draft_ms, verify_ms, observe_ms: median of a pass. prefill_ms: median of an
    answer. *_95: interval over samples. match_ratio: share of answers with exactly the plain tokens.
    """
    answers = {name: Answers(r for r in records if r["decoder"] == name) for name in names}
    plain = answers.get(PLAIN)
    return {name: _figures(mine, plain) for name, mine in answers.items()}


def _figures(mine: Answers, plain: Answers | None) -> dict[str, Any]:
    firsts = [repeats[0] for repeats in mine.by_turn.values()]
    columns = list(zip(*mine.sums().values(), strict=True)) or [(), (), ()]
    tokens, passes, seconds = map(sum, columns)
    steps = [s for repeats in mine.by_turn.values() for r in repeats for s in r["steps"]]
    timed = [step for step in steps if step[3] > 0]
    packed = [step[0] for step in steps if step[0]]
    differences = [r["first_difference"] for r in firsts if r["first_difference"] is not None]
    sources: dict[str, SourceCount] = {}
    for record in firsts:
        sources = add_counts(sources, {k: SourceCount(*v) for k, v in record["sources"].items()})
    speedup, speedup_95 = _speedup(mine, plain)
    return {
        "tokens": tokens,
        "passes": passes,
        "tokens_per_pass": _ratio(tokens, passes),
        "tokens_per_pass_95": interval(lambda t, p: t / p, *columns[:2]),
        "packed_tokens_per_pass": round(statistics.mean(packed), 1) if packed else 0.0,
        "decode_tokens_per_s": _ratio(tokens, seconds, 2),
        "speedup": speedup,
        "speedup_95": speedup_95,
        "identical": None if plain is None else not differences,
        "match_ratio": None
        if plain is None or not firsts
        else round(1.0 - len(differences) / len(firsts), 4),
        "first_difference": differences[0] if differences else None,
        "prefill_ms": _median([1e3 * r["prefill_s"] for r in firsts]),
        **{name: _median([s[at] for s in timed]) for at, name in enumerate(TIMES, start=2)},
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
    columns = list(zip(*((*ours[s], *theirs[s]) for s in ours), strict=True))
    if not columns:
        return None, None
    columns = [columns[i] for i in (0, 2, 3, 5)]  # tokens and seconds of both
    tokens, seconds, plain_tokens, plain_seconds = map(sum, columns)
    if not (seconds and plain_seconds and plain_tokens):
        return None, None
    bounds = interval(lambda t, s, pt, ps: (t / s) / (pt / ps), *columns)
    return round((tokens / seconds) / (plain_tokens / plain_seconds), 3), bounds


def groups(records: Sequence[Record], names: Sequence[str]) -> dict[str, dict[str, dict[str, Any]]]:
    """Figures by topic, and by single- and multi-turn samples, where there are several of each."""
    kept = ("answers", "tokens_per_pass", "tokens_per_pass_95", "decode_tokens_per_s", "speedup")
    topics: dict[str, list[Record]] = {}
    turns: dict[str, list[Record]] = {}
    for record in records:
        topics.setdefault(f"topic: {record['kind'] or 'none'}", []).append(record)
        turns.setdefault("multi-turn" if record["turns"] > 1 else "single-turn", []).append(record)
    parts: dict[str, list[Record]] = {}
    if 1 < len(topics) < len({record["sample"] for record in records}):
        parts |= topics  # one topic, or as many as samples, would show nothing
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


def table(report: dict[str, Any]) -> Table:
    """The report's figures, a row per decoder."""
    head = ("decoder", "tokens per pass", "95 % interval", "packed tokens per pass", "tokens/s")
    head += ("against plain", "95 % interval", "draft ms", "pass ms", "learn ms", "identical")
    rows = []
    for name, f in report["decoders"].items():
        if not f["answers"]:
            rows.append((name, *[NONE] * (len(head) - 1)))
            continue
        same = {True: "yes", None: NONE}.get(f["identical"]) or f"{f['match_ratio']:.0%} of answers"
        rows.append(
            (
                name,
                decimal(f["tokens_per_pass"]),
                span(f["tokens_per_pass_95"]),
                str(f["packed_tokens_per_pass"] or NONE),
                decimal(f["decode_tokens_per_s"], 1),
                decimal(f["speedup"]),
                span(f["speedup_95"]),
                *(decimal(f[k] if f["verify_ms"] else None) for k in TIMES),
                same,
            )
        )
    return Table(head, rows)


def group_table(report: dict[str, Any]) -> Table:
    """Tokens per pass (and speed against plain) of each decoder in each group."""
    names = list(report["decoders"])
    rows = []
    for part, by_name in report["groups"].items():
        cells = []
        for f in (by_name[name] for name in names):
            speed = "" if f["speedup"] is None else f" ({f['speedup']:.2f}x)"
            cells.append(f"{f['tokens_per_pass']:.2f}{speed}" if f["answers"] else NONE)
        rows.append((part, str(max(f["answers"] for f in by_name.values())), *cells))
    return Table(("samples", "answers", *names), rows)
