"""Rows of large tables for gates: features as doubles, targets coded, a chunk at a time.

`records_of` turns what a fit was given into a gate's arrays: NumPy's own, or parts of a table on a disk
(`dpsep.data.scan`), whose cells are converted and whose labels are coded as each chunk is read. What needs
all records at once takes them from `whole_records`, which refuses such a table; what looks at rows one by one
takes them from `pieces`, and predictions are joined by `by_pieces`.

**Privacy.** A conversion looks at one cell at a time, as that of a whole table does; rows go to the gate that
asked for them. The proof is in docs/proofs/gate.md.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as compute
from numpy.typing import NDArray

from dpsep.data import as_matrix
from dpsep.data.large import LargeColumn, LargeColumns, LargeTable, scan
from dpsep.privacy.record_sources import Part, Records, Rows, Source, fetch

Array = NDArray[np.float64]
Code = Callable[[Any], Array]


class TableRows(Source):
    """Features and target of one large table, as a source of a gate's rows.

    Parameters
    ----------
    table
        Where they are.
    features
        Names of the feature columns; none where only the target is read here.
    target
        Name of the target's column, or None.
    code
        Turns the target's cells into doubles.
    """

    def __init__(self, table: LargeTable, features: Sequence[str], target: str | None, code: Code) -> None:
        self._table = table
        self._features = list(features)
        self._target = target
        self._code = code
        self.memory = table.memory
        self.identity = (table.identity, self._features, target)
        # The block of rows converted last, for readers that go on from row to row.
        self._block: tuple[Any, list[Array]] = (None, [])

    def __len__(self) -> int:
        return len(self._table)

    def take(self, rows: Rows, parts: Sequence[int]) -> list[Array]:
        """Read rows of the features (part 0), of the target (part 1), or of both."""
        if not isinstance(rows, slice):
            return self._converted(rows, parts)
        first, last, _ = rows.indices(len(self))
        size = self._table.batch_rows(len(self._features) + 1)
        found: list[list[Array]] = []
        for number in range(first // size, -(-last // size)):
            start = number * size
            if self._block[0] != (number, tuple(parts)):
                block = self._converted(slice(start, start + size), parts)
                self._block = ((number, tuple(parts)), block)
            inside = slice(max(first - start, 0), min(last - start, size))
            found.append([array[inside] for array in self._block[1]])
        return (
            found[0] if len(found) == 1 else [np.concatenate(arrays) for arrays in zip(*found, strict=True)]
        )

    def _converted(self, rows: Rows, parts: Sequence[int]) -> list[Array]:
        target = [self._target] if 1 in parts and self._target is not None else []
        features = [name for name in self._features if 0 in parts]
        if features:
            direct = self._table.matrix(rows, features, target[0] if target else None)
            if direct is not None:
                matrix, cells = direct
                return [matrix if part == 0 else _coded(cells, self._code) for part in parts]
        found = self._table.read(rows, list(dict.fromkeys([*features, *target])))
        made = {
            0: lambda: _doubles(found.select(features)),
            1: lambda: _coded(found.column(target[0]), self._code),
        }
        return [made[part]() for part in parts]

    def parts(self) -> tuple[Any, Any]:
        """Return features and target: handles of them, or arrays of a table that is to be read whole."""
        if self._table.whole:
            wanted = [0] * bool(self._features) + [1] * (self._target is not None)
            found = dict(zip(wanted, self._converted(slice(None), wanted), strict=True))
            return found.get(0), found.get(1)
        return Part(self, 0, (len(self), len(self._features))), Part(self, 1, (len(self),))


def records_of(X: Any, y: Any = None, code: Code | None = None) -> Records:
    """Return the arrays that a gate reads: features, and the coded target where there is one.

    Parameters
    ----------
    X, y
        As given to a fit; y is None where there is no target.
    code
        Turns a target's cells into doubles.
    """
    if isinstance(X, np.memmap) and X.dtype != np.float64 and X.dtype.itemsize <= 8:
        X = scan(X)[[f"x{place}" for place in range(X.shape[1])]]  # converted as it is read, not beforehand
    if y is None:
        return (_features(X),)
    assert code is not None
    y = _one_column(y)
    if isinstance(X, LargeColumns) and isinstance(y, LargeColumn) and X.table is y.table:
        return TableRows(X.table, X.column_names, y.name, code).parts()
    target = TableRows(y.table, (), y.name, code).parts()[1] if isinstance(y, LargeColumn) else code(y)
    return _features(X), target


def whole_records(what: str, X: Any, y: Any = None, code: Code | None = None) -> Records:
    """Return arrays in memory, as `records_of` does; refuse a large table.

    Parameters
    ----------
    what
        The fit that needs them all at once, as the message calls it.
    """
    refuse_large(what, X, y)
    return tuple(np.asarray(array[:], np.float64) for array in records_of(X, y, code))


def refuse_large(what: str, *arrays: Any) -> None:
    """Raise ValueError where any of these is a part of a large table."""
    if any(is_large(array) for array in arrays):
        raise ValueError(
            f"{what} needs all records at once, and this table is read as it goes (dpsep.data.scan). Read it "
            "into memory with dpsep.data.read_table(PATH), or table.read(slice(None), table.names)."
        )


def is_large(array: Any) -> bool:
    """Say whether an X or a y is a part of a table that is read as it goes."""
    return isinstance(array, LargeColumns | LargeColumn) and not array.table.whole


def pieces(array: Any) -> Iterator[Array]:
    """Yield the rows of an array of a gate, a piece at a time; for fits that are not private."""
    if not isinstance(array, Part):
        yield array
        return
    size = _piece_rows(array.source.memory, int(np.prod(array.shape[1:], dtype=int)))
    for start in range(0, len(array), size):
        yield array[slice(start, start + size)]


def side_by_side(records: Records) -> Iterator[list[Array]]:
    """Yield the same rows of all arrays of a gate, a piece at a time; for fits that are not private."""
    parts = [array for array in records if isinstance(array, Part)]
    columns = sum(int(np.prod(array.shape[1:], dtype=int)) for array in records)
    size = min([len(records[0])] + [_piece_rows(part.source.memory, columns) for part in parts])
    for start in range(0, len(records[0]), size):
        yield fetch(records, slice(start, start + size))


def by_pieces(function: Callable[..., Any], X: Any, *rest: Array) -> Any:
    """Call a function of rows; of a large table piece by piece, with what it returns joined by rows.

    Parameters
    ----------
    function
        Takes a table (and a piece of each of ``rest``); returns an array with one row each, or several.
    X
        Rows, in memory or of a large table.
    rest
        Arrays in memory with one row each.
    """
    if not isinstance(X, LargeColumns):
        return function(X, *rest)
    for array in rest:
        if len(array) != len(X):
            raise ValueError(f"there are {len(X)} rows and {len(array)} targets; give one target a row.")
    size = _piece_rows(X.table.memory, X.shape[1])
    found = []
    for start in range(0, max(len(X), 1), size):
        rows = slice(start, start + size)
        found.append(function(X.read(rows), *(array[rows] for array in rest)))
    if isinstance(found[0], tuple):
        return tuple(np.concatenate(arrays) for arrays in zip(*found, strict=True))
    return np.concatenate(found)


def coded(y: Any, code: Code) -> Array:
    """Return a target as doubles; of a large table read in pieces."""
    y = _one_column(y)
    if not isinstance(y, LargeColumn):
        return code(y)
    return np.concatenate([np.empty(0), *pieces(TableRows(y.table, (), y.name, code).parts()[1])])


def _piece_rows(memory: float, columns: int) -> int:
    """Rows of a piece, an eighth of the memory allowed."""
    return max(1, int(memory) // 8 // (8 * max(columns, 1)))


def _one_column(y: Any) -> Any:
    """The column of a table of one."""
    return y.table[y.column_names[0]] if isinstance(y, LargeColumns) and y.shape[1] == 1 else y


def _features(X: Any) -> Any:
    if isinstance(X, LargeColumns):
        return TableRows(X.table, X.column_names, None, _nothing).parts()[0]
    return as_matrix(X)[0]


def _nothing(cells: Any) -> Array:
    raise AssertionError("these rows have no target")


def _coded(column: Any, code: Code) -> Array:
    """Code the cells of a target, each by itself; a missing one is NaN.

    Numbers are coded as one array and text once for each of its values, because a column of a large table is
    too long to go through cell by cell.
    """
    kind = column.type
    if pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind):
        cells = compute.fill_null(column, False if pa.types.is_boolean(kind) else 0).to_numpy()
        return np.where(column.is_null().to_numpy(), np.nan, code(cells))
    if pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_dictionary(kind):
        packed: Any = column.combine_chunks()
        packed = packed if pa.types.is_dictionary(kind) else packed.dictionary_encode()
        values = np.append(code(packed.dictionary), np.nan)
        places = compute.fill_null(packed.indices.cast(pa.int64()), len(values) - 1).to_numpy()
        return values[places]
    return code(column)


def _doubles(table: pa.Table) -> Array:
    """Return columns as a matrix; doubles without missing cells, the usual case, without a detour."""
    if all(column.type == pa.float64() and column.null_count == 0 for column in table.columns):
        columns = np.empty((table.num_columns, table.num_rows))
        for row, column in zip(columns, table.columns, strict=True):
            done = 0
            for chunk in column.chunks:
                row[done : done + len(chunk)] = chunk.to_numpy()
                done += len(chunk)
        return columns.T
    return as_matrix(table)[0]
