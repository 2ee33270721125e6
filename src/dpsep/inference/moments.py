r"""Mean and covariance of a network's columns, from a few looks, each closer than the one before.

A look is two releases (`dpsep.inference.leverage.look`): half octaves of |z|^2, and second moments of z = W t
under a cap that next to no record exceeds. t are the columns of a record with a one put first and W whitens
what was seen so far, so mean and covariance come from one matrix. A direction whose second moment drowns in
the noise of a look is floored at a fraction of the noise's spectral edge, so that the next one looks at it
through a finer lens (the idea of CoinPress, Biswas et al. 2020). No cap is derived from a release that the
same cap has shaped: a rare column keeps its scale.

**Privacy.** Post-processing of what a gate released. This file sees no record.
The proof is in docs/proofs/network-moments.md.
"""

import math
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dpsep.inference.caps import highest, whole_cap
from dpsep.inference.gate_protocol import Opened
from dpsep.inference.leverage import look
from dpsep.models.glm import Columns
from dpsep.models.weighted import CELLS, Seen

Array = NDArray[Any]

LOST = 0.09
"""Most of a whitened column's second moment that a cap may take off."""
FLOOR = 0.3
"""Fraction of the noise's spectral edge that a whitened second moment is raised to."""
LEAST = 1e-8
"""Smallest second moment, in scaled units: a column that does not vary."""

LEAST_RIDGE, RIDGE = 0.02, 0.5
"""Of a linear model that is read off the moments: least ridge, and its multiple of the noise's edge."""


class Moments(NamedTuple):
    """Mean (d,) and a square root (d, d) of the covariance, half half^T, of scaled columns; their noise.

    Attributes
    ----------
    edge
        Spectral edge of the noise of the last look, in units of whitened columns.
    """

    mean: Array
    half: Array
    edge: float = 0.0

    @property
    def covariance(self) -> Array:
        """The covariance."""
        return self.half @ self.half.T


def run(
    opened: Opened, features: Columns, outcome: Columns, columns: int, looks: int, *, target: bool
) -> Moments:
    """Look so many times: twice as many releases.

    Parameters
    ----------
    opened
        Opens gates of a mechanism of as many steps as there are releases.
    features, outcome
        Maps of the columns.
    columns
        How many, with the outcome.
    looks
        How many.
    target
        Whether the outcome is the last column; else there are features only.
    """
    size, edge = columns + 1, 0.0
    # The top of the histogram: records far beyond what whitened ones have, of which |z|^2 is `size`.
    top = size * 2.0 ** (CELLS // 2 - 2)
    half = np.eye(size)
    for number in range(looks):
        whiten = np.linalg.inv(half)
        public = Seen(features, outcome, whiten, np.float64(top))  # pyright: ignore[reportArgumentType]
        # Once directions are of one size, a cap may take off that share of each.
        cap_of = partial(whole_cap, lost=LOST) if number else highest
        seen = look(opened, public, cap_of, target=target)
        edge = math.sqrt(2 * size) * seen.noise
        half = closer(half, seen.second, edge)
    # The one comes first: below it stand the means.
    return Moments(half[1:, 0] / half[0, 0], half[1:, 1:] / half[0, 0], edge)


def closer(half: Array, second: Array, edge: float) -> Array:
    """Return a square root of second moments, from those in the coordinates that another one whitens.

    Parameters
    ----------
    half
        Root of what was seen so far.
    second
        Released second moments in these coordinates.
    edge
        Spectral edge of their noise.
    """
    value, vectors = np.linalg.eigh((second + second.T) / 2)
    value = np.clip(value, max(min(FLOOR * edge, 1.0), LEAST), None)
    # Triangular: the root of second moments that are nearly singular keeps their small directions.
    upper = np.linalg.qr((half @ (vectors * np.sqrt(value))).T)[1]
    return np.asarray((upper * np.sign(np.diag(upper))[:, None]).T, np.float64)


def ridge_of(edge: float, looks: int) -> float:
    """Variance to add to every column: what the noise of all looks may have made of one.

    Parameters
    ----------
    edge
        Spectral edge of the noise of a look, in units of the columns' variance.
    looks
        How many there were.
    """
    return LEAST_RIDGE + RIDGE * edge / math.sqrt(looks)


def regression(half: Array, ridge: float) -> tuple[Array, float]:
    """Weights of a linear model of the last column by the others, and the variance that it leaves.

    Examples
    --------
    >>> weights, left = regression(np.array([[1.0, 0.0], [0.5, 0.1]]), 0.0)
    >>> float(weights[0]), round(left, 6)
    (0.5, 0.01)
    """
    covariance = half @ half.T
    own, cross = covariance[:-1, :-1], covariance[:-1, -1]
    weights = np.linalg.solve(own + ridge * np.eye(len(own)), cross)
    left = covariance[-1, -1] - 2 * weights @ cross + weights @ own @ weights
    return weights, max(float(left), 0.0)
