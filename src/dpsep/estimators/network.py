"""Bayesian neural networks with scikit-learn's face: regression with learned noise, probit classification."""

import math
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass
from functools import partial
from typing import Any, ClassVar, Literal, Self, cast, overload

import numpy as np
from numpy.typing import NDArray
from sklearn.base import ClassifierMixin, RegressorMixin
from sklearn.utils.validation import check_is_fitted

from dpsep.estimators.documented import inherit_parameters
from dpsep.estimators.input_checks import (
    Structure,
    check_cells,
    check_numbers,
    declared_classes,
    numbers,
    signs,
    structure_of,
)
from dpsep.estimators.large import by_pieces, coded, records_of, whole_records
from dpsep.estimators.network_open import fit_open
from dpsep.estimators.network_posterior import LARGEST, FittedNetwork, NetworkDraws
from dpsep.estimators.network_releases import sampling_of
from dpsep.estimators.network_run import recipe_of
from dpsep.estimators.network_task import task_of
from dpsep.estimators.private import mark_score, statement_of
from dpsep.estimators.rows import log_predictive, log_predictive_learned, padded
from dpsep.estimators.statement import PrivacyStatement
from dpsep.models import ProbitLikelihood
from dpsep.models.network_factors import Outcome
from dpsep.privacy.mechanism import Relation
from dpsep.privacy.sampling import Sampling
from dpsep.registry import Words, register

Array = NDArray[np.float64]
_MEANING = "Weights of a network mean little one by one: what counts is how well it predicts."


@dataclass(eq=False, repr=False)
class NetworkEstimator(NetworkDraws):
    """Base of the network estimators.

    Parameters
    ----------
    epsilon, delta
        The privacy budget of one fit.
    private
        False: without privacy.
    hidden
        Units of each hidden layer: a number, or one a layer; ``()`` is a linear model. None chooses from the
        number of records (`dpsep.theory.networks.default_hidden`).
    activation
        ``"relu"``, ``"sigmoid"`` or ``"sine"``; ``"auto"`` is the last for regression by SEP with
        ``covariance="kronecker"`` and the first in everything else.
    bounds
        Public bounds of the features: a pair (low, high), each a number or one number a column. Cells beyond
        are clamped. Without bounds, they are estimated privately, inside epsilon.
    public_scaling
        Instead of bounds: a standardisation that is declared to be public (of another table, or as the paper
        takes that of its training data), ``((centre, scale), (target_centre, target_scale))``, each a number
        or one number a column; a classifier needs the first pair only. In a private fit
        features are clamped to four scales about their centre.
    relation
        Neighbouring data sets: ``"zero-out"`` or ``"replace-one"``.
    sampling
        Of the fit's releases: ``"full"`` (every record in each) or a rate in (0, 1] for Poisson sampling;
        None chooses by method. Scaling and moments read every record.
    method
        ``"sep"`` (stochastic EP), ``"vi"`` (variational inference), ``"point"`` (posterior mode by Adam);
        without privacy also ``"ep"`` and ``"adf"`` (probabilistic backpropagation).
    covariance
        Of SEP's posterior: ``"kronecker"`` (correlated weights, a basis for each layer), ``"diagonal"``
        (independent weights); ``"auto"`` is the first under privacy and the second without.
    direct
        Whether the inputs also reach the output directly, a linear model beside the hidden units. This needs
        SEP with ``covariance="kronecker"``; None is True there for regression and False otherwise.
    clip
        Multiple of the default clips; None chooses, and means no clip without privacy.
    steps
        Number of releases; None chooses. Without privacy: passes over the records.
    noise_aware
        Whether predictions account for the known noise of privacy in the weights.
    ledger, checkpoint, random_state, strict
        As in the regressions (`dpsep.estimators.base.LinearWeights`). Without privacy ``random_state`` seeds
        the start and the order of records, 0 if left out.

    Examples
    --------
    >>> NetworkRegressor(hidden=(50, 50), activation="sigmoid").hidden
    (50, 50)
    """

    _methods = ("sep", "vi", "point", "ep", "adf")
    _private_methods = ("sep", "vi", "point")
    _outcome: ClassVar[Outcome] = "regression"

    epsilon: float = 1.0
    delta: float = 1e-5
    _: KW_ONLY
    private: bool = True
    hidden: Any = None
    activation: Literal["auto", "relu", "sigmoid", "sine"] = "auto"
    bounds: Any = None
    public_scaling: Any = None
    relation: Relation = "zero-out"
    sampling: Any = None
    method: Literal["sep", "vi", "point", "ep", "adf"] = "sep"
    covariance: Literal["auto", "kronecker", "diagonal"] = "auto"
    direct: bool | None = None
    clip: float | None = None
    steps: int | None = None
    noise_aware: bool = True
    ledger: Any = None
    checkpoint: Any = None
    random_state: int | None = None
    strict: bool = False

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        inherit_parameters(cls)

    def fit(self, X: Any, y: Any, *, on_step: Callable[[int, int], None] | None = None) -> Self:
        """Fit the posterior; under privacy, charge first. There are no weights of records.

        Parameters
        ----------
        X
            Features: a NumPy array, a pandas, polars or Arrow table, or columns of a table that is larger
            than memory (`dpsep.data.scan`; with privacy only).
        y
            Target, one value a row.
        on_step
            Called with the number of releases made and their total, for progress bars.
        """
        shape = structure_of(X, y, private=self.private)
        self._check_privacy()
        leaks = self._collect_leaks(lambda: self._warn_of_leaks(shape, y))
        task = task_of(self, shape, self._outcome)
        self._keep_names(shape)
        if self.private:
            wanted = None if self.sampling is None else self._sampling()
            sampling = sampling_of(task, wanted, cast(Relation, self.relation))
            recipe = partial(recipe_of, task, noise_aware=bool(self.noise_aware))
            records = partial(records_of, X, y, self._target)
            fitted, spend = self._private_fit(recipe, records, on_step, sampling=sampling)
            self.privacy_: PrivacyStatement | None = statement_of(spend, leaks)
        else:
            check_cells(X)
            records = whole_records(
                "a network with private=False (private=True does not)", X, y, self._target
            )
            _check_records(*records, clamped=self.bounds is not None)
            fitted = fit_open(task, records, int(self.random_state or 0))
            self.privacy_ = spend = None
        self._keep_path(spend, None)
        self.posterior_: FittedNetwork = fitted
        self.hidden_ = task.hidden
        self.n_weights_ = task.size
        return self

    def log_predictive_density(self, X: Any, y: Any) -> Array:
        """Log predictive density (or probability) of each row's target."""
        check_is_fitted(self)
        return by_pieces(self._log_density, X, coded(y, self._target))

    def _log_density(self, X: Any, y: Array) -> Array:
        return self._log_predictive(*self._predictor(X), y)

    def _sampling(self) -> Sampling:
        if self.sampling is None:
            # Checked before the task is known; `sampling_of` chooses.
            return cast(Sampling, None)
        return super()._sampling()

    def _predictor(self, X: Any) -> tuple[Array, Array]:
        return by_pieces(self._moments, X)

    def _moments(self, X: Any) -> tuple[Array, Array]:
        matrix = self._new_rows(X)
        # Far beyond what can be computed with, an input says no more than that it is far.
        mean, variance = padded(self.posterior_.predictor, np.clip(matrix, -LARGEST, LARGEST))
        return mean, variance

    def _warn_of_leaks(self, shape: Structure, y: Any) -> None:
        self._warn_of_container(y)
        self._warn_of_settings(shape)

    def _target(self, y: Any) -> Array:
        raise NotImplementedError

    def _log_predictive(self, mean: Array, variance: Array, y: Array) -> Array:
        raise NotImplementedError


@register("network")
@dataclass(eq=False, repr=False, kw_only=True)
class NetworkRegressor(RegressorMixin, NetworkEstimator):
    """Bayesian neural network for regression, with Gaussian noise whose precision is learned.

    Parameters
    ----------
    target_bounds
        Public bounds (low, high) of the target; without them it is scaled privately, inside epsilon.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-1, 1, (4000, 2)); y = np.sin(3 * X[:, 0]) + 0.1 * rng.standard_normal(4000)
    >>> model = NetworkRegressor(epsilon=2.0, bounds=(-1, 1), target_bounds=(-2, 2), steps=60).fit(X, y)
    >>> bool(np.sqrt(np.mean((model.predict(X) - np.sin(3 * X[:, 0])) ** 2)) < 0.2)
    True
    >>> len(model.summary())
    2
    """

    words = Words("Bayesian neural network", _MEANING)

    target_bounds: Any = None

    def __sklearn_tags__(self) -> Any:
        """Tell scikit-learn what to expect."""
        return mark_score(super().__sklearn_tags__(), private=self.private)

    @overload
    def predict(self, X: Any, return_std: Literal[False] = False) -> Array: ...
    @overload
    def predict(self, X: Any, return_std: Literal[True]) -> tuple[Array, Array]: ...
    def predict(self, X: Any, return_std: bool = False) -> Array | tuple[Array, Array]:
        """Predictive mean of each row, and its standard deviation (of a new target) if asked for."""
        mean, variance = self._predictor(X)
        found = self.posterior_
        mean = found.target_centre + found.target_scale * mean
        if not return_std:
            return mean
        shape, rate = found.noise_shape, found.noise_rate
        assert shape is not None
        assert rate is not None
        noise = rate / (shape - 1.0) if shape > 1 else np.inf
        return mean, found.target_scale * np.sqrt(variance + noise)

    def _warn_of_leaks(self, shape: Structure, y: Any) -> None:
        check_numbers(y)
        super()._warn_of_leaks(shape, y)

    def _target(self, y: Any) -> Array:
        return numbers(y)

    def _log_predictive(self, mean: Array, variance: Array, y: Array) -> Array:
        found = self.posterior_
        assert found.noise_shape is not None
        assert found.noise_rate is not None
        scaled = (y - found.target_centre) / found.target_scale
        density = log_predictive_learned(found.noise_shape, found.noise_rate, mean, variance, scaled)
        return density - math.log(found.target_scale)


@register("network-classifier")
@dataclass(eq=False, repr=False, kw_only=True)
class NetworkClassifier(ClassifierMixin, NetworkEstimator):
    """Bayesian neural network for two classes, with a probit output.

    Parameters
    ----------
    classes
        The two labels, the negative one first. Under privacy they must be declared; else they are read off
        the target, with a `PrivacyLeakWarning`.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-1, 1, (4000, 2)); y = X[:, 0] * X[:, 1] > 0
    >>> model = NetworkClassifier(epsilon=2.0, bounds=(-1, 1), classes=[False, True], steps=60).fit(X, y)
    >>> bool(np.mean(model.predict(X) == y) > 0.8)
    True
    >>> len(model.summary())
    2
    """

    words = Words("Bayesian neural network classifier", _MEANING)

    _outcome: ClassVar[Outcome] = "classification"

    classes: Any = None

    def __sklearn_tags__(self) -> Any:
        """Tell scikit-learn that there are two classes."""
        tags = super().__sklearn_tags__()
        assert tags.classifier_tags is not None
        tags.classifier_tags.multi_class = False
        return mark_score(tags, private=self.private)

    def decision_function(self, X: Any) -> Array:
        """Log odds of the second class for each row, of the probability averaged over the posterior."""
        mean, variance = self._predictor(X)
        up, down = (self._log_predictive(mean, variance, sign * np.ones(len(mean))) for sign in (1, -1))
        return up - down

    def predict_proba(self, X: Any) -> Array:
        """Posterior predictive probability of each class, shape (rows, 2)."""
        mean, variance = self._predictor(X)
        up = np.exp(self._log_predictive(mean, variance, np.ones(len(mean))))
        return np.stack([1.0 - up, up], axis=1)

    def predict(self, X: Any) -> NDArray[Any]:
        """Return the more probable class of each row."""
        check_is_fitted(self)
        # Averaging over the posterior moves a probability towards one half, never across it.
        return self.classes_[(self._predictor(X)[0] > 0).astype(int)]

    def _warn_of_leaks(self, shape: Structure, y: Any) -> None:
        super()._warn_of_leaks(shape, y)
        self.classes_ = declared_classes(self.classes, y, private=self.private, strict=self.strict)

    def _target(self, y: Any) -> Array:
        return signs(y, self.classes_)

    def _log_predictive(self, mean: Array, variance: Array, y: Array) -> Array:
        return log_predictive(ProbitLikelihood(), mean, variance, y)


def _check_records(X: Array, y: Array, *, clamped: bool) -> None:
    """Without privacy, bad cells are errors, as scikit-learn has them."""
    if not np.isfinite(X).all():
        raise ValueError("Input X contains NaN or infinity; a fit without privacy needs finite cells.")
    if not np.isfinite(y).all():
        raise ValueError("Input y contains NaN, infinity or an undeclared label.")
    if not clamped and max(np.abs(X).max(), np.abs(y).max()) > LARGEST:
        raise ValueError(f"The table holds cells beyond {LARGEST:g}; rescale its columns.")
