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
matrix by its Frobenius norm.

*The REQUIRE line* asks for |theta_f| <= C and |theta_0| <= C. The factor starts at zero, which holds it. The
proof of Proposition 1 uses neither: one step's sum moves by at most 2C whatever theta_0 is. So a prior beyond
the bound is left as the user gave it, and `prior_exceeds` tells; clipping it would change the model.

**Privacy.** Sums come from a gate (`dpsep.privacy.gate`), whose block ``factor`` is clipped to C; one record
moves the sum by at most C under zero-out and 2C under replace-one, which times gamma / N is the paper's
sensitivity 2 gamma C / N. Steps 10 to 12 are post-processing. Only public constants enter: N, gamma, and the
expected batch E|B|, never the realised one.
"""

from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from dpsep.families import clip as clip_norm
from dpsep.families import divide, multiply, norm, power, zeros_like
from dpsep.families.flat import from_vector, to_vector
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
        C; infinite for none.
    floor
        Smallest eigenvalue of the posterior precision (step 10).
    """

    prior: Any
    records: int
    gamma: float = 1.0
    clip: float = jnp.inf
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
        """Return the flat local factor of each record of a chunk."""
        return (jax.vmap(lambda record: to_vector(self.model.local_factor(cavity, record)))(chunk),)


def init(settings: Settings) -> State:
    """Factor one: the posterior is the prior."""
    return State(zeros_like(settings.prior), jnp.asarray(0))


def posterior(settings: Settings, state: State) -> Any:
    """theta_0 + N theta_f."""
    return multiply(settings.prior, power(state.factor, settings.records))


def cavity(settings: Settings, state: State) -> Any:
    """The posterior without one factor: theta_0 + (N - 1) theta_f."""
    return multiply(settings.prior, power(state.factor, settings.records - 1))


def prior_exceeds(settings: Settings) -> bool:
    """Whether the prior breaks the paper's REQUIRE line, |theta_0| <= C."""
    return bool(norm(settings.prior) > settings.clip)


@partial(jax.jit, static_argnames="batch")
def update(settings: Settings, state: State, total: Any, batch: float) -> State:
    """Steps 8 to 12: the new factor from a sum of clipped factors over `batch` expected records."""
    rate = settings.gamma / settings.records
    moved = multiply(power(divide(total, power(state.factor, batch)), rate), posterior(settings, state))
    moved = moved.project(settings.floor)
    factor = power(divide(moved, settings.prior), 1.0 / settings.records)
    return State(clip_norm(factor, settings.clip), state.step + 1)


def step(model: Model, settings: Settings, state: State, record: Any) -> State:
    """One step on one record, without a gate: SEP, or clipped SEP."""
    factor = model.local_factor(cavity(settings, state), record)
    return update(settings, state, clip_norm(factor, settings.clip), 1.0)


def run(model: Model, settings: Settings, records: Any, order: Any) -> State:
    """SEP or clipped SEP over records visited in a given order, one a step.

    Parameters
    ----------
    order
        Row numbers; a row may come up many times.
    """
    settings = settings._replace(gamma=jnp.asarray(settings.gamma), clip=jnp.asarray(settings.clip))
    return _scan(model, settings, jax.tree.map(jnp.asarray, records), jnp.asarray(order))


@partial(jax.jit, static_argnames="model")
def _scan(model: Model, settings: Settings, records: Any, order: jax.Array) -> State:
    def one(state: State, row: jax.Array) -> tuple[State, None]:
        return step(model, settings, state, jax.tree.map(lambda array: array[row], records)), None

    return jax.lax.scan(one, init(settings), order)[0]


def run_gate(gate: Summed, settings: Settings, steps: int) -> State:
    """DP-SEP (or clipped SEP in batches, behind an open gate): releases, each followed by an update."""
    with jax.enable_x64(True):
        state = init(jax.tree.map(jnp.asarray, settings))
        for _ in range(steps):
            released = gate.release(cavity(settings, state))["factor"]
            total = from_vector(settings.prior, jnp.asarray(released))
            state = update(settings, state, total, gate.expected_batch)
    return state
