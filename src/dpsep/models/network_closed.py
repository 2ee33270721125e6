r"""Local factors of a network's independent weights for a whole chunk of records, stage by stage.

The formulas are those of `dpsep.models.network`, for all records of a chunk at once: moments are products of
matrices, and in every layer a weight's derivatives follow from its input's moments and two numbers of its
output. What a compiler must not do is to put the stages together: it would compute an activation anew for
each weight that uses it (nine times over for eight inputs), because it fuses whatever is elementwise. So on a
processor each stage is a function that stays a function (`apart`).
"""

import math
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.experimental.xla_metadata import set_xla_metadata

from dpsep.models.network import Activation, Layer, Moments, _activate
from dpsep.models.rectifier import rectified_normal


class Pass(NamedTuple):
    """A layer's part in a pass.

    Attributes
    ----------
    given
        Moments of its inputs with the bias, (records, inputs + 1).
    by_mean, by_variance
        Derivatives of log Z by the moments of its outputs before activation, (records, outputs).
    """

    given: Moments
    by_mean: jax.Array
    by_variance: jax.Array


Answers = tuple[jax.Array, jax.Array, jax.Array, jax.Array]
"""Derivatives of an activation's mean and variance by its input's mean, then by its variance."""


def apart(stage: Callable[..., Any]) -> Callable[..., Any]:
    """Return the stage as a function that a processor's compiler does not merge with what is around it."""
    called = jax.jit(stage)

    def call(*given: Any) -> Any:
        if jax.default_backend() != "cpu":
            return called(*given)
        with set_xla_metadata(inlineable="false"):
            return called(*given)

    return call


def passes(
    layers: tuple[Layer, ...],
    x: jax.Array,
    tilt: Callable[[Moments], tuple[Any, Any]],
    activation: Activation = "relu",
) -> tuple[tuple[Pass, ...], Any]:
    """Moments on their way through the network, and derivatives on their way back.

    Parameters
    ----------
    layers
        Moments of the cavity's weights.
    x
        Inputs, one row a record.
    tilt
        Tilted moments of the outputs, and what else there is, from the outputs' moments.
    activation
        Between layers.

    Returns
    -------
    One pass a layer, from the inputs to the output, and what `tilt` gave second.
    """
    inputs, answers = [_with_bias(x, jnp.zeros_like(x))], []
    for layer in layers[:-1]:
        before = apart(_linear)(layer, inputs[-1])
        after, answer = apart(_rectified if activation == "relu" else partial(_other, activation))(before)
        inputs.append(_with_bias(*after))
        answers.append(answer)
    tilted, rest = tilt(Moments(*(part[:, 0] for part in _linear(layers[-1], inputs[-1]))))
    by_mean = tilted.gradient[:, None]
    by_variance = 0.5 * (tilted.gradient**2 - tilted.curvature)[:, None]
    found = []
    for place in reversed(range(len(layers))):
        layer, given = layers[place], inputs[place]
        found.append(Pass(given, by_mean, by_variance))
        if place:
            by_mean, by_variance = apart(_back)(layer, given, by_mean, by_variance, answers[place - 1])
    return tuple(reversed(found)), rest


def derivatives(layers: tuple[Layer, ...], found: tuple[Pass, ...]) -> tuple[jax.Array, jax.Array]:
    """G = d log Z / dm and s = G^2 - 2 d log Z / dv of all weights, one row a record, weights flat."""
    gradients, curvatures = [], []
    for place, (layer, (given, by_mean, by_variance)) in enumerate(zip(layers, found, strict=True)):
        scale = 1.0 / given.mean.shape[1]
        down, twice = math.sqrt(scale) * by_mean[:, :, None], 2.0 * scale * by_variance[:, :, None]
        mean, variance = given.mean[:, None, :], given.variance[:, None, :]
        if place == 0:  # inputs are known
            gradient, curvature = down * mean, (down**2 - twice) * mean**2
        else:
            gradient = down * mean + twice * layer.mean * variance
            curvature = gradient**2 - twice * (mean**2 + variance)
        gradients.append(gradient.reshape(len(by_mean), -1))
        curvatures.append(curvature.reshape(len(by_mean), -1))
    return jnp.concatenate(gradients, axis=1), jnp.concatenate(curvatures, axis=1)


def _linear(layer: Layer, given: Moments) -> Moments:
    """Moments of a layer's outputs before activation."""
    scale = 1.0 / given.mean.shape[1]
    second = given.mean**2 + given.variance
    variance = second @ layer.variance.T + given.variance @ (layer.mean**2).T
    return Moments(math.sqrt(scale) * given.mean @ layer.mean.T, scale * variance)


def _back(
    layer: Layer, given: Moments, by_mean: jax.Array, by_variance: jax.Array, answer: Answers
) -> tuple[jax.Array, jax.Array]:
    """Derivatives by the moments that went into the activation before this layer."""
    scale = 1.0 / given.mean.shape[1]
    mean, spread = layer.mean[:, :-1], layer.variance[:, :-1]
    to_mean = math.sqrt(scale) * by_mean @ mean + 2.0 * scale * (by_variance @ spread) * given.mean[:, :-1]
    to_variance = scale * by_variance @ (mean**2 + spread)
    return to_mean * answer[0] + to_variance * answer[1], to_mean * answer[2] + to_variance * answer[3]


def _rectified(before: Moments) -> tuple[Moments, Answers]:
    inverse = jax.lax.rsqrt(jnp.maximum(before.variance, jnp.finfo(before.variance.dtype).tiny))
    found = rectified_normal(before.mean * inverse)
    mean = before.variance * inverse * found.first
    answers = (
        found.chance,
        2.0 * mean * (1.0 - found.chance),
        0.5 * found.density * inverse,
        found.chance - found.first * found.density,
    )
    return Moments(mean, before.variance * found.variance), answers


def _other(activation: Activation, before: Moments) -> tuple[Moments, Answers]:
    after, pull = jax.vjp(partial(_activate, activation), before)
    one, zero = jnp.ones_like(before.mean), jnp.zeros_like(before.mean)
    (mean,), (variance,) = pull(Moments(one, zero)), pull(Moments(zero, one))
    return after, (mean.mean, variance.mean, mean.variance, variance.variance)


def _with_bias(mean: jax.Array, variance: jax.Array) -> Moments:
    one = jnp.ones((len(mean), 1), mean.dtype)
    return Moments(jnp.concatenate([mean, one], axis=1), jnp.concatenate([variance, 0.0 * one], axis=1))
