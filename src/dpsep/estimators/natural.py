"""The paper's own update (`dpsep.inference.sep`) behind the estimators: its blocks, and its run.

**Privacy.** One block, the flat natural parameters of a record's local factor in the paper's own coordinates,
clipped to C. A record with a bad cell or outcome yields NaN, which the gate turns into zero.
The proof is in docs/proofs/natural.md.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from dpsep.families import Gamma, Gaussian
from dpsep.families.flat import to_vector
from dpsep.inference import sep, sep_newton
from dpsep.inference.release_trace import Moments
from dpsep.models import GLM, LearnedNoise
from dpsep.models.glm import Columns
from dpsep.models.linear import WeightsAndNoise
from dpsep.privacy.grid import Block

STEPS = 100
"""Releases of a private run, where the user does not say."""
CLIP = 1.0
"""The paper's C for its private network experiments."""

Array = NDArray[np.float64]


@dataclass(frozen=True)
class NaturalContribution:
    """Flat local factors of records whose columns are mapped first.

    Parameters
    ----------
    likelihood
        Of one predictor, or with a learned noise precision.
    intercept
        Whether a column of ones is put first.
    """

    likelihood: Any
    intercept: bool

    @property
    def learned_noise(self) -> bool:
        """Whether the posterior has a noise precision."""
        return isinstance(self.likelihood, LearnedNoise)

    def __call__(self, public: tuple[Columns, Columns, Any], chunk: Any) -> tuple[jax.Array, ...]:
        """Return the flat local factor of each record of a chunk."""
        features, outcome, cavity = public
        x, y = features.apply(chunk[0]), outcome.apply(chunk[1])
        usable = jnp.all(jnp.isfinite(x), axis=1) & self.likelihood.valid(y)
        x = jnp.where(usable[:, None], x, 0.0)
        if self.intercept:
            x = jnp.concatenate([jnp.ones_like(x[:, :1]), x], axis=1)
        model = self.likelihood if self.learned_noise else GLM(self.likelihood)
        record = (x, jnp.where(usable, y, 1.0))
        rows = jax.vmap(lambda one: to_vector(model.local_factor(cavity, one)))(record)
        return (jnp.where(usable[:, None], rows, jnp.nan),)


def parts(
    likelihood: Any, dimension: int, intercept: bool, clip: float | None
) -> tuple[list[Block], NaturalContribution]:
    """Return the block and the contribution of the paper's update."""
    contribution = NaturalContribution(likelihood, intercept)
    size = dimension + dimension * (dimension + 1) // 2 + (2 if contribution.learned_noise else 0)
    return [Block("factor", size, CLIP if clip is None else clip)], contribution


def run(
    gate: Any,
    contribution: NaturalContribution,
    settings: sep_newton.Settings,
    gamma: float,
    clip: float | None,
    steps: int,
    watch: Callable[[Callable[[], Moments]], None] | None = None,
) -> tuple[Array, Array, Array, tuple[float, float] | None]:
    """Run Algorithm 3; return mean, covariance, noise covariance (unknown: zero) and the noise precision.

    Parameters
    ----------
    watch
        Called after each release with a function that gives the moments of the weights.
    """
    with jax.enable_x64(True):
        prior: Any = Gaussian(jnp.zeros(len(settings.prior_mean)), jnp.asarray(settings.prior_precision))
        if contribution.learned_noise:
            prior = WeightsAndNoise(prior, Gamma(jnp.asarray(0.0), jnp.asarray(1e-3)))
        natural = sep.Settings(prior, gate.records, gamma=gamma, clip=CLIP if clip is None else clip)
        mapped = _Mapped(gate, settings.features, settings.outcome)

        def moments(state: sep.State) -> Moments:
            theta = sep.posterior(natural, state)
            weights = theta.weights if contribution.learned_noise else theta
            covariance = np.linalg.inv(np.asarray(weights.precision))
            return Moments(covariance @ np.asarray(weights.eta), covariance)

        seen = None if watch is None else lambda state: watch(lambda: moments(state))
        q = sep.posterior(natural, sep.run_gate(mapped, natural, steps, seen))
        noise = (float(q.noise.shape), float(q.noise.rate)) if contribution.learned_noise else None
        weights = q.weights if contribution.learned_noise else q
        mean, covariance = np.asarray(weights.mean), np.asarray(weights.covariance)
    return mean, covariance, np.zeros_like(covariance), noise


class _Mapped:
    """A gate whose public values are the column maps beside the cavity."""

    def __init__(self, gate: Any, features: Columns, outcome: Columns) -> None:
        self._gate, self._maps = gate, (features, outcome)

    @property
    def expected_batch(self) -> float:
        return self._gate.expected_batch

    def release(self, public: Any) -> dict[str, Array]:
        return self._gate.release((*self._maps, public))
