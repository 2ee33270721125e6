r"""The unknown dispersion of counts in a private fit: what it does to scores, and how scores are freed of it.

Scores of counts are centred under variance mu + alpha mu^2 (`dpsep.models.poisson.count_response`). With
alpha off by alpha* - alpha, at a distance b - m of the weights from the root,

    S = G (b - m) - p (alpha* - alpha),    T = l . (b - m) + o (alpha* - alpha),

S the scores, T the released statistic of the dispersion, p, l and o sums of the derivatives of `Coupling`
over records. So S + (p / o) T = (G + p l^T / o) (b - m) knows nothing of alpha*, and T - l . (b - m)
estimates it.

The sums are expectations under a named law, normal columns with the moments that were released:
post-processing. A law that is off by a share leaves that share of what alpha does, which is little where the
budget is large, since cuts are then far out and p is small.

**Privacy.** Post-processing of what a gate released. This file sees no record.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dpsep.models.poisson import Coupling

Array = NDArray[np.float64]
Couple = Callable[[Array, float], Coupling]
"""How scores and the dispersion move each other, at means and a dispersion."""

START = 0.5
"""First guess of the dispersion, before any release."""
NODES = 9
"""Points of the quadrature over the predictor's law."""
FARTHEST = 20.0
"""Largest predictor that rates are taken at."""
DOUBT = 1.0
"""Standard deviation of how far a dispersion may be off, relative to one more than itself."""
MOST_LOSS = 0.8
"""Most of the information in a direction that an unknown dispersion may take."""


class Law(NamedTuple):
    """Normal law of the predictor u of a record, and what it says of the record's coordinates z.

    Attributes
    ----------
    mean, variance
        Of u.
    start, slope
        Mean of z, and its covariance with u.
    """

    mean: float
    variance: float
    start: Array
    slope: Array


class Correction(NamedTuple):
    """How a release is freed of the dispersion.

    Attributes
    ----------
    ratio, lean
        p / o as far as noise lets it be told, and l.
    own
        o.
    spread
        What the correction adds to the covariance of the scores.
    scatter
        Variance of the statistic itself.
    """

    ratio: Array
    lean: Array
    own: float
    spread: Array
    scatter: float

    def dispersion(self, before: float, statistic: float, way: Array) -> float:
        """Estimate of the dispersion.

        Parameters
        ----------
        before
            Dispersion that the release was made with.
        statistic
            The released one.
        way
            b - m, as the scores say it.
        """
        return max(before, 0.0) + (statistic - float(self.lean @ way)) / self.own


def correction(
    couple: Couple,
    law: Law,
    dispersion: float,
    precision: Array,
    *,
    whole: float,
    squares: float,
    noise: float,
    estimates: int,
    rows: float = 1.0,
) -> Correction:
    """Return how a release is freed of the dispersion.

    Parameters
    ----------
    couple
        Of the likelihood.
    law
        Of the predictor where the release was made.
    dispersion
        That the release was made with.
    precision
        G.
    whole, squares
        Sums of the records' weights, and of their squares.
    noise
        Standard deviation of the noise of privacy in the statistic.
    estimates
        How many estimates of the dispersion were made before.
    rows
        Average number of rows of a unit: its score is their sum, and its statistic their mean.
    """
    nodes, shares = np.polynomial.hermite_e.hermegauss(NODES)
    shares = shares / shares.sum()
    deviation = math.sqrt(law.variance)
    u = np.clip(law.mean + deviation * nodes, -FARTHEST, FARTHEST)
    parts = couple(np.exp(u), max(dispersion, 0.0))
    # All that is known beforehand of how far off the dispersion is.
    doubt = DOUBT * (1.0 + max(dispersion, 0.0))

    def summed(values: Array) -> Array:
        """Expectation of a function of the predictor times z."""
        bent = float(shares @ (values * nodes)) / max(deviation, 1e-6)
        return float(shares @ values) * law.start + bent * law.slope

    own = max(whole * float(shares @ parts.own), 1e-9)
    pull, lean = whole * rows * summed(parts.pull), whole * summed(parts.lean)
    scatter = squares * float(shares @ parts.spread)
    # As much of p / o as the noise of the statistic leaves; what it leaves out is added to the covariance.
    share = own * doubt**2 / (own**2 * doubt**2 + noise**2 + scatter)
    taken = abs(share * float(lean @ np.linalg.lstsq(precision, pull, rcond=None)[0]))
    share *= min(1.0, MOST_LOSS / taken) if taken > 0 else 1.0
    known = math.sqrt(noise**2 / (1 + estimates) + scatter) / own
    ratio, rest = share * pull, (1.0 - own * share) * min(doubt, known)
    joint = squares * np.outer(summed(parts.joint), ratio)
    spread = scatter * np.outer(ratio, ratio) + joint + joint.T + rest**2 * np.outer(pull, pull)
    return Correction(ratio, lean, own, spread, scatter)


def followed(before: float, found: list[float]) -> float:
    """Estimate of the dispersion after a release: the average, within a factor of four of the one before."""
    if not found:
        return before
    return float(np.clip(np.mean(found), before / 4.0 - 0.05, 4.0 * before + 0.2))
