r"""What records add to a private fit of linear weights: leverages, second moments, weighted local factors.

A record (x, y), x with its intercept, is seen in coordinates z = A x, where A is a public map
(`dpsep.inference.leverage`). It has *one weight*, from x and public values alone, on all that it adds:

    w = min( 1, R / (b |z|),  K / (k |z|^2) ),

b a bound of the record's score and k its expected curvature at the current mean, both functions of x
(`dpsep.models.base.Response`), R and K public caps. The score part w g' z then has norm at most R and the
precision part w k z z^T at most K: neither is clipped by the outcome. The weighted
estimating equation sum w g' z = 0 has the root of the unweighted one whatever the weights are (Mallows'
weights), because every record's own term has mean zero at the truth. docs/proofs/weighted.md has the proof.

Caps are chosen by `Leverages` and `Reaches`: in which half octave a record's |z|^2, (b |z|)^2 or k |z|^2
lies, one of `CELLS` cells of a vector, a one and zeros, of norm one.

*Units of several rows* (all visits of a person). A unit's rows are one row of the gate and have one weight,
with sum b |z| in the place of b |z| and sum k |z|^2 in that of k |z|^2: |sum g' z| is at most the first. Its
precision part is no product of a vector with itself, so it is released as its triangle (`unpacked`); its
scores are released as they are, u u^T with u = w sum g' z, so that rows of a unit may depend on each other.

**Privacy.** A contribution reads one record, or one unit, and public values. A record with a cell that is not
finite or an outcome outside the likelihood's support yields NaN, which the gate turns into a zero
contribution; such a row of a unit counts nowhere in it. The proof is in docs/proofs/weighted.md.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from dpsep.families import Gamma
from dpsep.models.base import At, Response
from dpsep.models.glm import Columns, design
from dpsep.models.linear import LearnedNoise

Array = NDArray[np.float64]

CELLS = 24
"""Cells of a histogram: factors of sqrt(2) up to its top; what is smaller is in the first one."""


class Seen(NamedTuple):
    """What leverages and second moments depend on besides the record.

    Attributes
    ----------
    features, outcome
        Maps of the columns; the intercept is added before them.
    map
        A, shape (k, k).
    cap
        Largest |z|^2 of a record that has the whole weight one; of a histogram, its top.
    """

    features: Columns
    outcome: Columns
    map: jax.Array
    cap: jax.Array


class Steered(NamedTuple):
    """What weighted local factors depend on besides the record, in coordinates z = A x.

    Attributes
    ----------
    features, outcome
        Maps of the columns; the intercept is added before them.
    map
        A, shape (k, k).
    half
        Inverse Cholesky factor of the cavity precision.
    doubt
        Factor of the posterior covariance with all noise of privacy: |doubt z|^2 is the predictor's variance.
    cavity_mean, centre
        Means of the cavity, and of the posterior, from which mean parts are counted.
    noise
        Cavity of the noise precision; of use only where it is learned.
    cut, widest, dispersion
        As in `dpsep.models.base.At`.
    caps
        R and K; of histograms, the tops of (b |z|)^2, of k |z|^2 and of the residual.
    """

    features: Columns
    outcome: Columns
    map: jax.Array
    half: jax.Array
    doubt: jax.Array
    cavity_mean: jax.Array
    centre: jax.Array
    noise: Gamma
    cut: jax.Array
    widest: jax.Array
    dispersion: jax.Array
    caps: jax.Array


@dataclass(frozen=True)
class Leverages:
    """Half octave of |z|^2: one flat block, ``leverage``.

    Parameters
    ----------
    intercept, target
        Whether a column of ones is put first, and the outcome last.
    """

    intercept: bool = True
    target: bool = False

    def __call__(self, public: Seen, chunk: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, ...]:
        """Return a one in its cell, one row a record."""
        z, usable = _seen(public, chunk, self)
        return (_cell(jnp.sum(z**2, axis=1), public.cap, usable),)


@dataclass(frozen=True)
class SecondMoments:
    """Weighted outer products of z: one outer block, ``second``. Parameters are those of `Leverages`."""

    intercept: bool = True
    target: bool = False

    def __call__(self, public: Seen, chunk: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, ...]:
        """Return the root of the weight times z, one row a record."""
        z, usable = _seen(public, chunk, self)
        weight = _at_most(public.cap, jnp.sum(z**2, axis=1))
        return (jnp.where(usable[:, None], jnp.sqrt(weight)[:, None] * z, jnp.nan),)


@dataclass(frozen=True)
class UnitLeverages:
    """As `Leverages`, of units: half octave of the sum of |z|^2."""

    intercept: bool = True

    def __call__(self, public: Seen, chunk: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, ...]:
        """Return a one in its cell, one row a unit."""
        z, usable = _unit_seen(public, chunk, self.intercept)
        return (_cell(jnp.sum(z**2, axis=(1, 2)), public.cap, jnp.any(usable, axis=1)),)


@dataclass(frozen=True)
class UnitMoments:
    """As `SecondMoments`, of units: flat blocks ``second``, a triangle, and ``rows``, how many it has.

    Parameters
    ----------
    most
        Places for rows of a unit.
    """

    intercept: bool = True
    most: int = 1

    def __call__(self, public: Seen, chunk: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, ...]:
        """Return the weighted sum of z z^T and the number of rows over `most`, one row a unit."""
        z, usable = _unit_seen(public, chunk, self.intercept)
        weight = _at_most(public.cap, jnp.sum(z**2, axis=(1, 2)))
        number = jnp.sum(usable, axis=1)
        parts = weight[:, None] * _packed(z), number[:, None] / self.most
        return tuple(jnp.where(number[:, None] > 0, part, jnp.nan) for part in parts)


@dataclass(frozen=True)
class Reaches:
    """Half octaves of (b |z|)^2 and of k |z|^2 at the current mean: flat blocks ``score`` and ``curvature``.

    Where the noise precision is learned, of the residual, too: ``residual``.
    """

    likelihood: Any
    intercept: bool = True

    def __call__(self, public: Steered, chunk: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, ...]:
        """Return a one in each cell, one row a record."""
        seen = _row(self.likelihood, public, chunk, self.intercept)
        square, usable = jnp.sum(seen.z**2, axis=1), seen.usable
        cells = (
            _cell(seen.response.bound**2 * square, public.caps[0], usable),
            _cell(seen.response.size * square, public.caps[1], usable),
        )
        if seen.noise is None:
            return cells
        return (*cells, _cell(jnp.abs(seen.residual), public.caps[2], usable))


@dataclass(frozen=True)
class WeightedFactors:
    """Weighted scores: blocks ``mean`` (flat), ``precision`` and ``square`` (outer), and what a likelihood
    has besides.

    Their products are w k z z^T and w^2 v z z^T, v the variance of the score: the curvature of the weighted
    score, and its covariance.

    With counts the flat block ``dispersion`` is one number, the weighted statistic of the dispersion. The
    block ``noise`` (flat) is (shape part - 1/2, rate part times the expected noise precision) of the Gamma
    factor on the noise precision, as in `dpsep.models.glm.LinearContribution`, of the cut residual.
    """

    likelihood: Any
    intercept: bool = True

    def __call__(self, public: Steered, chunk: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, ...]:
        """Return w g' z, sqrt(w k) z and the other parts, one row a record."""
        seen = _row(self.likelihood, public, chunk, self.intercept)
        norm = jnp.sqrt(jnp.sum(seen.z**2, axis=1))
        found = seen.response
        weight = jnp.minimum(
            _at_most(public.caps[0], found.bound * norm), _at_most(public.caps[1], found.size * norm**2)
        )
        mean = (weight * found.slope)[:, None] * seen.z
        # Only a likelihood that is not log-concave has a negative one, of outliers: their scores are kept.
        precision = jnp.sqrt(weight * jnp.maximum(found.curvature, 0.0))[:, None] * seen.z
        square = jnp.sqrt(weight * found.spread)[:, None] * precision
        parts = tuple(jnp.where(seen.usable[:, None], part, jnp.nan) for part in (mean, precision, square))
        if found.statistic is not None:
            parts = (*parts, (weight * found.statistic)[:, None])
        return parts if seen.noise is None else (*parts, seen.noise)


@dataclass(frozen=True)
class UnitReaches:
    """As `Reaches`, of units: half octaves of the square of sum b |z|, and of sum k |z|^2."""

    likelihood: Any
    intercept: bool = True

    def __call__(self, public: Steered, chunk: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, ...]:
        """Return a one in each cell, one row a unit."""
        rows = _unit_rows(self.likelihood, public, chunk, self.intercept)
        score, curvature = rows.sizes()
        usable = jnp.any(rows.usable, axis=1)
        cells = _cell(score**2, public.caps[0], usable), _cell(curvature, public.caps[1], usable)
        if rows.noise is None:
            return cells
        return (*cells, _cell(jnp.sqrt(rows.mean(rows.residual**2)), public.caps[2], usable))


@dataclass(frozen=True)
class UnitFactors:
    """As `WeightedFactors`, of units: ``precision`` is a triangle, and ``square`` the scores' own product.

    The block ``noise`` is the mean over the rows of a unit; ``dispersion`` is the weight times such a mean.
    """

    likelihood: Any
    intercept: bool = True

    def __call__(self, public: Steered, chunk: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, ...]:
        """Return w sum g' z, the triangle of w sum k z z^T, and the scores again, one row a unit."""
        rows = _unit_rows(self.likelihood, public, chunk, self.intercept)
        score, size = rows.sizes()
        weight = jnp.minimum(_at_most(public.caps[0], score), _at_most(public.caps[1], size))[:, None]
        mean = weight * jnp.sum(rows.slope[:, :, None] * rows.z, axis=1)
        root = jnp.sqrt(jnp.maximum(rows.curvature, 0.0))[:, :, None] * rows.z
        parts = (mean, weight * _packed(root), mean)
        if rows.statistic is not None:
            parts = (*parts, weight * rows.mean(rows.statistic)[:, None])
        if rows.noise is not None:
            parts = (*parts, rows.mean(rows.noise))
        return tuple(jnp.where(jnp.any(rows.usable, axis=1)[:, None], part, jnp.nan) for part in parts)


def unpacked(triangle: Array, size: int) -> Array:
    """Return the symmetric matrix of a released triangle: noise on its diagonal is that of the numbers.

    Examples
    --------
    >>> unpacked(np.array([1.0, np.sqrt(2.0), 3.0]), 2)
    array([[1., 1.],
           [1., 3.]])
    """
    matrix = np.zeros((size, size))
    first, second = np.triu_indices(size)
    matrix[first, second] = matrix[second, first] = triangle / np.where(first == second, 1.0, np.sqrt(2.0))
    return matrix


class _Rows(NamedTuple):
    """Rows of units, (units, rows, ...); zeros where one cannot be used."""

    z: jax.Array
    slope: jax.Array
    bound: jax.Array
    curvature: jax.Array
    size: jax.Array
    usable: jax.Array
    residual: jax.Array
    statistic: jax.Array | None
    noise: jax.Array | None

    def sizes(self) -> tuple[jax.Array, jax.Array]:
        """Bound of a unit's score, and of its curvature."""
        norm = jnp.sqrt(jnp.sum(self.z**2, axis=2))
        return jnp.sum(self.bound * norm, axis=1), jnp.sum(self.size * norm**2, axis=1)

    def mean(self, values: jax.Array) -> jax.Array:
        """Mean over the rows of a unit that can be used."""
        number = jnp.maximum(jnp.sum(self.usable, axis=1), 1)
        return jnp.sum(values, axis=1) / number.reshape(-1, *[1] * (values.ndim - 2))


def _unit_rows(
    likelihood: Any, public: Steered, chunk: tuple[jax.Array, jax.Array], intercept: bool
) -> _Rows:
    def place(x: jax.Array, y: jax.Array) -> _Rows:
        seen = _row(likelihood, public, (x, y), intercept)
        found, usable = seen.response, seen.usable

        def kept(values: Any) -> jax.Array:
            values = jnp.broadcast_to(values, (*usable.shape, *jnp.shape(values)[1:]))
            return jnp.where(usable.reshape(-1, *[1] * (values.ndim - 1)), values, 0.0)

        return _Rows(
            kept(seen.z),
            kept(found.slope),
            kept(found.bound),
            kept(found.curvature),
            kept(found.size),
            usable,
            kept(seen.residual),
            None if found.statistic is None else kept(found.statistic),
            None if seen.noise is None else kept(seen.noise),
        )

    # Over the places of a unit: rows of different units never meet.
    return jax.vmap(place, in_axes=1, out_axes=1)(*chunk)


def _unit_seen(
    public: Seen, chunk: tuple[jax.Array, jax.Array], intercept: bool
) -> tuple[jax.Array, jax.Array]:
    def place(x: jax.Array, y: jax.Array) -> tuple[jax.Array, jax.Array]:
        z, usable = _seen(public, (x, y), Leverages(intercept))
        return jnp.where(usable[:, None], z, 0.0), usable

    return jax.vmap(place, in_axes=1, out_axes=1)(*chunk)


def _packed(rows: jax.Array) -> jax.Array:
    """Triangle of the sum of products of a unit's rows: its norm is that of the matrix."""
    size = rows.shape[2]
    first, second = np.triu_indices(size)
    scale = np.where(first == second, 1.0, np.sqrt(2.0))
    return jnp.sum(rows[:, :, first] * rows[:, :, second], axis=1) * scale


class _Row(NamedTuple):
    z: jax.Array
    response: Response
    usable: jax.Array
    residual: jax.Array
    noise: jax.Array | None


def _row(likelihood: Any, public: Steered, chunk: tuple[jax.Array, jax.Array], intercept: bool) -> _Row:
    """Response of each record; a score that is NaN of an unusable one."""
    x, y = design(public, chunk, intercept)
    z = x @ public.map.T
    mean = z @ public.cavity_mean
    variance = jnp.sum((z @ public.half.T) ** 2, axis=1)
    doubt = jnp.sum((z @ public.doubt.T) ** 2, axis=1)
    at = At(mean - z @ public.centre, public.cut, public.dispersion, doubt, public.widest)
    if isinstance(likelihood, LearnedNoise):
        found, factor = likelihood.response(mean, variance, public.noise, y, at)
        noise = jnp.stack([factor.shape_minus_one - 0.5, factor.rate * public.noise.mean], axis=1)
        return _Row(z, found, jnp.isfinite(y), y - mean, noise)
    usable = likelihood.valid(y)
    y = jnp.where(usable, y, jnp.nan)
    return _Row(z, likelihood.response(mean, variance, y, at), usable, y - mean, None)


def _seen(
    public: Seen, chunk: tuple[jax.Array, jax.Array], of: Leverages | SecondMoments
) -> tuple[jax.Array, jax.Array]:
    x, y = design(public, chunk, of.intercept)
    usable = jnp.isfinite(y)
    if of.target:
        x = jnp.concatenate([x, jnp.where(usable, y, 0.0)[:, None]], axis=1)
    return x @ public.map.T, usable


def _at_most(cap: jax.Array, size: jax.Array) -> jax.Array:
    """Weight that brings a size down to a cap: min(1, cap / size)."""
    return jnp.minimum(1.0, cap / jnp.maximum(size, jnp.finfo(size.dtype).tiny))


def _cell(size: jax.Array, top: jax.Array, usable: jax.Array) -> jax.Array:
    """A one in the last cell for sizes above top / sqrt(2), in the one before for half of that ..."""
    tiny = jnp.finfo(size.dtype).tiny
    below = jnp.floor(2.0 * jnp.log2(jnp.maximum(top, tiny) / jnp.maximum(size, tiny)) + 1e-9)
    cell = jnp.clip(CELLS - 1 - below, 0, CELLS - 1)
    row = jnp.where(cell[:, None] == jnp.arange(CELLS), 1.0, 0.0)
    return jnp.where(usable[:, None], row, jnp.nan)
