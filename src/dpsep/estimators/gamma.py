"""Gamma regression with log link: positive targets y with mean exp(u), such as costs, durations and amounts.

With shape a, log p(y | u) = a log a - log Gamma(a) + (a - 1) log y - a u - a y exp(-u), log-concave in u. As
a function of w = log(a y) - u it is a w - exp(w) and constants: the log-likelihood of a Poisson "count" a at
the predictor w. The tilted moments are therefore the Poisson's with the cavity mirrored, m -> log(a y) - m.
"""

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
from jax.scipy.special import gammainc, gammaln
from jax.typing import ArrayLike

from dpsep.estimators.glm import GLMRegressor
from dpsep.estimators.targets import Positive
from dpsep.models import PoissonLikelihood
from dpsep.models.base import At, Predictive, Response, Tilted, Unit, unit_of
from dpsep.models.quadrature import Rule
from dpsep.registry import Words, register
from dpsep.theory.glm_defaults import COUNT_REACH, Defaults


@dataclass(frozen=True)
class GammaLikelihood:
    """Targets y > 0 with mean exp(u) and variance exp(2 u) / shape.

    Attributes
    ----------
    rule
        Quadrature rule, as in `dpsep.models.PoissonLikelihood`.
    shape
        Shape of the distribution, a positive number.

    Examples
    --------
    >>> t = GammaLikelihood().tilted(0.0, 1e-12, 2.0)      # hardly any spread: log of e^-2
    >>> round(float(t.log_z), 4), round(float(t.gradient), 4)
    (-2.0, 1.0)
    """

    rule: Rule = "robust"
    shape: float = 1.0

    scale_family: ClassVar[bool] = True
    """The density of y / exp(u) does not depend on u: another unit of y is another intercept."""

    def __post_init__(self) -> None:
        """Refuse a shape that is not a positive number."""
        if not (math.isfinite(self.shape) and self.shape > 0):
            raise ValueError(f"shape is {self.shape}; it must be a positive finite number.")

    @property
    def curvature_guess(self) -> float:
        """The shape: the expected curvature at every predictor."""
        return self.shape

    def tilted(self, mean: ArrayLike, variance: ArrayLike, y: ArrayLike) -> Tilted:
        """Tilted moments for cavity moments of the predictor, elementwise."""
        log_y = jnp.log(jnp.asarray(y))
        mirrored = log_y + math.log(self.shape) - mean
        found = PoissonLikelihood(self.rule).tilted(mirrored, variance, self.shape)
        return found._replace(log_z=found.log_z + math.log(self.shape) - log_y, gradient=-found.gradient)

    def response(self, mean: ArrayLike, variance: ArrayLike, y: ArrayLike, at: At) -> Response:
        """The score a (r - 1), r = y / exp(u), softly bounded with mean zero.

        With h = 1 / (1 + cut deviations of r) it is a times (1 - exp(-h r)) / h less its expectation, which
        is in closed form: E exp(-h r) = (1 + h / a)^-a for r of mean one and shape a.
        """
        a = self.shape
        ratio = jnp.asarray(y) * jnp.exp(0.5 * variance - jnp.asarray(mean))
        h = 1.0 / (1.0 + jnp.asarray(at.cut) / math.sqrt(a))
        once, apart = -a * jnp.log1p(h / a), -a * jnp.log1p(-((h / (a + h)) ** 2))
        most = -jnp.expm1(once) / h
        slope = a * (-jnp.expm1(-h * ratio) / h - most)
        bound = jnp.broadcast_to(a * jnp.maximum(1.0 / h - most, most), slope.shape)
        curvature = a * jnp.exp(once - jnp.log1p(h / a))
        square = a**2 * jnp.exp(2.0 * once) * jnp.expm1(apart) / h**2
        size = jnp.broadcast_to(curvature, slope.shape)
        return Response(slope, bound, size, size, square / curvature)

    def steepest(self, cut: float) -> float:
        """Variance of a score over the square of its bound: the same at every predictor."""
        at = self.unit(0.0, At(cut=cut))
        return at.curvature * at.spread / at.bound**2

    def unit(self, predictor: float, at: At) -> Unit:
        """Of a target with this mean predictor."""
        return unit_of(self, predictor, at)

    def predictive(self, mean: ArrayLike, variance: ArrayLike) -> Predictive:
        """Mean and variance of the target, in closed form."""
        variance = jnp.asarray(variance)
        expected = jnp.exp(mean + 0.5 * variance)
        return Predictive(expected, expected**2 * (jnp.exp(variance) / self.shape + jnp.expm1(variance)))

    def log_predictive(self, mean: ArrayLike, variance: ArrayLike, y: ArrayLike) -> jax.Array:
        """Log density of the target y."""
        return self.tilted(mean, variance, y).log_z

    def sample(self, key: jax.Array, u: ArrayLike) -> jax.Array:
        """Draw targets given the predictor."""
        u = jnp.asarray(u)
        return jnp.exp(u) * jax.random.gamma(key, self.shape, u.shape, u.dtype) / self.shape

    def log_likelihood(self, u: ArrayLike, y: ArrayLike) -> jax.Array:
        """Log density of the target y given the predictor."""
        a, u, y = self.shape, jnp.asarray(u), jnp.asarray(y)
        return a * (math.log(a) - u) - gammaln(a) + (a - 1.0) * jnp.log(y) - a * y * jnp.exp(-u)

    def cdf(self, u: ArrayLike, y: ArrayLike) -> jax.Array:
        """Probability of a target up to y given the predictor."""
        return gammainc(self.shape, self.shape * jnp.asarray(y) * jnp.exp(-jnp.asarray(u)))

    def valid(self, y: ArrayLike) -> jax.Array:
        """Whether y is finite and positive."""
        y = jnp.asarray(y)
        return jnp.isfinite(y) & (y > 0)


@register("gamma")
@dataclass(eq=False, repr=False, kw_only=True)
class GammaRegression(GLMRegressor):
    """Bayesian Gamma regression of positive targets, log link.

    The mean of a target is the exponential of the predictor and its standard deviation is in proportion to
    it: mean / sqrt(shape). The shape is not learned. Where it is wrong, coefficients are right all the same,
    as in a quasi-likelihood, while widths are off: they scale with 1 / sqrt(shape). Take the shape from other
    data, or from what the targets are: one over the square of their relative spread about the mean.

    Parameters
    ----------
    target_bounds
        Public bounds (low, high) of the target, both positive. They say how large targets are, so that the
        fit starts near them; targets beyond are not cut. Without them that is found privately, inside
        epsilon. Without an intercept they are not used, and targets should be near 1.
    shape
        Public shape of the Gamma distribution, a positive number; 1 is the exponential distribution, whose
        standard deviation is its mean. Targets that scatter less have a larger one.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-1, 1, (5000, 2)); y = rng.gamma(2.0, np.exp(1 + X @ [0.5, -0.5]) / 2.0)
    >>> model = GammaRegression(epsilon=1.0, bounds=(-1, 1), target_bounds=(0.1, 50), shape=2.0).fit(X, y)
    >>> bool(np.abs(model.coef_ - [0.5, -0.5]).max() < 0.5), model.predict(X[:3]).shape
    (True, (3,))
    >>> [row["name"] for row in model.summary()]
    ['intercept', 'x0', 'x1']
    """

    likelihood = GammaLikelihood
    target = Positive()
    # The score y / exp(u) - 1 has a long tail on one side: a tight clip would bias what it fits.
    defaults = Defaults(reach=COUNT_REACH, cut=2.0)
    words = Words(
        "Gamma regression",
        "A coefficient is by how much the logarithm of the expected target changes when its column grows by "
        "one: e to the coefficient multiplies the target.",
    )
    wire = 44

    target_bounds: Any = None
    shape: float = 1.0
