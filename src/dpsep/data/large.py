r"""Tables larger than memory: Parquet, Arrow and NumPy files whose rows are read as they are needed.

`scan` opens a table by its metadata. `table[["a", "b"]]` and `table["y"]` are what an estimator's `fit` takes
as X and y: they have shapes, names and types, and their rows are read by number, in rising order, while the
fit goes on. Sequential reads decode each batch of rows once; sampled rows touch only the row groups, record
batches or pages that hold them.

=========  ==========================================================================================
Parquet    a forward cursor of decoded batches; row groups without a wanted row are passed over
Arrow      memory-mapped record batches, any row at once; a compressed batch is unpacked whole
NumPy      a memory-mapped matrix, any row at once
=========  ==========================================================================================

*Memory.* At most about ``memory`` bytes are held for rows: batches that are decoded or converted, and chunks
read ahead. Mapped pages are the operating system's to take back. Row groups may be as large as they like,
since their pages are read as they are decoded; compressed record batches should be small.

**Privacy.** Names, types and the number of rows are metadata, and public. Which rows are read is secret while
a private fit samples: nothing here writes it down. Errors name files, columns and types, never cells.
"""

from collections.abc import Sequence
from numbers import Integral
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dpsep.data.frames import TableError
from dpsep.data.large_files import ArrowFile, ParquetFiles, whole
from dpsep.data.large_table import LargeColumn, LargeColumns, LargeTable, Rows

__all__ = ["LargeColumn", "LargeColumns", "LargeTable", "scan"]

MEMORY = 2**30
"""Bytes that a table may hold, unless said otherwise."""
LEAST_MEMORY, MOST_MEMORY = 2**20, 2**60
SUFFIXES = {
    **dict.fromkeys((".parquet", ".pq"), "parquet"),
    **dict.fromkeys((".arrow", ".feather", ".ipc"), "arrow"),
    ".npy": "npy",
}
"""The format that each file extension stands for."""


def scan(
    source: Any, *, memory: int = MEMORY, names: Sequence[str] | None = None, format: str | None = None
) -> LargeTable:
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
    format
        ``"parquet"``, ``"arrow"`` or ``"npy"`` where a file's extension does not tell.

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
    if not isinstance(memory, Integral) or not LEAST_MEMORY <= memory <= MOST_MEMORY:
        raise TableError("memory must be a whole number of bytes, at least a million (2**20), such as 2**30")
    if isinstance(source, np.ndarray):
        return _Matrix("the array", source, names, int(memory))
    path = Path(source)
    if not path.exists():
        raise TableError(f"there is no file {path}")
    kind = "parquet" if path.is_dir() else format or SUFFIXES.get(path.suffix.lower())
    if kind not in ("parquet", "arrow", "npy"):
        raise TableError(
            f"{path} cannot be read row by row; formats that can are .parquet, .arrow, .feather and .npy. "
            "Write a CSV file as Parquet once, for example with polars: "
            "pl.scan_csv(PATH).sink_parquet(NEW)"
        )
    if names is not None and kind != "npy":
        raise TableError(f"{path} names its columns itself; names= is for NumPy matrices")
    with whole(str(path)):
        if kind == "npy":
            return _Matrix(str(path), np.load(path, mmap_mode="r", allow_pickle=False), names, int(memory))
        if kind == "arrow":
            return ArrowFile(str(path), path, int(memory))
        return ParquetFiles(str(path), _files(path), int(memory))


def _files(path: Path) -> list[Path]:
    files = sorted(path.glob("*.parquet")) if path.is_dir() else [path]
    if not files:
        raise TableError(f"{path} is a folder without a .parquet file in it; name a file, or another folder")
    return files


class _Matrix(LargeTable):
    """A matrix, mapped or in memory."""

    def __init__(self, label: str, matrix: Any, names: Sequence[str] | None, memory: int) -> None:
        if getattr(matrix, "ndim", 0) != 2 or matrix.dtype.kind not in "biuf" or matrix.dtype.itemsize > 8:
            shape, kind = getattr(matrix, "shape", ()), getattr(matrix, "dtype", "none")
            raise TableError(f"{label} has shape {shape} and type {kind}; a table is a matrix of numbers")
        given = [f"x{place}" for place in range(matrix.shape[1])] if names is None else list(names)
        if not all(isinstance(name, str) for name in given):
            raise TableError("names must be a list of texts, one a column")
        if len(given) != matrix.shape[1]:
            raise TableError(f"{label} has {matrix.shape[1]} columns, and {len(given)} names are given")
        kind = pa.from_numpy_dtype(matrix.dtype.newbyteorder("="))
        super().__init__(label, pa.schema([(name, kind) for name in given]), len(matrix), memory)
        self._matrix = matrix
        self._places = {name: place for place, name in enumerate(given)}

    def read(self, rows: Rows, columns: Sequence[str]) -> pa.Table:
        """Read rows of columns."""
        part = self._matrix[rows]
        return pa.table({name: self._cells(part, name) for name in columns})

    def matrix(
        self, rows: Rows, features: Sequence[str], target: str | None
    ) -> tuple[NDArray[np.float64], pa.ChunkedArray | None]:
        """Read rows of features as doubles, and of a target."""
        part = self._matrix[rows]
        places = [self._places[name] for name in features]
        in_turn = places == list(range(places[0], places[0] + len(places)))
        chosen = part[:, places[0] : places[0] + len(places)] if in_turn else part[:, places]
        with np.errstate(all="ignore"):  # a signalling NaN is no warning
            doubles = np.asarray(chosen, np.float64)
        if target is None:
            return doubles, None
        return doubles, pa.chunked_array([self._cells(part, target)])

    def _cells(self, part: NDArray[Any], name: str) -> pa.Array:
        return pa.array(np.array(part[:, self._places[name]], part.dtype.newbyteorder("=")))
