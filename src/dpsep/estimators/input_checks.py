"""What a call says in public: shapes, types, names, bounds and classes, checked before any record is read.

**Privacy.** Messages here speak of shapes, types and declared values only. The one exception is announced:
where classes are not declared they are taken from the target, and a `PrivacyLeakWarning` says so.
"""

import warnings
from collections.abc import Sequence
from contextlib import suppress
from numbers import Real
from typing import Any, NamedTuple, cast

import numpy as np
import polars as pl
import pyarrow as pa
from numpy.typing import NDArray
from sklearn.exceptions import DataConversionWarning
from sklearn.utils import assert_all_finite
from sklearn.utils.multiclass import check_classification_targets

from dpsep.data import TableError, as_matrix, check_types
from dpsep.data.frames import is_pandas
from dpsep.data.large import LargeColumn, LargeColumns
from dpsep.data.table import quiet
from dpsep.estimators.large import pieces
from dpsep.estimators.pipeline_leaks import label_coder
from dpsep.families.columns import Columns
from dpsep.privacy import hosts
from dpsep.privacy.leaks import undeclared_classes, warn_leak
from dpsep.privacy.scaling import within

Array = NDArray[np.float64]


class Structure(NamedTuple):
    """Public structure of a table."""

    records: int
    features: int
    names: tuple[str, ...] | None
    container: str | None = None
    """Type of a table that makes an array of itself by its own code; None where it declares its cells."""


def structure_of_table(X: Any, *, private: bool = True) -> Structure:
    """Shape and column names of a table without a target, from its metadata."""
    hosts.next_fit()
    records, features = table_shape(X, private=private)
    check_types(X)
    if features < 1:
        raise ValueError(
            f"X has 0 feature(s) (shape=({records}, {features})) while a minimum of 1 is required."
        )
    if records < 2:
        raise ValueError(
            f"X has {records} sample(s): a minimum of 2 is required. Check that the table was read whole."
        )
    return Structure(records, features, column_names(X), _own_container(X))


def structure_of(X: Any, y: Any, *, private: bool = True) -> Structure:
    """Shape and column names of a table and its target, from their metadata."""
    found = structure_of_table(X, private=private)
    records = found.records
    if y is None:
        raise ValueError("this estimator requires y to be passed, but the target y is None.")
    given = target = target_shape(y, private=private)
    if len(target) == 2 and target[1] == 1:
        warnings.warn(
            f"A column-vector y was passed when a 1d array was expected; {given} is read as ({given[0]},).",
            DataConversionWarning,
            stacklevel=3,
        )
        target = target[:1]
    if len(target) != 1 or target[0] != records:
        raise ValueError(f"y has shape {given}; it must hold one value for each of {records} rows.")
    return found


def check_cells(X: Any) -> None:
    """Refuse an object cell that is no number, as scikit-learn does; for fits without privacy only.

    Under privacy such a cell makes its record a zero contribution, because an error would tell on it.
    """
    if getattr(getattr(X, "dtype", None), "kind", "") == "O":
        np.asarray(X, np.float64)  # raises TypeError or ValueError at such a cell


def structure_of_groups(X: Any, y: Any, *, private: bool = True) -> Structure:
    """Column names of a table in which groups are units; no records are counted.

    How many rows there are is not public then: no error may depend on it but that of unequal lengths.
    """
    hosts.next_fit()
    rows, features = table_shape(X, private=private)
    check_types(X)
    if features < 1:
        raise ValueError(f"X has 0 feature(s) (shape=(..., {features})) while a minimum of 1 is required.")
    if y is None:
        raise ValueError("this estimator requires y to be passed, but the target y is None.")
    if target_shape(y, private=private) not in ((rows,), (rows, 1)):
        raise ValueError("X and y differ in their number of rows; y must hold one value for each row.")
    return Structure(0, features, column_names(X), _own_container(X))


def table_shape(X: Any, *, private: bool = False) -> tuple[int, int]:
    """Rows and columns of a table, from its metadata; other shapes and complex cells are refused.

    Under privacy a list of rows is refused too: it has no columns but those of its first record, and every
    other record would be read, or refused, by that one.
    """
    if private and getattr(X, "shape", None) is None and not hasattr(X, "__array__"):
        raise TypeError(
            f"X is a {type(X).__name__}, whose number of columns would be that of its first record. Under "
            "privacy give an array, as np.asarray(X, float), or a frame of pandas, polars or Arrow."
        )
    shape = shape_of(X)
    if len(shape) != 2:
        raise ValueError(
            f"Expected 2D array, got {len(shape)}D array instead: X must have one row a record and one "
            "column a feature. Reshape your data, e.g. X.reshape(-1, 1) for a single feature."
        )
    if getattr(getattr(X, "dtype", None), "kind", "") == "c":
        raise ValueError("Complex data not supported: X must hold real numbers.")
    return int(shape[0]), int(shape[1])


def check_finite(X: Any, y: Any = None) -> None:
    """Refuse bad cells, as scikit-learn does; for fits without privacy only."""
    if not all(np.isfinite(piece).all() for piece in pieces(X)):
        raise ValueError("Input X contains NaN or infinity; a fit without privacy needs finite cells.")
    if y is not None and not all(np.isfinite(piece).all() for piece in pieces(y)):
        raise ValueError("Input y contains NaN, infinity or an undeclared label.")


def column_names(X: Any) -> tuple[str, ...] | None:
    """Column names where all are text. An Arrow table's `columns` are its cells: its names are elsewhere."""
    names = getattr(X, "column_names", None)
    if names is None:
        names = getattr(X, "columns", None)
    if names is None or not all(isinstance(name, str) for name in names):
        return None
    return tuple(str(name) for name in names)


def check_names(names: Sequence[str], known: Sequence[str]) -> None:
    """Refuse columns other than those of the fit, in scikit-learn's words."""
    if list(names) == list(known):
        return
    unseen, missing = sorted(set(names) - set(known)), sorted(set(known) - set(names))
    text = "The feature names should match those that were passed during fit.\n"
    for what, columns in (("unseen at fit time", unseen), ("seen at fit time, yet now missing", missing)):
        if columns:
            more = ["..."] if len(columns) > 5 else []
            text += f"Feature names {what}:\n" + "".join(f"- {name}\n" for name in columns[:5] + more)
    if not unseen and not missing:
        text += "Feature names must be in the same order as they were in fit.\n"
    raise ValueError(text)


def shape_of(array: Any) -> tuple[int, ...]:
    """Shape of a table; that of a list of rows by the length of the first: see `table_shape`."""
    shape = getattr(array, "shape", None)
    if shape is not None:
        return tuple(shape)
    if isinstance(array, pa.Array | pa.ChunkedArray):
        return (len(array),)
    if hasattr(array, "__array__"):
        # Such an object tells its shape only by becoming an array; what its own code raises may name cells.
        try:
            with quiet():
                return tuple(np.asarray(array).shape)
        except Exception:
            raise TypeError(f"a {type(array).__name__} does not become an array of numbers.") from None
    if not isinstance(array, Sequence) or isinstance(array, str | bytes):
        raise TypeError(
            f"cannot read a {type(array).__name__}; give an array, a frame of pandas, polars or Arrow, or a "
            "list of rows."
        )
    first = array[0] if len(array) else None
    if isinstance(first, str | bytes):
        return (len(array),)
    try:
        return len(array), len(first)  # pyright: ignore[reportArgumentType]
    except Exception:  # a number has no length; whatever else a record's own code raises would tell on it
        return (len(array),)


def target_shape(y: Any, *, private: bool) -> tuple[int, ...]:
    """Shape of a target; under privacy a list is one column, whatever its first cell is."""
    if private and isinstance(y, Sequence) and not isinstance(y, str | bytes):
        return (len(y),)
    return shape_of(y)


def _own_container(X: Any) -> str | None:
    """Name the type of a table that becomes an array by its own code; None where the code is known."""
    known = (np.ndarray, pl.DataFrame, pl.LazyFrame, pa.Table, LargeColumns, list, tuple)
    declared = isinstance(X, known) or is_pandas(X) or _declares(X)
    return None if declared else type(X).__name__


def declared_scaling(bounds: Any, columns: int, what: str) -> Columns:
    """Scaling that follows from declared bounds.

    Parameters
    ----------
    bounds
        A pair (low, high), each a number or one number a column.
    """
    try:
        low, high = (np.broadcast_to(np.asarray(side, np.float64), (columns,)).copy() for side in bounds)
    except (TypeError, ValueError):
        raise ValueError(
            f"bounds of {what} must be a pair (low, high), each a number or {columns} numbers."
        ) from None
    if not (np.isfinite(low).all() and np.isfinite(high).all() and (low <= high).all()):
        raise ValueError(
            f"bounds of {what} must be finite, with low <= high in every column: all lows first, then all "
            "highs, as in ([0, 18], [1, 90]) for two columns; not a pair for each column."
        )
    return within(low, high)


def no_scaling(columns: int) -> Columns:
    """Leave columns as they are."""
    zeros = np.zeros(columns)
    return Columns(zeros - np.inf, zeros + np.inf, zeros, zeros + 1.0)


def declared_classes(classes: Any, y: Any, *, private: bool, strict: bool) -> NDArray[Any]:
    """Return the two classes, declared or (a leak under privacy) read off the target."""
    if classes is None and isinstance(_column(y), LargeColumn):
        raise ValueError(
            "the classes of a large table's target are not declared, and would be known only after reading "
            "all of it; declare them with classes=."
        )
    if classes is None:
        if private:
            warn_leak(undeclared_classes(), strict=strict)
        else:
            _check_labels(y)
        values = np.unique(np.asarray(y))
        if len(values) != 2:
            _check_labels(y)
    else:
        values = np.asarray(list(classes))
        _check_kinds(values, y)
        coder = label_coder()
        if coder is not None and set(values.tolist()) != {0, 1}:
            raise ValueError(
                f"{coder} codes labels as 0 and 1 before the fit sees them, so that the declared classes "
                "would never occur. Give it a target of 0 and 1, and declare classes=[0, 1]."
            )
    if values.ndim != 1 or len(values) != 2 or _same(*values):
        found = "declared" if classes is not None else "in the target"
        raise ValueError(
            "Only binary classification is supported. This classifier needs exactly two classes, not the "
            f"{len(values)} {found}."
        )
    return values


def _check_kinds(classes: NDArray[Any], y: Any) -> None:
    """Refuse texts for a target of numbers, and the reverse: no record would count. Types are public."""
    kind = getattr(getattr(_column(y), "dtype", None), "kind", "O")
    given = "numbers" if kind in "biuf" else "texts" if kind == "U" else None
    declared = "numbers" if classes.dtype.kind in "biuf" else "texts" if classes.dtype.kind == "U" else None
    if given is not None and declared is not None and given != declared:
        raise ValueError(
            f"the target holds {given} and the declared classes are {declared}, so that none would ever "
            "occur; declare them as they stand in the table, such as classes=[0, 1] or ['no', 'yes']."
        )


def declared_labels(classes: Any) -> NDArray[Any]:
    """Return declared labels, or groups, that can be told apart."""
    values = np.asarray(list(classes))
    if values.ndim != 1 or len(values) < 1:
        raise ValueError(f"declare labels in one list, not in an array of shape {values.shape}.")
    if len(set(values.tolist())) < len(values):
        raise ValueError("a label is declared twice; declare each once.")
    return values


def _check_labels(y: Any) -> None:
    """Say what is wrong with labels that nobody declared, in scikit-learn's words."""
    assert_all_finite(np.asarray(y), input_name="y")
    check_classification_targets(y)


def coding(estimator: Any) -> str:
    """How a classifier codes its labels, in words."""
    classes = np.asarray(estimator.classes_)
    return f"{classes.dtype.str} {classes.tolist()!r}"


def _same(first: Any, second: Any) -> bool:
    """Whether two labels cannot be told apart; numbers are compared as doubles, which a target may hold."""
    if isinstance(first, Real) and isinstance(second, Real):
        return float(first) == float(second)
    return bool(first == second)


def signs(y: Any, classes: NDArray[Any]) -> Array:
    """Code labels as -1 and +1; an undeclared label becomes NaN, so that its record contributes nothing."""
    labels = _cells(y)
    if labels.dtype.kind != "O":
        with np.errstate(invalid="ignore"):
            return np.where(labels == classes[1], 1.0, np.where(labels == classes[0], -1.0, np.nan))
    with quiet():
        values = [_equals(cell, classes[1]) - _equals(cell, classes[0]) for cell in labels]
    return np.array([value or np.nan for value in values], np.float64)


def places(y: Any, labels: NDArray[Any]) -> Array:
    """Code labels, or groups, by their place among those declared; an undeclared one becomes NaN."""
    known = {label: place for place, label in enumerate(np.asarray(labels).tolist())}
    with quiet():
        return np.array([_place(cell, known) for cell in _cells(y).tolist()], np.float64)


def _place(cell: Any, known: dict[Any, int]) -> float:
    try:
        return known.get(cell, np.nan)
    except Exception:  # whatever a cell's own hash or comparison raises would tell on its record
        return np.nan


def numbers(y: Any) -> Array:
    """Return the target as doubles; a cell of an object array that is no number becomes NaN."""
    check_numbers(y)
    return as_matrix(_cells(y)[:, None])[0][:, 0]


def check_numbers(y: Any) -> None:
    """Refuse a target whose declared type is not numeric, before anything is charged or read."""
    column = _column(y)
    if isinstance(column, pa.Array | pa.ChunkedArray | LargeColumn):
        kinds = (pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal, pa.types.is_boolean)
        good, name = any(kind(column.type) for kind in (*kinds, pa.types.is_null)), str(column.type)
    elif isinstance(column, pl.Series):
        dtype = column.dtype
        good, name = dtype.is_numeric() or dtype in (pl.Boolean, pl.Null, pl.Object), str(dtype)
    elif _declares(column) or _of_pandas(column):
        dtype = column.dtype
        dtype = getattr(getattr(dtype, "categories", None), "dtype", dtype)  # of a categorical: its values
        good, name = dtype.kind in "Ofiub", _KINDS.get(dtype.kind, "text")
        good = good and not str(dtype).startswith("str")
    else:
        return
    if not good:
        raise TableError(f"the target has type {name}, which is not numeric; convert it to numbers first.")


_KINDS = {"S": "bytes", "c": "complex", "M": "time", "m": "duration", "V": "record"}
"""Names of types that are no numbers, by NumPy's letter."""


def is_known(y: Any) -> bool:
    """Whether a target's container declares a type, or gives its cells one by one.

    Any other object becomes an array by its own code, which may choose one type for all records by looking
    at each of them.
    """
    column = _column(y)
    known = (np.ndarray, pl.Series, pa.Array, pa.ChunkedArray, list, tuple, LargeColumn)
    return isinstance(column, known) or _of_pandas(column) or _declares(column)


def _declares(column: Any) -> bool:
    """Whether an array of another library declares one of NumPy's types."""
    return isinstance(getattr(column, "dtype", None), np.dtype)


def _of_pandas(y: Any) -> bool:
    """Whether an object is one of pandas', without importing it."""
    return type(y).__module__.split(".")[0] == "pandas" and hasattr(type(y), "dtype")


def _column(y: Any) -> Any:
    """The one column of a frame; anything else as it is."""
    if isinstance(y, LargeColumns):
        return y.table[y.column_names[0]]
    if isinstance(y, pl.DataFrame):
        return y.to_series(0)
    if isinstance(y, pa.Table | pa.RecordBatch):
        return y.column(0)
    if type(y).__module__.split(".")[0] == "pandas" and len(y.shape) == 2:
        return y.iloc[:, 0]
    return y


def _cells(y: Any) -> NDArray[Any]:
    """Return a target's values in one dimension: a NumPy array as it is, all else as objects, cell by cell.

    NumPy would choose one type for a list, or for a nullable column, by looking at its cells, so that one odd
    or missing record changed how every other is read; and a library's conversion of a whole column may fail
    at one of its cells, with that cell in its message.
    """
    column = _column(y)
    if isinstance(column, np.ma.MaskedArray):
        column = cast(Any, np.ma.filled(column.astype(object), np.nan))
    if _of_pandas(column) and isinstance(column.dtype, np.dtype):
        column = column.to_numpy()
    if isinstance(column, np.ndarray) or _declares(column):
        return np.asarray(column).reshape(-1)
    with quiet():
        cells = _listed(column)
    values = np.empty(len(cells), object)
    for place, cell in enumerate(cells):
        values[place] = _unwrapped(cell)
    return values


def _unwrapped(cell: Any) -> Any:
    """The number in a row of one."""
    if type(cell) in (list, tuple) and len(cell) == 1:
        return cell[0]
    return cell.reshape(-1)[0] if type(cell) is np.ndarray and cell.size == 1 else cell


def _listed(column: Any) -> list[Any]:
    """Cells of a column as Python's own objects; one that cannot be read is NaN."""
    if _of_pandas(column):
        column = _of_declared_type(column)
    elif isinstance(column, pl.Series) and column.dtype != pl.Object:
        column = column.to_arrow()
    if isinstance(column, pa.Array | pa.ChunkedArray):
        column = cast(Any, column)
        kind = column.type
        if pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind):
            return column.to_pylist()
        return [_scalar(cell) for cell in column]
    return list(column if isinstance(column, list | tuple | pl.Series) else np.asarray(column).reshape(-1))


def _of_declared_type(column: Any) -> Any:
    """A pandas column in Arrow's form where its type declares one, which decodes nothing; else its cells.

    Of objects Arrow would choose one type by looking at them all: one cell of bytes makes bytes of all texts.
    """
    categories = getattr(column.dtype, "categories", None)
    if categories is not None:
        codes = np.asarray(getattr(column, "cat", column).codes)
        levels = _listed(categories.array) if len(categories) else []
        return [levels[code] if code >= 0 else np.nan for code in codes]
    if type(column.dtype).__name__ == "NumpyEADtype":  # an array of NumPy's in the dress of pandas
        return np.asarray(column)
    if hasattr(getattr(column, "array", column), "__arrow_array__") or column.dtype.kind in "mM":
        with suppress(Exception):  # where that fails all the same, cells are read one by one
            return pa.array(column)
    return [_at(column, place) for place in range(len(column))]


def _at(column: Any, place: int) -> Any:
    try:
        return column.iloc[place] if hasattr(type(column), "iloc") else column[place]
    except Exception:  # whatever a cell's own reading raises would tell on its record
        return np.nan


def _scalar(cell: Any) -> Any:
    try:
        return cell.as_py()
    except Exception:  # a text that is none, a time out of range: the message would repeat it
        return np.nan


def _equals(cell: Any, label: Any) -> bool:
    try:
        return bool(cell == label)
    except Exception:  # whatever a cell's own comparison raises would tell on its record
        return False
