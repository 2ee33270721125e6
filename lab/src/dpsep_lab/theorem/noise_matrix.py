"""The noise of a released precision: its draws, its variance statistic and how far its norm reaches.

`E` is symmetric with independent N(0, sigma_2^2) entries on and above the diagonal (Definition 4.2 of the
paper). It is the series `sigma_2 sum_k g_k B_k` with independent standard normals `g_k` and the matrices
`B_k` that have ones at (i, j) and (j, i) and zeros elsewhere.

Contract: every tail is an upper bound that holds for each dimension and each scale. Two arguments give it.

1. Matrix Gaussian series (Tropp 2015, theorem 4.6.1): with `v = |E[E^2]|`, the mean of the largest eigenvalue
   is at most `sqrt(2 v log d)` and `P(lambda_max >= u) <= d exp(-u^2 / (2 v))`.
2. Concentration. `lambda_max` is convex, and Lipschitz in the `g_k` with constant `L`, where `L^2` is the
   largest variance of `u' E u` over unit vectors: `sigma_2^2 (2 - sum_i u_i^4) <= sigma_2^2 (2 - 1/d)`. By
   Gaussian isoperimetry it exceeds its median by `x` with probability at most `Q(x / L)`, `Q` the normal
   upper tail, and the median of a convex function of a Gaussian vector is at most its mean (Kwapien 1994).

The mean is also at most `2 sigma_2 E|g|` with `g` standard normal in d dimensions. With twice the variance on
the diagonal that is the comparison of Sudakov and Fernique with the process `2 sigma_2 g.u`, as `4 (1 - c^2)
<= 8 (1 - c)` for the inner product `c` of two unit vectors; and `E` is the conditional expectation of that
matrix given its off-diagonal part and half of its diagonal, so Jensen's inequality carries the bound over. A
union of the two signs makes each a bound for the norm. At d = 1 the second argument is exact.
"""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import ArrayLike
from scipy.special import erfc, gammaln

Array = np.ndarray


def variance_statistic(dimension: int, sigma_2: float) -> float:
    """Variance statistic `v(E) = |E[E^2]| = d sigma_2^2` of the noise matrix.

    For i < j the square of `B_k` has ones at (i, i) and (j, j), and for i = j one at (i, i). In the sum over
    all k each place on the diagonal is met d - 1 times by the first kind and once by the second: `sum_k B_k^2
    = d I`.

    Examples
    --------
    >>> variance_statistic(4, 0.5)
    1.0
    """
    return _dimension(dimension) * _scale(sigma_2) ** 2


def second_moment(matrix: ArrayLike, sigma_2: float) -> Array:
    """Mean of `E M E` for a fixed symmetric M: `sigma_2^2 (M + Tr(M) I - diag(M))`.

    It follows from `E[E_ij E_kl] = sigma_2^2 (d_ik d_jl + d_il d_jk - d_ijkl)`, where the last term stands
    for the diagonal, whose variance is sigma_2^2 and not twice that.

    Examples
    --------
    >>> second_moment(np.eye(3), 1.0).diagonal()
    array([3., 3., 3.])
    """
    fixed = np.asarray(matrix, np.float64)
    if fixed.ndim != 2 or fixed.shape[0] != fixed.shape[1]:
        raise ValueError(f"matrix has shape {fixed.shape}; it must be square")
    diagonal = np.diag(fixed)
    return _scale(sigma_2) ** 2 * (fixed + np.diag(diagonal.sum() - diagonal))


def series_variance(covariance: ArrayLike, sigma_2: float) -> float:
    """Variance statistic `|E[P^2]|` of the whitened noise `P = S^(1/2) E S^(1/2)`.

    Examples
    --------
    >>> series_variance(np.eye(4), 0.5)
    1.0
    """
    values, vectors = np.linalg.eigh(np.asarray(covariance, np.float64))
    half = vectors * np.sqrt(np.maximum(values, 0.0))
    inner = half.T @ second_moment(covariance, sigma_2) @ half
    return float(np.linalg.eigvalsh(inner)[-1])


def mean_bound(dimension: int, sigma_2: float) -> float:
    """Upper bound of the mean of `lambda_max(E)`: the smaller of `sqrt(2 v log d)` and `2 sigma_2 E|g|`.

    Examples
    --------
    >>> mean_bound(1, 1.0)
    0.0
    """
    d = _dimension(dimension)
    length = np.sqrt(2.0) * np.exp(gammaln((d + 1) / 2) - gammaln(d / 2))
    return float(_scale(sigma_2) * min(np.sqrt(2.0 * d * np.log(d)), 2.0 * length))


def tail(dimension: int, sigma_2: float, threshold: ArrayLike) -> Array:
    """Upper bound of `P(|E| >= threshold)`, elementwise; exact at d = 1.

    Examples
    --------
    >>> bool(tail(3, 1.0, 0.0) == 1.0), bool(tail(3, 1.0, 8.0) < 1e-4)
    (True, True)
    """
    d, u = _dimension(dimension), np.asarray(threshold, np.float64)
    spread = _scale(sigma_2) * np.sqrt(2.0 - 1.0 / d)
    return _tail(d, variance_statistic(d, sigma_2), mean_bound(d, sigma_2), spread, u)


def whitened_tail(covariance: ArrayLike, sigma_2: float, threshold: ArrayLike) -> Array:
    """Upper bound of `P(|P| >= threshold)` for `P = S^(1/2) E S^(1/2)`, elementwise.

    The same two arguments with the statistic of P; its Lipschitz constant is at most |S| times that of E. As
    `|P| <= |S| |E|`, the tail of E at `threshold / |S|` is a third bound.

    Examples
    --------
    >>> bool(whitened_tail(np.diag([1.0, 1e-6]), 0.1, 0.5) < 1e-2)
    True
    """
    matrix, t = np.asarray(covariance, np.float64), np.asarray(threshold, np.float64)
    d = matrix.shape[0]
    norm = float(np.linalg.eigvalsh(matrix)[-1])
    variance = series_variance(matrix, sigma_2)
    spread = norm * sigma_2 * np.sqrt(2.0 - 1.0 / d)
    own = _tail(d, variance, np.sqrt(2.0 * variance * np.log(d)), spread, t)
    return np.minimum(own, tail(d, sigma_2, t / norm))


def noise_draws(dimension: int, sigma_2: float, pairs: int, seed: int = 0) -> Array:
    """Draws of the noise matrix in antithetic pairs (E, -E), shape (pairs, 2, d, d), float64.

    Examples
    --------
    >>> draws = noise_draws(3, 0.1, pairs=5)
    >>> draws.shape, bool((draws[:, 0] == -draws[:, 1]).all())
    ((5, 2, 3, 3), True)
    """
    with jax.enable_x64(True):
        half = np.asarray(standard_draws(jax.random.key(seed), _dimension(dimension), pairs))
    return _scale(sigma_2) * np.stack([half, -half], 1)


@partial(jax.jit, static_argnums=(1, 2))
def standard_draws(key: jax.Array, dimension: int, count: int) -> jax.Array:
    """Symmetric matrices with independent standard normals on and above the diagonal, shape (count, d, d)."""
    normal = jax.random.normal(key, (count, dimension, dimension), jnp.float64)
    return jnp.triu(normal) + jnp.swapaxes(jnp.triu(normal, 1), -1, -2)


def _tail(d: int, variance: float, mean: float, spread: float, u: Array) -> Array:
    if spread == 0.0:
        return np.where(u > 0.0, 0.0, 1.0)
    # A square that overflows is an exponent of minus infinity, which is the right one.
    with np.errstate(over="ignore"):
        series = 2.0 * d * np.exp(-np.square(u) / (2.0 * variance))
    concentrated = erfc(np.maximum(u - mean, 0.0) / (np.sqrt(2.0) * spread))
    return np.minimum(np.minimum(series, concentrated), 1.0)


def _dimension(dimension: int) -> int:
    if dimension < 1:
        raise ValueError(f"dimension is {dimension}; it must be at least 1")
    return int(dimension)


def _scale(sigma_2: float) -> float:
    if not 0.0 <= sigma_2 < np.inf:
        raise ValueError(f"sigma_2 is {sigma_2}; it must be a finite number, zero or above")
    return float(sigma_2)
