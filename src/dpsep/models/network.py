r"""Fully connected networks: moments of the output under Gaussian weights, and what a record tells of them.

Probabilistic backpropagation (Hernandez-Lobato and Adams 2015), which the paper's second experiment is built
on. Every weight has an independent Gaussian. A layer maps inputs of mean m_z and variance v_z (the bias is an
input of 1) to a = W z / sqrt(n), n the number of its inputs with the bias, whose moments are

    mean  M m_z / sqrt(n),        variance  ( V (m_z^2 + v_z) + M^2 v_z ) / n,

and is taken for Gaussian; a rectifier or sigmoid follows in all layers but the last. The output u then is
Gaussian with moments (m, v), and any likelihood of a scalar predictor can stand behind it: with g and s of
its tilted moments (`dpsep.models.base.Tilted`), d log Z / dm = g and, because a Gaussian average obeys the
heat equation, d log Z / dv = (g^2 - s) / 2. Both are carried back through the layers in closed form. A weight
of mean m_w and variance v_w with G = d log Z / dm_w, H = d log Z / dv_w and s_w = G^2 - 2 H has the local
factor

    precision   s_w / (1 - v_w s_w),
    mean part   (G + (m_w - o) s_w) / (1 - v_w s_w),    counted from an origin o.

*Rectifier.* With alpha = m / sqrt(v), phi and Phi the normal density and distribution, r = phi / Phi:
mean sqrt(v) Phi (alpha + r), second moment v Phi (1 + alpha^2 + alpha r), and far in the negative tail their
asymptotic series, so that neither cancels. *Sigmoid.* The logistic function is replaced by the normal
distribution function of the same slope, Phi(k a) with k = sqrt(pi / 8), whose mean is exact and whose second
moment is Owen's T function, here by a fixed quadrature.
"""

import math
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import ndtr

from dpsep.models.base import Tilted

Activation = Literal["relu", "sigmoid"]
"""What stands between layers."""

_HALF_LOG_2PI = 0.5 * math.log(2.0 * math.pi)
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
        second = given.mean**2 + given.variance
        mean = root * down_mean[:, None] * given.mean
        mean = mean + 2.0 * scale * down_variance[:, None] * layer.mean * given.variance
        found.append(Slopes(mean, scale * down_variance[:, None] * second))
        if place == 0:
            break
        # Derivatives by the moments of this layer's inputs, without the bias, then through the activation.
        weights, spread = layer.mean[:, :-1], layer.variance[:, :-1]
        by_mean = root * down_mean @ weights + 2.0 * scale * (down_variance @ spread) * given.mean[:-1]
        by_variance = scale * down_variance @ (weights**2 + spread)
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


def rectified(moments: Moments) -> Moments:
    """Moments of max(a, 0) for Gaussian a."""
    deviation = jnp.sqrt(jnp.maximum(moments.variance, jnp.finfo(moments.variance.dtype).tiny))
    alpha = moments.mean / deviation
    _, first, second = _rectifier(alpha)
    return Moments(deviation * first, moments.variance * jnp.maximum(second - first**2, 0.0))


def squashed(moments: Moments) -> Moments:
    """Moments of the sigmoid of Gaussian a, by a normal distribution function of the same slope."""
    reach = jnp.sqrt(1.0 + _PROBIT**2 * moments.variance)
    h = _PROBIT * moments.mean / reach
    mean = ndtr(h)
    # E[Phi(k a)^2] = Phi(h) - 2 T(h, 1 / sqrt(1 + 2 k^2 v)), Owen's T.
    second = mean - 2.0 * _owen(h, 1.0 / jnp.sqrt(1.0 + 2.0 * _PROBIT**2 * moments.variance))
    return Moments(mean, jnp.maximum(second - mean**2, 0.0))


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
        mean = math.sqrt(scale) * layer.mean @ with_bias.mean
        second = with_bias.mean**2 + with_bias.variance
        variance = scale * (layer.variance @ second + layer.mean**2 @ with_bias.variance)
        given = Moments(mean, variance)
        if place < len(layers) - 1:
            hidden.append(given)
            given = _activate(activation, given)
    return Moments(given.mean[0], given.variance[0]), inputs, hidden


def _activate(activation: Activation, moments: Moments) -> Moments:
    return rectified(moments) if activation == "relu" else squashed(moments)


def _pull_back(
    activation: Activation, moments: Moments, by_mean: jax.Array, by_variance: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """Derivatives by the moments that went into an activation, from those by what came out."""
    if activation == "sigmoid":
        _, pull = jax.vjp(squashed, moments)
        (back,) = pull(Moments(by_mean, by_variance))
        return back.mean, back.variance
    deviation = jnp.sqrt(jnp.maximum(moments.variance, jnp.finfo(moments.variance.dtype).tiny))
    alpha = moments.mean / deviation
    chance, first, _ = _rectifier(alpha)
    density = jnp.exp(-0.5 * alpha**2 - _HALF_LOG_2PI)
    # With b = max(a, 0): dE b / dm = Phi, dE b / dv = phi / 2 sd; dE b^2 / dm = 2 E b, dE b^2 / dv = Phi.
    mean = deviation * first
    by_m = by_mean * chance + by_variance * 2.0 * mean * (1.0 - chance)
    half = density / (2.0 * deviation)
    by_v = by_mean * half + by_variance * (chance - 2.0 * mean * half)
    return by_m, by_v


def _rectifier(alpha: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
    """P(a > 0), E max(a, 0) and E max(a, 0)^2 for a ~ N(alpha, 1), without cancellation on either side."""
    # Near: the sums cancel to 2 / alpha^4 of their terms, which doubles can bear down to -20.
    near = jnp.maximum(alpha, -20.0)
    density = jnp.exp(-0.5 * near**2 - _HALF_LOG_2PI)
    first = near * ndtr(near) + density
    second = (1.0 + near**2) * ndtr(near) + near * density
    # Far out: the asymptotic series phi / alpha^2 (1 - 3 / alpha^2 + ...), 2 phi / |alpha|^3 (1 - 6 / ...).
    far = jnp.minimum(alpha, -20.0)
    inverse = 1.0 / far**2
    series = inverse * (1.0 - inverse * (3.0 - inverse * (15.0 - inverse * (105.0 - 945.0 * inverse))))
    tail = 2.0 * inverse / -far
    tail = tail * (1.0 - inverse * (6.0 - inverse * (45.0 - inverse * (420.0 - 4725.0 * inverse))))
    thin = jnp.exp(-0.5 * far**2 - _HALF_LOG_2PI)
    is_far = alpha < -20.0
    return ndtr(alpha), jnp.where(is_far, thin * series, first), jnp.where(is_far, thin * tail, second)


def _owen(h: jax.Array, a: jax.Array) -> jax.Array:
    """Owen's T(h, a) for a in [0, 1], by Gauss-Legendre quadrature."""
    nodes = jnp.asarray(0.5 * (_OWEN_NODES + 1.0), h.dtype)
    weights = jnp.asarray(0.5 * _OWEN_WEIGHTS, h.dtype)
    squares = 1.0 + (a[..., None] * nodes) ** 2
    terms = jnp.exp(-0.5 * h[..., None] ** 2 * squares) / squares
    return a * jnp.sum(weights * terms, axis=-1) / (2.0 * math.pi)
