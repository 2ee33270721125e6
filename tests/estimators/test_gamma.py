"""Gamma regression: its likelihood against references in multiple precision, its fits against a GLM."""

import warnings
from typing import Any

import jax
import mpmath
import numpy as np
import pytest
import scipy.stats
import statsmodels.api as sm
from scipy.integrate import trapezoid

from dpsep import GammaRegression
from dpsep.estimators.gamma import GammaLikelihood

from .made import seeded

ROWS, TRUTH = 20_000, np.array([0.7, 0.5, -0.5])
BOUNDS: dict[str, Any] = {"bounds": (-1.0, 1.0)}


def table(shape: float, unit: float = 1.0, rows: int = ROWS) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(4)
    X = rng.uniform(-1, 1, (rows, 2))
    mean = np.exp(TRUTH[0] + X @ TRUTH[1:])
    return X, unit * rng.gamma(shape, mean / shape)


def density(u: Any, y: Any, shape: float) -> Any:
    """Log density with mpmath, written down from scipy's parametrisation."""
    a, y = mpmath.mpf(shape), mpmath.mpf(y)
    rate = a * mpmath.exp(-u)
    return a * mpmath.log(rate) - mpmath.loggamma(a) + (a - 1) * mpmath.log(y) - rate * y


@pytest.mark.parametrize("shape", [0.3, 1.0, 7.5])
@pytest.mark.parametrize(
    ("mean", "variance", "y"), [(0.0, 1.0, 2.0), (1.5, 4.0, 0.01), (-3.0, 0.25, 5.0), (6.0, 9.0, 300.0)]
)
@pytest.mark.parametrize("rule", ["robust", "fast"])
def test_tilted_moments_are_those_of_quadrature_in_multiple_precision(
    rule: Any, mean: float, variance: float, y: float, shape: float
) -> None:
    if rule == "fast" and variance > 1:
        pytest.skip("the fast rule is for variances up to about one")
    with jax.enable_x64(True):
        found = [float(part) for part in GammaLikelihood(rule, shape).tilted(mean, variance, y)]
    with mpmath.workdps(40):

        def moment(power: int) -> Any:
            def tilted(u: Any) -> Any:
                square = (u - mean) ** 2 / variance
                return (u - mean) ** power * mpmath.exp(density(u, y, shape) - square / 2)

            deviation = mpmath.sqrt(variance)
            ends = [mean + k * deviation for k in range(-16, 17)]
            return mpmath.quad(tilted, ends) / mpmath.sqrt(2 * mpmath.pi * variance)

        z, first, second = (moment(power) for power in range(3))
        gradient = first / z / variance
        shrinkage = (second / z - (first / z) ** 2) / variance
        exact = [mpmath.log(z), gradient, (1 - shrinkage) / variance, shrinkage]
        assert found == pytest.approx([float(part) for part in exact], rel=1e-7, abs=1e-9)


def test_densities_draws_and_moments_agree_with_scipy() -> None:
    model, u, y = GammaLikelihood(shape=2.5), 0.7, np.array([0.1, 1.0, 4.0, 9.0])
    law: Any = scipy.stats.gamma(2.5, scale=np.exp(u) / 2.5)
    with jax.enable_x64(True):
        assert np.asarray(model.log_likelihood(u, y)) == pytest.approx(law.logpdf(y), rel=1e-12)
        assert np.asarray(model.cdf(u, y)) == pytest.approx(law.cdf(y), rel=1e-10)
        drawn = np.asarray(model.sample(jax.random.key(0), np.full(20_000, u)))
        mean, variance = (float(part) for part in model.predictive(u, 0.3))
        log_y = np.linspace(-12.0, 7.0, 401)
        density = np.exp(np.asarray(model.log_predictive(u, 0.3, np.exp(log_y))))
    assert scipy.stats.kstest(drawn, law.cdf).pvalue > 1e-3
    # Smooth, and nothing at both ends: the sum over equal steps of log y is the integral.
    total, first, second = (trapezoid(density * np.exp((k + 1) * log_y), log_y) for k in range(3))
    assert total == pytest.approx(1.0, rel=1e-7)
    assert first == pytest.approx(mean, rel=1e-7)
    assert second - first**2 == pytest.approx(variance, rel=1e-7)
    assert np.asarray(model.valid(np.array([1.0, 0.0, -1.0, np.nan, np.inf]))).tolist() == [True] + 4 * [
        False
    ]


@pytest.mark.parametrize("shape", [0.0, -1.0, np.inf, np.nan])
def test_a_shape_that_is_none_is_refused_before_the_charge(shape: float, tmp_path: Any) -> None:
    from dpsep import Ledger

    ledger = Ledger.create(tmp_path / "l.db", epsilon=1.0, delta=1e-3)
    with pytest.raises(ValueError, match=r"shape is .*; it must be a positive finite number"):
        GammaRegression(shape=shape, ledger=ledger, **BOUNDS).fit(*table(1.0, rows=50))
    assert ledger.spent().epsilon == 0


@pytest.mark.parametrize("shape", [0.5, 1.0, 6.0])
@pytest.mark.parametrize("unit", [1e-4, 1.0, 1e6])
def test_without_privacy_it_is_the_generalised_linear_model(shape: float, unit: float) -> None:
    X, y = table(shape, unit)
    model = GammaRegression(private=False, shape=shape).fit(X, y)
    family = sm.families.Gamma(sm.families.links.Log())
    glm = sm.GLM(y, sm.add_constant(X), family=family).fit(scale=1 / shape)
    assert model.posterior_.mean == pytest.approx(glm.params, abs=0.1 * glm.bse.max())
    assert np.sqrt(np.diag(model.posterior_.covariance)) == pytest.approx(glm.bse, rel=0.05)


@pytest.mark.parametrize("method", ["ep", "adf"])
def test_other_methods_agree(method: Any) -> None:
    X, y = table(2.0, 1e3, rows=400)
    sep = GammaRegression(private=False, shape=2.0).fit(X, y)
    other = GammaRegression(private=False, shape=2.0, method=method).fit(X, y)
    assert np.abs(other.posterior_.mean - sep.posterior_.mean).max() < 0.1


@pytest.mark.parametrize(
    "more",
    [{}, {"target_bounds": (1.0, 1e5)}, {"target_bounds": (500.0, 3e5), "sampling": 0.5}],
    ids=["private scaling", "bounds", "other bounds, sampled"],
)
def test_a_private_fit_is_near_the_truth_and_says_how_near(more: dict[str, Any]) -> None:
    X, y = table(2.0, 1e3)
    model = seeded(GammaRegression, table=(X, y), epsilon=1.0, shape=2.0, **BOUNDS | more)
    sd = np.sqrt(np.diag(model.posterior_.covariance))
    truth = TRUTH + np.array([np.log(1e3), 0, 0])
    assert (np.abs(model.posterior_.mean - truth) < 4 * sd).all()
    assert sd.max() < 0.05
    assert model.privacy_.epsilon <= 1.0


def test_another_unit_moves_the_intercept_and_nothing_else() -> None:
    bounds = np.array([0.1, 40.0])
    found = [
        seeded(GammaRegression, table=table(1.0, unit, 2000), target_bounds=tuple(unit * bounds), **BOUNDS)
        for unit in (1.0, 2.0**12)
    ]
    first, second = (model.posterior_ for model in found)
    moved = second.mean - first.mean
    assert moved == pytest.approx([np.log(2.0**12), 0, 0], abs=1e-9)
    assert second.covariance == pytest.approx(first.covariance, rel=1e-9)


def test_predictions_are_of_the_target_and_intervals_hold_it() -> None:
    X, y = table(2.0, 1e3)
    model = GammaRegression(private=False, shape=2.0).fit(X, y)
    mean, sd = model.predict(X, return_std=True)
    expected = 1e3 * np.exp(TRUTH[0] + X @ TRUTH[1:])
    assert mean == pytest.approx(expected, rel=0.05)
    assert sd == pytest.approx(expected / np.sqrt(2), rel=0.06)
    low, high = model.target.interval(mean, sd, 0.9)
    assert np.mean((low <= y) & (y <= high)) == pytest.approx(0.9, abs=0.01)
    below, upto = model.predictive_cdf(X, y)
    assert (below == upto).all()
    assert scipy.stats.kstest(below, "uniform").pvalue > 1e-3
    drawn = model.posterior_predictive(X[:50], draws=4000, random_state=0)
    assert (drawn > 0).all()
    assert drawn.mean(axis=0) == pytest.approx(mean[:50], rel=0.08)
    assert model.posterior_expected(X[:50], random_state=0).mean(axis=0) == pytest.approx(mean[:50], rel=0.02)


def test_targets_that_are_not_positive_are_errors_without_privacy_and_nothing_with_it() -> None:
    X, y = table(1.0, rows=400)
    bad = y.copy()
    bad[7] = 0.0
    with pytest.raises(ValueError, match="values that are not positive"):
        GammaRegression(private=False).fit(X, bad)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.simplefilter("ignore", category=UserWarning)
        GammaRegression(target_bounds=(0.1, 9), **BOUNDS).fit(X, bad)
    with pytest.raises(ValueError, match="bounds of the target must be positive"):
        GammaRegression(target_bounds=(0.0, 9), **BOUNDS).fit(X, y)


def test_without_an_intercept_there_is_no_unit() -> None:
    X, y = table(1.0, rows=2000)
    y = y / np.exp(TRUTH[0])
    model = GammaRegression(private=False, fit_intercept=False).fit(X, y)
    assert model.coef_ == pytest.approx(TRUTH[1:], abs=0.2)
    bounded = GammaRegression(private=False, fit_intercept=False, target_bounds=(5.0, 500.0)).fit(X, y)
    assert bounded.coef_ == pytest.approx(model.coef_, abs=1e-9)
