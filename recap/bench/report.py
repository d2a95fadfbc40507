"""The benchmark's report as one HTML file: tables and bars, without scripts and without a network."""

from __future__ import annotations

import html
from collections.abc import Sequence
from typing import Any

from .ablations import comparison_table
from .figures import group_table, table
from .machine import in_words
from .tables import NONE, Table, span

_STYLE = """
:root { color-scheme: light dark }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 72rem; margin: 2rem auto; padding: 0 1rem }
table { border-collapse: collapse; font-size: .9rem; display: block; overflow-x: auto }
td, th { border-bottom: 1px solid #8884; padding: .3rem .7rem; text-align: right; white-space: nowrap }
td:first-child, th:first-child { text-align: left }
.bar { display: grid; grid-template-columns: 12rem 1fr; gap: .7rem; font-size: .9rem }
.bar i { display: inline-block; height: .8rem; margin-right: .5rem; background: #3b6fb6 }
"""

_METHOD = (
    "Timed is decoding after the prompt's pass: draft, pass and learning, recording off. Tokens that the "
    "prompt's pass gives are left out for all. Speed is against plain decoding over the same answers; "
    "intervals are 95 % by bootstrap over samples. Other libraries run the same weights, each with the "
    "fastest of the settings that were tried on the first samples. docs/measurement.md has the details."
)


def page(result: dict[str, Any], remarks: Sequence[str] = ()) -> str:
    """The whole page. result: what `run.run_suite` returned. remarks: what readers of the tables have to know."""
    about = (
        f"{in_words(result)}; {result['samples_run']} samples, {result['repeats']} repeat(s), "
        f"at most {result['max_new_tokens']} tokens per answer"
    )
    parts = [f"<h1>Recap: measured decoders</h1><p>{html.escape(about)}</p>", table(result).html()]
    parts += _bars("Tokens per pass", result, "tokens_per_pass")
    parts += _bars("Speed against plain decoding", result, "speedup")
    for title, shown in (
        ("Sources: hits per lookup, accepted per hit", _sources(result)),
        ("Tokens per pass by kind of sample", group_table(result)),
        ("Ablations", comparison_table(result.get("ablations", {}))),
        ("Answers", _answers(result)),
    ):
        parts += [f"<h2>{title}</h2>", shown.html()] if shown.rows else []
    parts += [f"<p>{html.escape(remark)}</p>" for remark in remarks]
    body = "\n".join([*parts, f"<h2>What is timed</h2><p>{_METHOD}</p>"])
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width"><title>Recap: measured decoders</title>'
        f"<style>{_STYLE}</style></head><body>\n{body}\n</body></html>\n"
    )


def _bars(title: str, result: dict[str, Any], key: str) -> list[str]:
    some = {n: f for n, f in result["decoders"].items() if f["answers"] and f[key]}
    longest = max((f[key] for f in some.values()), default=1.0)
    bars = [
        f'<div class="bar"><span>{html.escape(name)}</span><span><i style="width: '
        f'{80 * f[key] / longest:.1f}%"></i>{f[key]:.2f} ({span(f[f"{key}_95"])})</span></div>'
        for name, f in some.items()
    ]
    return [f"<h2>{title}</h2>", *bars] if bars else []


def _sources(result: dict[str, Any]) -> Table:
    rows = [
        (name, source, _share(c["hits"], c["lookups"]), _share(c["accepted"], c["hits"]))
        for name, f in result["decoders"].items()
        for source, c in f["sources"].items()
    ]
    return Table(("decoder", "source", "hits", "accepted"), rows)


def _share(part: int, whole: int) -> str:
    return f"{part / whole:.1%}" if whole else NONE


def _answers(result: dict[str, Any]) -> Table:
    """Tokens per pass of every answer; of repeats the first."""
    names = list(result["decoders"])
    by_turn: dict[str, dict[str, str]] = {}
    for answer in result["samples"]:
        turn = by_turn.setdefault(f"{answer['sample']}, turn {answer['turn'] + 1}", {})
        turn.setdefault(answer["decoder"], f"{answer['tokens_per_pass']:.2f}")
    rows = [(turn, *(cells.get(name, NONE) for name in names)) for turn, cells in by_turn.items()]
    return Table(("answer", *names), rows)
