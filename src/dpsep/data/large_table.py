"""A table on a disk, and its columns: names, types and a number of rows, with rows to be read by number.

`LargeTable` is what `dpsep.data.scan` returns; columns of it are X and y of a fit. How rows are read is left
to the formats (`dpsep.data.large`) and to what is made of them (`dpsep.data.large_encoded`).

**Privacy.** Nothing is released here. Names, types and the number of rows are metadata, and public.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, overload

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dpsep.data.frames import TableError, from_arrow, refuse_duplicates, unknown_column

__all__ = ["LargeColumn", "LargeColumns", "LargeTable", "Rows"]

Rows = NDArray[np.int64] | slice
"""Which rows: numbers in rising order, or a slice with step one."""


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

    Examples
    --------
    >>> import numpy as np
    >>> from dpsep.data import scan
    >>> table = scan(np.arange(6.0).reshape(3, 2), names=["age", "pain"])
    >>> isinstance(table, LargeTable), table.drop("pain").shape
    (True, (3, 1))
    """

    whole = False
    """Whether its rows are to be read all at once, because they fit into memory."""

    def __init__(self, label: str, schema: pa.Schema, rows: int, memory: int) -> None:
        refuse_duplicates(schema.names, label)
        self.label = label
        self.schema = schema
        self.memory = memory
        self._rows = rows
        # What two processes that open the same table must find alike; files add how their rows are grouped.
        self.identity = f"{schema.names} {schema.types} {rows}"

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

    def rows(self, numbers: NDArray[np.int64]) -> "LargeTable":
        """Return these rows of a table that is read whole, as one."""
        return _Some(self, numbers)

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

    def matrix(
        self, rows: Rows, features: Sequence[str], target: str | None
    ) -> tuple[NDArray[np.float64], pa.ChunkedArray | None] | None:
        """Read rows of features as doubles, and of a target; None where `read` is the only way.

        For tables that have their rows as a matrix anyway, without a detour by columns.
        """
        del rows, features, target
        return None

    def batch_rows(self, columns: int) -> int:
        """Rows to decode at a time: an eighth of the memory allowed, as doubles.

        Batches are decoded and converted one after the other: about five are alive at the worst of times.
        """
        return int(np.clip(self.memory // 8 // (8 * max(columns, 1)), 256, 2**17))


class _Some(LargeTable):
    """Some rows of a table that is read whole."""

    whole = True

    def __init__(self, table: LargeTable, numbers: NDArray[np.int64]) -> None:
        super().__init__(table.label, table.schema, len(numbers), table.memory)
        self._table, self._numbers = table, numbers

    def read(self, rows: Rows, columns: Sequence[str]) -> pa.Table:
        """Read rows of columns."""
        return self._table.read(self._numbers[rows], columns)


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
        return list(from_arrow(empty).schema.items())

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
