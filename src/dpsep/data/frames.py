"""Any table as a polars frame.

The rest of the room speaks polars; this file turns pandas frames, Arrow tables and mappings into it, column
by column and without ever failing on a value: what pandas holds as objects becomes text. pandas itself is
imported only if the user has imported it to make the frame handed over.
"""

from collections import Counter
from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa

__all__ = ["TableError", "as_frame", "from_arrow", "is_pandas", "refuse_duplicates", "unknown_column"]


LONGEST_NAME = 100
"""Characters of a column's name that a message repeats."""


class TableError(ValueError):
    """A table could not be read, or its structure is not what is needed."""


def as_frame(table: Any) -> pl.DataFrame:
    """Return the table as a polars frame.

    Parameters
    ----------
    table
        A polars or pandas frame, a polars lazy frame, a pyarrow table or a mapping of columns.

    Examples
    --------
    >>> as_frame({"age": [41, 30], "sex": ["F", "M"]}).columns
    ['age', 'sex']
    """
    if isinstance(table, pl.DataFrame):
        return table
    if isinstance(table, pl.LazyFrame):
        return table.collect()
    if isinstance(table, pa.Table):
        refuse_duplicates(table.column_names, "the table")
        return from_arrow(table)
    if is_pandas(table):
        refuse_duplicates([str(name) for name in table.columns], "the table")
        return pl.DataFrame([_from_pandas(str(name), table[name]) for name in table.columns])
    if isinstance(table, Mapping):
        try:
            return pl.DataFrame([_from_cells(str(name), cells) for name, cells in table.items()])
        except (pl.exceptions.PolarsError, TypeError):
            raise TableError("the columns of the table differ in length, or one cannot be read") from None
    raise TableError(
        f"expected a table, got {type(table).__name__}; pass a polars or pandas frame, a pyarrow table or a "
        "mapping of column names to values"
    )


def from_arrow(table: pa.Table) -> pl.DataFrame:
    """Return an Arrow table as polars' frame; what polars cannot hold is converted, or refused by its type.

    polars has no decimals of more than 38 digits and none of a negative scale: it stops the program at the
    first it meets. They become doubles. Which columns are refused depends on their types only, so that an
    empty table of the same types tells before anything is read.

    Examples
    --------
    >>> from_arrow(pa.table({"dose": pa.array([1, 2], pa.decimal256(50, 2))}))["dose"].to_list()
    [1.0, 2.0]
    """
    columns = [_held(name, column) for name, column in zip(table.column_names, table.columns, strict=True)]
    return pl.DataFrame(pl.from_arrow(pa.table(columns, table.column_names)))


def _held(name: str, column: Any) -> Any:
    """Return a column in a type that polars holds."""
    kind = column.type
    if pa.types.is_dictionary(kind) and pa.types.is_decimal(kind.value_type):
        return _held(name, column.cast(kind.value_type))
    if pa.types.is_decimal256(kind) or (pa.types.is_decimal(kind) and kind.scale < 0):
        return column.cast(pa.float64())
    unheld = ("is_list_view", "is_large_list_view", "is_union", "is_interval", "is_run_end_encoded")
    if any(getattr(pa.types, is_such)(kind) for is_such in unheld):
        raise TableError(f"column {name!r} has type {kind}, which cannot be read; leave the column out")
    return column


def is_pandas(table: Any) -> bool:
    """Say whether the object is a pandas frame, without importing pandas."""
    return type(table).__module__.split(".")[0] == "pandas" and hasattr(table, "dtypes") and table.ndim == 2


def refuse_duplicates(names: list[str], where: str) -> None:
    """Raise if a column's name occurs twice."""
    repeated = sorted(name for name, count in Counter(names).items() if count > 1)
    if repeated:
        raise TableError(f"{where} has more than one column named {_listed(repeated, 5)}; rename them")


def unknown_column(name: str, known: list[str]) -> str:
    """Say that a column is not there, which are, and which one may have been meant."""
    # Looking for what is near takes time that grows with the square of a name's length.
    some = [other for other in known if len(other) <= LONGEST_NAME][:1000]
    near = get_close_matches(name, some, n=1) if len(name) <= LONGEST_NAME else []
    meant = f" Did you mean {near[0]!r}?" if near else ""
    return f"there is no column {_cut(name)!r}; the columns are {_listed(known, 20)}.{meant}"


def _listed(names: list[str], most: int) -> str:
    return ", ".join(_cut(name) for name in names[:most]) + (", ..." if len(names) > most else "")


def _cut(name: str) -> str:
    return name if len(name) <= LONGEST_NAME else f"{name[:LONGEST_NAME]}..."


def _from_pandas(name: str, column: Any) -> pl.Series:
    if getattr(column.dtype, "kind", "O") in "biuf":
        return pl.Series(name, column.to_numpy(dtype=np.float64, na_value=np.nan)).fill_nan(None)
    missing = column.isna()
    values = [
        None if gone else _as_text(value) for value, gone in zip(_listed_cells(column), missing, strict=True)
    ]
    return pl.Series(name, values, dtype=pl.String)


def _listed_cells(column: Any) -> list[Any]:
    """Cells of a pandas column; one whose own reading fails is None, and the others are what they are."""
    try:
        return list(column)
    except Exception:  # it would tell on its record
        return [_cell(column, place) for place in range(len(column))]


def _cell(column: Any, place: int) -> Any:
    try:
        return column.iloc[place]
    except Exception:  # it would tell on its record
        return None


def _from_cells(name: str, cells: Any) -> pl.Series:
    """Return a mapping's column; cells that have no common type become text, as pandas' objects do.

    A list has no type of its own: it is guessed from all cells, so that one odd record changes how others are
    read. Where a private fit follows give arrays with a type, or a frame.
    """
    try:
        column = pl.Series(name, cells, strict=False)
    except (UnicodeEncodeError, OverflowError, TypeError, pl.exceptions.PolarsError):
        column = None
    if isinstance(cells, list | tuple) and (column is None or column.dtype in (pl.Object, pl.Binary)):
        return pl.Series(name, [_as_text(cell) for cell in cells], dtype=pl.String)
    if column is None:
        raise TypeError(name)
    return column


def _as_text(cell: Any) -> str | None:
    """Return a cell as text; None where it is no text that a file could hold."""
    if cell is None or isinstance(cell, bytes):
        return None
    try:
        text = str(cell)
        text.encode()
    except Exception:  # whatever a cell's own conversion raises would tell on its record
        return None
    return text
