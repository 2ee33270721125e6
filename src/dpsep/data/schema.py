"""The declared, public structure of a table, and the encoding that follows from it.

Which columns there are, which values a category may take and between which bounds a number lies is stated by
the user and is public; a row of the design matrix is a function of that statement and of one record.

**Privacy.** Encoding releases nothing. Its shape, its names and every error it raises depend on the schema
and on the table's column names and types only, never on a cell: a record with a missing, unparsable or
undeclared value becomes a row of NaN, which a private fit counts as a zero contribution. An error, a
warning or a column made for the new value would tell of that record. Assumption: the schema was not written
by looking at the data.
"""

from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from dpsep.data.declare import Column, Schema, SchemaError
from dpsep.data.frames import TableError, as_frame, unknown_column

__all__ = ["ADULT_SCHEMA", "Column", "Schema", "SchemaError", "encode", "encode_target", "encoded_bounds"]


def encode(
    table: Any, schema: Schema, drop_first: bool = True
) -> tuple[NDArray[np.float64], tuple[str, ...]]:
    """Encode the schema's features as a design matrix.

    Numbers become one column, text that looks like a number included; a category becomes one column of
    zeros and ones for each *declared* value. A record with a missing, unparsable, infinite or undeclared
    value becomes a row of NaN, never an error (see the module's Privacy section). Bounds are not applied
    here.

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
    blocks: list[NDArray[np.float64]] = []
    bad = np.zeros(frame.height, dtype=bool)
    for column in schema.features:
        series = take_column(frame, column.name)
        if column.kind == "number":
            block = parse_number(series)[:, None]
            bad |= np.isnan(block[:, 0])
        else:
            codes = category_codes(series, column)
            block = (codes[:, None] == np.arange(int(drop_first), len(column.categories or ()))).astype(
                np.float64
            )
            bad |= codes < 0
        blocks.append(block)
    X = np.concatenate(blocks, axis=1) if blocks else np.empty((frame.height, 0))
    X[bad] = np.nan
    return X, tuple(name for name, _ in _encoded(schema, drop_first))


def encode_target(table: Any, schema: Schema) -> NDArray[np.float64]:
    """Encode the schema's target: a number as it is, a category as its place among the declared values.

    A missing, unparsable or undeclared value becomes NaN.
    """
    if schema.target is None:
        raise SchemaError("the schema has no target; set target to the name of a declared column")
    column = schema[schema.target]
    series = take_column(as_frame(table), column.name)
    if column.kind == "number":
        return parse_number(series)
    codes = category_codes(series, column)
    return np.where(codes < 0, np.nan, codes)


def encoded_bounds(
    schema: Schema, drop_first: bool = True
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the public lowest and highest value of each encoded column, infinite where none is declared."""
    bounds = np.array([limits for _, limits in _encoded(schema, drop_first)], dtype=np.float64).reshape(-1, 2)
    return bounds[:, 0].copy(), bounds[:, 1].copy()


def take_column(frame: pl.DataFrame, name: str) -> pl.Series:
    """Return a frame's column, or raise an error that lists those there are."""
    if name not in frame.columns:
        raise TableError(unknown_column(name, frame.columns))
    return frame[name]


def parse_number(series: pl.Series) -> NDArray[np.float64]:
    """Return a column as doubles, NaN where a cell is missing, infinite or no number."""
    if series.dtype in (pl.String, pl.Categorical, pl.Enum):
        series = series.cast(pl.String).str.strip_chars()
    elif not (series.dtype.is_numeric() or series.dtype in (pl.Boolean, pl.Null)):
        raise TableError(
            f"column {series.name!r} is declared a number but has type {series.dtype}; convert it"
        )
    values = series.cast(pl.Float64, strict=False).fill_null(np.nan).to_numpy().copy()
    values[~np.isfinite(values)] = np.nan
    return values


def category_codes(series: pl.Series, column: Column) -> NDArray[np.int32]:
    """Return each cell's place among the declared categories, -1 where it is missing or undeclared.

    Text is compared without surrounding spaces; a numeric column by value, so that 1.0 is the category
    ``"1"``.
    """
    categories = list(column.categories or ())
    lowered = [value.lower() for value in categories]
    if series.dtype == pl.Boolean and set(lowered) <= {"true", "false"}:
        keys: list[Any] = lowered
        cells = series.cast(pl.String)
    elif series.dtype.is_numeric() or series.dtype == pl.Boolean:
        keys = [_as_float(value) for value in categories]
        cells = series.cast(pl.Float64)
    elif series.dtype.is_nested() or series.dtype in (pl.Binary, pl.Object):
        raise TableError(
            f"column {series.name!r} is declared a category but has type {series.dtype}; convert it"
        )
    else:
        keys = categories
        cells = series.cast(pl.String).str.strip_chars()
    places: dict[Any, int] = {}
    for place, key in enumerate(keys):
        if key is not None:
            places.setdefault(key, place)
    old = pl.Series(list(places), dtype=cells.dtype)
    codes = cells.replace_strict(old, list(places.values()), default=-1, return_dtype=pl.Int32)
    return codes.fill_null(-1).to_numpy()


def _encoded(schema: Schema, drop_first: bool) -> list[tuple[str, tuple[float, float]]]:
    """List the encoded columns' names and bounds."""
    out: list[tuple[str, tuple[float, float]]] = []
    for column in schema.features:
        if column.kind == "number":
            out.append((column.name, column.bounds or (-np.inf, np.inf)))
        else:
            values = (column.categories or ())[int(drop_first) :]
            out += [(f"{column.name}={value}", (0.0, 1.0)) for value in values]
    return out


def _as_float(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


_WORKCLASS = (
    *("Private", "Self-emp-not-inc", "Self-emp-inc", "Federal-gov", "Local-gov", "State-gov", "Without-pay"),
    *("Never-worked", "?"),
)
_MARITAL_STATUS = (
    *("Married-civ-spouse", "Divorced", "Never-married", "Separated", "Widowed", "Married-spouse-absent"),
    "Married-AF-spouse",
)
_OCCUPATION = (
    *("Tech-support", "Craft-repair", "Other-service", "Sales", "Exec-managerial", "Prof-specialty"),
    *("Handlers-cleaners", "Machine-op-inspct", "Adm-clerical", "Farming-fishing", "Transport-moving"),
    *("Priv-house-serv", "Protective-serv", "Armed-Forces", "?"),
)
_RELATIONSHIP = ("Wife", "Own-child", "Husband", "Not-in-family", "Other-relative", "Unmarried")
_RACE = ("White", "Asian-Pac-Islander", "Amer-Indian-Eskimo", "Other", "Black")
_NATIVE_COUNTRY = (
    *(
        "United-States",
        "Cambodia",
        "England",
        "Puerto-Rico",
        "Canada",
        "Germany",
        "Outlying-US(Guam-USVI-etc)",
    ),
    *(
        "India",
        "Japan",
        "Greece",
        "South",
        "China",
        "Cuba",
        "Iran",
        "Honduras",
        "Philippines",
        "Italy",
        "Poland",
    ),
    *(
        "Jamaica",
        "Vietnam",
        "Mexico",
        "Portugal",
        "Ireland",
        "France",
        "Dominican-Republic",
        "Laos",
        "Ecuador",
    ),
    *(
        "Taiwan",
        "Haiti",
        "Columbia",
        "Hungary",
        "Guatemala",
        "Nicaragua",
        "Scotland",
        "Thailand",
        "Yugoslavia",
    ),
    *("El-Salvador", "Trinadad&Tobago", "Peru", "Hong", "Holand-Netherlands", "?"),
)

ADULT_SCHEMA = Schema(
    columns=(
        Column("age", "number", (17, 90)),
        Column("workclass", "category", categories=_WORKCLASS),
        Column("education-num", "number", (1, 16)),
        Column("marital-status", "category", categories=_MARITAL_STATUS),
        Column("occupation", "category", categories=_OCCUPATION),
        Column("relationship", "category", categories=_RELATIONSHIP),
        Column("race", "category", categories=_RACE),
        Column("sex", "category", categories=("Female", "Male")),
        Column("capital-gain", "number", (0, 99999)),
        Column("capital-loss", "number", (0, 4356)),
        Column("hours-per-week", "number", (1, 99)),
        Column("native-country", "category", categories=_NATIVE_COUNTRY),
        Column("income", "category", categories=("<=50K", ">50K")),
    ),
    target="income",
)
"""UCI's Adult table: twelve features and the income bracket. The categories are those of UCI's
description, with ``"?"`` for what was not answered; the bounds are the published ranges of this public
table. ``fnlwgt``, a survey weight, and ``education``, which repeats ``education-num``, are left out.
Encoded it has 84 columns; without ``native-country`` (``ADULT_SCHEMA.drop("native-country")``) 43.
"""
