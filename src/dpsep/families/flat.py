"""Natural parameters as one flat vector, and back.

A symmetric matrix enters as its upper triangle with sqrt(2) off the diagonal, so that the vector's norm is
the norm of `dpsep.families.natural.norm`: the vector that is clipped is the vector that is noised. A family
may say which of its leaves hold symmetric matrices, in their last two axes, by a class constant
`symmetric`, one boolean a leaf; where none does, an array of two axes is one symmetric matrix and every
other array holds plain numbers.
"""

import math
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np

Natural = TypeVar("Natural")


def to_vector(p: Any) -> jax.Array:
    """Flatten the natural parameters of one density or factor.

    Examples
    --------
    >>> from dpsep.families import Gaussian
    >>> to_vector(Gaussian(jnp.array([1.0, 2.0]), jnp.eye(2))).round(3)
    Array([1., 2., 1., 0., 1.], dtype=float32)
    """
    parts = []
    for leaf, symmetric in _leaves(p):
        if symmetric:
            rows, columns, weight = _triangle(leaf.shape[-1])
            leaf = leaf[..., rows, columns] * weight.astype(leaf.dtype)
        parts.append(jnp.ravel(leaf))
    return jnp.concatenate(parts)


def from_vector(like: Natural, vector: jax.Array) -> Natural:
    """Return natural parameters shaped as `like` from a flat vector."""
    leaves, used = [], 0
    for (leaf, symmetric), size in zip(_leaves(like), sizes(like), strict=True):
        part = vector[used : used + size]
        if symmetric:
            part = part.reshape(*leaf.shape[:-2], -1)
            place, weight = _places(leaf.shape[-1])
            leaves.append(part[..., place] / weight.astype(vector.dtype))
        else:
            leaves.append(part.reshape(leaf.shape))
        used += size
    return jax.tree.unflatten(jax.tree.structure(like), leaves)


def sizes(p: Any) -> tuple[int, ...]:
    """Number of flat coordinates of each leaf, in order.

    Examples
    --------
    >>> from dpsep.families import Gaussian
    >>> sizes(Gaussian.isotropic(3))
    (3, 6)
    """
    counts = []
    for leaf, symmetric in _leaves(p):
        size = math.prod(leaf.shape)
        if symmetric:
            d = leaf.shape[-1]
            size = math.prod(leaf.shape[:-2]) * (d * (d + 1) // 2)
        counts.append(size)
    return tuple(counts)


def _leaves(p: Any) -> list[tuple[Any, bool]]:
    """Each array of `p`, in the order of the pytree, and whether it holds symmetric matrices."""
    found = []
    for node in jax.tree.leaves(p, is_leaf=lambda node: hasattr(node, "symmetric")):
        if hasattr(node, "symmetric"):
            found += zip(node, node.symmetric, strict=True)
        else:
            found.append((node, node.ndim == 2))
    return found


def _triangle(d: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rows, columns = np.triu_indices(d)
    return rows, columns, np.where(rows == columns, 1.0, math.sqrt(2.0))


def _places(d: int) -> tuple[np.ndarray, np.ndarray]:
    """Where each entry of a matrix stands in its flat triangle, and the entry's weight there."""
    rows, columns, weight = _triangle(d)
    place, weights = np.zeros((d, d), int), np.ones((d, d))
    place[rows, columns] = place[columns, rows] = np.arange(len(rows))
    weights[rows, columns] = weights[columns, rows] = weight
    return place, weights
