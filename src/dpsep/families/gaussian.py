"""The Gaussian with full covariance, in natural parameters.

The density is `exp(eta . x - x' Lambda x / 2 - A)` with `Lambda` the precision and `eta = Lambda mean`. A
factor (as opposed to a density) may have any symmetric `Lambda`, also zero or indefinite; moments exist only
where `Lambda` is positive definite and are NaN elsewhere. `project` is step 10 of the paper's Algorithm 3.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.scipy.linalg import cho_solve, solve_triangular
from jax.typing import ArrayLike

LOG_2PI = 1.8378770664093453


class Gaussian(NamedTuple):
    """Gaussian by natural parameters; leading axes are batch axes.

    Attributes
    ----------
    eta
        Precision times mean, shape (..., d).
    precision
        Inverse covariance, symmetric, shape (..., d, d).

    Examples
    --------
    >>> q = Gaussian.from_moments(jnp.array([1.0, 2.0]), 0.5 * jnp.eye(2))
    >>> q.eta.round(3)
    Array([2., 4.], dtype=float32)
    """

    eta: jax.Array
    precision: jax.Array

    event_ndims = (1, 2)  # no annotation: a constant of the class, not a field

    @classmethod
    def from_moments(cls, mean: ArrayLike, covariance: ArrayLike) -> "Gaussian":
        """Gaussian with this mean (..., d) and covariance (..., d, d)."""
        precision = _inverse(jnp.asarray(covariance))
        return cls(jnp.einsum("...ij,...j->...i", precision, jnp.asarray(mean)), precision)

    @classmethod
    def isotropic(cls, dimension: int, precision: ArrayLike = 1.0) -> "Gaussian":
        """Zero-mean Gaussian with the same precision in every direction: the usual prior of weights."""
        matrix = jnp.asarray(precision) * jnp.eye(dimension)
        return cls(jnp.zeros(dimension, matrix.dtype), matrix)

    @property
    def mean(self) -> jax.Array:
        """Mean, shape (..., d)."""
        return cho_solve((self._cholesky, True), self.eta[..., None])[..., 0]

    @property
    def covariance(self) -> jax.Array:
        """Covariance, shape (..., d, d)."""
        return _inverse(self.precision)

    @property
    def variance(self) -> jax.Array:
        """Diagonal of the covariance, shape (..., d)."""
        return jnp.diagonal(self.covariance, axis1=-2, axis2=-1)

    @property
    def log_partition(self) -> jax.Array:
        """Log of the integral of `exp(eta . x - x' Lambda x / 2)`."""
        factor = self._cholesky
        scaled = solve_triangular(factor, self.eta[..., None], lower=True)[..., 0]
        dimension = self.eta.shape[-1]
        return 0.5 * (jnp.sum(scaled**2, -1) - _log_determinant(factor) + dimension * LOG_2PI)

    @property
    def entropy(self) -> jax.Array:
        """Differential entropy in nats."""
        return 0.5 * (self.eta.shape[-1] * (1.0 + LOG_2PI) - _log_determinant(self._cholesky))

    @property
    def is_proper(self) -> jax.Array:
        """Whether this is a density: finite, with a positive definite precision."""
        finite = jnp.all(jnp.isfinite(self.eta), -1)
        return finite & jnp.all(jnp.isfinite(self._cholesky), (-2, -1))

    def log_density(self, x: ArrayLike) -> jax.Array:
        """Log density at `x`, shape (..., d)."""
        factor = self._cholesky
        scaled = jnp.einsum("...ji,...j->...i", factor, jnp.asarray(x) - self.mean)
        dimension = self.eta.shape[-1]
        return 0.5 * (_log_determinant(factor) - jnp.sum(scaled**2, -1) - dimension * LOG_2PI)

    def kl(self, other: "Gaussian") -> jax.Array:
        """Kullback-Leibler divergence KL(self || other) in nats."""
        own, theirs = self._cholesky, other._cholesky
        # Tr(Lambda_q Lambda_p^-1) = |L_p^-1 L_q|_F^2: a sum of squares, so it cannot turn negative by
        # rounding.
        ratio = solve_triangular(own, theirs, lower=True)
        shift = jnp.einsum("...ji,...j->...i", theirs, self.mean - other.mean)
        trace = jnp.sum(ratio**2, (-2, -1)) - self.eta.shape[-1]
        return 0.5 * (trace + jnp.sum(shift**2, -1) + _log_determinant(own) - _log_determinant(theirs))

    def sample(self, key: jax.Array, shape: tuple[int, ...] = ()) -> jax.Array:
        """Draw `shape` samples for each batch entry: shape + (..., d)."""
        noise = jax.random.normal(key, (*shape, *self.eta.shape), self.eta.dtype)
        factor = jnp.broadcast_to(self._cholesky, (*shape, *self.precision.shape))
        return self.mean + solve_triangular(factor, noise[..., None], lower=True, trans=1)[..., 0]

    def project(self, floor: ArrayLike) -> "Gaussian":
        """Raise the eigenvalues of the precision that are below `floor` to `floor`; leave the others.

        Where no eigenvalue is below, the input comes back bit for bit.
        """
        values, vectors = jnp.linalg.eigh(self.precision)
        floor = jnp.asarray(floor, values.dtype)
        lift = jnp.maximum(floor - values, 0.0)
        raised = self.precision + jnp.einsum("...ik,...k,...jk->...ij", vectors, lift, vectors)
        below = jnp.any(values < floor, -1)[..., None, None]
        return Gaussian(self.eta, jnp.where(below, raised, self.precision))

    @property
    def _cholesky(self) -> jax.Array:
        return jnp.linalg.cholesky(self.precision)


def _inverse(matrix: jax.Array) -> jax.Array:
    """Inverse of a symmetric positive definite matrix, exactly symmetric."""
    identity = jnp.broadcast_to(jnp.eye(matrix.shape[-1], dtype=matrix.dtype), matrix.shape)
    half = solve_triangular(jnp.linalg.cholesky(matrix), identity, lower=True)
    return jnp.einsum("...ki,...kj->...ij", half, half)


def _log_determinant(cholesky: jax.Array) -> jax.Array:
    return 2.0 * jnp.sum(jnp.log(jnp.diagonal(cholesky, axis1=-2, axis2=-1)), -1)
