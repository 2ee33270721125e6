"""Sums of a release of network factors over a whole table, in rank-one form.

The same numbers as `dpsep.models.network_factors.NetworkFactors` followed by a gate's clip and sum, without
an array of records times weights: a record's mean part is an outer product in each layer, so that its norm
and the clipped sum need its two factors alone.

**Privacy.** For measurement only. Noise comes from `jax.random` elsewhere; nothing here is a release.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from dpsep.models.concentrated_noise import ConcentratedNoise
from dpsep.models.network import Activation
from dpsep.models.network_factors import (
    NetworkPublic,
    Weights,
    along,
    design,
    spread,
    through,
    turn,
)

__all__ = ["Sums", "sums", "typical_share"]


class Sums(NamedTuple):
    """Sums over all records, each clipped.

    Attributes
    ----------
    mean
        Of the mean parts, in the units of what was published, one array a layer.
    noise, pair
        Of the noise statistic, and of its older form: shape part and rate part, clipped together.
    below
        How many records the clip leaves as they are.
    """

    mean: Weights
    noise: jax.Array
    pair: jax.Array
    below: jax.Array


def sums(
    public: NetworkPublic,
    chunk: tuple[jax.Array, jax.Array],
    activation: Activation,
    *,
    noise_clip: jax.Array | float,
    layer_clips: jax.Array | float = jnp.inf,
    by_layer: jax.Array | float = 0.0,
) -> Sums:
    """Sum the clipped contributions of a chunk of records.

    Parameters
    ----------
    public
        What contributions depend on; the clip of a mean part is one in its units.
    chunk
        Inputs and outcomes.
    activation
        Of the network.
    noise_clip
        Of the noise statistic.
    layer_clips, by_layer
        Clip of each layer's part, and whether layers are clipped by themselves; else the whole is, to one.
    """
    x, y = design(public.features, public.outcome, chunk)
    passed = through(public.weights, x, activation)
    turned = turn(public.bases, passed)
    shift = along(turned, public.offset)
    variance = spread(turned, tuple(1.0 / part for part in public.cavity_precision))
    tilted, factor = ConcentratedNoise().tilted(passed.output + shift, variance, public.noise, y)
    slope = (tilted.gradient + shift * tilted.curvature) / tilted.shrinkage
    pairs = zip(turned, public.unit, strict=True)
    squares = jnp.stack([slope**2 * spread([pair], (unit**2,)) for pair, unit in pairs])
    whole = jnp.broadcast_to(_shrink(jnp.sum(squares, axis=0), 1.0), squares.shape)
    limits = jnp.broadcast_to(jnp.asarray(layer_clips), squares.shape[:1])[:, None]
    shrink = jnp.where(by_layer > 0, _shrink(squares, limits), whole)
    mean = tuple(
        ((slope * own)[:, None] * d).T @ given * unit
        for (d, given), unit, own in zip(turned, public.unit, shrink, strict=True)
    )
    rate = factor.rate * public.noise.mean
    one = jnp.clip(rate - factor.shape_minus_one + 0.5, -noise_clip, noise_clip)
    pair = jnp.stack([factor.shape_minus_one - 0.5, rate], axis=1)
    pair = pair * _shrink(jnp.sum(pair**2, axis=1), noise_clip)[:, None]
    below = jnp.sum(jnp.all(shrink >= 1.0, axis=0).astype(y.dtype))
    return Sums(mean, jnp.sum(one, axis=0)[None], jnp.sum(pair, axis=0), below)


def typical_share(public: NetworkPublic, x: jax.Array, activation: Activation) -> jax.Array:
    r"""How much of a shift of the outcomes a clip lets through, were residuals normal.

    A record with whitened gradient of norm a and a residual of s standard deviations has norm a |s|; a shift
    of s counts only where the clip at one leaves it as it is, with probability erf(1 / (a sqrt 2)). Weighed
    by a^2 over inputs that are made up, this is a function of public values.
    """
    turned = turn(public.bases, through(public.weights, x, activation))
    square = spread(turned, tuple(unit**2 for unit in public.unit)) * public.noise.mean
    kept = jax.scipy.special.erf(jax.lax.rsqrt(2.0 * jnp.maximum(square, 1e-30)))
    return jnp.sum(square * kept) / jnp.sum(square)


def _shrink(square: jax.Array, clip: jax.Array | float) -> jax.Array:
    return jnp.minimum(1.0, clip * jax.lax.rsqrt(jnp.maximum(square, 1e-60)))
