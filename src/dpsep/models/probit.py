"""Probit regression: labels y in {-1, +1} with P(y | u) = Phi(y u); every tilted moment is in closed form.

With `z = y m / sqrt(1 + v)` the normaliser is `Phi(z)`, and everything else follows from the inverse Mills
ratio `r = phi(z) / Phi(z)`: `g = y r / sqrt(1 + v)`, `s = r (r + z) / (1 + v)` (Rasmussen and Williams,
Gaussian Processes for Machine Learning, section 3.6). For z far below zero `r + z` cancels; there the
continued fraction of the Mills ratio (Laplace 1805) gives `r + z` and `1 - r (r + z)` as products of positive
numbers, so they keep their digits.
"""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from dpsep.families.gaussian import LOG_2PI
from dpsep.models.base import At, Predictive, Response, Tilted, Unit, slope_of

# By bytes of the number: where the continued fraction takes over from erfc, and its depth for all digits.
_TAIL = {4: (-2.0, 24), 8: (-4.0, 30)}
_SQRT_HALF = 0.7071067811865476


@dataclass(frozen=True)
class ProbitLikelihood:
    """Labels -1 and +1 with P(y | u) = Phi(y u).

    Examples
    --------
    >>> t = ProbitLikelihood().tilted(0.0, 1.0, 1.0)
    >>> round(float(t.gradient), 4)          # phi(0) / Phi(0) / sqrt(2)
    0.5642
    """

    curvature_guess: float = 0.6

    def tilted(self, mean: ArrayLike, variance: ArrayLike, y: ArrayLike) -> Tilted:
        """Tilted moments for cavity moments of the predictor, elementwise."""
        variance, y = jnp.asarray(variance), jnp.asarray(y)
        total = 1.0 + variance
        z = y * mean / jnp.sqrt(total)
        ratio, excess, spread = mills(z)
        return Tilted(
            log_z=log_ndtr(z),
            gradient=y * ratio / jnp.sqrt(total),
            curvature=ratio * excess / total,
            shrinkage=(1.0 + variance * spread) / total,
        )

    def response(self, mean: ArrayLike, variance: ArrayLike, y: ArrayLike, at: At) -> Response:
        """The mean part and precision of the local factor, bounded by the larger ones of both labels."""
        y = jnp.asarray(y)
        down, up = (self.tilted(mean, variance, label) for label in (-1.0, 1.0))
        slopes = slope_of(down, at.offset), slope_of(up, at.offset)
        curvatures = down.curvature / down.shrinkage, up.curvature / up.shrinkage
        slope = jnp.where(jnp.isfinite(y), jnp.where(y > 0, *slopes[::-1]), jnp.nan)
        curvature = jnp.where(y > 0, *curvatures[::-1])
        return Response(
            slope, jnp.maximum(*(jnp.abs(part) for part in slopes)), curvature, jnp.maximum(*curvatures)
        )

    def steepest(self, cut: float) -> float:
        """Least at zero, where it is largest: of either label."""
        del cut
        return 1.0

    def unit(self, predictor: float, at: At) -> Unit:
        """One, and the guess of the curvature."""
        del predictor, at
        return Unit(1.0, self.curvature_guess)

    def probability(self, mean: ArrayLike, variance: ArrayLike) -> jax.Array:
        """Probability of the label +1."""
        z = jnp.asarray(mean) / jnp.sqrt(1.0 + jnp.asarray(variance))
        return 0.5 * jax.lax.erfc(-_SQRT_HALF * z)

    def predictive(self, mean: ArrayLike, variance: ArrayLike) -> Predictive:
        """Mean and variance of the label, coded -1 and +1."""
        z = jnp.asarray(mean) / jnp.sqrt(1.0 + jnp.asarray(variance))
        up, down = 0.5 * jax.lax.erfc(-_SQRT_HALF * z), 0.5 * jax.lax.erfc(_SQRT_HALF * z)
        return Predictive(up - down, 4.0 * up * down)

    def log_predictive(self, mean: ArrayLike, variance: ArrayLike, y: ArrayLike) -> jax.Array:
        """Log probability of the label y."""
        return log_ndtr(jnp.asarray(y) * mean / jnp.sqrt(1.0 + jnp.asarray(variance)))

    def sample(self, key: jax.Array, u: ArrayLike) -> jax.Array:
        """Draw labels given the predictor."""
        u = jnp.asarray(u)
        return jnp.where(jax.random.normal(key, u.shape, u.dtype) < u, 1.0, -1.0).astype(u.dtype)

    def log_likelihood(self, u: ArrayLike, y: ArrayLike) -> jax.Array:
        """Log probability of the label y given the predictor."""
        return log_ndtr(jnp.asarray(y) * u)

    def valid(self, y: ArrayLike) -> jax.Array:
        """Whether y is -1 or +1."""
        return jnp.abs(jnp.asarray(y)) == 1


def mills(z: ArrayLike) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Inverse Mills ratio r = phi(z) / Phi(z), then r + z and 1 - r (r + z), each to full relative precision.

    The last is the variance of a standard normal known to exceed -z. With x = -z, the continued fraction is r
    = x + c, c = 1 / (x + 2 d), d = 1 / (x + 3 / (x + 4 / ...)); then r + z = c and 1 - r (r + z) = c (2 d -
    c).
    """
    z = _floating(z)
    tail = _TAIL[z.dtype.itemsize][0]
    far = z < tail
    c, d = _continued_fraction(jnp.where(far, -z, -tail))
    near = jnp.where(far, 0.0, z)
    direct = jnp.exp(-0.5 * near * near - 0.5 * LOG_2PI - _log_ndtr_near(near))
    ratio = jnp.where(far, c - z, direct)
    excess = jnp.where(far, c, direct + near)
    spread = jnp.where(far, c * (2.0 * d - c), 1.0 - direct * (direct + near))
    return ratio, excess, spread


@jax.custom_jvp
def log_ndtr(z: ArrayLike) -> jax.Array:
    """Log of the standard normal distribution function, to full relative precision on both sides.

    Examples
    --------
    >>> round(float(log_ndtr(-1000.0)), 1)
    -500007.8
    """
    z = _floating(z)
    start = _TAIL[z.dtype.itemsize][0]
    far = z < start
    x = jnp.where(far, -z, -start)
    c, _ = _continued_fraction(x)
    tail = -0.5 * x * x - 0.5 * LOG_2PI - jnp.log(x + c)
    return jnp.where(far, tail, _log_ndtr_near(jnp.where(far, 0.0, z)))


@log_ndtr.defjvp
def _log_ndtr_jvp(primals: tuple, tangents: tuple) -> tuple[jax.Array, jax.Array]:
    (z,), (dz,) = primals, tangents
    return log_ndtr(z), mills(z)[0] * dz


def _floating(z: ArrayLike) -> jax.Array:
    z = jnp.asarray(z)
    return z.astype(jnp.promote_types(z.dtype, jnp.float32))


def _log_ndtr_near(z: jax.Array) -> jax.Array:
    """Log Phi where z is not far below 0: the smaller of the two tails is the one computed."""
    tail = 0.5 * jax.lax.erfc(_SQRT_HALF * jnp.abs(z))
    return jnp.where(z > 0, jnp.log1p(-tail), jnp.log(tail))


def _continued_fraction(x: jax.Array) -> tuple[jax.Array, jax.Array]:
    d = x
    for level in range(_TAIL[x.dtype.itemsize][1], 2, -1):
        d = x + level / d
    d = 1.0 / d
    return 1.0 / (x + 2.0 * d), d
