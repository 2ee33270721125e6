"""Linear regression: outcomes y with density N(y; u, 1 / tau), the noise precision known or learned.

With known noise the tilted moments are in closed form: the normaliser is N(y; m, v + 1 / tau), and the
local factor on the predictor is the likelihood itself, `(tau, tau y)`, whatever the cavity. With learned
noise the posterior is q(w) q(tau), a Gaussian and a Gamma (the paper's network experiments and
probabilistic backpropagation, Hernandez-Lobato and Adams 2015, use the same family); here its moments are
matched exactly, by one integral over log tau.
"""

import math
from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.scipy.special import gammaln
from jax.typing import ArrayLike

from dpsep.families import Gamma, Gaussian
from dpsep.families.gamma import shape_increment
from dpsep.families.gaussian import LOG_2PI
from dpsep.models.base import (
    At,
    Predictive,
    Response,
    Tilted,
    Unit,
    cut_response,
    predictor_moments,
    site,
    slope_of,
    unit_of,
)
from dpsep.models.quadrature import panels

_NOISE_MULTIPLES = (-9.0, -4.5, -2.0, 0.0, 2.0, 4.5, 9.0)


@dataclass(frozen=True)
class GaussianLikelihood:
    """Outcomes y with mean u and known noise precision.

    Attributes
    ----------
    noise_precision
        Inverse noise variance, a positive number.

    Examples
    --------
    >>> t = GaussianLikelihood(1.0).tilted(0.0, 1.0, 2.0)
    >>> float(t.gradient), float(t.curvature), float(t.shrinkage)
    (1.0, 0.5, 0.5)
    """

    noise_precision: float = 1.0

    def __post_init__(self) -> None:
        """Refuse a precision that is not a positive number."""
        if not (math.isfinite(self.noise_precision) and self.noise_precision > 0):
            raise ValueError(
                f"noise_precision is {self.noise_precision}; it must be a positive finite number, "
                "the inverse of the noise variance"
            )

    @property
    def curvature_guess(self) -> float:
        """The noise precision: exact for a cavity that is narrow next to the noise."""
        return self.noise_precision

    def tilted(self, mean: ArrayLike, variance: ArrayLike, y: ArrayLike) -> Tilted:
        """Tilted moments for cavity moments of the predictor, elementwise."""
        variance = jnp.asarray(variance)
        total = 1.0 + variance * self.noise_precision
        curvature = self.noise_precision / total
        gradient = (jnp.asarray(y) - mean) * curvature
        return Tilted(self.log_predictive(mean, variance, y), gradient, curvature, 1.0 / total)

    def response(self, mean: ArrayLike, variance: ArrayLike, y: ArrayLike, at: At) -> Response:
        """The score, cut on either side: errors are symmetric."""
        slope = slope_of(self.tilted(mean, variance, y), at.offset)
        bound = jnp.asarray(at.cut * math.sqrt(self.noise_precision))
        return cut_response(slope, bound, jnp.asarray(self.noise_precision))

    def steepest(self, cut: float) -> float:
        """Variance tau of a score over the square of its bound, cut sqrt(tau)."""
        return 1.0 / cut**2

    def unit(self, predictor: float, at: At) -> Unit:
        """The same at every predictor."""
        return unit_of(self, predictor, at)._replace(length=math.inf)

    def predictive(self, mean: ArrayLike, variance: ArrayLike) -> Predictive:
        """Mean and variance of y, elementwise."""
        return Predictive(jnp.asarray(mean), jnp.asarray(variance) + 1.0 / self.noise_precision)

    def log_predictive(self, mean: ArrayLike, variance: ArrayLike, y: ArrayLike) -> jax.Array:
        """Log density of y."""
        total = jnp.asarray(variance) + 1.0 / self.noise_precision
        return -0.5 * ((jnp.asarray(y) - mean) ** 2 / total + jnp.log(total) + LOG_2PI)

    def sample(self, key: jax.Array, u: ArrayLike) -> jax.Array:
        """Draw y given the predictor."""
        u = jnp.asarray(u)
        return u + jax.random.normal(key, u.shape, u.dtype) * self.noise_precision**-0.5

    def log_likelihood(self, u: ArrayLike, y: ArrayLike) -> jax.Array:
        """Log density of y given the predictor."""
        square = self.noise_precision * (jnp.asarray(y) - u) ** 2
        return 0.5 * (math.log(self.noise_precision) - square - LOG_2PI)

    def valid(self, y: ArrayLike) -> jax.Array:
        """Whether y is finite."""
        return jnp.isfinite(jnp.asarray(y))


class WeightsAndNoise(NamedTuple):
    """Posterior, cavity or factor of weights and noise precision, independent of each other.

    Attributes
    ----------
    weights
        Natural parameters of the weights.
    noise
        Natural parameters of the noise precision.
    """

    weights: Gaussian
    noise: Gamma

    @property
    def is_proper(self) -> jax.Array:
        """Whether both parts are densities."""
        return self.weights.is_proper & self.noise.is_proper

    def project(self, floor: ArrayLike) -> "WeightsAndNoise":
        """Both parts raised to `floor` where they are below."""
        return WeightsAndNoise(self.weights.project(floor), self.noise.project(floor))


@dataclass(frozen=True)
class LearnedNoise:
    """Linear regression in which the noise precision tau is learned: q(w) q(tau), records `(x, y)`.

    With the predictor N(m, v) and tau Gamma(a, b) under the cavity, the predictor integrates out in closed
    form, N(y; m, v + 1 / tau), and one integral over log tau is left.

    Examples
    --------
    >>> tilted, factor = LearnedNoise().tilted(0.0, 0.0, Gamma.from_shape_and_rate(5.0, 5.0), 2.0)
    >>> float(factor.shape_minus_one), float(factor.rate)          # exactly 1/2 and (y - m)^2 / 2
    (0.5, 2.0)
    """

    @property
    def curvature_guess(self) -> float:
        """Noise precision of a target with half the scale of its bounds."""
        return 4.0

    def tilted(
        self, mean: ArrayLike, variance: ArrayLike, noise: Gamma, y: ArrayLike
    ) -> tuple[Tilted, Gamma]:
        """Tilted moments of the predictor, and the local factor on the noise precision.

        The factor matches E[tau] and E[log tau] exactly. It is a difference of numbers of size a, so it is
        never computed as one: the tilted density is compared with `Gamma(a + 1/2, b + r^2 / 2)`, which it
        equals at v = 0, and only the small increments from there are solved for. The likelihood is not
        log-concave in u (it is Student's t), so the curvature may be negative where y is an outlier.
        """
        dtype = jnp.result_type(mean, variance, y, noise.rate, 1.0)
        parts = (mean, variance, noise.shape, noise.rate, y)
        mean, variance, shape, rate, y = jnp.broadcast_arrays(*(jnp.asarray(part, dtype) for part in parts))
        square = (y - mean) ** 2
        reference = Gamma(shape - 0.5, rate + 0.5 * square)
        offsets, log_base, weights = _noise_grid(shape, rate, square, variance, reference)
        spread = variance[..., None] * reference.mean[..., None] * jnp.exp(offsets)  # v tau
        # N(y; m, v + 1/tau) over N(y; m, 1/tau): identically 1 at v = 0, where nothing is left to solve.
        share = spread / (1.0 + spread)
        gain = 0.5 * square[..., None] * reference.mean[..., None] * jnp.exp(offsets) * share
        log_ratio = gain - 0.5 * jnp.log1p(spread)
        base = _normalise(log_base, weights)
        target = _normalise(log_base + log_ratio, weights)
        increment = _gamma_increment(reference, offsets, _moved(base, target, log_ratio))
        factor = Gamma(0.5 + increment.shape_minus_one, 0.5 * square + increment.rate)
        mixed = _scale_mixture(target, share, spread, y - mean, variance, reference.mean, offsets)
        log_z = _log_sum(log_base + log_ratio, weights) - _log_sum(log_base, weights)
        log_z = log_z + student(shape, rate, square)
        return Tilted(log_z, *mixed), factor

    def steepest(self, cut: float) -> float:
        """Variance tau of a score over the square of its bound, at least cut sqrt(tau)."""
        return 1.0 / cut**2

    def noise_unit(self, precision: float, cut: float, doubt: float, widest: float) -> Unit:
        """Bound and curvature of a score at a noise precision, for an average doubt about the predictor."""
        wide = max(min(cut * math.sqrt(1.0 / precision + doubt), widest), cut / math.sqrt(precision))
        return Unit(precision * wide, precision, length=math.inf)

    def noise_clip(self, cut: float) -> float:
        """Clip of the noise's part of a release: half the square of a residual, cut at `cut` deviations."""
        return 0.5 + 0.55 * cut**2

    def noise_ratio(self, square: float, cut: float) -> float:
        """Variance of the noise over the one that a release was made with.

        Parameters
        ----------
        square
            Average of the squared residuals in units of that one, each cut at `cut` deviations.
        cut
            As given.

        Examples
        --------
        >>> round(LearnedNoise().noise_ratio(0.995, 3.0), 3), round(LearnedNoise().noise_ratio(2.0, 20.0), 3)
        (1.0, 2.0)
        """
        beyond = 0.5 * math.erfc(cut / math.sqrt(2.0))
        density = math.exp(-0.5 * cut**2) / math.sqrt(2.0 * math.pi)
        # E min(z^2, cut^2) of a standard normal z.
        return square / (1.0 - 2.0 * beyond - 2.0 * cut * density + 2.0 * cut**2 * beyond)

    def response(
        self, mean: ArrayLike, variance: ArrayLike, noise: Gamma, y: ArrayLike, at: At
    ) -> tuple[Response, Gamma]:
        """The score, cut on either side, and the local factor on the noise precision of the cut residual.

        The cut is so many standard deviations of what is known of the outcome, or where residuals end.
        """
        tau = noise.mean
        mean, y = jnp.asarray(mean), jnp.asarray(y)
        narrow = at.cut * jnp.sqrt(variance + 1.0 / tau)
        wide = jnp.minimum(at.cut * jnp.sqrt(at.doubt + 1.0 / tau), at.widest)
        wide = jnp.maximum(narrow, wide)
        tilted, _ = self.tilted(mean, variance, noise, mean + jnp.clip(y - mean, -wide, wide))
        _, factor = self.tilted(mean, variance, noise, mean + jnp.clip(y - mean, -narrow, narrow))
        return cut_response(slope_of(tilted, at.offset), wide * tau, jnp.asarray(tau)), factor

    def local_factor(self, cavity: WeightsAndNoise, record: tuple[ArrayLike, ArrayLike]) -> WeightsAndNoise:
        """Tilted minus cavity in natural parameters, for one record `(x, y)`."""
        x, y = jnp.asarray(record[0]), jnp.asarray(record[1])
        mean, variance = predictor_moments(cavity.weights, x)
        tilted, noise = self.tilted(mean, variance, cavity.noise, y)
        scalars = site(tilted, mean, variance)
        weights = Gaussian(scalars.mean_part * x, scalars.precision * x[:, None] * x[None, :])
        return WeightsAndNoise(weights, noise)

    def predictive(self, mean: ArrayLike, variance: ArrayLike, noise: Gamma) -> Predictive:
        """Mean and variance of y; the variance is infinite for a noise shape of at most 1."""
        excess = noise.shape_minus_one
        noise_variance = jnp.where(excess > 0, noise.rate / jnp.where(excess > 0, excess, 1.0), jnp.inf)
        return Predictive(jnp.asarray(mean), jnp.asarray(variance) + noise_variance)

    def log_predictive(self, mean: ArrayLike, variance: ArrayLike, noise: Gamma, y: ArrayLike) -> jax.Array:
        """Log density of y."""
        return self.tilted(mean, variance, noise, y)[0].log_z

    def valid(self, y: ArrayLike) -> jax.Array:
        """Whether y is finite."""
        return jnp.isfinite(jnp.asarray(y))


def _noise_grid(
    shape: jax.Array, rate: jax.Array, square: jax.Array, variance: jax.Array, reference: Gamma
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Nodes in log(tau / reference mean), log reference density there, and panel weights.

    Panels follow the widths of the two extremes between which the tilted density lies, the cavity (v large)
    and the reference (v = 0), and the bend of the likelihood at tau = 1 / v. In log tau a Gamma of shape a
    has log density `a (l - exp(l))`: width a^-1/2 near the mode, slope a on the left, a double exponential
    on the right.
    """
    centre = jnp.log(reference.mean)
    points = []
    for mode, a in ((jnp.zeros_like(centre), reference.shape), (jnp.log(shape / rate) - centre, shape)):
        width = jax.lax.rsqrt(a)
        points += [mode + multiple * width for multiple in _NOISE_MULTIPLES]
        points += [mode - 45.0 / a - 9.0 * width, mode - 12.0 / a, mode - 4.0 / a]
        points += [mode + jnp.log1p(45.0 / a + 9.0 * width)]
    low = jnp.min(jnp.stack(points, -1), -1)
    high = jnp.max(jnp.stack(points, -1), -1)
    bend = -jnp.log(jnp.where(variance > 0, variance, 1.0)) - centre
    points += [low + fraction * (high - low) for fraction in (0.2, 0.4, 0.6, 0.8)]
    points += [jnp.clip(bend + shift, low, high) for shift in (-4.0, -1.5, 0.0, 1.5, 4.0)]
    offsets, weights = panels(jnp.sort(jnp.stack(points, -1), -1))
    # a (l - expm1(l)) is the log density relative to its peak: zero there, without large numbers to cancel.
    log_base = -reference.shape[..., None] * _expm1_minus(offsets)
    return offsets, log_base, weights


def _moved(base: jax.Array, target: jax.Array, log_ratio: jax.Array) -> jax.Array:
    """Target weights less base weights: exactly zero where their ratio is 1, however the compiler rounds."""
    mild = jnp.max(jnp.abs(log_ratio), -1, keepdims=True) < 50.0
    excess = jnp.expm1(jnp.where(mild, log_ratio, 0.0))
    mean = jnp.sum(base * excess, -1, keepdims=True)
    return jnp.where(mild, base * (excess - mean) / (1.0 + mean), target - base)


def _gamma_increment(reference: Gamma, offsets: jax.Array, moved: jax.Array) -> Gamma:
    """Natural parameters of the matched Gamma, less those of the reference.

    With rho = tau / (reference mean): d1 = E_target[rho] - 1 and D = (h of the match) - h(a), where h(a) =
    log a - digamma(a) = E[rho - 1 - log rho] under the reference. D = log(1 + d1) - d1 + (difference of
    E[rho - 1 - log rho]); both are small quantities computed as such.
    """
    shape = reference.shape
    d1 = jnp.sum(moved * jnp.expm1(offsets), -1)
    change = jnp.sum(moved * _expm1_minus(offsets), -1)
    difference = change - _minus_log1p(d1)
    gain = shape_increment(shape, difference)
    return Gamma(gain, reference.rate * (gain / shape - d1) / (1.0 + d1))


def _scale_mixture(
    target: jax.Array,
    share: jax.Array,
    spread: jax.Array,
    residual: jax.Array,
    variance: jax.Array,
    scale: jax.Array,
    offsets: jax.Array,
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Gradient, curvature and shrinkage of a Gaussian of uncertain precision k = tau / (1 + v tau)."""
    k = scale[..., None] * jnp.exp(offsets) / (1.0 + spread)
    mean_k = jnp.sum(target * k, -1)
    jitter = residual**2 * jnp.sum(target * (k - mean_k[..., None]) ** 2, -1)
    # 1 - v E[k] = E[1 / (1 + v tau)]: a sum of positive terms.
    shrinkage = jnp.sum(target * (1.0 - share), -1) + variance * jitter
    return residual * mean_k, mean_k - jitter, shrinkage


def student(shape: jax.Array, rate: jax.Array, square: jax.Array) -> jax.Array:
    """Log normaliser at v = 0: Student's t with 2 a degrees of freedom."""
    # lgamma(a + 1/2) - lgamma(a) by its own series where the two are large.
    inverse = 1.0 / jnp.maximum(shape, 50.0)
    series = 0.5 * jnp.log(shape) - inverse * (1 / 8 - inverse**2 * (1 / 192 - inverse**2 / 640))
    step = jnp.where(shape > 50.0, series, gammaln(shape + 0.5) - gammaln(shape))
    constant = step - 0.5 * (jnp.log(rate) + LOG_2PI)
    return constant - (shape + 0.5) * jnp.log1p(0.5 * square / rate)


def _normalise(log_density: jax.Array, weights: jax.Array) -> jax.Array:
    mass = weights * jnp.exp(log_density - jnp.max(log_density, -1, keepdims=True))
    return mass / jnp.sum(mass, -1, keepdims=True)


def _log_sum(log_density: jax.Array, weights: jax.Array) -> jax.Array:
    top = jnp.max(log_density, -1)
    return top + jnp.log(jnp.sum(weights * jnp.exp(log_density - top[..., None]), -1))


def _expm1_minus(x: jax.Array) -> jax.Array:
    """exp(x) - 1 - x without cancellation near 0."""
    small = jnp.abs(x) < 0.3
    inner = jnp.where(small, x, 0.0)
    series = jnp.ones_like(inner)
    for k in range(14, 2, -1):
        series = 1.0 + series * inner / k
    return jnp.where(small, 0.5 * inner**2 * series, jnp.expm1(x) - x)


def _minus_log1p(x: jax.Array) -> jax.Array:
    """x - log(1 + x) without cancellation near 0, through exp: with l = log(1 + x) it is exp(l) - 1 - l."""
    return _expm1_minus(jnp.log1p(x))
