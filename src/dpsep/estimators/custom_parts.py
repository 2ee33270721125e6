"""Parts of a fit of your own model that see no record: tracing, rules, guesses, maps of the weights."""

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import block_diag

from dpsep.models.custom import Place
from dpsep.models.glm import Columns
from dpsep.models.logistic import LogisticLikelihood
from dpsep.models.sites import Factors, choose

Array = NDArray[np.float64]

MOST_POINTS = 16
"""Most numbers a record that a set of quasi-random points serves."""


def rule_for(factors: str, count: int) -> Factors:
    """Return how local factors of k numbers are found.

    Of three numbers quasi-random points are as exact as quadrature, with a sixth of the nodes.

    Examples
    --------
    >>> [rule_for("auto", count) for count in (2, 3, 16, 17)]
    ['quadrature', 'qmc', 'qmc', 'laplace']
    """
    if factors == "auto":
        return "quadrature" if count <= 2 else "qmc" if count <= MOST_POINTS else "laplace"
    if factors == "qmc" and count > MOST_POINTS:
        raise ValueError(
            f"factors='qmc' is for at most {MOST_POINTS} numbers a record; this model has {count}. Use "
            "'laplace', or put linear predictors into links=."
        )
    return choose(factors, count)


def keeps_zero(layout: tuple[Place, ...]) -> bool:
    """Whether a predictor has columns and no intercept: then a shift of a column is not the same model."""
    return any(place.columns and not place.intercept for place in layout)


def information(layout: Any, weights: int) -> Array:
    """Guess of what one record tells of each weight: as for a logistic regression with scaled columns."""
    guess = np.full(weights, LogisticLikelihood().curvature_guess)
    for place in layout:
        if place.columns is not None:
            guess[place.start + place.intercept : place.start + place.size] *= 0.25
    return guess


def longest_step(layout: Any, weights: int) -> Array:
    """How far weights may move at once: shared parameters by at most one, as logarithms of scales should."""
    most = np.full(weights, np.inf)
    for place in layout:
        if place.columns is None:
            most[place.start : place.start + place.size] = 1.0
    return most


def to_table(layout: Any, features: Columns) -> Array:
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
