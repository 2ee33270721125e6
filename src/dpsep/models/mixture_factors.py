r"""What a record adds to the posterior of a mixture's components, as contributions to a release.

The model: x ~ sum_j w_j N(mu_j, diag v_j), and q(mu_j) = N(m_j, V_j) with a full covariance each. In units of
a component's own deviations, z_j = (x - c_j) / sqrt(v_j) with c_j the cavity mean, let U diag(1 / l) U^T be
the cavity covariance and r_j proportional to w_j N(x; c_j, V_j + diag v_j). The tilted distribution of mu_j
is the mixture of its update (probability r_j) and the cavity itself; its moments, minus the cavity in natural
parameters, are the local factor. With b = U diag(l / (1 - r + l)) U^T z, k = r (1 - r) and h = 1 + k sum_i
(U^T z)_i^2 l_i / ((1 + l_i)(1 - r + l_i)), by Woodbury and Sherman-Morrison:

    mean part, counted from c_j     r b / h
    precision                       r I - [ U diag(r (1 - r) / (1 - r + l)) U^T + k b b^T / h ].

The bracket is the information that is missing because the record's component is not known; it is positive
semidefinite and nearly zero for a record whose component is clear. Nothing here subtracts nearly equal
matrices. Three ways to read a record follow: `LocalFactors` is stochastic EP; `VariationalFactors`
(mean-field VI) and `ExpectedStatistics` (EM) take a record's component as known in shares r_j, by the
expected log density under q or by the density at the means, and have no missing part. All make the blocks
``count`` (r), ``mean``, for `LocalFactors` ``missing`` (the bracket, symmetric matrices as upper triangles
with sqrt(2)), and where variances are learned ``scatter``, r (z^2 - 1).

Learned weights and variances enter at their posterior means: a Dirichlet and Gammas of N_j / 2 and more are
concentrated, and what that leaves out is of order 1 / N_j of a factor.

**Privacy.** A contribution reads one record and public values. A record with a cell that is not finite yields
NaN, which the gate turns into a zero contribution. The proof is in docs/proofs/mixture-factors.md.
"""

import math
from dataclasses import dataclass
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from dpsep.models.glm import Columns

Variances = Literal["known", "spherical", "diag"]
"""Whether component variances are known, learned one a component, or learned one a component and column."""


class Public(NamedTuple):
    """What contributions depend on besides the record; J components, D columns, in scaled units.

    Attributes
    ----------
    columns
        Map of the table's columns.
    mean
        Means of the posterior, (J, D), from which mean parts are counted.
    centre
        Means of the cavity, (J, D).
    deviation
        Standard deviations within components, (J, D).
    log_weight
        Logarithms of the weights, (J,).
    rotation, information
        U (J, D, D) and l (J, D): the cavity precision in units of the deviations is U diag(l) U^T.
    """

    columns: Columns
    mean: jax.Array
    centre: jax.Array
    deviation: jax.Array
    log_weight: jax.Array
    rotation: jax.Array
    information: jax.Array


@dataclass(frozen=True)
class LocalFactors:
    """Local factors of stochastic EP: blocks ``count``, ``mean``, ``missing`` and perhaps ``scatter``.

    Parameters
    ----------
    variances
        Whether and how they are learned.
    """

    variances: Variances = "known"
    missing = True  # no annotation: a constant of the class, not a field

    def __call__(self, public: Public, chunk: tuple[jax.Array]) -> tuple[jax.Array, ...]:
        """Return the blocks, one row a record."""
        z = _standardised(public, chunk)
        information = public.information
        turned = jnp.einsum("njd,jdk->njk", z, public.rotation)
        width = 1.0 + 1.0 / information
        distance = jnp.sum(turned**2 / width, -1)
        share = _shares(public, distance + jnp.sum(jnp.log(width), -1))
        rest = 1.0 - share
        open_ = rest[..., None] + information
        pull = information / open_
        doubt = share * rest
        height = 1.0 + doubt * jnp.sum(turned**2 * pull / (1.0 + information), -1)
        bent = turned * pull
        slope = (share / height)[..., None] * bent
        diagonal, scale = doubt[..., None] / open_, doubt / height
        # Counted from the posterior mean: plus factor precision times (cavity mean - posterior mean).
        shift = (public.centre - public.mean) / public.deviation
        away = jnp.einsum("jd,jdk->jk", shift, public.rotation)
        pulled = scale * jnp.sum(bent * away, -1)
        slope = slope + (share[..., None] - diagonal) * away - pulled[..., None] * bent
        mean = jnp.einsum("njk,jdk->njd", slope, public.rotation)
        unknown = _missing(public.rotation, diagonal, scale, bent)
        return _blocks(self.variances, share, mean, z + shift, unknown.reshape(len(z), -1))


@dataclass(frozen=True)
class VariationalFactors:
    """Mean-field variational Bayes: blocks ``count``, ``mean`` and perhaps ``scatter``.

    The public values hold the posterior in the cavity's place: a record's shares follow from its expected log
    density, log w_j - (|z_j|^2 + trace of V_j in units of v_j + log |v_j|) / 2.

    Parameters
    ----------
    variances
        Whether and how they are learned.
    """

    variances: Variances = "known"
    missing = False

    def __call__(self, public: Public, chunk: tuple[jax.Array]) -> tuple[jax.Array, ...]:
        """Return the blocks, one row a record."""
        z = _standardised(public, chunk)
        share = _shares(public, jnp.sum(z**2, -1) + jnp.sum(1.0 / public.information, -1))
        return _blocks(self.variances, share, share[..., None] * z, z)


@dataclass(frozen=True)
class ExpectedStatistics:
    """Expected sufficient statistics of EM (DP-EM, Park et al. 2017): ``count``, ``mean``, ``scatter``.

    Parameters
    ----------
    variances
        Whether and how they are learned.
    """

    variances: Variances = "known"
    missing = False

    def __call__(self, public: Public, chunk: tuple[jax.Array]) -> tuple[jax.Array, ...]:
        """Return the blocks, one row a record."""
        z = _standardised(public, chunk)
        share = _shares(public, jnp.sum(z**2, -1))
        return _blocks(self.variances, share, share[..., None] * z, z)


@dataclass(frozen=True)
class LogDensity:
    """Log density of a record under the mixture, with the means' uncertainty: the block ``score``.

    For choosing between fits without privacy.
    """

    def __call__(self, public: Public, chunk: tuple[jax.Array]) -> tuple[jax.Array, ...]:
        """Return one number a record."""
        z = _standardised(public, chunk)
        width = 1.0 + 1.0 / public.information
        turned = jnp.einsum("njd,jdk->njk", z, public.rotation)
        distance = jnp.sum(turned**2 / width + jnp.log(width), -1)
        return (jax.nn.logsumexp(_logits(public, distance), axis=-1, keepdims=True),)


def _standardised(public: Public, chunk: tuple[jax.Array]) -> jax.Array:
    """Records in units of each component's deviations, counted from the cavity means, (n, J, D)."""
    x = public.columns.apply(chunk[0])
    # A bad cell must spoil its whole record: one NaN in a column reaches all of them.
    x = jnp.where(jnp.all(jnp.isfinite(x), axis=1)[:, None], x, jnp.nan)
    return (x[:, None, :] - public.centre) / public.deviation


def _shares(public: Public, distance: jax.Array) -> jax.Array:
    return jax.nn.softmax(_logits(public, distance), axis=-1)


def _logits(public: Public, distance: jax.Array) -> jax.Array:
    return public.log_weight - jnp.sum(jnp.log(public.deviation), -1) - 0.5 * distance


def _blocks(
    variances: Variances,
    share: jax.Array,
    mean: jax.Array,
    z: jax.Array,
    missing: jax.Array | None = None,
) -> tuple[jax.Array, ...]:
    rows = len(share)
    blocks = [share, mean.reshape(rows, -1)]
    if missing is not None:
        blocks.append(missing)
    if variances != "known":
        excess = share[..., None] * (z**2 - 1.0)
        if variances == "spherical":
            excess = jnp.sum(excess, -1) / math.sqrt(z.shape[-1])
        blocks.append(excess.reshape(rows, -1))
    return tuple(blocks)


def _missing(rotation: jax.Array, diagonal: jax.Array, scale: jax.Array, bent: jax.Array) -> jax.Array:
    """U diag(d) U^T + s (U b)(U b)^T as upper triangles, sqrt(2) off the diagonal: (n, J, D (D + 1) / 2)."""
    rows, columns = np.triu_indices(rotation.shape[-1])
    weight = np.where(rows == columns, 1.0, math.sqrt(2.0))
    plain = rotation[:, rows, :] * rotation[:, columns, :] * weight[:, None]
    # Component by component: a matrix product each, which is faster than one with components in the middle.
    spread = jnp.einsum("jnk,jtk->jnt", jnp.swapaxes(diagonal, 0, 1), plain)
    turned = jnp.einsum("njk,jdk->njd", bent, rotation)
    rooted = turned * jnp.sqrt(scale)[..., None]
    return jnp.swapaxes(spread, 0, 1) + _products(rooted) * weight


def _products(vectors: jax.Array) -> jax.Array:
    """Upper triangles of the outer products of vectors with themselves."""
    dimension = vectors.shape[-1]
    parts = [vectors[..., place : place + 1] * vectors[..., place:] for place in range(dimension)]
    return jnp.concatenate(parts, axis=-1)
