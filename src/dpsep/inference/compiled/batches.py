r"""Sums of local factors over a batch, compiled: whitened, each block clipped, on the grid of a release.

What `dpsep.models.network_diagonal` contributes and `dpsep.privacy.grid` does with it, record by record, so
that a record's factor never leaves the processor's first cache. Sums of at most `RUN` records are kept in the
arrays' own precision: on a grid of 2^20 units these are whole numbers up to 2^24, exact in single precision.

**Privacy.** Nothing here is private: records are read without a gate.
"""

from typing import Any

import numpy as np

from dpsep.inference.compiled.kernels import forward, jit, kept, slopes, tilt
from dpsep.inference.compiled.loops import VERSION

RUN = 16
"""Records that are summed in the arrays' own precision, at most."""


@kept
def batch(
    x: Any,
    y: Any,
    rows: Any,
    public: Any,
    clips: Any,
    grid: Any,
    shape: Any,
    numbers: Any,
    room: Any,
    told: Any,
    partial: Any,
    sums: Any,
    version: str = VERSION,
) -> None:
    """Add whitened local factors of some records, each of their three blocks clipped, to `sums`.

    `public` holds moments of the cavity, its mean less the origin, posterior deviations (all in their
    places), and the noise precision's cavity. `grid` has the units that a block's clip is cut into, none
    where nothing is rounded, and for each block the units that rounding leaves room for. `told` and `partial`
    are memory. A record that gives a number that is not finite, or more than the clip on the grid, adds
    nothing.
    """
    mean, variance, noise = public[0], public[1], public[4]
    tau = (noise[0] + mean.dtype.type(1.0)) / noise[1]
    held, most_held = 0, room[4].shape[1]
    for begin in range(0, rows.shape[0], most_held):
        group = min(most_held, rows.shape[0] - begin)
        forward(x, rows, begin, group, mean, variance, shape, numbers, room)
        for g in range(group):
            told[0, g], told[1, g] = tilt(room[4], g, noise[0], noise[1], y[rows[begin + g]])
        slopes(mean, variance, shape, room, group)
        for g in range(group):
            if _one(g, told, public, clips, grid, tau, shape[0], room, partial, sums):
                held += 1
            if held == RUN:
                _flush(partial, sums[0], sums[1])
                held = 0
    _flush(partial, sums[0], sums[1])


@jit
def _one(
    g: int,
    told: Any,
    public: Any,
    clips: Any,
    grid: Any,
    tau: Any,
    layers: Any,
    room: Any,
    partial: Any,
    sums: Any,
) -> bool:
    """Whiten, clip and add one record's blocks; return whether they were added."""
    units, rest = grid
    gradient, curvature = room[2], room[3]
    zero, half, one = gradient.dtype.type(0.0), gradient.dtype.type(0.5), gradient.dtype.type(1.0)
    first, second = _whiten(g, public, layers, room)
    alpha, beta = told[0, g] - half, told[1, g] * tau
    third = alpha * alpha + beta * beta
    if not first + second + third < np.inf:
        return False
    a, b = _scale(first, clips[0], units, rest[0], one), _scale(second, clips[1], units, rest[1], one)
    c = _scale(third, clips[2], units, rest[2], one)
    alpha, beta = alpha * c, beta * c
    if units > zero:
        alpha, beta = np.rint(alpha), np.rint(beta)
        most = np.float64(units) * np.float64(units)
        good = np.float64(alpha) ** 2 + np.float64(beta) ** 2 <= most
        if not good or not _add_whole(gradient, curvature, a, b, most, partial):
            return False
    else:
        _add(gradient, curvature, a, b, partial)
    sums[2][0] += alpha
    sums[2][1] += beta
    return True


@jit
def _whiten(g: int, public: Any, layers: Any, room: Any) -> Any:
    """Put a record's whitened factor in the first places of G and s; return its blocks' squared norms."""
    variance, away, unit = public[1], public[2], public[3]
    units, lines, gradient, curvature = room[0], room[1], room[2], room[3]
    zero, one = variance.dtype.type(0.0), variance.dtype.type(1.0)
    base, size = np.uintp(0), variance.shape[0]
    if layers.shape[0] > 0:
        rows, width = layers[0, 0], layers[0, 2]
        at = np.uintp(g * width)
        for j in range(rows):
            z = units[0, 0, g * rows + j]
            square = z * z
            for i in range(width):
                k, q = base + np.uintp(i), at + np.uintp(i)
                part, own = _white(lines[2, q] * z, lines[3, q] * square, variance[k], away[k], unit[k], one)
                gradient[k] = part
                curvature[k] = own
            base += np.uintp(width)
    at = base + np.uintp(g * size)
    for i in range(size - np.intp(base)):
        k, q = base + np.uintp(i), at + np.uintp(i)
        part, own = _white(gradient[q], curvature[q], variance[k], away[k], unit[k], one)
        gradient[k] = part
        curvature[k] = own
    # The norms in a loop of their own: adding up a vector's numbers once and not in every row.
    first, second = zero, zero
    for i in range(size):
        first += gradient[i] * gradient[i]
        second += curvature[i] * curvature[i]
    return first, second


@jit
def _white(g: Any, s: Any, v: Any, away: Any, unit: Any, one: Any) -> Any:
    """A weight's mean part and precision; one whose tilted variance would be negative is told nothing."""
    shrinkage = one - v * s
    share = unit / shrinkage if shrinkage > 0 else one - one
    return (g + away * s) * share, s * share * unit


@jit
def _scale(square: Any, clip: Any, units: Any, room: Any, one: Any) -> Any:
    """What a block of this squared norm is multiplied by: the clip, and the grid's units if it has any."""
    size = np.sqrt(square)
    if units > 0:
        return units / clip if size * units <= room * clip else room / size
    return clip / size if size > clip else one


@jit
def _add(gradient: Any, curvature: Any, a: Any, b: Any, partial: Any) -> None:
    for i in range(partial.shape[1]):
        partial[0, i] += gradient[i] * a
        partial[1, i] += curvature[i] * b


@jit
def _add_whole(gradient: Any, curvature: Any, a: Any, b: Any, most: Any, partial: Any) -> bool:
    """Round two blocks to whole units and add them; take them back if one is beyond the clip."""
    first, second = np.float64(0.0), np.float64(0.0)
    for i in range(partial.shape[1]):
        part, own = np.rint(gradient[i] * a), np.rint(curvature[i] * b)
        gradient[i] = part
        curvature[i] = own
        partial[0, i] += part
        partial[1, i] += own
        first += np.float64(part) * np.float64(part)
        second += np.float64(own) * np.float64(own)
    good = first <= most and second <= most
    if not good:
        for i in range(partial.shape[1]):
            partial[0, i] -= gradient[i]
            partial[1, i] -= curvature[i]
    return good


@jit
def _flush(partial: Any, one: Any, two: Any) -> None:
    for i in range(one.shape[0]):
        one[i] += partial[0, i]
        two[i] += partial[1, i]
        partial[0, i] = 0
        partial[1, i] = 0
