"""The benchmark's report as one HTML file with plots; it opens without a network."""

from __future__ import annotations

import html
from collections.abc import Callable, Sequence
from typing import Any

import plotly.graph_objects as go
import plotly.io

from .ablations import comparison_table
from .figures import group_table, in_words, table

_STYLE = """
:root { color-scheme: light }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 72rem; margin: 2rem auto; padding: 0 1rem }
table { border-collapse: collapse; font-size: .9rem; display: block; overflow-x: auto }
td, th { border-bottom: 1px solid #ddd; padding: .3rem .7rem; text-align: right; white-space: nowrap }
td:first-child, th:first-child { text-align: left }
figure { margin: 2rem 0 } figcaption { color: #555 }
"""


def page(report: dict[str, Any]) -> str:
    """The whole page, plotly's script included. report: what `run.report` made."""
    plots = [plot for make in _PLOTS if (plot := make(report)) is not None]
    head = (
        f"{report['model']}, {report['device']}, {report['dtype']}, {report['threads']} threads, "
        f"{report['samples_run']} samples, at most {report['max_new_tokens']} tokens an answer, "
        f"{report['repeats']} run(s)"
    )
    parts = [f"<h1>Recap: measured decoders</h1><p>{html.escape(head)}</p>", _html(table(report))]
    for number, (figure, caption) in enumerate(plots):
        figure.update_layout(template="plotly_white", height=420, margin={"t": 30})
        drawn = plotly.io.to_html(
            figure,
            include_plotlyjs=number == 0,
            full_html=False,
            config={"displaylogo": False},
            div_id=f"plot-{number}",
        )
        parts.append(f"<figure>{drawn}<figcaption>{html.escape(caption)}</figcaption></figure>")
    if report["groups"]:
        parts += ["<h2>By kind of sample</h2>", _html(group_table(report))]
    if report.get("ablations"):
        parts += ["<h2>Ablations against recap</h2>", _html(comparison_table(report["ablations"]))]
    parts += [_list("Other libraries", _peers(report)), _list("Failed", _failed(report)), _METHOD]
    body = "\n".join(parts)
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width"><title>Recap: measured decoders</title>'
        f"<style>{_STYLE}</style></head><body>\n{body}\n</body></html>\n"
    )


_METHOD = (
    "<h2>What is timed</h2><p>Decoding after the prompt's pass: draft, pass and learning, recording off. "
    "Tokens that the prompt's pass gives are left out for all. Speed is against plain decoding over the same "
    "answers; intervals are 95 % by bootstrap over samples. transformers is timed from the tokens of the "
    "prompt's pass to the last ones as its generate hands them out, flashspec by its engine's own step times "
    "without the first step; arctic's suffix trees are drafts in our engine. Each of them runs with the "
    "fastest of the settings that were tried on the first samples.</p>"
)

Plot = tuple[go.Figure, str]


def _tokens(report: dict[str, Any]) -> Plot | None:
    return _bars(
        report,
        "tokens_per_pass",
        "tokens a pass",
        "Tokens a pass with 95 % intervals; plain decoding makes 1.",
    )


def _speed(report: dict[str, Any]) -> Plot | None:
    return _bars(
        report,
        "speedup",
        "speed against plain",
        "Decoding speed against plain decoding with 95 % intervals.",
    )


def _bars(report: dict[str, Any], key: str, title: str, caption: str) -> Plot | None:
    some = {n: f for n, f in report["decoders"].items() if f["answers"] and f[key] is not None}
    if not some:
        return None
    values = [f[key] for f in some.values()]
    bounds = [f.get(f"{key}_95") or [f[key], f[key]] for f in some.values()]
    error = {
        "type": "data",
        "symmetric": False,
        "array": [high - v for v, (_, high) in zip(values, bounds, strict=True)],
        "arrayminus": [v - low for v, (low, _) in zip(values, bounds, strict=True)],
    }
    figure = go.Figure(go.Bar(x=list(some), y=values, error_y=error, marker_color="#3b6fb6"))
    figure.update_yaxes(title=title, rangemode="tozero")
    figure.add_hline(y=1.0, line_dash="dot", line_color="#555")
    return figure, caption


def _milliseconds(report: dict[str, Any]) -> Plot | None:
    some = {n: f for n, f in report["decoders"].items() if f["verify_ms"]}
    if not some:
        return None
    parts = (
        ("draft_ms", "draft", "#d98b3a"),
        ("verify_ms", "pass", "#3b6fb6"),
        ("observe_ms", "learn", "#5aa469"),
    )
    bars = [
        go.Bar(x=list(some), y=[f[key] for f in some.values()], name=name, marker_color=colour)
        for key, name, colour in parts
    ]
    figure = go.Figure(bars, {"barmode": "stack"})
    figure.update_yaxes(title="ms a pass (medians)")
    return figure, "Where the time of a pass goes; other libraries do not tell."


def _samples(report: dict[str, Any]) -> Plot | None:
    by_name: dict[str, tuple[list[int], list[float], list[str]]] = {}
    for row in report["samples"]:
        if row["passes"] and row["repeat"] == 0:
            x, y, label = by_name.setdefault(row["decoder"], ([], [], []))
            x.append(row["tokens"])
            y.append(row["tokens_per_pass"])
            label.append(f"{row['sample']}, turn {row['turn'] + 1}")
    if not by_name:
        return None
    figure = go.Figure(
        [
            go.Scatter(x=x, y=y, text=label, name=name, mode="markers", opacity=0.7)
            for name, (x, y, label) in by_name.items()
        ]
    )
    figure.update_xaxes(title="tokens of the answer")
    figure.update_yaxes(title="tokens a pass", rangemode="tozero")
    return figure, "Every answer: longer ones leave more to remember."


def _levels(report: dict[str, Any]) -> Plot | None:
    some = {n: f["sources"] for n, f in report["decoders"].items() if f["answers"] and f["sources"]}
    if not some:
        return None
    levels = list(dict.fromkeys(level for counts in some.values() for level in counts))
    figure = go.Figure(
        [
            go.Bar(
                x=list(some),
                y=[_share(counts.get(level), "hits", "lookups") for counts in some.values()],
                name=level,
                customdata=[
                    _share(counts.get(level), "accepted", "hits") for counts in some.values()
                ],
                hovertemplate="%{fullData.name}: asked places with an answer %{y:.1%}, "
                "of these with a confirmed token %{customdata:.1%}<extra></extra>",
            )
            for level in levels
        ]
    )
    figure.update_yaxes(title="places with an answer", tickformat=".0%")
    return (
        figure,
        "How often each source had an answer where it was asked; hover for how often it was right.",
    )


def _share(counts: dict[str, int] | None, one: str, of: str) -> float | None:
    return counts[one] / counts[of] if counts and counts[of] else None


def _by_group(report: dict[str, Any]) -> Plot | None:
    if not report["groups"]:
        return None
    names = [n for n, f in report["decoders"].items() if f["answers"]]
    parts = list(report["groups"])
    figure = go.Figure(
        [
            go.Bar(x=parts, y=[report["groups"][p][n]["tokens_per_pass"] for p in parts], name=n)
            for n in names
        ]
    )
    figure.update_yaxes(title="tokens a pass")
    return figure, "Tokens a pass by kind of sample."


_PLOTS: Sequence[Callable[[dict[str, Any]], Plot | None]] = (
    _tokens,
    _speed,
    _milliseconds,
    _samples,
    _levels,
    _by_group,
)


def _html(markdown: str) -> str:
    """A markdown table as HTML."""
    head, _, *rows = [line.strip("| ").split(" | ") for line in markdown.splitlines()]
    cells = [("th", head), *(("td", row) for row in rows)]
    lines = (
        "<tr>" + "".join(f"<{tag}>{html.escape(cell)}</{tag}>" for cell in row) + "</tr>"
        for tag, row in cells
    )
    return f"<table>{''.join(lines)}</table>"


def _list(title: str, items: Sequence[str]) -> str:
    if not items:
        return ""
    return f"<h2>{title}</h2><ul>{''.join(f'<li>{html.escape(i)}</li>' for i in items)}</ul>"


def _peers(report: dict[str, Any]) -> list[str]:
    said = []
    for name, about in report["peers"].items():
        tried = [
            f"{in_words(one['setting'])}: {one.get('tokens_per_s', one.get('error'))}"
            for one in about.get("sweep", [])
        ]
        more = f"; tried (tokens/s): {'; '.join(tried)}" if tried else ""
        setting = f" with {in_words(about['setting'])}" if about.get("setting") else ""
        said.append(f"{name} {about.get('version', '')}: {about['status']}{setting}{more}")
    return said


def _failed(report: dict[str, Any]) -> list[str]:
    return [
        f"{f['sample']}{' by ' + f['decoder'] if 'decoder' in f else ''}: {f['error']}"
        for f in report["failed"]
    ]
