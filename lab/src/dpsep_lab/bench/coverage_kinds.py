"""The models whose intervals are checked against known truths: how their tables are made and fitted.

`KINDS` is the register. A new model is one more entry: a function that draws a table whose coefficients are
known, and one that makes the estimator with everything public declared. Nothing else needs to change.

Per scaled unit (the reach of the bounds) a true coefficient has standard deviation one, or less in a linear
regression, whose target is scaled too; the intercept has one half. Neither exceeds the default prior's.

**Privacy.** Made data only.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dpsep.estimators import (
    GammaRegression,
    LinearRegression,
    LogisticRegression,
    MixedClassifier,
    MixedRegressor,
    PoissonRegression,
    ProbitRegression,
)

REACH = 3.0
"""Features are clamped to plus and minus this many standard deviations, which are their declared bounds."""
TARGET = 5.0
"""Declared bound of the target of a linear regression."""
NOISE = 0.5
"""Noise standard deviation of a linear regression."""

GROUPS = 10
"""Groups of a mixed model with records as units."""
ROWS = 5
"""Rows of each group where groups are units."""
SPREAD = 0.5
"""Standard deviation of a mixed model's random intercepts."""

Array = NDArray[np.float64]


class Made(NamedTuple):
    """A made table.

    Attributes
    ----------
    records
        What `fit` takes, by name of the argument.
    truth
        The true coefficients, in the order of the posterior's.
    declared
        What is public of this table, as parameters of the estimator.
    """

    records: dict[str, Any]
    truth: Array
    declared: dict[str, Any] | None = None


class Moments(NamedTuple):
    """What a posterior says of the coefficients: means, variances, and the variance that is DP noise."""

    mean: Array
    variance: Array
    noise_variance: Array


def coefficients(model: Any) -> Moments:
    """Moments of the coefficients of a fitted regression that is noise-aware."""
    found = model.posterior_
    return Moments(found.mean, np.diagonal(found.covariance), np.diagonal(found.noise_covariance))


class Kind(NamedTuple):
    """A model to check.

    Attributes
    ----------
    simulate
        Draws a table of this many records and features.
    estimator
        Makes an estimator; called with ``epsilon``, ``delta`` and ``random_state``, and with what the caller
        of the benchmark adds.
    moments
        Reads the coefficients off the fitted estimator.
    """

    simulate: Callable[[int, int, np.random.Generator], Made]
    estimator: Callable[..., Any]
    moments: Callable[[Any], Moments] = coefficients


def _predictor(records: int, features: int, rng: np.random.Generator) -> tuple[Array, Array, Array]:
    """Features, the linear predictor of each row, and the coefficients with the intercept first."""
    x = np.clip(rng.standard_normal((records, features)), -REACH, REACH)
    truth = np.concatenate([0.5 * rng.standard_normal(1), rng.standard_normal(features) / REACH])
    return x, truth[0] + x @ truth[1:], truth


def _linear(records: int, features: int, rng: np.random.Generator) -> Made:
    x, u, truth = _predictor(records, features, rng)
    return Made({"X": x, "y": u + NOISE * rng.standard_normal(records)}, truth)


def _logistic(records: int, features: int, rng: np.random.Generator) -> Made:
    x, u, truth = _predictor(records, features, rng)
    return Made({"X": x, "y": np.where(rng.logistic(size=records) < u, 1.0, -1.0)}, truth)


def _probit(records: int, features: int, rng: np.random.Generator) -> Made:
    x, u, truth = _predictor(records, features, rng)
    return Made({"X": x, "y": np.where(rng.standard_normal(records) < u, 1.0, -1.0)}, truth)


def _poisson(records: int, features: int, rng: np.random.Generator) -> Made:
    x, u, truth = _predictor(records, features, rng)
    return Made({"X": x, "y": rng.poisson(np.exp(u)).astype(np.float64)}, truth)


def _gamma(records: int, features: int, rng: np.random.Generator) -> Made:
    x, u, truth = _predictor(records, features, rng)
    return Made({"X": x, "y": rng.exponential(np.exp(u))}, truth)


def _mixed(groups: int | None, logistic: bool = False) -> Callable[..., Made]:
    """Tables with random intercepts, of this many groups, or of as many as `ROWS` rows each make."""

    def simulate(records: int, features: int, rng: np.random.Generator) -> Made:
        x, u, truth = _predictor(records, features, rng)
        count = max(records // ROWS, 1) if groups is None else groups
        member = np.arange(records) % count
        u = u + SPREAD * rng.standard_normal(count)[member]
        if logistic:
            y = np.where(rng.logistic(size=records) < u, 1.0, -1.0)
        else:
            y = u + NOISE * rng.standard_normal(records)
        return Made({"X": x, "y": y, "groups": member}, truth, {"groups": count})

    return simulate


def _declared(maker: Callable[..., Any], **declared: Any) -> Callable[..., Any]:
    """Make an estimator with public declarations, which the caller may replace."""
    declared["bounds"] = (-REACH, REACH)
    return lambda **parameters: maker(**(declared | parameters))


KINDS: dict[str, Kind] = {
    "linear": Kind(_linear, _declared(LinearRegression, target_bounds=(-TARGET, TARGET))),
    "logistic": Kind(_logistic, _declared(LogisticRegression, classes=[-1.0, 1.0])),
    "probit": Kind(_probit, _declared(ProbitRegression, classes=[-1.0, 1.0])),
    "poisson": Kind(_poisson, _declared(PoissonRegression)),
    "gamma": Kind(_gamma, _declared(GammaRegression, target_bounds=(1e-2, 1e2))),
    "mixed": Kind(_mixed(GROUPS), _declared(MixedRegressor, target_bounds=(-TARGET, TARGET))),
    "mixed logistic": Kind(_mixed(GROUPS, logistic=True), _declared(MixedClassifier, classes=[-1.0, 1.0])),
    "mixed, by group": Kind(
        _mixed(None),
        _declared(MixedRegressor, unit="group", rows_per_group=ROWS, target_bounds=(-TARGET, TARGET)),
    ),
}
"""The models, by name; the noise of a linear regression is learned."""
