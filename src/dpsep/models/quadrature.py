"""Tilted moments by one-dimensional quadrature, for likelihoods without a closed form.

The tilted density of the predictor is `exp(l(u)) N(u; m, v) / Z` with `l` the log-likelihood, concave in `u`.
In units `t = (u - m) / sqrt(v)` it falls at least as fast as a standard normal around its mode, so a range of
nine units each side holds all of it. Two rules of fixed cost: `robust` lays Gauss-Legendre panels between
breakpoints that follow both the local width at the mode and the bends of the likelihood; `fast` is the
trapezoid rule in units of the Laplace approximation, which converges geometrically while the tilted density
is close to it (v up to about 1).

Derivatives come in two forms. By the theorems of Bonnet and Price `g = E[l'(u)]` and `s = -(E[l''(u)] +
Var[l'(u)])`, expectations under the tilted density, which keep their digits when v is small; and `g = E[t] /
sqrt(v)`, `s = (1 - Var[t]) / v`, which keep them when v is large. Each value is taken from the form that
cancels less.
"""

from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from dpsep.families.gaussian import LOG_2PI
from dpsep.models.base import Tilted

Rule = Literal["robust", "fast"]
RULES = ("robust", "fast")

_REACH = 9.0
_LOCAL = (-50.0, -20.0, -9.0, -5.0, -2.5, 0.0, 2.5, 5.0, 9.0, 20.0, 50.0)
_SIDE = (-14.0, -6.0, -2.5, 0.0, 2.5, 6.0, 14.0)
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(16)
_STEP = 0.5
_GRID = _STEP * (np.arange(40) - 19.5)


class Terms(NamedTuple):
    """A log-likelihood and its first two derivatives in the predictor."""

    value: jax.Array
    first: jax.Array
    second: jax.Array


def check_rule(rule: str) -> None:
    """Refuse a quadrature rule that does not exist."""
    if rule not in RULES:
        raise ValueError(f"quadrature rule {rule!r} is unknown; use one of {', '.join(map(repr, RULES))}")


def tilted_moments(
    terms: Callable[[jax.Array], Terms],
    mean: ArrayLike,
    variance: ArrayLike,
    modes: Sequence[jax.Array],
    knots: Sequence[ArrayLike],
    rule: Rule = "robust",
) -> Tilted:
    """Tilted moments of a log-concave likelihood, elementwise over cavity moments.

    Parameters
    ----------
    terms
        Log-likelihood with derivatives, elementwise in the predictor; called with one more axis at the end.
    mean, variance
        Cavity moments of the predictor.
    modes
        First the mode of the tilted density; then, for the robust rule, places where the derivatives of the
        likelihood carry their weight, which may lie far out in the tail of the tilted density.
    knots
        Where the likelihood bends, for the robust rule.
    rule
        `"robust"` or `"fast"`.
    """
    check_rule(rule)
    mean, variance = jnp.asarray(mean), jnp.asarray(variance)
    deviation = jnp.sqrt(variance)
    divisor = jnp.where(deviation > 0, deviation, 1.0)  # a record with x = 0 has a cavity without width
    centres = [(mode - mean) / divisor for mode in modes]
    widths = [jax.lax.rsqrt(1.0 + variance * jnp.abs(terms(mode).second)) for mode in modes]
    if rule == "fast":
        offsets = widths[0][..., None] * jnp.asarray(_GRID, mean.dtype)
        weights = (_STEP * widths[0])[..., None]
    else:
        bends = [(jnp.asarray(knot) - mean) / divisor - centres[0] for knot in knots]
        offsets, weights = panels(_breakpoints(centres, widths, bends))
    t = centres[0][..., None] + offsets
    values = terms(mean[..., None] + deviation[..., None] * t)
    log_density = values.value - 0.5 * t * t
    top = jnp.max(log_density, -1, keepdims=True)
    mass = weights * jnp.exp(log_density - top)
    total = jnp.sum(mass, -1, keepdims=True)
    log_z = (top + jnp.log(total))[..., 0] - 0.5 * LOG_2PI
    return _derivatives(mass / total, values, t, offsets, log_z, variance)


def _derivatives(
    weight: jax.Array, values: Terms, t: jax.Array, offsets: jax.Array, log_z: jax.Array, variance: jax.Array
) -> Tilted:
    """Choose between Price's form and the moment form, each where it cancels less."""

    def expect(value: jax.Array) -> jax.Array:
        # A node without mass may hold an overflowed derivative: select it away, zero times infinity is NaN.
        return jnp.sum(weight * jnp.where(weight > 0, value, 0.0), -1)

    deviation = jnp.sqrt(variance)
    slope = expect(values.first)
    by_moments = expect(t) / jnp.where(deviation > 0, deviation, 1.0)
    gradient = jnp.where(deviation * expect(jnp.abs(values.first)) <= expect(jnp.abs(t)), slope, by_moments)
    bend = -expect(values.second)
    jitter = expect((values.first - slope[..., None]) ** 2)
    spread = expect((offsets - expect(offsets)[..., None]) ** 2)
    price = bend - jitter
    use_price = variance * (bend + jitter) <= 1.0
    curvature = jnp.where(use_price, price, (1.0 - spread) / jnp.where(variance > 0, variance, 1.0))
    shrinkage = jnp.where(use_price & (variance * price <= 0.5), 1.0 - variance * price, spread)
    return Tilted(log_z, gradient, curvature, shrinkage)


def _breakpoints(centres: list[jax.Array], widths: list[jax.Array], bends: list[jax.Array]) -> jax.Array:
    """Sorted panel ends, as offsets from the mode, in cavity standard deviations."""
    sides = [centre - centres[0] for centre in centres[1:]]
    low = high = jnp.zeros_like(centres[0])
    for side in sides:
        low, high = jnp.minimum(low, side), jnp.maximum(high, side)
    low, high = low - _REACH, high + _REACH
    points = [multiple * widths[0] for multiple in _LOCAL] + [low, high]
    for side, width in zip(sides, widths[1:], strict=True):
        points += [side + multiple * width for multiple in _SIDE]
    points += bends
    stacked = jnp.stack(jnp.broadcast_arrays(*points), -1)
    return jnp.sort(jnp.clip(stacked, low[..., None], high[..., None]), -1)


def panels(ends: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Gauss-Legendre nodes and weights on every panel, flattened; empty panels weigh zero."""
    half = 0.5 * jnp.diff(ends, axis=-1)[..., None]
    nodes = ends[..., :-1, None] + half * jnp.asarray(_NODES + 1.0, ends.dtype)
    weights = half * jnp.asarray(_WEIGHTS, ends.dtype)
    shape = (*ends.shape[:-1], -1)
    return nodes.reshape(shape), weights.reshape(shape)
