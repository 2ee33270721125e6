"""What is predicted for each row, and how well: log density, squared error, within the interval, right label.

What calibration is made of stands beside it: of numbers and counts the PIT value (the predictive probability
of a target up to this one) and the residual in predictive standard deviations, of labels the predicted
probability. A count jumps over a range of probabilities. Its PIT value is a point of that range, placed by a
number that belongs to the row's number: the randomised PIT of Czado, Gneiting and Held (2009), in which the
middle of the range would not do (its values are not uniform where the model is right).

**Privacy.** Row i of the scores depends on record i, on the number i and on the released posterior only, bit
for bit: nothing is chosen by looking at all rows (a quadrature rule, a type), and a row that cannot be scored
is NaN and no error. Scores are therefore what a contribution to a release may be; alone they are not private.
The proof is in docs/proofs/metrics.md.
"""

from typing import Any

import jax
import numpy as np
import polars as pl
from numpy.typing import NDArray
from scipy import stats
from sklearn.base import is_classifier

from dpsep.data.table import quiet
from dpsep.estimators.base import LinearWeights
from dpsep.estimators.glm import LinearRegression
from dpsep.estimators.mixed_base import MixedEstimator
from dpsep.estimators.mixture import GaussianMixture
from dpsep.estimators.rows import log_predictive
from dpsep.estimators.store import Estimator

__all__ = ["predictions", "row_scores"]

Array = NDArray[np.float64]
LEVEL = 0.9
"""Of the intervals."""
PIECE = 4096
"""Rows that are integrated at a time: a public constant that bounds memory."""


def predictions(
    estimator: Estimator, features: pl.DataFrame, groups: NDArray[Any] | None = None
) -> dict[str, NDArray[Any]]:
    """Return the columns of a prediction, by name; of a mixed model with each row's group, where known."""
    if len(features) == 0:
        features = pl.DataFrame({name: [0.0] for name in features.columns})
        return {name: column[:0] for name, column in predictions(estimator, features).items()}
    if isinstance(estimator, GaussianMixture):
        return _components(estimator, features)
    by_group = {"groups": groups} if isinstance(estimator, MixedEstimator) else {}
    if is_classifier(estimator):
        classifier: Any = estimator
        mean, variance = classifier._predictor(features, **by_group)
        spread = stats.norm.ppf(0.5 + LEVEL / 2) * np.sqrt(variance)
        return {
            "prediction": np.asarray(classifier.predict(features, **by_group)).astype(str),
            "probability": classifier.predict_proba(features, **by_group)[:, 1],
            "low": classifier._chance(mean - spread),
            "high": classifier._chance(mean + spread),
        }
    regressor: Any = estimator
    mean, sd = regressor.predict(features, return_std=True, **by_group)
    low, high = regressor.target.interval(mean, sd, LEVEL)
    return {"mean": mean, "sd": sd, "low": low, "high": high}


def row_scores(
    estimator: Estimator, features: pl.DataFrame, target: Any, groups: NDArray[Any] | None = None
) -> dict[str, Array]:
    """Score each row.

    Parameters
    ----------
    estimator
        Fitted.
    features
        Encoded columns, a row of NaN where a record cannot be used.
    target
        Numbers with NaN, or labels with an empty text, where there is none; None of a mixture.
    groups
        Of a mixed model: the group of each row; None where every row is of a new group.

    Returns
    -------
    ``log_density`` and, of numbers and counts, ``squared_error``, ``covered``, ``pit`` and ``residual``; of
    labels ``correct``, ``probability`` (predicted, of the second label) and ``second`` (is it that one).
    """
    matrix = features.to_numpy()
    usable: NDArray[np.bool_] = np.asarray(np.isfinite(matrix).all(axis=1))
    if target is not None:
        usable &= _has_target(estimator, target)
    # What cannot be scored is scored as a row of zeros and then taken out: its shape stays, no error tells.
    rows = pl.DataFrame(np.where(usable[:, None], matrix, 0.0), schema=features.columns)
    # Debugging switches of JAX would turn a cell that overflows into an error.
    with quiet(), np.errstate(all="ignore"), jax.debug_nans(False), jax.debug_infs(False):
        if isinstance(estimator, GaussianMixture):
            scores = {"log_density": np.asarray(estimator.score_samples(rows))}
        elif is_classifier(estimator):
            first, second = _labels(estimator)
            label = _in_place(target, usable, first)
            density = _log_density(estimator, rows, label, groups)
            scores = {
                "log_density": density,
                "correct": (density > np.log(0.5)).astype(np.float64),
                "probability": np.where(label == second, np.exp(density), -np.expm1(density)),
                "second": (label == second).astype(np.float64),
            }
        else:
            truth = _in_place(target, usable, 0.0)
            found = {
                name: np.asarray(column) for name, column in predictions(estimator, rows, groups).items()
            }
            scores = {
                "log_density": _log_density(estimator, rows, truth, groups),
                "squared_error": (found["mean"] - truth) ** 2,
                "covered": ((found["low"] <= truth) & (truth <= found["high"])).astype(np.float64),
                "pit": _pit(estimator, rows, truth, groups),
                # A mean beyond what a double holds is one that the target lies below.
                "residual": (truth - _finite(found["mean"])) / _finite(found["sd"]),
            }
    return {name: np.where(usable, values, np.nan) for name, values in scores.items()}


def _in_place(target: Any, usable: NDArray[np.bool_], other: Any) -> NDArray[Any]:
    """Put a constant in the place of targets that cannot be used."""
    return np.where(usable, np.asarray(target), np.asarray(other))


def _labels(estimator: Any) -> NDArray[Any]:
    return np.asarray(estimator.classes_)


def _has_target(estimator: Any, target: Any) -> NDArray[np.bool_]:
    if is_classifier(estimator):
        return np.isin(np.asarray(target), _labels(estimator))
    return np.isfinite(target) & estimator.target.allowed(np.asarray(target))


def _log_density(
    estimator: Any, rows: pl.DataFrame, target: NDArray[Any], groups: NDArray[Any] | None
) -> Array:
    """Log predictive density of each row, by one quadrature rule for all.

    The estimators' own method takes a faster rule where every row's variance allows it, so that one row
    would decide how the others are computed.
    """
    by_group = {"groups": groups} if isinstance(estimator, MixedEstimator) else {}
    linear = isinstance(estimator, LinearRegression) or _family(estimator) == "linear"
    if linear or not isinstance(estimator, LinearWeights | MixedEstimator):
        return np.asarray(estimator.log_predictive_density(rows, target, **by_group))
    mean, variance = estimator._predictor(rows, **by_group)
    return log_predictive(estimator._likelihood(narrow=False), mean, variance, estimator._target(target))


def _pit(estimator: Any, rows: pl.DataFrame, target: Array, groups: NDArray[Any] | None) -> Array:
    """PIT value of each row; a count's lies where the number of its row puts it, between below and up to."""
    by_group = {"groups": groups} if isinstance(estimator, MixedEstimator) else {}
    mean, variance = estimator._predictor(rows, **by_group)
    truth = estimator._target(target)
    # Element i is the same for any number of rows: it belongs to the number i and to no record.
    point = np.random.default_rng(0).uniform(size=len(truth))
    found = []
    for start in range(0, len(truth), PIECE):
        part = slice(start, start + PIECE)
        below, upto = estimator._below(mean[part], variance[part], truth[part])
        found.append(below + point[part] * (upto - below))
    return np.concatenate([np.empty(0), *found])


def _finite(values: Array) -> Array:
    """Put the largest double in the place of an infinity."""
    return np.nan_to_num(values, nan=np.nan)


def _family(estimator: Any) -> str | None:
    return estimator.family if isinstance(estimator, MixedEstimator) else None


def _components(estimator: GaussianMixture, features: pl.DataFrame) -> dict[str, NDArray[Any]]:
    chances = estimator.predict_proba(features)
    return {
        "component": chances.argmax(axis=1),
        "probability": chances.max(axis=1),
        "log_density": np.asarray(estimator.score_samples(features)),
    }
