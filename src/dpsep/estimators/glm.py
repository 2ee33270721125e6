"""Private Bayesian regressions with scikit-learn's face: linear, logistic, probit and Poisson.

Each is a declaration: a likelihood, the kind of its targets, and words. What they share is `LinearWeights`.
"""

import math
from dataclasses import dataclass
from numbers import Integral
from typing import Any, Literal, overload

import jax
import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, log_ndtr
from sklearn.base import ClassifierMixin, RegressorMixin
from sklearn.utils.validation import check_is_fitted

from dpsep.estimators.base import LinearWeights
from dpsep.estimators.columns import single, through_zero
from dpsep.estimators.input_checks import Structure, declared_classes, declared_scaling, no_scaling
from dpsep.estimators.large import by_pieces
from dpsep.estimators.run import Result
from dpsep.estimators.targets import Binary, Count, Real, TargetTags
from dpsep.families import Gamma
from dpsep.families.columns import Columns
from dpsep.models import LearnedNoise, LogisticLikelihood, PoissonLikelihood, ProbitLikelihood
from dpsep.models.concentrated_noise import ConcentratedNoise
from dpsep.models.linear import GaussianLikelihood
from dpsep.models.poisson import NegativeBinomialLikelihood
from dpsep.registry import Words, register
from dpsep.theory.glm_defaults import COUNT_REACH, PROBIT_SPARE, Defaults

Array = NDArray[np.float64]

OVERDISPERSED = 0.05
"""Dispersion from which on a summary says that counts are overdispersed."""
LEAST_DISPERSION = 1e-6
"""Dispersion of counts below which they are Poisson counts to all digits that matter."""


class GLMRegressor(TargetTags, RegressorMixin, LinearWeights):
    """Regressions of numbers, by a likelihood that knows mean and variance of a new target."""

    @overload
    def predict(self, X: Any, return_std: Literal[False] = False) -> Array: ...
    @overload
    def predict(self, X: Any, return_std: Literal[True]) -> tuple[Array, Array]: ...
    def predict(self, X: Any, return_std: bool = False) -> Array | tuple[Array, Array]:
        """Predictive mean of each row, and its standard deviation (of a new target) if asked for."""
        mean, deviation = by_pieces(self._expected, X)
        return (mean, deviation) if return_std else mean

    def _expected(self, X: Any) -> tuple[Array, Array]:
        mean, variance = self._predictor(X)
        with jax.enable_x64(True):
            found = self._outcomes(narrow=False).predictive(mean, variance)
        return np.asarray(found.mean), np.sqrt(np.asarray(found.variance))


@dataclass(eq=False, repr=False, kw_only=True)
class GLMClassifier(TargetTags, ClassifierMixin, LinearWeights):
    """Regressions of two labels, coded -1 and +1 by declared classes.

    Parameters
    ----------
    classes
        The two labels, the negative one first. Under privacy they must be declared; else they are read off
        the target, with a `PrivacyLeakWarning`.
    """

    target = Binary()

    classes: Any = None

    def decision_function(self, X: Any) -> Array:
        """Log odds of the second class for each row, of the probability averaged over the posterior."""
        log_down, log_up = by_pieces(self._log_both, X)
        return log_up - log_down

    def predict_proba(self, X: Any) -> Array:
        """Posterior predictive probability of each class, shape (rows, 2)."""
        both = np.exp(np.stack(by_pieces(self._log_both, X), axis=1))
        return both / both.sum(axis=1, keepdims=True)

    def predict(self, X: Any) -> NDArray[Any]:
        """Return the more probable class of each row."""
        check_is_fitted(self)
        # Averaging over the posterior moves a probability towards one half, never across it.
        return self.classes_[(self._predictor(X)[0] > 0).astype(int)]

    def _log_both(self, X: Any) -> tuple[Array, Array]:
        """Log posterior predictive probability of the first class and of the second."""
        mean, variance = self._predictor(X)
        sign = np.ones(len(mean))
        return self._log_predictive(mean, variance, -sign), self._log_predictive(mean, variance, sign)

    def _warn_of_leaks(self, shape: Structure, y: Any, groups: Any = None) -> None:
        super()._warn_of_leaks(shape, y, groups)
        self.classes_ = declared_classes(self.classes, y, private=self.private, strict=self.strict)


@dataclass(eq=False, repr=False, kw_only=True)
class Numbers(GLMRegressor):
    """Regressions of numbers by the predictor and errors about it, whose scale is learned.

    Parameters
    ----------
    target_bounds
        Public bounds (low, high) of the target; without them it is scaled privately, inside epsilon.
    """

    target = Real()
    defaults = Defaults(learned_noise=True)

    target_bounds: Any = None

    @overload
    def predict(self, X: Any, return_std: Literal[False] = False) -> Array: ...
    @overload
    def predict(self, X: Any, return_std: Literal[True]) -> tuple[Array, Array]: ...
    def predict(self, X: Any, return_std: bool = False) -> Array | tuple[Array, Array]:
        """Predictive mean of each row, and its standard deviation (of a new target) if asked for."""
        mean, variance = self._predictor(X)
        return (mean, np.sqrt(variance + self._noise_variance())) if return_std else mean

    def _noise_variance(self) -> float:
        """Variance of an error."""
        raise NotImplementedError


@register("linear")
@dataclass(eq=False, repr=False, kw_only=True)
class LinearRegression(Numbers):
    """Bayesian linear regression with Gaussian noise whose precision is learned, or known.

    Parameters
    ----------
    noise_precision
        Known inverse noise variance, in units of the target; None learns it.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-1, 1, (5000, 2)); y = X @ [1.0, -2.0] + 0.1 * rng.standard_normal(5000)
    >>> model = LinearRegression(epsilon=1.0, bounds=(-1, 1), target_bounds=(-4, 4)).fit(X, y)
    >>> model.coef_.round(1) + 0.0
    array([ 1., -2.])
    >>> model.privacy_.epsilon <= 1.0
    True
    >>> mean, deviation = model.predict(X[:3], return_std=True)
    >>> [row["name"] for row in model.summary()]
    ['intercept', 'x0', 'x1']
    """

    likelihood = GaussianLikelihood
    words = Words(
        "linear regression",
        "A coefficient is by how much the expected target changes when its column grows by one and all other "
        "columns stay as they are.",
    )
    wire = 39

    noise_precision: float | None = None

    def _noise_variance(self) -> float:
        if self.noise_precision is not None:
            return 1.0 / float(self.noise_precision)
        shape, rate = self.posterior_.noise_shape, self.posterior_.noise_rate
        assert shape is not None
        assert rate is not None
        return rate / (shape - 1.0) if shape > 1 else np.inf

    def _likelihood(self, *, narrow: bool) -> Any:
        if self.noise_precision is None:
            return ConcentratedNoise()
        size = 1.0
        if self.target_bounds is not None:
            columns = single(declared_scaling(self.target_bounds, 1, "the target"))
            size = float((columns if self.fit_intercept else through_zero(columns)).scale)
        return GaussianLikelihood(float(self.noise_precision) * size**2)

    def _outcome_scaling(self) -> Columns | None:
        if self.target_bounds is None and self.noise_precision is not None:
            return no_scaling(1)
        return super()._outcome_scaling()

    def _log_predictive(self, mean: Any, variance: Any, y: Array) -> Any:
        if self.noise_precision is not None:
            return GaussianLikelihood(float(self.noise_precision)).log_predictive(mean, variance, y)
        shape, rate = self.posterior_.noise_shape, self.posterior_.noise_rate
        noise = Gamma.from_shape_and_rate(np.float64(shape), np.float64(rate))  # pyright: ignore[reportArgumentType]
        return LearnedNoise().log_predictive(mean, variance, noise, y)


def _logistic_size(predictor: Array, cut: float) -> tuple[Array, Array]:
    del cut
    chance = expit(np.abs(predictor))
    return chance, chance * (1.0 - chance)


@register("logistic")
@dataclass(eq=False, repr=False, kw_only=True)
class LogisticRegression(GLMClassifier):
    """Bayesian logistic regression.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-1, 1, (5000, 2)); y = rng.uniform(size=5000) < 1 / (1 + np.exp(-X @ [2.0, -4.0]))
    >>> model = LogisticRegression(epsilon=1.0, bounds=(-1, 1), classes=[False, True]).fit(X, y)
    >>> np.abs(model.coef_ - [2.0, -4.0]).max() < 1.0
    np.True_
    >>> bool(np.mean(model.predict(X) == y) > 0.7), model.predict_proba(X[:3]).shape
    (True, (3, 2))
    >>> [row["name"] for row in model.summary()]
    ['intercept', 'x0', 'x1']
    """

    likelihood = LogisticLikelihood
    defaults = Defaults(size=_logistic_size)
    words = Words(
        "logistic regression",
        "A coefficient is by how much the log odds of the second class change when its column grows by one "
        "and the others stay: e to the coefficient multiplies the odds.",
    )
    wire = 36

    def _chance(self, u: Array) -> Array:
        return expit(u)


def _probit_size(predictor: Array, cut: float) -> tuple[Array, Array]:
    del cut
    square = np.exp(-(predictor**2)) / (2.0 * math.pi)
    rare, common = np.exp(log_ndtr(-np.abs(predictor))), np.exp(log_ndtr(np.abs(predictor)))
    return np.sqrt(square) / rare, square / (rare * common)


@register("probit")
@dataclass(eq=False, repr=False, kw_only=True)
class ProbitRegression(GLMClassifier):
    """Bayesian probit regression.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-1, 1, (5000, 2)); y = X @ [2.0, -1.0] + rng.standard_normal(5000) > 0
    >>> model = ProbitRegression(epsilon=1.0, bounds=(-1, 1), classes=[False, True]).fit(X, y)
    >>> bool(np.abs(model.coef_ - [2.0, -1.0]).max() < 1.0), bool(np.mean(model.predict(X) == y) > 0.7)
    (True, True)
    >>> [row["name"] for row in model.summary()]
    ['intercept', 'x0', 'x1']
    """

    likelihood = ProbitLikelihood
    # Labels that are wrong are long, and cutting them biases the fit.
    defaults = Defaults(spare=PROBIT_SPARE, size=_probit_size)
    words = Words(
        "probit regression",
        "A coefficient moves the predictor z when its column grows by one; the chance of the second class is "
        "the normal distribution function at z.",
    )
    wire = 37


def count_size(predictor: Array, cut: float) -> tuple[Array, Array]:
    """Bound and curvature of the softly bounded score of a Poisson count."""
    rate = np.exp(predictor)
    h = 1.0 / (1.0 + rate + cut * np.sqrt(rate))
    left = np.exp(-rate * h)
    return np.maximum(left, 1.0 - left) / h, rate * left


@dataclass(eq=False, repr=False, kw_only=True)
class Counts(GLMRegressor):
    """Regressions of counts, whose dispersion is learned.

    Parameters
    ----------
    offset
        Name or place of a column that holds the logarithm of the exposure (time at risk, area, people): its
        coefficient is one, and expected counts are in proportion to the exposure. None for none.

    Attributes
    ----------
    dispersion_
        By how much counts vary more than Poisson counts: their variance is mean + dispersion mean^2.
    dispersion_sd_
        Its standard deviation.
    """

    target = Count()
    # A farther cut loses less of counts that no model fits, and costs noise.
    defaults = Defaults(reach=COUNT_REACH, size=count_size, cut=1.5, dispersed=True)

    offset: Any = None

    def _check_parameters(self) -> None:
        super()._check_parameters()
        if self.offset is not None and (self.update == "natural" or self.method != "sep"):
            raise ValueError("an offset needs update='stable' and method='sep'; leave offset out for others.")

    def _offset_place(self, shape: Structure) -> int | None:
        if self.offset is None:
            return None
        names = [] if shape.names is None else [str(name) for name in shape.names]
        if isinstance(self.offset, str):
            if self.offset not in names:
                known = f"the columns are {', '.join(names)}" if names else "these columns have no names"
                raise ValueError(f"offset={self.offset!r} is no column of X; {known}.")
            return names.index(self.offset)
        if not isinstance(self.offset, Integral) or not 0 <= int(self.offset) < shape.features:
            most = shape.features - 1
            raise ValueError(
                f"offset must be a column's name or its place from 0 to {most}, not {self.offset!r}."
            )
        return int(self.offset)

    def _keep(self, result: Result) -> None:
        super()._keep(result)
        found = result.dispersion or (0.0, 0.0)
        self.dispersion_, self.dispersion_sd_ = (float(part) for part in found)

    def _notes(self) -> tuple[str, ...]:
        if self.dispersion_ <= max(OVERDISPERSED, 2.0 * self.dispersion_sd_):
            return super()._notes()
        words = f"overdispersed: the variance of a count is about mean + {self.dispersion_:.2g} mean^2, and "
        return (*super()._notes(), f"{words}intervals know it.")

    def _outcomes(self, *, narrow: bool) -> Any:
        if self.dispersion_ <= LEAST_DISPERSION:
            return PoissonLikelihood("fast" if narrow else "robust")
        return NegativeBinomialLikelihood(self.dispersion_)


@register("poisson")
@dataclass(eq=False, repr=False, kw_only=True)
class PoissonRegression(Counts):
    """Bayesian Poisson regression of counts, log link.

    Targets may be any numbers that are not negative, as in scikit-learn's `PoissonRegressor`. Whole ones are
    counts; with others (rates, averages) the Poisson density is a quasi-likelihood: means are what they were,
    while widths and predictive densities take the variance to be the mean.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-1, 1, (5000, 2)); y = rng.poisson(np.exp(1 + X @ [0.5, -0.5]))
    >>> model = PoissonRegression(epsilon=1.0, bounds=(-1, 1)).fit(X, y)
    >>> bool(np.abs(model.coef_ - [0.5, -0.5]).max() < 0.5), model.predict(X[:3]).shape
    (True, (3,))
    >>> [row["name"] for row in model.summary()]
    ['intercept', 'x0', 'x1']
    """

    likelihood = PoissonLikelihood
    words = Words(
        "Poisson regression",
        "A coefficient is by how much the logarithm of the expected count changes when its column grows by "
        "one: e to the coefficient multiplies the count.",
    )
    wire = 38
