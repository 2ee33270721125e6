r"""Caps of weights, from released counts of how large records are.

The size of a record (its squared leverage |z|^2, the square of its score's bound (b |z|)^2, its curvature k
|z|^2, its residual) lies in one of `CELLS` half octaves below a public top. Counts of the half octaves are
released, with noise of known size (`dpsep.models.weighted`). A cap follows from them in one of three ways:

- `highest`: the edge above which no half octave stands out of the noise. Next to no record is above it.
- `whole_cap`: the edge above which records hold next to nothing of the second moments.
- `score_cap` and `curvature_cap`: records above a cap weigh less, which biases nothing
(docs/proofs/weighted.md) and
  takes information; the noise of privacy grows with the cap. The best cap is where both together are least.

*Caps open with the budget.* As noise vanishes the half octave of a single record stands out, and information
is all that counts: every record has the weight one, on every table.

**Privacy.** Post-processing of what a gate released. This file sees no record.
"""

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dpsep.models.base import Unit
from dpsep.models.weighted import CELLS

Array = NDArray[np.float64]

VISIBLE, FARTHER = 2.0, 0.25
"""Noise deviations that a half octave's count must reach to stand out, and more for each one farther off."""
RARE = 0.2
"""Information of a rare direction, relative to the average one, that curvature caps are chosen for."""
MIDDLE = 2.0**-0.25
"""Middle of a half octave, relative to its upper edge."""


class Sizes(NamedTuple):
    """Counts of half octaves up to the highest one that stands out, and their upper edges."""

    counts: Array
    edges: Array

    @property
    def middle(self) -> Array:
        """Sizes of typical records of the half octaves."""
        return self.edges * MIDDLE


def seen(cells: Array, noise: float, top: float) -> Sizes:
    """Return the half octaves that noise does not hide.

    Parameters
    ----------
    cells, noise, top
        As in `highest`.
    """
    edges = _edges(top)
    below = edges <= 1.0001 * highest(cells, noise, top)
    return Sizes(np.maximum(cells[below], 0.0), edges[below])


def highest(cells: Array, noise: float, top: float) -> float:
    """Upper edge of the highest half octave whose count stands out of the noise, alone or with the next
    lower.

    Parameters
    ----------
    cells
        Released counts of half octaves; the last one ends at `top`.
    noise
        Standard deviation of each.

    Examples
    --------
    >>> highest(np.array([0.0] * 20 + [90.0, 9.0, 0.0, 1.0]), 0.1, 8.0)
    8.0
    >>> round(highest(np.array([0.0] * 20 + [90.0, 9.0, 0.0, 1.0]), 2.0, 8.0), 9)
    4.0
    """
    share = np.cumsum(np.maximum(cells, 0.0))
    middle = int(np.searchsorted(share, 0.5 * share[-1]))
    farther = np.maximum(np.arange(CELLS) - middle - 2, 0)
    least = (VISIBLE + FARTHER * farther) * noise
    pairs = cells + np.concatenate([[0.0], cells[:-1]])
    # A pair whose lower cell stands out by itself says nothing of the higher one.
    (clear,) = np.nonzero((cells > least) | ((pairs > math.sqrt(2.0) * least) & (cells > 0.5 * least)))
    # Where noise hides them all, the cap that lets all records count.
    return float(_edges(top)[clear[-1]]) if len(clear) else top


def whole_cap(cells: Array, noise: float, top: float, lost: float) -> float:
    """Return the least edge above which records hold no more than so much of the mean of |z|^2.

    No direction u loses more than that of E (u z)^2, since (u z)^2 <= |z|^2.

    Parameters
    ----------
    cells, noise, top
        As in `highest`.
    lost
        How much.

    Examples
    --------
    >>> whole_cap(np.array([0.0] * 20 + [90.0, 9.0, 0.0, 1.0]), 0.1, 8.0, 0.1)
    4.0
    >>> whole_cap(np.array([0.0] * 20 + [90.0, 9.0, 0.0, 1.0]), 0.1, 8.0, 0.01)
    8.0
    """
    sizes = seen(cells, noise, top)
    records = max(float(sizes.counts.sum()), 1e-300)
    beyond = np.maximum(sizes.edges - sizes.edges[:, None], 0.0) @ sizes.counts / records
    return float(sizes.edges[np.argmax(beyond <= lost)])


def score_cap(sizes: Sizes, hidden: float, unit: Unit, dimension: int) -> float:
    """Return R: where the noise and the scores themselves hide the weights the least.

    With s = b |z| and weights w = min(1, R / s), a coordinate has information sum w s^2, scores of variance
    sum w^2 s^2 (both in units of k / b^2 over the dimension) and noise (R hidden)^2.

    Parameters
    ----------
    sizes
        Of s^2.
    hidden
        Deviation of the noise in all scores of a fit together, in units of R.
    unit
        Bound b and curvature k of a typical record.
    dimension
        Number of weights.
    """
    rate = unit.curvature / unit.bound**2 / dimension

    def variance(square: float) -> float:
        weight = np.minimum(1.0, np.sqrt(square / sizes.middle))
        information = rate * float(np.sum(sizes.counts * weight * sizes.middle))
        scores = rate * float(np.sum(sizes.counts * weight**2 * sizes.middle))
        return (scores + square * hidden**2) / max(information, 1e-300) ** 2

    return math.sqrt(min(sizes.edges, key=variance))


def curvature_cap(sizes: Sizes, hidden: float, dimension: int) -> float:
    """Return K: where what is lost of the curvature and the noise in it, of a rare direction, are least.

    Parameters
    ----------
    sizes
        Of k |z|^2.
    hidden
        Deviation of the noise in all curvatures of a fit together, in units of K.
    dimension
        Number of weights.
    """
    whole = max(float(np.sum(sizes.counts * sizes.middle)), 1e-300)

    def loss(size: float) -> float:
        left = float(np.sum(sizes.counts * np.minimum(sizes.middle, size))) / whole
        return 1.0 - left + (size * hidden * dimension / (RARE * max(left, 1e-9) * whole)) ** 2

    return float(min(sizes.edges, key=loss))


def mean_weights(sizes: Sizes, cap: float, power: float) -> tuple[float, float]:
    """Return the average weight, and share, of the information that weights (cap / size)^power leave.

    Examples
    --------
    >>> mean_weights(Sizes(np.array([8.0, 8.0]), np.array([1.0, 4.0])), 1e9, 1.0)
    (1.0, 1.0)
    """
    weight = np.minimum(1.0, cap / sizes.middle) ** power
    whole = max(float(np.sum(sizes.counts * sizes.middle)), 1e-300)
    left = max(float(np.sum(sizes.counts * weight * sizes.middle)), 1e-300)
    return float(np.sum(sizes.counts * weight**2 * sizes.middle)) / left, left / whole


def deviation(cells: Array, noise: float, top: float) -> float:
    """Return the deviation of a normal residual: 68 % of the records that stand out are below it.

    Parameters
    ----------
    cells, noise, top
        As in `highest`, of absolute residuals.
    """
    counts = np.where(cells > noise, cells, 0.0)
    share = np.cumsum(counts) / max(float(counts.sum()), 1.0)
    return float(_edges(top)[min(int(np.searchsorted(share, 0.683)), CELLS - 1)])


def clear(cells: Array, noise: float, records: int) -> bool:
    """Whether half of the records lie in half octaves that stand out of the noise."""
    return float(np.sum(cells[cells > VISIBLE * noise])) >= 0.5 * records


def _edges(top: float) -> Array:
    return np.asarray(top * 2.0 ** (0.5 * (np.arange(CELLS) + 1 - CELLS)), np.float64)
