"""The face of the estimators: tables of every kind, names, parameters, summaries."""

from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from scipy.stats import norm
from sklearn.base import clone
from sklearn.exceptions import DataConversionWarning, NotFittedError
from sklearn.model_selection import cross_val_score

import dpsep
from dpsep import LinearRegression, LogisticRegression, PoissonRegression
from dpsep.estimators.posterior import Posterior

from .made import ALL, BINARY, BOUNDS, IDS, LINEAR, ROWS, seeded, table


def frames(x: np.ndarray) -> dict[str, Any]:
    columns = {"age": x[:, 0], "income": x[:, 1]}
    return {
        "numpy": x,
        "list": x.tolist(),
        "pandas": pd.DataFrame(columns),
        "polars": pl.DataFrame(columns),
        "arrow": pa.table(columns),
    }


@pytest.mark.parametrize("private", [True, False])
def test_arrays_and_frames_give_the_same_result(private):
    x, y = table(LinearRegression)
    targets = {"pandas": pd.Series(y), "polars": pl.Series(y), "list": y.tolist()}
    results = []
    for kind, cells in frames(x).items():
        if private and kind == "list":
            cells = x  # a list of rows is no table under privacy: its target may be one
        model = seeded(LinearRegression, private=private, table=(cells, targets.get(kind, y)), **LINEAR)
        results.append(model.coef_)
        named = kind in ("pandas", "polars", "arrow")
        assert hasattr(model, "feature_names_in_") == named
        if named:
            assert list(model.feature_names_in_) == ["age", "income"]
            assert model.posterior_.names == ("intercept", "age", "income")
        assert model.n_features_in_ == 2
        np.testing.assert_array_equal(model.predict(cells), model.predict(x))
    for other in results[1:]:
        np.testing.assert_array_equal(other, results[0])


def test_names_that_are_not_text_are_no_names():
    x, y = table(LinearRegression)
    model = LinearRegression(private=False, **LINEAR).fit(pd.DataFrame(x), y)
    assert not hasattr(model, "feature_names_in_")
    assert model.posterior_.names == ("intercept", "x0", "x1")


def test_missing_cells_of_frames_are_blank_records_under_privacy():
    x, y = table(LinearRegression)
    x[3, 1] = np.nan
    one = seeded(LinearRegression, table=(x, y), **LINEAR)
    missing = pl.DataFrame({"a": x[:, 0], "b": x[:, 1]}).with_columns(pl.col("b").fill_nan(None))
    two = seeded(LinearRegression, table=(missing, y), **LINEAR)
    np.testing.assert_array_equal(one.coef_, two.coef_)


def test_names_and_widths_are_checked_in_prediction():
    x, y = table(LinearRegression)
    model = LinearRegression(private=False, **LINEAR).fit(frames(x)["pandas"], y)
    with pytest.raises(ValueError, match="feature names should match"):
        model.predict(pd.DataFrame({"income": x[:, 1], "age": x[:, 0]}))
    with pytest.raises(ValueError, match="expecting 2 features"):
        model.predict(x[:, :1])
    with pytest.raises(ValueError, match="NaN"):
        model.predict(np.full((1, 2), np.nan))
    model.fit(x, y)
    assert not hasattr(model, "feature_names_in_")


def test_prediction_clamps_to_the_declared_bounds_as_the_fit_did():
    x, y = table(LinearRegression)
    model = LinearRegression(private=False, **LINEAR).fit(x, y)
    np.testing.assert_array_equal(model.predict([[7.0, -9.0]]), model.predict([[1.0, -1.0]]))


@pytest.mark.parametrize(("maker", "declared"), ALL, ids=IDS)
def test_shapes_of_what_is_learned(maker, declared):
    model = seeded(maker, **declared)
    x, y = table(maker)
    classifier = hasattr(model, "classes_")
    assert model.coef_.shape == ((1, 2) if classifier else (2,))
    assert np.shape(model.intercept_) == ((1,) if classifier else ())
    assert model.predict(x).shape == (ROWS,)
    assert model.log_predictive_density(x, y).shape == (ROWS,)
    assert model.posterior_.covariance.shape == (3, 3)
    assert model.score(x, y) > (0.5 if classifier else 0.0)


@pytest.mark.parametrize(("maker", "declared"), ALL, ids=IDS)
def test_parameters_are_kept_cloned_and_set(maker, declared):
    model = maker(epsilon=3.0, steps=4, **declared)
    parameters = model.get_params()
    assert parameters["epsilon"] == 3.0
    twin: Any = clone(model)
    assert twin.get_params() == parameters
    assert model.set_params(epsilon=0.5).epsilon == 0.5
    with pytest.raises(NotFittedError):
        model.predict(table(maker)[0])


def test_without_an_intercept_the_line_passes_through_the_origin():
    x, y = table(LinearRegression)
    model = LinearRegression(
        private=False, noise_precision=6.25, fit_intercept=False, prior_scale=1.0, **BOUNDS
    )
    model.fit(x, y)
    # The prior is in units of the columns' deviations.
    precision = np.diag(np.var(x, axis=0)) + 6.25 * x.T @ x
    np.testing.assert_allclose(model.coef_, np.linalg.solve(precision, 6.25 * x.T @ y), rtol=1e-9)
    assert model.intercept_ == 0.0
    assert model.posterior_.names == ("x0", "x1")


def test_a_column_vector_is_taken_as_a_target_with_a_warning():
    x, y = table(LinearRegression)
    model = LinearRegression(private=False, **LINEAR)
    with pytest.warns(DataConversionWarning, match="column-vector"):
        model.fit(x, y[:, None])
    np.testing.assert_array_equal(model.coef_, LinearRegression(private=False, **LINEAR).fit(x, y).coef_)


def test_labels_of_any_kind_come_back_in_the_order_declared():
    x, y = table(LogisticRegression)
    words = np.where(y > 0, "yes", "no")
    model = LogisticRegression(private=False, classes=["yes", "no"], **BOUNDS).fit(x, words)
    plain = LogisticRegression(private=False, **BINARY).fit(x, y)
    assert list(model.classes_) == ["yes", "no"]
    np.testing.assert_allclose(model.coef_, -plain.coef_, rtol=1e-9)
    agree = np.asarray(model.predict(x) == "yes")
    np.testing.assert_array_equal(agree, plain.predict(x) > 0)


def test_a_summary_has_one_row_a_coefficient():
    model = seeded(LinearRegression, **LINEAR)
    rows = model.summary(level=0.5)
    assert [row["name"] for row in rows] == ["intercept", "x0", "x1"]
    reach = norm.ppf(0.75)
    for row, mean, sd in zip(rows, model.posterior_.mean, model.posterior_.sd, strict=True):
        assert row["mean"] == pytest.approx(mean)
        assert row["high"] - row["mean"] == pytest.approx(reach * sd)
        assert 0 < row["noise_share"] < 1
    with pytest.raises(ValueError, match="level"):
        model.summary(level=1.0)


def test_draws_have_the_moments_of_the_posterior():
    covariance = np.array([[2.0, 0.6], [0.6, 0.5]])
    posterior = Posterior(("a", "b"), np.array([1.0, -1.0]), covariance, np.zeros((2, 2)))
    draws = posterior.sample(40000, 0)
    np.testing.assert_allclose(draws.mean(axis=0), posterior.mean, atol=0.03)
    np.testing.assert_allclose(np.cov(draws, rowvar=False), covariance, atol=0.05)


def test_arviz_gets_one_variable_a_coefficient():
    model = LinearRegression(private=False, **LINEAR).fit(
        frames(table(LinearRegression)[0])["pandas"], table(LinearRegression)[1]
    )
    data = model.to_arviz(draws=2000)
    assert set(data.posterior.data_vars) == {"intercept", "age", "income", "noise_sd"}
    assert data.posterior["age"].shape == (1, 2000)
    assert float(data.posterior["age"].mean()) == pytest.approx(
        model.coef_[0], abs=5 * model.posterior_.sd[1] / 40
    )


def test_scikit_learn_can_cross_validate_without_privacy():
    x, y = table(PoissonRegression)
    scores = cross_val_score(PoissonRegression(private=False, **BOUNDS), x, y, cv=2)
    assert scores.shape == (2,)


def test_names_of_the_package_are_found_and_others_are_not():
    assert set(dpsep.__all__) <= set(dir(dpsep))
    assert all(hasattr(dpsep, name) for name in dpsep.__all__)
    with pytest.raises(AttributeError, match="no attribute"):
        _ = dpsep.Nothing
