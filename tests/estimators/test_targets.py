"""How a target is read: cell by cell, so that no record changes how another is coded."""

import warnings
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from dpsep import Ledger, LinearRegression, NetworkRegressor
from dpsep.data import TableError
from dpsep.estimators.structure import check_numbers, declared_classes, numbers, signs

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


def test_classes_that_are_equal_as_doubles_are_refused() -> None:
    with pytest.raises(ValueError, match="exactly two classes"):
        declared_classes([BIG, BIG + 1], None, private=True, strict=False)


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
    [np.array(["a", "b"]), pl.Series(["a", "b"]), np.array([1j, 2.0]), pd.Series(["a", "b"], dtype="string")],
)
def test_a_target_that_is_not_numeric_is_refused_by_its_type(y: Any) -> None:
    with pytest.raises(TableError, match="not numeric"):
        check_numbers(y)


@pytest.mark.parametrize("kind", [LinearRegression, NetworkRegressor])
def test_a_target_that_is_not_numeric_costs_nothing(kind: Any, tmp_path: Any) -> None:
    ledger = Ledger(tmp_path / "budget.ledger", epsilon=2.0, delta=1e-4)
    model = kind(ledger=ledger, bounds=(-1, 1), target_bounds=(-1, 1))
    with pytest.raises(TableError, match="not numeric"):
        model.fit(np.zeros((3, 1)), np.array(["a", "b", "c"]))
    assert [row.kind for row in ledger.rows()] == ["create"]
