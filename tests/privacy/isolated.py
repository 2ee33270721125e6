"""Small programs, one for each operation that a gate admits, and the poison that each of them must stand.

`PROGRAMS` maps a name to a function of rows (n, 4) that holds the operation; `spread` runs a function with
hostile values in one row at a time and returns the slots and values that changed another row.
"""

from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.ad_checkpoint import checkpoint_name
from numpy.typing import NDArray

from dpsep.privacy.isolation import HOSTILE

ROWS = 24
WIDTH = 4
Rows = Callable[[jax.Array], Any]


def whole(x: jax.Array) -> jax.Array:
    """Cells as whole numbers that an index may be."""
    return jnp.clip(jnp.nan_to_num(x), -3.0, 3.0).astype(jnp.int64)


def each(function: Callable[[jax.Array], Any]) -> Rows:
    """Map a function of one record over the rows, as own models are."""
    return jax.vmap(function)


def matrices(x: jax.Array) -> jax.Array:
    """A positive definite matrix of every row."""
    return x[:, :, None] * x[:, None, :] + 2.0 * jnp.eye(WIDTH)


PUBLIC = np.linspace(-1.0, 1.0, WIDTH * WIDTH).reshape(WIDTH, WIDTH)
LOWER = np.tril(PUBLIC) + 2.0 * np.eye(WIDTH)

ELEMENTWISE: dict[str, Rows] = {
    **{
        name: getattr(lax, name)
        for name in (
            *("abs", "asin", "acos", "atan", "asinh", "acosh", "atanh", "bessel_i0e", "bessel_i1e", "cbrt"),
            *("ceil", "cos", "cosh", "digamma", "erf", "erf_inv", "erfc", "exp", "exp2", "expm1", "floor"),
            *("is_finite", "lgamma", "log", "log1p", "logistic", "neg", "round", "rsqrt", "sign", "sin"),
            *("sinh", "sqrt", "square", "stop_gradient", "tan", "tanh"),
        )
    },
    **{
        name: lambda x, name=name: getattr(lax, name)(x, x[:, ::-1])
        for name in (
            *("add", "sub", "mul", "div", "rem", "pow", "max", "min", "atan2", "nextafter"),
            *("eq", "ne", "lt", "le", "gt", "ge"),
        )
    },
    "and": lambda x: (x > 0) & (x < 1),
    "or": lambda x: (x > 0) | (x < 1),
    "xor": lambda x: (x > 0) ^ (x < 1),
    "not": lambda x: ~(x > 0),
    "clamp": lambda x: lax.clamp(-1.0, x, 1.0),
    "log2": jnp.log2,
    "clz": lambda x: lax.clz(whole(x)),
    "population_count": lambda x: lax.population_count(whole(x)),
    "shift_left": lambda x: lax.shift_left(whole(x), jnp.full(x.shape, 2)),
    "shift_right_logical": lambda x: lax.shift_right_logical(whole(x), jnp.full(x.shape, 2)),
    "shift_right_arithmetic": lambda x: lax.shift_right_arithmetic(whole(x), jnp.full(x.shape, 2)),
    "complex": lambda x: lax.complex(x, -x),
    "conj": lambda x: lax.conj(lax.complex(x, -x)),
    "real": lambda x: lax.real(lax.complex(x, -x)),
    "imag": lambda x: lax.imag(lax.complex(x, -x)),
    "convert_element_type": lambda x: x.astype(jnp.float32),
    "copy": lambda x: jnp.copy(x),
    "integer_pow": lambda x: x**3,
    "polygamma": lambda x: lax.polygamma(1.0 + 0.0 * x, jnp.abs(x) + 1.0),
    "zeta": lambda x: lax.zeta(jnp.abs(x) + 2.0, jnp.abs(x) + 1.0),
    "reduce_precision": lambda x: lax.reduce_precision(x, 8, 10),
    "select_n": lambda x: jnp.where(x > 0, x, x[:, ::-1]),
    "add_any": jax.vmap(jax.grad(lambda x: jnp.sum(jnp.sin(x) * x + x**2))),
    "name": lambda x: checkpoint_name(x, "x"),
}
OTHERS: dict[str, Rows] = {
    "optimization_barrier": lambda x: lax.optimization_barrier((x, 2 * x))[1],
    "broadcast_in_dim": lambda x: jnp.broadcast_to(x[:, None, :], (len(x), 3, WIDTH)),
    "reshape": lambda x: x.reshape(len(x), 2, 2),
    "reshape, joined": lambda x: jnp.sin(x.T.reshape(-1)).reshape(WIDTH, len(x)).T,
    "transpose": lambda x: jnp.cos(x.T).T,
    "squeeze": lambda x: x[:, None, :].squeeze(1),
    "reduce_sum": lambda x: x.sum(1),
    "reduce_max": lambda x: x.max(1),
    "reduce_min": lambda x: x.min(1),
    "reduce_prod": lambda x: x.prod(1),
    "reduce_and": lambda x: jnp.all(x > 0, axis=1),
    "reduce_or": lambda x: jnp.any(x > 0, axis=1),
    "reduce_xor": lambda x: lax.reduce_xor(whole(x), (1,)),
    "argmax": lambda x: x.argmax(1),
    "argmin": lambda x: x.argmin(1),
    "cumsum": lambda x: jnp.cumsum(x, axis=1),
    "cumprod": lambda x: jnp.cumprod(x, axis=1),
    "cummax": lambda x: lax.cummax(x, axis=1),
    "cummin": lambda x: lax.cummin(x, axis=1),
    "cumlogsumexp": lambda x: lax.cumlogsumexp(x, axis=1),
    "sort": lambda x: jnp.sort(x, axis=1),
    "sort, by key": lambda x: lax.sort((x, -x), dimension=1, num_keys=1)[1],
    "top_k": lambda x: lax.top_k(x, 2)[0],
    "rev": lambda x: x[:, ::-1],
    "concatenate": lambda x: jnp.concatenate([jnp.ones_like(x[:, :1]), x], axis=1),
    "stack": lambda x: jnp.stack([x, -x], axis=1),
    "split": lambda x: jnp.split(x, 2, axis=1)[1],
    "unstack": lambda x: jnp.unstack(x, axis=1)[2],
    "tile": lambda x: jnp.tile(x, (1, 3)),
    "slice": lambda x: x[:, 1:3],
    "pad": lambda x: jnp.pad(x, ((0, 0), (1, 2))),
    "dynamic_slice": lambda x: lax.dynamic_slice(x, (0, jnp.asarray(1)), (len(x), 2)),
    "dynamic_update_slice": lambda x: lax.dynamic_update_slice(x, -x[:, :2], (0, jnp.asarray(1))),
    "iota": lambda x: x * jnp.arange(WIDTH),
    "platform_index": lambda x: lax.platform_dependent(x, cpu=jnp.sin, default=jnp.sin),
    "dot_general, with public": lambda x: x @ PUBLIC,
    "dot_general, from public": lambda x: (PUBLIC @ x.T).T,
    "dot_general, record by record": lambda x: jnp.einsum("ni,nij->nj", x, matrices(x)),
    "dot_general, inner": each(lambda x: x @ x),
    "cholesky": lambda x: jnp.linalg.cholesky(matrices(x)),
    "eigh": lambda x: jnp.linalg.eigh(matrices(x))[1],
    "lu": lambda x: jax.scipy.linalg.lu_factor(matrices(x))[0],
    "lu_pivots_to_permutation": lambda x: lax.linalg.lu_pivots_to_permutation(
        jnp.clip(whole(x)[:, :3] + 1, 0, 2).astype(jnp.int32), 3
    ),
    "qr": lambda x: jnp.linalg.qr(matrices(x))[0],
    "triangular_solve": each(
        lambda x: jax.scipy.linalg.solve_triangular(jnp.tril(x[:, None] * x + jnp.eye(WIDTH)), x, lower=True)
    ),
    "triangular_solve, public": each(lambda x: jax.scipy.linalg.solve_triangular(LOWER, x, lower=True)),
    "custom_linear_solve": lambda x: jnp.linalg.solve(matrices(x), x[:, :, None]),
    "determinant": lambda x: jnp.linalg.slogdet(matrices(x))[1],
    "fft": lambda x: jnp.fft.fft(x, axis=1),
    "gather, public places": lambda x: x[:, np.array([2, 0, 3])],
    "gather, from public": lambda x: jnp.asarray(PUBLIC)[whole(x)[:, 0]],
    "gather, own places": each(lambda x: x[whole(x)[:2]]),
    "scatter": each(lambda x: jnp.zeros(WIDTH).at[np.array([1, 3])].set(x[:2])),
    "scatter, own places": each(lambda x: x.at[whole(x)[0]].set(x[1])),
    "scatter-add": each(lambda x: x.at[np.array([1, 1])].add(x[:2])),
    "scatter-add, own places": each(lambda x: jnp.zeros(WIDTH).at[whole(x)].add(x)),
    "scatter-sub": each(lambda x: x.at[np.array([1, 1])].subtract(x[:2])),
    "scatter-mul": each(lambda x: x.at[np.array([1, 3])].multiply(x[:2])),
    "scatter-min": each(lambda x: x.at[np.array([1, 3])].min(x[:2])),
    "scatter-max": each(lambda x: x.at[np.array([1, 3])].max(x[:2])),
    "jit": jax.jit(jnp.tanh),
    "remat2": jax.checkpoint(jnp.sin),
    "custom_jvp_call": jax.nn.softplus,
    "custom_vjp_call": lambda x: _squared(x),
    "cond": lambda x: lax.cond(jnp.asarray(PUBLIC)[0, 0] < 0, jnp.sin, jnp.cos, x),
    "cond, of a record": each(lambda x: lax.cond(x[0] > 0, lambda x: x.sum(), lambda x: x.prod(), x)),
    "scan": lambda x: lax.scan(lambda c, row: (c + row, c * row), jnp.zeros(len(x)), x.T)[1].T,
    "while": lambda x: lax.fori_loop(0, jnp.asarray(3), lambda _, c: jnp.sin(c) + x, x),
}
PROGRAMS = ELEMENTWISE | OTHERS


@jax.custom_vjp
def _squared(x: jax.Array) -> jax.Array:
    return x**2


_squared.defvjp(lambda x: (x**2, x), lambda x, g: (2 * x * g,))


def rows_of(count: int = ROWS) -> NDArray[np.float64]:
    return np.random.default_rng(5).normal(0.0, 1.0, (count, WIDTH))


def bits(found: Any) -> list[NDArray[np.uint8]]:
    arrays = [np.ascontiguousarray(leaf) for leaf in jax.tree.leaves(found)]
    return [array.view(np.uint8).reshape(len(array), -1) for array in arrays]


def spread(function: Callable[..., Any], *given: NDArray[np.float64]) -> Iterator[tuple[int, float]]:
    """Slots and hostile values by which another row changed a bit: of all cells of a row, and of one."""
    clean = bits(function(*given))
    for slot in range(len(given[0])):
        others = np.arange(len(given[0])) != slot
        for value in HOSTILE:
            for one_cell in (False, True):
                hostile = [part.copy() for part in given]
                for part in hostile:
                    if part.ndim > 1 and one_cell:
                        part[slot].flat[slot % part[slot].size] = value
                    else:
                        part[slot] = value
                seen = bits(function(*hostile))
                if any((a[others] != b[others]).any() for a, b in zip(clean, seen, strict=True)):
                    yield slot, value
