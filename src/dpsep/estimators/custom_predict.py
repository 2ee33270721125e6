"""What a model of your own says of new rows: densities, probabilities, means, draws.

A row meets the posterior through the k numbers that its log-likelihood sees. They are Gaussian, so densities
and means are averages over k numbers (`dpsep.models.sites`), not over draws of all weights.

**Privacy.** Post-processing of what a fit released. Rows and targets that are handed in are the caller's own:
what comes back is computed from them without noise.
"""

from collections.abc import Callable
from functools import cache, partial
from typing import Any, Literal, overload

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray
from sklearn.metrics import accuracy_score, r2_score
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from dpsep.estimators.inference_data import inference_data
from dpsep.estimators.input_checks import numbers, places, table_shape
from dpsep.estimators.large import by_pieces, coded
from dpsep.estimators.posterior import Posterior
from dpsep.estimators.private import PrivateEstimator
from dpsep.estimators.summary import Summary
from dpsep.models.custom import CustomModel, Place, Record
from dpsep.models.glm import Columns
from dpsep.models.multi_predictor import log_predictive, predictor_moments
from dpsep.models.sites import MOST_QUADRATURE, Factors, nodes

Array = NDArray[np.float64]
Seed = int | np.random.Generator | None

_ROWS = 1024
"""Most rows at once: each takes hundreds of nodes."""
_DRAWS = 2000
"""Draws of a target that its standard deviation is taken from."""


def _has(*names: str) -> Callable[[Any], bool]:
    return lambda self: any(getattr(self, name) is not None for name in names)


class CustomPredictions(PrivateEstimator):
    """Base of `dpsep.BayesianModel`: everything that needs its posterior and no record of the fit."""

    log_likelihood: Any
    mean: Any
    sample: Any
    classes: Any
    posterior_: Posterior
    feature_bounds_: Array
    factors_: Factors
    classes_: NDArray[Any]
    _layout: tuple[Place, ...]

    def log_predictive_density(self, X: Any, y: Any = None) -> Array:
        """Log predictive density (or probability) of each row, the likelihood averaged over the posterior."""
        check_is_fitted(self)
        if y is None:
            return by_pieces(self._row_density, X)
        target = coded(y, self._target)
        _check_length(table_shape(X)[0], target)
        return by_pieces(self._row_density, X, target)

    @available_if(_has("classes"))
    def predict_proba(self, X: Any) -> Array:
        """Posterior predictive probability of each class, shape (rows, classes)."""
        return by_pieces(self._probabilities, X)

    def _probabilities(self, X: Any) -> Array:
        matrix = self._new_rows(X)
        count = len(self.classes_)
        every = np.tile(np.arange(float(count)), len(matrix))
        logs = self._log_density(np.repeat(matrix, count, axis=0), every).reshape(len(matrix), count)
        values = np.exp(logs - logs.max(axis=1, keepdims=True))
        return values / values.sum(axis=1, keepdims=True)

    @overload
    def predict(self, X: Any, return_std: Literal[False] = False) -> NDArray[Any]: ...
    @overload
    def predict(self, X: Any, return_std: Literal[True]) -> tuple[Array, Array]: ...
    @available_if(_has("mean", "sample", "classes"))
    def predict(self, X: Any, return_std: bool = False) -> Any:
        """Predictive mean of each row, or its most probable class.

        Parameters
        ----------
        X
            New rows.
        return_std
            Whether to return the standard deviation of a new target as well; needs `sample`, of which it
            takes 2000 draws a row.
        """
        if self.classes is not None:
            if return_std:
                raise ValueError("labels have no standard deviation; predict_proba tells how sure they are.")
            return self.classes_[np.argmax(self.predict_proba(X), axis=1)]
        if return_std and self.sample is None:
            raise ValueError("return_std=True needs `sample`, a function (key, params, record) that draws.")
        centre, spread = by_pieces(lambda rows: self._moments(rows, return_std), X)
        return (centre, spread) if return_std else centre

    def _moments(self, X: Any, wanted: bool) -> tuple[Array, Array]:
        """Mean of each row's target, and its standard deviation, which is zero where it is not wanted."""
        matrix = self._new_rows(X)
        if not wanted and self.mean is not None:
            return self._average(matrix), np.zeros(len(matrix))
        weights = self._weights(_DRAWS, np.random.default_rng(0))
        key = jax.random.key(0)
        parts = [self._drawn(weights, part, key) for part in _parts(matrix)]
        drawn = [np.concatenate([one(part, axis=0) for part in parts]) for one in (np.mean, np.std)]
        return drawn[0] if self.mean is None else self._average(matrix), drawn[1]

    @available_if(_has("sample", "classes"))
    def posterior_predictive(self, X: Any, draws: int = 1000, random_state: Seed = None) -> NDArray[Any]:
        """Draw new targets for each row, shape (draws, rows): weights from the posterior, then `sample`.

        Parameters
        ----------
        X
            Rows.
        draws
            Number of draws; each has its own weights.
        random_state
            A seed or a generator. It seeds these draws only: a seed here undoes no privacy.
        """
        matrix, generator = self._new_rows(X), np.random.default_rng(random_state)
        weights = self._weights(draws, generator)
        drawn = self._drawn(weights, matrix, jax.random.key(int(generator.integers(2**62))))
        return drawn if self.classes is None else self.classes_[drawn.astype(int)]

    @available_if(_has("mean"))
    def posterior_expected(self, X: Any, draws: int = 1000, random_state: Seed = None) -> Array:
        """Draw the mean of each row's target, shape (draws, rows): weights, then `mean`."""
        matrix = self._new_rows(X)
        weights = self._weights(draws, np.random.default_rng(random_state))
        with jax.enable_x64(True):
            return np.asarray(_expected(self._fitted_model(), self.mean, self._columns(), weights, matrix))

    def score(self, X: Any, y: Any = None) -> float:
        """Accuracy of labels, R^2 of means, or the mean log predictive density where nothing is predicted."""
        if self.classes is not None:
            return float(accuracy_score(y, self.predict(X)))
        if self.mean is not None or self.sample is not None:
            return float(r2_score(y, self.predict(X)))
        return float(np.mean(self.log_predictive_density(X, y)))

    def summary(self, level: float = 0.9) -> Summary:
        """Return a table of the posterior: means, sds, intervals, and the part that is noise of privacy."""
        check_is_fitted(self)
        return self.posterior_.summary(level)

    def to_arviz(self, X: Any = None, y: Any = None, *, draws: int = 1000, random_state: Seed = 0) -> Any:
        """Return draws as ArviZ inference data (extra ``truth``).

        The group ``posterior`` is always there. With rows X there are ``log_likelihood`` and, where targets
        can be drawn, ``posterior_predictive``; with targets y also ``observed_data``. X and y are the
        caller's own and stand in the result as they are: under privacy give rows that are public.
        """
        check_is_fitted(self)
        generator = np.random.default_rng(random_state)
        weights = self._weights(draws, generator)
        names = self.posterior_.names
        groups: dict[str, Any] = {
            "posterior": {name: weights[None, :, i] for i, name in enumerate(names)},
        }
        if X is None:
            if y is not None:
                raise ValueError("y is given without its rows; give X too, or neither.")
            return inference_data(groups)
        matrix = self._new_rows(X)
        target = self._new_targets(matrix, y)
        groups["log_likelihood"] = {"y": self._log_likelihoods(weights, matrix, target)[None]}
        if self.sample is not None or self.classes is not None:
            drawn = self._drawn(weights, matrix, jax.random.key(int(generator.integers(2**62))))
            groups["posterior_predictive"] = {"y": drawn[None]}
        if y is not None:
            groups["observed_data"] = {"y": target}
        return inference_data(groups, {"y": ["row"]})

    def _target(self, y: Any) -> Array:
        return numbers(y) if self.classes is None else places(y, self.classes_)

    def _new_targets(self, matrix: Array, y: Any) -> Array:
        if y is None:
            if self.classes is not None:
                raise ValueError("this model has labels: give y, one label a row.")
            return np.zeros(len(matrix))
        target = coded(y, self._target)
        _check_length(len(matrix), target)
        return target

    # The posterior is in the table's units, so rows that are predicted are clamped and not scaled.

    def _fitted_model(self) -> CustomModel:
        if self.log_likelihood is None:
            raise ValueError(
                "log_likelihood is not set: a stored model holds none; set_params gives it back."
            )
        return CustomModel(self.log_likelihood, self._layout, self.factors_)

    def _columns(self) -> Columns:
        zeros = np.zeros(self.n_features_in_)
        low, high = self.feature_bounds_
        return Columns(low, high, zeros, zeros + 1.0)  # pyright: ignore[reportArgumentType]

    def _weights(self, draws: int, generator: np.random.Generator) -> Array:
        """Draws of the weights: from those of the sampler where there are some, else from the posterior."""
        if int(draws) != draws or draws < 1:
            raise ValueError(f"draws must be a whole number of at least 1, not {draws!r}.")
        sampled = getattr(self, "draws_", None)
        if sampled is None:
            return self.posterior_.sample(int(draws), generator)
        return sampled[generator.permutation(np.resize(np.arange(len(sampled)), int(draws)))]

    def _row_density(self, X: Any, target: Array | None = None) -> Array:
        matrix = self._new_rows(X)
        return self._log_density(matrix, self._new_targets(matrix, None) if target is None else target)

    def _log_density(self, matrix: Array, y: Array) -> Array:
        model, columns, found = self._fitted_model(), self._columns(), self.posterior_
        with jax.enable_x64(True):
            parts = [
                np.asarray(_densities(model, columns, columns, found.mean, found.covariance, padded))[:count]
                for padded, count in _padded(matrix, y)
            ]
        return np.concatenate(parts)

    def _log_likelihoods(self, weights: Array, matrix: Array, y: Array) -> Array:
        """Log-likelihood of each row under each draw of the weights, (draws, rows)."""
        with jax.enable_x64(True):
            return np.asarray(_likelihoods(self._fitted_model(), self._columns(), weights, matrix, y))

    def _average(self, matrix: Array) -> Array:
        """Average `mean` over the posterior of what each row sees."""
        model, columns, found = self._fitted_model(), self._columns(), self.posterior_
        with jax.enable_x64(True):
            parts = [
                np.asarray(_averages(model, self.mean, columns, found.mean, found.covariance, cells))[:count]
                for (cells,), count in _padded(matrix)
            ]
        return np.concatenate(parts)

    def _drawn(self, weights: Array, matrix: Array, key: jax.Array) -> Array:
        labels = 0 if self.classes is None or self.sample is not None else len(self.classes_)
        with jax.enable_x64(True):
            model = self._fitted_model()
            return np.asarray(_draws(model, self.sample, labels, self._columns(), weights, matrix, key))


def _check_length(rows: int, target: Array) -> None:
    if len(target) != rows:
        raise ValueError(f"X has {rows} rows and y has {len(target)}; give one target a row.")


def _parts(matrix: Array) -> list[Array]:
    return [matrix[start : start + _ROWS] for start in range(0, len(matrix), _ROWS)]


def _padded(*arrays: Array) -> Any:
    """Yield pieces of one shape, the last padded with zeros, and how many rows of each are real."""
    size = min(_ROWS, len(arrays[0]))
    for start in range(0, len(arrays[0]), size):
        pieces = [array[start : start + size] for array in arrays]
        count = len(pieces[0])
        short = [(0, size - count)]
        yield tuple(np.pad(piece, short + [(0, 0)] * (piece.ndim - 1)) for piece in pieces), count


_densities = jax.jit(log_predictive, static_argnames="model")


@partial(jax.jit, static_argnums=(0, 1))
def _averages(model: CustomModel, mean_of: Any, columns: Columns, mean: Any, covariance: Any, cells: Any):
    points, logs = _rule(model.numbers)
    root = jnp.linalg.cholesky(covariance)

    def one(x: jax.Array) -> jax.Array:
        centre, inner = predictor_moments(model.rows(columns.apply(x)), mean, root)
        record = _record(columns, x)
        values = jax.vmap(lambda z: _number(mean_of(model.params(z), record)))(centre + points @ inner.T)
        return jnp.exp(logs) @ values

    return jax.vmap(one)(cells)


@partial(jax.jit, static_argnums=(0, 1))
def _expected(model: CustomModel, mean_of: Any, columns: Columns, weights: Any, cells: Any) -> jax.Array:
    def one(w: jax.Array, x: jax.Array) -> jax.Array:
        return _number(mean_of(_seen(model, columns, w, x), _record(columns, x)))

    return jax.vmap(jax.vmap(one, (None, 0)), (0, None))(weights, cells)


@partial(jax.jit, static_argnums=0)
def _likelihoods(model: CustomModel, columns: Columns, weights: Any, cells: Any, y: Any) -> jax.Array:
    def one(w: jax.Array, x: jax.Array, y: jax.Array) -> jax.Array:
        return _number(model.log_likelihood(_seen(model, columns, w, x), _record(columns, x, y)))

    return jax.vmap(jax.vmap(one, (None, 0, 0)), (0, None, None))(weights, cells, y)


@partial(jax.jit, static_argnums=(0, 1, 2))
def _draws(
    model: CustomModel, sample: Any, labels: int, columns: Columns, weights: Any, cells: Any, key: jax.Array
) -> jax.Array:
    """Targets (draws, rows); of that many labels by their likelihoods, else by `sample`."""

    def one(key: jax.Array, w: jax.Array, x: jax.Array) -> jax.Array:
        params = _seen(model, columns, w, x)
        if labels:
            every = jnp.arange(labels, dtype=x.dtype)
            logs = jax.vmap(lambda y: _number(model.log_likelihood(params, _record(columns, x, y))))(every)
            return jax.random.categorical(key, logs).astype(x.dtype)
        return _number(sample(key, params, _record(columns, x)))

    keys = jax.random.split(key, (len(weights), len(cells)))
    return jax.vmap(jax.vmap(one, (0, None, 0)), (0, 0, None))(keys, weights, cells)


def _seen(model: CustomModel, columns: Columns, w: jax.Array, x: jax.Array) -> dict[str, Any]:
    return model.params(model.rows(columns.apply(x)) @ w)


def _record(columns: Columns, x: jax.Array, y: Any = jnp.nan) -> Record:
    return Record(jnp.clip(x, columns.low, columns.high), y)


def _number(value: Any) -> jax.Array:
    return jnp.asarray(value, float).reshape(())


@cache
def _rule(count: int) -> tuple[Array, Array]:
    """Nodes of a standard normal in k dimensions and the logarithms of their weights."""
    if count == 1:
        line, weights = np.polynomial.hermite_e.hermegauss(40)
        return line[:, None], np.log(weights / weights.sum())
    return nodes(count, "quadrature" if count <= MOST_QUADRATURE else "qmc")
