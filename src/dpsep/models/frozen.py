r"""Contributions as fixed programs: what is checked is what runs.

A log-likelihood that a user brings is Python until JAX has traced it. So the whole contribution of one unit,
with all derivatives of the log-likelihood, is traced once, from shapes and without a record, into a program
(a jaxpr). The program is searched for what could show records to the outside or mix them; then the gate runs
the program, a unit at a time under `jax.vmap`, and calls no Python of the user's any more.

**Privacy.** Under `vmap` a unit's result is a function of that unit and of public values, unless an operation
says otherwise. Only operations that JAX itself defines are allowed, and of those not: calls back into Python
(printing, callbacks), code foreign to JAX, operations with batching rules of their own, random bits that JAX
batches in one stream (other generators than threefry), and the incomplete beta function, which iterates until
all units have converged. *Assumed:* the function holds no data of its own.
The proof is in docs/proofs/own-model.md.
"""

import hashlib
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.extend.core
import jax.numpy as jnp
import numpy as np

from dpsep.families import Gamma
from dpsep.models.glm import Columns, Public
from dpsep.models.linked import LinkedPublic, Units, unit_contribution

REFUSED = {
    "callback": "a call back into Python",
    "debug": "printing",
    "infeed": "a transfer",
    "outfeed": "a transfer",
    "custom_vmap": "a batching rule of its own",
    "ffi_call": "foreign code",
    "custom_call": "foreign code",
    "pallas": "foreign code",
    "shard_map": "a mapping over devices",
    "custom_partitioning": "a mapping over devices",
    "rng_bit_generator": "random bits that are not those of threefry",
    "rng_uniform": "random bits that are not those of threefry",
    "key<rbg": "random bits that are not those of threefry",
    "key<unsafe_rbg": "random bits that are not those of threefry",
    "regularized_incomplete_beta": "the incomplete beta function, which iterates over all records at once",
}
"""What a program may not hold: parts of the names of operations and types, and what they are."""


BATCH = 128
"""Units whose contributions are computed side by side."""


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

    def __call__(self, public: LinkedPublic, chunk: tuple[jax.Array, ...]) -> tuple[jax.Array, ...]:
        """Return the blocks of each unit of a chunk."""
        run, leaves = jax.extend.core.jaxpr_as_fun(self.program), jax.tree.leaves(public)
        # Second derivatives at all nodes of all units of a chunk at once would need gigabytes.
        return jax.lax.map(lambda unit: tuple(run(*leaves, *unit)), chunk, batch_size=BATCH)


def freeze(
    model: Units, columns: int, shapes: tuple[tuple[int, ...], ...], *, private: bool = True
) -> FrozenContribution:
    """Trace the contribution of one unit, or refuse it.

    Parameters
    ----------
    model
        Of the units.
    columns
        Number of the table's columns.
    shapes
        Of the arrays of one unit.
    private
        Whether to refuse what could show or mix records.
    """
    with jax.enable_x64(True):

        def some(*shape: int) -> Any:
            return jax.ShapeDtypeStruct(shape, jnp.float64)

        d = model.dimension
        features, outcome = Columns(*[some(columns)] * 4), Columns(*[some()] * 4)
        base = Public(features, outcome, some(d, d), some(d), some(d), Gamma(some(), some()))
        public: Any = LinkedPublic(base, jax.ShapeDtypeStruct((), jnp.bool_))  # pyright: ignore[reportArgumentType]
        unit = tuple(some(*shape) for shape in shapes)
        program = jax.make_jaxpr(lambda public, unit: unit_contribution(model, public, unit))(public, unit)
    text = str(program)
    found = {what for name, what in REFUSED.items() if name in text}
    own = _own_operations()
    for operation in _operations(program) - own:
        found.add(f"the operation {operation.name!r}, which is not one of JAX's own")
    if program.effects and not found:  # what is named above says it better
        found.add("an effect on something outside")
    if found and private:
        raise ValueError(
            f"the log-likelihood holds {'; '.join(sorted(found))}. In a private fit that could show or mix "
            "records: write it with plain operations of jax.numpy, on one record."
        )
    return FrozenContribution(_digest(text, program), program)


def _digest(text: str, program: Any) -> str:
    """Hash a program's text and all constants in it, which the text leaves out."""
    found = hashlib.sha256(text.encode())
    for constant in _constants(program):
        if jnp.issubdtype(getattr(constant, "dtype", np.float64), jax.dtypes.prng_key):
            constant = jax.random.key_data(constant)
        array = np.asarray(constant)
        found.update(f"{array.dtype} {array.shape}".encode() + array.tobytes())
    return found.hexdigest()


def _own_operations() -> set[Any]:
    """Return the operations that JAX defines: an operation of another library may mix records as it likes."""
    modules = [
        module for name, module in list(sys.modules.items()) if name.split(".")[0] in ("jax", "jaxlib")
    ]
    kind = jax.extend.core.Primitive
    return {part for module in modules for part in vars(module).values() if isinstance(part, kind)}


def _programs(program: Any) -> Iterator[Any]:
    """A program and all programs within it."""
    yield program
    for equation in getattr(program, "jaxpr", program).eqns:
        for value in equation.params.values():
            for part in value if isinstance(value, list | tuple) else (value,):
                if hasattr(getattr(part, "jaxpr", part), "eqns"):
                    yield from _programs(part)


def _operations(program: Any) -> set[Any]:
    return {equation.primitive for one in _programs(program) for equation in getattr(one, "jaxpr", one).eqns}


def _constants(program: Any) -> list[Any]:
    return [constant for one in _programs(program) for constant in getattr(one, "consts", ())]
