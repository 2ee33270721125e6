r"""Stochastic EP for networks with independent weights, in batches: precision first, mean second.

With S the sums of local factors over a batch (`dpsep.models.network_diagonal`), counted from the posterior
mean m and scaled to N records, one step is

    Lambda <- (1 - rho) Lambda + rho ( lambda + sum_n Lambda_fn ),       at least lambda,
    m      <- m + eta Lambda^-1 ( sum_n g'_n - lambda m ),               each weight's move capped.

*Its interior fixed points are SEP's.* Where nothing is clipped, floored or capped, a fixed point has Lambda =
lambda + sum_n Lambda_fn and sum_n g'_n = lambda m with g'_n = eta_fn - Lambda_fn m; together theta =
theta_0 + sum_n theta_fn, the fixed point of the batch form of the paper's equation (4). A batch step with
rho = eta = B / N is, to first order, B steps of SEP on one record each (Li et al. 2015).

*Prior precision.* The prior of a layer's weights is N(0, 1 / lambda), lambda ~ Gamma(a, a / lambda_0). Its
expectation given q, (a + d / 2) / (a / lambda_0 + E|w|^2 / 2), is a function of q. (A posterior precision
below lambda would let both run to zero together: hence the floor.)

*Step sizes.* Weights move on their own precisions, which do not see how they act together: eta times the
largest eigenvalue of their correlation under the likelihood must stay below two. Turning inputs to their
principal axes keeps that eigenvalue below the number of hidden units.

**Privacy.** Post-processing of what a gate released. This file sees no record, but for `run_open`, which is
not private. The proof is in docs/proofs/network-diagonal.md.
"""

import math
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from dpsep.families import DiagonalGaussian, Gamma
from dpsep.inference import compiled
from dpsep.inference.gate_protocol import Summed
from dpsep.models.glm import Columns
from dpsep.models.network_diagonal import DiagonalFactors, DiagonalPublic
from dpsep.models.network_model import Network, NetworkRegression

LEAST_NOISE = 1e-6
"""Smallest noise variance, in scaled units."""
CHUNK = 64
"""Records whose factors are computed at a time without a gate, so that they stay in the processor's cache."""
ROWS_AHEAD = 64
"""Steps whose rows are drawn at a time without a gate."""
LEAST_PRIOR = 1e-6
"""Smallest prior precision: weights beyond a thousand belong to columns that should be scaled otherwise."""
FIRST_PRECISION = 100.0
"""Posterior precision to start from, over the prior's: wide weights would make all outputs alike."""


class Settings(NamedTuple):
    """Public numbers of a run.

    Attributes
    ----------
    features, outcome
        Maps of the columns.
    turn
        Orthogonal matrix that scaled inputs are multiplied by.
    records, steps
        N, and the number of steps.
    prior, prior_shape
        lambda_0 and a.
    rate, last
        rho = eta of the first half of the steps, and the share that is left at the end.
    cap
        Longest move of a weight in a step, in posterior deviations.
    noise_rate
        Share of the new in the running average of the noise variance.
    tail
        Share of the steps that are averaged.
    clip
        Multiple of sqrt(d / N) and of d / N that mean and precision parts are clipped to, in `run_open`.
    """

    features: Columns
    outcome: Columns
    turn: Any
    records: Any
    steps: Any
    prior: Any = 1.0
    prior_shape: Any = 6.0
    rate: Any = 0.02
    last: Any = 0.05
    cap: Any = 0.5
    noise_rate: Any = 0.05
    tail: Any = 0.1
    clip: Any = jnp.inf


class State(NamedTuple):
    """What is carried from step to step.

    Attributes
    ----------
    mean, precision
        Of all weights.
    prior
        lambda of each weight.
    noise
        Noise variance.
    blur
        Variance of each mean that comes from the gate's noise.
    average
        Sums of the last means, precisions and noise variances.
    weight
        Their number.
    step
        Number of steps taken.
    """

    mean: jax.Array
    precision: jax.Array
    prior: jax.Array
    noise: jax.Array
    blur: jax.Array
    average: tuple[jax.Array, jax.Array, jax.Array]
    weight: jax.Array
    step: jax.Array


class Result(NamedTuple):
    """A finished fit, in scaled units: means, variances, variance of the means due to noise, noise Gamma."""

    mean: NDArray[np.float64]
    variance: NDArray[np.float64]
    blur: NDArray[np.float64]
    noise: tuple[float, float] | None


def init(model: Network, settings: Settings, seed: Any = 0) -> State:
    """Random means: with all means zero, hidden units would never differ."""
    dtype = jnp.result_type(settings.turn, 0.0)
    mean = jax.random.normal(jax.random.key(seed), (model.size,), dtype)
    zero, none = jnp.zeros_like(mean), jnp.zeros((), dtype)
    prior = zero + settings.prior
    return State(
        mean, FIRST_PRECISION * prior, prior, none + 1.0, zero, (zero, zero, none), none, jnp.asarray(0)
    )


def publish(model: Network, settings: Settings, state: State) -> DiagonalPublic:
    """Return what contributions may depend on."""
    n = settings.records
    eta = state.precision * state.mean
    cavity = DiagonalGaussian(eta - eta / n, state.precision - (state.precision - state.prior) / n)
    noise = Gamma(0.5 * n - 1.0, 0.5 * n * state.noise)
    unit = jax.lax.rsqrt(state.precision)
    return DiagonalPublic(
        settings.features, settings.outcome, settings.turn, model.joined(cavity, noise), state.mean, unit
    )


def update(
    model: Network,
    settings: Settings,
    state: State,
    released: tuple[jax.Array, ...],
    batch: Any,
    deviation: Any = 0.0,
) -> State:
    """One step from sums of the blocks, over `batch` expected records.

    Parameters
    ----------
    deviation
        Standard deviation of the noise of the mean part.
    """
    up = settings.records / batch
    unit = jax.lax.rsqrt(state.precision)
    mean_part, precision_part = up * released[0] / unit, up * released[1] / unit**2
    passed = jnp.clip(2.0 * state.step / settings.steps - 1.0, 0.0, 1.0)
    rate = settings.rate * (1.0 - (1.0 - settings.last) * passed)
    precision = (1.0 - rate) * state.precision + rate * (state.prior + precision_part)
    # One odd batch must not undo what all others have said.
    precision = jnp.maximum(precision, jnp.maximum(state.prior, (1.0 - 2.0 * rate) * state.precision))
    move = rate * (mean_part - state.prior * state.mean) / precision
    most = settings.cap * jax.lax.rsqrt(precision)
    mean = state.mean + jnp.clip(move, -most, most)
    blur = (1.0 - rate) ** 2 * state.blur + (rate * up * deviation / unit / precision) ** 2
    noise = _noise(settings, state, released[2], up) if len(released) > 2 else state.noise
    prior = _prior(model, settings, mean, precision)
    # A step that leaves the finite numbers is not taken: no later one could mend it.
    good = jnp.all(jnp.isfinite(mean)) & jnp.all(jnp.isfinite(precision)) & jnp.isfinite(noise)
    kept = (state.mean, state.precision, state.prior, state.noise, state.blur)
    found = (mean, precision, prior, noise, blur)
    mean, precision, prior, noise, blur = (
        jnp.where(good, new, old) for new, old in zip(found, kept, strict=True)
    )
    on = (state.step >= jnp.floor((1.0 - settings.tail) * settings.steps)).astype(mean.dtype)
    sums = zip(state.average, (mean, precision, noise), strict=True)
    average = tuple(old + on * new for old, new in sums)
    return State(mean, precision, prior, noise, blur, average, state.weight + on, state.step + 1)  # pyright: ignore


def finish(settings: Settings, state: State, *, learned_noise: bool) -> Result:
    """Average over the last steps."""
    weight = float(state.weight)
    mean, precision, noise = (np.asarray(part, np.float64) / weight for part in state.average)
    half = 0.5 * float(settings.records)
    gamma = (half, half * float(noise)) if learned_noise else None
    return Result(mean, 1.0 / precision, np.asarray(state.blur, np.float64), gamma)


def run(gate: Summed, model: Network, settings: Settings, steps: int, seed: int = 0) -> State:
    """Take `steps` releases through a gate, private or open, each followed by an update."""
    with jax.enable_x64(True):
        settings = jax.tree.map(jnp.asarray, settings)
        state = init(model, settings, seed)
        for _ in range(steps):
            released = gate.release(_publish(model, settings, state))
            parts = tuple(
                jnp.asarray(released[name]) for name in ("mean", "precision", "noise") if name in released
            )
            state = _update(model, settings, state, parts, gate.expected_batch, gate.deviations["mean"])
    return state


def run_open(model: Network, settings: Settings, records: Any, batch: int, seed: int = 0) -> State:
    """Take ``settings.steps`` steps on random batches of records, without a gate: nothing here is private.

    With a finite clip it is clipped SEP. Long runs on a processor are compiled where that is possible
    (`dpsep.inference.fast_batches`); the result is the same up to rounding.
    """
    visits = int(settings.steps) * batch
    if jax.default_backend() == "cpu" and compiled.worth(model, visits):
        return _run_compiled(model, settings, records, batch, seed)
    x, y = (jnp.asarray(part) for part in records)
    return _run_open(model, jax.tree.map(jnp.asarray, settings), (x, y), batch, jnp.asarray(seed))


@partial(jax.jit, static_argnames=("model", "batch"))
def _run_open(model: Network, settings: Settings, records: Any, batch: int, seed: jax.Array) -> State:
    x, y = records
    contribution = DiagonalFactors(model)
    bounds = _bounds(model, settings, len(x))

    def one(number: Any, state: State) -> State:
        rows = _rows(seed, number, batch, len(x))
        public = publish(model, settings, state)

        def add(total: Any, some: jax.Array) -> tuple[Any, None]:
            parts = contribution(public, (x[some], y[some]))
            sums = [_clipped_sum(part, bound) for part, bound in zip(parts, bounds, strict=False)]
            return tuple(old + new for old, new in zip(total, sums, strict=True)), None

        width = [model.size, model.size] + [2] * isinstance(model, NetworkRegression)
        start = tuple(jnp.zeros(size, state.mean.dtype) for size in width)
        released, _ = jax.lax.scan(add, start, rows)
        return update(model, settings, state, released, rows.size)

    steps = jnp.asarray(settings.steps).astype(int)
    return jax.lax.fori_loop(0, steps, one, init(model, settings, seed))


def _run_compiled(model: Network, settings: Settings, records: Any, batch: int, seed: int) -> State:
    from dpsep.inference import fast_batches

    count, steps = len(records[0]), int(settings.steps)
    dtype = np.dtype(jnp.result_type(settings.turn, 0.0)).type
    bounds = tuple(float(each) for each in _bounds(model, settings, count))
    work = fast_batches.Batches(model, settings, records, bounds, dtype=dtype, seed=seed)  # pyright: ignore
    for start in range(0, steps, ROWS_AHEAD):
        numbers = jnp.arange(start, start + ROWS_AHEAD)
        drawn = np.asarray(_many_rows(jnp.asarray(seed), numbers, batch, count))
        for rows in drawn[: steps - start]:
            work.step(rows.ravel())
    return work.state()


def _bounds(model: Network, settings: Settings, count: int) -> tuple[Any, Any, Any]:
    """Clips of the mean, precision and noise parts."""
    load = math.sqrt(model.size / count)
    return settings.clip * load, settings.clip * load**2, jnp.inf


def _rows(seed: Any, number: Any, batch: int, count: int) -> jax.Array:
    """Random rows of a step, in chunks."""
    key = jax.random.fold_in(jax.random.key(seed), 1)
    chunks = -(-batch // CHUNK)
    return jax.random.randint(jax.random.fold_in(key, number), (chunks, batch // chunks), 0, count)


@partial(jax.jit, static_argnames=("batch", "count"))
def _many_rows(seed: jax.Array, numbers: jax.Array, batch: int, count: int) -> jax.Array:
    return jax.vmap(lambda number: _rows(seed, number, batch, count))(numbers)


def _clipped_sum(rows: jax.Array, bound: Any) -> jax.Array:
    norm = jnp.linalg.norm(rows, axis=1, keepdims=True)
    return jnp.sum(rows * jnp.minimum(1.0, bound / jnp.maximum(norm, 1e-30)), axis=0)


_publish = partial(jax.jit, static_argnums=0)(publish)
_update = partial(jax.jit, static_argnums=0)(update)


def _noise(settings: Settings, state: State, part: jax.Array, up: Any) -> jax.Array:
    """Running average of the noise variance, which changes by a quarter at most."""
    n = settings.records
    shape = 0.5 * n + jnp.clip(up * part[0], -0.25 * n, 0.25 * n)
    change = 1.0 + settings.noise_rate * (up * part[1] / shape - 1.0)
    return jnp.maximum(state.noise * jnp.clip(change, 0.75, 1.25), LEAST_NOISE)


def _prior(model: Network, settings: Settings, mean: jax.Array, precision: jax.Array) -> jax.Array:
    """Expected prior precision of each weight's layer."""
    found, used = [], 0
    for shape in model.shapes:
        size = math.prod(shape)
        square = jnp.sum(mean[used : used + size] ** 2 + 1.0 / precision[used : used + size])
        a = settings.prior_shape
        level = jnp.maximum((a + 0.5 * size) / (a / settings.prior + 0.5 * square), LEAST_PRIOR)
        found.append(jnp.broadcast_to(level, (size,)))
        used += size
    return jnp.concatenate(found)
