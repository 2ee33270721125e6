"""The Gamma distribution in natural parameters, and the inverse of `log a - digamma(a)`.

The density is `t^(a-1) exp(-b t)` over `t > 0`, up to its constant: shape `a`, rate `b`; the natural
parameters are stored as `(a - 1, b)`, so that the factor that is constant 1 is `(0, 0)` as in every other
family. Matching the sufficient statistics `(t, log t)` means solving `log a - digamma(a) = c`; Minka
("Estimating a Gamma distribution", 2002) gives the starting point, four Newton steps in log-log coordinates,
where the curve is nearly a line, do the rest.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.scipy.special import digamma, gammaln
from jax.typing import ArrayLike

# log a - digamma(a) ~ 1/(2a) - sum_k c_k a^(-2k) (Bernoulli numbers B_2k / 2k, with the sign taken in).
_SERIES = (1 / 12, -1 / 120, 1 / 252, -1 / 240, 1 / 132, -691 / 32760)
_SHIFT = 12


class Gamma(NamedTuple):
    """Gamma distribution by natural parameters; every axis is a batch axis.

    Attributes
    ----------
    shape_minus_one
        Shape a, less one.
    rate
        Rate b.

    Examples
    --------
    >>> noise = Gamma.from_moments(2.0, 0.5)
    >>> float(noise.shape), float(noise.rate)
    (8.0, 4.0)
    """

    shape_minus_one: jax.Array
    rate: jax.Array

    event_ndims = (0, 0)  # no annotation: a constant of the class, not a field

    @classmethod
    def from_shape_and_rate(cls, shape: ArrayLike, rate: ArrayLike) -> "Gamma":
        """Gamma with this shape and rate."""
        return cls(jnp.asarray(shape) - 1.0, jnp.asarray(rate) * 1.0)

    @classmethod
    def from_moments(cls, mean: ArrayLike, variance: ArrayLike) -> "Gamma":
        """Gamma with this mean and variance."""
        rate = jnp.asarray(mean) / jnp.asarray(variance)
        return cls(jnp.asarray(mean) * rate - 1.0, rate)

    @classmethod
    def from_mean_and_mean_log(cls, mean: ArrayLike, mean_log: ArrayLike) -> "Gamma":
        """Gamma with this mean and this mean of the logarithm: exact exponential-family matching.

        By Jensen's inequality `log(mean) > mean_log`; otherwise no such Gamma exists and the result is NaN.
        """
        shape = inverse_log_minus_digamma(jnp.log(mean) - jnp.asarray(mean_log))
        return cls(shape - 1.0, shape / jnp.asarray(mean))

    @property
    def shape(self) -> jax.Array:
        """Shape a."""
        return self.shape_minus_one + 1.0

    @property
    def mean(self) -> jax.Array:
        """Mean a / b."""
        return self.shape / self.rate

    @property
    def variance(self) -> jax.Array:
        """Variance a / b^2."""
        return self.shape / self.rate**2

    @property
    def mean_log(self) -> jax.Array:
        """Mean of the logarithm, digamma(a) - log b."""
        return digamma(self.shape) - jnp.log(self.rate)

    @property
    def log_partition(self) -> jax.Array:
        """Log of the integral of `t^(a-1) exp(-b t)`."""
        return gammaln(self.shape) - self.shape * jnp.log(self.rate)

    @property
    def entropy(self) -> jax.Array:
        """Differential entropy in nats."""
        shape = self.shape
        return shape - jnp.log(self.rate) + gammaln(shape) + (1.0 - shape) * digamma(shape)

    @property
    def is_proper(self) -> jax.Array:
        """Whether this is a density: finite, with positive shape and rate."""
        shape = self.shape
        return jnp.isfinite(shape) & jnp.isfinite(self.rate) & (shape > 0) & (self.rate > 0)

    def log_density(self, x: ArrayLike) -> jax.Array:
        """Log density at `x > 0`."""
        return self.shape_minus_one * jnp.log(x) - self.rate * jnp.asarray(x) - self.log_partition

    def kl(self, other: "Gamma") -> jax.Array:
        """Kullback-Leibler divergence KL(self || other) in nats."""
        own, theirs = self.shape, other.shape
        log_ratio = jnp.log(self.rate) - jnp.log(other.rate)
        shapes = (own - theirs) * digamma(own) - gammaln(own) + gammaln(theirs)
        return shapes + theirs * log_ratio + own * (other.rate - self.rate) / self.rate

    def sample(self, key: jax.Array, shape: tuple[int, ...] = ()) -> jax.Array:
        """Draw `shape` samples for each batch entry."""
        own = jnp.broadcast_to(self.shape, (*shape, *jnp.shape(self.shape_minus_one)))
        return jax.random.gamma(key, own) / self.rate

    def project(self, floor: ArrayLike) -> "Gamma":
        """Raise shape and rate to at least `floor`; what is not below stays bit for bit."""
        floor = jnp.asarray(floor, jnp.result_type(self.rate))
        return Gamma(jnp.maximum(self.shape_minus_one, floor - 1.0), jnp.maximum(self.rate, floor))


def log_minus_digamma(a: ArrayLike) -> jax.Array:
    """`log a - digamma(a)` for `a > 0`, without the cancellation of computing the two terms.

    Below `a = 12` the recurrence of digamma moves the argument up, above it the asymptotic series is exact to
    rounding.

    Examples
    --------
    >>> bool(abs(log_minus_digamma(1.0) - 0.5772157) < 1e-6)   # Euler's constant
    True
    """
    a = jnp.asarray(a)
    a = a.astype(jnp.promote_types(a.dtype, jnp.float32))
    small = a < _SHIFT
    low = jnp.where(small, a, 1.0)
    high = jnp.where(small, low + _SHIFT, a)
    inverse = 1.0 / high
    square = inverse**2
    tail = jnp.zeros_like(high)
    for coefficient in reversed(_SERIES):
        tail = square * (coefficient + tail)
    steps = sum(1.0 / (low + i) for i in range(_SHIFT))
    return 0.5 * inverse + tail + jnp.where(small, steps - jnp.log1p(_SHIFT / low), 0.0)


def inverse_log_minus_digamma(c: ArrayLike) -> jax.Array:
    """Solve `log a - digamma(a) = c` for `a`; NaN where `c` is not positive.

    Examples
    --------
    >>> bool(abs(inverse_log_minus_digamma(log_minus_digamma(7.0)) - 7.0) < 1e-5)
    True
    """
    c = jnp.asarray(c)
    c = c.astype(jnp.promote_types(c.dtype, jnp.float32))
    positive = c > 0
    c = jnp.where(positive, c, 1.0)
    root = jnp.sqrt((c - 3.0) ** 2 + 24.0 * c)
    start = jnp.where(c < 3.0, (3.0 - c + root) / (12.0 * c), 2.0 / (c - 3.0 + root))

    def newton(_: int, log_a: jax.Array) -> jax.Array:
        a = jnp.exp(log_a)
        value, slope = jax.jvp(log_minus_digamma, (a,), (jnp.ones_like(a),))
        return log_a - jnp.log(value / c) * value / (a * slope)

    log_a = jax.lax.fori_loop(0, 4, newton, jnp.log(start))
    return jnp.where(positive, jnp.exp(log_a), jnp.nan)


def shape_increment(a: ArrayLike, difference: ArrayLike) -> jax.Array:
    """Solve `h(a + x) - h(a) = difference` for x, with `h(a) = log a - digamma(a)`.

    For large a the increment x is of size one while h changes by x / (2 a^2): neither the difference of the
    two values of h nor that of the two shapes is ever taken.

    Examples
    --------
    >>> round(float(shape_increment(1e5, -2.5e-11)), 3)            # - x / (2 a^2)
    0.5
    """
    a, difference = jnp.asarray(a), jnp.asarray(difference)
    # The tangent starts a small step, the inverse function a large one.
    start = inverse_log_minus_digamma(log_minus_digamma(a) + difference)
    linear = difference / jax.jvp(log_minus_digamma, (a,), (jnp.ones_like(a),))[1]
    x = jnp.where(jnp.abs(linear) < 0.01 * a, linear, start - a)

    def newton(_: int, x: jax.Array) -> jax.Array:
        slope = jax.jvp(log_minus_digamma, (a + x,), (jnp.ones_like(a),))[1]
        return x - (_rise(a, x) - difference) / slope

    return jax.lax.fori_loop(0, 4, newton, x)


def _rise(a: jax.Array, x: jax.Array) -> jax.Array:
    """`h(a + x) - h(a)`, term by term of the asymptotic series where both arguments are large."""
    new = a + x
    large = (a >= _SHIFT) & (new >= _SHIFT)
    before, after = 1.0 / jnp.where(large, a, _SHIFT), 1.0 / jnp.where(large, new, _SHIFT)
    step = jnp.where(large, -x * before * after, 0.0)  # 1 / (a + x) - 1 / a
    p, q = before**2, after**2
    # p^k - q^k = (p - q) (sum of mixed powers): with the sums by recurrence, the difference stays in front.
    total, mixed, power = jnp.zeros_like(step), jnp.ones_like(step), p
    for coefficient in _SERIES:
        total = total + coefficient * mixed
        mixed, power = mixed * q + power, power * p
    series = step * (0.5 + (before + after) * total)
    return jnp.where(large, series, log_minus_digamma(new) - log_minus_digamma(a))
