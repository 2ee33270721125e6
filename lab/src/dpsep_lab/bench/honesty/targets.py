"""Targets of the survey: how outcomes are drawn, which estimator is fitted, and what a record can say.

`TARGETS` is the register. A target draws outcomes from predictors, makes the estimator with everything
public declared, and knows two things for the floor of `dpsep_lab.bench.honesty.floor`: the information of a
record about its predictor, and a bound of its score in units of the root of that.

Estimators are asked for by their public names only. One that this version of the library does not have is
absent, and its cells say so.

**Privacy.** Made data only.
"""

import zlib
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, ndtr

from dpsep.registry import ENTRIES, named
from dpsep_lab.bench.honesty.designs import DESIGNS, ROWS, Class

__all__ = ["TARGETS", "Absent", "Table", "Target", "made", "make"]

NOISE = 0.5
"""Scale of the errors of numbers."""
FREEDOM = 4.0
"""Degrees of freedom of heavy tails."""
SIZE = 0.7
"""Counts that vary more than Poisson have variance mu + mu^2 / SIZE."""
TARGET_BOUND = 8.0
"""Numbers are declared to lie within plus and minus this."""
POSITIVE_BOUNDS = (1e-3, 1e2)
"""Declared bounds of positive targets."""
SPREAD = 0.5
"""Standard deviation of random intercepts."""
GROUPS = 10
"""Groups of a mixed model with records as units."""
FAR = 3.0
"""Bound of a score, in units of the root of the information, where the model has no bound of its own."""

Array = NDArray[np.float64]


class Absent(Exception):
    """This version of the library has no such estimator, or it has no such parameter."""


class Table(NamedTuple):
    """A made table.

    Attributes
    ----------
    X, y
        Features and target.
    groups
        Group or person of each row; None where there is none.
    truth
        True coefficients, the intercept first, in units of the table.
    classes
        Class of each.
    low, high
        Declared bounds of the columns.
    predictor
        True predictor of each row, without random effects.
    widened
        Factor of the bounds of the target: 10 where the design's bounds are loose.
    """

    X: Array
    y: Array
    groups: NDArray[np.int64] | None
    truth: Array
    classes: tuple[Class, ...]
    low: Array
    high: Array
    predictor: Array
    widened: float = 1.0


class Target(NamedTuple):
    """What is predicted, and by whom.

    Attributes
    ----------
    estimator
        Name in `dpsep.registry`; ``own`` is the Student-t model of `_own`.
    law
        Of the outcomes.
    information
        Of a record about its predictor, given the predictor.
    score
        Bound of a record's score over the root of its information, given the predictor.
    base
        Predictor at the centre of the columns.
    size
        Factor of the effects of common columns.
    family
        Of a mixed model.
    by_group
        Whether groups are the units of a mixed model.
    """

    estimator: str
    law: str
    information: Callable[[Array], Array]
    score: Callable[[Array], Array]
    base: float = 0.0
    size: float = 1.0
    family: str = ""
    by_group: bool = False


def _far(u: Array) -> Array:
    return np.full_like(u, FAR)


def _label_information(u: Array) -> Array:
    return expit(u) * expit(-u)


def _label_score(u: Array) -> Array:
    return 1 / np.sqrt(_label_information(u))


def _probit_information(u: Array) -> Array:
    return np.exp(-(u**2)) / (2 * np.pi) / (ndtr(u) * ndtr(-u))


def _number_information(u: Array) -> Array:
    return np.full_like(u, NOISE**-2)


def _student_information(u: Array) -> Array:
    return np.full_like(u, (FREEDOM + 1) / (FREEDOM + 3) / NOISE**2)


def _dispersed_information(u: Array) -> Array:
    return np.exp(u) / (1 + np.exp(u) / SIZE)


TARGETS: dict[str, Target] = {
    "linear": Target("linear", "number", _number_information, _far),
    "logistic": Target("logistic", "logistic", _label_information, _label_score),
    "probit": Target("probit", "probit", _probit_information, _far, size=0.6),
    "poisson": Target("poisson", "poisson", np.exp, _far, base=1.0, size=0.5),
    "gamma": Target("gamma", "gamma", np.ones_like, _far, size=0.5),
    "negative-binomial": Target(
        "negative-binomial", "negative-binomial", _dispersed_information, _far, base=1.0, size=0.5
    ),
    "student": Target("student", "student", _student_information, _far),
    "own-student": Target("own", "student", _student_information, _far),
    "mixed-linear": Target("mixed-regressor", "number", _number_information, _far, family="linear"),
    "mixed-logistic": Target(
        "mixed-classifier", "logistic", _label_information, _label_score, family="logistic"
    ),
    "mixed-poisson": Target("mixed-regressor", "poisson", np.exp, _far, base=1.0, size=0.5, family="poisson"),
    "grouped-linear": Target(
        "mixed-regressor", "number", _number_information, _far, family="linear", by_group=True
    ),
    "grouped-logistic": Target(
        "mixed-classifier", "logistic", _label_information, _label_score, family="logistic", by_group=True
    ),
}
"""All targets by name."""


def made(target: str, design: str, records: int, seed: int) -> Table:
    """Draw the table of a seed: the same for every budget.

    Parameters
    ----------
    target, design
        Names out of `TARGETS` and of `dpsep_lab.bench.honesty.designs.DESIGNS`.
    records
        Number of rows.
    seed
        Number of the table.
    """
    kind, plan = TARGETS[target], DESIGNS[design]
    rng = np.random.default_rng([zlib.crc32(f"{target}/{plan.like or design}".encode()), records, seed])
    drawn = plan.draw(records, rng)
    base = kind.base if plan.base is None else plan.base
    common = np.array([name != "rare" for name in drawn.classes])
    effects = drawn.effects * np.where(common, kind.size, 1.0)
    u = base + (drawn.columns - drawn.centre) @ effects
    members: NDArray[np.int64] | None = None
    shift = np.zeros(records)
    if kind.family:
        count = -(-records // ROWS) if kind.by_group else GROUPS
        members = np.arange(records) // ROWS if kind.by_group else np.arange(records) % count
        shift = SPREAD * rng.standard_normal(count)[members]
    elif plan.persons:
        members = np.arange(records) // ROWS
    y = _outcomes(plan.law or kind.law, u + shift, rng)
    truth = np.concatenate([[base - drawn.centre @ effects], effects])
    widened = 10.0 if design == "loose" else 1.0
    classes: tuple[Class, ...] = ("intercept", *drawn.classes)
    return Table(drawn.columns, y, members, truth, classes, drawn.low, drawn.high, u, widened)


def _outcomes(law: str, u: Array, rng: np.random.Generator) -> Array:
    """Draw outcomes of predictors."""
    if law == "number":
        return u + NOISE * rng.standard_normal(len(u))
    if law == "student":
        return u + NOISE * rng.standard_t(FREEDOM, len(u))
    if law == "logistic":
        return (rng.logistic(size=len(u)) < u).astype(np.float64)
    if law == "probit":
        return (rng.standard_normal(len(u)) < u).astype(np.float64)
    if law == "poisson":
        return rng.poisson(np.exp(u)).astype(np.float64)
    if law == "negative-binomial":
        return rng.poisson(np.exp(u) * rng.gamma(SIZE, 1 / SIZE, len(u))).astype(np.float64)
    return rng.exponential(np.exp(u))


def make(
    target: str, table: Table, *, bounded: bool, by_person: bool, **settings: Any
) -> tuple[Any, dict[str, Any]]:
    """Make an estimator for a table; return it and what its `fit` takes beside features and target.

    Parameters
    ----------
    target
        A name out of `TARGETS`.
    table
        Whose public properties are declared.
    bounded
        Whether bounds are declared.
    by_person
        Whether a regression protects persons and not rows.
    settings
        Budget, relation and so on.

    Raises
    ------
    Absent
        Where the library has no such estimator, or it has no such parameter.
    """
    kind = TARGETS[target]
    if bounded:
        settings["bounds"] = (table.low, table.high)
    if kind.estimator == "own":
        return _own(settings), {}
    if kind.estimator not in {entry.name for entry in ENTRIES}:
        raise Absent(f"the library has no estimator named {kind.estimator!r}.")
    maker = named(kind.estimator).load()
    known = maker().get_params(deep=False)
    if "classes" in known:
        settings["classes"] = [0.0, 1.0]
    if "target_bounds" in known and bounded:
        low, high = (-TARGET_BOUND * table.widened, TARGET_BOUND * table.widened)
        if kind.law in ("gamma",):
            low, high = POSITIVE_BOUNDS
        if kind.law in ("gamma", "number", "student"):
            settings["target_bounds"] = (low, high)
    if kind.family:
        settings["family"] = kind.family
    if not kind.family and not by_person:
        return maker(**settings), {}
    assert table.groups is not None
    if kind.by_group or by_person:
        if "unit" not in known:
            raise Absent(f"{maker.__name__} has no parameter 'unit'.")
        settings |= {"unit": "group", "rows_per_group": ROWS}
    settings["groups"] = int(table.groups.max()) + 1
    try:
        return maker(**settings), {"groups": table.groups}
    except TypeError as error:
        raise Absent(str(error)) from error


def _own(settings: dict[str, Any]) -> Any:
    """Return a robust regression as a user would write it: Student-t errors whose scale is learned."""
    import jax.numpy as jnp
    from jax.scipy.stats import t

    from dpsep import BayesianModel, Linear, Normal

    def log_likelihood(params: dict[str, Any], record: Any) -> Any:
        return t.logpdf(record.y, FREEDOM, params["u"], jnp.exp(params["log_scale"]))

    return BayesianModel(log_likelihood, {"log_scale": Normal(0.0, 1.0)}, {"u": Linear()}, **settings)
