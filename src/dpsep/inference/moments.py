r"""Mean and covariance of a table's columns, from a few releases that look closer each time.

Each release sums z and z z^T over records, z = W (t - mu) the columns of a record in the coordinates that the
releases so far whiten; both are clipped to a small multiple of what a whitened record has. A direction whose
variance drowns in the noise of a release is floored at a fraction of the noise's spectral edge, so that the
next release looks at it through a finer lens (the idea of CoinPress, Biswas et al. 2020).

**Privacy.** Post-processing of what a gate released, by blocks ``first`` and ``second``; `MomentContribution`
reads one record and public values, and a record with a cell that is not finite contributes nothing.
The proof is in docs/proofs/network-moments.md.
"""

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from dpsep.inference.gate_protocol import Summed
from dpsep.models.glm import Columns

Array = NDArray[Any]

REACH = (1.25, 2.0)
"""Clips of a release: of |z| over sqrt(d), and of |z|^2 over d."""
FLOOR = 0.3
"""Fraction of the noise's spectral edge that a whitened variance is raised to."""
LEAST = 1e-8
"""Smallest variance, in scaled units: a column that does not vary."""

LEAST_RIDGE, RIDGE = 0.02, 0.5
"""Of a linear model that is read off the moments: least ridge, and its multiple of the noise's edge."""


class MomentPublic(NamedTuple):
    """What contributions depend on besides the record: maps of the columns, centre, and whitening matrix."""

    features: Columns
    outcome: Columns
    centre: jax.Array
    whiten: jax.Array


class Moments(NamedTuple):
    """Mean (d,), and a square root (d, d) of the covariance, half half^T, of scaled columns."""

    mean: Array
    half: Array

    @property
    def covariance(self) -> Array:
        """The covariance."""
        return self.half @ self.half.T


@dataclass(frozen=True)
class MomentContribution:
    """Whitened columns of a record: blocks ``first`` (flat) and ``second`` (outer).

    Parameters
    ----------
    with_outcome
        Whether the outcome is the last column; else there are features only.
    """

    with_outcome: bool = True

    def __call__(self, public: MomentPublic, chunk: Any) -> tuple[jax.Array, ...]:
        """Return z twice: it is summed, and so is its outer product."""
        columns = public.features.apply(chunk[0])
        outcome = public.outcome.apply(chunk[1])[:, None]
        if self.with_outcome:
            columns = jnp.concatenate([columns, outcome], axis=1)
        z = (columns - public.centre) @ public.whiten.T
        # A record without a usable outcome takes no part, as in the fit.
        z = jnp.where(jnp.isfinite(outcome), z, jnp.nan)
        return z, z


def clips(columns: int) -> tuple[float, float]:
    """Clips of the blocks ``first`` and ``second``."""
    return REACH[0] * math.sqrt(columns), REACH[1] * columns


def init(columns: int) -> Moments:
    """Guess before any release: scaled columns have mean zero and variance one."""
    return Moments(np.zeros(columns), np.eye(columns))


def step(gate: Summed, features: Columns, outcome: Columns, moments: Moments) -> Moments:
    """One release, and the estimate from it."""
    whiten = np.linalg.inv(moments.half)
    released = gate.release(MomentPublic(features, outcome, moments.mean, whiten))  # pyright: ignore
    return update(moments, released, gate.expected_batch, gate.deviations["second"])


def update(moments: Moments, released: dict[str, Array], batch: float, deviation: float) -> Moments:
    """Mean, and covariance with floored eigenvalues, from sums over `batch` records."""
    size = len(moments.mean)
    first = released["first"] / batch
    second = released["second"] / batch - np.outer(first, first)
    value, vectors = np.linalg.eigh((second + second.T) / 2)
    floor = min(FLOOR * math.sqrt(2 * size) * deviation / batch, 1.0)
    value = np.clip(value, max(floor, LEAST), None)
    half = moments.half @ (vectors * np.sqrt(value))
    # Triangular: the square root of a covariance that is nearly singular keeps its small directions.
    _, upper = np.linalg.qr(half.T)
    return Moments(moments.mean + moments.half @ first, upper.T)


def ridge_of(columns: int, deviation: float, batch: float, steps: int) -> float:
    """Variance to add to every column: what the noise of all releases may have made of one.

    Parameters
    ----------
    columns, batch, steps
        Number of columns, of expected records of a release, and of releases.
    deviation
        Of the noise in a release's block ``second``.
    """
    return LEAST_RIDGE + RIDGE * math.sqrt(2 * columns / steps) * deviation / batch


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


def run(gate: Summed, features: Columns, outcome: Columns, columns: int, steps: int) -> Moments:
    """Take `steps` releases."""
    found = init(columns)
    for _ in range(steps):
        found = step(gate, features, outcome, found)
    return found
