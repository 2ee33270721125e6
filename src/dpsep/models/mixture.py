r"""The means of a mixture of Gaussians with known weights and noise: the model of the paper's Table 1.

A record x in R^d has density `sum_j w_j N(x; mu_j, s2 I)`; the weights w and the noise variance s2 are known,
the component means mu_j are not. Their posterior is `q = prod_j N(mu_j; m_j, V_j)`, a `GaussianSet`. Under a
cavity with moments (m_j, V_j) the record came from component j with probability

    r_j  proportional to  w_j N(x; m_j, S_j),    S_j = V_j + s2 I,

and with `d_j = x - m_j`, `k_j = V_j S_j^-1 d_j` the tilted mean is `m_j + r_j k_j` and the tilted covariance
`V_j - r_j V_j S_j^-1 V_j + r_j (1 - r_j) k_j k_j'`. The local factor is tilted minus cavity in natural
parameters. Inverting the tilted covariance and subtracting would lose the factor against a narrow cavity, so
the difference is taken by hand (Woodbury for the first two terms, Sherman and Morrison for the third; all of
these matrices commute). With `W_j = (s2 I + (1 - r_j) V_j)^-1`, `h_j = W_j d_j` and `c_j = r_j (1 - r_j)`

    precision   r_j W_j - c_j h_j h_j' / (1 + c_j h_j.k_j)
    eta         r_j W_j x - c_j (r_j h_j.k_j + h_j.m_j) h_j / (1 + c_j h_j.k_j),

where every matrix to be inverted is a sum of positive definite ones. With one component r = 1 and the factor
is `(x / s2, I / s2)`, whatever the cavity.
"""

import math
from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import logsumexp
from jax.typing import ArrayLike

from dpsep.families import GaussianSet, small
from dpsep.families.gaussian import LOG_2PI

_SLACK = 1e-6


@dataclass(frozen=True)
class KnownMixture:
    """Mixture of Gaussians of which only the component means are unknown; a record is x, shape (d,).

    Attributes
    ----------
    weights
        Probability of each component: positive, summing to one within 1e-6 (they are used exactly
        normalised). A tuple, so that the model is hashable and can be static under jit.
    variance
        Noise variance s2 of every coordinate, a positive number.

    Examples
    --------
    >>> model = KnownMixture((0.5, 0.5), 1.0)
    >>> q = GaussianSet.from_moments(jnp.array([[-9.0], [9.0]]), jnp.eye(1))
    >>> model.local_factor(q, jnp.array([10.0])).eta.round(3)      # all but surely of the second component
    Array([[ 0.],
           [10.]], dtype=float32)
    """

    weights: tuple[float, ...]
    variance: float

    def __post_init__(self) -> None:
        """Refuse weights that are no probabilities and a variance that is not positive."""
        weights = self.weights
        if not (isinstance(weights, tuple) and weights and all(0.0 < weight <= 1.0 for weight in weights)):
            raise ValueError(
                "weights must be a tuple of positive numbers, one for each component of the mixture; "
                "leave out components without weight"
            )
        if abs(math.fsum(weights) - 1.0) > _SLACK:
            raise ValueError(
                f"weights sum to {math.fsum(weights)}; they must sum to one: divide them by their sum"
            )
        _check_variance(self.variance)

    @property
    def components(self) -> int:
        """Number of components."""
        return len(self.weights)

    def local_factor(self, cavity: GaussianSet, record: ArrayLike) -> GaussianSet:
        """Tilted minus cavity in natural parameters, for one record (d,).

        A record with a cell that is not finite, or a cavity that is not a proper density, gives NaN.
        """
        x = _masked(jnp.asarray(record, cavity.eta.dtype))
        parts = self._evidence(cavity, x)
        mean, covariance, away = parts.mean, parts.covariance, x - parts.mean
        share, rest = _shares(parts.log_joint)
        narrowed = small.inverse(_add_noise(rest[..., None, None] * covariance, self.variance))
        pull = small.multiply(narrowed, away)
        kernel = small.dot(pull, small.multiply(covariance, parts.scaled))
        spread = share * rest
        spread = spread / (1.0 + spread * kernel)
        turn = spread * (share * kernel + small.dot(pull, mean))
        eta = share[..., None] * small.multiply(narrowed, x[..., None, :]) - turn[..., None] * pull
        outer = pull[..., :, None] * pull[..., None, :]
        precision = share[..., None, None] * narrowed - spread[..., None, None] * outer
        return GaussianSet(eta, precision)

    def responsibilities(self, posterior: GaussianSet, x: ArrayLike) -> jax.Array:
        """Probability of each component for each record (n, d), with the means integrated out: (n, J)."""
        return _shares(self._log_joint(posterior, x))[0]

    def log_predictive(self, posterior: GaussianSet, x: ArrayLike) -> jax.Array:
        """Log density of each new record (n, d), with the means integrated out: (n,)."""
        return logsumexp(self._log_joint(posterior, x), axis=-1)

    def valid(self, record: ArrayLike) -> jax.Array:
        """Whether every coordinate is finite."""
        return jnp.all(jnp.isfinite(jnp.asarray(record)), -1)

    def _log_joint(self, posterior: GaussianSet, x: ArrayLike) -> jax.Array:
        return self._evidence(posterior, _masked(jnp.asarray(x, posterior.eta.dtype))).log_joint

    def _evidence(self, q: GaussianSet, x: jax.Array) -> "_Evidence":
        if q.components != self.components:
            raise ValueError(
                f"the density has {q.components} components and the mixture {self.components} weights; "
                "give one weight for each component"
            )
        covariance = small.inverse(q.precision)
        mean = small.multiply(covariance, q.eta)
        away = x[..., None, :] - mean
        scaled, log_determinant = small.solve(_add_noise(covariance, self.variance), away)
        square = small.dot(away, scaled) + log_determinant + q.eta.shape[-1] * LOG_2PI
        log_weights = jnp.asarray(np.log(np.asarray(self.weights) / math.fsum(self.weights)), q.eta.dtype)
        return _Evidence(mean, covariance, scaled, log_weights - 0.5 * square)


class _Evidence(NamedTuple):
    """Moments of the components, `S^-1 (x - m)`, and log of weight times predictive density."""

    mean: jax.Array
    covariance: jax.Array
    scaled: jax.Array
    log_joint: jax.Array


def labelled_posterior(prior: GaussianSet, x: ArrayLike, labels: ArrayLike, variance: float) -> GaussianSet:
    """Exact posterior of the component means where the component of every record is known.

    Conjugate: each component's precision gains `n_j / s2` and its eta the sum of its records over s2.

    Parameters
    ----------
    prior
        Of the component means.
    x
        Records, shape (n, d).
    labels
        Component of each record, integers from 0 to components - 1, shape (n,).
    variance
        Noise variance s2.

    Examples
    --------
    >>> x, labels = jnp.array([[1.0], [2.0], [4.0]]), jnp.array([0, 1, 1])
    >>> labelled_posterior(GaussianSet.isotropic(2, 1), x, labels, 0.5).eta
    Array([[ 2.],
           [12.]], dtype=float32)
    """
    _check_variance(variance)
    labels = np.asarray(labels)
    if not np.issubdtype(labels.dtype, np.integer) or np.any((labels < 0) | (labels >= prior.components)):
        raise ValueError(f"labels must be integers from 0 to {prior.components - 1}, one for each record")
    dtype = prior.eta.dtype
    member = jnp.asarray(labels[:, None] == np.arange(prior.components), dtype)
    counts = jnp.sum(member, 0)[:, None, None]
    eta = prior.eta + member.T @ jnp.asarray(x, dtype) / variance
    return GaussianSet(eta, prior.precision + counts / variance * jnp.eye(eta.shape[-1], dtype=dtype))


def _check_variance(variance: float) -> None:
    if not (math.isfinite(variance) and variance > 0):
        raise ValueError(f"variance is {variance}; the noise variance must be a positive finite number")


def _masked(x: jax.Array) -> jax.Array:
    """Turn records with a cell that is not finite into NaN throughout."""
    return jnp.where(jnp.all(jnp.isfinite(x), -1, keepdims=True), x, jnp.nan)


def _add_noise(matrix: jax.Array, variance: float) -> jax.Array:
    return matrix + variance * jnp.eye(matrix.shape[-1], dtype=matrix.dtype)


def _shares(log_joint: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Probabilities of the components, and of all the others: their sum, not one less the first."""
    mass = jnp.exp(log_joint - jnp.max(log_joint, -1, keepdims=True))
    total = jnp.sum(mass, -1, keepdims=True)
    others = 1.0 - jnp.eye(log_joint.shape[-1], dtype=log_joint.dtype)
    return mass / total, small.multiply(others, mass) / total
