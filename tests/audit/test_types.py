"""One record's *type* may not change what the other records contribute, nor raise an error of its own."""

import warnings
from typing import Any

import numpy as np
import pandas as pd
import pytest

from dpsep.estimators.input_checks import numbers, signs

CLASSES = np.asarray([0, 1])


def test_a_label_of_another_type_in_a_list_spoils_its_own_record_only() -> None:
    assert signs([0, 1, 1, "x"], CLASSES)[:3].tolist() == [-1.0, 1.0, 1.0]


def test_an_outcome_of_another_type_in_a_list_spoils_its_own_record_only() -> None:
    assert numbers([0.0, 1.5, "x"])[:2].tolist() == [0.0, 1.5]


@pytest.mark.parametrize("kind", ["boolean", object])
def test_a_missing_label_spoils_its_own_record_only(kind: Any) -> None:
    labels = pd.Series([True, False, pd.NA], dtype=kind)
    assert signs(labels, np.asarray([False, True]))[:2].tolist() == [1.0, -1.0]


def test_an_outcome_beyond_doubles_is_not_warned_of() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        numbers(np.array([1, np.longdouble("1e400")], np.longdouble))
