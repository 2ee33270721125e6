"""Forecasts: their formulas against other ways to the same numbers, and one against real fits."""

import math
import warnings
from functools import cache
from itertools import pairwise
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.integrate import quad
from scipy.optimize import brentq
from scipy.stats import chi2

from dpsep import LinearRegression, plan
from dpsep.families import Gaussian
from dpsep.privacy.sampling import FullBatch
from dpsep.registry import regressions
from dpsep.theory.forecast import Forecast, clip_remainder
from dpsep.theory.glm_defaults import SPARE, noise_error, weights_schedule
from dpsep.theory.planner import Planned

MODELS: Any = tuple(entry.name for entry in regressions())
RECORDS, FEATURES, EPSILON = 5000, 5, 2.0


def forecast_of(planned: Planned) -> Forecast:
    assert planned.forecast is not None
    return planned.forecast


@pytest.mark.parametrize("model", MODELS)
def test_a_wide_clip_leaves_all_and_a_tighter_one_less(model: Any) -> None:
    assert clip_remainder(model, 12, 1e6, 16) == pytest.approx(1.0, abs=1e-12)
    left = [clip_remainder(model, 12, multiple, 16) for multiple in (10.0, 3.0, 1.5, 1.2, 1.0, 0.5)]
    assert all(more >= less for more, less in pairwise(left))
    assert left[-1] < 0.1 < left[1]


def test_records_that_weigh_alike_lose_all_below_one_and_nothing_above() -> None:
    assert clip_remainder("linear", 1, 1.0, 16) == 1.0
    # From 2, half as much in each step: 1, 1/2, 1/4.
    assert clip_remainder("linear", 1, 0.5, 3) == pytest.approx(0.25, rel=1e-12)


@pytest.mark.parametrize("multiple", [1.5, 2.0, 3.0])
def test_what_a_clip_leaves_solves_its_equation(multiple: float) -> None:
    # Of a linear model with one standard normal column and an intercept, W = (1 + chi^2) / 2.
    def gap(left: float) -> float:
        kept = quad(lambda x: min((1 + x) / 2, multiple * left) * chi2.pdf(x, 1), 0, np.inf, limit=200)[0]
        return kept - left

    exact = brentq(gap, 0.05, 1.0)
    assert isinstance(exact, float)
    assert exact < 0.99
    # The reference table has 4000 records.
    assert clip_remainder("linear", 2, multiple, 400) == pytest.approx(exact, rel=0.04)


@pytest.mark.parametrize("model", [*MODELS, "mixture"])
@pytest.mark.parametrize("epsilon", [0.5, 4.0])
def test_the_divergence_is_that_of_two_gaussians(model: Any, epsilon: float) -> None:
    more: Any = {"components": 2} if model == "mixture" else {}
    planned = plan(model, RECORDS, FEATURES, epsilon=epsilon, **more, curve=False)
    found, dimension = forecast_of(planned), planned.request.dimension
    # The private mean is off by its standard deviation in every direction.
    shift = math.sqrt(found.noise_share / (1 - found.noise_share))
    precision = 1.0 / found.widening**2
    with jax.enable_x64(True):
        q = Gaussian(jnp.zeros(dimension), jnp.eye(dimension))
        p = Gaussian(jnp.full(dimension, shift * precision), precision * jnp.eye(dimension))
        assert found.kl == pytest.approx(float(q.kl(p)), rel=1e-10)
        narrow = Gaussian(jnp.full(dimension, shift), jnp.eye(dimension))
        assert found.kl != pytest.approx(float(q.kl(narrow)), rel=1e-3)


def test_a_learned_noise_precision_costs_a_quarter_of_its_squared_error() -> None:
    planned = plan("linear", 50_000, FEATURES, epsilon=1.0, curve=False)
    found = forecast_of(planned)
    mean_part = found.noise_share / (1 - found.noise_share) * planned.request.dimension / (2 * 50_000)
    schedule, chosen = weights_schedule(
        50_000,
        FEATURES + 1,
        1.0,
        1e-5,
        "zero-out",
        FullBatch(),
        scaled=False,
        learned_noise=True,
        spare=SPARE,
    )
    error = noise_error(chosen, schedule.parts[-1])
    # Expected loss of log density under N(0, 1) of a precision 1 + z, z of this deviation.
    z = error * np.random.default_rng(0).standard_normal(200_000)
    loss = np.mean(0.5 * z - 0.5 * np.log1p(z))
    assert found.excess_risk - mean_part == pytest.approx(loss, rel=0.05)


def test_the_excess_is_what_noise_adds_to_a_quadratic_loss() -> None:
    planned = plan("logistic", RECORDS, FEATURES, epsilon=1.0, curve=False)
    found, dimension = forecast_of(planned), planned.request.dimension
    rng = np.random.default_rng(0)
    root = rng.standard_normal((dimension, dimension))
    precision = RECORDS * (root @ root.T + np.eye(dimension))
    noise = found.noise_share / (1 - found.noise_share)
    off = rng.multivariate_normal(np.zeros(dimension), noise * np.linalg.inv(precision), size=20_000)
    loss = 0.5 * np.einsum("ni,ij,nj->n", off, precision / RECORDS, off)
    error = float(loss.std() / math.sqrt(len(loss)))
    assert found.excess_risk == pytest.approx(float(loss.mean()), abs=4 * error)
    assert found.excess_risk != pytest.approx(2 * float(loss.mean()), abs=4 * error)


def test_a_mixtures_noise_is_that_of_its_averaged_releases() -> None:
    components, features = 4, 3
    planned = plan("mixture", RECORDS, features, epsilon=1.0, components=components, curve=False)
    found, settings = forecast_of(planned), planned.settings
    assert settings is not None
    share = 0.65  # of the mean part in a release, where weights and variances are learned
    deviation = settings.sigma * settings.clip * math.sqrt(features) / math.sqrt(share)
    averaged = settings.steps / (settings.steps + 1) ** 2
    noise = averaged * deviation**2 * components / RECORDS
    assert found.widening == pytest.approx(math.sqrt(1 + noise), rel=1e-9)


@cache
def fits() -> tuple[np.ndarray, list[np.ndarray]]:
    """Variances of the weights without privacy, and of three private fits."""
    rng = np.random.default_rng(3)
    x = np.clip(rng.standard_normal((RECORDS, FEATURES)), -4, 4)
    y = x @ np.linspace(-0.6, 0.6, FEATURES) + rng.standard_normal(RECORDS)
    declared: Any = {"bounds": (-4.0, 4.0), "target_bounds": (-8.0, 8.0)}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # seeded noise is not for release
        free = LinearRegression(private=False, **declared).fit(x, y)
        private = [
            LinearRegression(epsilon=EPSILON, random_state=seed, **declared).fit(x, y) for seed in range(3)
        ]
    return np.diag(free.posterior_.covariance), [np.diag(one.posterior_.covariance) for one in private]


def test_the_widening_of_real_fits_is_as_forecast() -> None:
    free, private = fits()
    measured = float(np.mean([np.sqrt(one / free).mean() for one in private]))
    forecast = forecast_of(plan("linear", RECORDS, FEATURES, epsilon=EPSILON, curve=False)).widening
    assert measured == pytest.approx(forecast, rel=0.25)
    # The forecasts of other budgets do not fit.
    stricter = forecast_of(plan("linear", RECORDS, FEATURES, epsilon=EPSILON / 8, curve=False)).widening
    assert measured != pytest.approx(stricter, rel=0.25)


def test_rows_that_are_not_drawn_count_in_the_forecast() -> None:
    planned = plan("linear", 10**7, FEATURES, epsilon=8.0, sampling=0.02, curve=False)
    found = forecast_of(planned)
    noise = found.noise_share / (1 - found.noise_share)
    # The gate's noise is next to nothing here; nine sums of a fiftieth of the rows are averaged.
    assert noise == pytest.approx(49 / 9, rel=0.1)
