"""Linear regression with learned noise, where the noise precision is already well known.

`LearnedNoise` integrates over the noise precision tau record by record. When its Gamma cavity has shape a, as
it does once a posterior rests on about 2a records, everything it computes depends on tau through a density of
relative width a^-1/2, and Laplace's expansion gives the same numbers up to O(1/a) in closed form: the tilted
moments of the predictor at tau = E[tau], and for tau the Gamma factor (alpha, beta) whose log has the first
and second derivative of log N(y; m, v + 1/tau) there. At v = 0 both are exact. It costs as much as known
noise, so it serves batches.
"""

from dataclasses import dataclass

import jax.numpy as jnp
from jax.typing import ArrayLike

from dpsep.families import Gamma
from dpsep.models.base import Tilted
from dpsep.models.linear import LearnedNoise, student


@dataclass(frozen=True)
class ConcentratedNoise(LearnedNoise):
    """`LearnedNoise` up to O(1/a) in the noise shape a; see the module.

    Examples
    --------
    >>> _, factor = ConcentratedNoise().tilted(0.0, 0.0, Gamma.from_shape_and_rate(5.0, 5.0), 2.0)
    >>> float(factor.shape_minus_one), float(factor.rate)          # exactly 1/2 and (y - m)^2 / 2
    (0.5, 2.0)
    """

    def tilted(
        self, mean: ArrayLike, variance: ArrayLike, noise: Gamma, y: ArrayLike
    ) -> tuple[Tilted, Gamma]:
        """Tilted moments of the predictor, and the local factor on the noise precision."""
        residual, variance, tau = jnp.asarray(y) - mean, jnp.asarray(variance), noise.mean
        spread = 1.0 + variance * tau
        k = tau / spread  # predictive precision of y
        surprise = 1.0 - residual**2 * k
        shape = (0.5 + surprise * variance * tau) / spread**2
        slope = 0.5 * surprise / spread  # tau times d log N / d tau
        rate = (shape - slope) / tau
        # A scale by `spread` of Student's t: exact at v = 0.
        log_z = student(noise.shape, noise.rate * spread, residual**2)
        return Tilted(log_z, residual * k, k, 1.0 / spread), Gamma(shape, rate)
