"""Your own model behind scikit-learn's face: a log-likelihood in, a private posterior out.

**Privacy.** As for every estimator: structure is checked, the ledger is charged, and then records are read
through the gate only (`dpsep.estimators.linked_run`). The log-likelihood is traced by JAX before that, with
shapes and no records, and refused if it calls back into Python.
"""

import hashlib
from collections.abc import Callable, Mapping
from typing import Any, Literal, Self, cast

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray
from scipy.linalg import block_diag
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from dpsep.data import as_matrix
from dpsep.estimators.linked_run import MOST_WEIGHTS, LinkedResult, LinkedTask, fit_open, fit_private
from dpsep.estimators.posterior import Posterior
from dpsep.estimators.private import PrivateEstimator, arviz_data, statement_of
from dpsep.estimators.statement import PrivacyStatement
from dpsep.estimators.structure import (
    Structure,
    check_numbers,
    coding,
    declared_labels,
    declared_scaling,
    no_scaling,
    numbers,
    places,
    structure_of,
    structure_of_table,
)
from dpsep.models.custom import CustomModel, Linear, Record, arrange, check_pure, weight_names
from dpsep.models.glm import Columns
from dpsep.models.linked import log_predictive, predictor_moments
from dpsep.models.sites import Factors, choose, nodes
from dpsep.privacy.checkpoint import Checkpoint
from dpsep.privacy.ledger import Ledger, as_ledger
from dpsep.privacy.mechanism import Relation
from dpsep.privacy.scaling import Scaling

Array = NDArray[np.float64]

LogLikelihood = Callable[[dict[str, Any], Record], Any]


def _has(*names: str) -> Callable[[Any], bool]:
    return lambda self: any(getattr(self, name) is not None for name in names)


class BayesianModel(PrivateEstimator):
    """A Bayesian model of your own.

    Parameters
    ----------
    log_likelihood
        ``fn(params, record)`` in JAX, the log density of one record: ``params`` maps names to what the record
        sees of them, ``record.x`` are its cells and ``record.y`` its target (`dpsep.models.custom`).
    prior
        `dpsep.Normal`, or a standard deviation, by name: of each scaled weight of a link (2 if left out; ten
        times that for its intercept), and of every shared parameter.
    links
        Linear predictors by name, as `dpsep.Linear`.
    mean
        ``fn(params, record)``: the mean of a new target; `predict` needs it (or `sample`, or `classes`).
    sample
        ``fn(key, params, record)``: draws a new target with a JAX random key.
    classes
        Labels of the target, declared; ``record.y`` is then a label's place among them, 0, 1, ...
    factors
        How local factors are found: ``"auto"``, ``"quadrature"``, ``"qmc"`` or ``"laplace"``
        (`dpsep.models.sites`).
    bounds
        Public bounds of the features: a pair (low, high), each a number or one number a column. Cells beyond
        are clamped. Without bounds, location and scale are estimated privately, inside epsilon.
    method
        ``"sep"``; without privacy also ``"ep"``, ``"adf"`` and ``"nuts"`` (extra ``truth``).

    The other parameters are those of `dpsep.estimators.base.LinearWeights`.

    Examples
    --------
    >>> def log_likelihood(params, record):          # logistic regression
    ...     return jax.nn.log_sigmoid(jnp.where(record.y > 0, 1.0, -1.0) * params["u"])
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-1, 1, (4000, 2)); y = rng.uniform(size=4000) < 1 / (1 + np.exp(-X @ [2.0, -4.0]))
    >>> model = BayesianModel(log_likelihood, links={"u": Linear()}, classes=[False, True], bounds=(-1, 1))
    >>> np.abs(model.fit(X, y).posterior_.mean[1:] - [2.0, -4.0]).max() < 1.5
    np.True_
    """

    _methods = ("sep", "ep", "adf", "nuts")

    def __init__(
        self,
        log_likelihood: LogLikelihood | None = None,
        prior: Mapping[str, Any] | None = None,
        links: Mapping[str, Linear] | None = None,
        *,
        mean: LogLikelihood | None = None,
        sample: Callable[[jax.Array, dict[str, Any], Record], Any] | None = None,
        classes: Any = None,
        factors: Literal["auto", "quadrature", "qmc", "laplace"] = "auto",
        epsilon: float = 1.0,
        delta: float = 1e-5,
        private: bool = True,
        bounds: Any = None,
        relation: Relation = "zero-out",
        sampling: Any = "full",
        method: Literal["sep", "ep", "adf", "nuts"] = "sep",
        clip: float | None = None,
        steps: int | None = None,
        noise_aware: bool = True,
        ledger: Any = None,
        checkpoint: Any = None,
        random_state: int | None = None,
        strict: bool = False,
    ) -> None:
        self.log_likelihood = log_likelihood
        self.prior = prior
        self.links = links
        self.mean = mean
        self.sample = sample
        self.classes = classes
        self.factors = factors
        self.epsilon = epsilon
        self.delta = delta
        self.private = private
        self.bounds = bounds
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

    def __sklearn_tags__(self) -> Any:
        """Tell scikit-learn what is predicted, if anything."""
        tags = super().__sklearn_tags__()
        tags.target_tags.required = False
        return tags

    def fit(self, X: Any, y: Any = None, *, on_step: Callable[[int, int], None] | None = None) -> Self:
        """Fit the posterior; under privacy, charge first.

        Parameters
        ----------
        X
            Features: a NumPy array, a pandas or polars frame.
        y
            Target, one value a row; may be left out where the log-likelihood does not use it.
        on_step
            Called with the number of releases made and their total, for progress bars.
        """
        shape = structure_of_table(X) if y is None else structure_of(X, y)
        self._check_privacy()
        leaks = self._collect_leaks(lambda: self._warn_of_leaks(shape, y))
        self._keep_names(shape)
        task = self._task(shape)
        if self.private:
            result, spend = fit_private(
                task,
                lambda: self._records(X, y),
                epsilon=float(self.epsilon),
                delta=float(self.delta),
                relation=cast(Relation, self.relation),
                sampling=self._sampling(),
                ledger=cast(Ledger | None, as_ledger(self.ledger)),
                checkpoint=None if self.checkpoint is None else Checkpoint(self.checkpoint),
                seed=self.random_state,
                on_step=on_step,
            )
            self.privacy_: PrivacyStatement | None = statement_of(spend, leaks)
        else:
            records = self._records(X, y)
            if not all(np.isfinite(array).all() for array in records):
                raise ValueError("Input X or y contains NaN, infinity or an undeclared label.")
            result = fit_open(task, records, self.method, self.random_state)
            self.privacy_ = None
        self._keep(result, task)
        return self

    def log_predictive_density(self, X: Any, y: Any = None) -> Array:
        """Log predictive density (or probability) of each row, the likelihood averaged over the posterior."""
        matrix = self._new_rows(X)
        return self._log_density(matrix, np.zeros(len(matrix)) if y is None else self._target(y))

    @available_if(_has("classes"))
    def predict_proba(self, X: Any) -> Array:
        """Posterior predictive probability of each class, shape (rows, classes)."""
        matrix = self._new_rows(X)
        logs = [self._log_density(matrix, np.full(len(matrix), float(k))) for k in range(len(self.classes_))]
        values = np.exp(np.stack(logs, 1))
        return values / values.sum(axis=1, keepdims=True)

    @available_if(_has("mean", "sample", "classes"))
    def predict(self, X: Any, return_std: bool = False) -> Any:
        """Predictive mean of each row, or its most probable class.

        Parameters
        ----------
        X
            New rows.
        return_std
            Whether to return the standard deviation of a new target as well; needs `sample`.
        """
        if self.classes is not None:
            return self.classes_[np.argmax(self.predict_proba(X), axis=1)]
        if return_std or self.mean is None:
            drawn = self.posterior_predictive(X, 2000, 0)
            centre = drawn.mean(0) if self.mean is None else self._average(self._new_rows(X))
            return (centre, drawn.std(0)) if return_std else centre
        return self._average(self._new_rows(X))

    @available_if(_has("sample"))
    def posterior_predictive(self, X: Any, draws: int = 1000, random_state: int | None = None) -> Array:
        """Draw new targets, shape (draws, rows): weights from the posterior, then `sample`."""
        matrix = self._new_rows(X)
        sample = self.sample
        assert sample is not None
        generator = np.random.default_rng(random_state)
        weights = self.posterior_.sample(draws, generator)
        key = jax.random.key(int(generator.integers(2**31)))
        model, features = self._fitted_model(), self._fitted_columns()
        cells = np.clip(matrix, *self.feature_bounds_)

        def one(key: jax.Array, w: jax.Array, x: jax.Array) -> jax.Array:
            params = model.params(model.rows(features.apply(x)) @ w)
            return jnp.asarray(sample(key, params, Record(x, jnp.nan)), float).reshape(())

        with jax.enable_x64(True):
            keys = jax.random.split(key, (draws, len(cells)))
            rows = jax.vmap(jax.vmap(one, (0, None, 0)), (0, 0, None))
            return np.asarray(jax.jit(rows)(keys, jnp.asarray(weights), jnp.asarray(cells)))

    def summary(self, level: float = 0.9) -> list[dict[str, Any]]:
        """Return one row a weight: mean, sd, interval, share of the variance that is DP noise."""
        check_is_fitted(self)
        return self.posterior_.summary(level)

    def to_arviz(self, draws: int = 1000, random_state: int | None = 0) -> Any:
        """Return posterior draws of the weights as ArviZ inference data (extra ``truth``)."""
        check_is_fitted(self)
        sample = getattr(self, "draws_", None)
        if sample is None:
            sample = self.posterior_.sample(draws, random_state)
        return arviz_data({name: sample[None, :, i] for i, name in enumerate(self.posterior_.names)})

    def _warn_of_leaks(self, shape: Structure, y: Any) -> None:
        if y is not None:
            if self.classes is None:
                check_numbers(y)
            self._warn_of_container(y)
        self._warn_of_settings(shape)
        if self.classes is not None:
            self.classes_ = declared_labels(self.classes)

    def _task(self, shape: Structure) -> LinkedTask:
        if self.log_likelihood is None:
            raise ValueError("log_likelihood is missing: give a function of (params, record) in JAX.")
        layout, mean, sd = arrange(self.links, self.prior, shape.features, shape.names)
        if len(mean) > MOST_WEIGHTS:
            raise ValueError(f"the model has {len(mean)} weights; at most {MOST_WEIGHTS} can be fitted.")
        # With this many records a weight, predictors vary by less than one under every cavity.
        narrow = shape.records >= 20 * len(mean)
        model = CustomModel(self.log_likelihood, layout, rule="fast" if narrow else "robust")
        rule = choose(self.factors, model.numbers)
        model = CustomModel(self.log_likelihood, layout, rule, model.rule)
        text = check_pure(self.log_likelihood, model, shape.features)
        self.layout_ = layout
        scaling: Scaling | None = no_scaling(shape.features)
        if self.bounds is not None:
            scaling = declared_scaling(self.bounds, shape.features, "the features")
        elif any(place.columns is not None for place in layout):
            scaling = None
        return LinkedTask(
            model=model,
            records=shape.records,
            prior_mean=mean,
            prior_sd=sd,
            information=_information(layout, len(mean)),
            feature_scaling=scaling,
            outcome_scaling=no_scaling(1),
            clip=None if self.clip is None else float(self.clip),
            steps=None if self.steps is None else int(self.steps),
            identity=[
                hashlib.sha256(text.encode()).hexdigest(),
                rule,
                "" if self.classes is None else coding(self),
            ],
        )

    def _records(self, X: Any, y: Any) -> tuple[Array, Array]:
        matrix = as_matrix(X)[0]
        return matrix, np.zeros(len(matrix)) if y is None else self._target(y)

    def _target(self, y: Any) -> Array:
        return numbers(y) if self.classes is None else places(y, self.classes_)

    def _keep(self, result: LinkedResult, task: LinkedTask) -> None:
        columns = [str(name) for name in getattr(self, "feature_names_in_", ())]
        columns = columns or [f"x{i}" for i in range(self.n_features_in_)]
        matrix = _to_table(self.layout_, result.features)
        noise = matrix @ result.noise_covariance @ matrix.T
        covariance = matrix @ result.covariance @ matrix.T
        self.posterior_: Posterior = Posterior(
            weight_names(self.layout_, columns),
            matrix @ result.mean,
            covariance + noise if self.noise_aware else covariance,
            noise,
        )
        self.feature_bounds_ = np.stack([np.asarray(result.features.low), np.asarray(result.features.high)])
        self.factors_: Factors = task.model.factors
        self.n_iter_ = result.steps
        if result.draws is not None:
            self.draws_ = result.draws @ matrix.T
        elif hasattr(self, "draws_"):
            del self.draws_

    # The posterior is in the table's units, so rows that are predicted are clamped and not scaled.

    def _fitted_model(self) -> CustomModel:
        if self.log_likelihood is None:
            raise ValueError(
                "log_likelihood is not set: a stored model holds none; set_params gives it back."
            )
        return CustomModel(self.log_likelihood, self.layout_, self.factors_)

    def _fitted_columns(self) -> Columns:
        zeros = np.zeros(self.n_features_in_)
        low, high = self.feature_bounds_
        return Columns(low, high, zeros, zeros + 1.0)  # pyright: ignore[reportArgumentType]

    def _log_density(self, matrix: Array, y: Array) -> Array:
        model, features = self._fitted_model(), self._fitted_columns()
        with jax.enable_x64(True):
            mean, covariance = jnp.asarray(self.posterior_.mean), jnp.asarray(self.posterior_.covariance)

            def density(x: jax.Array, y: jax.Array) -> jax.Array:
                return log_predictive(model, features, features, mean, covariance, (x, y))

            return np.asarray(jax.jit(density)(jnp.asarray(matrix), jnp.asarray(y)))

    def _average(self, matrix: Array) -> Array:
        """Average `mean` over the posterior of what each row sees."""
        mean_of = self.mean
        assert mean_of is not None
        model, features = self._fitted_model(), self._fitted_columns()
        points, logs = nodes(model.numbers, "quadrature" if 2 <= model.numbers <= 3 else "qmc")
        cells = np.clip(matrix, *self.feature_bounds_)
        with jax.enable_x64(True):
            root = jnp.linalg.cholesky(jnp.asarray(self.posterior_.covariance))

            def one(x: jax.Array) -> jax.Array:
                rows = model.rows(features.apply(x))
                centre, inner = predictor_moments(rows, jnp.asarray(self.posterior_.mean), root)
                z = centre + jnp.asarray(points) @ inner.T
                values = jax.vmap(lambda z: mean_of(model.params(z), Record(x, jnp.nan)))(z)
                return jnp.exp(jnp.asarray(logs)) @ values

            return np.asarray(jax.jit(jax.vmap(one))(jnp.asarray(cells)))


def _information(layout: Any, weights: int) -> Array:
    """Guess of what one record tells of each weight: as for a logistic regression with scaled columns."""
    guess = np.full(weights, 0.25)
    for place in layout:
        if place.columns is not None:
            guess[place.start + place.intercept : place.start + place.size] *= 0.25
    return guess


def _to_table(layout: Any, features: Columns) -> Array:
    """Matrix from scaled weights to those of the table's columns."""
    scale, centre = np.asarray(features.scale), np.asarray(features.centre)
    parts = []
    for place in layout:
        if place.columns is None:
            parts.append(np.eye(place.size))
            continue
        own = list(place.columns)
        part = np.diag(1.0 / scale[own]) if own else np.zeros((0, 0))
        if place.intercept:
            shift = -(centre[own] / scale[own])[None, :]
            part = np.block([[np.ones((1, 1)), shift], [np.zeros((len(own), 1)), part]])
        parts.append(part)
    return np.asarray(block_diag(*parts), np.float64)
