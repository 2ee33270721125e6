"""Predictions of mixed models: for groups that were declared, for new ones, and as draws.

**Privacy.** Post-processing of what a fit released. Random effects of declared groups are known with records
as units only; with groups as units every row is predicted as one of a new group.
"""

from typing import Any, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray
from scipy.stats import norm
from sklearn.utils.validation import check_is_fitted

from dpsep.estimators.input_checks import Structure, places
from dpsep.estimators.posterior import Posterior
from dpsep.estimators.predictive import LinearDraws, LinearSample
from dpsep.estimators.summary import Summary, interval_row
from dpsep.models.mixed import Effects

Array = NDArray[np.float64]
Groups = Any
"""One label a row."""


class MixedSample(NamedTuple):
    """Drawn parameters: fixed effects, noise precision (or None), standard deviations; a seed for groups."""

    weights: Array
    precision: Array | None
    deviations: Array
    seed: int


class MixedPredictions(LinearDraws):
    """What a fitted mixed model answers."""

    slopes: Any
    random_intercept: bool
    correlated: bool
    unit: Any
    noise_aware: bool
    posterior_: Posterior
    components_: Posterior
    groups_: NDArray[Any]
    weights_mean_: Array
    weights_covariance_: Array
    random_covariance_: Array
    column_maps_: Array
    outcome_centre_: float
    n_features_in_: int

    def _log_predictive(self, mean: Array, variance: Array, y: Array) -> Array:
        raise NotImplementedError

    def log_predictive_density(self, X: Any, y: Any, groups: Groups = None) -> Array:
        """Log predictive density (or probability) of each row's target; as in `predict` for groups."""
        return self._log_predictive(*self._predictor(X, groups), self._target(y))

    def summary(self, level: float = 0.9) -> Summary:
        """Return one row a fixed effect and one a standard deviation, with intervals and their DP noise."""
        check_is_fitted(self)
        fixed = self.posterior_.summary(level)
        own = self.components_
        rows = [
            {"name": name} | _lognormal_row(mean, variance, noise, level)
            for name, mean, variance, noise in zip(
                own.names,
                own.mean,
                np.diagonal(own.covariance),
                np.diagonal(own.noise_covariance) * self.noise_aware,
                strict=True,
            )
        ]
        return Summary([*fixed, *rows], level=level, noise=fixed.noise, note=fixed.note)

    def _fitted_effects(self) -> Effects:
        shape = Structure(0, self.n_features_in_, _known_names(self))
        return Effects(
            self.n_features_in_,
            bool(self.fit_intercept),
            slope_columns(self.slopes, shape),
            bool(self.random_intercept),
            bool(self.correlated),
        )

    def _scaled(self, X: Any) -> Array:
        matrix = self._new_rows(X)
        low, high, centre, scale = self.column_maps_
        return (np.clip(matrix, low, high) - centre) / scale

    def _predictor(self, X: Any, groups: Groups = None) -> tuple[Array, Array]:
        """Mean and variance of each row's predictor: of a known group by its effects, else of a new one."""
        scaled, effects = self._scaled(X), self._fitted_effects()
        random = np.asarray(effects.random_design(scaled))  # pyright: ignore[reportArgumentType]
        rows = np.zeros((len(scaled), len(self.weights_mean_)))
        rows[:, : effects.fixed] = np.asarray(effects.design(scaled))  # pyright: ignore[reportArgumentType]
        codes = np.full(len(scaled), np.nan)
        if groups is not None and self.unit == "record":
            codes = places(groups, self.groups_)
        if len(codes) != len(scaled):
            raise ValueError(
                f"groups has {len(codes)} labels; it must hold one for each of {len(scaled)} rows."
            )
        for place in range(effects.random):
            known = np.flatnonzero(np.isfinite(codes))
            rows[known, effects.fixed + codes[known].astype(int) * effects.random + place] = random[
                known, place
            ]
        values, vectors = np.linalg.eigh(self.weights_covariance_)
        # Row sums of (A F)^2 with F the covariance's factor: never negative.
        variance = np.sum((rows @ (vectors * np.sqrt(np.maximum(values, 0.0)))) ** 2, axis=1)
        new = np.einsum("ni,ij,nj->n", random, self.random_covariance_, random)
        mean = self.outcome_centre_ + rows @ self.weights_mean_
        return mean, variance + np.where(np.isnan(codes), new, 0.0)

    def _draw_parameters(self, draws: int, generator: np.random.Generator) -> Any:
        sample = cast(LinearSample, super()._draw_parameters(draws, generator))
        effects = self._fitted_effects()
        logs = self.components_.sample(draws, generator)[:, : effects.random]
        return MixedSample(sample.weights, sample.precision, np.exp(logs), int(generator.integers(2**62)))

    def _named(self, parameters: Any) -> dict[str, Array]:
        named = super()._named(LinearSample(parameters.weights, parameters.precision))
        return named | dict(zip(self.components_.names, parameters.deviations.T, strict=False))

    def _predictors(self, parameters: Any, X: Any) -> Array:
        """Predictors of rows of new groups, each row of its own."""
        u = super()._predictors(LinearSample(parameters.weights, parameters.precision), X)
        random = np.asarray(self._fitted_effects().random_design(self._scaled(X)))  # pyright: ignore[reportArgumentType]
        sd = np.sqrt(np.diagonal(self.random_covariance_))
        root = np.linalg.cholesky(self.random_covariance_ / np.outer(sd, sd))
        generator = np.random.default_rng(parameters.seed)
        draws = generator.standard_normal((*u.shape, len(sd))) @ root.T
        return u + np.einsum("dnr,dr,nr->dn", draws, parameters.deviations, random)


def slope_columns(slopes: Any, shape: Structure) -> tuple[int, ...]:
    """Return the places of the columns whose slopes vary, from names or places."""
    found = []
    for one in slopes:
        if isinstance(one, str) and shape.names is not None and one in shape.names:
            found.append(shape.names.index(one))
        elif isinstance(one, int | np.integer) and 0 <= one < shape.features:
            found.append(int(one))
        else:
            raise ValueError(
                f"slopes names {one!r}, which is no column of X; give names or places of columns."
            )
    if len(set(found)) < len(found):
        raise ValueError("slopes names a column twice; name each once.")
    return tuple(found)


def _known_names(estimator: Any) -> tuple[str, ...] | None:
    names = getattr(estimator, "feature_names_in_", None)
    return None if names is None else tuple(names)


def _lognormal_row(mean: float, variance: float, noise: float, level: float) -> dict[str, float]:
    """Numbers of a marginal whose logarithm is Gaussian."""
    row = interval_row(mean, variance, noise, level)
    reach = float(norm.ppf(0.5 + level / 2)) * np.sqrt(max(variance - noise, 0.0))
    centre = float(np.exp(mean + variance / 2))
    return row | {
        "mean": centre,
        "sd": centre * float(np.sqrt(np.expm1(variance))),
        "low": float(np.exp(row["low"])),
        "high": float(np.exp(row["high"])),
        "width_without_noise": float(np.exp(mean + reach) - np.exp(mean - reach)),
    }
