r"""Fits from a federation: the estimators of linear weights, run as they are on rows that are elsewhere.

`fit` does what `LinearWeights.fit` does with a table: it checks public structure, asks the sites what the run
would cost them (nothing is charged by that), charges the server's own ledger if there is one, and fits
through the federation's gate.

**Privacy.** The releases are those of the estimator, made by `dpsep.federated.gate`; what they cost is
said by `dpsep.federated.statement`. The proof is in docs/proofs/federated.md.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple, TypeVar

from sklearn.base import is_classifier

from dpsep.estimators.base import LinearWeights, fit_task, prepare, task_of
from dpsep.estimators.input_checks import Structure
from dpsep.estimators.private import sampling_of, statement_of
from dpsep.estimators.run import recipe_of
from dpsep.estimators.statement import PrivacyStatement
from dpsep.federated.distributed import check_deviation
from dpsep.federated.federation import Federation
from dpsep.federated.pricing import part_terms, sum_delta
from dpsep.federated.session import Session
from dpsep.federated.statement import guarantee_of
from dpsep.federated.terms import Terms
from dpsep.models.weighted import CELLS
from dpsep.privacy.mechanism import Mechanism, Schedule
from dpsep.privacy.shown import down, up
from dpsep.registry import regressions

__all__ = ["fit"]

Model = TypeVar("Model", bound=LinearWeights)
KINDS = tuple(entry.load() for entry in regressions())
"""What a federation can fit."""
_HALVINGS = 12
"""Steps of the search for the noise where sites take turns; it ends within a relative 1e-3."""
_BINS = 64
"""Most bins of a histogram of private scaling."""


def fit(model: Model, federation: Federation, *, on_step: Callable[[int, int], None] | None = None) -> Model:
    """Fit an estimator of linear weights from the rows of a federation's sites.

    Parameters
    ----------
    model
        A regression with one predictor a record (`dpsep.registry.regressions`), private.
        Classes must be declared; columns without declared bounds are scaled privately, through the sites.
        A ``ledger`` is the server's own, beside those of the sites.
    federation
        The sites.
    on_step
        Called with the number of releases made and their total.

    Returns
    -------
    The model, fitted; its ``privacy_`` speaks of the federation.

    Raises
    ------
    RoundFailed
        A round could not be completed; what was charged stays spent.

    Examples
    --------
    >>> import tempfile
    >>> import numpy as np
    >>> from dpsep import Ledger, LinearRegression
    >>> from dpsep.federated import Federation, InProcess, Site
    >>> def site(name, rows):
    ...     ledger = Ledger.create(f"{kept}/{name}.db", epsilon=1.0, delta=1e-3)
    ...     return Site(name, (X[rows], y[rows]), ledger, f"{kept}/{name}")
    >>> X = np.linspace(-1, 1, 400).reshape(200, 2); y = X @ [1.0, 2.0]; kept = tempfile.mkdtemp()
    >>> sites = {"north": site("north", slice(0, 80)), "south": site("south", slice(80, 200))}
    >>> model = LinearRegression(1.0, 1e-3, bounds=(-1, 1), target_bounds=(-4, 4), steps=2)
    >>> fit(model, Federation(InProcess(sites))).coef_.shape
    (2,)
    >>> Ledger(f"{kept}/north.db").remaining().epsilon < 0.01
    True
    """
    check_model(model, federation)
    leaks = prepare(model, lambda: shape_of(federation))
    budget, terms = _offered(model, federation)
    _check_ledger(model, federation)
    shape = shape_of(federation)  # sites that refused the offer are left out
    status = "failed"
    try:
        task = task_of(model, shape)._replace(excess=_excess(federation, terms))
        spend = fit_task(model, task, federation.records, on_step, **budget._asdict())
        status = "finished"
    finally:
        session = federation.session
        federation.end(status)
    assert session is not None
    model.privacy_ = _statement(statement_of(spend, leaks), session)
    return model


def _offered(model: LinearWeights, federation: Federation) -> tuple["Budget", Terms]:
    """Offer the run until all sites that are left agree: fewer sites have more turns each."""
    while True:
        sites = len(federation.sites())
        budget = _budget(model, federation)
        terms = _terms(model, federation, budget)
        _check_noise(model, federation, terms)
        federation.offer(terms)
        if federation.per_round is None or len(federation.sites()) == sites:
            return budget, terms


class Budget(NamedTuple):
    """What the estimator's schedule is calibrated for, so that every site stays within what was asked for."""

    epsilon: float
    delta: float


def shape_of(federation: Federation) -> Structure:
    """Return the public structure of the pooled table."""
    return Structure(federation.rows, federation.features, federation.columns or None)


def _excess(federation: Federation, terms: Terms) -> float:
    """Return the noise of a release, scaled up to all records, over that of the terms."""
    sites = len(federation.offers)
    turn = min(federation.per_round or sites, sites)
    squares = [(price.sigmas[-1] / terms.parts[-1].sigma) ** 2 for price in federation.offers.values()]
    own = 1.0 if federation.mode == "server" else math.sqrt(turn * math.fsum(squares) / sites)
    return own * sites / turn


def check_model(model: Any, federation: Federation) -> None:
    """Raise where a federation cannot fit a model as it is set up."""
    if not isinstance(model, KINDS):
        names = ", ".join(kind.__name__ for kind in KINDS)
        raise TypeError(
            f"a federation cannot fit a {type(model).__name__}; it fits {names}. Others are code or state "
            "that cannot be sent to a site."
        )
    if not model.private:
        raise ValueError("a federated fit is private; with private=False fit the rows where they are.")
    if model.checkpoint is not None:
        raise ValueError(
            "a federated fit takes no checkpoint: what sites answered is kept by them, and a server that "
            "died begins a new run. Use checkpoint=None."
        )
    if is_classifier(model) and model.classes is None:
        raise ValueError("declare classes=[negative, positive]: the labels stay at the sites.")
    if model.ledger is not None and federation.per_round is not None:
        raise ValueError(
            "with sites_per_round each site is charged for its own rounds, in its own ledger; use "
            "ledger=None on the server."
        )


def declared_classes(model: LinearWeights) -> tuple[Any, ...] | None:
    """Return the classes as they travel; None of a model of numbers."""
    return tuple(model.classes_.tolist()) if is_classifier(model) else None


def _check_noise(model: LinearWeights, federation: Federation, terms: Terms) -> None:
    """Refuse, before anything is charged, histograms with less noise than a sum of rounded noises needs."""
    task = task_of(model, shape_of(federation))
    if terms.mode == "sites" and (task.feature_scaling is None or task.outcome_scaling is None):
        columns = 1 if model.bounds is not None else max(model.n_features_in_, 1)
        sigma = terms.parts[0].sigma / math.sqrt(terms.honest)
        check_deviation(sigma * math.sqrt(columns), "counts")


def _check_ledger(model: LinearWeights, federation: Federation) -> None:
    """Refuse a server's ledger that would note less than a site's own guarantee costs."""
    worst = max(price.epsilon for price in federation.offers.values())
    if federation.mode == "own" and model.ledger is not None and worst > float(model.epsilon) * (1 + 1e-9):
        raise ValueError(
            f"a site's own guarantee costs epsilon {up(worst)}, more than the {down(model.epsilon)} that the "
            "server's ledger would note; use ledger=None, or a larger epsilon."
        )


def _budget(model: LinearWeights, federation: Federation) -> Budget:
    """Return what to calibrate for: less delta by what rounding adds, more epsilon where sites take turns."""
    asked = Budget(float(model.epsilon), float(model.delta))
    delta = asked.delta
    if federation.mode == "sites":
        delta = sum_delta(_terms(model, federation, asked), asked.epsilon)
    if federation.per_round is None or federation.mode == "own":
        return Budget(asked.epsilon, delta)
    low, high = 0.0, 4.0  # powers of two
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        schedule = _schedule(model, federation, Budget(asked.epsilon * 2.0**middle, delta))
        last = schedule.parts[-1]
        most = Schedule((*schedule.parts[:-1], replace(last, steps=federation.steps_of(last.steps))))
        low, high = (middle, high) if most.epsilon(delta) <= asked.epsilon else (low, middle)
    return Budget(asked.epsilon * 2.0**low, delta)


def _schedule(model: LinearWeights, federation: Federation, budget: Budget) -> Schedule:
    task = task_of(model, shape_of(federation))
    gamma = model.gamma if model.update == "natural" else None
    terms = {"relation": model.relation, "sampling": sampling_of(model)}
    return recipe_of(task, epsilon=budget.epsilon, delta=budget.delta, natural=gamma, **terms).schedule


def _terms(model: LinearWeights, federation: Federation, budget: Budget) -> Terms:
    schedule = _schedule(model, federation, budget)
    weights = federation.features + 1
    # Of a histogram a column, and of a release of scores: two matrices, a vector and two numbers.
    most = max(weights * _BINS + weights + 2, weights * (weights + 1) + weights + 2, 3 * CELLS)
    return terms_of(model, federation, schedule.parts, most)


def terms_of(
    model: LinearWeights, federation: Federation, parts: Sequence[Mechanism], coordinates: int, local: int = 0
) -> Terms:
    """Return what the sites are asked to take part in, from a model, its mechanisms and the sites' table."""
    return Terms(
        mode=federation.mode,
        honest=federation.settings.honest,
        relation=model.relation,
        epsilon=float(model.epsilon),
        delta=float(model.delta),
        parts=tuple(part_terms(part) for part in parts),
        rounds=None,
        columns=federation.columns,
        target=next(iter(federation.sites().values())).target,
        classes=declared_classes(model),
        coordinates=coordinates,
        local=local,
    )


def _statement(made: PrivacyStatement, session: Session) -> PrivacyStatement:
    """Return the statement of what was guaranteed to the site that it cost most."""
    changes = guarantee_of(session)
    if made.epsilon != changes["epsilon"] or made.delta != changes["delta"]:
        changes["schedule"] = None  # what each site did costs it something else
        if made.schedule is not None:
            changes["steps"] = sum(part["steps"] for part in made.schedule["parts"])
    return replace(made, secure=made.secure and session.secure, **changes)
