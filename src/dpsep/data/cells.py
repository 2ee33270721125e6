"""One declared column's cells as numbers: parsed, coded by their category, and missing ones by their rule.

**Privacy.** Row i of what is returned depends on cell i and on what was declared; errors speak of a column's
type. Nothing is released here.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from dpsep.data.column import MISSING_LEVEL, Column, Fill
from dpsep.data.frames import TableError

__all__ = ["Cells", "category_codes", "missing_cells", "parse_number", "read_cells"]

TEXT = (pl.String, pl.Categorical, pl.Enum)


class Cells(NamedTuple):
    """A column's cells by their declaration.

    Attributes
    ----------
    values
        Numbers, NaN where a cell cannot be used; of a category the place among its levels, -1 likewise.
    filled
        Where the declared constant stands in the place of a missing cell.
    """

    values: NDArray[Any]
    filled: NDArray[np.bool_]


def read_cells(series: pl.Series, column: Column, na: Sequence[str]) -> Cells:
    """Return a column's cells, with its rule for missing ones applied.

    A cell that is there and makes no sense (text in a number, an undeclared category) is not missing: no
    rule applies to it and it cannot be used.
    """
    gone = missing_cells(series, column, na)
    if column.kind == "number":
        values: NDArray[Any] = parse_number(series)
        values[gone] = column.missing.value if isinstance(column.missing, Fill) else np.nan
    else:
        values = category_codes(series, column).copy()
        stand_in = column.missing.value if isinstance(column.missing, Fill) else MISSING_LEVEL
        values[gone] = -1 if column.missing == "drop" else column.levels.index(str(stand_in))
    return Cells(values, gone if isinstance(column.missing, Fill) else np.zeros(len(gone), bool))


def missing_cells(series: pl.Series, column: Column | None, na: Sequence[str]) -> NDArray[np.bool_]:
    """Say which cells are missing: null, NaN, empty, or one of ``na`` and not a declared category."""
    gone = series.is_null().to_numpy()
    categories = set(column.categories or ()) if column is not None else set()
    marks = [text for text in ("", *na) if text not in categories]
    if series.dtype in TEXT:
        cells = series.cast(pl.String).str.strip_chars()
        return gone | cells.is_in(marks).fill_null(True).to_numpy()
    if not series.dtype.is_numeric():
        return gone
    cells = series.cast(pl.Float64, strict=False)
    declared = {as_float(text) for text in categories}
    numbers = [value for value in map(as_float, marks) if value is not None and value not in declared]
    return gone | (cells.is_nan() | cells.is_in(numbers)).fill_null(True).to_numpy()


def parse_number(series: pl.Series) -> NDArray[np.float64]:
    """Return a column as doubles, NaN where a cell is missing, infinite or no number."""
    if series.dtype in TEXT:
        series = series.cast(pl.String).str.strip_chars()
    elif not (series.dtype.is_numeric() or series.dtype in (pl.Boolean, pl.Null)):
        raise TableError(
            f"column {series.name!r} is declared a number but has type {series.dtype}; convert it"
        )
    values = series.cast(pl.Float64, strict=False).fill_null(np.nan).to_numpy().copy()
    values[~np.isfinite(values)] = np.nan
    return values


def category_codes(series: pl.Series, column: Column) -> NDArray[np.int32]:
    """Return each cell's place among the declared categories, -1 where it is missing or undeclared.

    Text is compared without surrounding spaces, true and false in any case; a numeric column by value, so
    that 1.0 is the category ``"1"``.
    """
    categories = list(column.categories or ())
    lowered = [value.lower() for value in categories]
    if series.dtype == pl.Boolean and set(lowered) <= {"true", "false"}:
        keys: list[Any] = lowered
        cells = series.cast(pl.String)
    elif series.dtype.is_numeric() or series.dtype == pl.Boolean:
        keys = [as_float(value) for value in categories]
        cells = series.cast(pl.Float64)
    elif series.dtype.is_nested() or series.dtype in (pl.Binary, pl.Object, pl.Duration):
        raise TableError(
            f"column {series.name!r} is declared a category but has type {series.dtype}; convert it"
        )
    elif set(lowered) <= {"true", "false"}:
        keys = lowered  # programs write True, TRUE and true
        cells = _within_years(series).cast(pl.String).str.strip_chars().str.to_lowercase()
    else:
        keys = categories
        cells = _within_years(series).cast(pl.String).str.strip_chars()
    places: dict[Any, int] = {}
    for place, key in enumerate(keys):
        if key is not None:
            places.setdefault(key, place)
    old = pl.Series(list(places), dtype=cells.dtype)
    codes = cells.replace_strict(old, list(places.values()), default=-1, return_dtype=pl.Int32)
    return codes.fill_null(-1).to_numpy()


MOST_DAYS = 2_932_896
"""The last day of the year 9999, from 1970; as many days before it are dates, too."""


def _within_years(series: pl.Series) -> pl.Series:
    """A column in which dates and times of no common calendar are missing: polars stops a program at one."""
    if not series.dtype.is_temporal() or series.dtype == pl.Time:
        return series
    units = {"ms": 10**3, "us": 10**6, "ns": 10**9}
    day = 1 if series.dtype == pl.Date else 86_400 * units[series.dtype.time_unit]  # pyright: ignore
    most = min(MOST_DAYS * day, 2**62)
    return series.set(~series.to_physical().is_between(-most, most).fill_null(False), None)


def as_float(text: str) -> float | None:
    """Return a text as a number, None where it is none."""
    try:
        return float(text)
    except ValueError:
        return None
