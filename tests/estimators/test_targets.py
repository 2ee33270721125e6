"""How a target is read: cell by cell, so that no record changes how another is coded."""

import warnings
from datetime import date, datetime
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from dpsep import Ledger, LinearRegression, NetworkRegressor, WeakBudgetWarning
from dpsep.data import TableError
from dpsep.estimators.input_checks import check_numbers, coding, declared_classes, numbers, places, signs
from dpsep.privacy.leaks import PrivacyLeakWarning

BIG = 2**53
"""From here on, doubles do not hold every integer."""
CONTAINERS: dict[str, Any] = {
    "polars": pl.Series,
    "arrow": pa.array,
    "pandas nullable": lambda cells: pd.Series(cells, dtype="Int64"),
    "pandas arrow": lambda cells: pd.Series(cells, dtype="int64[pyarrow]"),
    "pandas categories": lambda cells: pd.Series(pd.Categorical(cells, categories=[BIG, BIG + 1])),
    "list": list,
}


@pytest.mark.parametrize("container", CONTAINERS)
def test_a_missing_label_does_not_change_how_other_labels_are_coded(container: str) -> None:
    labels = [BIG, BIG + 1, BIG, BIG + 1]
    classes = np.array([BIG, BIG + 1])
    whole = signs(CONTAINERS[container](labels), classes)
    missing = signs(CONTAINERS[container]([None, *labels[1:]]), classes)
    assert whole.tolist() == [-1.0, 1.0, -1.0, 1.0]
    assert np.isnan(missing[0])
    assert missing[1:].tolist() == whole[1:].tolist()


@pytest.mark.parametrize("container", ["polars", "arrow", "pandas nullable", "list"])
def test_a_missing_number_does_not_change_other_numbers(container: str) -> None:
    cells = [1, 2, 3]
    assert numbers(CONTAINERS[container](cells)).tolist() == [1.0, 2.0, 3.0]
    assert numbers(CONTAINERS[container]([None, 2, 3]))[1:].tolist() == [2.0, 3.0]


OBJECTS: dict[str, Any] = {
    "list": list,
    "objects": lambda cells: _objects(cells),
    "pandas": lambda cells: pd.Series(_objects(cells)),
    "pandas array": lambda cells: pd.arrays.NumpyExtensionArray(_objects(cells)),
    "pandas series of an array": lambda cells: pd.Series(pd.arrays.NumpyExtensionArray(_objects(cells))),
    "categories": lambda cells: pd.Categorical(_objects(cells)),
    "a series of categories": lambda cells: pd.Series(_objects(cells)).astype("category"),
    "categories as declared": lambda cells: pd.Categorical(
        _objects(cells), categories=_objects(set(cells) - {None})
    ),
    "polars": lambda cells: pl.Series(cells, dtype=pl.Object),
}


def _objects(cells: Any) -> np.ndarray:
    cells = list(cells)
    found = np.empty(len(cells), object)
    found[:] = cells
    return found


@pytest.mark.parametrize("container", OBJECTS)
@pytest.mark.parametrize("odd", [b"ann", b"?", 3, 2.5, None, date(2020, 1, 1), ("bob",)])
def test_one_odd_cell_changes_no_other_cell_of_a_column_of_objects(container: str, odd: Any) -> None:
    """A conversion of the whole column chose one type by looking at all cells: bytes, for one of bytes."""
    cells = ["ann", "bob", "ann", "cid", "bob"]
    declared = np.array(["ann", "bob", "cid"])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what pandas says of categories that have no order
        made = OBJECTS[container]([odd, *cells[1:]])
    assert places(made, declared)[1:].tolist() == [1.0, 0.0, 2.0, 1.0]
    assert signs(made, declared[:2])[1:3].tolist() == [1.0, -1.0]


@pytest.mark.parametrize("container", OBJECTS)
def test_a_day_and_a_time_of_that_day_are_two_labels(container: str) -> None:
    day, time = date(2020, 1, 1), datetime(2020, 1, 1, 3)
    for cells in ([day, time], [time, day]):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            made = OBJECTS[container](cells)
        found = places(made, _objects([day]))
        assert np.isnan(found).tolist() == [cell is time for cell in cells]


def test_classes_that_are_equal_as_doubles_are_refused() -> None:
    with pytest.raises(ValueError, match="exactly two classes"):
        declared_classes([BIG, BIG + 1], None, private=True, strict=False)


@pytest.mark.parametrize("container", ["arrow", "arrow chunks", "pandas", "polars"])
def test_a_text_that_is_no_text_is_no_label_and_is_not_repeated(container: str) -> None:
    texts = pa.array([b"no", b"J\xfcrgen", b"yes"]).view(pa.string())
    target: Any = {
        "arrow": lambda: texts,
        "arrow chunks": lambda: pa.chunked_array([texts]),
        "pandas": lambda: pd.Series(texts, dtype=pd.ArrowDtype(pa.string())),
        "polars": lambda: pl.Series(pl.from_arrow(texts)),
    }[container]()
    found = signs(target, np.array(["no", "yes"]))
    assert found[[0, 2]].tolist() == [-1.0, 1.0]
    assert np.isnan(found[1])


@pytest.mark.parametrize(
    "frame",
    [
        pd.DataFrame({"dtype": [1.0, 2.0]}),
        pl.DataFrame({"y": [1.0, 2.0]}),
        pa.table({"y": [1.0, 2.0]}),
        pd.Series([1, 2], dtype="Int64", index=["ann", "to_pylist"]),
        [np.array([1.0]), np.array([2.0])],
    ],
)
def test_a_frame_of_one_column_is_read_as_that_column(frame: Any) -> None:
    assert numbers(frame).tolist() == [1.0, 2.0]


class Holder:
    """Something that becomes an array by its own code."""

    def __init__(self, cells: Any) -> None:
        self.cells = cells

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        return np.array(self.cells, dtype)


def test_a_target_that_makes_an_array_of_itself_is_warned_of() -> None:
    model = LinearRegression(bounds=(-1, 1), target_bounds=(-1, 1))
    with pytest.warns(PrivacyLeakWarning, match="Holder"), pytest.warns(WeakBudgetWarning):
        model.fit(np.zeros((20, 1)), Holder([0.5] * 20))


def test_codings_that_differ_in_the_last_digit_differ() -> None:
    first, second = (
        Codes(np.array([0.1234567891, 1.0])),
        Codes(np.array([0.1234567892, 1.0])),
    )
    assert coding(first) != coding(second)


class Codes:
    """An estimator's classes."""

    def __init__(self, classes: Any) -> None:
        self.classes_ = classes


def test_a_list_of_rows_of_one_number_is_read_as_numbers() -> None:
    assert numbers([[1.0], [2.0]]).tolist() == [1.0, 2.0]


class Talkative:
    """A cell that says something about itself whenever it is used."""

    def __float__(self) -> float:
        warnings.warn("secret", stacklevel=1)
        return 1.0

    def __eq__(self, other: object) -> bool:
        warnings.warn("secret", stacklevel=1)
        return False

    __hash__ = None  # pyright: ignore[reportAssignmentType]


def test_warnings_of_cells_do_not_get_out() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert numbers([Talkative(), 2.0])[1] == 2.0
        assert signs([Talkative(), 1], np.array([0, 1]))[1] == 1.0
        assert np.isnan(numbers([np.complex64(1 + 2j), 2.0])[0])


@pytest.mark.parametrize(
    "y",
    [
        np.array(["a", "b"]),
        np.array([1j, 2.0]),
        pl.Series(["a", "b"]),
        pd.Series(["a", "b"], dtype="string"),
        pd.DataFrame({"y": ["a", "b"]}, dtype="string"),
        pa.array([1, 2**60], pa.timestamp("s")),
        pa.table({"y": ["a", "b"]}),
    ],
)
def test_a_target_that_is_not_numeric_is_refused_by_its_type(y: Any) -> None:
    with pytest.raises(TableError, match="not numeric"):
        check_numbers(y)


@pytest.mark.parametrize("kind", [LinearRegression, NetworkRegressor])
def test_a_target_that_is_not_numeric_costs_nothing(kind: Any, tmp_path: Any) -> None:
    ledger = Ledger.create(tmp_path / "budget.ledger", epsilon=2.0, delta=1e-4)
    model = kind(ledger=ledger, bounds=(-1, 1), target_bounds=(-1, 1))
    with pytest.raises(TableError, match="not numeric"):
        model.fit(np.zeros((3, 1)), np.array(["a", "b", "c"]))
    assert [row.kind for row in ledger.rows()] == ["create"]
