"""Local factors of a network's independent weights, a chunk of records at a time, as contributions.

Moments are propagated through the network (`dpsep.models.network`), so that a record's factor on a weight
accounts for the uncertainty of all others. In whitened coordinates a mean part is counted from the posterior
mean and given times the posterior deviation, a precision part times the posterior variance; inputs may be
turned first by an orthogonal matrix, which an isotropic prior of the first layer does not notice.

**Privacy.** A contribution reads one record and public values. A record with a cell that is not finite or an
outcome outside the likelihood's support yields NaN, which the gate turns into a zero contribution.
The proof is in docs/proofs/network-diagonal.md.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from dpsep.models.glm import Columns
from dpsep.models.network import Layer
from dpsep.models.network_closed import Pass, apart, derivatives, passes
from dpsep.models.network_factors import design
from dpsep.models.network_model import Network, NetworkRegression


class DiagonalPublic(NamedTuple):
    """What local factors depend on besides the record.

    Attributes
    ----------
    features, outcome
        Maps of the columns.
    turn
        Orthogonal matrix that scaled inputs are multiplied by, (d, d).
    cavity
        Posterior without one factor, as the model has it; weights flat.
    centre
        Posterior mean, which mean parts are counted from.
    unit
        Posterior deviations.
    """

    features: Columns
    outcome: Columns
    turn: jax.Array
    cavity: Any
    centre: jax.Array
    unit: jax.Array


@dataclass(frozen=True)
class DiagonalFactors:
    """Whitened, centred local factors: blocks ``mean``, ``precision`` (flat) and, in regression, ``noise``.

    The noise block is that of `dpsep.models.glm.LinearContribution`.

    Parameters
    ----------
    model
        `NetworkRegression` or `NetworkClassification`.
    """

    model: Network

    def __call__(self, public: DiagonalPublic, chunk: Any) -> tuple[jax.Array, ...]:
        """Return the parts of each record's factor, one row a record."""
        x, y = design(public.features, public.outcome, chunk)
        if not isinstance(self.model, NetworkRegression):
            y = jnp.where(jnp.abs(y) == 1.0, y, jnp.nan)
        weights, rest = self.model.parts(public.cavity)
        layers = self.model.layers(weights)
        found, told = passes(
            layers, x @ public.turn, lambda output: self.model._tilt(output, rest, y), self.model.activation
        )
        # An outcome that is not usable leaves the weights' factor zero: mark the whole row.
        bad = jnp.where(jnp.isfinite(y), 0.0, jnp.nan)[:, None]
        away = weights.eta / weights.precision - public.centre
        parts = apart(_whitened)(layers, found, 1.0 / weights.precision, away, public.unit, bad)
        if not isinstance(self.model, NetworkRegression):
            return parts
        return (*parts, jnp.stack([told.shape_minus_one - 0.5, told.rate * rest.mean], axis=1) + bad)


def _whitened(
    layers: tuple[Layer, ...],
    found: tuple[Pass, ...],
    variance: jax.Array,
    away: jax.Array,
    unit: jax.Array,
    bad: jax.Array,
) -> tuple[jax.Array, jax.Array]:
    """Mean and precision parts in units of the posterior."""
    gradient, curvature = derivatives(layers, found)
    # A weight whose tilted variance would be negative is told nothing by this record.
    shrinkage = 1.0 - variance * curvature
    usable = shrinkage > 0
    share = jnp.where(usable, unit / jnp.where(usable, shrinkage, 1.0), 0.0)
    return (gradient + away * curvature) * share + bad, curvature * share * unit + bad
