"""Several independent Gaussians with full covariance as one density, in natural parameters.

The posterior of the component means of a mixture, `q = prod_j N(mu_j; m_j, V_j)`: the family of the paper's
first experiment. All components together are one event, so that the norm, the clip and the flat vector of a
factor run over all of them. Each component by itself is a `Gaussian`.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from dpsep.families import small
from dpsep.families.gaussian import Gaussian


class GaussianSet(NamedTuple):
    """Independent Gaussians by natural parameters; axes before the components are batch axes.

    Attributes
    ----------
    eta
        Precision times mean of each component, shape (..., components, d).
    precision
        Inverse covariances, symmetric, shape (..., components, d, d).

    Examples
    --------
    >>> q = GaussianSet.from_moments(jnp.array([[1.0, 2.0], [3.0, 4.0]]), 0.25 * jnp.eye(2))
    >>> q.eta
    Array([[ 4.,  8.],
           [12., 16.]], dtype=float32)
    """

    eta: jax.Array
    precision: jax.Array

    event_ndims = (2, 3)  # no annotation: constants of the class, not fields
    symmetric = (False, True)

    @classmethod
    def from_moments(cls, mean: ArrayLike, covariance: ArrayLike) -> "GaussianSet":
        """Gaussians with these means (..., components, d) and covariances (..., components, d, d).

        One covariance (d, d) is taken for every component.
        """
        mean, covariance = jnp.asarray(mean), jnp.asarray(covariance)
        covariance = jnp.broadcast_to(covariance, (*mean.shape, mean.shape[-1]))
        return cls(*Gaussian.from_moments(mean, covariance))

    @classmethod
    def isotropic(cls, components: int, dimension: int, precision: ArrayLike = 1.0) -> "GaussianSet":
        """Zero-mean Gaussians with the same precision in every direction."""
        matrix = jnp.asarray(precision) * jnp.eye(dimension)
        matrix = jnp.broadcast_to(matrix, (components, dimension, dimension))
        return cls(jnp.zeros((components, dimension), matrix.dtype), matrix)

    @property
    def components(self) -> int:
        """Number of Gaussians."""
        return self.eta.shape[-2]

    @property
    def mean(self) -> jax.Array:
        """Means, shape (..., components, d)."""
        return self._each.mean

    @property
    def covariance(self) -> jax.Array:
        """Covariances, shape (..., components, d, d)."""
        return self._each.covariance

    @property
    def variance(self) -> jax.Array:
        """Diagonals of the covariances, shape (..., components, d)."""
        return self._each.variance

    @property
    def log_partition(self) -> jax.Array:
        """Log of the integral of the exponential of the sufficient statistics, over all components."""
        return jnp.sum(self._each.log_partition, -1)

    @property
    def entropy(self) -> jax.Array:
        """Differential entropy in nats, of all components together."""
        return jnp.sum(self._each.entropy, -1)

    @property
    def is_proper(self) -> jax.Array:
        """Whether this is a density: every component finite, with a positive definite precision."""
        finite = jnp.all(jnp.isfinite(self.eta), (-2, -1)) & jnp.all(
            jnp.isfinite(self.precision), (-3, -2, -1)
        )
        return finite & jnp.all(small.is_above(self.precision), -1)

    def log_density(self, x: ArrayLike) -> jax.Array:
        """Log density at `x`, one point for each component, shape (..., components, d)."""
        return jnp.sum(self._each.log_density(x), -1)

    def kl(self, other: "GaussianSet") -> jax.Array:
        """Kullback-Leibler divergence KL(self || other) in nats, summed over components."""
        return jnp.sum(self._each.kl(other._each), -1)

    def sample(self, key: jax.Array, shape: tuple[int, ...] = ()) -> jax.Array:
        """Draw `shape` samples for each batch entry: shape + (..., components, d)."""
        return self._each.sample(key, shape)

    def project(self, floor: ArrayLike) -> "GaussianSet":
        """Raise the eigenvalues of the precisions that are below `floor` to `floor`; leave the others.

        Pivots tell first whether any eigenvalue is low at all, as it seldom is; only then are eigenvalues
        computed. A component with none below comes back bit for bit.
        """
        precision = jax.lax.cond(
            jnp.all(small.is_above(self.precision, jnp.asarray(floor, self.precision.dtype))),
            lambda matrices: matrices,
            lambda matrices: Gaussian(self.eta, matrices).project(floor).precision,
            self.precision,
        )
        return GaussianSet(self.eta, precision)

    @property
    def _each(self) -> Gaussian:
        return Gaussian(self.eta, self.precision)
