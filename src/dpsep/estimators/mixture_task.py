"""From a mixture estimator's parameters to the fit that they describe: public, and checked beforehand."""

import math
from numbers import Integral
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from dpsep.estimators.input_checks import Structure, declared_scaling
from dpsep.estimators.mixture_run import CONTRIBUTIONS, Method, Task, around
from dpsep.families.columns import Columns
from dpsep.models.mixture_factors import Variances

Array = NDArray[np.float64]
PRIVATE_METHODS = tuple(CONTRIBUTIONS)
MOST_MEANS = 4000
"""Most numbers that make up all component means: beyond, the search for a start takes too long."""


def task_of(estimator: Any, shape: Structure) -> Task:
    """Check an estimator's parameters against a table's shape; return the fit that they describe."""
    if not isinstance(estimator.n_components, Integral) or estimator.n_components < 1:
        raise ValueError(
            f"n_components must be a whole number of at least 1, not {estimator.n_components!r}."
        )
    components = int(estimator.n_components)
    if components > shape.records:
        raise ValueError(
            f"n_components={components} is more than the table's {shape.records} rows; ask for fewer."
        )
    if estimator.covariance_type not in ("diag", "spherical"):
        raise ValueError(
            f"covariance_type must be 'diag' or 'spherical', not {estimator.covariance_type!r}: the "
            "clusters' own covariances are diagonal here (those of the means' posterior are full)."
        )
    if components * shape.features > MOST_MEANS:
        raise ValueError(
            f"n_components={components} in {shape.features} columns are more than {MOST_MEANS} unknown "
            "means, the most that can be searched for. Ask for fewer components, or leave columns out."
        )
    if not 0 < float(estimator.weight_concentration) <= 1e6:
        raise ValueError(
            f"weight_concentration must be positive, at most 1e6, not {estimator.weight_concentration!r}."
        )
    noise = None
    if estimator.noise_scale is not None:
        noise = _columns(estimator.noise_scale, shape.features, "noise_scale")
        if not (noise > 0).all():
            raise ValueError("noise_scale must be positive.")
    weights = _known_weights(estimator)
    if estimator.method in ("ep", "adf") and (noise is None or weights is None):
        raise ValueError(f"method={estimator.method!r} needs known weights= and noise_scale=; or use 'sep'.")
    variances: Variances = estimator.covariance_type if noise is None else "known"
    scaling, prior = _scaling(estimator, shape.features)
    if scaling is not None:
        _check_scale(scaling, prior)
    if noise is not None and scaling is not None:
        ratio = noise / scaling.scale
        if not ((ratio >= 1e-4) & (ratio <= 1e3)).all():
            raise ValueError(
                "noise_scale must lie between 1e-4 and 1e3 times the scale of the means (mean_scale, or "
                "half the distance of the bounds) in every column."
            )
    if estimator.method == "adf" and prior is None:
        raise ValueError(
            "method='adf' needs a mean_prior of its own for each component, shape (components, columns): "
            "nothing else tells the components apart at the first record."
        )
    return Task(
        records=shape.records,
        features=shape.features,
        components=int(components),
        method=cast(Method, estimator.method if estimator.method in PRIVATE_METHODS else "sep"),
        variances=variances,
        noise=noise,
        weights=weights,
        concentration=float(estimator.weight_concentration),
        scaling=scaling,
        prior_mean=prior,
        clip=_clip(estimator),
        steps=None if estimator.steps is None else int(estimator.steps),
    )


def _clip(estimator: Any) -> float | None:
    if estimator.clip is None or (not estimator.private and math.isinf(estimator.clip)):
        return None
    if estimator.private and not float(estimator.clip) <= 1e6:
        raise ValueError(f"clip must be at most 1e6 in a private fit, not {estimator.clip!r}.")
    return float(estimator.clip)


def _known_weights(estimator: Any) -> Array | None:
    if estimator.weights is None:
        return None
    count = int(estimator.n_components)
    if isinstance(estimator.weights, str):
        if estimator.weights != "uniform":
            raise ValueError(
                f"weights must be None, 'uniform' or {count} numbers, not {estimator.weights!r}."
            )
        return np.full(count, 1.0 / count)
    weights = np.asarray(estimator.weights, np.float64)
    if weights.shape != (count,) or not (weights > 0).all() or abs(weights.sum() - 1.0) > 1e-6:
        raise ValueError(f"weights must be {count} positive numbers that sum to one.")
    return weights / weights.sum()


def _scaling(estimator: Any, features: int) -> tuple[Columns | None, Array | None]:
    """Scaling that bounds or the prior declare, and prior means where components have their own."""
    prior = np.asarray(estimator.mean_prior, np.float64)
    own = prior if prior.ndim == 2 else None
    if own is not None and own.shape != (int(estimator.n_components), features):
        raise ValueError(
            f"mean_prior has shape {own.shape}; it must be a number, {features} numbers, or shape "
            f"({estimator.n_components}, {features})."
        )
    if not np.isfinite(prior).all():
        raise ValueError("mean_prior must be finite.")
    if estimator.mean_scale is not None:
        if estimator.bounds is not None:
            raise ValueError("give either bounds or mean_scale, not both: each says where means may lie.")
        scale = _columns(estimator.mean_scale, features, "mean_scale")
        if not (scale > 0).all():
            raise ValueError("mean_scale must be positive.")
        centre = (own / len(own)).sum(axis=0) if own is not None else _columns(prior, features, "mean_prior")
        unbounded = np.full(features, np.inf)
        return Columns(-unbounded, unbounded, centre, scale), own
    if own is None and prior.any():
        raise ValueError("mean_prior needs mean_scale beside it; with bounds the prior follows from them.")
    if estimator.bounds is None:
        return None, own
    declared = declared_scaling(estimator.bounds, features, "the columns")
    return around(declared.low, declared.high), own


def _check_scale(scaling: Columns, prior: Array | None) -> None:
    """Refuse numbers that doubles cannot square, and means that lie nowhere near their scale."""
    scale, centre = scaling.scale, scaling.centre
    if not ((scale >= 1e-100) & (scale <= 1e100)).all():
        raise ValueError("mean_scale, or half the distance of the bounds, must lie between 1e-100 and 1e100.")
    if not (np.abs(centre) <= 1e10 * scale).all():
        raise ValueError(
            "the means' prior lies more than 1e10 of its own scales from zero; shift the columns."
        )
    if prior is not None and not (np.abs(prior - centre) <= 1e6 * scale).all():
        raise ValueError("mean_prior lies more than 1e6 scales from the centre of the means in some column.")


def _columns(value: Any, columns: int, what: str) -> Array:
    try:
        array = np.broadcast_to(np.asarray(value, np.float64), (columns,)).copy()
    except (TypeError, ValueError):
        raise ValueError(f"{what} must be a number, or {columns} numbers.") from None
    if not np.isfinite(array).all():
        raise ValueError(f"{what} must be finite.")
    return array
