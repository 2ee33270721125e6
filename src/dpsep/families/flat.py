"""Natural parameters as one flat vector, and back.

A symmetric matrix enters as its upper triangle with sqrt(2) off the diagonal, so that the vector's norm is
the norm of `dpsep.families.natural.norm`: the vector that is clipped is the vector that is noised.
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
    for leaf in jax.tree.leaves(p):
        if leaf.ndim == 2:
            rows, columns, weight = _triangle(leaf.shape[0])
            parts.append(leaf[rows, columns] * weight.astype(leaf.dtype))
        else:
            parts.append(jnp.ravel(leaf))
    return jnp.concatenate(parts)


def from_vector(like: Natural, vector: jax.Array) -> Natural:
    """Return natural parameters shaped as `like` from a flat vector."""
    leaves, used = [], 0
    for leaf in jax.tree.leaves(like):
        if leaf.ndim == 2:
            d = leaf.shape[0]
            rows, columns, weight = _triangle(d)
            part = vector[used : used + len(rows)] / weight.astype(vector.dtype)
            matrix = jnp.zeros((d, d), vector.dtype).at[rows, columns].set(part)
            leaves.append(matrix + jnp.triu(matrix, 1).T)
            used += len(rows)
        else:
            leaves.append(vector[used : used + leaf.size].reshape(leaf.shape))
            used += leaf.size
    return jax.tree.unflatten(jax.tree.structure(like), leaves)


def _triangle(d: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rows, columns = np.triu_indices(d)
    return rows, columns, np.where(rows == columns, 1.0, math.sqrt(2.0))
