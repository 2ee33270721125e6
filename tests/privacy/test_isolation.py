"""Programs in which one record could move another are refused; what is admitted keeps rows apart."""

from collections.abc import Callable
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from dpsep.privacy import isolation
from dpsep.privacy.gate import Gate
from dpsep.privacy.grid import Block, rows_on_grid
from dpsep.privacy.isolation import HOSTILE, IsolationError, keep_rows_apart, program_of
from dpsep.privacy.reader import Reader

from .gate_help import FLAT, mechanism, permit_for, poisson, vectors
from .isolated import PROGRAMS, ROWS, WIDTH, bits, rows_of, spread


def proved(function: Callable[[jax.Array], Any], rows: int = ROWS) -> Any:
    """The traced function, once the walk has found nothing."""
    with jax.enable_x64(True):
        traced = jax.make_jaxpr(function)(jax.ShapeDtypeStruct((rows, WIDTH), jnp.float64))
    keep_rows_apart(traced, [True], rows)
    return traced


def names_in(program: Any) -> set[str]:
    found: set[str] = set()
    for equation in getattr(program, "jaxpr", program).eqns:
        found.add(equation.primitive.name)
        for value in equation.params.values():
            for part in value if isinstance(value, list | tuple) else (value,):
                if hasattr(getattr(part, "jaxpr", part), "eqns"):
                    found |= names_in(part)
    return found


# What is admitted.


@pytest.mark.parametrize("name", PROGRAMS)
def test_an_admitted_operation_keeps_rows_apart_in_every_slot_for_every_hostile_value(name: str) -> None:
    function = PROGRAMS[name]
    proved(function)
    with jax.enable_x64(True):
        compiled = jax.jit(function)
        assert list(spread(compiled, rows_of())) == []
        alike = bits(compiled(np.repeat(rows_of()[3:4], ROWS, axis=0)))
    assert all((part == part[:1]).all() for part in alike), "the same record, the same bits in every slot"


def test_every_rule_has_a_program_that_was_poisoned() -> None:
    held: set[str] = set()
    for function in PROGRAMS.values():
        held |= names_in(proved(function))
    later = set() if hasattr(jax.lax, "log2") else {"log2"}  # an operation of its own from jax 0.11 on
    assert set(isolation.RULES) - held == later


def test_this_compiler_is_among_those_tested() -> None:
    assert isolation.compiler() == (jax.default_backend(), version("jaxlib"), True)


# What mixes rows of a chunk.


def over_rows(x: jax.Array) -> jax.Array:
    """A loop that ends when all records have converged, as in an iteration written for the whole chunk."""
    return lax.while_loop(lambda c: jnp.any(c > 1e-3), lambda c: c / 2, jnp.abs(x))


MIXING: dict[str, Callable[[jax.Array], Any]] = {
    "sum": lambda x: x - x.sum(0),
    "mean": lambda x: x - x.mean(0),
    "largest": lambda x: x / jnp.max(jnp.abs(x)),
    "softmax over rows": lambda x: jax.nn.softmax(x, axis=0),
    "sort": lambda x: jnp.sort(x, axis=0),
    "argsort": lambda x: x[jnp.argsort(x[:, 0])],
    "median": lambda x: x - jnp.median(x, axis=0),
    "cumsum": lambda x: jnp.cumsum(x, axis=0),
    "cumulative largest": lambda x: lax.cummax(x, axis=0),
    "cumsum of joined axes": lambda x: jnp.cumsum(x.reshape(-1)).reshape(x.shape),
    "reversed": lambda x: x[::-1],
    "rolled": lambda x: jnp.roll(x, 1, axis=0),
    "permuted": lambda x: x[np.random.default_rng(0).permutation(ROWS)],
    "shifted slices": lambda x: jnp.concatenate([x[1:], x[:1]], axis=0),
    "gathered by data": lambda x: x[jnp.clip(x[:, 0], 0, 3).astype(int)],
    "scattered by data": lambda x: jnp.zeros_like(x).at[jnp.clip(x[:, 0], 0, 3).astype(int)].add(x),
    "segment sums": lambda x: jax.ops.segment_sum(x, jnp.arange(ROWS) // 2, ROWS),
    "row 0 everywhere": lambda x: x + x[0],
    "row 0 replaced": lambda x: x.at[0].set(0.0),
    "gram": lambda x: (x @ x.T) @ x,
    "projection": lambda x: x @ jnp.linalg.inv(x.T @ x + jnp.eye(WIDTH)),
    "whitened by itself": lambda x: x @ jnp.linalg.cholesky(jnp.cov(x.T)),
    "every pair": lambda x: jnp.einsum("ni,mi->nm", x, x),
    "fft over rows": lambda x: jnp.fft.fft(x, axis=0).real,
    "scan over rows": lambda x: lax.scan(lambda c, row: (c + row, c), jnp.zeros(WIDTH), x)[1],
    "associative scan over rows": lambda x: lax.associative_scan(jnp.add, x, axis=0),
    "map over rows": lambda x: lax.map(jnp.sin, x),
    "branch on all": lambda x: lax.cond(jnp.any(x > 3), lambda: x, lambda: 0.0 * x),
    "loop until all": over_rows,
    "top of rows": lambda x: lax.top_k(x.T, ROWS)[0].T,
    "windows over rows": lambda x: lax.reduce_window(x, 0.0, lax.add, (2, 1), (1, 1), "SAME"),
    "convolution over rows": lambda x: jax.vmap(lambda c: jnp.convolve(c, jnp.ones(3), "same"), 1, 1)(x),
    "differently mapped": lambda x: jax.vmap(lambda row, column: row * column[0], (0, None))(x, x),
    "added over a mapped axis": lambda x: jax.vmap(lambda row: lax.psum(row, "i"), axis_name="i")(x),
    "gathered over a mapped axis": lambda x: jax.vmap(lambda r: lax.all_gather(r, "i")[0], axis_name="i")(x),
    "joined in another order": lambda x: x.T.reshape(x.shape),
    "another number of rows": lambda x: x[: ROWS // 2],
    "one number": lambda x: x.sum(),
    "by slot": lambda x: x * jnp.arange(ROWS)[:, None],
    "noise by slot": lambda x: x + jax.random.normal(jax.random.key(0), x.shape),
}


@pytest.mark.parametrize("name", MIXING)
def test_a_contribution_that_mixes_rows_is_refused(name: str) -> None:
    with pytest.raises(IsolationError):
        proved(MIXING[name])


def test_a_public_value_of_the_chunks_own_length_is_refused() -> None:
    """Under sampling a record's slot follows from who else was drawn."""
    given = jax.ShapeDtypeStruct((ROWS, WIDTH), jnp.float32)
    by_slot = jax.make_jaxpr(lambda public, x: x * public)(given, given)
    with pytest.raises(IsolationError, match="differs from slot to slot"):
        keep_rows_apart(by_slot, [False, True], ROWS)
    keep_rows_apart(jax.make_jaxpr(lambda public, x: x * public[:1])(given, given), [False, True], ROWS)


def test_an_operation_of_another_library_is_refused_whatever_its_name() -> None:
    from jax.extend.core import Primitive

    forged = Primitive("sin")
    forged.def_abstract_eval(lambda x: x)
    with pytest.raises(IsolationError, match="'sin' is not one of JAX's own"):
        proved(forged.bind)


def test_effects_and_callbacks_are_refused() -> None:
    def printing(x: jax.Array) -> jax.Array:
        jax.debug.print("{x}", x=x[0])
        return x

    def called(x: jax.Array) -> jax.Array:
        return jax.pure_callback(lambda x: x, jax.ShapeDtypeStruct(x.shape, x.dtype), x)

    def asked(x: jax.Array) -> jax.Array:
        return x + jax.pure_callback(lambda: np.ones(()), jax.ShapeDtypeStruct((), x.dtype))

    for function, match in (
        (printing, "effect"),
        (called, "calls back into Python"),
        (asked, "calls back into Python"),
    ):
        with pytest.raises(IsolationError, match=match):
            proved(function)


def test_clip_and_rounding_keep_rows_apart() -> None:
    blocks = (
        Block("flat", WIDTH, 2.0),
        Block("outer", WIDTH, 3.0, kind="outer"),
        Block("raw", WIDTH, np.inf),
    )
    blocks += (Block("count", WIDTH, 2.0, kind="count", bins=5),)

    def on_grid(x: jax.Array) -> Any:
        return rows_on_grid(blocks, (x, x, x, x))

    proved(on_grid)
    with jax.enable_x64(True):
        assert list(spread(on_grid, rows_of())) == []


# What a compiler makes of it.


@dataclass(frozen=True)
class Convolved:
    """Rows that the walk would call apart, had convolutions a rule: the compiler computes them together."""

    def __call__(self, public: Any, chunk: tuple[jax.Array, ...]) -> tuple[jax.Array, ...]:
        return (jax.vmap(lambda x: jnp.convolve(x, x, "same"))(chunk[0]) * public,)


def test_what_the_walk_would_pass_the_poison_stops(monkeypatch: pytest.MonkeyPatch) -> None:
    """The grouped convolution of the vmapped program multiplies foreign values by zero, and NaN stays NaN."""
    monkeypatch.setattr(isolation, "keep_rows_apart", lambda *_: None)
    program = program_of(Convolved(), FLAT, 1.0, [(ROWS, 3)])
    with pytest.raises(IsolationError, match="hostile values in some of them changed what others gave"):
        program.prove(1.0, sampled=False)
    isolation.forget()


@dataclass(frozen=True)
class Split:
    """The same record, other numbers in the second half of a chunk: one program made of two."""

    def __call__(self, public: Any, chunk: tuple[jax.Array, ...]) -> tuple[jax.Array, ...]:
        later = (jnp.arange(len(chunk[0])) >= len(chunk[0]) // 2)[:, None]
        return (jnp.where(later, jnp.sin(chunk[0]), jnp.sin(chunk[0].astype(jnp.float32))) * public,)


def test_where_slots_matter_sampling_is_refused_and_the_full_batch_is_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(isolation, "keep_rows_apart", lambda *_: None)
    program = program_of(Split(), FLAT, 1.0, [(ROWS, 3)])
    program.prove(1.0, sampled=False)
    assert not program.slot_free
    with pytest.raises(IsolationError, match="sampling='full'"):
        program.prove(1.0, sampled=True)
    isolation.forget()


# The gate runs what was proved, and nothing else.


@dataclass(frozen=True)
class Fickle:
    """A contribution that mixes records whenever it is asked a second time."""

    calls: list[int] = field(default_factory=list, compare=False)

    def __call__(self, public: Any, chunk: tuple[jax.Array, ...]) -> tuple[jax.Array, ...]:
        self.calls.append(1)
        mixed = chunk[0] + (jnp.nansum(chunk[0], axis=0) if len(self.calls) > 1 else 0.0)
        return (mixed * public,)


def test_a_gate_runs_the_program_that_was_proved_and_asks_the_contribution_no_more() -> None:
    records, contribution = (vectors(40, 3),), Fickle()
    part = mechanism(40, steps=3)
    gate = Gate(records, part, FLAT, contribution, permit_for(part))
    for _ in range(3):
        gate.release(1.0)
    assert len(contribution.calls) == 1
    isolation.forget()


@dataclass(frozen=True)
class Mean:
    """A contribution that looks at other records."""

    def __call__(self, public: Any, chunk: tuple[jax.Array, ...]) -> tuple[jax.Array, ...]:
        return ((chunk[0] - jnp.nanmean(chunk[0], axis=0)) * public,)


@pytest.mark.parametrize("sampling", [None, poisson(0.5)])
def test_a_gate_reads_no_record_for_a_program_without_a_proof(
    sampling: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    part = mechanism(40, sampling=sampling)
    gate = Gate((vectors(40, 3),), part, FLAT, Mean(), permit_for(part))
    monkeypatch.setattr(Reader, "_pad", lambda *_: pytest.fail("a record was read"))
    with pytest.raises(IsolationError, match="contribution Mean is refused"):
        gate.release(1.0)


def test_without_privacy_no_proof_is_asked_for() -> None:
    (total,) = Reader((vectors(40, 3),), private=False).sums(Mean(), FLAT, 1.0, range(40))
    assert np.isfinite(total).all()


def test_hostile_values_are_eleven_and_hold_what_is_hard_to_compute_with() -> None:
    assert len(HOSTILE) == 11
    assert np.isnan(HOSTILE).sum() == 1
    assert {np.inf, -np.inf, 5e-324} <= set(HOSTILE)
    assert np.max(np.abs(HOSTILE)[np.isfinite(HOSTILE)]) > 1e308


def test_the_page_lists_every_operation_that_is_admitted_with_its_rule() -> None:
    page = (Path(__file__).resolve().parents[2] / "docs" / "proofs" / "isolation.md").read_text("utf-8")
    listed = {}
    for line in page.splitlines():
        rule, *names = line.strip("| ").split(" | ")
        if line.startswith("| ") and names and rule[0] != "`":
            listed[rule] = {name.strip("`") for name in names[0].split(", ")}
    del listed["rule"], listed["in the name"]
    assert listed == {rule: set(names) for rule, names in isolation.admitted().items()}


@pytest.mark.parametrize(
    ("function", "why"),
    [
        (lambda x: lax.reshape(x, x.shape, dimensions=(1, 0)), "another order"),
        (lambda x: lax.sort_p.bind(x, dimension=-2, is_stable=True, num_keys=1)[0], "from behind"),
        (lambda x: x.at[:, 0].apply(lambda cell: jnp.sin(cell) * 2.0), "a function of the cells"),
    ],
    ids=["reshape", "sort", "scatter"],
)
def test_odd_forms_of_admitted_operations_are_refused(function: Any, why: str) -> None:
    """Each was let through once: a rule that does not look at a parameter says nothing of it."""
    with pytest.raises(IsolationError, match=why):
        proved(function)


def test_rows_are_as_many_as_records_after_every_operation(monkeypatch: pytest.MonkeyPatch) -> None:
    """A rule that loses rows is found where it does, whatever it says."""
    monkeypatch.setitem(isolation.RULES, "slice", lambda step, values: values)
    with pytest.raises(IsolationError, match="another number of records"):
        proved(lambda x: jnp.broadcast_to(x[:1], x.shape))
