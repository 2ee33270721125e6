"""Arithmetic on natural parameters, the same for every exponential family.

A density `exp(theta . t(x) - A(theta))` is stored as its natural parameter `theta`, a pytree. Products of
densities then are sums of pytrees, which is all that expectation propagation does with them: cavity `theta -
theta_f`, tilted factor `theta_tilted - theta_cavity`, posterior `theta_0 + N theta_f` (section 2 of the
paper). Each family names the number of event axes of each of its leaves in `event_ndims`; every axis before
those is a batch axis. Tuples, lists and dictionaries of families (for instance weights and noise precision
together) are families too.

**Privacy**: `clip` bounds the norm of one record's contribution, it releases nothing. The vector whose norm
counts is the flat natural parameter, a symmetric matrix with its Frobenius norm: the upper triangle with
sqrt(2) off the diagonal has the same norm, so that the vector clipped is the vector noised. The bound holds
up to floating-point rounding; whoever releases checks it again in integers.
"""

from collections.abc import Iterator
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

Natural = TypeVar("Natural")


def multiply(p: Natural, q: Natural) -> Natural:
    """Product of two (unnormalised) densities of one family: natural parameters add.

    Examples
    --------
    >>> from dpsep.families import DiagonalGaussian
    >>> p = DiagonalGaussian(jnp.array([1.0]), jnp.array([2.0]))
    >>> multiply(p, p).precision
    Array([4.], dtype=float32)
    """
    return jax.tree.map(jnp.add, p, q)


def divide(p: Natural, q: Natural) -> Natural:
    """Quotient of two densities of one family: natural parameters subtract."""
    return jax.tree.map(jnp.subtract, p, q)


def power(p: Natural, exponent: ArrayLike) -> Natural:
    """Density to a power: natural parameters times `exponent`, a scalar or one value for each batch entry."""
    exponent = jnp.asarray(exponent)
    return _map_with_event_ndim(lambda leaf, ndim: _align(exponent, ndim) * leaf, p)


def zeros_like(p: Natural) -> Natural:
    """Return the factor that is constant 1: every natural parameter zero."""
    return jax.tree.map(jnp.zeros_like, p)


def norm(p: Any) -> jax.Array:
    """Euclidean norm of the flat natural parameter, one value for each batch entry.

    Leaves are divided by their largest magnitude first, so that squares neither overflow nor vanish in
    float32.

    Examples
    --------
    >>> from dpsep.families import Gaussian
    >>> norm(Gaussian(jnp.array([3.0, 0.0]), jnp.array([[0.0, 4.0], [0.0, 0.0]])))
    Array(5., dtype=float32)
    """
    leaves = list(_leaves_with_event_ndim(p))
    largest = jnp.asarray(0.0)
    for leaf, ndim in leaves:
        largest = jnp.maximum(largest, jnp.max(jnp.abs(leaf), axis=_event_axes(ndim), initial=0.0))
    unit = jnp.where((largest > 0) & jnp.isfinite(largest), largest, 1.0)
    total = jnp.asarray(0.0)
    for leaf, ndim in leaves:
        total = total + jnp.sum(jnp.square(leaf / _align(unit, ndim)), axis=_event_axes(ndim))
    return unit * jnp.sqrt(total)


def clip(p: Natural, bound: ArrayLike) -> Natural:
    """Scale the whole parameter so that its norm is at most `bound`.

    A parameter within the bound is returned bit for bit, so `bound=inf` is the identity. A parameter that is
    not finite has no direction to keep: under a finite bound it becomes exact zeros.

    Examples
    --------
    >>> from dpsep.families import DiagonalGaussian
    >>> clip(DiagonalGaussian(jnp.array([3.0]), jnp.array([4.0])), 1.0).eta
    Array([0.6], dtype=float32)
    """
    size = norm(p)
    bound = jnp.asarray(bound, dtype=size.dtype)
    usable = jnp.isfinite(size)
    keep = (size <= bound) | (bound == jnp.inf)
    factor = bound / jnp.where(usable & (size > 0), size, 1.0)

    def scale(leaf: jax.Array, ndim: int) -> jax.Array:
        shrunk = jnp.where(_align(usable & (bound > 0), ndim), leaf * _align(factor, ndim), 0.0)
        return jnp.where(_align(keep, ndim), leaf, shrunk)

    return _map_with_event_ndim(scale, p)


def _align(value: jax.Array, event_ndim: int) -> jax.Array:
    """Append axes of length one, so that a batch value broadcasts against a leaf."""
    return value.reshape(value.shape + (1,) * event_ndim) if value.ndim else value


def _event_axes(event_ndim: int) -> tuple[int, ...]:
    return tuple(range(-event_ndim, 0))


def _leaves_with_event_ndim(p: Any) -> Iterator[tuple[jax.Array, int]]:
    """Walk the arrays of `p`; an array outside any family is one event without batch axes."""
    if hasattr(p, "event_ndims"):
        yield from zip(map(jnp.asarray, p), p.event_ndims, strict=True)
    elif isinstance(p, dict):
        for name in sorted(p):
            yield from _leaves_with_event_ndim(p[name])
    elif isinstance(p, (tuple, list)):
        for part in p:
            yield from _leaves_with_event_ndim(part)
    else:
        leaf = jnp.asarray(p)
        yield leaf, leaf.ndim


def _map_with_event_ndim(function: Any, p: Any) -> Any:
    leaves = [function(leaf, ndim) for leaf, ndim in _leaves_with_event_ndim(p)]
    return jax.tree.unflatten(jax.tree.structure(p), leaves)
