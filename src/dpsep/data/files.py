"""Files, buffers and standard input as tables: which format they have, and those that carry their own types.

The extension decides, then the first bytes; what is packed by gzip is unpacked. Parquet and Arrow (Feather is
Arrow) are read with pyarrow; CSV has a file of its own, `dpsep.data.text`.

**Privacy.** Names and types of these formats are metadata: nothing here looks at a cell. Errors name files.
"""

import gzip
import io
import sys
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, NamedTuple

import polars as pl
import pyarrow as pa
import pyarrow.parquet

from dpsep.data.frames import TableError, refuse_duplicates

__all__ = ["FORMATS", "Source", "find_source", "read_stored", "stored_types"]

FORMATS = {
    **{".csv": "csv", ".tsv": "csv", ".txt": "csv"},
    **{".parquet": "parquet", ".pq": "parquet", ".arrow": "arrow", ".feather": "arrow", ".ipc": "arrow"},
}
"""The format that each file extension stands for; ``.gz`` behind it is unpacked."""
MARKS = {b"PAR1": "parquet", b"ARRO": "arrow", b"FEA1": "arrow", b"\xff\xff\xff\xff": "arrow"}
"""The first bytes of formats that have a mark; the last is an Arrow stream's."""
PACKED = b"\x1f\x8b"
"""The first bytes of what gzip packed."""


class Source(NamedTuple):
    """Where a table comes from: how to open it, what to call it, its likely format (None: not known)."""

    opened: Callable[[], IO[bytes]]
    label: str
    format: str | None


def find_source(source: str | Path | IO[bytes]) -> Source:
    """Find a table; ``"-"`` is standard input, which is read whole."""
    if source == "-" or not isinstance(source, str | Path):
        label = "standard input" if isinstance(source, str | Path) else "the buffer"
        content = sys.stdin.buffer.read() if isinstance(source, str | Path) else source.read()
        if isinstance(content, str):
            raise TableError(f"{label} gives text; open it in binary mode")
        if content[:2] == PACKED:
            content = _unpacked(content, label)
        return Source(lambda: io.BytesIO(content), label, MARKS.get(content[:4], "csv"))
    path = Path(source)
    if path.is_dir():
        raise TableError(f"{path} is a folder; name a file in it")
    if not path.exists():
        raise TableError(f"there is no file {path}")
    packed = path.suffix.lower() == ".gz"
    known = FORMATS.get((path.with_suffix("") if packed else path).suffix.lower())
    try:
        with path.open("rb") as file:
            start = file.read(4)
            content = _unpacked(start + file.read(), str(path)) if packed else b""
    except OSError as error:
        raise TableError(f"{path} cannot be read ({error.strerror or type(error).__name__})") from None
    if packed:
        return Source(lambda: io.BytesIO(content), str(path), known or MARKS.get(content[:4]))
    return Source(lambda: path.open("rb"), str(path), known or MARKS.get(start))


def stored_types(source: Source, kind: str) -> dict[str, Any]:
    """Return the columns' names and types, in polars' terms, from the file's metadata."""
    with source.opened() as file, _whole(source.label, kind):
        schema = pyarrow.parquet.ParquetFile(file).schema_arrow if kind == "parquet" else _arrow(file).schema
        refuse_duplicates(schema.names, source.label)  # pyarrow's own refusal does not say what is wrong
        return dict(pl.DataFrame(pl.from_arrow(schema.empty_table())).schema)


def read_stored(source: Source, kind: str, wanted: Sequence[str]) -> pl.DataFrame:
    """Read these columns of a Parquet or an Arrow file."""
    with source.opened() as file, _whole(source.label, kind):
        if kind == "parquet":
            table = pyarrow.parquet.ParquetFile(file).read(columns=list(wanted))
        else:
            table = _arrow(file).read_all()
        return pl.DataFrame(pl.from_arrow(table.select(list(wanted))))


def _arrow(file: IO[bytes]) -> Any:
    """Open an Arrow file (Feather is one) or an Arrow stream."""
    stream = file.read(4) != b"ARRO"
    file.seek(0)
    return pa.ipc.open_stream(file) if stream else pa.ipc.open_file(file)


@contextmanager
def _whole(label: str, kind: str) -> Iterator[None]:
    """Say in our words that a file is not what its format demands."""
    try:
        yield
    except (pa.ArrowException, OSError):
        what = "Parquet" if kind == "parquet" else "Arrow or Feather (version 2)"
        raise TableError(f"{label} is not a whole {what} file") from None


def _unpacked(content: bytes, label: str) -> bytes:
    try:
        return gzip.decompress(content)
    except (OSError, EOFError, zlib.error):
        raise TableError(f"{label} cannot be read: it is not a whole gzip file") from None
