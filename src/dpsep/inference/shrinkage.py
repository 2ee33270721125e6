r"""Released symmetric matrices: pooled, shrunk towards what is known of them, and kept positive.

A release of a matrix (a curvature, a covariance of scores) is the truth plus symmetric noise of known
deviation. `pooled` averages releases that were taken at different places. `shrunk` draws the average towards
a promise, entry by entry, by as much as noise hides it: empirical Bayes, James and Stein (1961). `within`
keeps eigenvalues relative to another matrix within bounds.

**Privacy.** Post-processing of what a gate released. This file sees no record.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import solve_triangular

Array = NDArray[np.float64]

LEAST = 1e-13
"""Least eigenvalue of what should be positive, relative to the largest."""


class Released(NamedTuple):
    """A released matrix, where it was taken, and the deviation of the noise on its diagonal."""

    at: Array
    value: Array
    noise: float


def pooled(matrices: tuple[Released, ...], reach: float) -> tuple[Array, float]:
    """Return the average of released matrices, and the deviation of its noise.

    One that was taken at a distance from the last is wrong by half of that share of itself, over `reach`.

    Examples
    --------
    >>> one = Released(np.array([0.0]), np.array([[1.0]]), 0.1)
    >>> far = Released(np.array([9.0]), np.array([[5.0]]), 0.1)
    >>> pooled((one, one), 1.0)[0].item(), round(pooled((far, one), 1.0)[0].item(), 2)
    (1.0, 1.0)
    """
    last = matrices[-1]
    if last.noise == 0:
        return last.value, 0.0
    size = float(np.sqrt(np.mean(last.value**2)))
    wrong = np.array([0.5 * float(np.linalg.norm(one.at - last.at)) / reach * size for one in matrices])
    noise = np.array([one.noise for one in matrices])
    weights = 1.0 / (noise**2 + wrong**2)
    weights /= weights.sum()
    average = np.tensordot(weights, np.array([one.value for one in matrices]), 1)
    return average, float(np.linalg.norm(weights * noise))


def shrunk(
    average: Array, noise: float, promised: Array, own: Array, least: tuple[float, float], most: float
) -> tuple[Array, Array]:
    """Shrink a matrix towards what is promised of it; return it and the deviations of its entries.

    Parameters
    ----------
    average, noise
        The matrix, and the deviation of the noise on its diagonal.
    promised, own
        What it is shrunk towards, and the deviations of that one's entries.
    least
        Least deviation from the promise, in units of its rows and columns, that entries on the diagonal and
        off it are allowed whatever the others show.
    most
        Most relative deviation of an entry from what is promised of it, beside that of the promise itself.
    """
    unit = np.sqrt(np.outer(np.diag(promised), np.diag(promised)))
    hidden, own, rest = noise * triangle(len(unit)) / unit, own / unit, (average - promised) / unit
    diagonal = np.eye(len(unit)) > 0
    allowed = np.zeros_like(unit)
    for block, lowest in zip((diagonal, ~diagonal), least, strict=True):
        weights = block / (hidden**2 + own**2 + lowest**2) ** 2
        # The spread of the entries about the promise, as far as their own noise does not explain it.
        spread = float(np.sum(weights * (rest**2 - hidden**2 - own**2))) / max(float(np.sum(weights)), 1e-300)
        allowed += block * np.minimum(min(max(spread, lowest**2), most**2) + own**2, 1.0)
    keep = allowed / (allowed + hidden**2)
    return promised + keep * rest * unit, hidden * np.sqrt(keep) * unit


def within(matrix: Array, other: Array, lowest: float, highest: float) -> Array:
    """Bring a matrix's eigenvalues relative to another, positive one within bounds.

    Examples
    --------
    >>> within(np.diag([3.0, -1.0]), np.eye(2), 0.5, 2.0)
    array([[2. , 0. ],
           [0. , 0.5]])
    """
    root_ = root(other)
    half = solve_triangular(root_, matrix, lower=True)
    inner = solve_triangular(root_, half.T, lower=True)
    value, vectors = np.linalg.eigh((inner + inner.T) / 2)
    basis = root_ @ vectors
    found = (basis * np.clip(value, lowest, highest)) @ basis.T
    return (found + found.T) / 2


def above(matrix: Array, other: Array, lowest: float) -> Array:
    """Raise a matrix's eigenvalues relative to another, positive one where they are below a bound.

    Examples
    --------
    >>> above(np.diag([3.0, -1.0]), np.eye(2), 0.5)
    array([[3. , 0. ],
           [0. , 0.5]])
    """
    half = solve_triangular(root(other), np.eye(len(other)), lower=True)
    value = np.linalg.eigvalsh(half @ (matrix + matrix.T) @ half.T / 2)
    return matrix if value[0] >= lowest else within(matrix, other, lowest, np.inf)


def root(matrix: Array) -> Array:
    """Lower triangular root of a positive matrix; where noise made one singular, of the nearest that is not.

    Examples
    --------
    >>> bool(np.abs(root(np.diag([4.0, 0.0])) - np.diag([2.0, 0.0])).max() < 1e-5)
    True
    """
    try:
        return np.asarray(np.linalg.cholesky(matrix), np.float64)
    except np.linalg.LinAlgError:
        value, vectors = np.linalg.eigh((matrix + matrix.T) / 2)
        half = vectors * np.sqrt(np.maximum(value, LEAST * max(float(value[-1]), LEAST)))
        # Q R of its transpose: a triangular root, with a positive diagonal.
        upper = np.linalg.qr(half.T)[1]
        sign = np.sign(np.where(np.diag(upper) == 0, 1.0, np.diag(upper)))
        return np.asarray((upper * sign[:, None]).T, np.float64)


def triangle(size: int) -> Array:
    """Deviations of the entries of symmetric noise, in units of those of its diagonal."""
    return np.where(np.eye(size) > 0, 1.0, np.sqrt(0.5))
