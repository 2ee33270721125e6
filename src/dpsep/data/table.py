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

import gzip
import io
import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.csv
import pyarrow.feather
import pyarrow.parquet
from numpy.typing import NDArray

from dpsep.data.check import Finding, check_table, render_findings
from dpsep.data.declare import Schema
from dpsep.data.frames import TableError, as_frame, is_pandas, refuse_duplicates, unknown_column
from dpsep.data.schema import parse_number

__all__ = [
    "Finding",
    "TableError",
    "as_matrix",
    "check_table",
    "check_types",
    "quiet",
    "read_table",
    "render_findings",
]

FORMATS = {
    **{".csv": "csv", ".tsv": "csv", ".txt": "csv"},
    **{".parquet": "parquet", ".pq": "parquet", ".arrow": "arrow", ".feather": "arrow", ".ipc": "arrow"},
}
"""The format that each file extension stands for; ``.gz`` behind a text format's extension is unpacked."""

MISSING = ("", "NA", "N/A", "NaN", "nan", "null", "NULL", "None", "?")
"""What counts as missing when a CSV column's type is guessed; in a column that stays text these are kept."""


def read_table(
    source: str | Path | IO[bytes],
    format: str | None = None,
    *,
    columns: Sequence[str] | None = None,
    schema: Schema | None = None,
) -> pl.DataFrame:
    """Read a table from a file, a binary buffer or standard input.

    Parameters
    ----------
    source
        A path, a binary buffer, or ``"-"`` for standard input.
    format
        ``"csv"``, ``"parquet"`` or ``"arrow"``. By default the file's extension decides; a buffer and
        standard input are recognised by their first bytes. CSV text is UTF-8 with one header line; its
        separator is the comma, or the tab or semicolon if the header holds one of these and no comma.
    columns
        Keep these columns, in this order.
    schema
        Keep the columns it declares and give a CSV file's columns the declared kinds, so that no type is
        guessed. The target may be missing, as it is when predicting.

    Returns
    -------
    The table. Raises `TableError` for what cannot be read as one.
    """
    content, label, guessed = _content(source)
    kind = format or guessed
    readers = {"csv": _read_csv, "parquet": _read_parquet, "arrow": _read_arrow}
    if kind is None:
        raise TableError(
            f"{label} has an extension that is not known; known are {', '.join(FORMATS)}, or say format="
        )
    if kind not in readers:
        raise TableError(f"there is no table format {kind!r}; allowed are csv, parquet and arrow")
    if not content.strip():
        raise TableError(f"{label} is empty; a table has a header and at least one row")
    table = readers[kind](content, label)
    if table.num_rows == 0:
        raise TableError(f"{label} has a header but no rows")
    refuse_duplicates(table.column_names, label)
    wanted = list(columns) if columns is not None else table.column_names
    if columns is None and schema is not None:
        wanted = [column.name for column in schema.features]
        wanted += [name for name in table.column_names if name == schema.target]
    for name in wanted:
        if name not in table.column_names:
            raise TableError(f"{label}: {unknown_column(name, table.column_names)}")
    frame = pl.DataFrame(pl.from_arrow(table)).select(wanted)
    if kind == "csv":
        declared = {column.name: column.kind for column in schema.columns} if schema is not None else {}
        frame = frame.select([_typed(frame[name], declared.get(name)) for name in wanted])
    return frame


def check_types(X: Any) -> None:
    """Raise `TableError` where the columns' names or types cannot be used; no cell is looked at.

    What `as_matrix` would refuse, told before anything is charged or read.
    """
    if isinstance(X, pl.LazyFrame):
        _refuse_types(list(X.collect_schema().items()))
    elif isinstance(X, pa.Table):
        refuse_duplicates(X.column_names, "X")
        empty = pl.DataFrame(pl.from_arrow(X.schema.empty_table()))
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
    if isinstance(X, pl.LazyFrame | pa.Table):
        X = as_frame(X)
    if isinstance(X, pl.DataFrame):
        return _frame_matrix([X[name] for name in X.columns], X.height), X.columns
    if is_pandas(X):
        names = [str(name) for name in X.columns]
        series = [X.iloc[:, place] for place in range(len(names))]
        text = all(isinstance(name, str) for name in X.columns)
        return _frame_matrix(series, len(X)), names if text else None
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


def _content(source: str | Path | IO[bytes]) -> tuple[bytes, str, str | None]:
    """Return the source's bytes, what to call it, and its likely format (None: not known)."""
    if source == "-" or not isinstance(source, str | Path):
        content = sys.stdin.buffer.read() if isinstance(source, str | Path) else source.read()
        label = "standard input" if isinstance(source, str | Path) else "the buffer"
        if isinstance(content, str):
            raise TableError(f"{label} gives text; open it in binary mode")
        kinds = {b"PAR1": "parquet", b"ARRO": "arrow", b"FEA1": "arrow"}
        return content, label, kinds.get(content[:4], "csv")
    path = Path(source)
    if path.is_dir():
        raise TableError(f"{path} is a folder; name a file in it")
    if not path.exists():
        raise TableError(f"there is no file {path}")
    packed = path.suffix.lower() == ".gz"
    suffix = path.with_suffix("").suffix.lower() if packed else path.suffix.lower()
    try:
        content = gzip.decompress(path.read_bytes()) if packed else path.read_bytes()
    except (OSError, EOFError) as error:
        raise TableError(f"{path} cannot be read ({type(error).__name__})") from None
    return content, str(path), FORMATS.get(suffix)


def _read_csv(content: bytes, label: str) -> pa.Table:
    """Read CSV text with every column as text, and refuse rows of the wrong length."""
    try:
        content.decode("utf-8")
    except UnicodeDecodeError:
        raise TableError(f"{label} is not UTF-8 text; save it with the encoding UTF-8") from None
    if b"\0" in content:
        raise TableError(f"{label} is not text; if it is Parquet or Arrow, say so with format=")
    if not content.endswith(b"\n"):
        content += b"\n"  # pyarrow takes a header that nothing ends for no table at all
    header = content.lstrip().split(b"\n", 1)[0]
    separator = next((mark for mark in ",\t;" if mark.encode() in header), ",")
    ragged: list[Any] = []

    def note(row: Any) -> str:
        ragged.append(row)
        return "skip"

    parse = pyarrow.csv.ParseOptions(delimiter=separator, newlines_in_values=True, invalid_row_handler=note)
    # One thread: only then does pyarrow know the number of a bad row.
    read = pyarrow.csv.ReadOptions(use_threads=False)
    try:
        names = pyarrow.csv.open_csv(io.BytesIO(content), read, parse).schema.names
        ragged.clear()
        convert = pyarrow.csv.ConvertOptions(
            column_types=dict.fromkeys(names, pa.string()), strings_can_be_null=True, null_values=[""]
        )
        table = pyarrow.csv.read_csv(io.BytesIO(content), read, parse, convert)
    except pa.ArrowInvalid:
        raise TableError(f"{label} is not a CSV table; check its header and its quotes") from None
    if ragged:
        first = ragged[0]
        raise TableError(
            f"{label}: {len(ragged)} row(s) do not have the header's {first.expected_columns} columns, the "
            f"first in line {first.number} with {first.actual_columns}; quote values that hold {separator!r}"
        )
    return table.rename_columns([name.strip() for name in names])


def _read_parquet(content: bytes, label: str) -> pa.Table:
    try:
        file = pyarrow.parquet.ParquetFile(io.BytesIO(content))
        refuse_duplicates(file.schema_arrow.names, label)  # pyarrow's own refusal does not say what is wrong
        return file.read()
    except (pa.ArrowException, OSError):
        raise TableError(f"{label} is not a whole Parquet file") from None


def _read_arrow(content: bytes, label: str) -> pa.Table:
    """Read an Arrow file (Feather is one) or an Arrow stream."""
    try:
        if content[:4] in (b"ARRO", b"FEA1"):
            return pyarrow.feather.read_table(io.BytesIO(content))
        return pa.ipc.open_stream(content).read_all()
    except (pa.ArrowException, OSError):
        raise TableError(f"{label} is not a whole Arrow or Feather file") from None


def _typed(column: pl.Series, kind: str | None) -> pl.Series:
    """Give a text column its declared kind, or without one the narrowest type that holds all its values."""
    if kind == "category":
        return column
    if kind == "number":
        return pl.Series(column.name, parse_number(column)).fill_nan(None)
    stripped = column.str.strip_chars()
    stripped = stripped.set(stripped.is_in(MISSING), None)
    for dtype in (pl.Int64, pl.Float64):
        values = stripped.cast(dtype, strict=False)
        if values.null_count() == stripped.null_count():
            return values
    return column
