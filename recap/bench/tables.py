"""Tables of figures, as markdown for the terminal and as HTML for the report."""

from __future__ import annotations

import html
from collections.abc import Sequence
from dataclasses import dataclass

NONE = "-"
"""What a cell shows where there is no figure."""


@dataclass(frozen=True, slots=True)
class Table:
    """A head and rows of cells.

    >>> print(Table(("decoder", "tokens/s"), [("recap", "34.1")]).markdown())
    | decoder | tokens/s |
    |---|---|
    | recap | 34.1 |
    """

    head: Sequence[str]
    rows: Sequence[Sequence[str]]

    def markdown(self) -> str:
        """The table as markdown, without a line break at its end."""
        lines = [self.head, *self.rows]
        head, *rows = (f"| {' | '.join(cells)} |" for cells in lines)
        return "\n".join([head, "|" + "---|" * len(self.head), *rows])

    def html(self) -> str:
        """The table as HTML, its cells escaped."""
        cells = [("th", self.head), *(("td", row) for row in self.rows)]
        rows = (
            "".join(f"<{tag}>{html.escape(cell)}</{tag}>" for cell in row) for tag, row in cells
        )
        return f"<table>{''.join(f'<tr>{row}</tr>' for row in rows)}</table>"


def decimal(value: float | None, digits: int = 2) -> str:
    """A figure as a cell.

    >>> decimal(1.234), decimal(None)
    ('1.23', '-')
    """
    return NONE if value is None else f"{value:.{digits}f}"


def span(bounds: Sequence[float] | None) -> str:
    """An interval as a cell.

    >>> span([1.0, 2.5]), span(None)
    ('1.00 to 2.50', '-')
    """
    return NONE if bounds is None else f"{bounds[0]:.2f} to {bounds[1]:.2f}"
