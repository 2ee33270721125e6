r"""No record moves another: every program that a gate runs is traced, proved and poisoned beforehand.

The guarantee of a release rests on one sentence about the contribution: *row i of what it returns depends on
record i and on public values, and on nothing else*. A contribution is therefore never called on records. It
is traced once, from shapes, into a `Program` (a jaxpr), the sentence is checked for that program, and the
gate runs that program and no other.

**By proof** (`keep_rows_apart`). The program is walked with the axis tracked along which the rows of every
value lie. A value is either *public* (it depends on no record; we also note the axes along which it is
constant) or has *rows* along one axis, element i of which depends on record i. An operation is admitted only
by a rule of the allow-list below, which says when its result keeps rows apart and along which axis they then
lie. Whatever has no rule, or breaks its rule, is refused: sums over rows, sorts and scans along them,
products of rows with rows, loops that end when records say so, callbacks, foreign code. A public value that
differs from slot to slot may not meet rows either, so that what a record adds does not depend on where in a
chunk it stands: under sampling its place follows from who else was drawn.

**By poison** (`poison`). A rule speaks of the operation's mathematics; a compiler may still compute the rows
of a batch together (a grouped convolution multiplies foreign values by zero, and zero times NaN is NaN). So
the compiled program is run on made-up rows, then again with NaN, infinities, huge and tiny values in some of
them: all other rows must come out the same bit for bit. The tests do this for every admitted operation,
alone, in every slot (``tests/privacy/test_isolation.py``); `TESTED` holds the compilers for which they
passed.

**Privacy.** What this file proves is the assumption "only that record" of docs/proofs/gate.md. Nothing here
sees a record. *Assumed:* the compiled program computes the same from the same arguments, and does not treat
other values worse than the hostile ones that were tried. The proof is in docs/proofs/isolation.md.
"""

import math
import sys
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from importlib.metadata import version
from typing import Any, NamedTuple, cast

import jax
import jax.extend.core
import numpy as np
from numpy.typing import NDArray

from dpsep.privacy import grid
from dpsep.privacy.grid import Block, Contribution, contributions

TESTED = frozenset({("cpu", "0.10.2"), ("cpu", "0.11.2"), ("gpu", "0.11.2")})
"""Backends and versions of jaxlib for which every admitted operation has passed its poison test."""
HOSTILE = (
    *(math.nan, math.inf, -math.inf, 1.7e308, -1.7e308, 1e160),
    *(5e-324, 1e-310, -0.0, 2.0**53 + 1, -1.0),
)
"""Values that overflow, underflow, round or are no numbers: what hostile rows are filled with."""
POISON_SECONDS = 0.2
"""How long the runs on hostile rows go on beyond the first two, which make every row hostile once."""
MOST_PROGRAMS = 256
"""Programs that are kept, the least recently used dropped first."""


class IsolationError(ValueError):
    """A program could let one record change what another contributes; nothing was charged or read."""


# ---------------------------------------------------------------------------------------------------------
# Programs
# ---------------------------------------------------------------------------------------------------------


class Program:
    """A contribution for chunks of one shape, as it was traced.

    Attributes
    ----------
    contribution, blocks
        What was traced; clips and shares of the blocks are no part of it.
    jaxpr
        The program.
    proved
        Whether it was proved and poisoned.
    slot_free
        Whether a record's bits were the same in every slot of a chunk.
    """

    def __init__(
        self, contribution: Contribution, blocks: tuple[Block, ...], public: Any, chunk: Any
    ) -> None:
        self.contribution, self.blocks = contribution, blocks
        self.proved = self.slot_free = False
        self.shapes = tuple(part.shape for part in chunk)
        self._publics = len(jax.tree.leaves(public))
        with jax.enable_x64(True):
            self.jaxpr, out = jax.make_jaxpr(
                lambda public, chunk: contributions(contribution, blocks, public, chunk), return_shape=True
            )(public, chunk)
            self._out = jax.tree.structure(out)
            self._run = compiled(jax.extend.core.jaxpr_as_fun(self.jaxpr))

    def __call__(self, public: Any, chunk: Sequence[Any]) -> Any:
        """Return what the records of a chunk add, one array a block; under `jax.enable_x64`."""
        return jax.tree.unflatten(self._out, self._run(*jax.tree.leaves(public), *chunk))

    def prove(self, public: Any, *, sampled: bool) -> None:
        """Prove and poison, once, or raise `IsolationError`.

        Parameters
        ----------
        public
            Values such as the fit will have; the proof holds for all of their shapes.
        sampled
            Whether a record's slot depends on who else was drawn: then its bits must not depend on the slot.
        """
        if not self.proved:
            rows = [False] * self._publics + [True] * len(self.shapes)
            try:
                _refuse_own_batching(getattr(self.contribution, "program", None))
                keep_rows_apart(self.jaxpr, rows, self.shapes[0][0])
                self.slot_free = poison(self, public)
            except IsolationError as error:
                raise IsolationError(f"{_name(self.contribution)} is refused: {error} {_ADVICE}") from None
            self.proved = True
        if sampled and not self.slot_free:
            raise IsolationError(
                f"{_name(self.contribution)} gives the same record other last digits in other slots of a "
                f"chunk on this machine ({jax.default_backend()}), and under sampling a record's slot "
                "follows from who else was drawn. Read all records in every release (sampling='full'). "
                "Nothing was charged."
            )


def _refuse_own_batching(program: Any) -> None:
    """Refuse a program of one record that says itself what becomes of many: it runs when it is mapped."""
    for equation in getattr(getattr(program, "jaxpr", program), "eqns", ()):
        if "custom_vmap" in equation.primitive.name:
            raise IsolationError("an operation has a batching rule of its own (custom_vmap).")
        for value in equation.params.values():
            for part in value if isinstance(value, list | tuple) else (value,):
                _refuse_own_batching(part)


def compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile a program of records: without operations whose last bits differ from run to run.

    On a GPU sums into places that several threads reach come in the order of the threads, unless the
    compiler is told otherwise. Bits that nothing determines could follow anything, other records among it.
    """
    options = {"xla_gpu_exclude_nondeterministic_ops": True} if jax.default_backend() == "gpu" else None
    return jax.jit(function, compiler_options=options)


_programs: OrderedDict[Any, Program] = OrderedDict()


def program_of(
    contribution: Contribution, blocks: Sequence[Block], public: Any, shapes: Sequence[tuple[int, ...]]
) -> Program:
    """Return the program of a contribution for chunks of these shapes, traced when it is first asked for."""
    public = arrays_of(public)
    leaves, tree = jax.tree.flatten(public)
    kinds = tuple((leaf.shape, str(leaf.dtype)) for leaf in leaves)
    where = jax.default_backend(), str(cast(Any, jax.config).jax_default_device)  # what was poisoned there
    sizes = tuple((block.name, block.size) for block in blocks)  # clips are no part of the program
    key = (contribution, sizes, tree, kinds, tuple(shapes), where)
    if key not in _programs:
        chunk = tuple(jax.ShapeDtypeStruct(shape, np.float64) for shape in shapes)
        _programs[key] = Program(contribution, tuple(blocks), public, chunk)
        if len(_programs) > MOST_PROGRAMS:
            _programs.popitem(last=False)
    _programs.move_to_end(key)
    return _programs[key]


def forget() -> None:
    """Drop all programs, and what the grid compiled, so that they are traced and proved anew."""
    _programs.clear()
    grid.forget()


def arrays_of(public: Any) -> Any:
    """Public values as arrays, numbers among them as doubles: what a program was traced for."""
    return jax.tree.map(lambda leaf: leaf if isinstance(leaf, jax.Array) else np.asarray(leaf), public)


def compiler() -> tuple[str, str, bool]:
    """Backend, version of jaxlib, and whether every admitted operation was poisoned on them."""
    found = (jax.default_backend(), version("jaxlib"))
    return (*found, found in TESTED)


# ---------------------------------------------------------------------------------------------------------
# By poison
# ---------------------------------------------------------------------------------------------------------


def poison(program: Program, public: Any) -> bool:
    """Run a program on made-up rows, with and without hostile values in some; others must not change a bit.

    Every second row is hostile, then the others; and, unless that took long, halves of the chunk, and only
    the first row, one in the middle, or the last. Returns whether the same row in all slots gave the same
    bits.
    """
    public, rows = arrays_of(public), program.shapes[0][0]
    made = made_rows(program.shapes)
    with jax.enable_x64(True), jax.debug_nans(False), jax.debug_infs(False):
        clean = _bits(program(public, made))
        start = time.monotonic()
        for number, victims in enumerate(_victims(rows)):
            if number > 1 and time.monotonic() - start > POISON_SECONDS:
                break
            seen = _bits(program(public, _poisoned(made, victims)))
            spared = np.setdiff1d(np.arange(rows), victims)
            if any((one[spared] != other[spared]).any() for one, other in zip(clean, seen, strict=True)):
                raise IsolationError(
                    "it was run on made-up rows, and hostile values in some of them changed what others gave "
                    f"on this machine ({jax.default_backend()})."
                )
        place = min(3, rows - 1)
        alike = tuple(np.repeat(part[place : place + 1], rows, axis=0) for part in made)
        return all((one == one[:1]).all() for one in _bits(program(public, alike)))


def made_rows(shapes: Sequence[tuple[int, ...]]) -> tuple[NDArray[np.float64], ...]:
    """Rows that look like records: cells about zero, and outcomes that are labels, counts or codes."""
    generator = np.random.default_rng(20210617)  # public: any fixed number will do
    return tuple(
        generator.choice([1.0, 0.0, 1.0, -1.0], shape) if place else generator.normal(0.0, 1.0, shape)
        for place, shape in enumerate(shapes)
    )


def _victims(rows: int) -> Iterator[NDArray[np.int64]]:
    every = np.arange(rows)
    yield every[::2]
    yield every[1::2]
    yield every[: rows // 2]
    yield every[rows // 2 :]
    for one in sorted({0, rows // 2 + 1, rows - 1}):
        yield every[one : one + 1]


def _poisoned(made: Sequence[NDArray[np.float64]], victims: NDArray[np.int64]) -> tuple[Any, ...]:
    """Rows of which the victims are hostile, each by the next value: all of a row, or one cell of it."""
    chunk = [part.copy() for part in made]
    for count, row in enumerate(victims):
        value = HOSTILE[count % len(HOSTILE)]
        for part in chunk:
            if part.ndim == 1 or count % 2:
                part[row] = value
            else:
                part[row].flat[count % part[row].size] = value
    return tuple(chunk)


def _bits(parts: Any) -> list[NDArray[np.uint8]]:
    """Bytes of every array, one row a record, so that NaN and the sign of zero count."""
    arrays = [np.ascontiguousarray(leaf) for leaf in jax.tree.leaves(parts)]
    return [array.view(np.uint8).reshape(len(array), -1) for array in arrays]


# ---------------------------------------------------------------------------------------------------------
# By proof
# ---------------------------------------------------------------------------------------------------------


class Rows(NamedTuple):
    """Where the rows of a value lie: along one axis, which may be joined with others before or behind it.

    Attributes
    ----------
    axis
        The axis; of n records, element e along it depends on record (e // inner) mod n.
    outer, inner
        Lengths of what was joined before and behind; one each where nothing was.
    """

    axis: int
    outer: int = 1
    inner: int = 1


class Value(NamedTuple):
    """What is known of a value.

    Attributes
    ----------
    row
        Where its rows lie; None for a public value.
    even
        Of a public value: axes along which it is constant.
    """

    row: Rows | None = None
    even: frozenset[int] = frozenset()


class Step(NamedTuple):
    """One operation of a program: its parameters, and shapes of what goes in and what comes out."""

    params: dict[str, Any]
    given: tuple[tuple[int, ...], ...]
    made: tuple[tuple[int, ...], ...]
    rows: int


Rule = Callable[[Step, list[Value]], list[Value]]
RULES: dict[str, Rule] = {}
"""The rule of each operation that may meet rows, by JAX's name for it."""


def keep_rows_apart(program: Any, has_rows: Sequence[bool], rows: int) -> None:
    """Raise `IsolationError` unless row i of every result depends on row i of the arguments only.

    Parameters
    ----------
    program
        A closed jaxpr.
    has_rows
        Which arguments have one row a record, along their first axis; the others are public.
    rows
        How many.
    """
    if program.effects:
        raise IsolationError("the program has an effect on something outside it, such as printing.")
    given = [Value(Rows(0)) if own else Value() for own in has_rows]
    for value, variable in zip(_walk(program, given, rows), program.jaxpr.outvars, strict=True):
        if value.row != Rows(0) and not (value.row is None and 0 in _even(value, variable.aval.shape)):
            raise IsolationError("a result does not have one row a record along its first axis.")


def _walk(program: Any, given: Sequence[Value], rows: int) -> list[Value]:
    """What is known of the results of a (closed) program, from what is known of its arguments."""
    jaxpr = getattr(program, "jaxpr", program)
    known: dict[Any, Value] = dict(zip(jaxpr.invars, given, strict=True))
    known |= {variable: Value() for variable in jaxpr.constvars}

    def look(variable: Any) -> Value:
        return Value() if isinstance(variable, jax.extend.core.Literal) else known[variable]

    for equation in jaxpr.eqns:
        values = [look(variable) for variable in equation.invars]
        step = Step(
            equation.params,
            tuple(variable.aval.shape for variable in equation.invars),
            tuple(variable.aval.shape for variable in equation.outvars),
            rows,
        )
        found = _judge(equation, step, values)
        known |= dict(zip(equation.outvars, found, strict=True))
    return [look(variable) for variable in jaxpr.outvars]


def _judge(equation: Any, step: Step, values: list[Value]) -> list[Value]:
    name = equation.primitive.name
    if equation.primitive not in _own_operations(equation.primitive):
        raise IsolationError(f"the operation {name!r} is not one of JAX's own, so nothing is known of it.")
    rule = RULES.get(name)
    if rule is None:
        if name not in PUBLIC_ONLY or any(value.row is not None for value in values):
            raise IsolationError(f"the operation {name!r} is not admitted on records: {_why(name)}.")
        return [Value() for _ in step.made]
    _refuse_counted_from_behind(name, step.params)
    try:
        found = rule(step, values)
        for value, shape in zip(found, step.made, strict=True):
            if (
                value.row is not None
                and shape[value.row.axis] != value.row.outer * step.rows * value.row.inner
            ):
                raise _mixes(f"the operation {name!r} leaves another number of records than there are")
        return [_tidy(value, shape) for value, shape in zip(found, step.made, strict=True)]
    except IsolationError:
        raise
    except Exception as error:  # parameters of another version of JAX than the rule was written for
        raise IsolationError(
            f"the operation {name!r} has a form in jax {jax.__version__} that its rule does not know "
            f"({type(error).__name__})."
        ) from error


def _refuse_counted_from_behind(name: str, params: dict[str, Any]) -> None:
    """Refuse axes below zero: rules compare axes by number, and JAX's own functions count from the front."""
    for key in ("axis", "axes", "dimension", "dimensions", "permutation", "broadcast_dimensions"):
        given = params.get(key)
        for axis in given if isinstance(given, list | tuple) else (given,):
            if isinstance(axis, int | np.integer) and axis < 0:
                raise IsolationError(f"the operation {name!r} counts an axis from behind; call jax.numpy's.")


def _why(name: str) -> str:
    """Why an operation has no rule."""
    for part, reason in REASONS.items():
        if part in name:
            return reason
    return "no rule says that it keeps records apart"


REASONS = {
    "callback": "it calls back into Python",
    "debug": "it prints",
    "feed": "it moves values out of the program",
    "ffi": "it is foreign code",
    "custom_call": "it is foreign code",
    "pallas": "it is foreign code",
    "custom_vmap": "it has a batching rule of its own",
    "random": "random numbers may be drawn from public keys only",
    "rng": "random numbers may be drawn from public keys only",
    "incomplete_beta": "it iterates until all records have converged, together",
    "igamma": "it iterates until all records have converged, together",
    "conv": "compilers compute convolutions of several records as one; write it as a product of matrices",
    "reduce_window": "windows may reach over records; write it with slices, or as a cumulative sum",
    "psum": "it adds over a mapped axis",
    "shard_map": "it maps over devices",
}
"""Why operations whose names hold these words have no rule."""


def _tidy(value: Value, shape: tuple[int, ...]) -> Value:
    return value if value.row is not None else Value(None, _even(value, shape))


def _even(value: Value, shape: tuple[int, ...]) -> frozenset[int]:
    """Axes along which a public value is constant: an axis of length one always is."""
    return value.even | {axis for axis, length in enumerate(shape) if length == 1}


_known_operations: set[Any] = set()


def _own_operations(wanted: Any) -> set[Any]:
    """Operations that JAX defines: one of another library, of whatever name, may mix records as it likes."""
    if wanted not in _known_operations:
        kind = jax.extend.core.Primitive
        for name, module in list(sys.modules.items()):
            if name.split(".")[0] in ("jax", "jaxlib"):
                _known_operations.update(part for part in vars(module).values() if isinstance(part, kind))
    return _known_operations


def _admit(names: str) -> Callable[[Rule], Rule]:
    """Enter a rule for these operations."""

    def enter(rule: Rule) -> Rule:
        RULES.update(dict.fromkeys(names.split(), rule))
        return rule

    return enter


def _mixes(what: str) -> IsolationError:
    return IsolationError(f"{what}, so that one record could change what another contributes.")


def _row_axis(step: Step, values: list[Value], axes: Sequence[dict[int, int]]) -> Rows | None:
    """Where the rows of a result lie, from where each argument's axes go; None if all are public.

    Public arguments that have that axis must be constant along it: else a record's result would depend on
    its slot.
    """
    found = set()
    for value, places in zip(values, axes, strict=True):
        if value.row is not None:
            if value.row.axis not in places:
                raise _mixes("an operation runs along the axis of the records")
            found.add(value.row._replace(axis=places[value.row.axis]))
    if not found:
        return None
    if len(found) > 1:
        raise _mixes("rows of one value meet other rows of another")
    (row,) = found
    for value, shape, places in zip(values, step.given, axes, strict=True):
        own = [axis for axis, place in places.items() if place == row.axis]
        if value.row is None and own and own[0] not in _even(value, shape):
            raise IsolationError(
                "a public value differs from slot to slot of a chunk, so that what a record contributes "
                "would depend on its place; under sampling that follows from who else was drawn."
            )
    return row


def _common_even(values: Sequence[Value], shapes: Sequence[tuple[int, ...]], axes: Any) -> frozenset[int]:
    """Axes of a result along which it is constant: where every argument that has the axis is."""
    seen: set[int] = {place for places in axes for place in places.values()}
    uneven = {
        place
        for value, shape, places in zip(values, shapes, axes, strict=True)
        for axis, place in places.items()
        if axis not in _even(value, shape)
    }
    return frozenset(seen - uneven)


def _same(step: Step, values: list[Value], axes: Sequence[dict[int, int]]) -> Value:
    """One result, from where each argument's axes go."""
    row = _row_axis(step, values, axes)
    return Value(row) if row is not None else Value(None, _common_even(values, step.given, axes))


def _straight(shape: tuple[int, ...], without: Sequence[int] = ()) -> dict[int, int]:
    """Each axis to itself, but for those that an operation runs along."""
    return {axis: axis for axis in range(len(shape)) if axis not in without}


def _closed(shape: tuple[int, ...], gone: Sequence[int]) -> dict[int, int]:
    """Axes of what is left where some axes are gone."""
    left = [axis for axis in range(len(shape)) if axis not in gone]
    return {axis: place for place, axis in enumerate(left)}


# The allow-list. The docstring of each rule is its line in docs/proofs/isolation.md.


@_admit(
    "abs acos acosh add add_any and asin asinh atan atan2 atanh bessel_i0e bessel_i1e cbrt ceil clamp clz "
    "complex conj convert_element_type copy cos cosh digamma div eq erf erf_inv erfc exp exp2 expm1 "
    "floor ge gt imag integer_pow is_finite le lgamma log log1p log2 logistic lt max min mul name ne neg "
    "nextafter not or polygamma population_count pow real reduce_precision rem round rsqrt select_n "
    "shift_left shift_right_arithmetic shift_right_logical sign sin sinh sqrt square stop_gradient sub tan "
    "tanh xor zeta"
)
def _elementwise(step: Step, values: list[Value]) -> list[Value]:
    """Element by element: arguments have the result's shape, or are single numbers."""
    axes = [_straight(shape) for shape in step.given]
    return [_same(step, values, axes) for _ in step.made]


@_admit("optimization_barrier")
def _unchanged(step: Step, values: list[Value]) -> list[Value]:
    """Arguments are handed on as they are."""
    return values


@_admit("broadcast_in_dim")
def _broadcast(step: Step, values: list[Value]) -> list[Value]:
    """A value is repeated along new axes, or along axes of length one."""
    places = step.params["broadcast_dimensions"]
    (value, *sizes), (shape, *_) = values, step.given
    if any(size.row is not None for size in sizes):
        raise _mixes("a shape depends on records")
    if value.row is not None:
        return [Value(value.row._replace(axis=int(places[value.row.axis])))]
    even = {axis for axis in range(len(step.made[0])) if axis not in places}
    even |= {places[axis] for axis in _even(value, shape)}
    return [Value(None, frozenset(even))]


@_admit("reshape")
def _reshape(step: Step, values: list[Value]) -> list[Value]:
    """Elements stay in their order; which belong to a record is followed through joined and cut axes."""
    if step.params.get("dimensions") is not None:
        raise IsolationError("a reshape puts axes in another order; write it as a transpose and a reshape.")
    (value, *_), (before, *_), after = values, step.given, step.made[0]
    if value.row is not None:
        return [Value(_followed(before, value.row, after, step.rows))]
    constant = _even(value, before)
    if len(constant) == len(before):
        return [Value(None, frozenset(range(len(after))))]
    kept = set()
    for axis in constant:
        same = [
            place
            for place, length in enumerate(after)
            if length == before[axis] > 1 and math.prod(after[:place]) == math.prod(before[:axis])
        ]
        kept.update(same)
    return [Value(None, frozenset(kept))]


def _followed(before: tuple[int, ...], row: Rows, after: tuple[int, ...], rows: int) -> Rows:
    """Where rows lie after a reshape: an element's record is its flat number // stride, modulo `rows`."""
    stride = math.prod(before[row.axis + 1 :]) * row.inner
    for axis, length in enumerate(after):
        behind = math.prod(after[axis + 1 :])
        if behind and stride % behind == 0 and length and length % (rows * (stride // behind)) == 0:
            inner = stride // behind
            return Rows(axis, length // (rows * inner), inner)
    raise _mixes("a reshape cuts the axis of the records")


@_admit("transpose")
def _transpose(step: Step, values: list[Value]) -> list[Value]:
    """Axes are put in another order."""
    order = [int(axis) for axis in step.params["permutation"]]
    return [_same(step, values, [{axis: place for place, axis in enumerate(order)}])]


@_admit("squeeze")
def _squeeze(step: Step, values: list[Value]) -> list[Value]:
    """Axes of length one are dropped."""
    gone = [int(axis) for axis in step.params["dimensions"]]
    return [_same(step, values, [_closed(step.given[0], gone)])]


@_admit("reduce_sum reduce_max reduce_min reduce_prod reduce_and reduce_or reduce_xor argmax argmin")
def _reduce(step: Step, values: list[Value]) -> list[Value]:
    """Sums, products, extremes over other axes than that of the records."""
    axes = [_closed(shape, [int(axis) for axis in step.params["axes"]]) for shape in step.given]
    return [_same(step, values, axes) for _ in step.made]


@_admit("cumsum cumprod cummax cummin cumlogsumexp")
def _cumulate(step: Step, values: list[Value]) -> list[Value]:
    """Cumulative sums, products, extremes along other axes than that of the records."""
    return [_same(step, values, [_straight(step.given[0], [step.params["axis"]])])]


@_admit("sort")
def _sort(step: Step, values: list[Value]) -> list[Value]:
    """Sorted along another axis than that of the records."""
    axes = [_straight(shape, [step.params["dimension"]]) for shape in step.given]
    return [_same(step, values, axes) for _ in step.made]


@_admit("top_k")
def _top(step: Step, values: list[Value]) -> list[Value]:
    """The largest along another axis than that of the records."""
    shape = step.given[0]
    axis = int(step.params.get("axis", -1)) % len(shape)
    return [_same(step, values, [_straight(shape, [axis])]) for _ in step.made]


@_admit("rev")
def _reverse(step: Step, values: list[Value]) -> list[Value]:
    """Turned round along other axes than that of the records."""
    return [_same(step, values, [_straight(step.given[0], step.params["dimensions"])])]


@_admit("concatenate")
def _concatenate(step: Step, values: list[Value]) -> list[Value]:
    """Joined along another axis than that of the records."""
    axes = [_straight(shape, [step.params["dimension"]]) for shape in step.given]
    return [_same(step, values, axes)]


@_admit("stack")
def _stack(step: Step, values: list[Value]) -> list[Value]:
    """Stacked along a new axis."""
    new = int(step.params["axis"])
    axes = [{axis: axis + (axis >= new) for axis in range(len(shape))} for shape in step.given]
    return [_same(step, values, axes)]


@_admit("split")
def _split(step: Step, values: list[Value]) -> list[Value]:
    """Cut along another axis than that of the records."""
    axes = [_straight(step.given[0], [int(step.params["axis"])])]
    return [_same(step, values, axes) for _ in step.made]


@_admit("unstack")
def _unstack(step: Step, values: list[Value]) -> list[Value]:
    """Taken apart along another axis than that of the records."""
    axes = [_closed(step.given[0], [int(step.params["axis"])])]
    return [_same(step, values, axes) for _ in step.made]


@_admit("tile")
def _tile(step: Step, values: list[Value]) -> list[Value]:
    """Repeated along other axes than that of the records."""
    repeated = [axis for axis, times in enumerate(step.params["reps"]) if times != 1]
    return [_same(step, values, [_straight(step.given[0], repeated)])]


@_admit("slice")
def _slice(step: Step, values: list[Value]) -> list[Value]:
    """Cut out, all records kept."""
    (before,), after = step.given, step.made[0]
    strides = step.params["strides"] or (1,) * len(before)
    cut = [axis for axis in range(len(before)) if before[axis] != after[axis] or strides[axis] != 1]
    if values[0].row is None:
        return [Value(None, _even(values[0], before))]  # a part of what is constant is constant
    return [_same(step, values, [_straight(before, cut)])]


@_admit("pad")
def _pad(step: Step, values: list[Value]) -> list[Value]:
    """Padded, by a public number, along other axes than that of the records."""
    padded = [axis for axis, three in enumerate(step.params["padding_config"]) if tuple(three) != (0, 0, 0)]
    return [_same(step, values, [_straight(step.given[0], padded), {}])]


@_admit("dynamic_slice")
def _dynamic_slice(step: Step, values: list[Value]) -> list[Value]:
    """Cut out at public places, all records kept."""
    before, after = step.given[0], step.made[0]
    cut = [axis for axis in range(len(before)) if before[axis] != after[axis]]
    return [_same(step, values, [_straight(before, cut), *[{} for _ in values[1:]]])]


@_admit("dynamic_update_slice")
def _dynamic_update(step: Step, values: list[Value]) -> list[Value]:
    """A part is replaced at public places, all records of it."""
    before, part = step.given[:2]
    cut = [axis for axis in range(len(before)) if before[axis] != part[axis]]
    return [_same(step, values, [_straight(before, cut), _straight(part, cut), *[{} for _ in values[2:]]])]


@_admit("iota platform_index")
def _counted(step: Step, values: list[Value]) -> list[Value]:
    """Numbers that count along one axis, or tell the platform: public."""
    del values
    along = step.params.get("dimension")
    return [Value(None, frozenset(axis for axis in range(len(step.made[0])) if axis != along))]


@_admit("dot_general")
def _dot(step: Step, values: list[Value]) -> list[Value]:
    """Products with public values over other axes than that of the records, and products record by record."""
    (left_sum, right_sum), (left_batch, right_batch) = step.params["dimension_numbers"]
    axes, used = [], len(left_batch)
    for shape, summed, batch in zip(
        step.given, (left_sum, right_sum), (left_batch, right_batch), strict=True
    ):
        free = [axis for axis in range(len(shape)) if axis not in summed and axis not in batch]
        places = {int(axis): place for place, axis in enumerate(batch)}
        axes.append(places | {axis: used + place for place, axis in enumerate(free)})
        used += len(free)
    return [_same(step, values, axes)]


@_admit("cholesky eigh lu lu_pivots_to_permutation qr")
def _decompose(step: Step, values: list[Value]) -> list[Value]:
    """Matrices decomposed record by record: the axis of the records comes before the matrices' own."""
    if "JACOBI" in str(step.params):
        raise IsolationError("Jacobi's method for eigenvalues was not tried; leave its choice to JAX.")
    own = 1 if "permutation_size" in step.params else 2  # pivots are vectors
    axes = [_straight(shape[: len(shape) - own]) for shape in step.given]
    return [_same(step, values, axes) for _ in step.made]


@_admit("triangular_solve")
def _triangular(step: Step, values: list[Value]) -> list[Value]:
    """Triangular systems solved record by record, or a public one for all records."""
    matrix, right = (_straight(shape[:-2]) for shape in step.given)
    free = len(step.given[1]) - (1 if step.params["left_side"] else 2)
    return [_same(step, values, [matrix, right | {free: free}])]


@_admit("fft")
def _fourier(step: Step, values: list[Value]) -> list[Value]:
    """Transformed along other axes than that of the records."""
    shape = step.given[0]
    last = range(len(shape) - len(step.params["fft_lengths"]), len(shape))
    return [_same(step, values, [_straight(shape, last)])]


@_admit("gather")
def _gather(step: Step, values: list[Value]) -> list[Value]:
    """Taken at public places of all records, at a record's places of public values, or record by record."""
    numbers, sizes = step.params["dimension_numbers"], step.params["slice_sizes"]
    shape = step.given[0]
    offset = [int(axis) for axis in numbers.offset_dims]
    gone = {int(axis) for axis in (*numbers.collapsed_slice_dims, *numbers.operand_batching_dims)}
    window = [axis for axis in range(len(shape)) if axis not in gone]
    # Axes of the operand that come whole, wherever the place may be, and those that go with the places.
    operand = {axis: offset[at] for at, axis in enumerate(window) if sizes[axis] == shape[axis]}
    batch = [axis for axis in range(len(step.made[0])) if axis not in offset]
    indices = dict(enumerate(batch))  # the last axis of the places holds the numbers of one place
    pairs = zip(numbers.operand_batching_dims, numbers.start_indices_batching_dims, strict=True)
    operand |= {int(own): indices[int(place)] for own, place in pairs}
    return [_same(step, values, [operand, indices])]


@_admit("scatter scatter-add scatter-sub scatter-mul scatter-min scatter-max")
def _scatter(step: Step, values: list[Value]) -> list[Value]:
    """Put at public places of all records, or record by record."""
    numbers, within = step.params["dimension_numbers"], step.params["update_jaxpr"]
    inside = [] if within is None else [part.primitive.name for part in getattr(within, "jaxpr", within).eqns]
    if len(inside) > 1 or not {*inside} <= {"add", "sub", "mul", "min", "max"}:
        raise IsolationError("a function of the cells is applied while they are put in place.")
    shape, _, update = step.given
    window = [int(axis) for axis in numbers.update_window_dims]
    gone = {int(axis) for axis in (*numbers.inserted_window_dims, *numbers.operand_batching_dims)}
    own = [axis for axis in range(len(shape)) if axis not in gone]
    whole = {axis: at for axis, at in zip(own, window, strict=True) if update[at] == shape[axis]}
    updates = {at: axis for axis, at in whole.items()}
    operand = {axis: axis for axis in whole}
    batch = [axis for axis in range(len(update)) if axis not in window]
    indices: dict[int, int] = {}
    pairs = zip(numbers.operand_batching_dims, numbers.scatter_indices_batching_dims, strict=True)
    for axis, place in pairs:
        operand[int(axis)] = indices[int(place)] = updates[batch[int(place)]] = int(axis)
    return [_same(step, values, [operand, indices, updates])]


@_admit("jit remat2 custom_jvp_call custom_vjp_call")
def _call(step: Step, values: list[Value]) -> list[Value]:
    """A program within the program, by the rules of its own operations."""
    names = ("jaxpr", "call_jaxpr", "fun_jaxpr")
    inner = next(step.params[name] for name in names if step.params.get(name) is not None)
    return _walk(inner, values, step.rows)


@_admit("custom_linear_solve")
def _linear_solve(step: Step, values: list[Value]) -> list[Value]:
    """A linear system, by the rules of the operations that solve it."""
    lengths, programs = step.params["const_lengths"], step.params["jaxprs"]
    before = lengths.matvec + lengths.vecmat
    constants = values[before : before + lengths.solve]
    right = values[sum(lengths) :]
    return _walk(programs.solve, [*constants, *right], step.rows)


@_admit("cond")
def _branch(step: Step, values: list[Value]) -> list[Value]:
    """One of several programs, chosen by a public value."""
    which, *given = values
    if which.row is not None:
        raise _mixes("a branch is chosen by records")
    found = [_walk(branch, given, step.rows) for branch in step.params["branches"]]
    return [
        _joined(several, shape) for several, shape in zip(zip(*found, strict=True), step.made, strict=True)
    ]


@_admit("scan")
def _scan(step: Step, values: list[Value]) -> list[Value]:
    """A loop of public length over another axis than that of the records."""
    if "ft_in" in step.params:  # from jax 0.11 on
        consts, carried, _ = (len(part) for part in step.params["ft_in"].unpack())
    else:
        consts, carried = step.params["num_consts"], step.params["num_carry"]
    fixed, state, over = values[:consts], values[consts : consts + carried], values[consts + carried :]
    if any(value.row is not None and value.row.axis == 0 for value in over):
        raise _mixes("a loop runs over the records")
    inner = [_moved(value, -1) for value in over]

    def once(state: list[Value]) -> list[Value]:
        return _walk(step.params["jaxpr"], [*fixed, *state, *inner], step.rows)

    state, found = _settled(once, state, step.given[consts : consts + carried])
    return [*state, *(_moved(value, 1) for value in found[carried:])]


def _moved(value: Value, by: int) -> Value:
    """A value with one axis more, or less, in front."""
    row = None if value.row is None else value.row._replace(axis=value.row.axis + by)
    return Value(row, frozenset(axis + by for axis in value.even if axis + by >= 0))


@_admit("while")
def _while(step: Step, values: list[Value]) -> list[Value]:
    """A loop whose end is decided by public values."""
    tests, inside = step.params["cond_nconsts"], step.params["body_nconsts"]
    test_fixed, fixed = values[:tests], values[tests : tests + inside]
    start, shapes = values[tests + inside :], step.given[tests + inside :]

    def once(state: list[Value]) -> list[Value]:
        return _walk(step.params["body_jaxpr"], [*fixed, *state], step.rows)

    state, _ = _settled(once, start, shapes)
    try:
        (end,) = _walk(step.params["cond_jaxpr"], [*test_fixed, *state], step.rows)
    except IsolationError:
        end = Value(Rows(0))
    if end.row is not None:
        raise _mixes(
            "a loop ends when records say so (give it a fixed number of rounds, as jax.lax.fori_loop does, "
            "and select what is done with jnp.where)"
        )
    return state


def _settled(
    once: Callable[[list[Value]], list[Value]], state: list[Value], shapes: Sequence[tuple[int, ...]]
) -> tuple[list[Value], list[Value]]:
    """What holds of a loop's state in every round, and of all results of a round."""
    while True:
        found = once(state)
        after = [
            _joined([one, other], shape)
            for one, other, shape in zip(state, found[: len(state)], shapes, strict=True)
        ]
        if after == state:
            return state, found
        state = after


def _joined(values: Sequence[Value], shape: tuple[int, ...]) -> Value:
    """What holds of a value that is one of several."""
    rows = {value.row for value in values if value.row is not None}
    if not rows:
        return Value(None, frozenset.intersection(*(_even(value, shape) for value in values)))
    row = rows.pop()
    if rows or any(value.row is None and row.axis not in _even(value, shape) for value in values):
        raise _mixes("the axis of the records changes within a loop or between branches")
    return Value(row)


PUBLIC_ONLY = (
    *("random_bits", "random_wrap", "random_unwrap", "random_seed", "random_split", "random_fold_in"),
    *("random_clone", "random_gamma", "random_gamma_grad", "threefry2x32", "iota_2x32_shape"),
    *("conv_general_dilated", "regularized_incomplete_beta", "igamma", "igammac", "igamma_grad_a", "svd"),
    *("empty", "empty2", "bitcast_convert_type", "reduce_window", "reduce_window_sum"),
    *("reduce_window_max", "reduce_window_min"),
)
"""Operations that are admitted where all arguments are public, and not on records."""


def admitted() -> dict[str, list[str]]:
    """The allow-list: names of operations by the rule that admits them, in words."""
    found: dict[str, list[str]] = {}
    for name, rule in sorted(RULES.items()):
        found.setdefault((rule.__doc__ or "").strip(), []).append(name)
    return found


_ADVICE = (
    "In a private fit that could show or mix records: write it with plain operations of jax.numpy, on one "
    "record (docs/proofs/isolation.md lists what is admitted). Nothing was charged, and no record was read."
)


def _name(contribution: Any) -> str:
    return str(getattr(contribution, "label", f"the contribution {type(contribution).__name__}"))
