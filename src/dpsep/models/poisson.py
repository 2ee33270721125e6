"""Poisson regression with log link: counts y with mean exp(u).

The tilted moments come from `quadrature`; the mode of the tilted density is in closed form, `u = m + v y - w`
with `w = W(v exp(m + v y))`, Lambert's W, which also equals `v exp(u)`. Because `exp(u) p(y | u) = (y + 1)
p(y + 1 | u)`, the weight of the likelihood's derivatives sits at the modes for the counts y + 1 and y + 2;
they are given to the quadrature as well, since they may lie many cavity standard deviations away.

All of this holds for every real y >= 0, with Gamma(y + 1) in the place of y!. Where targets are no counts
(rates, averages) it is a quasi-likelihood: the score y - exp(u) is right, the spread is the mean by decree.
"""

import math
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import betainc, gammaincc, gammaln
from jax.typing import ArrayLike
from numpy.typing import NDArray

from dpsep.models.base import At, Predictive, Response, Tilted, Unit, unit_of
from dpsep.models.quadrature import Rule, Terms, tilted_moments

LEAST_DISPERSION = 1e-9
"""Below, a count is a Poisson count to all digits that matter."""
_BENDS = (0.005, 0.05, 0.5, 2.0, 6.0, 15.0, 40.0)


class Dispersed:
    """Likelihoods of counts whose dispersion is learned in a private fit."""

    def couple(self, rates: NDArray[np.float64], dispersion: float, cut: float) -> "Coupling":
        """How scores and the dispersion of counts move each other, at rates and a dispersion."""
        raise NotImplementedError


@dataclass(frozen=True)
class PoissonLikelihood(Dispersed):
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

    def response(self, mean: ArrayLike, variance: ArrayLike, y: ArrayLike, at: At) -> Response:
        """Bounded score of a count; see `count_response`. Its curvature is that of the Poisson likelihood."""
        rate = jnp.exp(jnp.clip(jnp.asarray(mean) + 0.5 * variance, -80.0, 80.0))
        return count_response(rate, jnp.asarray(y), at)

    def steepest(self, cut: float) -> float:
        """Bounds are at least `cut` deviations: 1 / h less the mean, in `count_response`, is more."""
        return 1.0 / max(cut, 1.0) ** 2

    def couple(self, rates: NDArray[np.float64], dispersion: float, cut: float) -> "Coupling":
        """How scores and the dispersion of counts move each other."""
        return coupling(rates, dispersion, cut)

    def unit(self, predictor: float, at: At) -> Unit:
        """Of a target with this mean predictor."""
        return unit_of(self, predictor, at)

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

    def cdf(self, u: ArrayLike, y: ArrayLike) -> jax.Array:
        """Probability of a count up to y given the predictor."""
        counts = jnp.floor(jnp.asarray(y))
        return jnp.where(counts < 0, 0.0, gammaincc(jnp.maximum(counts, 0.0) + 1.0, jnp.exp(jnp.asarray(u))))

    def valid(self, y: ArrayLike) -> jax.Array:
        """Whether y is finite and not negative."""
        y = jnp.asarray(y)
        return jnp.isfinite(y) & (y >= 0)


@dataclass(frozen=True)
class NegativeBinomialLikelihood(Dispersed):
    """Counts y = 0, 1, 2, ... with mean mu = exp(u) and variance mu + dispersion mu^2.

    Attributes
    ----------
    dispersion
        A positive number; as it falls to zero counts become Poisson counts.

    Examples
    --------
    >>> t = NegativeBinomialLikelihood(0.5).tilted(0.0, 1e-12, 2.0)      # hardly any spread
    >>> round(float(jnp.exp(t.log_z)), 4), round(float(t.gradient), 4)
    (0.1481, 0.6667)
    """

    dispersion: float = 1.0

    curvature_guess = 0.5
    by_scores: ClassVar[bool] = True
    """Without privacy, too, it is fitted by exact sums of scores, which the dispersion is learned with."""

    def tilted(self, mean: ArrayLike, variance: ArrayLike, y: ArrayLike) -> Tilted:
        """Tilted moments for cavity moments of the predictor, elementwise."""
        dtype = jnp.result_type(mean, variance, y, 1.0)
        mean, variance, y = jnp.broadcast_arrays(*(jnp.asarray(part, dtype) for part in (mean, variance, y)))
        size, log_size = 1.0 / self.dispersion, -math.log(self.dispersion)

        def terms(u: jax.Array) -> Terms:
            counts = y.reshape(y.shape + (1,) * (u.ndim - y.ndim))
            chance = jax.nn.sigmoid(u - log_size)
            value = self.log_likelihood(u, counts)
            return Terms(value, counts - (counts + size) * chance, -(counts + size) * chance * (1.0 - chance))

        def mode(counts: jax.Array) -> jax.Array:
            """Newton's method from the mean, with steps of at most two; the density is log-concave."""
            u = mean
            for _ in range(40):
                chance = jax.nn.sigmoid(u - log_size)
                slope = variance * (counts - (counts + size) * chance) + mean - u
                bend = 1.0 + variance * (counts + size) * chance * (1.0 - chance)
                u = u + jnp.clip(slope / bend, -2.0, 2.0)
            return u

        modes = tuple(mode(y + more) for more in (0.0, 1.0, 2.0))
        knots = [jnp.log(y + bend) for bend in _BENDS]
        return tilted_moments(terms, mean, variance, modes, knots, "robust")

    def response(self, mean: ArrayLike, variance: ArrayLike, y: ArrayLike, at: At) -> Response:
        """Bounded score of a count; see `count_response`."""
        rate = jnp.exp(jnp.clip(jnp.asarray(mean) + 0.5 * variance, -80.0, 80.0))
        return count_response(rate, jnp.asarray(y), at, efficient=True)

    def steepest(self, cut: float) -> float:
        """Bounds are at least `cut` deviations: 1 / h less the mean, in `count_response`, is more."""
        return 1.0 / max(cut, 1.0) ** 2

    def couple(self, rates: NDArray[np.float64], dispersion: float, cut: float) -> "Coupling":
        """How scores and the dispersion of counts move each other."""
        return coupling(rates, dispersion, cut, efficient=True)

    def unit(self, predictor: float, at: At) -> Unit:
        """Of a target with this mean predictor."""
        return unit_of(self, predictor, at)

    def predictive(self, mean: ArrayLike, variance: ArrayLike) -> Predictive:
        """Mean and variance of the count, in closed form."""
        variance = jnp.asarray(variance)
        rate = jnp.exp(mean + 0.5 * variance)
        square = rate**2 * jnp.exp(variance)
        return Predictive(rate, rate + self.dispersion * square + rate**2 * jnp.expm1(variance))

    def log_predictive(self, mean: ArrayLike, variance: ArrayLike, y: ArrayLike) -> jax.Array:
        """Log probability of the count y."""
        return self.tilted(mean, variance, y).log_z

    def sample(self, key: jax.Array, u: ArrayLike) -> jax.Array:
        """Draw counts given the predictor."""
        u, size = jnp.asarray(u), 1.0 / self.dispersion
        one, other = jax.random.split(key)
        rate = jnp.exp(u) * jax.random.gamma(one, size, u.shape, u.dtype) / size
        return jax.random.poisson(other, rate).astype(u.dtype)

    def log_likelihood(self, u: ArrayLike, y: ArrayLike) -> jax.Array:
        """Log probability of the count y given the predictor."""
        u, y, size = jnp.asarray(u), jnp.asarray(y), 1.0 / self.dispersion
        constant = gammaln(y + size) - gammaln(size) - gammaln(y + 1.0)
        # log (mu / (mu + size)) and log (size / (mu + size))
        shifted = u + math.log(self.dispersion)
        return constant + y * jax.nn.log_sigmoid(shifted) + size * jax.nn.log_sigmoid(-shifted)

    def cdf(self, u: ArrayLike, y: ArrayLike) -> jax.Array:
        """Probability of a count up to y given the predictor."""
        chance = jax.nn.sigmoid(-jnp.asarray(u) - math.log(self.dispersion))
        counts = jnp.floor(jnp.asarray(y))
        found = betainc(1.0 / self.dispersion, jnp.maximum(counts, 0.0) + 1.0, chance)
        return jnp.where(counts < 0, 0.0, found)

    def valid(self, y: ArrayLike) -> jax.Array:
        """Whether y is finite and not negative."""
        y = jnp.asarray(y)
        return jnp.isfinite(y) & (y >= 0)


def count_response(rate: jax.Array, y: jax.Array, at: At, *, efficient: bool = False) -> Response:
    r"""Score of a count with a bound and mean zero, for every dispersion: soft instead of cut.

    A count with mean mu and variance mu + alpha mu^2 (negative binomial; Poisson at alpha = 0) has E z^y =
    (1 + alpha mu (1 - z))^(-1/alpha) for every z. With h = 1 - z the score

        psi(y) = (1 - z^y) / h - (1 - E z^y) / h

    is y - mu up to O(h), lies between bounds that are known, and has mean zero *exactly*: no tail is cut off
    that the mean would miss. Its expected derivative in the predictor is mu (1 + alpha mu h)^(-1/alpha - 1),
    its variance (E z^2y - (E z^y)^2) / h^2. The scale 1 / h is `at.cut` standard deviations and the mean.
    As the cut grows psi becomes y - mu, the score of the Poisson likelihood. The dispersion has a statistic
    of its own, z^y - E z^y with h = 1 / (1 + mu).

    Parameters
    ----------
    efficient
        Whether psi is divided by 1 + alpha mu: the score of the negative binomial likelihood as the cut
        grows.

    Examples
    --------
    >>> found = count_response(jnp.array([2.0]), jnp.array([2.0]), At(cut=1e6))
    >>> [round(float(part[0]), 3) for part in (found.slope, found.curvature, found.spread)]
    [0.0, 2.0, 1.0]
    """
    alpha = jnp.maximum(jnp.asarray(at.dispersion), LEAST_DISPERSION)

    def log_expected(h: jax.Array) -> jax.Array:  # log E z^y
        return -jnp.log1p(alpha * rate * h) / alpha

    deviation = jnp.sqrt(rate + alpha * rate**2)
    h = 1.0 / (1.0 + rate + at.cut * deviation)
    log_z = jnp.log1p(-h)
    expected = log_expected(h)
    most = -jnp.expm1(expected) / h  # (1 - E z^y) / h
    slope = -jnp.expm1(y * log_z) / h - most
    curvature = rate * jnp.exp(expected - jnp.log1p(alpha * rate * h))
    # log E z^2y - 2 log E z^y in closed form: a difference of what is nearly equal would lose digits.
    apart = -jnp.log1p(-alpha * rate * (1.0 + alpha * rate) * (h / (1.0 + alpha * rate * h)) ** 2) / alpha
    variance = jnp.exp(2.0 * expected) * jnp.expm1(apart) / h**2
    own = 1.0 / (1.0 + rate)
    statistic = jnp.exp(y * jnp.log1p(-own)) - jnp.exp(log_expected(own))
    bound, share = jnp.maximum(1.0 / h - most, most), 1.0 / (1.0 + alpha * rate if efficient else 1.0)
    size = curvature * share
    return Response(slope * share, bound * share, size, size, variance * share / curvature, statistic)


class Coupling(NamedTuple):
    """How score and dispersion of counts move each other at means, a record; see `coupling`.

    Attributes
    ----------
    own
        Derivative of the expected statistic in the dispersion.
    lean
        Of the expected statistic in the predictor.
    pull
        Minus that of the expected score in the dispersion.
    spread
        Variance of the statistic.
    joint
        Covariance of score and statistic.
    """

    own: NDArray[np.float64]
    lean: NDArray[np.float64]
    pull: NDArray[np.float64]
    spread: NDArray[np.float64]
    joint: NDArray[np.float64]


def coupling(
    rate: NDArray[np.float64], dispersion: float, cut: float, *, efficient: bool = False
) -> Coupling:
    """Return how score and dispersion move each other; `count_response` has the formulas.

    Examples
    --------
    >>> found = coupling(np.array([2.0]), 0.5, 1.5)
    >>> found.own.item() > 0, found.lean.item() < 0, found.joint.item() < 0
    (True, True, True)
    """
    alpha = max(dispersion, 1e-4)

    def expected(h: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.exp(-np.log1p(alpha * rate * h) / alpha)

    def moved(h: NDArray[np.float64]) -> NDArray[np.float64]:
        t = rate * h
        return expected(h) * (np.log1p(alpha * t) / alpha**2 - t / (alpha * (1.0 + alpha * t)))

    h = 1.0 / (1.0 + rate + cut * np.sqrt(rate + alpha * rate**2))
    own, share = 1.0 / (1.0 + rate), 1.0 / (1.0 + alpha * rate if efficient else 1.0)
    return Coupling(
        own=moved(own),
        lean=-rate * own * expected(own) / (1.0 + alpha * rate * own),
        pull=share * moved(h) / h,
        spread=expected(own * (2.0 - own)) - expected(own) ** 2,
        joint=-share * (expected(h + own - h * own) - expected(h) * expected(own)) / h,
    )


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
