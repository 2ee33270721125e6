"""From a network estimator's parameters to the fit that they describe: public, and checked beforehand."""

import math
from numbers import Integral
from typing import Any, Literal, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from dpsep.estimators.input_checks import Structure, coding, declared_scaling, no_scaling
from dpsep.families.columns import Columns
from dpsep.models.network import ACTIVATIONS, Activation
from dpsep.models.network_factors import Outcome, layer_shapes
from dpsep.theory.networks import check_size, default_hidden

Array = NDArray[np.float64]
Method = Literal["sep", "vi", "point", "ep", "adf"]
Covariance = Literal["kronecker", "diagonal"]
CLAMP = 4.0
"""Scales from their centre that standardised features are clamped to in a private fit: a network goes on in
straight lines beyond what it has seen, and noise decides where to. Chosen on a made table of heavy tails."""


class Task(NamedTuple):
    """Public description of a fit.

    Attributes
    ----------
    records, features
        N and the number of inputs.
    hidden
        Units of each hidden layer; empty for a linear model.
    activation, outcome
        Of the network.
    method, covariance
        How it is fitted, and what structure its posterior has.
    feature_scaling, outcome_scaling
        Declared; None where they are to be found. Labels have one that leaves them as they are.
    standard
        Whether declared scalings are a standardisation: columns then are not standardised again.
    clip
        Multiple of the default clips; None for the default (or, without privacy, no clip).
    steps
        Number of releases, or without privacy of passes; None for the default.
    direct
        Whether the inputs also reach the output directly.
    classes
        How labels are coded, in words: a resumed run must code them alike.
    """

    records: int
    features: int
    hidden: tuple[int, ...]
    activation: Activation
    outcome: Outcome
    method: Method
    covariance: Covariance
    feature_scaling: Columns | None
    outcome_scaling: Columns | None
    standard: bool
    clip: float | None
    steps: int | None
    direct: bool = False
    classes: str = ""

    @property
    def widths(self) -> tuple[int, ...]:
        """Inputs, hidden units, the one output."""
        return (self.features, *self.hidden, 1)

    @property
    def size(self) -> int:
        """Number of weights."""
        return sum(math.prod(shape) for shape in layer_shapes(self.widths, direct=self.direct))

    @property
    def columns(self) -> int:
        """Columns whose moments are found: the inputs and, in regression, the outcome."""
        return self.features + int(self.outcome == "regression")


def task_of(estimator: Any, shape: Structure, outcome: Outcome) -> Task:
    """Check an estimator's parameters against a table's shape; return the fit that they describe."""
    if estimator.activation not in ("auto", *ACTIVATIONS):
        names = ", ".join(map(repr, ACTIVATIONS))
        raise ValueError(f"activation must be 'auto', {names}, not {estimator.activation!r}.")
    if estimator.covariance not in ("auto", "kronecker", "diagonal"):
        raise ValueError(
            f"covariance must be 'auto', 'kronecker' or 'diagonal', not {estimator.covariance!r}."
        )
    features, target, standard = _scalings(estimator, shape.features, outcome)
    covariance = estimator.covariance
    if covariance == "auto":
        covariance = "kronecker" if estimator.private else "diagonal"
    hidden = _hidden(estimator, shape.records)
    basis = estimator.method == "sep" and covariance == "kronecker"
    activation = estimator.activation
    if activation == "auto":
        activation = "sine" if basis and outcome == "regression" else "relu"
    task = Task(
        records=shape.records,
        features=shape.features,
        hidden=hidden,
        activation=cast(Activation, activation),
        outcome=outcome,
        method=cast(Method, estimator.method),
        covariance=covariance,
        feature_scaling=features,
        outcome_scaling=target,
        standard=standard,
        clip=_clip(estimator),
        steps=None if estimator.steps is None else int(estimator.steps),
        direct=_direct(estimator, outcome, basis and bool(hidden)),
        classes=coding(estimator) if outcome == "classification" else "",
    )
    check_size(task.size, task.widths)
    return task


def _hidden(estimator: Any, records: int) -> tuple[int, ...]:
    hidden = estimator.hidden
    if hidden is None:
        return default_hidden(records, private=estimator.private)
    layers = (hidden,) if isinstance(hidden, Integral) else hidden
    try:
        layers = tuple(layers)
    except TypeError:
        layers = (None,)
    good = all(isinstance(units, Integral) and not isinstance(units, bool) for units in layers)
    if not good or any(int(units) < 1 for units in layers):  # pyright: ignore[reportArgumentType]
        raise ValueError(
            "hidden must be the number of units of each hidden layer, such as (50,) or (20, 20), () for a "
            f"linear model, or None for a default; not {hidden!r}."
        )
    return tuple(int(units) for units in layers)  # pyright: ignore[reportArgumentType]


def _direct(estimator: Any, outcome: Outcome, possible: bool) -> bool:
    wanted = estimator.direct
    if wanted is None:
        return possible and outcome == "regression"
    if not isinstance(wanted, bool | np.bool_):
        raise ValueError(f"direct must be True, False or None, not {wanted!r}.")
    if wanted and not possible:
        raise ValueError(
            "direct=True needs hidden units, method='sep' and covariance='kronecker' (the default under "
            "privacy); leave it None, or set direct=False."
        )
    return bool(wanted)


def _clip(estimator: Any) -> float | None:
    if estimator.clip is None or (not estimator.private and math.isinf(estimator.clip)):
        return None
    if estimator.private and not float(estimator.clip) <= 1e6:
        raise ValueError(f"clip must be at most 1e6 in a private fit, not {estimator.clip!r}.")
    return float(estimator.clip)


def _scalings(estimator: Any, columns: int, outcome: Outcome) -> tuple[Columns | None, Columns | None, bool]:
    """Declared scalings of features and target, and whether they are a standardisation."""
    regression = outcome == "regression"
    declared = estimator.public_scaling
    target_bounds = estimator.target_bounds if regression else None
    if declared is None:
        features = None
        if estimator.bounds is not None:
            features = declared_scaling(estimator.bounds, columns, "the features")
        if not regression:
            return features, no_scaling(1), False
        target = None if target_bounds is None else declared_scaling(target_bounds, 1, "the target")
        return features, target, False
    if estimator.bounds is not None or target_bounds is not None:
        raise ValueError("give either public_scaling or bounds, not both: each says how columns are scaled.")
    try:
        pairs = list(declared) if regression else [declared[0] if len(declared) == 1 else declared]
        reach = (CLAMP if estimator.private else math.inf, math.inf)
        sizes = zip(pairs, (columns, 1), reach, strict=False)
        found = [_standard(pair, size, most) for pair, size, most in sizes]
    except (TypeError, ValueError):
        found = []
    if len(found) != (2 if regression else 1):
        wanted = "((centre, scale), (target_centre, target_scale))" if regression else "(centre, scale)"
        raise ValueError(
            f"public_scaling must be {wanted}: finite numbers, one or {columns} for the features, with "
            "scales that are positive."
        )
    return found[0], found[1] if regression else no_scaling(1), True


def _standard(pair: Any, columns: int, reach: float) -> Columns:
    centre, scale = pair
    middle, unit = (
        np.broadcast_to(np.asarray(part, np.float64), (columns,)).copy() for part in (centre, scale)
    )
    if not (np.isfinite(middle).all() and np.isfinite(unit).all() and (unit > 0).all()):
        raise ValueError("not a scaling")
    return Columns(middle - reach * unit, middle + reach * unit, middle, unit)
