r"""Private scaling: where each column lies and how wide it is, without bounds from the user.

Three releases of one joint histogram of all columns. The first has a finite public set of bins, magnitudes by
powers of four, so that no bounds are needed: 4^-20 to 4^20, anything smaller counted as zero and anything
larger in the last bin. Each following release lays equal bins over the range that stands out of the noise so
far, so the resolution grows by a factor of up to forty a time and a column such as 1013 +- 6 is found (by
less where the noise is large: the number of bins follows from it). Bounds are the range of the last
histogram's bins that stand out, and at least four standard deviations about its mean; they are used as
declared bounds are.

*No scale is invented.* A column that is nearly constant, such as a rare indicator, shows one bin whatever the
resolution, and the few cells elsewhere are hidden: looking closer at that bin would make them enormous. So a
column whose records are all seen at zero keeps the range of its magnitudes, one that is seen at one other
place keeps the range of the first equal bins, and one of which nothing stands out keeps its own units.

**Privacy.** *Relation:* that of the mechanism. *Sensitivity:* a record adds one count in each of c columns,
so its vector has norm sqrt(c) in every release, by construction. *Event:* three steps of the mechanism given,
full batch or sampled as it says. *Public:* the number of columns and of records; the ranges of later releases
are functions of earlier ones. All bins are noised, so which bins are empty is not told. A record with any
cell that is not finite counts nowhere. The proof is in docs/proofs/scaling.md.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from dpsep.families.columns import Columns
from dpsep.privacy.grid import Block, Contribution

RELEASES = 3
"""How many releases the scaling takes."""
_POWER = 20

Array = NDArray[np.float64]
Opened = Callable[[list[Block], Contribution], Any]
"""Opens a gate to the arrays whose columns are wanted, for blocks and a contribution."""


def within(low: Array, high: Array) -> Columns:
    """Scale what lies within bounds to at most one: about zero where it is inside, else about the middle.

    Zero is kept where it can be because it tends to mean something (no visits, not in this category): a
    column that is mostly zero then is not a second intercept.

    Examples
    --------
    >>> within(np.array([0.0, 10.0]), np.array([4.0, 20.0])).centre
    array([ 0., 15.])
    """
    centre = np.where((low <= 0) & (high >= 0), 0.0, (low + high) / 2)
    reach = np.maximum(high - centre, centre - low)
    return Columns(low, high, centre, np.where(reach > 0, reach, 1.0))


@dataclass(frozen=True)
class MagnitudeCounts:
    """Bin of each cell by the magnitude's power of four; columns of all arrays of a record side by side."""

    bins: int = 2 * _POWER + 1

    def __call__(self, public: object, chunk: tuple[jax.Array, ...]) -> tuple[jax.Array, ...]:
        """Return bin numbers, one row a record; bin k > 0 holds magnitudes below 4^(k - _POWER)."""
        del public
        cells = _cells(chunk)
        power = jnp.floor(jnp.log2(jnp.maximum(jnp.abs(cells), 1e-300)) / 2)
        number = jnp.clip(power, -_POWER - 1, _POWER - 1) + _POWER + 1
        return (jnp.where(jnp.isfinite(cells), number, -1.0),)


@dataclass(frozen=True)
class LinearCounts:
    """Bin of each cell among equal bins over a public range; what lies outside is in the outer bins."""

    bins: int

    def __call__(self, public: tuple[Array, Array], chunk: tuple[jax.Array, ...]) -> tuple[jax.Array, ...]:
        """Return bin numbers, one row a record."""
        low, high = public
        cells = _cells(chunk)
        number = jnp.floor((cells - low) / (high - low) * self.bins)
        return (jnp.where(jnp.isfinite(cells), jnp.clip(number, 0, self.bins - 1), -1.0),)


def estimate(columns: int, opened: Opened) -> Columns:
    """Find bounds of every column of all arrays, side by side, and the scaling that follows from them.

    Parameters
    ----------
    columns
        Of all arrays together; a vector counts as one.
    opened
        Opens a gate to them, of a mechanism of `RELEASES` steps.
    """
    counts, deviation = _histogram(opened, columns, MagnitudeCounts(), None)
    low, high = _magnitude_range(counts, deviation)
    bins = _linear_bins(deviation)
    widest = low, high
    edges = np.zeros((columns, 0))
    for done in range(1, RELEASES):
        if done > 1:
            low, high = _range(counts, deviation, edges)
        edges = low[:, None] + (high - low)[:, None] * np.linspace(0.0, 1.0, bins + 1)
        counts, deviation = _histogram(opened, columns, LinearCounts(bins), (low, high))
    low, high = _bounds(counts, deviation, edges)
    single = _is_single(counts, deviation)
    return within(np.where(single, widest[0], low), np.where(single, widest[1], high))


def _cells(chunk: tuple[jax.Array, ...]) -> jax.Array:
    return jnp.concatenate([part[:, None] if part.ndim == 1 else part for part in chunk], axis=1)


def _histogram(
    opened: Opened,
    columns: int,
    contribution: MagnitudeCounts | LinearCounts,
    public: tuple[Array, Array] | None,
) -> tuple[Array, float]:
    """One release of the joint histogram, as shares of the records, and the noise of a share."""
    block = Block("counts", columns, math.sqrt(columns), kind="count", bins=contribution.bins)
    gate = opened([block], contribution)
    released = gate.release(public)["counts"]
    return released / gate.expected_batch, gate.deviations["counts"] / gate.expected_batch


def _linear_bins(deviation: float) -> int:
    """As many bins as the noise lets stand out of it, if a column filled half of them evenly."""
    return int(np.clip(round(1.0 / (8.0 * max(deviation, 1e-9))), 6, 64))


def _noise_level(deviation: float, counts: Array) -> float:
    """None of this many normal draws lies above, but for once in several hundred times."""
    return deviation * (math.sqrt(2 * math.log(counts.size)) + 1.0)


def _magnitude_range(counts: Array, deviation: float) -> tuple[Array, Array]:
    """Plus and minus the largest magnitude that stands out; one where nothing but zeros, or nothing, does."""
    kept = counts > _noise_level(deviation, counts)
    _, last = _outer(kept)
    high = np.where((last == 0) | ~kept.any(axis=1), 1.0, 1.25 * 4.0 ** (last - _POWER))
    return -high, high


def _kept(counts: Array, deviation: float) -> Array:
    """Shares with the bins that noise could have made dropped.

    Where what is left holds less than half of the records the noise hides the column's shape, and all bins of
    a positive count are kept.
    """
    clear = np.where(counts > _noise_level(deviation, counts), counts, 0.0)
    hidden = clear.sum(axis=1, keepdims=True) < 0.5
    kept = np.where(hidden, np.maximum(counts, 1e-9), clear)
    return kept / kept.sum(axis=1, keepdims=True)


def _range(counts: Array, deviation: float, edges: Array) -> tuple[Array, Array]:
    """Range of the bins that stand out, with a margin on either side."""
    first, last = _outer(_kept(counts, deviation) > 0)
    rows = np.arange(len(counts))
    low, high = edges[rows, first], edges[rows, last + 1]
    margin = 0.2 * (high - low)
    # At zero the range of magnitudes was as close a look as there is.
    at_zero = _is_single(counts, deviation) & (low <= 0) & (high >= 0)
    return np.where(at_zero, edges[:, 0], low - margin), np.where(at_zero, edges[:, -1], high + margin)


def _is_single(counts: Array, deviation: float) -> NDArray[np.bool_]:
    """Which columns show one bin alone that stands out, with nearly all records in it."""
    clear = counts > _noise_level(deviation, counts)
    return (clear.sum(axis=1) == 1) & (np.where(clear, counts, 0.0).sum(axis=1) > 0.5)


def _bounds(counts: Array, deviation: float, edges: Array) -> tuple[Array, Array]:
    """Range of the bins that stand out, and at least four standard deviations about their mean."""
    share = _kept(counts, deviation)
    middle = (edges[:, 1:] + edges[:, :-1]) / 2
    width = edges[:, 1] - edges[:, 0]
    mean = (share * middle).sum(axis=1)
    spread = np.sqrt((share * (middle - mean[:, None]) ** 2).sum(axis=1))
    reach = np.maximum(4.0 * spread, width)
    first, last = _outer(share > 0)
    rows = np.arange(len(counts))
    return (
        np.minimum(edges[rows, first], mean - reach),
        np.maximum(edges[rows, last + 1], mean + reach),
    )


def _outer(kept: NDArray[np.bool_]) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """First and last bin kept in each row."""
    return kept.argmax(axis=1), kept.shape[1] - 1 - kept[:, ::-1].argmax(axis=1)
