"""Mixed models with scikit-learn's face: regressions whose intercept and slopes vary by group.

`MixedRegressor` has numbers or counts as targets, `MixedClassifier` two labels. ``unit="record"`` protects
single records: groups are declared and their random effects are part of the posterior. ``unit="group"``
protects whole groups, say all visits of a patient: random effects are integrated out inside the gate, and
only fixed effects and components of variance are released (`dpsep.models.mixed`).
"""

from dataclasses import KW_ONLY, dataclass
from typing import Any, Literal

import jax
import numpy as np
from numpy.typing import NDArray
from sklearn.base import ClassifierMixin, RegressorMixin
from sklearn.utils.validation import check_is_fitted

from dpsep.estimators.input_checks import Structure, declared_classes
from dpsep.estimators.mixed_base import MixedEstimator
from dpsep.estimators.rows import log_predictive, log_predictive_learned
from dpsep.estimators.targets import TargetTags
from dpsep.registry import Words, register

Array = NDArray[np.float64]


@register("mixed-regressor")
@dataclass(eq=False, repr=False)
class MixedRegressor(TargetTags, RegressorMixin, MixedEstimator):
    """Linear or Poisson regression with effects that vary by group.

    Parameters that are not listed here are those of `dpsep.estimators.base.LinearWeights`.

    Parameters
    ----------
    family
        ``"linear"`` (Gaussian noise, learned) or ``"poisson"`` (counts, log link).
    target_bounds
        Public bounds (low, high) of a linear model's target; without them it is scaled privately.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> clinic = rng.integers(0, 20, 4000); X = rng.uniform(-1, 1, (4000, 1))
    >>> y = 1 + 2 * X[:, 0] + 0.5 * rng.standard_normal(20)[clinic] + 0.3 * rng.standard_normal(4000)
    >>> model = MixedRegressor(groups=20, bounds=(-1, 1), target_bounds=(-5, 5)).fit(X, y, groups=clinic)
    >>> abs(model.coef_[0] - 2) < 0.2
    np.True_
    >>> model.predict(X[:3], groups=clinic[:3]).shape, model.summary()[0]["name"]
    ((3,), 'intercept')
    """

    words = Words("mixed regression, with effects that vary by group")
    _families = ("linear", "poisson")

    family: Literal["linear", "poisson"] = "linear"
    _: KW_ONLY
    target_bounds: Any = None

    def predict(self, X: Any, groups: Any = None, return_std: bool = False) -> Any:
        """Predictive mean of each row, and its standard deviation (of a new target) if asked for.

        Parameters
        ----------
        X
            New rows.
        groups
            Group of each row. A declared group's own effects are used with ``unit="record"``; a row of
            another group, or of none, is predicted as one of a new group.
        return_std
            Whether to return the standard deviation as well.
        """
        mean, variance = self._predictor(X, groups)
        if not self._learned_noise():
            with jax.enable_x64(True):
                found = self._likelihood(narrow=False).predictive(mean, variance)
            mean, spread = np.asarray(found.mean), np.asarray(found.variance)
        else:
            shape, rate = self.posterior_.noise_shape, self.posterior_.noise_rate
            assert shape is not None
            assert rate is not None
            spread = variance + (rate / (shape - 1.0) if shape > 1 else np.inf)
        return (mean, np.sqrt(spread)) if return_std else mean

    def _log_predictive(self, mean: Array, variance: Array, y: Array) -> Array:
        if not self._learned_noise():
            return log_predictive(self._likelihood(narrow=False), mean, variance, y)
        shape, rate = self.posterior_.noise_shape, self.posterior_.noise_rate
        assert shape is not None
        assert rate is not None
        return log_predictive_learned(shape, rate, mean, variance, y)


@register("mixed-classifier")
@dataclass(eq=False, repr=False)
class MixedClassifier(TargetTags, ClassifierMixin, MixedEstimator):
    """Logistic or probit regression with effects that vary by group.

    Parameters that are not listed here are those of `dpsep.estimators.base.LinearWeights`.

    Parameters
    ----------
    family
        ``"logistic"`` or ``"probit"``.
    classes
        The two labels, the negative one first; as in `dpsep.LogisticRegression`.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> clinic = rng.integers(0, 20, 4000); X = rng.uniform(-1, 1, (4000, 1))
    >>> y = 2 * X[:, 0] + 0.5 * rng.standard_normal(20)[clinic] + rng.logistic(size=4000) > 0
    >>> model = MixedClassifier(groups=20, bounds=(-1, 1), classes=[False, True]).fit(X, y, groups=clinic)
    >>> bool(abs(model.coef_.ravel()[0] - 2) < 1), model.predict(X[:3], groups=clinic[:3]).shape
    (True, (3,))
    >>> model.summary()[0]["name"]
    'intercept'
    """

    words = Words("mixed classification, with effects that vary by group")
    _families = ("logistic", "probit")

    family: Literal["logistic", "probit"] = "logistic"
    _: KW_ONLY
    classes: Any = None

    def decision_function(self, X: Any, groups: Any = None) -> Array:
        """Log odds of the second class for each row, of the probability averaged over the posterior."""
        down, up = self._log_both(X, groups)
        return up - down

    def predict_proba(self, X: Any, groups: Any = None) -> Array:
        """Posterior predictive probability of each class, shape (rows, 2); for groups see `predict`."""
        both = np.exp(np.stack(self._log_both(X, groups), axis=1))
        return both / both.sum(axis=1, keepdims=True)

    def predict(self, X: Any, groups: Any = None) -> NDArray[Any]:
        """Return the more probable class of each row.

        Parameters
        ----------
        X
            New rows.
        groups
            Group of each row. A declared group's own effects are used with ``unit="record"``; a row of
            another group, or of none, is predicted as one of a new group.
        """
        check_is_fitted(self)
        return self.classes_[(self.decision_function(X, groups) > 0).astype(int)]

    def _log_both(self, X: Any, groups: Any) -> tuple[Array, Array]:
        mean, variance = self._predictor(X, groups)
        up = np.ones(len(mean))
        return self._log_predictive(mean, variance, -up), self._log_predictive(mean, variance, up)

    def _warn_of_leaks(self, shape: Structure, y: Any, groups: Any) -> None:
        super()._warn_of_leaks(shape, y, groups)
        self.classes_ = declared_classes(self.classes, y, private=self.private, strict=self.strict)

    def _log_predictive(self, mean: Array, variance: Array, y: Array) -> Array:
        narrow = bool(np.max(variance, initial=0.0) <= 1.0)
        return log_predictive(self._likelihood(narrow=narrow), mean, variance, y)
