r"""Local factors of models whose units act through k linear functions of the weights, as contributions.

A *unit* is a record, or a group of records. It sees the weights w through z = A w, with A of k rows that
depend on the unit and on public values: rows of features (linear predictors), rows of the identity
(parameters that all units share), or the whole identity. Under the cavity q / f (equation 3 of the paper) z
is Gaussian, so its local factor comes from `dpsep.models.sites` and acts on w along the rows of A.

In coordinates whitened by the cavity, with precision L L^T, z = A m + W y with W = A L^-T and y standard
normal. With W^T = Q R^T (Q has orthonormal columns), z = A m + R t with t = Q^T y, and a factor (P, slope) in
coordinates t is (Q P Q^T, Q slope) in whitened coordinates of the weights: no inverse is taken, so rows of A
that are zero or repeat each other do no harm. Its precision is released as its upper triangle with sqrt(2)
off the diagonal, so that the norm clipped is that of the matrix; unlike the outer products of
`dpsep.models.glm` it may have any rank and any sign.

**Privacy.** A contribution reads one unit and public values. A unit that is not usable, or whose
log-likelihood is not finite, yields NaN, which the gate turns into a zero contribution.
The proof is in docs/proofs/own-model.md.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.linalg import solve_triangular
from numpy.typing import NDArray

from dpsep.families import Gaussian
from dpsep.models.glm import Columns, Public
from dpsep.models.quadrature import Rule
from dpsep.models.sites import Factors, Site, local_site, log_normaliser, positive


class View(NamedTuple):
    """How one unit sees the weights.

    Attributes
    ----------
    rows
        A, shape (k, d); None for the whole identity.
    log_likelihood
        Of z = A w.
    usable
        Whether all cells of the unit can be used.
    """

    rows: jax.Array | None
    log_likelihood: Callable[[jax.Array], jax.Array]
    usable: jax.Array


class Units(Protocol):
    """A model of units; frozen and hashable, to be static under jit."""

    @property
    def dimension(self) -> int:
        """Number of weights."""
        ...

    @property
    def factors(self) -> Factors:
        """How local factors are found."""
        ...

    @property
    def rule(self) -> Rule:
        """Of the quadrature for one number."""
        ...

    def view(self, features: Columns, outcome: Columns, unit: Any) -> View:
        """How a unit, a tuple of arrays, sees the weights."""
        ...


class LinkedPublic(NamedTuple):
    """What local factors depend on besides the unit.

    Attributes
    ----------
    base
        Columns, cavity and centre.
    positive
        Whether negative parts of the factors' precisions are dropped: on the way to the fixed point.
    """

    base: Public
    positive: jax.Array


def unit_contribution(
    model: Units, public: LinkedPublic, unit: tuple[jax.Array, ...]
) -> tuple[jax.Array, jax.Array]:
    """Whitened, centred local factor of one unit: its mean part, and the triangle of its precision."""
    base = public.base
    # The posterior's mean less the cavity's, in whitened coordinates: L^T (m - m_c).
    offset = solve_triangular(base.half.T, base.centre - base.cavity_mean, lower=False)
    view = model.view(base.features, base.outcome, unit)
    basis, site = _site(model, view, base.half, base.cavity_mean, offset)
    site = jax.lax.cond(public.positive, positive, lambda same: same, site)
    mean, precision = _spread(basis, site)
    return jnp.where(view.usable, mean, jnp.nan), jnp.where(view.usable, triangle(precision), jnp.nan)


@dataclass(frozen=True)
class LinkedModel:
    """The same model for expectation propagation and assumed density filtering: full factors, one a unit."""

    model: Units
    features: Any
    outcome: Any

    def local_factor(self, cavity: Gaussian, record: tuple[jax.Array, ...]) -> Gaussian:
        """Tilted minus cavity in natural parameters."""
        view = self.model.view(self.features, self.outcome, record)
        factor = jnp.linalg.cholesky(cavity.precision)
        half = solve_triangular(factor, jnp.eye(len(factor), dtype=factor.dtype), lower=True)
        mean = cavity.mean
        basis, site = _site(self.model, view, half, mean, -(factor.T @ mean))
        slope, precision = _spread(basis, site)
        return Gaussian(factor @ slope, factor @ precision @ factor.T)


def log_predictive(
    model: Units, features: Columns, outcome: Columns, mean: Any, covariance: Any, units: tuple[Any, ...]
) -> jax.Array:
    """Log predictive density of each unit where the weights are N(mean, covariance)."""
    root = jnp.linalg.cholesky(jnp.asarray(covariance))

    def one(unit: tuple[jax.Array, ...]) -> jax.Array:
        view = model.view(features, outcome, unit)
        centre, inner = jnp.asarray(mean), root
        if view.rows is not None:
            centre, inner = predictor_moments(view.rows, centre, root)
        value = log_normaliser(view.log_likelihood, centre, inner, model.factors, model.rule)
        return jnp.where(view.usable, value, jnp.nan)

    return jax.vmap(one)(units)


def predictor_moments(rows: jax.Array, mean: jax.Array, root: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Mean of z = A w and a root of its covariance, where w has this mean and covariance root root^T."""
    return rows @ mean, _orthogonal((rows @ root).T)[1]


def log_joint(model: Units, features: Columns, outcome: Columns, w: jax.Array, units: Any) -> jax.Array:
    """Sum of the log-likelihoods of units at weights w; units that cannot be used add nothing."""

    def one(unit: tuple[jax.Array, ...]) -> jax.Array:
        view = model.view(features, outcome, unit)
        value = view.log_likelihood(w if view.rows is None else view.rows @ w)
        return jnp.where(view.usable, value, 0.0)

    return jnp.sum(jax.vmap(one)(units))


def triangle(matrix: jax.Array) -> jax.Array:
    """Upper triangle of a symmetric matrix, sqrt(2) off the diagonal: a vector of the matrix's norm."""
    row, column = np.triu_indices(matrix.shape[-1])
    return matrix[row, column] * np.where(row == column, 1.0, math.sqrt(2.0))


def from_triangle(coordinates: NDArray[np.float64], size: int) -> NDArray[np.float64]:
    """Return the symmetric matrix of a triangle.

    Examples
    --------
    >>> from_triangle(np.asarray(triangle(jnp.array([[1.0, 2.0], [2.0, 3.0]]))), 2).round(6)
    array([[1., 2.],
           [2., 3.]])
    """
    row, column = np.triu_indices(size)
    matrix = np.zeros((size, size))
    matrix[row, column] = coordinates / np.where(row == column, 1.0, math.sqrt(2.0))
    return matrix + np.triu(matrix, 1).T


def _site(
    model: Units, view: View, half: jax.Array, mean: jax.Array, offset: jax.Array
) -> tuple[jax.Array | None, Site]:
    """Local factor in coordinates t, and the basis Q that t stands in (None: the whitened weights)."""
    if view.rows is None:
        site = local_site(view.log_likelihood, mean, half.T, offset, model.factors, model.rule)
        return None, site
    basis, root = _orthogonal((view.rows @ half.T).T)
    site = local_site(
        view.log_likelihood, view.rows @ mean, root, basis.T @ offset, model.factors, model.rule
    )
    return basis, site


def _spread(basis: jax.Array | None, site: Site) -> tuple[jax.Array, jax.Array]:
    if basis is None:
        return site.slope, site.precision
    return basis @ site.slope, basis @ site.precision @ basis.T


def _orthogonal(columns: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Q with orthonormal (or zero) columns and R, with `columns = Q R^T`; Gram and Schmidt, twice."""
    size = columns.shape[1]
    scale = jnp.sqrt(jnp.max(jnp.sum(columns**2, 0)))
    done: list[jax.Array] = []
    root = jnp.zeros((size, size), columns.dtype)
    for place in range(size):
        rest = columns[:, place]
        for _ in range(2):
            for other, known in enumerate(done):
                part = known @ rest
                root = root.at[place, other].add(part)
                rest = rest - part * known
        length = jnp.sqrt(jnp.sum(rest**2))
        real = length > 1e-12 * scale  # what is left of a repeated row is rounding
        done.append(jnp.where(real, rest / jnp.where(real, length, 1.0), 0.0))
        root = root.at[place, place].set(jnp.where(real, length, 0.0))
    return jnp.stack(done, 1), root
