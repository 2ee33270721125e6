"""Local factors of generalised linear models, a chunk of records at a time, as contributions to a release.

With posterior q = N(m, Lambda^-1) = p0 f^N, the cavity is q / f (equation 3 of the paper), the same for every
record. For a record (x, y) the local factor has rank one (see `dpsep.models.base`): precision s' x x^T and,
counted from the posterior mean, mean part g' x. In coordinates whitened by the cavity, z = L^-1 x with cavity
precision L L^T, these are s' z z^T and g' z; their norms s' |z|^2 and |g'| |z| do not depend on how the
columns were scaled, and summed over records the first are at most the dimension.

**Privacy.** A contribution reads one record and public values. A record with a cell that is not finite or an
outcome outside the likelihood's support yields NaN, which the gate turns into a zero contribution.
The proof is in docs/proofs/glm.md.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from dpsep.families import Gamma
from dpsep.families.columns import Columns
from dpsep.models.base import Likelihood, Tilted, slope_of
from dpsep.models.linear import LearnedNoise


class Public(NamedTuple):
    """What local factors depend on besides the record.

    Attributes
    ----------
    features, outcome
        Maps of the columns; the intercept is added after them.
    half
        Inverse Cholesky factor of the cavity precision, L^-1.
    cavity_mean
        Mean of the cavity.
    centre
        Mean of the posterior, from which mean parts are counted.
    noise
        Cavity of the noise precision; of use only where it is learned.
    """

    features: Columns
    outcome: Columns
    half: jax.Array
    cavity_mean: jax.Array
    centre: jax.Array
    noise: Gamma


@dataclass(frozen=True)
class GLMContribution:
    """Whitened, centred local factors: blocks ``mean`` (flat) and ``precision`` (outer).

    Parameters
    ----------
    likelihood
        Of one scalar predictor.
    intercept
        Whether a column of ones is put first.
    """

    likelihood: Likelihood
    intercept: bool = True

    def __call__(self, public: Public, chunk: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, ...]:
        """Return g' z and sqrt(s') z, one row a record."""
        x, y = design(public, chunk, self.intercept)
        y = jnp.where(self.likelihood.valid(y), y, jnp.nan)
        z, mean, variance = _predictor(public, x)
        tilted = self.likelihood.tilted(mean, variance, y)
        return _rank_one(public, x, z, tilted, mean)


@dataclass(frozen=True)
class LinearContribution:
    """Local factors of linear regression with learned noise: blocks ``mean``, ``precision`` and ``noise``.

    The Gamma factor is near (1/2, r^2 / 2). Its block is (shape part - 1/2, rate part times the expected
    noise precision): numbers near 0 and of order one, with a clip of their own, because in one joint clip the
    squared residual would be shrunk together with the rest and the noise underestimated.

    Parameters
    ----------
    model
        Which approximation of the tilted moments is used.
    intercept
        Whether a column of ones is put first.
    """

    model: LearnedNoise
    intercept: bool = True

    def __call__(self, public: Public, chunk: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, ...]:
        """Return g' z, sqrt(s') z and the noise part, one row a record."""
        x, y = design(public, chunk, self.intercept)
        z, mean, variance = _predictor(public, x)
        tilted, factor = self.model.tilted(mean, variance, public.noise, y)
        noise = jnp.stack([factor.shape_minus_one - 0.5, factor.rate * public.noise.mean], axis=1)
        return (*_rank_one(public, x, z, tilted, mean), noise)


def design(public: Any, chunk: tuple[jax.Array, jax.Array], intercept: bool) -> tuple[jax.Array, jax.Array]:
    """Columns of each record by public maps, the intercept first, and its outcome: NaN of an unusable record.

    Parameters
    ----------
    public
        Has maps ``features`` and ``outcome``.
    """
    x = public.features.apply(chunk[0])
    y = public.outcome.apply(chunk[1])
    # A bad cell must spoil its whole record, and only it: mark the outcome, zero the row.
    usable = jnp.all(jnp.isfinite(x), axis=1)
    x = jnp.where(usable[:, None], x, 0.0)
    if intercept:
        x = jnp.concatenate([jnp.ones_like(x[:, :1]), x], axis=1)
    return x, jnp.where(usable, y, jnp.nan)


def _predictor(public: Public, x: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
    z = x @ public.half.T
    return z, x @ public.cavity_mean, jnp.sum(z**2, axis=1)


def _rank_one(
    public: Public, x: jax.Array, z: jax.Array, tilted: Tilted, mean: jax.Array
) -> tuple[jax.Array, jax.Array]:
    offset = mean - x @ public.centre
    precision = tilted.curvature / tilted.shrinkage
    slope = slope_of(tilted, offset)
    # Outliers under a likelihood that is not log-concave may have a negative factor; the outer block holds
    # only positive ones, so theirs is dropped and their mean part kept.
    return slope[:, None] * z, jnp.sqrt(jnp.maximum(precision, 0.0))[:, None] * z
