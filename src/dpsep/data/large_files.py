"""Rows of Parquet and Arrow files by their numbers, in rising order.

Parquet is decoded forward: a cursor holds one batch of a row group and goes on from it, or to another row
group; pages are read as they are decoded, so that a row group may be larger than memory. Of an Arrow file the
record batches are mapped, and unpacked where they are compressed.

**Privacy.** Which rows are read is secret while a private fit samples: nothing here writes it down. A file
that is damaged is refused by its name; no message repeats a cell. Nothing is released here.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet
from numpy.typing import NDArray

from dpsep.data.files import FOREIGN, sound
from dpsep.data.frames import TableError
from dpsep.data.large_table import LargeTable, Rows

__all__ = ["ArrowFile", "ParquetFiles", "whole"]

_VIEWS = {pa.string_view(): pa.large_string(), pa.binary_view(): pa.large_binary()}
_STRETCH = 2**16


@contextmanager
def whole(label: str) -> Iterator[None]:
    """Say in our words that a file is not what its name says, and repeat nothing of it."""
    try:
        yield
    except TableError:
        raise
    except (*FOREIGN, ValueError, EOFError):
        raise TableError(f"{label} is not a whole file of the format that its name says") from None


class ParquetFiles(LargeTable):
    """Row groups of one or more files, read forward in batches."""

    def __init__(self, label: str, files: Sequence[Path], memory: int) -> None:
        names = pyarrow.parquet.read_schema(files[0]).names
        # Pages are read as they are decoded, so that a row group may be larger than the memory allowed.
        buffer = int(np.clip(memory // 16 // max(len(names), 1), 2**12, 2**20))
        opened = [pyarrow.parquet.ParquetFile(path, pre_buffer=False, buffer_size=buffer) for path in files]
        schema = _plain(opened[0].schema_arrow)
        for one, path in zip(opened, files, strict=True):
            if _plain(one.schema_arrow) != schema:
                raise TableError(f"{path} has other columns or types than {files[0]}; a table has one schema")
        self._groups = [(file, group) for file in opened for group in range(file.metadata.num_row_groups)]
        sizes = [file.metadata.row_group(group).num_rows for file, group in self._groups]
        self._starts = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
        super().__init__(label, schema, int(self._starts[-1]), memory)
        self.identity += f" {self._starts.tolist()}"
        self._lock = Lock()
        self._cursor: _Cursor | None = None

    def read(self, rows: Rows, columns: Sequence[str]) -> pa.Table:
        """Read rows of columns."""
        fields = pa.schema([self.schema.field(name) for name in columns])
        wanted = _numbers(rows, len(self))
        if not len(wanted):
            return fields.empty_table()
        with self._lock, whole(self.label):
            first = int(wanted[0])
            cursor = self._cursor
            if cursor is None or cursor.columns != tuple(columns) or first < cursor.start:
                cursor = _Cursor(self._groups, self._starts, columns, self.batch_rows(len(columns)))
            # Whatever fails in between, a cursor that is not where it says is not used again.
            self._cursor = None
            found = _joined(list(cursor.take(wanted)), fields)
            self._cursor = cursor
            return found


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
            yield _rows_of(batch, wanted[done:end] - self.start)
            done = end

    def _reach(self, row: int) -> pa.RecordBatch:
        """Go forward to the batch that holds a row."""
        group = int(np.searchsorted(self._starts, row, side="right")) - 1
        if group != self._group:
            file, number = self._groups[group]
            self._batches = file.iter_batches(self._size, row_groups=[number], columns=list(self.columns))
            self._group, self._batch, self.start = group, None, int(self._starts[group])
        while self._batch is None or row >= self.start + self._batch.num_rows:
            passed = 0 if self._batch is None else self._batch.num_rows
            self._batch = None
            batch = self._decode()
            self.start += passed
            self._batch = batch
        return self._batch

    def _decode(self) -> pa.RecordBatch:
        """Decode the next batch of the row group."""
        batch = next(self._batches, None)
        if batch is None:
            raise EOFError("a row group ends early")
        return batch.select(list(self.columns))


class ArrowFile(LargeTable):
    """Record batches of a memory-mapped Arrow file."""

    def __init__(self, label: str, path: Path, memory: int) -> None:
        self._map = pa.memory_map(str(path))
        schema = _plain(pa.ipc.open_file(self._map).schema)
        # One column says how many rows there are; of a compressed file the others would be unpacked too.
        sizes = [batch.num_rows for batch in self._batches(schema.names[:1])] if len(schema) else []
        self._starts = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
        super().__init__(label, schema, int(self._starts[-1]), memory)
        self.identity += f" {self._starts.tolist()}"
        self._lock = Lock()
        self._reader: tuple[tuple[str, ...], Any] = ((), None)
        self._held: tuple[int, pa.RecordBatch] | None = None

    def read(self, rows: Rows, columns: Sequence[str]) -> pa.Table:
        """Read rows of columns."""
        fields = pa.schema([self.schema.field(name) for name in columns])
        wanted = _numbers(rows, len(self))
        if not len(wanted):
            return fields.empty_table()
        with self._lock, whole(self.label):
            return _joined(list(self._take(wanted, tuple(columns))), fields)

    def _take(self, wanted: NDArray[np.int64], columns: tuple[str, ...]) -> Iterator[pa.RecordBatch]:
        if self._reader[0] != columns:
            self._reader, self._held = (columns, self._open(columns)), None
        done = 0
        while done < len(wanted):
            number = int(np.searchsorted(self._starts, wanted[done], side="right")) - 1
            if self._held is None or self._held[0] != number:
                self._held = (number, self._reader[1].get_batch(number).select(list(columns)))
            end = int(np.searchsorted(wanted, self._starts[number + 1]))
            yield _rows_of(self._held[1], wanted[done:end] - self._starts[number])
            done = end

    def _open(self, columns: Sequence[str]) -> Any:
        """Open the file for these columns only."""
        names = pa.ipc.open_file(self._map).schema.names
        options = pa.ipc.IpcReadOptions(included_fields=[names.index(name) for name in columns])
        return pa.ipc.open_file(self._map, options=options)

    def _batches(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        reader = self._open(columns)
        return (reader.get_batch(number) for number in range(reader.num_record_batches))


def _rows_of(batch: pa.RecordBatch, rows: NDArray[np.int64]) -> pa.RecordBatch:
    """Take rows, in rising order, out of a batch; neighbours without a copy."""
    if len(rows) == rows[-1] - rows[0] + 1:
        return batch.slice(int(rows[0]), len(rows))
    columns = [
        _taken(column, rows) if column.type in _VIEWS else column.take(pa.array(rows)) for column in batch
    ]
    return pa.RecordBatch.from_arrays(columns, names=batch.schema.names)


def _taken(column: pa.Array, rows: NDArray[np.int64]) -> pa.Array:
    """Take rows out of a column of views, for which Arrow has no such function, a stretch at a time."""
    parts = []
    for block in np.unique(rows // _STRETCH):
        part = sound(column.slice(int(block) * _STRETCH, _STRETCH))
        inside = rows[rows // _STRETCH == block] - block * _STRETCH
        parts.append(part.cast(_VIEWS[column.type]).take(pa.array(inside)))
    return pa.concat_arrays(parts)


def _joined(parts: list[pa.RecordBatch], fields: pa.Schema) -> pa.Table:
    """Join batches, with offsets, codes and text checked: polars takes them as they are, and crashes."""
    tables = [pa.table([sound(column) for column in part.columns], names=part.schema.names) for part in parts]
    return pa.concat_tables(part if part.schema == fields else part.cast(fields) for part in tables)


def _plain(schema: pa.Schema) -> pa.Schema:
    """Return a schema without the notes of whoever wrote it, and without views, which polars writes."""
    return pa.schema([(field.name, _VIEWS.get(field.type, field.type)) for field in schema])


def _numbers(rows: Rows, count: int) -> NDArray[np.int64]:
    if isinstance(rows, slice):
        return np.arange(*rows.indices(count))
    if len(rows) and not (rows[0] >= 0 and rows[-1] < count and (np.diff(rows) > 0).all()):
        raise TableError("rows must be numbers of the table's rows, each once and in rising order")
    return rows
