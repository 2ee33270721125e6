"""What a record means to the posterior: tilted moments, local factors, and the interface of likelihoods.

A generalised linear model reads a record `(x, y)` through the scalar predictor `u = x . w`. Under the cavity,
`u` is Gaussian with moments `(m, v)`; with `Z(m, v)` the integral of `p(y | u) N(u; m, v)`, `g = d log Z /
dm` and `s = -d^2 log Z / dm^2`, the tilted mean is `m + v g` and the tilted variance `v (1 - v s)`. Tilted
minus cavity, in natural parameters, is the local factor (section 2 of the paper): on `u` it has precision `s
/ (1 - v s)` and mean part `(g + m s) / (1 - v s)`; on `w` the same along `x`.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from dpsep.families import DiagonalGaussian, Gaussian


class Tilted(NamedTuple):
    """Cavity times likelihood, seen from the predictor.

    Attributes
    ----------
    log_z
        Log normaliser.
    gradient
        First derivative of `log_z` in the cavity mean, g.
    curvature
        Minus the second derivative, s; not negative where the likelihood is log-concave.
    shrinkage
        Tilted variance over cavity variance, 1 - v s.
    """

    log_z: jax.Array
    gradient: jax.Array
    curvature: jax.Array
    shrinkage: jax.Array


class Site(NamedTuple):
    """Natural parameters of a local factor on the predictor: tilted minus cavity.

    Attributes
    ----------
    precision
        Precision of the factor.
    mean_part
        Precision times mean, counted from an origin.
    """

    precision: jax.Array
    mean_part: jax.Array


class Response(NamedTuple):
    """A record's score, and what it can be at most whatever the outcome is.

    Attributes
    ----------
    slope
        Score of the predictor: the mean part g' of the local factor, or a bounded function of the outcome
        that has mean zero at the true predictor, too.
    bound
        Of `slope`, over all outcomes: a function of the predictor alone.
    curvature
        Precision s' of the local factor, or the expected derivative of the score; zero where the score is
        cut.
    size
        Of `curvature`, whatever the outcome is: a function of the predictor alone.
    spread
        Expected square of the score over its expected derivative; one of an uncut score of a right model.
    statistic
        Of the dispersion, where it is learned: within [-1, 1], with mean zero at the true one.
    """

    slope: jax.Array
    bound: jax.Array
    curvature: jax.Array
    size: jax.Array
    spread: ArrayLike = 1.0
    statistic: jax.Array | None = None


class Unit(NamedTuple):
    """Size of a score of a record.

    Attributes
    ----------
    bound, curvature
        Its bound, and its expected curvature.
    spread
        Its expected square over that curvature.
    length
        Change of the predictor over which the curvature changes about as much as it is.
    """

    bound: float
    curvature: float
    spread: float = 1.0
    length: float = 1.0


class At(NamedTuple):
    """Where and how a record's score is taken.

    Attributes
    ----------
    offset
        Cavity mean of the predictor less its posterior mean, which scores are counted from.
    cut
        Standard deviations at which a score without a bound is cut.
    dispersion
        Excess variance of counts, alpha of mu + alpha mu^2.
    doubt
        Variance of the predictor with all noise of privacy: what is cut far from the predictor must not be
        what is only not known yet.
    widest
        Residual at which a score is cut whatever the doubt.
    """

    offset: ArrayLike = 0.0
    cut: ArrayLike = 3.0
    dispersion: ArrayLike = 0.0
    doubt: ArrayLike = 0.0
    widest: ArrayLike = np.inf


class Predictive(NamedTuple):
    """Mean and variance of a new outcome."""

    mean: jax.Array
    variance: jax.Array


class Likelihood(Protocol):
    """What a likelihood of one scalar predictor offers; frozen and hashable, to be static under jit."""

    @property
    def curvature_guess(self) -> float:
        """Return a public guess of the curvature s at a typical record, made without any data."""
        ...

    def tilted(self, mean: ArrayLike, variance: ArrayLike, y: ArrayLike) -> Tilted:
        """Tilted moments for cavity moments of the predictor, elementwise."""
        ...

    def response(self, mean: ArrayLike, variance: ArrayLike, y: ArrayLike, at: "At") -> Response:
        """Score of a record, and its bound: `at.cut` standard deviations where the outcome has none."""
        ...

    def unit(self, predictor: float, at: "At") -> "Unit":
        """Size of a score where the predictor has a value; a constant where it varies little."""
        ...

    def predictive(self, mean: ArrayLike, variance: ArrayLike) -> Predictive:
        """Mean and variance of y where the predictor has these moments."""
        ...

    def log_predictive(self, mean: ArrayLike, variance: ArrayLike, y: ArrayLike) -> jax.Array:
        """Log density (or mass) of y where the predictor has these moments."""
        ...

    def sample(self, key: jax.Array, u: ArrayLike) -> jax.Array:
        """Draw y given the predictor."""
        ...

    def log_likelihood(self, u: ArrayLike, y: ArrayLike) -> jax.Array:
        """Log p(y | u), elementwise and differentiable in u."""
        ...

    def valid(self, y: ArrayLike) -> jax.Array:
        """Whether y lies in the likelihood's support, elementwise."""
        ...


class Model(Protocol):
    """Anything expectation propagation can run on: the local factor of one record under a cavity."""

    def local_factor(self, cavity: Any, record: Any) -> Any:
        """Tilted minus cavity in natural parameters, of the cavity's own family."""
        ...


def site(tilted: Tilted, cavity_mean: ArrayLike, cavity_variance: ArrayLike, origin: ArrayLike = 0.0) -> Site:
    """Local factor on the predictor, its mean part counted from `origin`.

    Counting from an origin o means `eta - precision * o`; with o the posterior mean this is the centred map
    of the gate. `cavity_variance` is not needed once the tilted moments hold `shrinkage`; it stays in the
    signature because the three together are what defines the factor.

    Examples
    --------
    >>> from dpsep.models import GaussianLikelihood
    >>> site(GaussianLikelihood(4.0).tilted(0.0, 1.0, 0.5), 0.0, 1.0)     # precision 4, and 4 times y
    Site(precision=Array(4., ...), mean_part=Array(2., ...))
    """
    del cavity_variance
    offset = jnp.asarray(cavity_mean) - origin
    return Site(tilted.curvature / tilted.shrinkage, slope_of(tilted, offset))


def slope_of(tilted: Tilted, offset: ArrayLike) -> jax.Array:
    """Mean part of a local factor, counted from the cavity mean less `offset`."""
    return (tilted.gradient + offset * tilted.curvature) / tilted.shrinkage


def unit_of(likelihood: Likelihood, predictor: float, at: "At") -> Unit:
    """Return the unit of a likelihood whose response costs little."""
    with jax.enable_x64(True):
        zero, one, where = np.float64(0.0), np.float64(1.0), np.float64(predictor)
        found = likelihood.response(where, zero, one, At(*(np.float64(part) for part in at)))  # pyright: ignore
        return Unit(float(found.bound), float(found.size), float(np.asarray(found.spread)))


def cut_response(slope: jax.Array, bound: jax.Array, curvature: jax.Array) -> Response:
    """Response of an outcome with symmetric errors: cut at the bound on either side.

    A score that is cut does not change with the predictor, so it has no curvature: where most are cut, far
    from the fixed point, the curvature says that little is known there.
    """
    bound, size = jnp.broadcast_to(bound, slope.shape), jnp.broadcast_to(curvature, slope.shape)
    inside = jnp.abs(slope) <= bound
    return Response(jnp.clip(slope, -bound, bound), bound, jnp.where(inside, size, 0.0), size)


def local_factor(
    likelihood: Likelihood, cavity: Gaussian | DiagonalGaussian, record: tuple[ArrayLike, ArrayLike]
) -> Gaussian | DiagonalGaussian:
    """Local factor of one record `(x, y)` on the weights, of the cavity's own family.

    With a full covariance the factor has rank one: precision `s' x x'`, mean part `g' x`. With a diagonal one
    each coordinate matches its own tilted moments, `g_i = g x_i` and `s_i = s x_i^2`.
    """
    x, y = jnp.asarray(record[0]), jnp.asarray(record[1])
    if isinstance(cavity, DiagonalGaussian):
        return _diagonal_factor(likelihood, cavity, x, y)
    factor = jnp.linalg.cholesky(cavity.precision)
    half = jax.scipy.linalg.solve_triangular(factor, jnp.stack([x, cavity.eta], -1), lower=True)
    mean, variance = half[:, 0] @ half[:, 1], half[:, 0] @ half[:, 0]
    scalars = site(likelihood.tilted(mean, variance, y), mean, variance)
    return Gaussian(scalars.mean_part * x, scalars.precision * x[:, None] * x[None, :])


def predictor_moments(posterior: Gaussian | DiagonalGaussian, x: ArrayLike) -> tuple[jax.Array, jax.Array]:
    """Mean and variance of `x . w` for each row of `x` (n, d), or for one row (d,)."""
    x = jnp.asarray(x)
    mean = x @ posterior.mean
    if isinstance(posterior, DiagonalGaussian):
        return mean, (x * x) @ posterior.variance
    return mean, jnp.einsum("...i,ij,...j->...", x, posterior.covariance, x)


@dataclass(frozen=True)
class GLM:
    """A generalised linear model: a likelihood of `u = x . w`, records `(x, y)`.

    Examples
    --------
    >>> from dpsep.models import GaussianLikelihood
    >>> model = GLM(GaussianLikelihood(2.0))
    >>> factor = model.local_factor(Gaussian.isotropic(1), (jnp.array([1.0]), jnp.array(3.0)))
    >>> round(float(factor.eta[0]), 3)        # noise precision times x times y
    6.0
    """

    likelihood: Likelihood

    def local_factor(
        self, cavity: Gaussian | DiagonalGaussian, record: tuple[ArrayLike, ArrayLike]
    ) -> Gaussian | DiagonalGaussian:
        """Tilted minus cavity in natural parameters, for one record."""
        return local_factor(self.likelihood, cavity, record)


def _diagonal_factor(
    likelihood: Likelihood, cavity: DiagonalGaussian, x: jax.Array, y: jax.Array
) -> DiagonalGaussian:
    parts = x * x * cavity.variance
    variance = jnp.sum(parts)
    tilted = likelihood.tilted(jnp.dot(x, cavity.mean), variance, y)
    # 1 - v_i s x_i^2 = (1 - share) + share (1 - v s): a sum of positive terms, where the difference would
    # cancel.
    share = parts / jnp.where(variance > 0, variance, 1.0)
    shrinkage = (1.0 - share) + share * tilted.shrinkage
    curvature = tilted.curvature * x * x
    eta = (tilted.gradient * x + cavity.mean * curvature) / shrinkage
    return DiagonalGaussian(eta, curvature / shrinkage)
