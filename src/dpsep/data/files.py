"""Files, buffers and standard input as tables: which format they have, and those that carry their own types.

The extension decides, then the first bytes; what is packed by gzip is unpacked. Parquet and Arrow (Feather is
Arrow) are read with pyarrow; CSV has a file of its own, `dpsep.data.text`.

**Privacy.** Names and types of these formats are metadata: nothing here looks at a cell. Errors name files.
"""

import gzip
import io
import os
import sys
import tempfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, NamedTuple, cast

import polars as pl
import pyarrow as pa
import pyarrow.parquet

from dpsep.data.frames import TableError, from_arrow, refuse_duplicates

__all__ = ["FORMATS", "Source", "find_source", "read_stored", "stored_rows", "stored_types"]

FORMATS = {
    **{".csv": "csv", ".tsv": "csv", ".txt": "csv"},
    **{".parquet": "parquet", ".pq": "parquet", ".arrow": "arrow", ".feather": "arrow", ".ipc": "arrow"},
}
"""The format that each file extension stands for; ``.gz`` behind it is unpacked."""
MARKS = {b"PAR1": "parquet", b"ARRO": "arrow", b"FEA1": "arrow", b"\xff\xff\xff\xff": "arrow"}
"""The first bytes of formats that have a mark; the last is an Arrow stream's."""
PACKED = b"\x1f\x8b"
"""The first bytes of what gzip packed."""
FOREIGN = (
    *(pa.ArrowException, pl.exceptions.PolarsError, pl.exceptions.PanicException, OSError),
    UnicodeDecodeError,
)
"""What pyarrow and polars raise at files that are damaged; a panic is polars' word for a fault of its own."""
PIECE = 2**20
"""Bytes that are unpacked at a time."""
MOST_UNPACKED = 2**36
"""Most bytes of a Parquet or an Arrow file behind gzip, which is unpacked on the disk; no cell moves it."""


class Source(NamedTuple):
    """Where a table comes from: how to open it, what to call it, its likely format (None: not known)."""

    opened: Callable[[], IO[bytes]]
    label: str
    format: str | None


def find_source(source: str | Path | IO[bytes]) -> Source:
    """Find a table; ``"-"`` is standard input, which is read whole."""
    if not isinstance(source, str | Path) or source == "-":
        label = "standard input" if isinstance(source, str | Path) else "the buffer"
        if not isinstance(source, str | Path) and not callable(getattr(source, "read", None)):
            raise TableError(f"expected a path or an open file, got {type(source).__name__}")
        content = sys.stdin.buffer.read() if isinstance(source, str | Path) else source.read()
        if not isinstance(content, bytes):
            raise TableError(f"{label} gives {type(content).__name__}; open it in binary mode")
        if content[:2] == PACKED:
            return _unpacked(lambda: io.BytesIO(content), label, None, "csv")
        return Source(lambda: io.BytesIO(content), label, MARKS.get(content[:4], "csv"))
    path = Path(source)
    if path.is_dir():
        raise TableError(f"{path} is a folder; name a file in it")
    if not path.exists():
        raise TableError(f"there is no file {path}")
    packed = path.suffix.lower() == ".gz"
    known = FORMATS.get((path.with_suffix("") if packed else path).suffix.lower())
    try:
        if packed:
            return _unpacked(lambda: path.open("rb"), str(path), known, None)
        with path.open("rb") as file:
            start = file.read(4)
    except OSError as error:
        raise TableError(f"{path} cannot be read ({error.strerror or type(error).__name__})") from None
    return Source(lambda: path.open("rb"), str(path), known or MARKS.get(start))


def stored_types(source: Source, kind: str) -> dict[str, Any]:
    """Return the columns' names and types, in polars' terms, from the file's metadata."""
    with source.opened() as file, _whole(source.label, kind):
        schema = pyarrow.parquet.ParquetFile(file).schema_arrow if kind == "parquet" else _arrow(file).schema
        refuse_duplicates(schema.names, source.label)  # pyarrow's own refusal does not say what is wrong
        return dict(from_arrow(_without_notes(schema).empty_table()).schema)


def stored_rows(source: Source, kind: str) -> int:
    """Return the number of rows, from the file's metadata, or from that of its record batches."""
    with source.opened() as file, _whole(source.label, kind):
        if kind == "parquet":
            return pyarrow.parquet.ParquetFile(file).metadata.num_rows
        found = _arrow(file)
        if isinstance(found, pa.ipc.RecordBatchFileReader):
            return sum(found.get_batch(place).num_rows for place in range(found.num_record_batches))
        return sum(batch.num_rows for batch in found)


def read_stored(source: Source, kind: str, wanted: Sequence[str], *, lenient: bool = False) -> pl.DataFrame:
    """Read these columns of a Parquet or an Arrow file.

    Parameters
    ----------
    lenient
        Whether a cell that is not what its type says is a missing one, and no error: see `sound`.
    """
    with source.opened() as file, _whole(source.label, kind):
        if kind == "parquet":
            table = pyarrow.parquet.ParquetFile(file).read(columns=list(wanted))
        else:
            table = _arrow(file).read_all()
        table = table.select(list(wanted))
        if lenient:
            columns = [
                pa.chunked_array([sound(part) for part in column.chunks], column.type)
                for column in table.columns
            ]
            table = pa.Table.from_arrays(columns, schema=table.schema)
        table.validate(full=True)  # offsets, codes and text: polars takes them as they are, and crashes
        table = pa.Table.from_arrays(table.columns, schema=_without_notes(table.schema))
        return from_arrow(table)


TEXTS = {
    pa.string(): pa.binary(),
    pa.large_string(): pa.large_binary(),
    pa.string_view(): pa.binary_view(),
}
"""Types of text, and of its bytes."""


def sound(column: pa.Array) -> pa.Array:
    """Return a column that holds what its type says; a cell that does not is missing, and no error.

    Text that is not UTF-8, a decimal of too many digits, a time beyond its day: an error would tell on the
    record that has it. Offsets and codes are the file's, and damage to them is.
    """
    try:
        column.validate(full=True)
        return column
    except pa.ArrowInvalid:
        kind = column.type
        if isinstance(column, pa.DictionaryArray):
            repaired = pa.DictionaryArray.from_arrays(column.indices, sound(column.dictionary))
        elif kind in TEXTS:
            cells = column.cast(TEXTS[kind]) if kind != pa.string_view() else column.view(TEXTS[kind])
            cells.validate(full=True)
            repaired = pa.array([_text(cell) for cell in cells.to_pylist()], kind)
        elif pa.types.is_decimal(kind):
            cells = _bytes_of(column, kind.bit_width // 8)
            repaired = _of_bytes([_digits(cell, kind.precision) for cell in cells], kind)
        elif pa.types.is_time(kind) or pa.types.is_date64(kind):
            repaired = _in_range(column)
        else:
            raise
        repaired.validate(full=True)
        return repaired


def _text(cell: bytes | None) -> str | None:
    try:
        return None if cell is None else cell.decode("utf-8")
    except UnicodeDecodeError:
        return None


def _bytes_of(column: Any, width: int) -> list[bytes | None]:
    """Cells of a column of fixed width as they are stored."""
    column.validate()
    data = column.buffers()[1].to_pybytes()
    places = range(column.offset, column.offset + len(column))
    there = column.is_valid().to_pylist()
    return [
        data[place * width : (place + 1) * width] if known else None
        for place, known in zip(places, there, strict=True)
    ]


def _of_bytes(cells: list[bytes | None], kind: Any) -> Any:
    missing = pa.array([cell is not None for cell in cells]).buffers()[1]
    data = b"".join(bytes(kind.bit_width // 8) if cell is None else cell for cell in cells)
    return pa.Array.from_buffers(kind, len(cells), [missing, pa.py_buffer(data)])


def _digits(cell: bytes | None, most: int) -> bytes | None:
    """A decimal's bytes where it has no more digits than its type says."""
    fits = cell is not None and abs(int.from_bytes(cell, "little", signed=True)) < 10**most
    return cell if fits else None


def _in_range(column: Any) -> Any:
    """Times within a day, and dates in milliseconds that are whole days; others are missing."""
    kind = column.type
    whole = column.view(pa.int32() if pa.types.is_time32(kind) else pa.int64())
    if pa.types.is_date64(kind):
        good = [cell is not None and cell % 86_400_000 == 0 for cell in whole.to_pylist()]
    else:
        most = 86_400 * {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}[kind.unit]
        good = [cell is not None and 0 <= cell < most for cell in whole.to_pylist()]
    kept = [cell if fits else None for cell, fits in zip(whole.to_pylist(), good, strict=True)]
    return pa.array(kept, whole.type).view(kind)


def _arrow(file: IO[bytes]) -> Any:
    """Open an Arrow file (Feather is one) or an Arrow stream."""
    stream = file.read(4) != b"ARRO"
    file.seek(0)
    return pa.ipc.open_stream(file) if stream else pa.ipc.open_file(file)


def _without_notes(schema: pa.Schema) -> pa.Schema:
    """Return a schema without the notes of whoever wrote it, which nothing here reads."""
    return pa.schema([field.remove_metadata() for field in schema])


@contextmanager
def _whole(label: str, kind: str) -> Iterator[None]:
    """Say in our words that a file is not what its format demands."""
    try:
        yield
    except FOREIGN:
        what = "Parquet" if kind == "parquet" else "Arrow or Feather (version 2)"
        raise TableError(f"{label} is not a whole {what} file") from None


def _unpacked(opened: Callable[[], IO[bytes]], label: str, known: str | None, default: str | None) -> Source:
    """Unpack once, to see that all of it is there, and again whenever it is read: text is never held whole.

    Formats that are read back and forth are unpacked into a file without a name, which goes with the process.
    """
    try:
        with tempfile.TemporaryFile() as held, opened() as packed, gzip.GzipFile(fileobj=packed) as file:
            start = file.read(4)
            kind = known or MARKS.get(start, default)
            held.write(start)
            size = len(start)
            while block := file.read(PIECE):
                size += len(block)
                if kind in (None, "csv"):
                    continue
                held.write(block)
                if size > MOST_UNPACKED:
                    raise TableError(
                        f"{label} holds more than {MOST_UNPACKED >> 30} GiB; unpack it with gunzip first"
                    )
            held.flush()
            kept = _Held(held)
    except (gzip.BadGzipFile, EOFError, zlib.error):
        raise TableError(f"{label} cannot be read: it is not a whole gzip file") from None
    if kind in (None, "csv"):
        return Source(lambda: cast(IO[bytes], _Unpacking(opened())), label, kind)
    return Source(kept.opened, label, kind)


class _Held:
    """A file without a name that stays open while this object lives."""

    def __init__(self, file: IO[bytes]) -> None:
        self._descriptor = os.dup(file.fileno())

    def opened(self) -> IO[bytes]:
        """Return the file from its beginning; closing it leaves ours open."""
        os.lseek(self._descriptor, 0, os.SEEK_SET)
        return os.fdopen(os.dup(self._descriptor), "rb")

    def __del__(self) -> None:
        os.close(self._descriptor)


class _Unpacking(gzip.GzipFile):
    """Unpacks a file and closes it behind itself."""

    def __init__(self, packed: IO[bytes]) -> None:
        super().__init__(fileobj=packed)
        self._packed = packed

    def close(self) -> None:
        """Close both."""
        super().close()
        self._packed.close()
