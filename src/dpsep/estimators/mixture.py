"""Gaussian mixtures: clusters whose means, weights and variances have a (private) posterior."""

import math
from collections.abc import Callable
from functools import partial
from numbers import Integral
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import DensityMixin
from sklearn.utils.validation import check_is_fitted

from dpsep.estimators import mixture_ep
from dpsep.estimators.input_checks import check_cells, check_finite, structure_of_table
from dpsep.estimators.large import by_pieces, pieces, records_of, whole_records
from dpsep.estimators.mixture_posterior import MixtureDraws, MixturePosterior
from dpsep.estimators.mixture_run import Result, Task, fit_open, recipe_of
from dpsep.estimators.mixture_task import task_of
from dpsep.estimators.private import statement_of
from dpsep.estimators.statement import PrivacyStatement
from dpsep.privacy.gate import Records
from dpsep.privacy.leaks import labelled_records, warn_leak
from dpsep.privacy.mechanism import Relation
from dpsep.registry import Words, register

Array = NDArray[np.float64]
LARGEST = 1e100
"""Largest cell that a fit without privacy takes: squares must not overflow."""


@register("mixture")
class GaussianMixture(DensityMixin, MixtureDraws):
    """Bayesian mixture of Gaussians, in the place of scikit-learn's `GaussianMixture`.

    Parameters
    ----------
    n_components
        Number of components.
    epsilon, delta
        The privacy budget of one fit.
    covariance_type
        ``"diag"`` (a variance for each component and column) or ``"spherical"`` (one a component); learned,
        with Gamma priors, unless `noise_scale` is given.
    private
        False: the same method without privacy.
    noise_scale
        Known standard deviation within components: a number, or one a column. None: learned.
    weights
        Known weights: ``"uniform"`` or one number a component. None: learned, with a Dirichlet prior.
    weight_concentration
        Concentration of that prior, for each component.
    bounds
        Public bounds of the columns: a pair (low, high), each a number or one number a column. Cells beyond
        are clamped. The prior of a component mean is centred between them and has half their distance as its
        standard deviation.
    mean_prior, mean_scale
        Instead of bounds: prior mean and standard deviation of the component means, in the table's units. The
        mean may be a number, one a column, or one a component and column; the scale a number or one a column.
        Nothing is clamped.
    relation
        Neighbouring data sets: ``"zero-out"`` or ``"replace-one"``.
    sampling
        Of the releases of summed factors: ``"full"`` (every record in each) or a rate in (0, 1] for Poisson
        sampling. The sketch, and private scaling, read every record.
    method
        ``"sep"`` (stochastic EP), ``"vi"`` (mean-field variational Bayes), ``"em"`` (posterior mode; its
        covariances are those of known components). Without privacy also ``"ep"`` and ``"adf"``, for known
        weights and deviations.
    clip
        Multiple of the default clips; None chooses, and means no clip without privacy.
    steps
        Number of releases of summed factors; None chooses. Without privacy: most iterations.
    noise_aware
        Whether the posteriors of means, weights and variances are widened by the known noise of privacy.
    ledger, checkpoint, random_state, strict
        As in the regressions (`dpsep.estimators.base.LinearWeights`).

    Notes
    -----
    Without bounds and `mean_scale`, bounds are estimated privately, inside epsilon.

    `predict`, `predict_proba`, `score_samples`, `score`, `aic`, `bic` and `fit_predict` compute from the rows
    they are given, without noise: for private rows what they return is outside the guarantee.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> X = np.concatenate([rng.normal(-2, 0.5, (2000, 2)), rng.normal(2, 0.5, (2000, 2))])
    >>> model = GaussianMixture(2, epsilon=1.0, bounds=(-5, 5)).fit(X)
    >>> bool(np.abs(np.sort(model.means_[:, 0]) - [-2, 2]).max() < 0.2)
    True
    >>> len(set(model.predict(X[:2000]))), len(model.summary())
    (1, 4)
    """

    words = Words(
        "Gaussian mixture",
        "Each record comes from one of several groups; a group has a weight, a mean in each column, and a "
        "spread around it.",
    )
    _methods = ("sep", "vi", "em", "ep", "adf")
    _private_methods = ("sep", "vi", "em")

    def __init__(
        self,
        n_components: int = 1,
        epsilon: float = 1.0,
        delta: float = 1e-5,
        *,
        covariance_type: Literal["diag", "spherical"] = "diag",
        private: bool = True,
        noise_scale: Any = None,
        weights: Any = None,
        weight_concentration: float = 1.0,
        bounds: Any = None,
        mean_prior: Any = 0.0,
        mean_scale: Any = None,
        relation: Relation = "zero-out",
        sampling: Any = "full",
        method: Literal["sep", "vi", "em", "ep", "adf"] = "sep",
        clip: float | None = None,
        steps: int | None = None,
        noise_aware: bool = True,
        ledger: Any = None,
        checkpoint: Any = None,
        random_state: int | None = None,
        strict: bool = False,
    ) -> None:
        self.n_components = n_components
        self.epsilon = epsilon
        self.delta = delta
        self.covariance_type = covariance_type
        self.private = private
        self.noise_scale = noise_scale
        self.weights = weights
        self.weight_concentration = weight_concentration
        self.bounds = bounds
        self.mean_prior = mean_prior
        self.mean_scale = mean_scale
        self.relation = relation
        self.sampling = sampling
        self.method = method
        self.clip = clip
        self.steps = steps
        self.noise_aware = noise_aware
        self.ledger = ledger
        self.checkpoint = checkpoint
        self.random_state = random_state
        self.strict = strict

    def fit(self, X: Any, y: Any = None, *, on_step: Callable[[int, int], None] | None = None) -> Self:
        """Fit the posterior; under privacy, charge first.

        Parameters
        ----------
        X
            The table: a NumPy array, a pandas, polars or Arrow table, or columns of one that is larger than
            memory (`dpsep.data.scan`).
        y
            Not used; here because scikit-learn passes it.
        on_step
            Called with the number of releases made and their total, for progress bars.
        """
        del y
        shape = structure_of_table(X, private=self.private)
        self._check_privacy()
        task = task_of(self, shape)
        leaks = self._collect_leaks(lambda: self._warn_of_settings(shape))
        self._keep_names(shape)
        if self.private:
            result, spend = self._private_fit(partial(recipe_of, task), lambda: records_of(X), on_step)
            self.privacy_: PrivacyStatement | None = statement_of(spend, leaks)
            self.converged_ = True
        else:
            check_cells(X)
            records = self._open_records(X)
            check_finite(records[0])
            clamped = task.scaling is not None and np.isfinite(task.scaling.high).all()
            if not clamped and any(np.abs(piece).max() > LARGEST for piece in pieces(records[0])):
                raise ValueError(f"Input X holds cells beyond {LARGEST:g}; rescale its columns.")
            result = self._fit_open(task, records)
            self.privacy_ = spend = None
        self._keep(task, result)
        columns = getattr(self, "feature_names_in_", [f"x{i}" for i in range(self.n_features_in_)])
        self._keep_path(spend, [f"{place}: {name}" for place in range(len(self.means_)) for name in columns])
        return self

    def fit_predict(self, X: Any, y: Any = None, **kwargs: Any) -> NDArray[np.intp]:
        """Fit, and return the most probable component of each row, which no noise protects."""
        if self.private:
            warn_leak(labelled_records(), strict=self.strict)
        return self.fit(X, y, **kwargs).predict(X)

    def predict(self, X: Any) -> NDArray[np.intp]:
        """Return the most probable component of each row; not noised, so not for private rows."""
        return np.argmax(self.predict_proba(X), axis=1)

    def predict_proba(self, X: Any) -> Array:
        """Posterior probability of each component for each row, (rows, components)."""
        check_is_fitted(self)
        return by_pieces(lambda rows: self.posterior_.probabilities(self._rows(rows)), X)

    def score_samples(self, X: Any) -> Array:
        """Log posterior predictive density of each row."""
        check_is_fitted(self)
        return by_pieces(lambda rows: self.posterior_.log_density(self._rows(rows)), X)

    def log_predictive_density(self, X: Any) -> Array:
        """Log posterior predictive density of each row; another name of `score_samples`."""
        return self.score_samples(X)

    def score(self, X: Any, y: Any = None) -> float:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Mean log posterior predictive density of the rows; not noised, so not for private rows."""
        del y
        return float(np.mean(self.score_samples(X)))

    def aic(self, X: Any) -> float:
        """Akaike's criterion on these rows (lower is better); not noised, so not for private rows."""
        rows = self.score_samples(X)
        return float(-2.0 * rows.sum() + 2.0 * self._free_parameters())

    def bic(self, X: Any) -> float:
        """Bayesian criterion on these rows (lower is better); not noised, so not for private rows."""
        rows = self.score_samples(X)
        return float(-2.0 * rows.sum() + self._free_parameters() * math.log(len(rows)))

    def sample(self, n_samples: int = 1, random_state: int | None = None) -> tuple[Array, NDArray[np.intp]]:
        """Draw rows and their components from the posterior predictive distribution."""
        check_is_fitted(self)
        if not isinstance(n_samples, Integral) or n_samples < 1:
            raise ValueError(f"n_samples must be a whole number of at least 1, not {n_samples!r}.")
        return self.posterior_.draw(int(n_samples), np.random.default_rng(random_state))

    def _open_records(self, X: Any) -> Records:
        """Records of a fit without privacy, which may need them all at once."""
        if self.method in self._private_methods:
            return records_of(X)
        return whole_records(f"method={self.method!r} (method='sep' does not)", X)

    def _fit_open(self, task: Task, records: Records) -> Result:
        (matrix,) = records
        if self.method == "adf":
            self.converged_ = True
            return mixture_ep.fit_adf(task, matrix)
        start = task._replace(method="sep") if self.method == "ep" else task
        result = fit_open(start, records, max_iter=self.steps or 1000, tolerance=1e-6)
        self.converged_ = result.moved <= 1e-6
        return mixture_ep.fit_ep(task, matrix, result) if self.method == "ep" else result

    def _keep(self, task: Task, result: Result) -> None:
        scale, centre = np.asarray(result.columns.scale), np.asarray(result.columns.centre)
        unit = scale[:, None] * scale
        covariances = result.covariance + (result.noise if self.noise_aware else 0.0)
        spherical = task.variances == "spherical"
        each = task.features if spherical else 1
        concentration = shape = None
        if task.weights is None:
            mass = result.counts + task.concentration
            concentration = mass * (_shrink_weights(mass, result.count_noise) if self.noise_aware else 1.0)
        if task.variances != "known":
            shape = 1.0 + result.counts * each / 2
            if self.noise_aware:
                shape = 1.0 / (1.0 / shape + result.scatter_noise)
        self.posterior_ = MixturePosterior(
            means=result.mean * scale + centre,
            mean_covariances=covariances * unit,
            noise_covariances=result.noise * unit,
            weights=result.weights,
            weight_concentration=concentration,
            variances=result.variance * scale**2,
            variance_shape=shape,
            spherical=spherical,
            noise_aware=bool(self.noise_aware),
        )
        self.means_ = self.posterior_.means
        self.mean_covariances_ = self.posterior_.mean_covariances
        self.weights_ = result.weights
        known_as_one = self.covariance_type == "spherical"
        variances = self.posterior_.variances
        self.covariances_ = variances.mean(axis=1) if known_as_one else variances
        self.precisions_ = 1.0 / self.covariances_
        self.feature_bounds_ = np.stack([np.asarray(result.columns.low), np.asarray(result.columns.high)])
        self.n_iter_ = result.steps

    def _rows(self, X: Any) -> Array:
        matrix = self._new_rows(X)
        # Farther out all densities are zero; the squares must not overflow.
        reach = 1e100 * (1.0 + np.abs(self.means_).max())
        return np.clip(matrix, -reach, reach)

    def _free_parameters(self) -> int:
        components, columns = self.means_.shape
        free = components * columns
        if self.weights is None:
            free += components - 1
        if self.noise_scale is None:
            free += components * (1 if self.covariance_type == "spherical" else columns)
        return free


def _shrink_weights(mass: Array, noise: float) -> float:
    """Share of a Dirichlet's mass that leaves room for noise of this variance in every count."""
    total = mass.sum()
    own = float(np.mean(mass * (total - mass))) / (total + 1.0)  # average variance of total times a weight
    return own / (own + noise) if noise > 0 and own > 0 else 1.0
