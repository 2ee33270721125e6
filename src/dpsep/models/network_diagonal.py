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
        factors = jax.vmap(lambda record: self.model.local_factor(public.cavity, record))(
            (x @ public.turn, y)
        )
        weights, rest = self.model.parts(factors)
        mean = weights.eta - weights.precision * public.centre
        # An outcome that is not usable leaves the weights' factor zero: mark the whole row.
        bad = jnp.where(jnp.isfinite(y), 0.0, jnp.nan)[:, None]
        parts = (mean * public.unit + bad, weights.precision * public.unit**2 + bad)
        if not isinstance(self.model, NetworkRegression):
            return parts
        scale = self.model.parts(public.cavity)[1].mean
        return (*parts, jnp.stack([rest.shape_minus_one - 0.5, rest.rate * scale], axis=1) + bad)
