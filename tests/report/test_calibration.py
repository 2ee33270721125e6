"""Calibration of models that are right, and of models that are known to be wrong."""

import warnings
from typing import Any

import numpy as np
import pytest
from scipy.stats import kstest, norm

from dpsep import GaussianMixture, LinearRegression, LogisticRegression, PoissonRegression, PrivacyLeakWarning
from dpsep.privacy.leaks import PrivacyLeakError
from dpsep.report.calibration import Calibration, calibration

ROWS = 4000


def fitted(maker: Any, seed: int = 0, **parameters: Any) -> tuple[Any, np.ndarray, np.ndarray]:
    """Fit half of a made table without privacy, and return the model with the other half."""
    rng = np.random.default_rng(seed)
    x = rng.uniform(-1, 1, (ROWS, 2))
    u = 0.3 + x @ np.array([1.0, -0.8])
    if maker is LinearRegression:
        y = u + 0.4 * rng.standard_normal(ROWS)
    elif maker is PoissonRegression:
        y = rng.poisson(np.exp(u)).astype(float)
    else:
        y = np.where(rng.logistic(size=ROWS) < u, "yes", "no")
        parameters = {"classes": ["no", "yes"]} | parameters
    model = maker(**({"private": False, "bounds": (-1, 1)} | parameters))
    half = ROWS // 2
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PrivacyLeakWarning)  # seeded noise is meant
        return model.fit(x[:half], y[:half]), x[half:], y[half:]


@pytest.mark.parametrize("maker", [LinearRegression, LogisticRegression, PoissonRegression])
def test_a_model_that_is_right_has_uniform_pit_values_and_covers_at_its_levels(maker):
    model, x, y = fitted(maker)
    found = calibration(model, x, y, levels=(0.5, 0.9))
    assert found.rows == len(y)
    assert kstest(found.pit, "uniform").pvalue > 0.01
    assert (np.abs(found.coverage - found.levels) < 4 * found.standard_error()).all()
    assert (found.reliability is None) == (maker is not LogisticRegression)
    assert "0.90" in repr(found)


def test_pit_values_of_a_normal_target_are_its_distribution_function():
    model, x, y = fitted(LinearRegression, noise_precision=6.25)
    mean, deviation = model.predict(x, return_std=True)
    found = calibration(model, x, y, 0.8)
    np.testing.assert_allclose(found.pit, norm.cdf(y, mean, deviation), rtol=1e-9)
    inside = np.abs(y - mean) <= norm.ppf(0.9) * deviation
    assert found.coverage[0] == inside.mean()


def test_predictions_that_are_too_narrow_cover_too_little_and_too_wide_ones_too_much():
    # The true noise has precision 6.25.
    narrow, x, y = fitted(LinearRegression, noise_precision=25.0)
    wide, _, _ = fitted(LinearRegression, noise_precision=1.5)
    assert calibration(narrow, x, y, 0.9).coverage[0] < 0.7
    assert calibration(wide, x, y, 0.9).coverage[0] > 0.98


def test_reliability_compares_predicted_and_observed_shares_bin_by_bin():
    model, x, y = fitted(LogisticRegression)
    probability, second = model.predict_proba(x)[:, 1], y == "yes"
    bins = calibration(model, x, y, bins=4).reliability
    assert bins is not None
    assert bins.rows.sum() == len(y)
    third = (probability >= 0.5) & (probability < 0.75)
    assert bins.predicted[2] == pytest.approx(probability[third].mean())
    assert bins.observed[2] == pytest.approx(second[third].mean())
    errors = np.abs(bins.predicted - bins.observed)
    assert bins.expected_error == pytest.approx((errors * bins.rows).sum() / len(y))
    assert bins.expected_error < 0.05
    # Labels the other way round: what was predicted with probability p came with 1 - p.
    turned = calibration(model, x, np.where(y == "yes", "no", "yes"), bins=4).reliability
    assert turned is not None
    assert turned.expected_error > 0.2


def test_private_estimators_warn_unless_the_rows_are_said_to_be_public():
    private: dict[str, Any] = {"private": True, "target_bounds": (-4, 4), "delta": 1e-5, "random_state": 0}
    model, x, y = fitted(LinearRegression, **private)
    with pytest.warns(PrivacyLeakWarning, match="public=True"):
        calibration(model, x, y)
    calibration(model, x, y, public=True)
    model.strict = True
    with pytest.raises(PrivacyLeakError, match="outside the guarantee"):
        calibration(model, x, y)


def test_the_same_seed_gives_the_same_randomised_values():
    model, x, y = fitted(PoissonRegression)
    one, two = calibration(model, x, y), calibration(model, x, y)
    np.testing.assert_array_equal(one.pit, two.pit)
    assert (calibration(model, x, y, random_state=1).pit != one.pit).any()


def test_wrong_calls_are_refused():
    model, x, y = fitted(LinearRegression)
    with pytest.raises(ValueError, match="between 0 and 1"):
        calibration(model, x, y, (0.5, 1.0))
    with pytest.raises(ValueError, match="bins"):
        calibration(model, x, y, bins=0)
    with pytest.raises(ValueError, match="missing or infinite"):
        calibration(model, x, np.full(len(x), np.nan))
    with pytest.raises(ValueError, match="at least one row"):
        calibration(model, x[:0], y[:0])
    with pytest.raises(TypeError, match="no target"):
        calibration(GaussianMixture(2), x, y)


def test_the_standard_error_is_the_binomial_one():
    found = Calibration(np.array([0.9]), np.array([0.8]), np.full(400, 0.5), None)
    assert found.standard_error()[0] == pytest.approx(0.015)
