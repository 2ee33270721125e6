"""Networks on tables that break careless code: bad cells, constants, few records, huge numbers."""

from collections.abc import Iterator
from functools import lru_cache
from typing import Any

import numpy as np
import polars as pl
import pytest

from dpsep.privacy.mechanism import Schedule

from .network_made import (
    BOUNDS,
    PRIVATE_WAYS,
    ROWS,
    STANDARD,
    STEPS,
    assert_proper,
    bits,
    classifier,
    labels,
    regressor,
    seeded,
    seeded_classes,
    table,
)

X, Y = table()
LABELS = labels(X)


@pytest.fixture(autouse=True, scope="module")
def _accounted_once() -> Iterator[None]:
    """Account a schedule once: it depends on public numbers, and these fits share theirs."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Schedule, "epsilon", lru_cache(Schedule.epsilon))
        yield


SCALINGS: dict[str, dict[str, Any]] = {"bounds": BOUNDS, "private scaling": {}, "standard": STANDARD}


@pytest.mark.parametrize("scaling", SCALINGS)
@pytest.mark.parametrize("way", PRIVATE_WAYS)
def test_under_privacy_a_bad_cell_leaves_its_record_blank_however_it_is_bad(way: str, scaling: str) -> None:
    tables = []
    for bad in (
        (np.nan, 0.0, 0.0),
        (0.0, -np.inf, 0.0),
        (0.0, 0.0, np.nan),
        (0.0, 0.0, np.inf),
        3 * (np.nan,),
    ):
        x, y = X.copy(), Y.copy()
        x[5], y[5] = bad[:2], bad[2]
        tables.append((x, y))
    text = X.astype(object)
    text[5, 0] = "unknown"
    tables.append((text, Y))
    if scaling == "private scaling":
        # Bounds are found column by column: there, a record counts in the columns that it has.
        tables = [tables[0], tables[-1]]
        tables[0][0][5, 1] = X[5, 1]
        tables[0][1][5] = Y[5]
    more: dict[str, Any] = {"sampling": "full"} | PRIVATE_WAYS[way] | SCALINGS[scaling]
    results = [bits(seeded(*cells, **more)) for cells in tables]
    assert all(other == results[0] for other in results[1:])
    assert results[0] != bits(seeded(**more))


def test_under_privacy_an_undeclared_label_leaves_its_record_blank() -> None:
    results = []
    for label in ("perhaps", None, ""):
        y = LABELS.astype(object)
        y[5] = label
        results.append(bits(seeded_classes(X, y)))
    x = X.copy()
    x[5] = np.nan
    results.append(bits(seeded_classes(x, LABELS.astype(object))))
    assert all(other == results[0] for other in results[1:])


def test_missing_cells_of_frames_are_blank_records() -> None:
    x = X.copy()
    x[7, 1] = np.nan
    frame = pl.DataFrame({"a": x[:, 0], "b": x[:, 1]}).with_columns(pl.col("b").fill_nan(None))
    assert bits(seeded(frame, **BOUNDS)) == bits(seeded(x, **BOUNDS))


def test_without_privacy_a_bad_cell_is_an_error_that_does_not_name_it() -> None:
    for bad in (np.nan, np.inf):
        for cells, target in (
            (np.where(X[3, 1] == X, bad, 77123.5 * X), Y),
            (X, np.where(Y[3] == Y, bad, Y)),
        ):
            with pytest.raises(ValueError, match="NaN") as caught:
                regressor(private=False).fit(cells, target)
            assert "77123" not in str(caught.value)
    with pytest.raises(ValueError, match="NaN, infinity or an undeclared label"):
        classifier(private=False).fit(X, np.where(np.arange(ROWS) == 3, "perhaps", LABELS))
    with pytest.raises(ValueError, match="cells beyond 1e\\+100; rescale"):
        regressor(private=False).fit(1e150 * X, Y)


ODD: dict[str, tuple[np.ndarray, np.ndarray]] = {
    "constant feature": (np.where([True, False], X, 0.25), Y),
    "all rows equal": (np.full_like(X, 0.5), np.full_like(Y, 0.5)),
    "constant target": (X, np.full_like(Y, 0.5)),
    "target of two values": (X, np.where(Y > 0, 1.0, -1.0)),
    "equal columns": (X[:, [0, 0]], Y),
    "no relation": (X, np.random.default_rng(3).permutation(Y)),
}
"""Tables of the usual shape."""


@pytest.mark.parametrize("way", PRIVATE_WAYS)
@pytest.mark.parametrize("name", ODD)
def test_odd_tables_have_proper_posteriors(name: str, way: str) -> None:
    x, y = ODD[name]
    for more in (BOUNDS, {}, BOUNDS | {"private": False}, {"private": False}):
        model = seeded(x, y, steps=None if way == "kronecker" else STEPS, **PRIVATE_WAYS[way], **more)
        assert_proper(model)
        if name == "constant target" and way == "kronecker" and "private" in more:
            np.testing.assert_allclose(model.predict(x), 0.5, atol=0.05)


HUGE: dict[str, tuple[np.ndarray, np.ndarray]] = {
    "all rows blank": (np.full_like(X, np.nan), np.full_like(Y, np.nan)),
    "large numbers": (1e150 * X, 1e150 * Y),
    "huge numbers": (np.full_like(X, 1.7e308) * [1.0, -1.0], Y),
    "one huge cell": (np.where(np.arange(2 * ROWS).reshape(ROWS, 2) == 5, -1.7e308, X), Y),
    "one huge target": (X, np.where(np.arange(ROWS) == 5, 1.7e308, Y)),
    "small numbers": (1e-150 * X, 1e-150 * Y),
}


@pytest.mark.parametrize("way", PRIVATE_WAYS)
@pytest.mark.parametrize("name", HUGE)
def test_under_privacy_no_number_breaks_a_fit(name: str, way: str) -> None:
    for more in SCALINGS.values():
        assert_proper(seeded(*HUGE[name], **PRIVATE_WAYS[way], **more))


@pytest.mark.parametrize("way", PRIVATE_WAYS)
def test_predictions_far_outside_are_finite(way: str) -> None:
    far = np.array([[1e300, -1e300], [1.7e308, 0.0], [1e120, 1e120], [-1e8, 5e-324]])
    for more in (BOUNDS, STANDARD):
        assert_proper(seeded(**PRIVATE_WAYS[way], **more), far)
    assert_proper(seeded_classes(**PRIVATE_WAYS[way]), far)


@pytest.mark.parametrize("private", [True, False])
@pytest.mark.parametrize("way", ["kronecker", "diagonal"])
def test_there_may_be_more_weights_than_records(way: str, private: bool) -> None:
    x, y = X[:8], Y[:8]
    model = seeded(x, y, private=private, steps=20, **PRIVATE_WAYS[way], **BOUNDS)
    assert model.n_weights_ == (15 if way == "kronecker" else 13)  # two inputs reach the output directly
    assert_proper(model)
    assert_proper(seeded(X[:3], Y[:3], private=private, **PRIVATE_WAYS[way], **BOUNDS))


@pytest.mark.parametrize("parameters", [{}, {"private": False, "method": "point"}], ids=["private", "open"])
def test_one_feature_and_two_hidden_layers_do(parameters: dict[str, Any]) -> None:
    model = seeded(X[:, :1], Y, hidden=(3, 2), activation="sigmoid", **parameters, **BOUNDS)
    assert model.hidden_ == (3, 2)
    assert_proper(model, X[:, :1])


def test_under_heavy_noise_posteriors_stay_proper() -> None:
    for seed in range(2):
        for way in PRIVATE_WAYS.values():
            assert_proper(seeded(seed=seed, epsilon=1e-2, steps=20, sampling="full", **way, **BOUNDS))


def test_one_class_alone_has_a_proper_posterior() -> None:
    y = np.full(ROWS, "yes")
    for private in (True, False):
        model = seeded_classes(X, y, private=private, steps=20)
        assert_proper(model)
    assert set(model.predict(X)) == {"yes"}
