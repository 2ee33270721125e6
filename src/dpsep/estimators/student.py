r"""Linear regression with Student-t errors: robust against outliers, whose scale is learned.

An outcome is y = u + t / sqrt(tau), t of Student's t with nu degrees of freedom. Its score in the predictor,
(nu + 1) r tau / (nu + r^2 tau) of the residual r, is bounded by itself: no outcome is cut. The precision tau
solves sum rho = N with rho = (nu + 1) r^2 tau / (nu + r^2 tau), of mean one at the truth and below nu + 1:
the same update as that of a Gaussian noise precision with rho in the place of r^2 tau.
"""

import math
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import gammaln
from jax.typing import ArrayLike
from numpy.typing import NDArray
from scipy import stats

from dpsep.estimators.glm import Numbers
from dpsep.estimators.outcomes import averaged
from dpsep.estimators.predictive import LinearSample
from dpsep.families import Gamma
from dpsep.models.base import At, Response, Unit
from dpsep.models.linear import LearnedNoise
from dpsep.registry import Words, register

Array = NDArray[np.float64]


@dataclass(frozen=True)
class StudentNoise(LearnedNoise):
    """Student-t errors of `degrees` degrees of freedom, whose precision tau is learned.

    Examples
    --------
    >>> found, factor = StudentNoise(4.0).response(0.0, 0.0, Gamma.from_shape_and_rate(9.0, 9.0), 2.0, At())
    >>> float(found.slope), float(factor.rate)          # 5 * 2 / (4 + 4), and half of 5 * 4 / 8
    (1.25, 1.25)
    """

    degrees: float = 4.0

    by_scores: ClassVar[bool] = True
    """Without privacy, too, it is fitted by exact sums of scores: its local factors have no closed form."""

    def steepest(self, cut: float) -> float:
        """Variance (nu + 1) / (nu + 3) tau of a score over the square of its bound."""
        del cut
        return 4.0 * self.degrees / ((self.degrees + 1.0) * (self.degrees + 3.0))

    def noise_unit(self, precision: float, cut: float, doubt: float, widest: float) -> Unit:
        """Bound and expected curvature of a score at a precision."""
        del cut, doubt, widest
        bound = (self.degrees + 1.0) / (2.0 * math.sqrt(self.degrees)) * math.sqrt(precision)
        curvature = precision * (self.degrees + 1.0) / (self.degrees + 3.0)
        return Unit(bound, curvature, length=math.sqrt(self.degrees / precision))

    def noise_clip(self, cut: float) -> float:
        """Clip of the noise's part of a release: half of rho."""
        del cut
        return 0.5 * (self.degrees + 1.0)

    def noise_ratio(self, square: float, cut: float) -> float:
        """Newton's step for the variance's logarithm: rho's average moves nu / (nu + 3) times as much."""
        del cut
        return square ** ((self.degrees + 3.0) / self.degrees)

    def response(
        self, mean: ArrayLike, variance: ArrayLike, noise: Gamma, y: ArrayLike, at: At
    ) -> tuple[Response, Gamma]:
        """The score, and the factor on the precision.

        The curvature is (nu + 1) tau / (nu + r^2 tau), that of the normal likelihood which touches this one,
        in units that make its mean right. Steps by it converge from everywhere, as those of the EM algorithm
        do.
        """
        nu, tau = self.degrees, noise.mean
        residual = jnp.asarray(y) - jnp.asarray(mean)
        # The predictor's variance under the cavity is part of a residual.
        square = (residual**2 + jnp.asarray(variance)) * tau
        slope = (nu + 1.0) * residual * tau / (nu + square)
        share = (nu + 1.0) / (nu + 3.0)
        curvature = share * tau * (nu + 1.0) / (nu + square)
        bound = jnp.broadcast_to(self.noise_unit(1.0, 1.0, 0.0, 1.0).bound * jnp.sqrt(tau), slope.shape)
        size = jnp.broadcast_to(share * tau * (nu + 1.0) / nu, slope.shape)
        rho = (nu + 1.0) * square / (nu + square)
        return Response(slope, bound, curvature, size), Gamma(jnp.full_like(rho, 0.5), 0.5 * rho / tau)


class _Student(NamedTuple):
    """Law of targets about u: the precision of each draw, (draws, 1), and the degrees of freedom."""

    precision: Array
    degrees: float

    def sample(self, key: jax.Array, u: Any) -> jax.Array:
        """Draw targets."""
        return u + jax.random.t(key, self.degrees, jnp.shape(u)) / jnp.sqrt(self.precision)

    def log_likelihood(self, u: Any, y: Any) -> jax.Array:
        """Log density of targets."""
        nu = self.degrees
        constant = gammaln(0.5 * (nu + 1.0)) - gammaln(0.5 * nu) - 0.5 * math.log(nu * math.pi)
        square = self.precision * (jnp.asarray(y) - u) ** 2
        return constant + 0.5 * jnp.log(self.precision) - 0.5 * (nu + 1.0) * jnp.log1p(square / nu)


@register("student")
@dataclass(eq=False, repr=False, kw_only=True)
class StudentRegression(Numbers):
    """Bayesian linear regression with Student-t errors: for numbers with heavy tails and outliers.

    The scale of the errors is learned. Outliers pull little: a residual counts less the farther off it is.

    Parameters
    ----------
    degrees
        Public degrees of freedom of the errors; fewer have heavier tails.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-1, 1, (5000, 2)); y = X @ [1.0, -2.0] + 0.1 * rng.standard_t(4, 5000)
    >>> model = StudentRegression(epsilon=1.0, bounds=(-1, 1), target_bounds=(-4, 4)).fit(X, y)
    >>> model.coef_.round(1) + 0.0
    array([ 1., -2.])
    >>> model.predict(X[:3]).shape
    (3,)
    >>> [row["name"] for row in model.summary()]
    ['intercept', 'x0', 'x1']
    """

    likelihood = StudentNoise
    words = Words(
        "regression with Student-t errors",
        "A coefficient is by how much the expected target changes when its column grows by one and all other "
        "columns stay as they are.",
    )
    wire = 45

    degrees: float = 4.0

    def _check_parameters(self) -> None:
        super()._check_parameters()
        if not 0.1 <= float(self.degrees) <= 1e6:
            raise ValueError(f"degrees must be a number from 0.1 to a million, not {self.degrees!r}.")

    def _noise_variance(self) -> float:
        nu = float(self.degrees)
        # With two degrees of freedom or fewer it is infinite.
        return nu / (nu - 2.0) / self._precision() if nu > 2 else math.inf

    def _precision(self) -> float:
        shape, rate = self.posterior_.noise_shape, self.posterior_.noise_rate
        assert shape is not None
        assert rate is not None
        return shape / rate

    def _likelihood(self, *, narrow: bool) -> Any:
        del narrow
        return StudentNoise(float(self.degrees))

    def _log_predictive(self, mean: Any, variance: Any, y: Array) -> Any:
        law = _Student(np.full((1, 1), self._precision()), float(self.degrees))

        def density(u: Array) -> Array:
            return np.exp(np.asarray(law.log_likelihood(u, np.asarray(y)[:, None])))

        return np.log(averaged(density, np.asarray(mean), np.asarray(variance)))

    def _law(self, parameters: LinearSample) -> Any:
        assert parameters.precision is not None
        return _Student(parameters.precision, float(self.degrees))

    def _normal_below(self, mean: Array, variance: Array, y: Array) -> Array:
        scale = math.sqrt(self._precision())
        return averaged(
            lambda u: stats.t.cdf((np.asarray(y)[:, None] - u) * scale, float(self.degrees)), mean, variance
        )
