"""The Gaussian with independent coordinates, in natural parameters.

The same density as `Gaussian` with a diagonal precision, stored as its diagonal: `exp(eta . x - sum lambda
x^2 / 2 - A)`. It is the family of the paper's network experiments, where a full precision would not fit.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from dpsep.families.gaussian import LOG_2PI


class DiagonalGaussian(NamedTuple):
    """Gaussian with independent coordinates by natural parameters; leading axes are batch axes.

    Attributes
    ----------
    eta
        Precision times mean, shape (..., d).
    precision
        Inverse variances, shape (..., d).

    Examples
    --------
    >>> q = DiagonalGaussian.from_moments(jnp.array([1.0, 2.0]), jnp.array([0.5, 0.25]))
    >>> q.eta
    Array([2., 8.], dtype=float32)
    """

    eta: jax.Array
    precision: jax.Array

    event_ndims = (1, 1)  # no annotation: a constant of the class, not a field

    @classmethod
    def from_moments(cls, mean: ArrayLike, variance: ArrayLike) -> "DiagonalGaussian":
        """Gaussian with these means and variances, both (..., d)."""
        mean, precision = jnp.broadcast_arrays(jnp.asarray(mean), 1.0 / jnp.asarray(variance))
        return cls(precision * mean, precision)

    @classmethod
    def isotropic(cls, dimension: int, precision: ArrayLike = 1.0) -> "DiagonalGaussian":
        """Zero-mean Gaussian with the same precision in every direction: the usual prior of weights."""
        diagonal = jnp.asarray(precision) * jnp.ones(dimension)
        return cls(jnp.zeros_like(diagonal), diagonal)

    @property
    def mean(self) -> jax.Array:
        """Mean, shape (..., d)."""
        return self.eta / self.precision

    @property
    def variance(self) -> jax.Array:
        """Variances, shape (..., d)."""
        return 1.0 / self.precision

    @property
    def covariance(self) -> jax.Array:
        """Covariance as a full matrix, shape (..., d, d)."""
        return self.variance[..., None] * jnp.eye(self.eta.shape[-1], dtype=self.precision.dtype)

    @property
    def log_partition(self) -> jax.Array:
        """Log of the integral of `exp(eta . x - sum lambda x^2 / 2)`."""
        return 0.5 * jnp.sum(self.eta**2 / self.precision - jnp.log(self.precision) + LOG_2PI, -1)

    @property
    def entropy(self) -> jax.Array:
        """Differential entropy in nats."""
        return 0.5 * jnp.sum(1.0 + LOG_2PI - jnp.log(self.precision), -1)

    @property
    def is_proper(self) -> jax.Array:
        """Whether this is a density: finite, with positive precisions."""
        good = jnp.isfinite(self.eta) & jnp.isfinite(self.precision) & (self.precision > 0)
        return jnp.all(good, -1)

    def log_density(self, x: ArrayLike) -> jax.Array:
        """Log density at `x`, shape (..., d)."""
        square = self.precision * (jnp.asarray(x) - self.mean) ** 2
        return 0.5 * jnp.sum(jnp.log(self.precision) - square - LOG_2PI, -1)

    def kl(self, other: "DiagonalGaussian") -> jax.Array:
        """Kullback-Leibler divergence KL(self || other) in nats."""
        excess = (other.precision - self.precision) / self.precision  # ratio - 1, without rounding near 0
        shift = other.precision * (self.mean - other.mean) ** 2
        return 0.5 * jnp.sum(excess - jnp.log1p(excess) + shift, -1)

    def sample(self, key: jax.Array, shape: tuple[int, ...] = ()) -> jax.Array:
        """Draw `shape` samples for each batch entry: shape + (..., d)."""
        noise = jax.random.normal(key, (*shape, *self.eta.shape), self.eta.dtype)
        return self.mean + noise / jnp.sqrt(self.precision)

    def project(self, floor: ArrayLike) -> "DiagonalGaussian":
        """Raise the precisions that are below `floor` to `floor`; the others stay bit for bit."""
        return DiagonalGaussian(
            self.eta, jnp.maximum(self.precision, jnp.asarray(floor, self.precision.dtype))
        )
