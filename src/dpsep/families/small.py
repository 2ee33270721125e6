"""Algebra of many small symmetric positive definite matrices, written out entry by entry.

A call to LAPACK costs more than the arithmetic on a 4 x 4 matrix. Up to `LARGEST` rows the factorisation
`L diag(p) L'` is unrolled into expressions of whole batches, which the compiler fuses; above that the calls
are LAPACK's. Both read the lower triangle only, and both give NaN where a matrix is not positive definite.
"""

import operator
from functools import reduce
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.scipy.linalg import cho_solve, solve_triangular

LARGEST = 8
"""Most rows of a matrix that is unrolled."""

Entries = list[list[jax.Array]]


class Solved(NamedTuple):
    """Solution of a linear system, and the log determinant of its matrix.

    Attributes
    ----------
    solution
        Shape (..., d).
    log_determinant
        Shape (...).
    """

    solution: jax.Array
    log_determinant: jax.Array


def inverse(matrix: jax.Array) -> jax.Array:
    """Inverse of each matrix (..., d, d), exactly symmetric.

    Examples
    --------
    >>> inverse(jnp.array([[2.0, 2.0], [2.0, 4.0]]))
    Array([[ 1. , -0.5],
           [-0.5,  0.5]], dtype=float32)
    """
    d = matrix.shape[-1]
    if d > LARGEST:
        identity = jnp.broadcast_to(jnp.eye(d, dtype=matrix.dtype), matrix.shape)
        half = solve_triangular(_cholesky(matrix), identity, lower=True)
        return jnp.einsum("...ki,...kj->...ij", half, half)
    lower, reciprocals, _ = _factorise(matrix)
    half = _unit_inverse(lower)
    scaled = [[reciprocals[k] * half[k][j] for j in range(k)] + [reciprocals[k]] for k in range(d)]
    entries: Entries = [[] for _ in range(d)]
    for i in range(d):
        for j in range(i + 1):
            terms = [scaled[i][j]] + [half[k][i] * scaled[k][j] for k in range(i + 1, d)]
            entries[i].append(_total(terms))
    rows = [jnp.stack([entries[max(i, j)][min(i, j)] for j in range(d)], -1) for i in range(d)]
    return jnp.stack(rows, -2)


def solve(matrix: jax.Array, vector: jax.Array) -> Solved:
    """Solve `matrix @ solution = vector`; (..., d, d) and (..., d), batch axes broadcast."""
    d = matrix.shape[-1]
    if d > LARGEST:
        factor = _cholesky(matrix)
        wide = jnp.broadcast_to(factor, (*vector.shape[:-1], d, d))
        logs = jnp.sum(jnp.log(jnp.diagonal(factor, axis1=-2, axis2=-1)), -1)
        return Solved(cho_solve((wide, True), vector[..., None])[..., 0], 2.0 * logs)
    lower, reciprocals, pivot = _factorise(matrix)
    forward: list[jax.Array] = []
    for i in range(d):
        forward.append(vector[..., i] - _total([lower[i][k] * forward[k] for k in range(i)]))
    back: list[jax.Array] = []  # from the last coordinate to the first
    for i in reversed(range(d)):
        known = [lower[k][i] * back[d - 1 - k] for k in range(i + 1, d)]
        back.append(forward[i] * reciprocals[i] - _total(known))
    return Solved(jnp.stack(back[::-1], -1), _total([jnp.log(p) for p in pivot]))


def inverse_root(matrix: jax.Array) -> tuple[jax.Array, jax.Array]:
    """A root U of the inverse of each matrix (..., d, d), `U U' = matrix^-1`, and its log determinant.

    Examples
    --------
    >>> root, log_determinant = inverse_root(jnp.diag(jnp.array([4.0, 1.0])))
    >>> jnp.diagonal(root), float(jnp.exp(log_determinant))
    (Array([0.5, 1. ], dtype=float32), 0.5)
    """
    d = matrix.shape[-1]
    if d > LARGEST:
        factor = _cholesky(matrix)
        identity = jnp.broadcast_to(jnp.eye(d, dtype=matrix.dtype), matrix.shape)
        logs = jnp.sum(jnp.log(jnp.diagonal(factor, axis1=-2, axis2=-1)), -1)
        return jnp.swapaxes(solve_triangular(factor, identity, lower=True), -1, -2), -logs
    lower, reciprocals, pivots = _factorise(matrix)
    half = _unit_inverse(lower)
    scale = [jnp.sqrt(part) for part in reciprocals]
    zero = jnp.zeros_like(pivots[0])
    rows = [
        jnp.stack([zero] * i + [scale[i]] + [half[j][i] * scale[j] for j in range(i + 1, d)], -1)
        for i in range(d)
    ]
    return jnp.stack(rows, -2), -0.5 * _total([jnp.log(pivot) for pivot in pivots])


def is_above(matrix: jax.Array, floor: jax.Array | float = 0.0) -> jax.Array:
    """Whether every eigenvalue of each matrix (..., d, d) is above `floor`, up to rounding.

    By Sylvester's law of inertia: the pivots of `matrix - floor I` are positive exactly then. No
    eigenvalue is computed.

    Examples
    --------
    >>> is_above(jnp.diag(jnp.array([1.0, 3.0])), 2.0)
    Array(False, dtype=bool)
    """
    d = matrix.shape[-1]
    moved = matrix - jnp.asarray(floor, matrix.dtype) * jnp.eye(d, dtype=matrix.dtype)
    if d > LARGEST:
        return jnp.all(jnp.isfinite(_cholesky(moved)), (-2, -1))
    good = jnp.asarray(True)
    for pivot in _factorise(moved)[2]:
        good = good & (pivot > 0) & jnp.isfinite(pivot)
    return good


def multiply(matrix: jax.Array, vector: jax.Array) -> jax.Array:
    """Matrices (..., d, d) times vectors (..., d), without a call to a library."""
    return jnp.sum(matrix * vector[..., None, :], -1)


def dot(left: jax.Array, right: jax.Array) -> jax.Array:
    """Inner products along the last axis."""
    return jnp.sum(left * right, -1)


def _factorise(matrix: jax.Array) -> tuple[Entries, list[jax.Array], list[jax.Array]]:
    """Rows of the unit lower triangle below its diagonal, reciprocals of the pivots, and the pivots."""
    d = matrix.shape[-1]
    lower: Entries = [[] for _ in range(d)]
    pivots: list[jax.Array] = []
    reciprocals: list[jax.Array] = []
    for j in range(d):
        weighted = [lower[j][k] * pivots[k] for k in range(j)]
        pivot = matrix[..., j, j] - _total([lower[j][k] * weighted[k] for k in range(j)])
        pivot = jnp.where(pivot > 0, pivot, jnp.nan)
        pivots.append(pivot)
        reciprocals.append(1.0 / pivot)
        for i in range(j + 1, d):
            rest = matrix[..., i, j] - _total([lower[i][k] * weighted[k] for k in range(j)])
            lower[i].append(rest * reciprocals[j])
    return lower, reciprocals, pivots


def _unit_inverse(lower: Entries) -> Entries:
    """Inverse of a unit lower triangle, again without its diagonal."""
    half: Entries = [[] for _ in lower]
    for i in range(len(lower)):
        for j in range(i):
            terms = [lower[i][j]] + [lower[i][k] * half[k][j] for k in range(j + 1, i)]
            half[i].append(-_total(terms))
    return half


def _total(terms: list[jax.Array]) -> Any:
    """Sum of a list, without a zero to start from; for none, zero of any type."""
    return reduce(operator.add, terms) if terms else 0.0


def _cholesky(matrix: jax.Array) -> jax.Array:
    return jnp.linalg.cholesky(jnp.tril(matrix) + jnp.swapaxes(jnp.tril(matrix, -1), -1, -2))
