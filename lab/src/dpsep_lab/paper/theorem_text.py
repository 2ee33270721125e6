"""Pieces of text that the report of ``dpsep paper theorem`` is made of: tables and numbers in Markdown."""

from collections.abc import Iterable, Sequence
from typing import Any

__all__ = ["Lines", "Row", "keys", "number", "range_of", "table"]

Row = dict[str, Any]
Lines = list[list[str]]


def keys(rows: Iterable[Row], *names: str) -> list[tuple[Any, ...]]:
    """Return the different values of these settings, in the order in which they come."""
    return list(dict.fromkeys(tuple(row["setting"].get(name) for name in names) for row in rows))


def range_of(rows: Sequence[Row]) -> str:
    """Return the least and the largest mean, or one of them where they are alike."""
    values = [row["mean"] for row in rows if row["mean"] is not None]
    low, high = min(values), max(values)
    return f"{low:.2f}" if high - low < 0.005 else f"{low:.2f} to {high:.2f}"


def number(value: float | None) -> str:
    """Return a number in three digits; nothing where there is none."""
    return "" if value is None or value != value else f"{value:.3g}"


def table(header: Sequence[str], cells: Lines) -> str:
    """Return a table in Markdown."""
    if not cells:
        return ""
    lines = [header, ["---", *("---:" for _ in header[1:])], *cells]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)
