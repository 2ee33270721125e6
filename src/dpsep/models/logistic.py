"""Logistic regression: labels y in {-1, +1} with P(y | u) = 1 / (1 + exp(-y u)).

The tilted moments have no closed form and come from `quadrature`. By symmetry only y = +1 is computed, at the
cavity mean times y. The mode of the tilted density solves `u = m + v sigma(-u)`; `sigma(-u) <= min(1,
exp(-u))` bounds it from above by `m + v` and by `m + W(v exp(-m))` (Lambert's W), and from below by m.
"""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from dpsep.models.base import At, Predictive, Response, Tilted, Unit, slope_of
from dpsep.models.poisson import lambert_of_exp
from dpsep.models.quadrature import Rule, Terms, tilted_moments

_KNOTS = (-36.0, -18.0, -10.0, -5.0, -2.0, 0.0, 2.0, 5.0, 10.0, 18.0, 36.0)


@dataclass(frozen=True)
class LogisticLikelihood:
    """Labels -1 and +1 with P(y | u) = 1 / (1 + exp(-y u)).

    Attributes
    ----------
    rule
        Quadrature rule: `"robust"` for every cavity, `"fast"` for predictor variances up to about 1.

    Examples
    --------
    >>> t = LogisticLikelihood().tilted(0.0, 1.0, 1.0)
    >>> round(float(jnp.exp(t.log_z)), 4)
    0.5
    """

    rule: Rule = "robust"
    curvature_guess: float = 0.2

    def tilted(self, mean: ArrayLike, variance: ArrayLike, y: ArrayLike) -> Tilted:
        """Tilted moments for cavity moments of the predictor, elementwise."""
        mean, variance, y = _together(mean, variance, y)
        mean = mean * y
        mode = _mode(mean, variance)
        # On the flat side l' falls like exp(-u), on the straight side l'' falls like exp(u): their weight
        # sits at one more v towards the bend, or at the bend.
        flat = jnp.maximum(mean - variance, jnp.minimum(mean, 0.0))
        straight = jnp.minimum(mode + variance, jnp.maximum(mode, 0.0))
        modes = (mode, flat, straight)
        result = tilted_moments(_terms, mean, variance, modes, _KNOTS, self.rule)
        return result._replace(gradient=result.gradient * y)

    def response(self, mean: ArrayLike, variance: ArrayLike, y: ArrayLike, at: At) -> Response:
        """The mean part and precision of the local factor.

        Its mean part is bounded by max(p, 1 - p), p the chance of a label at the mean: exact at variance
        zero, and by at most 0.6 % too little below variance one.
        """
        chance = jax.nn.sigmoid(jnp.asarray(mean))
        tilted = self.tilted(mean, variance, y)
        bound, size = 1.006 * jnp.maximum(chance, 1.0 - chance), chance * (1.0 - chance)
        return Response(slope_of(tilted, at.offset), bound, tilted.curvature / tilted.shrinkage, size)

    def steepest(self, cut: float) -> float:
        """p (1 - p) over max(p, 1 - p)^2."""
        del cut
        return 1.0

    def unit(self, predictor: float, at: At) -> Unit:
        """One, and the guess of the curvature."""
        del predictor, at
        return Unit(1.0, self.curvature_guess)

    def probability(self, mean: ArrayLike, variance: ArrayLike) -> jax.Array:
        """Probability of the label +1."""
        return jnp.exp(self.log_predictive(mean, variance, 1.0))

    def predictive(self, mean: ArrayLike, variance: ArrayLike) -> Predictive:
        """Mean and variance of the label, coded -1 and +1."""
        up = jnp.exp(self.log_predictive(mean, variance, 1.0))
        down = jnp.exp(self.log_predictive(mean, variance, -1.0))
        return Predictive(up - down, 4.0 * up * down)

    def log_predictive(self, mean: ArrayLike, variance: ArrayLike, y: ArrayLike) -> jax.Array:
        """Log probability of the label y."""
        return self.tilted(mean, variance, y).log_z

    def sample(self, key: jax.Array, u: ArrayLike) -> jax.Array:
        """Draw labels given the predictor."""
        u = jnp.asarray(u)
        return jnp.where(jax.random.logistic(key, u.shape, u.dtype) < u, 1.0, -1.0).astype(u.dtype)

    def log_likelihood(self, u: ArrayLike, y: ArrayLike) -> jax.Array:
        """Log probability of the label y given the predictor."""
        return jax.nn.log_sigmoid(jnp.asarray(y) * u)

    def valid(self, y: ArrayLike) -> jax.Array:
        """Whether y is -1 or +1."""
        return jnp.abs(jnp.asarray(y)) == 1


def _together(mean: ArrayLike, variance: ArrayLike, y: ArrayLike) -> tuple[jax.Array, ...]:
    dtype = jnp.result_type(mean, variance, y, 1.0)
    return tuple(jnp.broadcast_arrays(*(jnp.asarray(part, dtype) for part in (mean, variance, y))))


def _terms(u: jax.Array) -> Terms:
    small = jnp.exp(-jnp.abs(u))
    inner, outer = 1.0 / (1.0 + small), small / (1.0 + small)
    value = jnp.minimum(u, 0.0) - jnp.log1p(small)
    return Terms(value, jnp.where(u > 0, outer, inner), -inner * outer)


def _mode(mean: jax.Array, variance: jax.Array) -> jax.Array:
    """Solve u = m + v sigma(-u) by Newton's method inside a shrinking bracket, a fixed number of steps."""
    log_variance = jnp.log(jnp.where(variance > 0, variance, 1.0))
    lambert = jnp.where(variance > 0, lambert_of_exp(log_variance - mean), 0.0)
    high = mean + jnp.minimum(variance, lambert)

    def step(_: int, carry: tuple[jax.Array, jax.Array, jax.Array]) -> tuple[jax.Array, ...]:
        u, low, high = carry
        terms = _terms(u)
        residual = u - mean - variance * terms.first
        low, high = jnp.where(residual < 0, u, low), jnp.where(residual > 0, u, high)
        proposal = u - residual / (1.0 - variance * terms.second)
        inside = (proposal >= low) & (proposal <= high)
        return jnp.where(inside, proposal, 0.5 * (low + high)), low, high

    return jax.lax.fori_loop(0, 10, step, (high, mean, high))[0]
