r"""The geometry of a private fit of linear weights: second moments of the columns, and what follows from
them.

Four releases: the half octaves of |x|^2 (x the scaled columns of a record with its intercept), second moments
of x, the half octaves of |z|^2 in coordinates z = A x that these suggest, and second moments of z. The two
estimates of S = E x x^T are averaged entry by entry with weights inverse to their noise variances. Each
second moment is weighted by min(1, cap / |z|^2) with a cap *above which no half octave stands out of the
noise*, so a cap takes off what next to no record has: without noise it takes nothing, and S is the second
moment itself. No cap is derived from a release that the same cap has shaped.

*Which coordinates.* With M = A^T A and scores clipped by |z| <= R, the noise of the weights is in proportion
to H^-1 M^-1 H^-1 in units of R^2, H the information. Of all M that give records within the unit cube the
same largest leverage, diagonal M = diag(H_jj)^-1/2 makes the noise's variance, summed in units of the
posterior's variance H^-1, the least (Lagrange: the sum of 1 / (H_jj M_jj) under a bound of the sum of M_jj).
That is half of whitening: a rare indicator is not drowned, and common columns do not pay for it. Correlations
R = D^-1/2 S D^-1/2, D = diag S, enter in the same half power: A = R^-1/4 D^-1/4, as far as noise lets them be
seen.

*Scales.* `Geometry.deviation` is each column's standard deviation, for priors in units of it. Where noise
hides it, it is the noise's level: the largest scale that the releases would not have shown. No scale is
invented: a larger one would shrink coefficients that the data do speak of.

**Privacy.** Post-processing of what a gate released. This file sees no record.
The proof is in docs/proofs/weighted.md.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dpsep.inference.caps import highest
from dpsep.inference.gate_protocol import Opened
from dpsep.models.glm import Columns
from dpsep.models.weighted import (
    CELLS,
    Leverages,
    SecondMoments,
    Seen,
    UnitLeverages,
    UnitMoments,
    unpacked,
)
from dpsep.privacy.grid import Block

Array = NDArray[np.float64]

RELEASES = 4
"""Releases of the stage."""
SEEN = 0.25
"""Relative noise of a correlation at which half of it is believed."""
FLOOR = 0.5
"""Fraction of the noise in correlations that their eigenvalues are raised to."""
LEAST = 1e-8
"""Smallest variance, in scaled units: a column that does not vary."""
ROWS_SHARE, LEAST_ROWS = 0.05, 0.01
"""Share of a release for the number of rows of a unit; least share of its places that are taken."""


class Look(NamedTuple):
    """Released second moments of a row in coordinates z, the deviation of their noise, and rows of a unit."""

    second: Array
    noise: float
    rows: float = 1.0


class Geometry(NamedTuple):
    """What was released of the columns.

    Attributes
    ----------
    map
        A, shape (k, k), of scaled columns with the intercept first.
    second, blur
        Second moments of scaled columns, a record, and the standard deviation of each entry's noise.
    deviation
        Standard deviation of each scaled column; one of the intercept.
    hidden
        Which columns' scales are hidden by noise.
    rows
        Average number of rows of a unit; one where records are the units.
    """

    map: Array
    second: Array
    blur: Array
    deviation: Array
    hidden: NDArray[np.bool_]
    rows: float = 1.0


def look(
    opened: Opened,
    public: Seen,
    cap_of: Callable[[Array, float, float], float] = highest,
    *,
    intercept: bool = True,
    target: bool = False,
    places: int = 0,
) -> Look:
    """Return second moments of z = A x, and the deviation of their noise, from two releases.

    Parameters
    ----------
    opened
        Opens gates of the stage's mechanism.
    public
        The coordinates; its cap is the top of the histogram of |z|^2.
    cap_of
        The cap of the second moments, as in `dpsep.inference.caps`.
    intercept, target
        As in `dpsep.models.weighted.Leverages`.
    places
        For how many rows of a unit there are places; none where records are the units.
    """
    sizes = UnitLeverages(intercept) if places else Leverages(intercept, target)
    gate = opened([Block("leverage", CELLS, 1.0)], sizes)
    cells, noise = gate.release(public)["leverage"], gate.deviations["leverage"]
    cap = cap_of(cells, noise, float(public.cap))
    size = len(public.map)
    public = public._replace(cap=np.float64(cap))  # pyright: ignore[reportArgumentType]
    if not places:
        gate = opened([Block("second", size, cap, kind="outer")], SecondMoments(intercept, target))
        second = gate.release(public)["second"] / gate.expected_batch
        return Look(second, gate.deviations["second"] / gate.expected_batch)
    numbers = size * (size + 1) // 2
    blocks = [Block("second", numbers, cap, 1.0 - ROWS_SHARE), Block("rows", 1, 1.0, ROWS_SHARE)]
    gate = opened(blocks, UnitMoments(intercept, places))
    released = gate.release(public)
    rows = float(np.clip(released["rows"][0] / gate.expected_batch, LEAST_ROWS, 1.0)) * places
    whole = gate.expected_batch * rows
    return Look(unpacked(released["second"], size) / whole, gate.deviations["second"] / whole, rows)


def run(
    opened: Opened,
    features: Columns,
    outcome: Columns,
    dimension: int,
    *,
    intercept: bool,
    bounded: bool,
    places: int = 0,
) -> Geometry:
    """Make the four releases.

    Parameters
    ----------
    opened
        Opens gates of a mechanism of `RELEASES` steps.
    features, outcome
        Maps of the columns.
    dimension
        Number of columns k, with the intercept.
    intercept
        Whether there is one.
    bounded
        Whether scaled columns lie within the unit cube.
    places
        As in `look`.
    """

    def seen(map_: Array) -> Look:
        # The largest |z|^2 in the unit cube; without bounds, far above what scaled columns should have.
        top = float(np.abs(map_.T @ map_).sum()) * max(places, 1) * (1.0 if bounded else 2.0 ** (CELLS // 3))
        public = Seen(features, outcome, map_, np.float64(top))  # pyright: ignore[reportArgumentType]
        return look(opened, public, intercept=intercept, places=places)

    first, noise, rows = seen(np.eye(dimension))
    triangle = np.where(np.eye(dimension) > 0, 1.0, math.sqrt(0.5))
    before = noise * triangle
    map_ = _coordinates(first, before)
    again, noise, others = seen(map_)
    back = np.linalg.inv(map_)
    spread = back @ back.T
    after = noise * np.sqrt(0.5 * (np.outer(np.diag(spread), np.diag(spread)) + spread**2))
    again = back @ again @ back.T
    second, blur = _average(first, before, again, after)
    return geometry_of(second, blur, intercept=intercept)._replace(rows=(rows + others) / 2)


def geometry_of(second: Array, blur: Array, *, intercept: bool) -> Geometry:
    """Return what follows from second moments and their noise."""
    own = np.diag(blur)
    centre = second[0] / max(second[0, 0], LEAST) if intercept else np.zeros(len(second))
    variance = np.diag(second) - centre * second[0] if intercept else np.diag(second).copy()
    hidden = variance <= 2.0 * own
    deviation = np.sqrt(np.maximum(variance, np.maximum(own, LEAST)))
    if intercept:
        deviation[0], hidden[0] = 1.0, False
    return Geometry(_coordinates(second, blur), second, blur, deviation, hidden)


def _average(one: Array, its: Array, other: Array, others: Array) -> tuple[Array, Array]:
    """Average of two estimates, entry by entry, and the deviation of its noise."""
    if not (its > 0).all() or not (others > 0).all():
        return one, np.zeros_like(one)
    weight = others**2 / (its**2 + others**2)
    return weight * one + (1.0 - weight) * other, its * others / np.sqrt(its**2 + others**2)


def _coordinates(second: Array, blur: Array) -> Array:
    """A = R^-1/4 D^-1/4 as far as noise lets it be seen; see the module."""
    size = np.maximum(np.diag(second), np.maximum(2.0 * np.diag(blur), LEAST))
    root = size**-0.5
    relative = blur * np.outer(root, root)
    keep = 1.0 / (1.0 + (relative / SEEN) ** 2)
    correlation = second * np.outer(root, root) * keep
    np.fill_diagonal(correlation, 1.0)
    noise = relative * keep
    lowest = max(FLOOR * float(np.sqrt((noise**2).sum(axis=1)).max()), 1e-4)
    value, vectors = np.linalg.eigh((correlation + correlation.T) / 2)
    value = np.maximum(value, min(lowest, 1.0))
    return (vectors * value**-0.25) @ vectors.T * size**-0.25
