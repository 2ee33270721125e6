"""Where the numbers of a network lie for the compiled loops.

All weights are one vector. A hidden layer has one row an input, the bias last, and in a row one number an
output; rows are filled up to whole vectors of the processor. The output layer is one row: its inputs, the
bias, and filling. Filled places hold means of zero and precisions of one and are never moved, because the
inputs and slopes that belong to them are set to zero.
"""

import math
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dpsep.models import rectifier

LANES = 64
"""Bytes of a vector."""


class Layout(NamedTuple):
    """Public shape of a network, for compiled code.

    Attributes
    ----------
    layers
        One row a hidden layer: inputs with the bias, outputs, outputs filled up, first place.
    inputs
        Inputs of the output layer, without the bias.
    width
        The same with bias and filling.
    first
        First place of the output layer.
    size
        Number of all places.
    place
        Where each weight of a flat vector (`Network.flat`) lies.
    """

    layers: NDArray[np.int64]
    inputs: int
    width: int
    first: int
    size: int
    place: NDArray[np.int64]


def layout(widths: tuple[int, ...], real: Any) -> Layout:
    """Return the layout of a network of these widths, for numbers of one precision.

    Examples
    --------
    >>> found = layout((8, 50, 1), np.float64)
    >>> found.layers, found.width, found.size
    (array([[ 9, 50, 56,  0]]), 56, 560)
    """
    lanes = LANES // np.dtype(real).itemsize
    layers, places, used = [], [], 0
    for inputs, outputs in pairwise(widths[:-1]):
        filled = _filled(outputs + 1, lanes)  # room for the bias, as an input of the next layer
        layers.append((inputs + 1, outputs, filled, used))
        places.append((used + np.arange(outputs)[:, None] + filled * np.arange(inputs + 1)).ravel())
        used += filled * (inputs + 1)
    last = widths[-2]
    places.append(used + np.arange(last + 1))
    width = _filled(last + 1, lanes)
    return Layout(
        np.array(layers, np.int64).reshape(-1, 4), last, width, used, used + width, np.concatenate(places)
    )


def spread(given: Layout, flat: Any, filling: float, real: Any) -> NDArray[Any]:
    """Put a flat vector of all weights in its places."""
    found = np.full(given.size, filling, real)
    found[given.place] = np.asarray(flat)
    return found


def _filled(count: int, lanes: int) -> int:
    return -(-count // lanes) * lanes


class Room(NamedTuple):
    """Memory that a pass works in.

    Attributes
    ----------
    units
        By layer, from the inputs: mean, variance and four slopes of each unit, then two rows that stay: one
        for units that are no filling, and one for the bias.
    lines
        What goes into a layer's activation, and derivatives on their way back.
    gradient, curvature
        G and s of all weights (`kernels`), record after record.
    outputs
        Mean and variance of each record's output, and the derivatives by them.
    """

    units: NDArray[Any]
    lines: NDArray[Any]
    gradient: NDArray[Any]
    curvature: NDArray[Any]
    outputs: NDArray[Any]


def room(given: Layout, real: Any, group: int = 1) -> Room:
    """Return memory for networks of this layout, and for `group` records at a time."""
    lanes = LANES // np.dtype(real).itemsize
    widest = group * _filled(max([given.width, *given.layers[:, 0], *given.layers[:, 2]]), lanes)
    units, lines = np.zeros((len(given.layers) + 1, 8, widest), real), np.zeros((4, widest), real)
    for place, (_, outputs, width, _) in enumerate(given.layers):
        for start in range(0, group * width, width):
            units[place + 1, 6, start : start + outputs] = 1.0
            units[place + 1, 7, start + outputs] = 1.0
    gradient, curvature = np.zeros(group * given.size, real), np.zeros(group * given.size, real)
    return Room(units, lines, gradient, curvature, np.zeros((4, group), real))


def numbers(real: Any) -> tuple[Any, ...]:
    """Return constants of the rectifier: polynomials in four parts each, and five numbers."""
    double = np.dtype(real) == np.float64
    scale = 1.0 / math.sqrt(2.0 * math.pi)
    series = [scale * math.log(2.0) ** k / math.factorial(k) for k in range(13 if double else 8)]
    excess = rectifier.DOUBLE if double else rectifier.SINGLE
    limits = (np.finfo(real).tiny, rectifier.ENOUGH, rectifier.TURN, -0.5 / math.log(2.0))
    least = -1022.0 if double else -126.0
    return _parts(series, real), _parts(excess, real), tuple(real(each) for each in (*limits, least))


def _parts(coefficients: Any, real: Any) -> tuple[tuple[Any, ...], ...]:
    """Coefficients of t^0, t^1, ... as those of four polynomials in t^4, highest power first."""
    return tuple(tuple(real(each) for each in coefficients[place::4][::-1]) for place in range(4))
