"""Summary charts (Plotly). Every chart names what it was measured on; text colours come from page.css."""

from __future__ import annotations

from html import escape
from itertools import pairwise
from typing import Any

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from ..server.session import TurnRecord
from ..trace import SourceCount, add_counts
from .names import DECODERS, RUNS, SOURCES


def level_counts(turns: list[TurnRecord]) -> list[tuple[str, SourceCount]]:
    """Recap's sources, then Token Recycling's table, summed over the turns in which these decoders ran."""
    total: dict[str, SourceCount] = {}
    for record in turns:
        for decoder in record.runs.keys() & {"recap", "token_recycling"}:
            total = add_counts(total, record.runs[decoder].sources)
    return [(name, total[name]) for name in SOURCES if name in total]


def levels_chart(turns: list[TurnRecord], *, measured: str, title: str) -> go.Figure:
    """Look-ups, hits and accepted hits of each source of Recap and of Token Recycling's table.

    Three panels with a scale each: there are far more look-ups than accepted hits.
    """
    counts = level_counts(turns)
    panels = {"look-ups": "lookups", "hits": "hits", "accepted hits": "accepted"}
    figure = make_subplots(
        cols=len(panels),
        shared_yaxes=True,
        horizontal_spacing=0.04,
        subplot_titles=[f"<b>{label}</b>" for label in panels],
    )
    for column, (label, attribute) in enumerate(panels.items(), start=1):
        values = [getattr(count, attribute) for _, count in counts]
        figure.add_bar(
            y=[SOURCES[name]["name"] for name, _ in counts],
            x=values,
            orientation="h",
            width=0.62,
            text=[f"{value:,}" for value in values],
            textposition="outside",
            cliponaxis=False,
            marker={"color": [SOURCES[name]["colour"] for name, _ in counts]},
            hovertemplate="%{y}: %{x} " + label + "<extra></extra>",
            row=1,
            col=column,
        )
        limit = 1.32 * max([1, *values])
        figure.update_xaxes(range=[0, limit], showticklabels=False, row=1, col=column)
    figure.update_yaxes(autorange="reversed")
    figure = finish(figure, title=title, measured=measured)
    figure.update_xaxes(showgrid=False)
    margin = {"l": 150, "r": 6, "t": 84, "b": 8}
    return figure.update_layout(showlegend=False, height=290, margin=margin)


def speed_chart(paces: dict[str, tuple[list[float], list[int]]], *, measured: str) -> go.Figure:
    """Tokens against decoding time, a line per run: the slope is the speed.

    paces: run -> (seconds, tokens) after each step.
    """
    figure = go.Figure()
    hover = "%{y} tokens after %{x:.2f} s"
    for run, (seconds, tokens) in paces.items():
        look = RUNS[run]
        add_line(figure, look, seconds, tokens, hover, dash=look["dash"], width=2.5)
    figure.update_xaxes(title="decoding time, seconds, without prompt", rangemode="tozero")
    figure.update_yaxes(title="tokens of the answer", rangemode="tozero")
    return finish(figure, title="Tokens against time, this turn", measured=measured)


def add_line(
    figure: go.Figure, look: dict[str, str], x: list[float], y: list[float], hover: str, **line: Any
) -> None:
    """Add a line, with markers if the look has a shape; `line` is its style."""
    shape = look.get("shape")
    figure.add_scatter(
        x=x,
        y=y,
        name=look["name"],
        mode="lines+markers" if shape else "lines",
        line={"color": look["colour"], **line},
        marker={"size": 8, "symbol": shape} if shape else None,
        hovertemplate=hover + "<extra>%{fullData.name}</extra>",
    )


def accepted_chart(turns: list[TurnRecord], *, measured: str) -> go.Figure:
    """Share of steps by the tokens that they added; plain decoding adds 1 in each."""
    added: dict[str, list[int]] = {}
    for record in turns:
        for decoder, (_, tokens) in record.paces.items():
            if decoder in DECODERS and decoder != "autoregressive":
                steps = [after - before for before, after in pairwise(tokens)]
                added.setdefault(decoder, []).extend(steps)
    figure = go.Figure()
    lengths = range(1, 1 + max((max(steps) for steps in added.values() if steps), default=1))
    for decoder, look in DECODERS.items():
        steps = added.get(decoder)
        if steps is None:
            continue
        figure.add_bar(
            x=list(lengths),
            y=[100 * steps.count(n) / max(1, len(steps)) for n in lengths],
            name=look["name"],
            marker={
                "color": look["colour"],
                "pattern": {"shape": look["pattern"], "fgopacity": 0.6},
            },
            hovertemplate="%{y:.0f} % of steps added %{x}<extra>%{fullData.name}</extra>",
        )
    figure.update_layout(barmode="group")
    figure.update_xaxes(title="tokens that a step added (1: no guess)", dtick=1)
    figure.update_yaxes(title="% of steps")
    return finish(figure, title="Tokens per step, this conversation", measured=measured)


def warming_chart(turns: list[TurnRecord], *, measured: str) -> go.Figure:
    """Hits per look-up, turn by turn: the memories fill up over the conversation."""
    figure = go.Figure()
    for source, look in SOURCES.items():
        decoder = "token_recycling" if source == "table" else "recap"
        numbers, shares = [], []
        for number, record in enumerate(turns, start=1):
            count = record.runs[decoder].sources.get(source) if decoder in record.runs else None
            if count is not None and count.lookups:
                numbers.append(number)
                shares.append(100 * count.hits / count.lookups)
        if numbers:
            hover = "turn %{x}: %{y:.0f} % of look-ups hit"
            add_line(figure, look, numbers, shares, hover, width=2)
    figure.update_xaxes(title="turn", dtick=1)
    figure.update_yaxes(title="hits, % of look-ups", range=[0, 104])
    return finish(figure, title="Hit rate, turn by turn", measured=measured)


def finish(figure: go.Figure, *, title: str, measured: str) -> go.Figure:
    """The look that all charts share; `measured` names n, model, hardware and dtype."""
    head, rest = measured.split("; ", 1)
    text = f"{title}<br><sub>{escape(head)};<br>{escape(rest)}</sub>"
    place = {"x": 0, "xref": "paper", "y": 0.94, "yanchor": "top"}
    grid = "rgba(128,134,146,0.25)"
    figure.update_xaxes(gridcolor=grid, zeroline=False, fixedrange=True)
    figure.update_yaxes(gridcolor=grid, zerolinecolor=grid, fixedrange=True)
    return figure.update_layout(
        title={"text": text, "font": {"size": 14}, **place},
        height=340,
        margin={"l": 52, "r": 8, "t": 74, "b": 40},
        paper_bgcolor="rgba(0,0,0,0)",
        plot_bgcolor="rgba(0,0,0,0)",
        font={"family": "system-ui, sans-serif", "size": 12},
        legend={"orientation": "h", "y": -0.28, "yanchor": "top", "x": 0},
        dragmode=False,
    )
