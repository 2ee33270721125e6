r"""A mixture's sketch: the empirical characteristic function at public frequencies.

A record x contributes cos(omega_k . x) and sin(omega_k . x) at m public frequencies. The sum over records is
N times the empirical characteristic function there, and that of a mixture is

    phi(omega) = sum_j w_j exp(i omega . mu_j - omega^2 . v_j / 2),

so that means, weights and variances can be found from the sketch alone (compressive learning: Keriven,
Bourrier, Gribonval and Perez 2018; under privacy: Schellekens, Chatalic et al. 2019). One release, and then
any number of starts can be tried and compared on it without reading a record again
(`dpsep.inference.sketch`).

**Privacy.** *Sensitivity:* a record's cosines and sines have norm sqrt(m) exactly, whatever the record, so
no bounds on the data are needed and the clip changes nothing. *Public:* the frequencies, drawn by a fixed
seed. A record with a cell that is not finite yields NaN, which the gate turns into a zero contribution.
The proof is in docs/proofs/mixture-sketch.md.
"""

import math
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from dpsep.models.glm import Columns

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Sketch:
    """Cosines and sines of a record at public frequencies: the block ``sketch``."""

    def __call__(self, public: tuple[Columns, jax.Array], chunk: tuple[jax.Array]) -> tuple[jax.Array, ...]:
        """Return all cosines, then all sines, one row a record."""
        columns, frequencies = public
        phase = columns.apply(chunk[0]) @ frequencies.T
        return (jnp.concatenate([jnp.cos(phase), jnp.sin(phase)], axis=1),)


def draw_frequencies(count: int, unit: Array, low: float, high: float, *, even: bool) -> Array:
    """Draw public frequencies: directions uniform, lengths in [low, high], columns divided by `unit`.

    Parameters
    ----------
    count
        How many.
    unit
        Length that a frequency of one belongs to, one a column: the components' deviation where it is known.
    low, high
        Bounds of the lengths.
    even
        Whether lengths are uniform, as where the deviation is known, or uniform in their logarithm, as where
        it may be anything in a range.

    Examples
    --------
    >>> draw_frequencies(200, np.ones(4), 0.3, 2.0, even=True).shape
    (200, 4)
    """
    generator = np.random.default_rng(20220101)  # public: any fixed number will do
    direction = generator.standard_normal((count, len(unit)))
    direction /= np.linalg.norm(direction, axis=1, keepdims=True)
    if even:
        length = generator.uniform(low, high, count)
    else:
        length = np.exp(generator.uniform(math.log(low), math.log(high), count))
    return direction * length[:, None] / unit
