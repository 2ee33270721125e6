r"""Contributions as fixed programs: a user's Python is called once, from shapes, and never with a record.

A log-likelihood that a user brings is Python until JAX has traced it. So the whole contribution of one unit,
with all derivatives of the log-likelihood, is traced once, from shapes and without a record, into a program
(a jaxpr). The gate maps that program over the units of a chunk, proves that the result keeps them apart
(`dpsep.privacy.isolation`), and calls no Python of the user's any more.

**Privacy.** *Assumed:* the function holds no data of its own: constants in it are public.
The proof is in docs/proofs/own-model.md.
"""

import functools
import hashlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.extend.core
import jax.numpy as jnp
import numpy as np

from dpsep.families import Gamma
from dpsep.models.glm import Columns, Public
from dpsep.models.mixed import GroupModel
from dpsep.models.multi_predictor import LinkedPublic, Units, unit_contribution

ROWS = 128
"""Units that are computed side by side: second derivatives at all nodes of more would need gigabytes."""


@dataclass(frozen=True)
class FrozenContribution:
    """A traced contribution, by the interface of `dpsep.privacy.grid.Contribution`.

    Attributes
    ----------
    digest
        Hash of the program and its constants; two contributions with the same digest are the same.
    program
        The program of one unit.
    """

    digest: str
    program: Any = field(compare=False, repr=False)
    label = "the log-likelihood"  # no annotation: constants of the class, not fields
    most_rows = ROWS

    def __call__(self, public: LinkedPublic, chunk: tuple[jax.Array, ...]) -> tuple[jax.Array, ...]:
        """Return the blocks of each unit of a chunk."""
        run, leaves = jax.extend.core.jaxpr_as_fun(self.program), jax.tree.leaves(public)
        return jax.vmap(lambda unit: tuple(run(*leaves, *unit)))(tuple(chunk))


def freeze(model: Units, columns: int, shapes: tuple[tuple[int, ...], ...]) -> FrozenContribution:
    """Trace the contribution of one unit; once for all fits of a model that declared numbers make.

    Parameters
    ----------
    model
        Of the units.
    columns
        Number of the table's columns.
    shapes
        Of the arrays of one unit.
    """
    # What a user's function refers to may have changed since the last fit.
    return (_frozen_once if isinstance(model, GroupModel) else _own.get())(model, columns, shapes)


@contextmanager
def same_functions() -> Iterator[None]:
    """Trace a user's model once while the block runs: for many fits, between which nothing changes it."""
    before = _own.set(functools.lru_cache(32)(_frozen))
    try:
        yield
    finally:
        _own.reset(before)


def _frozen(model: Units, columns: int, shapes: tuple[tuple[int, ...], ...]) -> FrozenContribution:
    with jax.enable_x64(True):

        def some(*shape: int) -> Any:
            return jax.ShapeDtypeStruct(shape, jnp.float64)

        d = model.dimension
        features, outcome = Columns(*[some(columns)] * 4), Columns(*[some()] * 4)
        base = Public(features, outcome, some(d, d), some(d), some(d), Gamma(some(), some()))
        public: Any = LinkedPublic(base, jax.ShapeDtypeStruct((), jnp.bool_))  # pyright: ignore[reportArgumentType]
        unit = tuple(some(*shape) for shape in shapes)
        program = jax.make_jaxpr(lambda public, unit: unit_contribution(model, public, unit))(public, unit)
    return FrozenContribution(_digest(str(program), program), program)


_frozen_once = functools.lru_cache(32)(_frozen)
_own: ContextVar[Callable[..., FrozenContribution]] = ContextVar(
    "how a user's model is traced", default=_frozen
)


def _digest(text: str, program: Any) -> str:
    """Hash a program's text and all constants in it, which the text leaves out."""
    found = hashlib.sha256(text.encode())
    for constant in _constants(program):
        if jnp.issubdtype(getattr(constant, "dtype", np.float64), jax.dtypes.prng_key):
            constant = jax.random.key_data(constant)
        array = np.asarray(constant)
        found.update(f"{array.dtype} {array.shape}".encode() + array.tobytes())
    return found.hexdigest()


def _programs(program: Any) -> Iterator[Any]:
    """A program and all programs within it."""
    yield program
    for equation in getattr(program, "jaxpr", program).eqns:
        for value in equation.params.values():
            for part in value if isinstance(value, list | tuple) else (value,):
                if hasattr(getattr(part, "jaxpr", part), "eqns"):
                    yield from _programs(part)


def _constants(program: Any) -> list[Any]:
    return [constant for one in _programs(program) for constant in getattr(one, "consts", ())]
