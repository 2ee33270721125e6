"""Poisson regression with log link: counts y with mean exp(u).

The tilted moments come from `quadrature`; the mode of the tilted density is in closed form, `u = m + v y - w`
with `w = W(v exp(m + v y))`, Lambert's W, which also equals `v exp(u)`. Because `exp(u) p(y | u) = (y + 1)
p(y + 1 | u)`, the weight of the likelihood's derivatives sits at the modes for the counts y + 1 and y + 2;
they are given to the quadrature as well, since they may lie many cavity standard deviations away.

All of this holds for every real y >= 0, with Gamma(y + 1) in the place of y!. Where targets are no counts
(rates, averages) it is a quasi-likelihood: the score y - exp(u) is right, the spread is the mean by decree.
"""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
from jax.scipy.special import gammaln
from jax.typing import ArrayLike

from dpsep.models.base import Predictive, Tilted
from dpsep.models.quadrature import Rule, Terms, tilted_moments

_BENDS = (0.005, 0.05, 0.5, 2.0, 6.0, 15.0, 40.0)


@dataclass(frozen=True)
class PoissonLikelihood:
    """Counts y = 0, 1, 2, ... with mean exp(u), or other targets y >= 0 by quasi-likelihood.

    Attributes
    ----------
    rule
        Quadrature rule: `"robust"` for every cavity, `"fast"` for predictor variances up to about 1.

    Examples
    --------
    >>> t = PoissonLikelihood().tilted(0.0, 1e-12, 2.0)      # hardly any spread: log of e^-1 / 2!
    >>> round(float(t.log_z), 4)
    -1.6931
    """

    rule: Rule = "robust"
    curvature_guess: float = 1.0

    def tilted(self, mean: ArrayLike, variance: ArrayLike, y: ArrayLike) -> Tilted:
        """Tilted moments for cavity moments of the predictor, elementwise."""
        dtype = jnp.result_type(mean, variance, y, 1.0)
        mean, variance, y = jnp.broadcast_arrays(*(jnp.asarray(part, dtype) for part in (mean, variance, y)))
        cap = 80.0 if dtype == jnp.float32 else 700.0
        constant = gammaln(y + 1.0)

        def terms(u: jax.Array) -> Terms:
            extra = u.ndim - y.ndim
            counts = y.reshape(y.shape + (1,) * extra)
            rate = jnp.exp(jnp.minimum(u, cap))
            return Terms(counts * u - rate - constant.reshape(counts.shape), counts - rate, -rate)

        modes = tuple(_mode(mean, variance, y + more) for more in (0.0, 1.0, 2.0))
        knots = [jnp.log(y + bend) for bend in _BENDS]
        return tilted_moments(terms, mean, variance, modes, knots, self.rule)

    def predictive(self, mean: ArrayLike, variance: ArrayLike) -> Predictive:
        """Mean and variance of the count, in closed form."""
        variance = jnp.asarray(variance)
        rate = jnp.exp(mean + 0.5 * variance)
        return Predictive(rate, rate + rate**2 * jnp.expm1(variance))

    def log_predictive(self, mean: ArrayLike, variance: ArrayLike, y: ArrayLike) -> jax.Array:
        """Log probability of the count y."""
        return self.tilted(mean, variance, y).log_z

    def sample(self, key: jax.Array, u: ArrayLike) -> jax.Array:
        """Draw counts given the predictor."""
        u = jnp.asarray(u)
        return jax.random.poisson(key, jnp.exp(u)).astype(u.dtype)

    def log_likelihood(self, u: ArrayLike, y: ArrayLike) -> jax.Array:
        """Log probability of the count y given the predictor."""
        return jnp.asarray(y) * u - jnp.exp(u) - gammaln(jnp.asarray(y) + 1.0)

    def valid(self, y: ArrayLike) -> jax.Array:
        """Whether y is finite and not negative."""
        y = jnp.asarray(y)
        return jnp.isfinite(y) & (y >= 0)


def lambert_of_exp(z: ArrayLike) -> jax.Array:
    """Lambert's W of exp(z): the solution of `w + log w = z`, for every real z without overflow.

    Examples
    --------
    >>> round(float(lambert_of_exp(1.0)), 6)
    1.0
    """
    z = jnp.asarray(z)
    # exp(z) far below 0, z - log z far above, and a curve between: close enough for four Newton steps in log
    # w.
    low, high = jnp.exp(jnp.minimum(z, 0.0)), z - jnp.log(jnp.maximum(z, 2.0))
    middle = 0.25 + 0.65 * jnp.exp(jnp.clip(0.4 * z, -1.0, 1.0))
    start = jnp.where(z <= -1.0, low, jnp.where(z > 2.0, high, middle))

    def newton(_: int, log_w: jax.Array) -> jax.Array:
        w = jnp.exp(log_w)
        return log_w - (w + log_w - z) / (1.0 + w)

    tiny = jnp.finfo(start.dtype).tiny
    log_w = jax.lax.fori_loop(0, 4, newton, jnp.log(jnp.maximum(start, tiny)))
    return jnp.exp(log_w)


def _mode(mean: jax.Array, variance: jax.Array, y: jax.Array) -> jax.Array:
    """Mode of N(u; m, v) exp(y u - exp(u))."""
    safe = jnp.where(variance > 0, variance, 1.0)
    log_variance = jnp.log(safe)
    w = jnp.where(variance > 0, lambert_of_exp(log_variance + mean + variance * y), 0.0)
    # Two forms of one number: the difference cancels when w is large, the logarithm fails when w is 0.
    return jnp.where(w > 1.0, jnp.log(jnp.maximum(w, 1.0)) - log_variance, mean + variance * y - w)
