"""Tables whose cells are read after the charge: names, types and the number of rows come first.

`open_later` looks at a file's header and at what declares its types (metadata, or a schema), and counts its
rows; of a CSV file, its lines. The cells are read, all at once, when a fit asks for the first row, which a
private one does when its charge is durable.

**Privacy.** *Row by row:* what becomes of a record depends on that record and on what was declared. A line of
CSV text that is damaged is a record without usable cells (`dpsep.data.text`), and so is text in a Parquet or
an Arrow file that is not UTF-8, cell by cell. *Public:* names, types, the number of rows. *Not held:* a file
that vanishes, shrinks or is truncated after it was opened is an error, after the charge; a container whose
own structure is broken (offsets, codes, checksums) is one as a whole.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa

from dpsep.data.declare import NA, Schema
from dpsep.data.files import Source, read_stored, stored_rows, stored_types
from dpsep.data.frames import TableError, unknown_column
from dpsep.data.large_table import LargeTable, Rows
from dpsep.data.text import count_lines, csv_layout, declared_types, guess_types, read_lines

__all__ = ["LaterTable", "open_later", "read_now"]

MEMORY = 2**62
"""Bytes that such a table may hold: it is read whole."""


class LaterTable(LargeTable):
    """A table that is read, whole, when its first row is asked for.

    Parameters
    ----------
    label
        What it is called in messages.
    types
        Names and types of its columns, in polars' terms.
    rows
        Their number.
    load
        Reads columns by name.

    Examples
    --------
    >>> ages = pl.DataFrame({"age": [41.0, 30.0]})
    >>> table = LaterTable("visits", {"age": pl.Float64()}, 2, ages.select)
    >>> len(table), table["age"].read(slice(1, 2)).to_pylist()
    (2, [30.0])
    """

    whole = True

    def __init__(
        self, label: str, types: dict[str, Any], rows: int, load: Callable[[list[str]], pl.DataFrame]
    ) -> None:
        empty = pl.DataFrame(schema=types).to_arrow(compat_level=pl.CompatLevel.oldest())
        super().__init__(label, empty.schema, rows, MEMORY)
        self._load = load
        self._held: dict[str, pl.Series] = {}

    def read(self, rows: Rows, columns: Sequence[str]) -> pa.Table:
        """Read rows of columns; columns that were read once are held."""
        missing = [name for name in columns if name not in self._held]
        if missing:
            frame = self._load(missing)
            if frame.height != len(self):
                raise TableError(
                    f"{self.label} has another number of rows than when it was opened; leave it as it is "
                    "while a fit reads it"
                )
            self._held |= {name: frame[name] for name in missing}
        found = pl.DataFrame([self._held[name] for name in columns])
        found = found[rows] if isinstance(rows, slice) else found[np.asarray(rows)]
        return found.to_arrow(compat_level=pl.CompatLevel.oldest())


def open_later(source: Source, kind: str, schema: Schema | None) -> LaterTable:
    """Open a table without reading its cells, but where a CSV file has no schema: to guess its types.

    Parameters
    ----------
    source, kind
        Where it is, and ``"csv"``, ``"parquet"`` or ``"arrow"``.
    schema
        The declared columns, which are all that is kept; the target and the unit may be missing.
    """
    if kind == "csv":
        layout = csv_layout(source.opened, source.label)
        wanted = _wanted(schema, layout.names, source.label)
        types, na = guess_types(source.opened, layout, wanted) if schema is None else {}, NA
        if schema is not None:
            types, na = declared_types(schema, wanted), schema.na

        def load(names: list[str]) -> pl.DataFrame:
            return read_lines(source.opened, layout, {name: types[name] for name in names}, na).frame

        rows = count_lines(source.opened, layout)
    else:
        stored = stored_types(source, kind)
        types = {name: stored[name] for name in _wanted(schema, list(stored), source.label)}

        def load(names: list[str]) -> pl.DataFrame:
            return read_stored(source, kind, names, lenient=True)

        rows = stored_rows(source, kind)
    if not rows:
        raise TableError(f"{source.label} has a header but no rows")
    return LaterTable(source.label, dict(types), rows, load)


def read_now(frame: pl.DataFrame, label: str) -> LaterTable:
    """Return a table that was read already, as one that is read later: for fits that are not private."""
    return LaterTable(label, dict(frame.schema), frame.height, frame.select)


def _wanted(schema: Schema | None, names: Sequence[str], label: str) -> list[str]:
    if schema is None:
        return list(names)
    wanted = [column.name for column in schema.features]
    for name in wanted:
        if name not in names:
            raise TableError(f"{label}: {unknown_column(name, list(names))}")
    return wanted + [name for name in names if name in (schema.target, schema.unit)]
