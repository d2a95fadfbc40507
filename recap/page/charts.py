"""Summary charts (Plotly). Every chart says what it was measured on; text colours come from page.css."""

from __future__ import annotations

from html import escape
from itertools import pairwise

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from ..server.session import TurnRecord
from ..trace import SOURCES, SourceCount

DECODER_NAMES = {
    "recap": "Recap",
    "token_recycling": "Token Recycling",
    "prompt_lookup": "Prompt lookup",
    "autoregressive": "Plain",
}
LEVEL_NAMES = {
    "3-token": "3-token key",
    "2-token": "2-token key",
    "1-token": "1-token key",
    "lookup": "lookup",
    "runner-up": "runner-up",
    "table": "Token Recycling's table",
}
COLOURS = {
    "3-token": "#0072B2",
    "2-token": "#D55E00",
    "1-token": "#009E73",
    "lookup": "#7A7F87",
    "runner-up": "#8F6B3E",
    "table": "#CC79A7",
}
DECODER_COLOURS = {
    "recap": "#0072B2",
    "token_recycling": "#CC79A7",
    "prompt_lookup": "#7A7F87",
    "autoregressive": "#D55E00",
}
PATTERNS = {"recap": "", "token_recycling": "/", "prompt_lookup": "."}
DASHES = {
    "recap": "solid",
    "token_recycling": "dash",
    "prompt_lookup": "dot",
    "autoregressive": "dashdot",
}


def level_counts(turns: list[TurnRecord]) -> list[tuple[str, SourceCount]]:
    """Recap's levels, then Token Recycling's table, summed over the turns, as far as these ran."""
    total: dict[str, SourceCount] = {}
    for record in turns:
        for decoder, levels in (("recap", SOURCES), ("token_recycling", ("table",))):
            if decoder in record.runs:
                counted = record.runs[decoder].sources
                for name in levels:
                    total[name] = total.get(name, SourceCount()) + counted.get(name, SourceCount())
    return list(total.items())


def levels_chart(turns: list[TurnRecord], *, measured: str, title: str) -> go.Figure:
    """Look-ups, hits and accepted hits per level beside Token Recycling's table, over these turns.

    Three panels with a scale each: there are far more look-ups than accepted hits.
    """
    counts = level_counts(turns)
    parts = (("look-ups", "lookups"), ("hits", "hits"), ("accepted hits", "accepted"))
    figure = make_subplots(
        cols=3,
        shared_yaxes=True,
        horizontal_spacing=0.04,
        subplot_titles=[f"<b>{label}</b>" for label, _ in parts],
    )
    names = [LEVEL_NAMES[name] for name, _ in counts]
    colours = [COLOURS[name] for name, _ in counts]
    for column, (label, key) in enumerate(parts, start=1):
        values = [getattr(count, key) for _, count in counts]
        figure.add_bar(
            y=names,
            x=values,
            orientation="h",
            width=0.62,
            text=[f"{value:,}" for value in values],
            textposition="outside",
            cliponaxis=False,
            marker={"color": colours},
            hovertemplate="%{y}: %{x} " + label + "<extra></extra>",
            row=1,
            col=column,
        )
        figure.update_xaxes(
            range=[0, 1.32 * max([1, *values])], showticklabels=False, row=1, col=column
        )
    figure.update_yaxes(autorange="reversed")
    figure.update_layout(showlegend=False)
    figure = finish(figure, title=title, measured=measured)
    figure.update_xaxes(showgrid=False)
    figure.update_layout(height=290, margin={"l": 150, "r": 6, "t": 84, "b": 8})
    return figure


def speed_chart(paces: dict[str, tuple[list[float], list[int]]], *, measured: str) -> go.Figure:
    """Tokens against decoding time, a line a decoder: the slope is the speed.

    paces: decoder -> (seconds, tokens) after each pass.
    """
    figure = go.Figure()
    for decoder, (seconds, tokens) in paces.items():
        figure.add_scatter(
            x=seconds,
            y=tokens,
            name=DECODER_NAMES.get(decoder, decoder),
            mode="lines",
            line={
                "color": DECODER_COLOURS.get(decoder, "#009E73"),
                "dash": DASHES.get(decoder, "solid"),
                "width": 2.5,
            },
            hovertemplate="%{y} tokens after %{x:.2f} s<extra>%{fullData.name}</extra>",
        )
    figure.update_xaxes(title="decoding time, seconds (prompt apart)", rangemode="tozero")
    figure.update_yaxes(title="tokens of the answer", rangemode="tozero")
    return finish(figure, title="Tokens against time, this turn", measured=measured)


def accepted_chart(turns: list[TurnRecord], *, measured: str) -> go.Figure:
    """Share of passes by how many tokens they gave; 1 is what plain decoding gives."""
    lengths: dict[str, list[int]] = {}
    for record in turns:
        for decoder in ("recap", "token_recycling", "prompt_lookup"):
            if decoder in record.paces:
                tokens = record.paces[decoder][1]
                grown = [after - before for before, after in pairwise(tokens)]
                lengths.setdefault(decoder, []).extend(grown)
    figure = go.Figure()
    top = max((max(v) for v in lengths.values() if v), default=1)
    for decoder, values in lengths.items():
        share = [100 * values.count(n) / max(1, len(values)) for n in range(1, top + 1)]
        figure.add_bar(
            x=list(range(1, top + 1)),
            y=share,
            name=DECODER_NAMES[decoder],
            marker={
                "color": DECODER_COLOURS[decoder],
                "pattern": {"shape": PATTERNS[decoder], "fgopacity": 0.6},
            },
            hovertemplate="%{y:.0f} % of passes gave %{x}<extra>%{fullData.name}</extra>",
        )
    figure.update_layout(barmode="group")
    figure.update_xaxes(title="tokens a pass gave (1 = the model's own alone)", dtick=1)
    figure.update_yaxes(title="% of passes")
    return finish(figure, title="Accepted length, this conversation", measured=measured)


def warming_chart(turns: list[TurnRecord], *, measured: str) -> go.Figure:
    """Hits per look-up, turn by turn: the memories warming up over the conversation."""
    figure = go.Figure()
    for level in (*SOURCES, "table"):
        decoder = "token_recycling" if level == "table" else "recap"
        points = []
        for number, record in enumerate(turns, start=1):
            count = record.runs[decoder].sources.get(level) if decoder in record.runs else None
            if count is not None and count.lookups:
                points.append((number, 100 * count.hits / count.lookups))
        if points:
            figure.add_scatter(
                x=[p[0] for p in points],
                y=[p[1] for p in points],
                name=LEVEL_NAMES[level],
                mode="lines+markers",
                line={"color": COLOURS[level], "width": 2},
                marker={"size": 8, "symbol": SYMBOLS[level]},
                hovertemplate="turn %{x}: %{y:.0f} % of look-ups hit<extra>%{fullData.name}</extra>",
            )
    figure.update_xaxes(title="turn", dtick=1)
    figure.update_yaxes(title="hits, % of look-ups", range=[0, 104])
    return finish(figure, title="Hit rate, turn by turn", measured=measured)


SYMBOLS = {
    "3-token": "circle",
    "2-token": "square",
    "1-token": "triangle-up",
    "lookup": "diamond",
    "runner-up": "triangle-down",
    "table": "hexagon",
}


def finish(figure: go.Figure, *, title: str, measured: str) -> go.Figure:
    """The look that all charts share; `measured` says n, model, hardware and dtype."""
    head, rest = measured.split("; ", 1)
    said = f"<sub>{escape(head)};<br>{escape(rest)}</sub>"
    figure.update_layout(
        title={
            "text": f"{title}<br>{said}",
            "font": {"size": 14},
            "x": 0,
            "xref": "paper",
            "y": 0.94,
            "yanchor": "top",
        },
        height=340,
        margin={"l": 52, "r": 8, "t": 74, "b": 40},
        paper_bgcolor="rgba(0,0,0,0)",
        plot_bgcolor="rgba(0,0,0,0)",
        font={"family": "system-ui, sans-serif", "size": 12},
        legend={"orientation": "h", "y": -0.28, "yanchor": "top", "x": 0},
        dragmode=False,
    )
    grid = "rgba(128,134,146,0.25)"
    figure.update_xaxes(gridcolor=grid, zeroline=False, fixedrange=True)
    figure.update_yaxes(gridcolor=grid, zerolinecolor=grid, fixedrange=True)
    return figure
