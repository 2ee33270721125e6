r"""Passes over records, one by one, compiled: filtering and stochastic EP.

Each is one loop that calls nothing outside. What it needs stays in the processor's first cache for networks
of some thousand weights.

**Privacy.** Nothing here is private: records are read without a gate.
"""

import hashlib
from pathlib import Path
from typing import Any

import numpy as np

from dpsep.inference.compiled import kernels
from dpsep.inference.compiled.kernels import first_layer, forward, jit, kept, slopes, tilt

VERSION = hashlib.sha256(Path(kernels.__file__).read_bytes()).hexdigest()
"""Of the functions called here. Numba keeps compiled code between runs and looks at the date of this file
alone; as the default of an argument, this makes what it kept for other functions another signature."""


@kept
def filtering(
    x: Any, y: Any, order: Any, posterior: Any, shape: Any, numbers: Any, room: Any, version: str = VERSION
) -> None:
    """Multiply records into moments of the weights and the noise precision (shape less one, rate)."""
    mean, variance, noise = posterior
    gradient, curvature = room[2], room[3]
    one, zero = mean.dtype.type(1.0), mean.dtype.type(0.0)
    for number in range(order.shape[0]):
        forward(x, order, number, 1, mean, variance, shape, numbers, room)
        alpha, beta = tilt(room[4], 0, noise[0], noise[1], y[order[number]])
        slopes(mean, variance, shape, room, 1)
        first_layer(shape[0], room)
        for i in range(mean.shape[0]):
            v = variance[i]
            shrinkage = one - v * curvature[i]
            usable = shrinkage > zero
            mean[i] += v * gradient[i] if usable else zero
            variance[i] = v * shrinkage if usable else v
        noise[0] += alpha
        noise[1] += beta


@jit
def _cavity(posterior: Any, prior: Any, inverse: Any, moments: Any) -> None:
    """Moments of the posterior without one factor."""
    eta, precision, eta_0, precision_0 = posterior[0], posterior[1], prior[0], prior[1]
    mean, variance = moments
    one = mean.dtype.type(1.0)
    for i in range(mean.shape[0]):
        v = one / (precision[i] - (precision[i] - precision_0[i]) * inverse)
        mean[i] = (eta[i] - (eta[i] - eta_0[i]) * inverse) * v
        variance[i] = v


@jit
def _factor(moments: Any, gradient: Any, curvature: Any) -> Any:
    """Put the factor's mean part and precision in the places of G and s; return its squared norm."""
    mean, variance = moments
    zero, one = mean.dtype.type(0.0), mean.dtype.type(1.0)
    total = zero
    for i in range(mean.shape[0]):
        s = curvature[i]
        shrinkage = one - variance[i] * s
        # A weight whose tilted variance would be negative is told nothing by this record.
        share = one / shrinkage if shrinkage > zero else zero
        part, own = (gradient[i] + mean[i] * s) * share, s * share
        gradient[i] = part
        curvature[i] = own
        total += part * part + own * own
    return total


@kept
def stochastic(
    x: Any,
    y: Any,
    order: Any,
    posterior: Any,
    prior: Any,
    steps: Any,
    draws: Any,
    shape: Any,
    numbers: Any,
    room: Any,
    moments: Any,
    version: str = VERSION,
) -> None:
    """Steps 4 to 12 of the paper (`dpsep.inference.sep`), record by record.

    `posterior` and `prior` hold natural parameters of the weights and, together, of the noise precision;
    `steps` 1 / N, gamma / N, the clip, the floor. `draws` is noise to add in step 9, one row a record, or has
    no rows.
    """
    inverse, rate, clip, floor = steps
    noise, noise_0, gradient, curvature = posterior[2], prior[2], room[2], room[3]
    zero, one = moments[0].dtype.type(0.0), moments[0].dtype.type(1.0)
    noisy = draws.shape[0] > 0
    for number in range(order.shape[0]):
        _cavity(posterior, prior, inverse, moments)
        alpha = noise[0] - (noise[0] - noise_0[0]) * inverse
        beta = noise[1] - (noise[1] - noise_0[1]) * inverse
        forward(x, order, number, 1, moments[0], moments[1], shape, numbers, room)
        alpha, beta = tilt(room[4], 0, alpha, beta, y[order[number]])
        slopes(moments[0], moments[1], shape, room, 1)
        first_layer(shape[0], room)
        square = _factor(moments, gradient, curvature)
        share = one
        if clip < np.inf:
            size = np.sqrt(square + alpha * alpha + beta * beta)
            if not size < np.inf:  # a factor without a direction
                gradient[:] = zero
                curvature[:] = zero
                alpha, beta = zero, zero
            elif size > clip:
                share = clip / size
        noise[0] += rate * (share * alpha - (noise[0] - noise_0[0]) * inverse)
        noise[1] += rate * (share * beta - (noise[1] - noise_0[1]) * inverse)
        lowest = -moments[0].dtype.type(np.inf) if noisy else floor
        _move(posterior, prior, gradient, curvature, share * rate, rate * inverse, lowest)
        if noisy:
            _shake(posterior, draws[number], shape)
        _settle(posterior, prior, inverse, clip, floor, noisy)


@jit
def _move(posterior: Any, prior: Any, part: Any, own: Any, step: Any, back: Any, lowest: Any) -> None:
    """Steps 8 to 10 on the weights."""
    eta, precision, eta_0, precision_0 = posterior[0], posterior[1], prior[0], prior[1]
    for i in range(eta.shape[0]):
        eta[i] += step * part[i] - back * (eta[i] - eta_0[i])
        p = precision[i] + (step * own[i] - back * (precision[i] - precision_0[i]))
        precision[i] = p if p > lowest else lowest


@jit
def _shake(posterior: Any, draw: Any, shape: Any) -> None:
    """Add a record's noise to all that is no filling: mean parts and precisions by turns, a row of each."""
    layers, inputs, first = shape
    eta, precision, noise = posterior
    used = 0
    for place in range(layers.shape[0]):
        rows, outputs, width, start = layers[place]
        for j in range(rows):
            e, p = eta[start + j * width :][:outputs], precision[start + j * width :][:outputs]
            one, two = draw[used : used + outputs], draw[used + outputs : used + 2 * outputs]
            for i in range(outputs):
                e[i] += one[i]
                p[i] += two[i]
            used += 2 * outputs
    for i in range(inputs + 1):
        eta[first + i] += draw[used + i]
        precision[first + i] += draw[used + inputs + 1 + i]
    noise[0] += draw[used + 2 * inputs + 2]
    noise[1] += draw[used + 2 * inputs + 3]


@jit
def _settle(posterior: Any, prior: Any, inverse: Any, clip: Any, floor: Any, noisy: bool) -> None:
    """Steps 10 to 12: the floor, and the one factor's norm at most the clip."""
    eta, precision, noise = posterior
    eta_0, precision_0, noise_0 = prior
    zero, one = eta.dtype.type(0.0), eta.dtype.type(1.0)
    noise[0] = noise[0] if noise[0] > floor - one else floor - one
    noise[1] = noise[1] if noise[1] > floor else floor
    if noisy:
        for i in range(eta.shape[0]):
            precision[i] = precision[i] if precision[i] > floor else floor
    if not clip < np.inf:
        return
    alpha, beta = noise[0] - noise_0[0], noise[1] - noise_0[1]
    total = alpha * alpha + beta * beta
    for i in range(eta.shape[0]):
        e, p = eta[i] - eta_0[i], precision[i] - precision_0[i]
        total += e * e + p * p
    size = inverse * np.sqrt(total)
    share = clip / size if size > zero else one
    if share < one:
        for i in range(eta.shape[0]):
            eta[i] = eta_0[i] + share * (eta[i] - eta_0[i])
            precision[i] = precision_0[i] + share * (precision[i] - precision_0[i])
        noise[0] = noise_0[0] + share * alpha
        noise[1] = noise_0[1] + share * beta
