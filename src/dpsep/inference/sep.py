r"""Stochastic EP as the paper writes it: Algorithm 2 (SEP), its clipped form, and Algorithm 3 (DP-SEP).

One algorithm with two knobs: a clip C = infinity and noise zero give SEP, a finite clip clipped SEP, both a
clip and a gate's noise DP-SEP. With q = p0 f^N, theta = theta_0 + N theta_f and the local factor f_n of a
record (tilted minus cavity q/f), a step over the rows B is equation (4), written for batches:

    step 7    theta_fn clipped to norm C
    step 8-9  theta <- theta + (gamma / N) ( sum_{n in B} theta_fn - E|B| theta_f ),  noise inside the sum
    step 10   eigenvalues of the precision below `floor` are raised to it
    step 11   theta_f <- (theta - theta_0) / N
    step 12   theta_f clipped to norm C, and theta = theta_0 + N theta_f again.

With |B| = 1 this is the paper's line by line; its gamma = 1 is N times slower than SEP (gamma = N), so that T
passes absorb a share 1 - exp(-gamma T / N) of the data. Norms are of the flat natural parameter, a symmetric
matrix by its Frobenius norm; with one C for each leaf, every natural parameter is clipped by its own norm.

*The REQUIRE line* asks for |theta_f| <= C and |theta_0| <= C. The factor starts at zero, which holds it. The
proof of Proposition 1 uses neither: one step's sum moves by at most 2C whatever theta_0 is. So a prior beyond
the bound is left as the user gave it, and `prior_exceeds` tells; clipping it would change the model.

**Privacy.** Sums come from a gate (`dpsep.privacy.gate`), whose block ``factor`` is clipped to C; one record
moves the sum by at most C under zero-out and 2C under replace-one, which times gamma / N is the paper's
sensitivity 2 gamma C / N. Steps 10 to 12 are post-processing. Only public constants enter: N, gamma, and the
expected batch E|B|, never the realised one. `step`, `run` and `simulate` read records without a gate: nothing
they return is private, `simulate` with its noise included. The proof is in docs/proofs/natural.md.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from dpsep.families import clip as clip_norm
from dpsep.families import divide, multiply, norm, power, zeros_like
from dpsep.families.flat import from_vector, sizes, to_vector
from dpsep.inference import compiled, fast_sep
from dpsep.models import Model


class State(NamedTuple):
    """What is carried: the one factor, in natural parameters.

    Attributes
    ----------
    factor
        theta_f; the posterior is theta_0 + N theta_f.
    step
        Number of steps taken.
    """

    factor: Any
    step: jax.Array


class Settings(NamedTuple):
    """Public constants of a run.

    Attributes
    ----------
    prior
        theta_0, a family.
    records
        N.
    gamma
        The paper's damping value; N makes it SEP.
    clip
        C, of the whole natural parameter; a tuple gives each leaf of the family its own. Infinite computes
        every norm and clips nothing, bit for bit as a clip that nothing reaches; None leaves norms and
        clipping out of the program, which makes a step on a network more than twice as fast.
    floor
        Smallest eigenvalue of the posterior precision (step 10).
    """

    prior: Any
    records: int
    gamma: float = 1.0
    clip: float | tuple[float, ...] | None = jnp.inf
    floor: float = 1e-6


class Summed(Protocol):
    """What an algorithm sees of a gate."""

    @property
    def expected_batch(self) -> float:
        """Expected rows of a step."""
        ...

    def release(self, public: Any) -> dict[str, NDArray[np.float64]]:
        """Return one step's sums, by block name."""
        ...


@dataclass(frozen=True)
class FactorContribution:
    """Local factors in the paper's own coordinates: the block ``factor``, a flat vector a record.

    Parameters
    ----------
    model
        Frozen and hashable, with `local_factor(cavity, record)`.
    """

    model: Model

    def __call__(self, cavity: Any, chunk: Any) -> tuple[jax.Array, ...]:
        """Return the flat local factor of each record of a chunk; a record of one array is that array."""
        records = chunk[0] if len(chunk) == 1 else chunk
        return (jax.vmap(lambda record: to_vector(self.model.local_factor(cavity, record)))(records),)


def init(settings: Settings, start: Any = None) -> State:
    """Factor one, so that the posterior is the prior, or the factor whose posterior is `start`."""
    if start is None:
        return State(zeros_like(settings.prior), jnp.asarray(0))
    return State(power(divide(start, settings.prior), 1.0 / settings.records), jnp.asarray(0))


def posterior(settings: Settings, state: State) -> Any:
    """theta_0 + N theta_f."""
    return multiply(settings.prior, power(state.factor, settings.records))


def cavity(settings: Settings, state: State) -> Any:
    """The posterior without one factor: theta_0 + (N - 1) theta_f."""
    return multiply(settings.prior, power(state.factor, settings.records - 1))


def prior_exceeds(settings: Settings) -> bool:
    """Whether the prior breaks the paper's REQUIRE line, |theta_0| <= C."""
    if settings.clip is None:
        return False
    if not isinstance(settings.clip, tuple):
        return bool(norm(settings.prior) > settings.clip)
    return any(bool(norm(leaf) > bound) for leaf, bound in _by_leaf(settings.prior, settings.clip))


@partial(jax.jit, static_argnames="batch")
def update(settings: Settings, state: State, total: Any, batch: float) -> State:
    """Steps 8 to 12: the new factor from a sum of clipped factors over `batch` expected records."""
    return _settle(settings, state, _move(settings, state, total, batch))


def step(model: Model, settings: Settings, state: State, record: Any) -> State:
    """One step on one record, without a gate: SEP, or clipped SEP."""
    return update(settings, state, _clipped_factor(model, settings, state, record), 1.0)


def run(model: Model, settings: Settings, records: Any, order: Any, start: Any = None) -> State:
    """SEP or clipped SEP over records visited in a given order, one a step.

    Long runs on a network are compiled as one loop (`dpsep.inference.fast_sep`) where that is possible; the
    result is the same up to rounding.

    Parameters
    ----------
    order
        Row numbers; a row may come up many times.
    start
        Proper density to start from; the prior if left out. A network needs one with random means: with all
        means zero its hidden units would never differ. What the start gave is forgotten as the factor moves.
    """
    if compiled.worth(model, len(order)) and not isinstance(settings.clip, tuple):
        dtype = np.dtype(jnp.result_type(*jax.tree.leaves(settings.prior))).type
        return fast_sep.sequential(model, settings, records, order, start, dtype=dtype)  # pyright: ignore
    first = init(settings, start)
    return _scan(model, _traced(settings), jax.tree.map(jnp.asarray, records), jnp.asarray(order), first)


def simulate(
    model: Model, settings: Settings, records: Any, order: Any, key: jax.Array, deviations: tuple[float, ...]
) -> State:
    """Algorithm 3 one record a step, with floating-point noise from a seeded generator: for experiments only.

    The noise is Gaussian and added to theta in step 9. A symmetric matrix gets symmetric noise whose flat
    coordinates (the upper triangle with sqrt(2) off the diagonal, as in `dpsep.families.flat`) are
    independent with the leaf's deviation: entries off the diagonal have that deviation over sqrt(2).

    **Privacy**: none. Records are read without a gate, nothing is accounted, the generator is not secure and
    its key is known. Nothing computed here may be released as private.

    Parameters
    ----------
    order
        Row numbers; a row may come up many times.
    key
        JAX random key of the noise.
    deviations
        Standard deviation of the noise of each leaf of the family, in units of theta. What Algorithm 3 asks
        for is the noise multiplier times the sensitivity 2 gamma C / N.
    """
    leaves = jax.tree.leaves(settings.prior)
    if len(deviations) != len(leaves):
        raise ValueError(
            f"deviations has {len(deviations)} numbers; the family has {len(leaves)} natural parameters and "
            "needs one for each"
        )
    scales = tuple(jnp.asarray(deviation, leaves[0].dtype) for deviation in deviations)
    records = jax.tree.map(jnp.asarray, records)
    return _noisy_scan(model, _traced(settings), records, jnp.asarray(order), key, scales)


def run_gate(
    gate: Summed, settings: Settings, steps: int, watch: Callable[[State], None] | None = None
) -> State:
    """DP-SEP (or clipped SEP in batches, behind an open gate): releases, each followed by an update.

    Parameters
    ----------
    watch
        Called with the state after each update.
    """
    with jax.enable_x64(True):
        state = init(jax.tree.map(jnp.asarray, settings))
        for _ in range(steps):
            released = gate.release(cavity(settings, state))["factor"]
            total = from_vector(settings.prior, jnp.asarray(released))
            state = update(settings, state, total, gate.expected_batch)
            if watch is not None:
                watch(state)
    return state


def _move(settings: Settings, state: State, total: Any, batch: float) -> Any:
    """Steps 8 and 9: theta after a step towards the sum, not yet a proper density."""
    rate = settings.gamma / settings.records
    return multiply(power(divide(total, power(state.factor, batch)), rate), posterior(settings, state))


def _settle(settings: Settings, state: State, moved: Any) -> State:
    """Steps 10 to 12: theta made proper, and the clipped factor that belongs to it."""
    factor = power(divide(moved.project(settings.floor), settings.prior), 1.0 / settings.records)
    return State(_clip(factor, settings.clip), state.step + 1)


def _clipped_factor(model: Model, settings: Settings, state: State, record: Any) -> Any:
    """Steps 4 to 7 for one record."""
    return _clip(model.local_factor(cavity(settings, state), record), settings.clip)


def _clip(p: Any, bound: Any) -> Any:
    if bound is None:
        return p
    if not isinstance(bound, tuple):
        return clip_norm(p, bound)
    leaves = [clip_norm(leaf, own) for leaf, own in _by_leaf(p, bound)]
    return jax.tree.unflatten(jax.tree.structure(p), leaves)


def _by_leaf(p: Any, bounds: tuple[Any, ...]) -> Iterator[tuple[Any, Any]]:
    """Pair each natural parameter with its own bound."""
    leaves = jax.tree.leaves(p)
    if len(bounds) != len(leaves):
        raise ValueError(
            f"clip has {len(bounds)} numbers; the family has {len(leaves)} natural parameters: give one "
            "number for all of them together, or one for each"
        )
    return zip(leaves, bounds, strict=True)


def _traced(settings: Settings) -> Settings:
    """Numbers as arrays, so that other values do not compile again."""
    return settings._replace(gamma=jnp.asarray(settings.gamma), clip=jax.tree.map(jnp.asarray, settings.clip))


@partial(jax.jit, static_argnames="model")
def _scan(model: Model, settings: Settings, records: Any, order: jax.Array, first: State) -> State:
    def one(state: State, row: jax.Array) -> tuple[State, None]:
        return step(model, settings, state, jax.tree.map(lambda array: array[row], records)), None

    return jax.lax.scan(one, first, order)[0]


@partial(jax.jit, static_argnames="model")
def _noisy_scan(
    model: Model, settings: Settings, records: Any, order: jax.Array, key: jax.Array, scales: tuple[Any, ...]
) -> State:
    counts = sizes(settings.prior)
    deviation = jnp.concatenate([jnp.full(n, scale) for n, scale in zip(counts, scales, strict=True)])

    def one(state: State, row: jax.Array) -> tuple[State, None]:
        record = jax.tree.map(lambda array: array[row], records)
        moved = _move(settings, state, _clipped_factor(model, settings, state, record), 1.0)
        draw = jax.random.normal(jax.random.fold_in(key, state.step), deviation.shape, deviation.dtype)
        noise = from_vector(settings.prior, draw * deviation)
        return _settle(settings, state, multiply(moved, noise)), None

    return jax.lax.scan(one, init(settings), order)[0]
