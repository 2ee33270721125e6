r"""Tables larger than memory: Parquet, Arrow and NumPy files whose rows are read as they are needed.

`scan` opens a table by its metadata. `table[["a", "b"]]` and `table["y"]` are what an estimator's `fit` takes
as X and y: they have shapes, names and types, and their rows are read by number, in rising order, while the
fit goes on. Sequential reads decode each batch of rows once; sampled rows touch only the row groups, record
batches or pages that hold them.

=========  ==========================================================================================
Parquet    a forward cursor of decoded batches; row groups without a wanted row are passed over
Arrow      memory-mapped record batches, any row at once where the file is not compressed
NumPy      a memory-mapped matrix, any row at once
=========  ==========================================================================================

*Memory.* At most about ``memory`` bytes are held for rows: a decoded batch and the chunks read ahead. Mapped
pages are the operating system's to take back.

**Privacy.** Names, types and the number of rows are metadata, and public. Which rows are read is secret while
a private fit samples: nothing here writes it down. Errors name files, columns and types, never cells.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from threading import Lock
from typing import Any, overload

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet
from numpy.typing import NDArray

from dpsep.data.files import FOREIGN
from dpsep.data.frames import TableError, refuse_duplicates, unknown_column

__all__ = ["LargeColumn", "LargeColumns", "LargeTable", "scan"]

Rows = NDArray[np.int64] | slice
"""Which rows: numbers in rising order, or a slice with step one."""
MEMORY = 2**30
"""Bytes that a table may hold, unless said otherwise."""


class LargeTable(ABC):
    """A table on a disk; see the module. Made by `scan`.

    Parameters
    ----------
    label
        What the table is called in messages.
    schema
        Names and types of its columns.
    rows
        Their number.
    memory
        Bytes that may be held for rows.
    """

    def __init__(self, label: str, schema: pa.Schema, rows: int, memory: int) -> None:
        refuse_duplicates(schema.names, label)
        self.label = label
        self.schema = schema
        self.memory = memory
        self._rows = rows

    def __len__(self) -> int:
        return self._rows

    @property
    def names(self) -> list[str]:
        """Names of the columns."""
        return list(self.schema.names)

    @overload
    def __getitem__(self, columns: str) -> "LargeColumn": ...
    @overload
    def __getitem__(self, columns: list[str]) -> "LargeColumns": ...
    def __getitem__(self, columns: str | list[str]) -> "LargeColumn | LargeColumns":
        """Return one column, or several in this order."""
        for name in [columns] if isinstance(columns, str) else columns:
            if name not in self.schema.names:
                raise TableError(f"{self.label}: {unknown_column(name, self.names)}")
        return LargeColumn(self, columns) if isinstance(columns, str) else LargeColumns(self, list(columns))

    def drop(self, *names: str) -> "LargeColumns":
        """Return all columns but these."""
        for name in names:
            self[name]
        return self[[name for name in self.names if name not in names]]

    @abstractmethod
    def read(self, rows: Rows, columns: Sequence[str]) -> pa.Table:
        """Read these rows of these columns.

        Parameters
        ----------
        rows
            Numbers in rising order, or a slice with step one, which may end beyond the last row.
        columns
            Names, in the order wanted.
        """

    def batch_rows(self, columns: int) -> int:
        """Rows to decode at a time: a quarter of the memory allowed, as doubles."""
        return int(np.clip(self.memory // 4 // (8 * max(columns, 1)), 256, 2**17))


class LargeColumns:
    """Several columns of a large table, as X of a fit."""

    def __init__(self, table: LargeTable, names: list[str]) -> None:
        refuse_duplicates(names, "what is asked for")
        self.table = table
        self.column_names = names
        self.shape = (len(table), len(names))

    def __len__(self) -> int:
        return self.shape[0]

    @property
    def types(self) -> list[tuple[str, Any]]:
        """Names and types, in polars' terms."""
        empty = pa.schema([self.table.schema.field(name) for name in self.column_names]).empty_table()
        return list(pl.DataFrame(pl.from_arrow(empty)).schema.items())

    def read(self, rows: Rows) -> pa.Table:
        """Read rows."""
        return self.table.read(rows, self.column_names)


class LargeColumn:
    """One column of a large table, as y of a fit."""

    def __init__(self, table: LargeTable, name: str) -> None:
        self.table = table
        self.name = name
        self.shape = (len(table),)
        self.type: pa.DataType = table.schema.field(name).type

    def __len__(self) -> int:
        return self.shape[0]

    def read(self, rows: Rows) -> pa.ChunkedArray:
        """Read rows."""
        return self.table.read(rows, [self.name]).column(0)


def scan(source: Any, *, memory: int = MEMORY, names: Sequence[str] | None = None) -> LargeTable:
    """Open a table whose rows are to be read as they are needed; no cell is read.

    Parameters
    ----------
    source
        A Parquet, an Arrow (Feather) or a NumPy file (``.npy``, a matrix of numbers); a folder of Parquet
        files with the same columns, taken in the order of their names; or a NumPy array, memory-mapped or
        not.
    memory
        Bytes that may be held for rows.
    names
        Of a NumPy matrix's columns; x0, x1, ... by default.

    Returns
    -------
    The table. Raises `TableError` for what cannot be read as one.

    Examples
    --------
    >>> table = scan(np.arange(6.0).reshape(3, 2), names=["age", "pain"])
    >>> len(table), table.names, table[["pain"]].shape
    (3, ['age', 'pain'], (3, 1))
    >>> table["age"].read(slice(1, 3)).to_pylist()
    [2.0, 4.0]
    """
    if not memory >= 2**20:
        raise TableError(f"memory is {memory} bytes; give at least a million (2**20), such as 2**30")
    if isinstance(source, np.ndarray):
        return _Matrix("the array", source, names, int(memory))
    path = Path(source)
    if path.is_dir():
        files = sorted(path.glob("*.parquet"))
        if not files:
            raise TableError(
                f"{path} is a folder without a .parquet file in it; name a file, or another folder"
            )
        return _opened(str(path), lambda: _Parquet(str(path), files, int(memory)))
    if not path.exists():
        raise TableError(f"there is no file {path}")
    kind = path.suffix.lower()
    if kind in (".parquet", ".pq"):
        return _opened(str(path), lambda: _Parquet(str(path), [path], int(memory)))
    if kind in (".arrow", ".feather", ".ipc"):
        return _opened(str(path), lambda: _Arrow(str(path), path, int(memory)))
    if kind == ".npy":
        matrix = _opened(str(path), lambda: np.load(path, mmap_mode="r", allow_pickle=False))
        return _Matrix(str(path), matrix, names, int(memory))
    raise TableError(
        f"{path} cannot be read row by row; formats that can are .parquet, .arrow, .feather and .npy. Write "
        "a CSV file as Parquet once, for example with polars: pl.scan_csv(PATH).sink_parquet(NEW)"
    )


def _opened(label: str, make: Any) -> Any:
    try:
        return make()
    except (*FOREIGN, ValueError, EOFError):
        raise TableError(f"{label} is not a whole file of the format that its name says") from None


class _Matrix(LargeTable):
    """A matrix, mapped or in memory."""

    def __init__(self, label: str, matrix: Any, names: Sequence[str] | None, memory: int) -> None:
        if matrix.ndim != 2 or matrix.dtype.kind not in "biuf":
            raise TableError(
                f"{label} has {matrix.ndim} dimensions and type {matrix.dtype}; a table is a matrix of "
                "numbers"
            )
        given = [f"x{place}" for place in range(matrix.shape[1])] if names is None else list(names)
        if len(given) != matrix.shape[1]:
            raise TableError(f"{label} has {matrix.shape[1]} columns, and {len(given)} names are given")
        kind = pa.from_numpy_dtype(matrix.dtype)
        super().__init__(label, pa.schema([(name, kind) for name in given]), len(matrix), memory)
        self._matrix = matrix
        self._places = {name: place for place, name in enumerate(given)}

    def read(self, rows: Rows, columns: Sequence[str]) -> pa.Table:
        """Read rows of columns."""
        part = self._matrix[rows]
        return pa.table({name: np.ascontiguousarray(part[:, self._places[name]]) for name in columns})

    def matrix(self, rows: Rows, columns: Sequence[str]) -> NDArray[np.float64]:
        """Read rows of columns as doubles, without a detour by columns."""
        places = [self._places[name] for name in columns]
        part = self._matrix[rows]
        in_turn = places == list(range(places[0], places[0] + len(places)))
        part = part[:, places[0] : places[0] + len(places)] if in_turn else part[:, places]
        return np.asarray(part, np.float64)


class _Parquet(LargeTable):
    """Row groups of one or more files, read forward in batches."""

    def __init__(self, label: str, files: Sequence[Path], memory: int) -> None:
        opened = [pyarrow.parquet.ParquetFile(path) for path in files]
        schema = pa.schema([field.remove_metadata() for field in opened[0].schema_arrow])
        for one, path in zip(opened, files, strict=True):
            if [(field.name, field.type) for field in one.schema_arrow] != [(f.name, f.type) for f in schema]:
                raise TableError(f"{path} has other columns or types than {files[0]}; a table has one schema")
        self._groups = [(file, group) for file in opened for group in range(file.metadata.num_row_groups)]
        sizes = [file.metadata.row_group(group).num_rows for file, group in self._groups]
        self._starts = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
        super().__init__(label, schema, int(self._starts[-1]), memory)
        self._lock = Lock()
        self._cursor: _Cursor | None = None

    def read(self, rows: Rows, columns: Sequence[str]) -> pa.Table:
        """Read rows of columns."""
        wanted = _numbers(rows, len(self))
        with self._lock:
            first = int(wanted[0]) if len(wanted) else 0
            cursor = self._cursor
            if cursor is None or cursor.columns != tuple(columns) or first < cursor.start:
                cursor = self._cursor = _Cursor(
                    self._groups, self._starts, columns, self.batch_rows(len(columns))
                )
            parts = list(cursor.take(wanted))
        fields = pa.schema([self.schema.field(name) for name in columns])
        return pa.Table.from_batches(parts, fields) if parts else fields.empty_table()


class _Cursor:
    """The batch that was decoded last, and how to get to a later one."""

    def __init__(self, groups: Any, starts: NDArray[np.int64], columns: Sequence[str], size: int) -> None:
        self.columns = tuple(columns)
        self.start = 0
        self._groups, self._starts, self._size = groups, starts, size
        self._batch: pa.RecordBatch | None = None
        self._group = -1
        self._batches: Any = iter(())

    def take(self, wanted: NDArray[np.int64]) -> Any:
        """Yield the wanted rows, which do not lie before the batch held."""
        done = 0
        while done < len(wanted):
            batch = self._reach(int(wanted[done]))
            end = int(np.searchsorted(wanted, self.start + batch.num_rows))
            inside = wanted[done:end] - self.start
            if len(inside) == inside[-1] - inside[0] + 1:
                yield batch.slice(int(inside[0]), len(inside))
            else:
                yield batch.take(pa.array(inside))
            done = end

    def _reach(self, row: int) -> pa.RecordBatch:
        """Go forward to the batch that holds a row."""
        group = int(np.searchsorted(self._starts, row, side="right")) - 1
        if group != self._group:
            file, number = self._groups[group]
            self._batches = file.iter_batches(self._size, row_groups=[number], columns=list(self.columns))
            self._group, self._batch, self.start = group, None, int(self._starts[group])
        while self._batch is None or row >= self.start + self._batch.num_rows:
            if self._batch is not None:
                self.start += self._batch.num_rows
            self._batch = next(self._batches).select(list(self.columns))
        assert self._batch is not None
        return self._batch


class _Arrow(LargeTable):
    """Record batches of a memory-mapped Arrow file."""

    def __init__(self, label: str, path: Path, memory: int) -> None:
        self._file = pa.ipc.open_file(pa.memory_map(str(path)))
        schema = pa.schema([field.remove_metadata() for field in self._file.schema])
        sizes = [self._file.get_batch(number).num_rows for number in range(self._file.num_record_batches)]
        self._starts = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
        super().__init__(label, schema, int(self._starts[-1]), memory)
        self._lock = Lock()
        self._held: tuple[int, pa.RecordBatch] | None = None

    def read(self, rows: Rows, columns: Sequence[str]) -> pa.Table:
        """Read rows of columns."""
        wanted = _numbers(rows, len(self))
        fields = pa.schema([self.schema.field(name) for name in columns])
        parts = []
        with self._lock:
            done = 0
            while done < len(wanted):
                number = int(np.searchsorted(self._starts, wanted[done], side="right")) - 1
                if self._held is None or self._held[0] != number:
                    self._held = (number, self._file.get_batch(number))
                end = int(np.searchsorted(wanted, self._starts[number + 1]))
                inside = wanted[done:end] - self._starts[number]
                batch = self._held[1].select(list(columns))
                whole = len(inside) == inside[-1] - inside[0] + 1
                parts.append(
                    batch.slice(int(inside[0]), len(inside)) if whole else batch.take(pa.array(inside))
                )
                done = end
        tables = [pa.Table.from_batches([part]).cast(fields) for part in parts]
        return pa.concat_tables(tables) if tables else fields.empty_table()


def _numbers(rows: Rows, count: int) -> NDArray[np.int64]:
    return np.arange(*rows.indices(count)) if isinstance(rows, slice) else rows
