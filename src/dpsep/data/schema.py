"""The declared, public structure of a table, and the encoding that follows from it.

Which columns there are, which values a category may take and between which bounds a number lies is stated by
the user and is public; a row of the design matrix is a function of that statement and of one record.

**Privacy.** Encoding releases nothing. Its shape, its names and every error it raises depend on the schema
and on the table's column names and types only, never on a cell: a record with an unparsable or undeclared
value, or with a missing one that no declared rule stands in for, becomes a row of NaN, which a private fit
counts as a zero contribution. An error, a warning or a column made for the new value would tell of that
record. Assumption: the schema was not written by looking at the data.
"""

from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from dpsep.data.cells import Cells, read_cells
from dpsep.data.column import MISSING_LEVEL, first_repeated, shown
from dpsep.data.declare import Column, Schema, SchemaError
from dpsep.data.frames import TableError, as_frame, unknown_column

__all__ = ["Column", "Schema", "SchemaError", "encode", "encode_target", "encoded_bounds"]


def encode(
    table: Any, schema: Schema, drop_first: bool = True
) -> tuple[NDArray[np.float64], tuple[str, ...]]:
    """Encode the schema's features as a design matrix.

    Numbers become one column, text that looks like a number included; a category becomes one column of
    zeros and ones for each *declared* value, its own level for missing cells included where that is their
    rule; a column that marks filled cells follows where it was asked for. A record with an unparsable,
    infinite or undeclared value, or a missing one that nothing stands in for, becomes a row of NaN, never an
    error (see the module's Privacy section). Bounds are not applied here.

    Parameters
    ----------
    table
        A polars or pandas frame, a pyarrow table or a mapping of columns.
    schema
        The declared structure.
    drop_first
        Leave out each category's first value, the reference.

    Returns
    -------
    The matrix (N, d) and the names of its columns: ``"age"``, ``"sex=Male"``.

    Examples
    --------
    >>> schema = Schema((Column("age", "number"), Column("sex", "category", categories=("F", "M"))))
    >>> encode({"age": ["41", "?", "30"], "sex": ["M", "F", "X"]}, schema)
    (array([[41.,  1.],
           [nan, nan],
           [nan, nan]]), ('age', 'sex=M'))
    """
    frame = as_frame(table)
    names = tuple(name for name, _ in _encoded(schema, drop_first))
    X = np.empty((frame.height, len(names)))
    bad = np.zeros(frame.height, dtype=bool)
    place = 0
    for column in schema.features:
        cells = _cells(frame, column, schema)
        if column.kind == "number":
            X[:, place] = cells.values
            bad |= np.isnan(cells.values)
            place += 1
        else:
            for level in range(1 if drop_first else 0, len(column.levels)):
                X[:, place] = cells.values == level
                place += 1
            bad |= cells.values < 0
        if column.indicator:
            X[:, place] = cells.filled
            place += 1
    X[bad] = np.nan
    return X, names


def encode_target(table: Any, schema: Schema) -> NDArray[np.float64]:
    """Encode the schema's target: a number as it is, a category as its place among the declared values.

    A missing, unparsable or undeclared value becomes NaN.

    Examples
    --------
    >>> schema = Schema((Column("age", "number"), Column("ill", "category", categories=("no", "yes"))), "ill")
    >>> encode_target({"age": [41, 30, 52], "ill": ["yes", "no", "perhaps"]}, schema)
    array([ 1.,  0., nan])
    """
    if schema.target is None:
        raise SchemaError("the schema has no target; set target to the name of a declared column")
    column = schema[schema.target]
    values = _cells(as_frame(table), column, schema).values
    return values if column.kind == "number" else np.where(values < 0, np.nan, values)


def encoded_bounds(
    schema: Schema, drop_first: bool = True
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the public lowest and highest value of each encoded column, infinite where none is declared.

    Examples
    --------
    >>> age = Column("age", "number", (17, 90))
    >>> encoded_bounds(Schema((age, Column("sex", "category", categories=("F", "M")))))
    (array([17.,  0.]), array([90.,  1.]))
    """
    bounds = np.array([limits for _, limits in _encoded(schema, drop_first)], dtype=np.float64).reshape(-1, 2)
    return bounds[:, 0].copy(), bounds[:, 1].copy()


def take_column(frame: pl.DataFrame, name: str) -> pl.Series:
    """Return a frame's column, or raise an error that lists those there are."""
    try:
        return frame.get_column(name)
    except pl.exceptions.ColumnNotFoundError:
        raise TableError(unknown_column(name, frame.columns)) from None


def _encoded(schema: Schema, drop_first: bool) -> list[tuple[str, tuple[float, float]]]:
    """List the encoded columns' names and bounds."""
    out: list[tuple[str, tuple[float, float]]] = []
    for column in schema.features:
        if column.kind == "number":
            out.append((column.name, column.bounds or (-np.inf, np.inf)))
        else:
            out += [
                (f"{column.name}={level}", (0.0, 1.0)) for level in column.levels[1 if drop_first else 0 :]
            ]
        if column.indicator:
            out.append((f"{column.name}={MISSING_LEVEL}", (0.0, 1.0)))
    repeated = first_repeated(name for name, _ in out)
    if repeated is not None:
        raise SchemaError(
            f"two columns are called {shown(repeated)} once they are encoded; rename one of them"
        )
    return out


def _cells(frame: pl.DataFrame, column: Column, schema: Schema) -> Cells:
    return read_cells(take_column(frame, column.name), column, schema.na)
