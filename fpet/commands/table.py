"""Rows as aligned columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fpet.words import shown


def table(rows: Sequence[Mapping[str, object]], columns: Sequence[str]) -> str:
    """The columns of the rows under their names, as wide as they need be; None is a hyphen, and what is not printable
    is escaped."""
    cells = [tuple(columns), *(tuple(_cell(row[column]) for column in columns) for row in rows)]
    widths = [max(len(line[i]) for line in cells) for i in range(len(columns))]
    return "\n".join("  ".join(map(str.ljust, line, widths)).rstrip() for line in cells)


def _cell(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.4f}"
    return "-" if value is None else shown(value)
