"""What was believed before the fit, in the units of the table: prior means and standard deviations.

A prior is public: it follows from the estimator's parameters and from how its columns were scaled. With
x' = (x - c) / s and y' = (y - a) / b a scaled weight of prior standard deviation p is a coefficient of
b p / s, and the intercept is a + b (w_0 - sum_j w_j c_j / s_j), whose w_0 has ten times p (`posterior`).
"""

import math
from typing import Any, NamedTuple

import numpy as np

from dpsep.estimators.columns import several, through_zero
from dpsep.models.custom import Normal
from dpsep.privacy.scaling import within
from dpsep.registry import Entry, find
from dpsep.report.page.contents import Run, kind_of, learned, parameters
from dpsep.report.page.files import Absent

__all__ = ["Prior", "priors", "reaches"]

MOST_COLUMNS = 100_000
"""Columns that are named by their numbers, where they have no names."""
_NO_BOUNDS = Absent("The columns were scaled by the data themselves, and that scale is not stored.")


class Prior(NamedTuple):
    """A Gaussian prior."""

    mean: float
    sd: float


def priors(run: Run) -> dict[str, Prior] | Absent:
    """Return the prior of each coefficient (of a mixture: of a component mean in each column), by name."""
    kind = kind_of(run)
    try:
        with np.errstate(all="ignore"):  # bounds of a stranger
            entry = find(kind)
            if entry is not None and entry.is_regression:
                return _weights(run, entry)
            if kind == "GaussianMixture":
                return _means(run)
            if kind == "BayesianModel":
                return _own(run)
    except Exception:  # a stranger's parameters
        return Absent("The prior cannot be worked out from the parameters that are stored.")
    return Absent("This report does not work out the prior of such a model in the units of the table.")


def reaches(run: Run) -> dict[str, float]:
    """Return how far each feature can reach by its bounds, by name: the unit of scaled effects."""
    try:
        low, high = np.asarray(learned(run, "feature_bounds_"), np.float64)
        names = [str(name) for name in _names(run)]
        with np.errstate(all="ignore"):  # bounds of a stranger
            scale = within(low, high).scale
        return {name: float(one) for name, one in zip(names, scale, strict=True) if math.isfinite(one)}
    except Exception:  # not there, or not as a fit writes it
        return {}


def _names(run: Run) -> Any:
    names = learned(run, "feature_names_in_")
    if names is not None:
        return names
    bounds = learned(run, "feature_bounds_")
    count = int(learned(run, "n_features_in_")) if bounds is None else len(np.asarray(bounds)[0])
    if count > MOST_COLUMNS:  # a number is written in no time, and takes for ever to count to
        raise ValueError("too many columns to name")
    return [f"x{i}" for i in range(count)]


def _weights(run: Run, entry: Entry) -> dict[str, Prior] | Absent:
    settings = parameters(run)
    low, high = np.asarray(learned(run, "feature_bounds_"), np.float64)
    if not (np.isfinite(low).all() and np.isfinite(high).all()):
        return _NO_BOUNDS
    intercept = bool(settings["fit_intercept"])
    columns = several(within(low, high))
    columns = columns if intercept else through_zero(columns)
    outcome = _outcome(settings, entry, intercept=intercept)
    if isinstance(outcome, Absent):
        return outcome
    centre, scale, size = (
        np.asarray(columns.centre),
        np.asarray(columns.scale),
        float(settings["prior_scale"]),
    )
    found = {
        str(name): Prior(0.0, outcome.sd * size / float(one))
        for name, one in zip(_names(run), scale, strict=True)
    }
    if intercept:
        spread = math.hypot(10.0 * size, *(size * centre / scale))
        found["intercept"] = Prior(outcome.mean, outcome.sd * spread)
    return found


def _outcome(settings: dict[str, Any], entry: Entry, *, intercept: bool) -> Prior | Absent:
    """Return the outcome's centre and scale."""
    if not entry.has_target_bounds:
        return Prior(0.0, 1.0)
    bounds = settings.get("target_bounds")
    if entry.target == "positive" and not intercept:
        return Prior(0.0, 1.0)
    if entry.target == "positive" and bounds is not None:
        # The unit moves the intercept alone: the middle of the bounds, on a logarithmic scale.
        return Prior(0.5 * sum(math.log(float(side)) for side in bounds), 1.0)
    if bounds is not None:
        columns = several(within(*(np.array([float(side)]) for side in bounds)))
        columns = columns if intercept else through_zero(columns)
        return Prior(float(np.asarray(columns.centre)[0]), float(np.asarray(columns.scale)[0]))
    if settings.get("noise_precision") is not None:
        return Prior(0.0, 1.0)
    return Absent(
        "The target's scale was found by the fit and is not stored, so the prior is not known here."
    )


def _means(run: Run) -> dict[str, Prior] | Absent:
    settings = parameters(run)
    names = [str(name) for name in _names(run)]
    if settings.get("mean_scale") is not None:
        means = np.broadcast_to(np.asarray(settings["mean_prior"], np.float64), (len(names),))
        scales = np.broadcast_to(np.asarray(settings["mean_scale"], np.float64), (len(names),))
    else:
        low, high = np.asarray(learned(run, "feature_bounds_"), np.float64)
        if not (np.isfinite(low).all() and np.isfinite(high).all()):
            return _NO_BOUNDS
        means, scales = (low + high) / 2, (high - low) / 2
    return {name: Prior(float(m), float(s)) for name, m, s in zip(names, means, scales, strict=True)}


def _own(run: Run) -> dict[str, Prior] | Absent:
    given = parameters(run).get("prior") or {}
    links = parameters(run).get("links") or {}
    found = {}
    for name, prior in given.items():
        normal = prior if isinstance(prior, Normal) else Normal(0.0, float(prior))
        if name not in links and normal.shape == ():
            found[str(name)] = Prior(float(normal.mean), float(normal.sd))
    return found or Absent("The priors of this model's weights are per scaled unit, which is not stored.")
