r"""Peers of the survey: AdaSSP with intervals, and diffprivlib's regressions, which say none.

AdaSSP (Wang 2018) is as in `dpsep_lab.bench.peers`, with two changes that favour it: its releases share one
mu of the Gaussian trade-off, and a fourth release, of y'y, says the noise of the target. Its interval is
added here. With G = X'X and E, z the noise, theta = (G + E + lambda I)^{-1} (X'y + z) has the error

    theta - theta* = A (X'e + z - E theta* - lambda theta*),    A = (G + E + lambda I)^{-1},

so that its covariance is A (s^2 G + sd^2 (I + |theta|^2 I + theta theta' - diag(theta^2))) A; the ridge's
pull is left in, as its users have it.

**Privacy.** Add or remove one record, by the Gaussian trade-off of four releases of sensitivity one. Made
data and NumPy's noise: nothing here is for release. diffprivlib: pure epsilon, its own claims.
"""

import math

import numpy as np
from numpy.typing import NDArray
from scipy.stats import norm

from dpsep.privacy.gaussian import gaussian_mu
from dpsep_lab.bench.honesty.cells import Cell
from dpsep_lab.bench.honesty.floor import DELTA
from dpsep_lab.bench.honesty.targets import TARGET_BOUND, Absent, Table
from dpsep_lab.bench.peers import Unit, functional_linear, logistic_objective

__all__ = ["adassp_interval", "fit"]

Array = NDArray[np.float64]


def fit(cell: Cell, table: Table, rng: np.random.Generator) -> tuple[Array, Array | None]:
    """Fit a peer; return its estimate and its covariance, None where it says none, in units of the table."""
    assert cell.epsilon is not None
    unit = Unit(table.low, table.high)
    X = unit(table.X)
    bound = TARGET_BOUND * table.widened
    if cell.who == "adassp":
        mean, covariance = adassp_interval(X, np.clip(table.y / bound, -1, 1), cell.epsilon, DELTA, rng=rng)
        back = bound * _back(table)
        return back @ mean, back @ covariance @ back.T
    try:
        if cell.target == "linear":
            return bound * _back(table) @ functional_linear(
                X, np.clip(table.y / bound, -1, 1), cell.epsilon
            ), None
        weights = logistic_objective(X, table.y, cell.epsilon, math.sqrt(X.shape[1]))
        return _back(table) @ weights, None
    except ImportError as error:
        raise Absent(f"diffprivlib cannot be imported: {error}") from error


def _back(table: Table) -> Array:
    """Map of weights of columns on [-1, 1], the intercept first, to units of the table."""
    half, middle = (table.high - table.low) / 2, (table.high + table.low) / 2
    out = np.diag(np.concatenate([[1.0], 1 / half]))
    out[0, 1:] = -middle / half
    return out


def adassp_interval(
    X: Array, y: Array, epsilon: float, delta: float, *, rng: np.random.Generator, rho: float = 0.05
) -> tuple[Array, Array]:
    """Return AdaSSP's weights and their covariance, the intercept first, for columns and target within one.

    Parameters
    ----------
    X, y
        Scaled by public numbers.
    epsilon, delta
        The budget of all four releases.
    rng
        Source of the noise.
    rho
        Probability with which the ridge may be too small.
    """
    size = math.sqrt(X.shape[1] + 1)
    A = np.column_stack([np.ones(len(X)), X]) / size
    d = A.shape[1]
    sd = 2 / gaussian_mu(epsilon, delta)
    gram = A.T @ A
    upper = np.triu(rng.standard_normal((d, d)))
    noisy = gram + sd * (upper + np.triu(upper, 1).T)
    cross = A.T @ y + sd * rng.standard_normal(d)
    squares = float(y @ y + sd * rng.standard_normal())
    smallest = np.linalg.eigvalsh(gram)[0] + sd * (rng.standard_normal() + norm.ppf(rho))
    ridge = max(0.0, sd * math.sqrt(d * math.log(2 * d**2 / rho)) - max(smallest, 0.0))
    inverse = np.linalg.inv(noisy + ridge * np.eye(d))
    theta = inverse @ cross
    variance = max((squares - 2 * theta @ cross + theta @ noisy @ theta) / len(y), 1e-6)
    values, vectors = np.linalg.eigh(noisy)
    positive = (vectors * np.maximum(values, 0.0)) @ vectors.T
    added = (1 + theta @ theta) * np.eye(d) + np.outer(theta, theta) - np.diag(theta**2)
    covariance = inverse @ (variance * positive + sd**2 * added) @ inverse
    return theta / size, covariance / size**2
