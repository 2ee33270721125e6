"""Who is compared in the accuracy benchmark, and how each is fitted to a split.

Everyone sees the same splits and the same public scaling: columns standardised by the training part,
clamped at four standard deviations in private fits. Private fits are at (epsilon, delta) with delta 1e-5.
Ours and DP-Adam are zero-out by our accountant; AdaSSP's and DP-EBM's own proofs are for adding or removing
a record, and diffprivlib's promise is pure epsilon: similar promises, not the same one.

A peer that predicts a number and no distribution gets a normal one whose standard deviation is that of its
own training residuals, which is *not* private and is not charged to it.

**Privacy.** Public or made tables, seeded noise: everything here measures and releases nothing.
"""

import math
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dpsep.privacy.leaks import PrivacyLeakWarning
from dpsep.theory.networks import default_hidden
from dpsep_lab.bench import peers
from dpsep_lab.bench.frontier_data import CLAMP, Split
from dpsep_lab.bench.frontier_scores import Prediction, gaussian

__all__ = ["DELTA", "PEOPLE", "Person"]

Array = NDArray[np.float64]
Fit = Callable[[Split, float | None], Prediction]

DELTA = 1e-5
PAPER_HIDDEN = 50
"""Units of the paper's networks."""
ADASSP_REACH = 2.0
"""Standard deviations of the target that AdaSSP scales to one; its own proof needs a bounded target."""


class Person(NamedTuple):
    """One row of the tables.

    Attributes
    ----------
    label
        For the page.
    group
        ``"network"``, ``"linear"``, ``"tree"`` or ``"open"`` (without privacy).
    spread
        Where its predictive standard deviation is from.
    needs
        Package that it cannot do without, beside what dpsep needs.
    fit
        From a split and epsilon (None without privacy) to a prediction of the test part.
    """

    label: str
    group: str
    spread: str
    needs: str
    fit: Fit

    @property
    def private(self) -> bool:
        """Whether it promises privacy."""
        return self.group != "open"


def _network(**parameters: Any) -> Fit:
    """Our network estimator, seeded by the split."""

    def fit(split: Split, epsilon: float | None) -> Prediction:
        from dpsep.estimators import NetworkRegressor

        budget = {"private": False} if epsilon is None else {"epsilon": epsilon, "delta": DELTA}
        model = NetworkRegressor(
            **budget, public_scaling=split.scaling, random_state=split.number, **parameters
        )
        return _ours(model, split)

    return fit


def _our_linear(split: Split, epsilon: float | None) -> Prediction:
    from dpsep.estimators import LinearRegression

    low, high = (split.centre + sign * CLAMP * split.scale for sign in (-1, 1))
    reach = CLAMP * split.target_scale
    bounds = (split.target_centre - reach, split.target_centre + reach)
    assert epsilon is not None
    model = LinearRegression(
        epsilon, DELTA, bounds=(low, high), target_bounds=bounds, random_state=split.number
    )
    return _ours(model, split)


def _ours(model: Any, split: Split) -> Prediction:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PrivacyLeakWarning)  # seeded: an experiment, not a release
        model.fit(split.X, split.y)
    return Prediction(
        np.asarray(model.predict(split.X_test)),
        np.asarray(model.log_predictive_density(split.X_test, split.y_test)),
        np.asarray(model.predictive_cdf(split.X_test, split.y_test)[0]),
    )


def _with_residuals(fit: Callable[[Split, float, Array, Array], Callable[[Array], Array]]) -> Fit:
    """Give a peer that predicts a number the standard deviation of its training residuals."""

    def fitted(split: Split, epsilon: float | None) -> Prediction:
        Z, t = split.standard(split.X), split.standard_target(split.y)
        predict = fit(split, math.inf if epsilon is None else epsilon, Z, t)
        sd = split.target_scale * float(np.sqrt(np.mean((predict(Z) - t) ** 2)))
        return gaussian(split.own_units(predict(split.standard(split.X_test))), sd, split.y_test)

    return fitted


def _opacus(hidden: int | None) -> Fit:
    def fit(split: Split, epsilon: float, Z: Array, t: Array) -> Callable[[Array], Array]:
        from dpsep_lab.bench.peers_network import dp_adam

        units = hidden or default_hidden(len(t), private=True)[0]
        return dp_adam(Z, t, hidden=units, epsilon=epsilon, delta=DELTA, seed=split.number)

    return _with_residuals(fit)


def _dp_ebm(split: Split, epsilon: float, Z: Array, t: Array) -> Callable[[Array], Array]:
    from dpsep_lab.bench.peers_tree import dp_ebm

    inside = np.clip(t, -CLAMP, CLAMP)
    return dp_ebm(
        Z,
        inside,
        bounds=(Z.min(axis=0), Z.max(axis=0)),
        target_bounds=(float(inside.min()), float(inside.max())),
        epsilon=epsilon,
        delta=DELTA,
        seed=split.number,
    )


def _adassp(split: Split, epsilon: float, Z: Array, t: Array) -> Callable[[Array], Array]:
    rng = np.random.default_rng([split.number, 3])
    norm = math.sqrt(Z.shape[1] + 1)
    target = np.clip(t / ADASSP_REACH, -1.0, 1.0)
    weights = peers.adassp(Z, target, epsilon, DELTA, rng=rng, norm=norm)
    return lambda rows: ADASSP_REACH * peers.linear_predictor(weights, rows)


def _diffprivlib(split: Split, epsilon: float, Z: Array, t: Array) -> Callable[[Array], Array]:
    inside = np.clip(t, -CLAMP, CLAMP)
    unit = peers.Unit(np.asarray(inside.min()), np.asarray(inside.max()))
    scale = peers.Unit(Z.min(axis=0), Z.max(axis=0))
    weights = peers.functional_linear(scale(Z), unit(inside), epsilon)
    return lambda rows: unit.back(peers.linear_predictor(weights, scale(rows)))


def _least_squares(split: Split, epsilon: float, Z: Array, t: Array) -> Callable[[Array], Array]:
    weights = peers.least_squares(Z, t)
    return lambda rows: peers.linear_predictor(weights, rows)


POSTERIOR, GATE = "its posterior", "its private noise estimate"
RESIDUALS = "training residuals, not private"
PEOPLE: dict[str, Person] = {
    "ours": Person("dpsep, default", "network", POSTERIOR, "", _network()),
    "ours-relu": Person(
        "dpsep, ReLU, no direct inputs", "network", POSTERIOR, "", _network(activation="relu", direct=False)
    ),
    "dp-vi": Person("DP-VI, our gate", "network", POSTERIOR, "", _network(method="vi")),
    "gate": Person("DP-Adam, our gate", "network", GATE, "", _network(method="point")),
    "gate-sine": Person(
        "DP-Adam, our gate, sine units", "network", GATE, "", _network(method="point", activation="sine")
    ),
    "gate-50": Person(
        "DP-Adam, our gate, 50 units", "network", GATE, "", _network(method="point", hidden=PAPER_HIDDEN)
    ),
    "opacus": Person("DP-Adam, Opacus", "network", RESIDUALS, "opacus", _opacus(None)),
    "opacus-50": Person("DP-Adam, Opacus, 50 units", "network", RESIDUALS, "opacus", _opacus(PAPER_HIDDEN)),
    "dp-ebm": Person("DP-EBM, interpret", "tree", RESIDUALS, "interpret-core", _with_residuals(_dp_ebm)),
    "linear": Person("dpsep, linear", "linear", POSTERIOR, "", _our_linear),
    "adassp": Person("AdaSSP, linear", "linear", RESIDUALS, "", _with_residuals(_adassp)),
    "diffprivlib": Person(
        "diffprivlib, linear", "linear", RESIDUALS, "diffprivlib", _with_residuals(_diffprivlib)
    ),
    "pbp": Person("PBP (ADF), not private", "open", POSTERIOR, "", _network(method="adf")),
    "sep": Person("SEP, not private", "open", POSTERIOR, "", _network()),
    "vi": Person("VI, not private", "open", POSTERIOR, "", _network(method="vi")),
    "point": Person(
        "point estimate, not private", "open", "its noise estimate", "", _network(method="point")
    ),
    "least-squares": Person(
        "least squares, not private", "open", RESIDUALS, "", _with_residuals(_least_squares)
    ),
}
"""Everyone, by the name that the command line takes."""
