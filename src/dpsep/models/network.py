r"""Fully connected networks: moments of the output under Gaussian weights, and what a record tells of them.

Probabilistic backpropagation (Hernandez-Lobato and Adams 2015), which the paper's second experiment is built
on. Every weight has an independent Gaussian. A layer maps inputs of mean m_z and variance v_z (the bias is an
input of 1) to a = W z / sqrt(n), n the number of its inputs with the bias, whose moments are

    mean  M m_z / sqrt(n),        variance  ( V (m_z^2 + v_z) + M^2 v_z ) / n,

and is taken for Gaussian; a rectifier, sigmoid or sine follows in all layers but the last. The output u then
is Gaussian with moments (m, v), and any likelihood of a scalar predictor can stand behind it: with g and s of
its tilted moments (`dpsep.models.base.Tilted`), d log Z / dm = g and, because a Gaussian average obeys the
heat equation, d log Z / dv = (g^2 - s) / 2. Both are carried back through the layers in closed form. A weight
of mean m_w and variance v_w with G = d log Z / dm_w, H = d log Z / dv_w and s_w = G^2 - 2 H has the local
factor

    precision   s_w / (1 - v_w s_w),
    mean part   (G + (m_w - o) s_w) / (1 - v_w s_w),    counted from an origin o.

*Rectifier.* With alpha = m / sqrt(v), phi and Phi the normal density and distribution: mean
sqrt(v) (alpha Phi + phi), second moment v ((1 + alpha^2) Phi + alpha phi), by `dpsep.models.rectifier` in a
form in which neither cancels. *Sigmoid.* The logistic function is replaced by the normal
distribution function of the same slope, Phi(k a) with k = sqrt(pi / 8), whose mean is exact and whose second
moment is Owen's T function, here by a fixed quadrature. *Sine.* E sin a = exp(-v/2) sin m and
E sin^2 a = (1 - exp(-2v) cos 2m) / 2, both exact.
"""

import math
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import ndtr

from dpsep.models.base import Tilted
from dpsep.models.rectifier import rectified_normal

Activation = Literal["relu", "sigmoid", "sine"]
"""What stands between layers."""
ACTIVATIONS = ("relu", "sigmoid", "sine")
"""Their names."""

_PROBIT = math.sqrt(math.pi / 8.0)
_OWEN_NODES, _OWEN_WEIGHTS = np.polynomial.legendre.leggauss(16)


class Layer(NamedTuple):
    """Moments of a layer's weights; the last column belongs to the bias.

    Attributes
    ----------
    mean, variance
        Shape (outputs, inputs + 1).
    """

    mean: jax.Array
    variance: jax.Array


class Moments(NamedTuple):
    """Mean and variance of quantities taken for independent Gaussians."""

    mean: jax.Array
    variance: jax.Array


class Slopes(NamedTuple):
    """Derivatives of log Z by the mean and the variance of a layer's weights, shapes as the layer's."""

    mean: jax.Array
    variance: jax.Array


def forward(layers: tuple[Layer, ...], x: jax.Array, activation: Activation = "relu") -> Moments:
    """Moments of the output for one input x (d,)."""
    return _forward(layers, x, activation)[0]


def slopes(
    layers: tuple[Layer, ...], x: jax.Array, tilt: Tilted, activation: Activation = "relu"
) -> tuple[Slopes, ...]:
    """Derivatives of log Z for one input, from the output's tilted moments, layer by layer.

    Parameters
    ----------
    tilt
        Tilted moments of the output under the moments that `forward` gives.
    """
    _, inputs, hidden = _forward(layers, x, activation)
    down_mean = tilt.gradient[None]
    down_variance = 0.5 * (tilt.gradient**2 - tilt.curvature)[None]
    found: list[Slopes] = []
    for place in reversed(range(len(layers))):
        layer, given = layers[place], inputs[place]
        scale = 1.0 / given.mean.shape[0]
        root = math.sqrt(scale)
        mean = (root * down_mean)[:, None] * given.mean
        if place == 0:
            found.append(Slopes(mean, (scale * down_variance)[:, None] * given.mean**2))
            break
        mean = mean + (2.0 * scale * down_variance)[:, None] * layer.mean * given.variance
        second = given.mean**2 + given.variance
        found.append(Slopes(mean, (scale * down_variance)[:, None] * second))
        # Derivatives by the moments of this layer's inputs, without the bias, then through the activation.
        weights, spread = layer.mean[:, :-1], layer.variance[:, :-1]
        by_mean = (
            root * _pull(down_mean, weights) + 2.0 * scale * _pull(down_variance, spread) * given.mean[:-1]
        )
        by_variance = scale * _pull(down_variance, weights**2 + spread)
        down_mean, down_variance = _pull_back(activation, hidden[place - 1], by_mean, by_variance)
    return tuple(reversed(found))


def local_factors(
    layers: tuple[Layer, ...], slope: tuple[Slopes, ...], origin: tuple[jax.Array, ...] | None = None
) -> tuple[tuple[jax.Array, jax.Array], ...]:
    """Mean part and precision of the local factor on every weight, layer by layer.

    Parameters
    ----------
    layers
        Moments of the cavity.
    slope
        Derivatives of log Z there.
    origin
        Means that mean parts are counted from; zero if left out.
    """
    factors = []
    for place, (layer, by) in enumerate(zip(layers, slope, strict=True)):
        curvature = by.mean**2 - 2.0 * by.variance
        # The output is only taken for Gaussian, so that a tilted variance may come out negative: such a
        # weight is told nothing by this record.
        shrinkage = 1.0 - layer.variance * curvature
        usable = shrinkage > 0
        shrinkage = jnp.where(usable, shrinkage, 1.0)
        away = layer.mean if origin is None else layer.mean - origin[place]
        mean_part = jnp.where(usable, (by.mean + away * curvature) / shrinkage, 0.0)
        factors.append((mean_part, jnp.where(usable, curvature / shrinkage, 0.0)))
    return tuple(factors)


def tilted_layers(layers: tuple[Layer, ...], slope: tuple[Slopes, ...]) -> tuple[Layer, ...]:
    """Tilted moments of every weight, m_w + v_w G and v_w - v_w^2 s_w: the cavity times its local factor."""
    found = []
    for layer, by in zip(layers, slope, strict=True):
        shrinkage = 1.0 - layer.variance * (by.mean**2 - 2.0 * by.variance)
        usable = shrinkage > 0
        mean = layer.mean + jnp.where(usable, layer.variance * by.mean, 0.0)
        found.append(Layer(mean, layer.variance * jnp.where(usable, shrinkage, 1.0)))
    return tuple(found)


def rectified(moments: Moments) -> Moments:
    """Moments of max(a, 0) for Gaussian a."""
    deviation, inverse = _deviation(moments.variance)
    found = rectified_normal(moments.mean * inverse)
    return Moments(deviation * found.first, moments.variance * found.variance)


def squashed(moments: Moments) -> Moments:
    """Moments of the sigmoid of Gaussian a, by a normal distribution function of the same slope."""
    reach = jnp.sqrt(1.0 + _PROBIT**2 * moments.variance)
    h = _PROBIT * moments.mean / reach
    mean = ndtr(h)
    # E[Phi(k a)^2] = Phi(h) - 2 T(h, 1 / sqrt(1 + 2 k^2 v)), Owen's T.
    second = mean - 2.0 * _owen(h, 1.0 / jnp.sqrt(1.0 + 2.0 * _PROBIT**2 * moments.variance))
    return Moments(mean, jnp.maximum(second - mean**2, 0.0))


def waved(moments: Moments) -> Moments:
    """Moments of the sine of Gaussian a."""
    mean, variance = moments
    # (1 - exp(-2v) cos 2m) / 2 - exp(-v) sin^2 m, in a form whose terms do not cancel as v goes to zero.
    fade = jnp.expm1(-variance)
    spread = -0.5 * fade * (2.0 * jnp.cos(mean) ** 2 + fade * jnp.cos(2.0 * mean))
    return Moments(jnp.exp(-0.5 * variance) * jnp.sin(mean), spread)


def _forward(
    layers: tuple[Layer, ...], x: jax.Array, activation: Activation
) -> tuple[Moments, list[Moments], list[Moments]]:
    """Output, inputs of each layer with the bias, and what goes into each activation."""
    given = Moments(x, jnp.zeros_like(x))
    inputs, hidden = [], []
    for place, layer in enumerate(layers):
        with_bias = Moments(
            jnp.concatenate([given.mean, jnp.ones(1, x.dtype)]),
            jnp.concatenate([given.variance, jnp.zeros(1, x.dtype)]),
        )
        inputs.append(with_bias)
        scale = 1.0 / with_bias.mean.shape[0]
        variance = scale * _spread(layer, with_bias, known=place == 0)
        given = Moments(math.sqrt(scale) * _apply(layer.mean, with_bias.mean), variance)
        if place < len(layers) - 1:
            hidden.append(given)
            given = _activate(activation, given)
    return Moments(given.mean[0], given.variance[0]), inputs, hidden


def _spread(layer: Layer, given: Moments, known: bool) -> jax.Array:
    """Sum over inputs of V (m^2 + v) + M^2 v; the network's own inputs are known, v = 0."""
    if known:
        return _apply(layer.variance, given.mean**2)
    second = given.mean**2 + given.variance
    if layer.mean.shape[0] == 1:
        return jnp.sum(layer.variance * second + layer.mean**2 * given.variance, -1)
    return layer.variance @ second + layer.mean**2 @ given.variance


def _apply(matrix: jax.Array, vector: jax.Array) -> jax.Array:
    """Matrix times vector; one row alone as a sum, which compiles to less than a product of matrices."""
    return jnp.sum(matrix * vector, -1) if matrix.shape[0] == 1 else matrix @ vector


def _pull(vector: jax.Array, matrix: jax.Array) -> jax.Array:
    """Row vector times matrix; with one row alone, plain scaling."""
    return vector * matrix[0] if matrix.shape[0] == 1 else vector @ matrix


def _activate(activation: Activation, moments: Moments) -> Moments:
    return _MOMENTS[activation](moments)


def _pull_back(
    activation: Activation, moments: Moments, by_mean: jax.Array, by_variance: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """Derivatives by the moments that went into an activation, from those by what came out."""
    if activation != "relu":
        _, pull = jax.vjp(_MOMENTS[activation], moments)
        (back,) = pull(Moments(by_mean, by_variance))
        return back.mean, back.variance
    deviation, inverse = _deviation(moments.variance)
    found = rectified_normal(moments.mean * inverse)
    # With b = max(a, 0): dE b / dm = Phi, dE b / dv = phi / 2 sd; dE b^2 / dm = 2 E b, dE b^2 / dv = Phi.
    by_m = by_mean * found.chance + by_variance * 2.0 * deviation * found.first * (1.0 - found.chance)
    by_v = 0.5 * by_mean * found.density * inverse
    return by_m, by_v + by_variance * (found.chance - found.first * found.density)


_MOMENTS = {"relu": rectified, "sigmoid": squashed, "sine": waved}


def _deviation(variance: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Standard deviation and its inverse, from one root."""
    inverse = jax.lax.rsqrt(jnp.maximum(variance, jnp.finfo(variance.dtype).tiny))
    return variance * inverse, inverse


def _owen(h: jax.Array, a: jax.Array) -> jax.Array:
    """Owen's T(h, a) for a in [0, 1], by Gauss-Legendre quadrature."""
    nodes = jnp.asarray(0.5 * (_OWEN_NODES + 1.0), h.dtype)
    weights = jnp.asarray(0.5 * _OWEN_WEIGHTS, h.dtype)
    squares = 1.0 + (a[..., None] * nodes) ** 2
    terms = jnp.exp(-0.5 * h[..., None] ** 2 * squares) / squares
    return a * jnp.sum(weights * terms, axis=-1) / (2.0 * math.pi)
