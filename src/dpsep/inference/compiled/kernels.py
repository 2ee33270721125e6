r"""One record's way through a network and back, compiled.

The formulas are those of `dpsep.models.network`. With r = 1 / sqrt(n) for a layer of n inputs, and D, E the
derivatives of log Z by the mean and the variance of an output, a weight's derivatives by its mean m and
variance v are

    G = r D z + 2 r^2 E m v_z,        H = r^2 E (z^2 + v_z),        s = G^2 - 2 H,

z and v_z the moments of its input; in the first layer v_z = 0 and s = r^2 (D^2 - 2 E) z^2. `slopes` writes
G and s of all weights in their places (`layout`), and what an algorithm does with them is one more loop.

The exponential of the rectifier's moments (`dpsep.models.rectifier`) is 2^k 2^f with k whole, put together
from bits, and |f| <= 1/2: a call to a library would keep its loop from becoming vectors. Numbers all have the
precision of the arrays.

**Privacy.** Nothing here is private: records are read without a gate.
"""

from typing import Any

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic

OPTIONS: dict[str, Any] = {
    "fastmath": {"contract", "reassoc", "nsz"},
    "error_model": "numpy",
    "nogil": True,
    "_nrt": False,
}
"""Sums may be ordered as suits, so that they can be vectors; NaNs stay NaNs; nothing counts references."""
jit: Any = njit(**OPTIONS)
"""Compile in this way."""


def kept(function: Any) -> Any:
    """Compile in this way, and keep what was compiled between runs where there is a place for it."""
    try:
        return njit(cache=True, **OPTIONS)(function)
    except RuntimeError:  # neither this folder nor the user's can be written
        return jit(function)


def _bits(typing: Any, k: Any) -> Any:
    del typing
    double = k == types.float64
    whole, real = (ir.IntType(64), ir.DoubleType()) if double else (ir.IntType(32), ir.FloatType())
    bias, shift = (1023, 52) if double else (127, 23)

    def generate(_: Any, builder: Any, __: Any, args: Any) -> Any:
        bits = builder.add(builder.fptosi(args[0], whole), ir.Constant(whole, bias))
        return builder.bitcast(builder.shl(bits, ir.Constant(whole, shift)), real)

    return k(k), generate


_power_of_two: Any = intrinsic(_bits)
"""2^k for a whole k that gives a normal number."""


@jit
def _polynomial(t: Any, parts: Any) -> Any:
    """Four polynomials in t^4, which overlap in time; short loops over constants are unrolled."""
    square = t * t
    fourth = square * square
    a, b, c, d = t - t, t - t, t - t, t - t
    for each in parts[0]:
        a = a * fourth + each
    for each in parts[1]:
        b = b * fourth + each
    for each in parts[2]:
        c = c * fourth + each
    for each in parts[3]:
        d = d * fourth + each
    return (a + t * b) + square * (c + t * d)


@jit
def activate(lines: Any, width: int, numbers: Any, units: Any, place: int) -> None:
    """Rectify Gaussians, whose moments `lines` begins with: their mean, their variance and four slopes.

    The slopes are P(a > 0) and the three other derivatives of (mean, variance) that `slopes` needs.
    """
    real = lines.dtype.type
    zero, half, one, two = real(0.0), real(0.5), real(1.0), real(2.0)
    exponential, excess, (tiny, enough, turn, turns, least) = numbers
    for i in range(width):
        v = lines[1, i] if lines[1, i] > tiny else tiny
        inverse = one / np.sqrt(v)
        alpha = lines[0, i] * inverse
        x = abs(alpha)
        turned = turns * x * x
        whole = np.floor(turned + half)
        part = turned - whole
        inside = whole > least
        density = _polynomial(part, exponential) * _power_of_two(whole if inside else least)
        density = density if inside else zero
        x = x if x < enough else enough
        shifted, square = x + turn, one + x * x
        both = one / (shifted * square)
        share = both * square
        s = _polynomial((x - turn) * share, excess) * share * share * share
        share = both * shifted
        tail, f, ds = density * (s + x) * share, density * (one - x * s) * share, density * s
        right = alpha > zero
        chance = one - tail if right else tail
        first = abs(alpha) + f if right else f
        spread = one - ds - f * (two * x + f) if right else ds - f * f
        value = v * inverse * first
        live = units[place, 6, i]  # zero in filling, where the next layer's bias is as well
        units[place, 0, i] = live * value + units[place, 7, i]
        units[place, 1, i] = live * v * spread
        units[place, 2, i] = chance
        units[place, 3, i] = two * value * (tail if right else one - tail)
        units[place, 4, i] = half * density * inverse
        units[place, 5, i] = chance - first * density


@jit
def _known_inputs(
    rows: int, width: int, mean: Any, variance: Any, units: Any, lines: Any, root: Any, g: int
) -> int:
    """Add up the first layer's moments, three inputs at a time; return how many inputs that were."""
    step, base, to = np.uintp(width), np.uintp(0), np.uintp(g * width)
    for j in range(0, rows - 2, 3):
        at = g * rows + j
        x, y, z = root * units[0, 0, at], root * units[0, 0, at + 1], root * units[0, 0, at + 2]
        xx, yy, zz = x * x, y * y, z * z
        for i in range(width):
            k, q = base + np.uintp(i), to + np.uintp(i)
            lines[0, q] += mean[k] * x + mean[k + step] * y + mean[k + step + step] * z
            lines[1, q] += variance[k] * xx + variance[k + step] * yy + variance[k + step + step] * zz
        base += step + step + step
    return rows // 3 * 3


@jit
def forward(
    x: Any, rows: Any, begin: int, group: int, mean: Any, variance: Any, shape: Any, numbers: Any, room: Any
) -> None:
    """Moments of the outputs, for a group of the records that `rows` names, from place `begin` on.

    They are the first two lines of ``room[4]``.
    """
    layers, inputs, first = shape
    units, lines, outputs = room[0], room[1], room[4]
    one, zero = mean.dtype.type(1.0), mean.dtype.type(0.0)
    count = x.shape[1]
    stride = count + 1 if layers.shape[0] else mean.shape[0] - first
    for g in range(group):
        for j in range(count):
            units[0, 0, g * stride + j] = x[rows[begin + g], j]
        units[0, 0, g * stride + count] = one
    for place in range(layers.shape[0]):
        sources, width = layers[place, 0], layers[place, 2]
        for i in range(group * width):
            lines[0, i] = zero
            lines[1, i] = zero
        scale = one / mean.dtype.type(sources)
        root = np.sqrt(scale)
        for g in range(group):
            done = _known_inputs(sources, width, mean, variance, units, lines, root, g) if place == 0 else 0
            base, to = np.uintp(layers[place, 3] + done * width), np.uintp(g * width)
            for j in range(done, sources):
                z, spread = root * units[place, 0, g * stride + j], scale * units[place, 1, g * stride + j]
                second = z * z + spread
                for i in range(width):
                    k, q = base + np.uintp(i), to + np.uintp(i)
                    lines[0, q] += mean[k] * z
                    lines[1, q] += variance[k] * second + mean[k] * mean[k] * spread
                base += np.uintp(width)
        activate(lines, group * width, numbers, units, place + 1)
        stride = width
    last = layers.shape[0]
    scale = one / mean.dtype.type(inputs + 1)
    for g in range(group):
        base, at = np.uintp(first), np.uintp(g * stride)
        total, uncertain = zero, zero
        for i in range(mean.shape[0] - first):
            k, q = base + np.uintp(i), at + np.uintp(i)
            m, v, z, spread = mean[k], variance[k], units[last, 0, q], units[last, 1, q]
            total += m * z
            uncertain += v * (z * z + spread) + m * m * spread
        outputs[0, g] = np.sqrt(scale) * total
        outputs[1, g] = scale * uncertain


@jit
def slopes(mean: Any, variance: Any, shape: Any, room: Any, group: int) -> None:
    """G and s of all weights, from the derivatives by the outputs' moments; `forward` came before.

    The derivatives are the last two lines of ``room[4]``. Those of the first hidden layer are left as their
    parts: G is ``lines[2]`` of the unit times the input, s is ``lines[3]`` of the unit times its square.
    """
    layers, inputs, first = shape
    units, lines, gradient, curvature, outputs = room
    real = mean.dtype.type
    half, one, two = real(0.5), real(1.0), real(2.0)
    depth, size = layers.shape[0], mean.shape[0]
    scale = one / real(inputs + 1)
    for g in range(group):
        slope_g, h = np.sqrt(scale) * outputs[2, g], two * scale * outputs[3, g]
        base, at, to = np.uintp(first), np.uintp(g * (size - first)), np.uintp(g * size + first)
        for i in range(size - first):
            k, q = base + np.uintp(i), at + np.uintp(i)
            m, v, z, spread = mean[k], variance[k], units[depth, 0, q], units[depth, 1, q]
            slope = slope_g * z + h * m * spread
            gradient[to + np.uintp(i)] = slope
            curvature[to + np.uintp(i)] = slope * slope - h * (z * z + spread)
            lines[0, q] = slope_g * m + h * v * z
            lines[1, q] = half * h * (m * m + v)
    for place in range(depth - 1, -1, -1):
        rows, width = layers[place, 0], layers[place, 2]
        scale = one / real(rows)
        root, twice = np.sqrt(scale), two * scale
        for i in range(group * width):
            back, back_variance, live = lines[0, i], lines[1, i], units[place + 1, 6, i]
            chance, mixed = units[place + 1, 2, i], units[place + 1, 3, i]
            height, other = units[place + 1, 4, i], units[place + 1, 5, i]
            down = live * root * (back * chance + back_variance * mixed)
            bend = live * twice * (back * height + back_variance * other)
            lines[2, i] = down
            lines[3, i] = bend if place else down * down - bend
        if place:
            for g in range(group):
                _inner_layer(place, layers, mean, variance, room, g)


@jit
def first_layer(layers: Any, room: Any) -> None:
    """Write G and s of the first hidden layer in their places, for the first record of a group."""
    if layers.shape[0] == 0:
        return
    units, lines, gradient, curvature = room[0], room[1], room[2], room[3]
    width, base = layers[0, 2], np.uintp(0)
    for j in range(layers[0, 0]):
        z, second = units[0, 0, j], units[0, 0, j] * units[0, 0, j]
        for i in range(width):
            gradient[base + np.uintp(i)] = lines[2, i] * z
            curvature[base + np.uintp(i)] = lines[3, i] * second
        base += np.uintp(width)


@jit
def _inner_layer(place: int, layers: Any, mean: Any, variance: Any, room: Any, g: int) -> None:
    units, lines, gradient, curvature = room[0], room[1], room[2], room[3]
    half, zero = mean.dtype.type(0.5), mean.dtype.type(0.0)
    width, before = layers[place, 2], layers[place - 1, 2]
    base, at = np.uintp(layers[place, 3]), np.uintp(g * width)
    to = base + np.uintp(g * mean.shape[0])
    for j in range(layers[place, 0]):
        z, spread = units[place, 0, g * before + j], units[place, 1, g * before + j]
        second = z * z + spread
        by, by_noise, by_second = zero, zero, zero
        for i in range(width):
            k, q, t = base + np.uintp(i), at + np.uintp(i), to + np.uintp(i)
            m, v, down, d = mean[k], variance[k], lines[2, q], lines[3, q]
            slope = down * z + d * m * spread
            gradient[t] = slope
            curvature[t] = slope * slope - d * second
            by += down * m
            by_noise += d * v
            by_second += d * (m * m + v)
        lines[0, g * before + j] = by + z * by_noise
        lines[1, g * before + j] = half * by_second
        base += np.uintp(width)
        to += np.uintp(width)


@jit
def tilt(outputs: Any, g: int, alpha: Any, beta: Any, y: Any) -> Any:
    """Derivatives by an output's moments, put below them; return the noise precision's factor.

    That of `dpsep.models.concentrated_noise`.
    """
    mean, variance = outputs[0, g], outputs[1, g]
    half, one = outputs.dtype.type(0.5), outputs.dtype.type(1.0)
    tau = (alpha + one) / beta
    residual = y - mean
    spread = one + variance * tau
    k = tau / spread
    surprise = one - residual * residual * k
    shape = (half + surprise * variance * tau) / (spread * spread)
    gradient = residual * k
    outputs[2, g] = gradient
    outputs[3, g] = half * (gradient * gradient - k)
    return shape, (shape - half * surprise / spread) / tau
