"""What is wrong with a table's values, for its owner's eyes.

**Privacy.** This file is the one place of the room that looks at values and speaks about them: counts, row
numbers, constancy. Its findings are *not private*, nothing of it is accounted, and nothing in a fit calls
it. The rendering says so in its first line.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from dpsep.data.cells import category_codes, missing_cells, parse_number
from dpsep.data.column import MISSING_LEVEL, Fill
from dpsep.data.declare import NA, Column, Schema
from dpsep.data.files import Source
from dpsep.data.frames import as_frame, unknown_column
from dpsep.data.text import csv_layout, guess_types, read_lines

__all__ = ["Finding", "check_lines", "check_table", "render_findings"]

SHOWN_ROWS = 5
"""How many row numbers a finding names."""


@dataclass(frozen=True)
class Finding:
    """One thing found in one column.

    ``problem`` is ``"absent"``, ``"wrong type"``, ``"missing"``, ``"unparsable"``, ``"out of bounds"``,
    ``"undeclared"``, ``"constant"``, ``"duplicate"`` or, of lines of text, ``"damaged"``; ``count`` rows have
    it, of which ``rows`` are the first, counted from 1 (lines with the header's as the first); ``detail``
    says it in words.

    Examples
    --------
    >>> finding = Finding("age", "missing", count=1, rows=(3,), detail="1 value is missing")
    >>> finding.column, finding.problem
    ('age', 'missing')
    """

    column: str
    problem: str
    count: int
    rows: tuple[int, ...]
    detail: str


def check_table(table: Any, schema: Schema | None = None) -> list[Finding]:
    """Look through a table for values that a fit would set to zero or that carry no information.

    The findings describe single records: they are not private, and are for the data's owner only.

    Parameters
    ----------
    table
        A polars or pandas frame, a pyarrow table or a mapping of columns.
    schema
        The declared structure. Without one only missing values, constant and duplicated columns are looked
        for.

    Returns
    -------
    The findings, by column in the declared order; empty if nothing was found.

    Examples
    --------
    >>> schema = Schema((Column("age", "number", (0, 120)), Column("sex", "category", categories=("F", "M"))))
    >>> for finding in check_table({"age": [41, 130, None], "sex": ["M", "F", "X"]}, schema):
    ...     print(finding.column, finding.problem, finding.rows)
    age missing (3,)
    age out of bounds (2,)
    sex undeclared (3,)
    """
    frame = as_frame(table)
    names = list(frame.columns) if schema is None else [column.name for column in schema.columns]
    findings: list[Finding] = []
    present: list[str] = []
    for name in names:
        if name not in frame.columns:
            findings.append(Finding(name, "absent", 0, (), unknown_column(name, frame.columns)))
            continue
        present.append(name)
        column, na = (None, ("",)) if schema is None else (schema[name], schema.na)
        findings += _check_column(frame[name], column, na)
    return findings + _duplicates(frame, present)


def check_lines(source: Source, schema: Schema | None = None) -> list[Finding]:
    """Look through CSV text as a private fit reads it, one record a line: for damaged lines first.

    Parameters
    ----------
    source
        From `dpsep.data.files.find_source`.
    schema
        As of `check_table`.
    """
    layout = csv_layout(source.opened, source.label)
    types = guess_types(source.opened, layout, layout.names)
    frame, damaged = read_lines(source.opened, layout, types, NA)
    found = check_table(frame, schema)
    if not damaged:
        return found
    detail = (
        f"{len(damaged)} of {frame.height} lines have another number of cells than the header, or quotes "
        "that do not close in them, or bytes that are no text: records without a usable cell"
    )
    shown = tuple(damaged[:SHOWN_ROWS])
    return [Finding("(lines)", "damaged", len(damaged), shown, detail), *found]


def render_findings(findings: list[Finding]) -> str:
    """Write findings as text, headed by the warning that they are not private.

    Examples
    --------
    >>> print(render_findings([]))
    NOT PRIVATE: this describes single records. For the data's owner only; do not publish it.
    Nothing to remark.
    """
    lines = ["NOT PRIVATE: this describes single records. For the data's owner only; do not publish it."]
    if not findings:
        return "\n".join([*lines, "Nothing to remark."])
    for finding in findings:
        shown = ", ".join(map(str, finding.rows)) + (", ..." if finding.count > len(finding.rows) else "")
        lines.append(f"{finding.column}: {finding.detail}" + (f" (rows {shown})" if finding.rows else ""))
    return "\n".join(lines)


def _check_column(series: pl.Series, column: Column | None, na: Sequence[str]) -> list[Finding]:
    missing = missing_cells(series, column, na)
    found = [_finding(series, "missing", missing, f"without a value{_rule(column)}")]
    try:
        if column is not None and column.kind == "number":
            values = parse_number(series)
            found.append(
                _finding(series, "unparsable", np.isnan(values) & ~missing, "that are no finite number")
            )
            if column.bounds is not None:
                lower, upper = column.bounds
                outside = ((values < lower) | (values > upper)) & ~missing
                found.append(_finding(series, "out of bounds", outside, f"outside {lower:g} to {upper:g}"))
        elif column is not None:
            undeclared = (category_codes(series, column) < 0) & ~missing
            found.append(_finding(series, "undeclared", undeclared, "with a value that is not declared"))
    except ValueError as error:
        found.append(Finding(series.name, "wrong type", len(series), (), str(error)))
        return [finding for finding in found if finding is not None]
    if len(series) > 1 and not series.dtype.is_nested() and series.n_unique() == 1:
        found.append(Finding(series.name, "constant", len(series), (), "the same value in every row"))
    return [finding for finding in found if finding is not None]


def _rule(column: Column | None) -> str:
    """What a fit makes of missing cells, where something is declared."""
    if column is None or column.missing == "drop":
        return ""
    if isinstance(column.missing, Fill):
        return f", filled by {column.missing.value}"
    return f", which become the level {MISSING_LEVEL!r}"


def _finding(series: pl.Series, problem: str, where: NDArray[np.bool_], what: str) -> Finding | None:
    rows = np.flatnonzero(where) + 1
    if not rows.size:
        return None
    shown = tuple(int(row) for row in rows[:SHOWN_ROWS])
    return Finding(series.name, problem, int(rows.size), shown, f"{rows.size} of {len(series)} rows {what}")


def _duplicates(frame: pl.DataFrame, names: list[str]) -> list[Finding]:
    """Find columns that repeat an earlier one; a hash of each column finds candidates, equality decides."""
    earlier: dict[tuple[Any, ...], list[str]] = {}
    findings: list[Finding] = []
    for name in names:
        series = frame[name]
        if series.dtype.is_nested() or series.dtype == pl.Object:
            continue
        key = (str(series.dtype), int(series.hash(0).implode().hash(0)[0]))
        twins = [other for other in earlier.get(key, []) if series.equals(frame[other], null_equal=True)]
        if twins:
            detail = f"the same values as column {twins[0]!r}"
            findings.append(Finding(name, "duplicate", frame.height, (), detail))
        earlier.setdefault(key, []).append(name)
    return findings
