"""A large table by its schema: rows are encoded as they are read.

`EncodedTable` has a column for each encoded column of a schema's features (``"age"``, ``"sex=Male"``) and one
for its target. A piece of it is `dpsep.data.encode` of that piece of the table below: the whole design matrix
is never made.

**Privacy.** As for `encode`: names, types and errors follow from the schema and from the table's metadata,
and are settled when the table is made. A row depends on its own record only; what cannot be used is NaN, and
an undeclared label is missing. Nothing is released here.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
from numpy.typing import NDArray

from dpsep.data.cells import category_codes, parse_number
from dpsep.data.column import Column
from dpsep.data.declare import Schema
from dpsep.data.frames import as_frame
from dpsep.data.large_table import LargeColumn, LargeColumns, LargeTable, Rows
from dpsep.data.schema import encode, encode_target

__all__ = ["EncodedTable", "unit_labels"]


class EncodedTable(LargeTable):
    """The encoded rows of a large table.

    Parameters
    ----------
    table
        Where the cells are.
    schema
        The declared structure. Its target, if it has one, must be a column of the table.
    by_unit
        Whether there is a column that says whose row each is: the schema's unit.

    Examples
    --------
    >>> from dpsep.data import Column, scan
    >>> sex = Column("sex", "category", categories=("0", "1"))
    >>> below = scan(np.array([[2.0, 1.0], [3.0, 7.0]]), names=["age", "sex"])
    >>> table = EncodedTable(below, Schema((Column("age", "number"), sex)))
    >>> table.names, table.features.read(slice(None)).to_pydict()["age"]
    (['age', 'sex=1'], [2.0, nan])
    """

    def __init__(self, table: LargeTable, schema: Schema, *, by_unit: bool = False) -> None:
        empty = as_frame(pa.schema(table.schema).empty_table())
        # Types that cannot be encoded are refused here, before anything is charged or read.
        self._features = encode(empty, schema)[1]
        fields: list[tuple[str, Any]] = [(name, pa.float64()) for name in self._features]
        self._answers = ""
        if schema.target is not None:
            self._answers = _free(schema.target, self._features)
            fields.append((self._answers, _target_of(empty, schema).type))
        self._labels = ""
        if by_unit:
            self._labels = _free(str(schema.unit), [name for name, _ in fields])
            fields.append((self._labels, unit_labels(empty, schema).type))
        super().__init__(table.label, pa.schema(fields), len(table), table.memory)
        self.whole = table.whole
        self._table = table
        self._declared = schema

    @property
    def features(self) -> LargeColumns:
        """The encoded features, as X of a fit."""
        return self[list(self._features)]

    @property
    def target(self) -> LargeColumn | None:
        """The target, as y of a fit: numbers, or labels that are missing where they are not declared."""
        return self[self._answers] if self._answers else None

    @property
    def groups(self) -> LargeColumn | None:
        """Whose row each is, where that was asked for: a code, or a label, missing if it is not declared."""
        return self[self._labels] if self._labels else None

    def read(self, rows: Rows, columns: Sequence[str]) -> pa.Table:
        """Encode rows; of columns that are asked for in part all are encoded."""
        features = [name for name in columns if name not in (self._answers, self._labels)]
        answers = self._answers if self._answers in columns else None
        labels = self._labels if self._labels in columns else None
        frame = self._frame(rows, bool(features), answers is not None, labels is not None)
        found: dict[str, Any] = {}
        if features:
            found |= dict(zip(self._features, encode(frame, self._declared)[0].T, strict=True))
        if answers is not None:
            found[answers] = _target_of(frame, self._declared)
        if labels is not None:
            found[labels] = unit_labels(frame, self._declared)
        return pa.table([found[name] for name in columns], names=list(columns))

    def matrix(
        self, rows: Rows, features: Sequence[str], target: str | None
    ) -> tuple[NDArray[np.float64], pa.ChunkedArray | None]:
        """Encode rows as doubles, and a target."""
        frame = self._frame(rows, True, target is not None)
        matrix = encode(frame, self._declared)[0]
        if list(features) != list(self._features):
            matrix = matrix[:, [self._features.index(name) for name in features]]
        if target is None:
            return matrix, None
        return matrix, pa.chunked_array([_target_of(frame, self._declared)])

    def batch_rows(self, columns: int) -> int:
        """Rows to encode at a time: cells, a frame and a matrix of them lie side by side for a while."""
        return int(np.clip(self.memory // 16 // (8 * max(columns, 1)), 256, 2**16))

    def _frame(self, rows: Rows, features: bool, target: bool, unit: bool = False) -> pl.DataFrame:
        names = [column.name for column in self._declared.features] if features else []
        names += [str(self._declared.target)] if target else []
        names += [str(self._declared.unit)] if unit else []
        return as_frame(self._table.read(rows, names))


def unit_labels(frame: pl.DataFrame, schema: Schema) -> pa.Array:
    """Return the unit of each row, as mixed models take it.

    Declared labels are compared as categories are. Where a number of units is declared a cell is its code, as
    text or as a number; what is no whole number becomes -1, which is nobody's.

    Examples
    --------
    >>> from dpsep.data import Column
    >>> frame = pl.DataFrame({"who": ["1", " 0", "1.5", "x", None]})
    >>> unit_labels(frame, Schema((Column("a", "number"),), unit="who", groups=2)).to_pylist()
    [1, 0, -1, -1, -1]
    >>> unit_labels(frame, Schema((Column("a", "number"),), unit="who", groups=("x", "1"))).to_pylist()
    ['1', None, None, 'x', None]
    """
    cells = frame[str(schema.unit)]
    if isinstance(schema.groups, int):
        numbers = parse_number(cells)
        whole = (numbers >= 0) & (numbers < schema.groups) & (numbers == np.floor(numbers))
        return pa.array(np.where(whole, numbers, -1.0).astype(np.int64))
    labels = schema.groups or ()
    codes = category_codes(cells, Column(cells.name, "category", categories=labels or ("",)))
    return pa.array([*labels, None], pa.string()).take(pa.array(np.where(codes < 0, len(labels), codes)))


def _target_of(frame: pl.DataFrame, schema: Schema) -> pa.Array:
    """Encode a target: a number as it is, a label by its place among the declared ones."""
    column = schema[str(schema.target)]
    if column.categories is None:
        return pa.array(encode_target(frame, schema))
    codes = category_codes(frame[column.name], column)
    labels = pa.array(column.categories, pa.string())
    return pa.DictionaryArray.from_arrays(pa.array(codes, mask=codes < 0), labels)


def _free(name: str, taken: Sequence[str]) -> str:
    """Return a name that no encoded column has."""
    while name in taken:
        name += "'"
    return name
