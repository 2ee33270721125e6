"""The mean of Gaussian records with known noise: the conjugate model in which every local factor is exact.

A record y in R^d has density N(y; mu, P^-1) with known precision P. As a function of mu this is a Gaussian
with natural parameters `(P y, P)` whatever the cavity, so expectation propagation, assumed density filtering
and stochastic expectation propagation all end at the same posterior in closed form.
"""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from dpsep.families import DiagonalGaussian, Gaussian
from dpsep.models.base import Predictive


@dataclass(frozen=True)
class GaussianMean:
    """Records y in R^d with unknown mean and known noise precision.

    Attributes
    ----------
    noise_precision
        A positive number, or a symmetric positive definite matrix as a tuple of rows (tuples are hashable, so
        that the model can be static under jit).

    Examples
    --------
    >>> model = GaussianMean(2.0)
    >>> model.local_factor(Gaussian.isotropic(2), jnp.array([1.0, 3.0])).eta
    Array([2., 6.], dtype=float32)
    """

    noise_precision: float | tuple[tuple[float, ...], ...] = 1.0

    def local_factor(
        self, cavity: Gaussian | DiagonalGaussian, record: ArrayLike
    ) -> Gaussian | DiagonalGaussian:
        """Tilted minus cavity in natural parameters, for one record (d,); the same for every cavity."""
        y = jnp.asarray(record)
        if isinstance(cavity, DiagonalGaussian):
            if not isinstance(self.noise_precision, (int, float)):
                raise TypeError(
                    "a noise precision matrix needs a Gaussian with full covariance; "
                    "give a number as noise_precision, or use families.Gaussian"
                )
            return DiagonalGaussian(self.noise_precision * y, jnp.full_like(y, self.noise_precision))
        precision = self.noise_matrix(y.shape[-1], y.dtype)
        return Gaussian(precision @ y, precision)

    def noise_matrix(self, dimension: int, dtype: jnp.dtype | None = None) -> jax.Array:
        """Noise precision as a matrix (d, d)."""
        matrix = jnp.asarray(self.noise_precision, dtype)
        return matrix * jnp.eye(dimension, dtype=dtype) if matrix.ndim == 0 else matrix

    def predictive(self, posterior: Gaussian | DiagonalGaussian) -> Predictive:
        """Mean and variance of each coordinate of a new record."""
        dimension = posterior.eta.shape[-1]
        noise = Gaussian(jnp.zeros(dimension), self.noise_matrix(dimension, posterior.eta.dtype))
        return Predictive(posterior.mean, posterior.variance + noise.variance)

    def valid(self, record: ArrayLike) -> jax.Array:
        """Whether every coordinate is finite."""
        return jnp.all(jnp.isfinite(jnp.asarray(record)), -1)
