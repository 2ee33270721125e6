"""Tables from files, and matrices from tables.

`read_table` reads CSV, Parquet and Arrow with pyarrow and hands over a polars frame; `as_matrix` takes what
a user passes to ``fit``. Their errors speak of structure (names, types, line numbers) and never repeat a
cell.

**Privacy.** Nothing is released here, but types matter: an error about a type is public structure. Parquet
and Arrow files and frames carry declared types. A CSV file carries none, and guessing them looks at every
value, so that a single odd cell can turn a column into text. With ``schema=`` the declared kinds decide
instead, and an unparsable number is a missing value: do so for private data. A CSV file that is damaged (rows
of another length, another encoding) is refused as a whole, before any fit and for its owner to mend.
"""

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import numpy as np
import polars as pl
import pyarrow as pa
from numpy.typing import NDArray

from dpsep.data.check import Finding, check_table, render_findings
from dpsep.data.declare import Schema
from dpsep.data.files import FORMATS, Source, find_source, read_stored, stored_types
from dpsep.data.frames import (
    TableError,
    as_frame,
    from_arrow,
    is_pandas,
    refuse_duplicates,
    unknown_column,
)
from dpsep.data.large import LargeColumns
from dpsep.data.text import csv_layout, read_csv

__all__ = [
    "Finding",
    "TableError",
    "as_matrix",
    "check_table",
    "check_types",
    "quiet",
    "read_structure",
    "read_table",
    "render_findings",
    "settled_format",
]


def read_table(
    source: str | Path | IO[bytes] | Source,
    format: str | None = None,
    *,
    columns: Sequence[str] | None = None,
    schema: Schema | None = None,
) -> pl.DataFrame:
    r"""Read a table from a file, a binary buffer or standard input.

    Parameters
    ----------
    source
        A path, a binary buffer, ``"-"`` for standard input, or what `find_source` found.
    format
        ``"csv"``, ``"parquet"`` or ``"arrow"``. By default the file's extension decides, then its first
        bytes; a buffer and standard input that begin like neither of the last two are CSV. CSV text is
        UTF-8 with one header line; its separator is the comma, or the tab or semicolon if the header holds
        one of these and no comma.
    columns
        Keep these columns, in this order.
    schema
        Keep the columns it declares and give a CSV file's columns the declared kinds, so that no type is
        guessed. The target and the unit may be missing, as they are when predicting.

    Returns
    -------
    The table. Raises `TableError` for what cannot be read as one.

    Examples
    --------
    >>> import io
    >>> read_table(io.BytesIO(b"age,sex\n41,F\n30,M\n"), columns=["sex"])["sex"].to_list()
    ['F', 'M']
    """
    given, kind = _settled(source, format)
    layout = csv_layout(given.opened, given.label) if kind == "csv" else None
    names = list(stored_types(given, kind)) if layout is None else layout.names
    wanted = [str(name) for name in columns] if columns is not None else names
    if columns is None and schema is not None:
        wanted = [column.name for column in schema.features]
        wanted += [name for name in names if name in (schema.target, schema.unit)]
    known = set(names)
    refuse_duplicates(wanted, "what is asked for")
    for name in wanted:
        if name not in known:
            raise TableError(f"{given.label}: {unknown_column(name, names)}")
    if layout is not None:
        frame = read_csv(given.opened, given.label, layout, wanted, schema)
    else:
        frame = read_stored(given, kind, wanted)
    if frame.height == 0:
        raise TableError(f"{given.label} has a header but no rows")
    return frame


def read_structure(source: str | Path | IO[bytes] | Source, format: str | None = None) -> dict[str, Any]:
    r"""Return the names of a table's columns and the types that the file declares; None each for CSV.

    No cell is looked at: of CSV text the header line is read, of other formats their metadata.

    Examples
    --------
    >>> import io
    >>> read_structure(io.BytesIO(b"age,sex\n41,F\n"))
    {'age': None, 'sex': None}
    """
    given, kind = _settled(source, format)
    if kind == "csv":
        return dict.fromkeys(csv_layout(given.opened, given.label).names)
    return stored_types(given, kind)


def settled_format(source: Source, format: str | None) -> str:
    """Return the format asked for, or the one that a source seems to have."""
    return _settled(source, format)[1]


def _settled(source: str | Path | IO[bytes] | Source, format: str | None) -> tuple[Source, str]:
    if format is not None and (not isinstance(format, str) or format not in ("csv", "parquet", "arrow")):
        raise TableError(f"there is no table format {format!r}; allowed are csv, parquet and arrow")
    given = source if isinstance(source, Source) else find_source(source)
    kind = format or given.format
    if kind is None:
        raise TableError(
            f"{given.label} has an extension that is not known; known are {', '.join(FORMATS)}, or say which "
            "it is with --format (format= in Python)"
        )
    return given, kind


def check_types(X: Any) -> None:
    """Raise `TableError` where the columns' names or types cannot be used; no cell is looked at.

    What `as_matrix` would refuse, told before anything is charged or read.

    Examples
    --------
    >>> check_types(pl.DataFrame({"age": [41, 30]}))
    >>> check_types(pl.DataFrame({"age": [41, 30], "sex": ["F", "M"]}))
    Traceback (most recent call last):
        ...
    dpsep.data.frames.TableError: column 'sex' has type String; only numbers can be used ...
    """
    if isinstance(X, pl.LazyFrame):
        _refuse_types(list(X.collect_schema().items()))
    elif isinstance(X, LargeColumns):
        _refuse_types(X.types)
    elif isinstance(X, pa.Table):
        refuse_duplicates(X.column_names, "X")
        empty = from_arrow(X.schema.empty_table())
        _refuse_types(list(zip(empty.columns, empty.dtypes, strict=True)))
    elif isinstance(X, pl.DataFrame):
        _refuse_types(list(zip(X.columns, X.dtypes, strict=True)))
    elif is_pandas(X):
        names = [str(name) for name in X.columns]
        refuse_duplicates(names, "X")
        _refuse_types(list(zip(names, X.dtypes, strict=True)))
    elif hasattr(X, "toarray"):
        raise TableError("X is a sparse matrix; make it dense with X.toarray()")
    elif getattr(getattr(X, "dtype", None), "kind", "O") not in "biufOc":  # complex has a message of its own
        raise TableError(f"X has type {X.dtype}; {_HOW_TO_DECLARE}")


def as_matrix(X: Any) -> tuple[NDArray[np.float64], list[str] | None]:
    """Return the inputs handed to an estimator as a matrix of doubles, with their names if they have any.

    Missing values become NaN and so do the cells of an object array that are no numbers, and all cells of a
    row of a list that is no row of numbers as long as the first. A column whose *type* is not numeric is an
    error that names the column and the type.

    Parameters
    ----------
    X
        A NumPy array of two dimensions, a pandas or polars frame, or a pyarrow table.

    Returns
    -------
    The matrix (N, d), and the columns' names or None.

    Examples
    --------
    >>> as_matrix(pl.DataFrame({"a": [1, 2], "b": [0.5, None]}))
    (array([[1. , 0.5],
           [2. , nan]]), ['a', 'b'])
    """
    check_types(X)
    if isinstance(X, LargeColumns):
        X = X.read(slice(None))  # all of it: whoever asks for a matrix gets one
    if isinstance(X, pl.LazyFrame | pa.Table):
        X = as_frame(X)
    if isinstance(X, pl.DataFrame):
        return _frame_matrix([X[name] for name in X.columns], X.height), X.columns
    if is_pandas(X):
        names = [str(name) for name in X.columns]
        series = [X.iloc[:, place] for place in range(len(names))]
        text = all(isinstance(name, str) for name in X.columns)
        return _frame_matrix(series, len(X)), names if text else None
    if isinstance(X, np.ma.MaskedArray):
        X = np.ma.filled(X.astype(object), np.nan)
    typed = hasattr(X, "dtype") or hasattr(X, "__array__")
    array = np.asarray(X) if typed else _rows_of_lists(X)
    if array.ndim != 2:
        raise TableError(
            f"X has {array.ndim} dimensions, expected 2 (records, features); for one feature use "
            "X.reshape(-1, 1), for one record X.reshape(1, -1)"
        )
    if array.dtype.kind == "O":
        with quiet():
            cells = [[_as_float(cell) for cell in row] for row in array]
        return np.array(cells).reshape(array.shape), None
    if array.dtype.kind not in "biuf":
        raise TableError(f"X has type {array.dtype}; {_HOW_TO_DECLARE}")
    with np.errstate(all="ignore"):  # a cell that no double can hold, or a signalling NaN, is no warning
        matrix = np.asarray(array, np.float64).view()
    # A table of doubles is not copied, so what is returned cannot be written to.
    matrix.flags.writeable = False
    return matrix, None


_HOW_TO_DECLARE = (
    "only numbers can be used as they are. Declare a text column's categories in a schema and pass the table "
    "through dpsep.data.encode, or leave the column out"
)


def _refuse_types(columns: list[tuple[str, Any]]) -> None:
    """Raise `TableError` at the first column whose type is not numeric."""
    for name, dtype in columns:
        if isinstance(dtype, pl.DataType):
            numeric = dtype.is_numeric() or dtype in (pl.Boolean, pl.Null)
        else:
            numeric = getattr(dtype, "kind", "O") in "biuf"
        if not numeric:
            raise TableError(f"column {name!r} has type {dtype}; {_HOW_TO_DECLARE}")


def _frame_matrix(columns: list[Any], height: int) -> NDArray[np.float64]:
    """Stack the columns of a polars or a pandas frame."""
    matrix = np.empty((height, len(columns)))
    for place, column in enumerate(columns):
        with np.errstate(all="ignore"):
            if isinstance(column, pl.Series):
                matrix[:, place] = column.cast(pl.Float64).fill_null(np.nan).to_numpy()
            else:
                matrix[:, place] = column.to_numpy(dtype=np.float64, na_value=np.nan)
    return matrix


@contextmanager
def quiet() -> Iterator[None]:
    """Hold back warnings that a cell's own code may give: they would tell on its record."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def _as_float(cell: Any) -> float:
    try:
        return float("nan") if isinstance(cell, complex | np.complexfloating) else float(cell)
    except Exception:  # whatever a cell's own conversion raises would tell on its record
        return float("nan")


def _rows_of_lists(X: Any) -> NDArray[Any]:
    """Return nested sequences as objects, cell by cell.

    NumPy would choose one type for all by looking at them, so that one text cell made text of every record.
    """
    with quiet():
        rows = [_cells_of(row) for row in X]
    if not rows or rows[0] is None:
        return np.empty(0, object)  # not two-dimensional, which the caller refuses
    width = len(rows[0])
    table = np.full((len(rows), width), np.nan, object)
    for place, row in enumerate(rows):
        if row is not None and len(row) == width:
            for column, cell in enumerate(row):
                table[place, column] = cell
    return table


def _cells_of(row: Any) -> list[Any] | None:
    try:
        return list(row)
    except Exception:  # whatever a row's own iteration raises would tell on its record
        return None
