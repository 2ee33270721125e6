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

from dpsep import LinearRegression, plan
from dpsep.families import Gaussian
from dpsep.privacy.mechanism import Schedule
from dpsep.privacy.sampling import FullBatch
from dpsep.registry import regressions
from dpsep.theory.forecast import Forecast, weights_forecast
from dpsep.theory.planner import Planned
from dpsep.theory.weighted_defaults import WeightedPlan, weighted_schedule

MODELS: Any = tuple(entry.name for entry in regressions())
RECORDS, FEATURES, EPSILON = 5000, 5, 2.0


def forecast_of(planned: Planned) -> Forecast:
    assert planned.forecast is not None
    return planned.forecast


def task(records: int, dimension: int, epsilon: float, **more: Any) -> tuple[Schedule, WeightedPlan]:
    return weighted_schedule(records, dimension, epsilon, 1e-5, "zero-out", FullBatch(), scaled=False, **more)


def test_an_intercept_alone_costs_what_its_noise_is() -> None:
    # All records are alike: none weighs less than one, and a score's cap is its cut.
    schedule, chosen = task(RECORDS, 1, EPSILON, more=True)
    found = weights_forecast("linear", chosen, schedule.parts[-1], 1)
    noise = (chosen.cut * chosen.hidden[0]) ** 2 / RECORDS
    hidden = chosen.hidden[1] / RECORDS
    widening = math.sqrt((1.0 + noise) * (1.0 + 3.0 * hidden**2))
    assert found.left == 1.0
    assert found.hidden == pytest.approx(hidden, rel=1e-9)
    assert found.widening == pytest.approx(widening, rel=1e-3)
    assert found.noise_share == pytest.approx(1.0 - widening**-2, rel=1e-2)
    assert found.kl == pytest.approx(math.log(widening), rel=1e-2)


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("levels", [(), (3,)], ids=str)
def test_more_budget_and_more_records_cost_less(model: Any, levels: Any) -> None:
    budgets = [
        forecast_of(plan(model, RECORDS, FEATURES, epsilon=each, levels=levels, curve=False))
        for each in (0.3, 1.0, 3.0, 300.0)
    ]
    tables = [
        forecast_of(plan(model, records, FEATURES, epsilon=1.0, levels=levels, curve=False))
        for records in (1000, 10_000, 1_000_000)
    ]
    for row in (budgets, tables):
        for less, more in pairwise(row):
            assert more.widening <= less.widening
            assert more.excess_risk < less.excess_risk
            assert more.of_prior <= less.of_prior
    assert budgets[-1].widening == pytest.approx(1.0, abs=0.02), "without noise nothing is wider"
    assert budgets[-1].left > 0.93


def test_where_nothing_is_seen_the_prior_is_what_is_left() -> None:
    found = forecast_of(plan("logistic", 500, 20, epsilon=0.05, curve=False))
    assert 0.95 < found.of_prior <= 1.0
    assert found.is_rough


def test_a_rare_level_is_forecast_to_cost_more() -> None:
    plain = forecast_of(plan("logistic", RECORDS, 4, epsilon=0.5, curve=False))
    rare = forecast_of(plan("logistic", RECORDS, 4, epsilon=0.5, levels=(4,), curve=False))
    assert rare.widening > 1.1 * plain.widening


def test_a_learned_noise_precision_costs_more() -> None:
    schedule, chosen = task(RECORDS, 6, 0.5, more=True)
    learned = weights_forecast("linear", chosen, schedule.parts[-1], 6)
    more = chosen._replace(shares=(*chosen.shares[:-1], chosen.shares[-1] / 100))
    assert weights_forecast("linear", more, schedule.parts[-1], 6).excess_risk > 1.05 * learned.excess_risk


@pytest.mark.parametrize("epsilon", [0.5, 4.0])
def test_the_divergence_is_that_of_two_gaussians(epsilon: float) -> None:
    planned = plan("mixture", RECORDS, FEATURES, epsilon=epsilon, components=2, curve=False)
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
    # The gate's noise is next to nothing here; 240 sums of a fiftieth of the rows are averaged.
    assert noise == pytest.approx(49 / 240, rel=0.1)
