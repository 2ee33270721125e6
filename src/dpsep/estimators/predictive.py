"""The posterior as draws: of new targets, of their expectation, and as ArviZ inference data.

Every estimator with a target inherits `PosteriorDraws` and says how its parameters are drawn and what they
make of a row. Draws include the noise of privacy where the posterior does (`noise_aware`, the default).

**Privacy.** Draws of the parameters, and of targets for rows that are public, are post-processing of what a
fit released: they cost nothing. Rows X and targets y that are handed in are the caller's own; what comes back
is computed from them without noise. If they are private records, it is outside the guarantee of the fit.
"""

from typing import Any, NamedTuple, cast

import jax
import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr
from sklearn.utils.validation import check_is_fitted

from dpsep.estimators.inference_data import inference_data
from dpsep.estimators.large import coded
from dpsep.estimators.outcomes import LARGEST_LOG_COUNT, Normal, normal_below
from dpsep.estimators.private import PrivateEstimator
from dpsep.estimators.summary import Summary
from dpsep.estimators.targets import Real

Array = NDArray[np.float64]
Seed = int | np.random.Generator | None


class PosteriorDraws(PrivateEstimator):
    """Base of the estimators with a target: what a statistician asks a posterior for."""

    posterior_: Any
    classes_: NDArray[Any]  # of classifiers only

    @property
    def target(self) -> Any:
        """What kind the targets are (`dpsep.estimators.targets`)."""
        return Real()

    def summary(self, level: float = 0.9) -> Summary:
        """Return a table of the posterior: means, sds, intervals, and how much of them is noise of privacy.

        Parameters
        ----------
        level
            Of the central intervals.
        """
        check_is_fitted(self)
        return self.posterior_.summary(level)

    def posterior_predictive(self, X: Any, draws: int = 1000, random_state: Seed = None) -> NDArray[Any]:
        """Draw new targets for each row, shape (draws, rows): numbers, counts or labels.

        Parameters
        ----------
        X
            Rows.
        draws
            Number of draws; each has its own parameters from the posterior.
        random_state
            A seed or a generator. It seeds these draws only: a seed here undoes no privacy.
        """
        generator = np.random.default_rng(random_state)
        parameters, u = self._drawn(X, draws, generator)
        return self._uncoded(self._sample(parameters, u, generator))

    def posterior_expected(self, X: Any, draws: int = 1000, random_state: Seed = None) -> Array:
        """Draw the expected target of each row, shape (draws, rows).

        Of labels this is the probability of the second class, of counts their rate. It varies less than
        `posterior_predictive`: by what is not known of the parameters, without the spread of single targets.

        Parameters
        ----------
        X, draws, random_state
            As in `posterior_predictive`.
        """
        parameters, u = self._drawn(X, draws, np.random.default_rng(random_state))
        if hasattr(self, "classes_"):
            with jax.enable_x64(True):
                return np.exp(np.asarray(self._law(parameters).log_likelihood(u, np.ones(u.shape[1]))))
        return self.target.expected(u)

    def predictive_cdf(self, X: Any, y: Any) -> tuple[Array, Array]:
        """Probability of a new target below y, and of one up to y, for each row; labels in their order.

        The two differ where targets are counts or labels. Calibration checks are made of them
        (`dpsep.report.calibration`).

        Parameters
        ----------
        X
            Rows.
        y
            One target a row, in the declared classes or counts where there are such.
        """
        mean, variance = self._predictor(X)
        target = coded(y, self._target)
        if len(target) != len(mean):
            raise ValueError(f"X has {len(mean)} rows and y has {len(target)}; give one target a row.")
        if hasattr(self, "classes_"):
            if np.isnan(target).any():
                raise ValueError(f"y holds labels other than {list(self.classes_)}; leave those rows out.")
            low = cast(Any, self).predict_proba(X)[:, 0]
            return np.where(target > 0, low, 0.0), np.where(target > 0, 1.0, low)
        return self._below(mean, variance, target)

    def to_arviz(self, X: Any = None, y: Any = None, *, draws: int = 1000, random_state: Seed = 0) -> Any:
        """Return draws as ArviZ inference data (extra ``truth``).

        The group ``posterior`` is always there. With rows X there is ``posterior_predictive`` too, and with
        their targets y ``log_likelihood`` and ``observed_data``, so that ``arviz.loo`` and its predictive
        checks work. The target is called ``y``; labels are coded by their place in `classes_`.

        X and y are the caller's own: they and their log-likelihoods stand in the result as they are. Under
        privacy give rows that are public, and keep in mind that leave-one-out weights take the draws for
        those of the exact posterior, which a private one is only up to its noise.

        Parameters
        ----------
        X, y
            Rows and their targets; both may be left out.
        draws, random_state
            As in `posterior_predictive`.
        """
        check_is_fitted(self)
        if X is None and y is not None:
            raise ValueError("y is given without its rows; give X too, or neither.")
        generator = np.random.default_rng(random_state)
        parameters = self._draw_parameters(_count(draws), generator)
        groups = {"posterior": {name: part[None] for name, part in self._named(parameters).items()}}
        if X is not None:
            u = self._predictors(parameters, X)
            sample = self._coded(self._sample(parameters, u, generator))
            groups["posterior_predictive"] = {"y": sample[None]}
            if y is not None:
                target = coded(y, self._target)
                if target.shape != u.shape[1:]:
                    raise ValueError(
                        f"X has {u.shape[1]} rows and y has {len(target)}; give one target a row."
                    )
                with jax.enable_x64(True):
                    density = np.asarray(self._law(parameters).log_likelihood(u, target))
                groups["log_likelihood"] = {"y": density[None]}
                groups["observed_data"] = {"y": self._coded(target)}
        return inference_data(groups, {"y": ["row"]})

    # What a kind of estimator fills in.

    def _chance(self, u: Array) -> Array:
        """Of a classifier: the probability of the second label at a predictor."""
        return ndtr(u)

    def _draw_parameters(self, draws: int, generator: np.random.Generator) -> Any:
        """Draw parameters from the posterior."""
        raise NotImplementedError

    def _named(self, parameters: Any) -> dict[str, Array]:
        """Return drawn parameters by name, each (draws, ...)."""
        raise NotImplementedError

    def _predictors(self, parameters: Any, X: Any) -> Array:
        """Return the predictor of each row under each draw, (draws, rows), in the units of the target."""
        raise NotImplementedError

    def _law(self, parameters: Any) -> Any:
        """Return the law of a target given its predictor: `sample` and `log_likelihood`."""
        raise NotImplementedError

    def _normal_below(self, mean: Array, variance: Array, y: Array) -> Array:
        """Probability of a normal target up to y, where the predictor has these moments."""
        raise NotImplementedError

    def _predictor(self, X: Any) -> tuple[Array, Array]:
        raise NotImplementedError

    def _target(self, y: Any) -> Array:
        raise NotImplementedError

    # Shared steps.

    def _below(self, mean: Array, variance: Array, y: Array) -> tuple[Array, Array]:
        """Probability of a target below y and of one up to y, where the predictor has these moments."""
        found = self._normal_below(mean, variance, y)
        return found, found

    def _drawn(self, X: Any, draws: int, generator: np.random.Generator) -> tuple[Any, Array]:
        check_is_fitted(self)
        parameters = self._draw_parameters(_count(draws), generator)
        return parameters, self._predictors(parameters, X)

    def _sample(self, parameters: Any, u: Array, generator: np.random.Generator) -> Array:
        with jax.enable_x64(True):
            key = jax.random.key(int(generator.integers(2**62)))
            return np.asarray(self._law(parameters).sample(key, u))

    def _coded(self, target: Array) -> NDArray[Any]:
        """Labels of -1 and +1 as places in `classes_`; other targets as they are."""
        return (target > 0).astype(np.int64) if hasattr(self, "classes_") else target

    def _uncoded(self, target: Array) -> NDArray[Any]:
        return self.classes_[self._coded(target)] if hasattr(self, "classes_") else target


class LinearSample(NamedTuple):
    """Drawn parameters of a regression: weights (draws, weights), noise precision (draws, 1) or None."""

    weights: Array
    precision: Array | None


class LinearDraws(PosteriorDraws):
    """Draws of the estimators whose predictor is linear in the features."""

    fit_intercept: bool
    feature_bounds_: Array

    def _outcomes(self, *, narrow: bool) -> Any:
        """Return the law of new targets, as it was learned."""
        raise NotImplementedError

    def _design(self, X: Any) -> Array:
        """Rows as the weights meet them: clamped, with a column of ones where there is an intercept."""
        matrix = self._new_rows(X)
        # The weights belong to clamped cells: a cell far outside what was seen says no more than the bound.
        matrix = np.clip(matrix, *self.feature_bounds_)
        if self.fit_intercept:
            matrix = np.concatenate([np.ones((len(matrix), 1)), matrix], axis=1)
        return matrix

    def _draw_parameters(self, draws: int, generator: np.random.Generator) -> LinearSample:
        found = self.posterior_
        weights = found.sample(draws, generator)
        known = getattr(self, "noise_precision", None)
        if known is not None:
            return LinearSample(weights, np.full((draws, 1), float(known)))
        if found.noise_shape is None:
            return LinearSample(weights, None)
        return LinearSample(weights, generator.gamma(found.noise_shape, 1.0 / found.noise_rate, (draws, 1)))

    def _named(self, parameters: LinearSample) -> dict[str, Array]:
        names = dict(zip(self.posterior_.names, parameters.weights.T, strict=True))
        if self.posterior_.noise_shape is not None and parameters.precision is not None:
            # A column may have that name; its coefficient goes first.
            names.setdefault("noise_sd", parameters.precision[:, 0] ** -0.5)
        return names

    def _predictors(self, parameters: LinearSample, X: Any) -> Array:
        u = parameters.weights @ self._design(X).T
        return np.minimum(u, LARGEST_LOG_COUNT) if self.target.log_link else u

    def _law(self, parameters: LinearSample) -> Any:
        if parameters.precision is not None:
            return Normal(parameters.precision)
        return self._outcomes(narrow=False)

    def _below(self, mean: Array, variance: Array, y: Array) -> tuple[Array, Array]:
        if self.target.log_link:
            return self.target.below(self._outcomes(narrow=False), mean, variance, y)
        return super()._below(mean, variance, y)

    def _normal_below(self, mean: Array, variance: Array, y: Array) -> Array:
        known = getattr(self, "noise_precision", None)
        if known is not None:
            return normal_below(mean, variance, y, None, 1.0 / float(known))
        return normal_below(mean, variance, y, self.posterior_.noise_shape, self.posterior_.noise_rate)


def _count(draws: int) -> int:
    if int(draws) != draws or draws < 1:
        raise ValueError(f"draws must be a whole number of at least 1, not {draws!r}.")
    return int(draws)
