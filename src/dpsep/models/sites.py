r"""Local factors of a log-likelihood of several numbers, none of which need a closed form.

A record acts through k numbers z that are Gaussian under the cavity: linear predictors, parameters that all
records share, or both. In coordinates t in which the cavity of z is standard normal, z = mu + R t, the tilted
density is `exp(l(mu + R t)) N(t; 0, I) / Z`. With gradient h = R^T l' and Hessian H = R^T l'' R in these
coordinates, the theorems of Bonnet and Price give, with expectations under the tilted density,

    gradient of log Z   gamma = E[h] = E[t],      curvature   S = -(E[H] + Cov[h]) = I - Cov[t],

and the local factor, tilted minus cavity in natural parameters (section 2 of the paper), is

    precision  P = S (I - S)^-1,      mean part counted from an offset o   (I - S)^-1 gamma - P o.

(I + P = Cov[t]^-1 and the tilted mean is gamma: the mean part from o is Cov[t]^-1 gamma - P o.) The first
form of S keeps its digits where the likelihood is flat next to the cavity, the second where it is sharp; each
record takes the one that cancels less. The factor need not be positive: an outlier under a likelihood that is
not log-concave says that less is known.

Expectations are sums over nodes in units of the Laplace approximation of the tilted density, weighted by the
ratio of the two. `quadrature` is Gauss-Hermite in one to three dimensions (one: `dpsep.models.quadrature`),
`qmc` a fixed, symmetric set of quasi-random points in any number, `laplace` the Laplace approximation itself,
without a sum. All have a fixed cost and none draws random numbers.
"""

from collections.abc import Callable
from functools import cache
from typing import Any, Literal, NamedTuple, get_args

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri
from scipy.stats import qmc

from dpsep.models.quadrature import Rule, Terms, tilted_moments

Factors = Literal["quadrature", "qmc", "laplace"]
"""How expectations under a tilted density are found."""
LogLikelihood = Callable[[jax.Array], jax.Array]
"""Log-likelihood of one record as a function of z, shape (k,)."""

MOST_QUADRATURE = 3
"""Most numbers z for which Gauss-Hermite is offered: the nodes of k numbers are a power of k."""
_GAUSS_NODES = {2: 15, 3: 9}
_POINTS = 32
_NEWTON = 5


class Site(NamedTuple):
    """A local factor in coordinates in which the cavity is standard normal.

    Attributes
    ----------
    precision
        Precision of the factor, shape (k, k).
    slope
        Its mean part, counted from the posterior's mean, shape (k,).
    log_z
        Log normaliser of cavity times likelihood.
    """

    precision: jax.Array
    slope: jax.Array
    log_z: jax.Array


def choose(factors: str, numbers: int) -> Factors:
    """Return the rule for k numbers; ``"auto"`` is quadrature up to three numbers, quasi-random beyond."""
    if factors == "auto":
        return "quadrature" if numbers <= MOST_QUADRATURE else "qmc"
    if factors not in get_args(Factors):
        raise ValueError(
            f"factors must be 'auto', {', '.join(map(repr, get_args(Factors)))}, not {factors!r}."
        )
    if factors == "quadrature" and numbers > MOST_QUADRATURE:
        raise ValueError(
            f"factors='quadrature' is for at most {MOST_QUADRATURE} numbers a record; this model has "
            f"{numbers}. Use 'qmc' or 'laplace'."
        )
    return factors  # pyright: ignore[reportReturnType]


def local_site(
    log_likelihood: LogLikelihood,
    mean: jax.Array,
    root: jax.Array,
    offset: jax.Array,
    factors: Factors,
    rule: Rule = "robust",
) -> Site:
    """Local factor of one record.

    Parameters
    ----------
    log_likelihood
        Of z, twice differentiable.
    mean
        Cavity mean of z, shape (k,).
    root
        R with R R^T the cavity covariance of z, shape (k, k).
    offset
        Where mean parts are counted from, in coordinates t: the posterior's mean less the cavity's.
    factors
        How expectations are found.
    rule
        For one number: `"robust"` for every cavity, `"fast"` where its variance is below about 1.

    Examples
    --------
    >>> zero, one = jnp.zeros(1), jnp.eye(1)
    >>> site = local_site(lambda z: -2.0 * (z[0] - 3.0) ** 2, zero, one, zero, "quadrature")
    >>> round(float(site.precision[0, 0]), 3), round(float(site.slope[0]), 3)     # 4, and 4 times 3
    (4.0, 12.0)
    """
    if factors == "laplace":
        return _laplace(log_likelihood, mean, root, offset)
    if len(mean) == 1 and factors == "quadrature":
        return _one(log_likelihood, mean, root, offset, rule)
    points, log_weights = nodes(len(mean), factors)
    return _by_nodes(log_likelihood, mean, root, offset, points, log_weights)


def positive(site: Site) -> Site:
    """Drop the negative part of a factor's precision; its pull at the posterior's mean stays."""
    values, vectors = jnp.linalg.eigh(site.precision)
    return site._replace(precision=(vectors * jnp.maximum(values, 0.0)) @ vectors.T)


def log_normaliser(
    log_likelihood: LogLikelihood, mean: jax.Array, root: jax.Array, factors: Factors, rule: Rule = "robust"
) -> jax.Array:
    """Log of the likelihood averaged over N(mean, R R^T): a predictive density."""
    return local_site(log_likelihood, mean, root, jnp.zeros_like(mean), factors, rule).log_z


def _one(
    log_likelihood: LogLikelihood, mean: jax.Array, root: jax.Array, offset: jax.Array, rule: Rule
) -> Site:
    deviation = jnp.abs(root[0, 0])

    def value(u: jax.Array) -> jax.Array:
        return log_likelihood(u[None])

    first, second = jax.grad(value), jax.grad(jax.grad(value))

    def terms(u: jax.Array) -> Terms:
        flat = u.reshape(-1)
        parts = (jax.vmap(part)(flat).reshape(u.shape) for part in (value, first, second))
        return Terms(*parts)

    def newton(_: int, u: jax.Array) -> jax.Array:
        bend = jnp.maximum(1.0 - deviation**2 * second(u), 0.5)
        move = (mean[0] - u + deviation**2 * first(u)) / bend
        reach = 3.0 * jnp.maximum(deviation, 1e-300)
        return u + jnp.clip(move, -reach, reach)

    mode = jax.lax.fori_loop(0, 4 * _NEWTON, newton, mean[0])
    tilted = tilted_moments(terms, mean[0], deviation**2, (mode,), (), rule)
    curvature, gradient = deviation**2 * tilted.curvature, root[0, 0] * tilted.gradient
    precision = curvature / tilted.shrinkage
    slope = gradient / tilted.shrinkage - precision * offset[0]
    return Site(precision[None, None], slope[None], tilted.log_z)


def _derivatives(
    log_likelihood: LogLikelihood, mean: jax.Array, root: jax.Array
) -> Callable[[jax.Array], tuple[jax.Array, jax.Array, jax.Array]]:
    """Value, gradient and Hessian of the log-likelihood in coordinates t, as one function."""

    def slope(t: jax.Array) -> tuple[jax.Array, tuple[jax.Array, jax.Array]]:
        value, gradient = jax.value_and_grad(lambda t: log_likelihood(mean + root @ t))(t)
        return gradient, (value, gradient)

    def all_three(t: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
        hessian, (value, gradient) = jax.jacfwd(slope, has_aux=True)(t)
        return value, gradient, hessian

    return all_three


def _mode(terms: Any, size: int, dtype: Any) -> tuple[jax.Array, jax.Array]:
    """Mode of the tilted density, nearly, and the bend I - H there."""

    def newton(_: int, carry: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        t = carry[0]
        _, gradient, hessian = terms(t)
        values, vectors = jnp.linalg.eigh(-hessian)
        # Where the tilted density is not log-concave the cavity's own width is the guide.
        bend = (vectors * (1.0 + jnp.maximum(values, 0.0))) @ vectors.T
        move = vectors @ ((vectors.T @ (gradient - t)) / (1.0 + jnp.maximum(values, 0.0)))
        length = jnp.sqrt(jnp.sum(move**2))
        return t + move * jnp.minimum(1.0, 3.0 / jnp.maximum(length, 1e-300)), bend

    start = (jnp.zeros(size, dtype), jnp.eye(size, dtype=dtype))
    return jax.lax.fori_loop(0, _NEWTON, newton, start)


def _by_nodes(
    log_likelihood: LogLikelihood,
    mean: jax.Array,
    root: jax.Array,
    offset: jax.Array,
    points: NDArray[np.float64],
    log_weights: NDArray[np.float64],
) -> Site:
    terms = _derivatives(log_likelihood, mean, root)
    mode, bend = _mode(terms, len(mean), mean.dtype)
    factor = jnp.linalg.cholesky(bend)
    moves = jax.scipy.linalg.solve_triangular(
        factor, jnp.asarray(points, mean.dtype).T, lower=True, trans=1
    ).T
    t = mode + moves
    values, gradients, hessians = jax.vmap(terms)(t)
    logs = values - 0.5 * jnp.sum(t**2, 1) + jnp.asarray(log_weights + 0.5 * np.sum(points**2, 1), mean.dtype)
    top = jnp.max(logs)
    mass = jnp.exp(logs - top)
    total = jnp.sum(mass)
    log_z = top + jnp.log(total) - jnp.sum(jnp.log(jnp.diagonal(factor)))
    weight = mass / total
    hessian = jnp.einsum("n,nij->ij", weight, hessians)
    gamma = weight @ gradients
    jitter = _covariance(weight, gradients)
    spread = _covariance(weight, moves)
    narrow = jnp.trace(jitter) + jnp.sqrt(jnp.sum(hessian**2)) <= 1.0
    curvature = jnp.where(narrow, -(hessian + jitter), jnp.eye(len(mean)) - spread)
    left = jnp.where(narrow, jnp.eye(len(mean)) - curvature, spread)
    pull = jnp.where(narrow, gamma, weight @ t)
    solved = jnp.linalg.solve(left, jnp.concatenate([curvature, pull[:, None]], 1))
    precision = (solved[:, :-1] + solved[:, :-1].T) / 2
    return Site(precision, solved[:, -1] - precision @ offset, log_z)


def _laplace(log_likelihood: LogLikelihood, mean: jax.Array, root: jax.Array, offset: jax.Array) -> Site:
    terms = _derivatives(log_likelihood, mean, root)
    mode, bend = _mode(terms, len(mean), mean.dtype)
    value, gradient, hessian = terms(mode)
    slope = gradient - hessian @ (mode - offset)
    log_z = value - 0.5 * jnp.sum(mode**2)
    return Site(-hessian, slope, log_z - jnp.sum(jnp.log(jnp.diagonal(jnp.linalg.cholesky(bend)))))


def _covariance(weight: jax.Array, values: jax.Array) -> jax.Array:
    centred = values - weight @ values
    return jnp.einsum("n,ni,nj->ij", weight, centred, centred)


@cache
def nodes(numbers: int, factors: Factors) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Nodes of a standard normal in k dimensions, shape (n, k), and the logarithms of their weights."""
    if factors == "quadrature":
        line, weights = np.polynomial.hermite_e.hermegauss(_GAUSS_NODES[numbers])
        grid = np.stack(np.meshgrid(*[line] * numbers, indexing="ij"), -1).reshape(-1, numbers)
        logs = np.meshgrid(*[np.log(weights / weights.sum())] * numbers, indexing="ij")
        return grid, np.sum(logs, axis=0).reshape(-1)
    # Halves of a digital net and their mirror images: odd moments vanish; then the second ones are set right.
    # Fewer points than dimensions have no covariance to set right.
    count = max(_POINTS // 2, 1 << numbers.bit_length())
    half = ndtri(qmc.Sobol(numbers, scramble=True, rng=0).random(count))
    points = np.concatenate([half, -half])
    covariance = points.T @ points / len(points)
    points = np.asarray(np.linalg.solve(np.linalg.cholesky(covariance), points.T).T, np.float64)
    return points, np.full(len(points), -np.log(len(points)))
