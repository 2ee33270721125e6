r"""Stochastic EP for networks with correlated weights: whitened releases, damped Newton steps.

With S the released sums of local factors' mean parts (`dpsep.models.network_factors`), counted from the
posterior mean m and in units K^-1/2, scaled to N records, one step is

    g  = K^1/2 S - lambda m
    m  <- m + eta K^-1 g,                            its length K^1/2 . capped,
    Lambda = N I(m) + lambda,  K = N I(m) + c lambda,

I(m) the expected information of one record at the new mean, in the basis of each layer, and lambda the prior
precision of the layer. The precision is not released: it follows from m, the noise precision and a public (or
released) law of the inputs. c > 1 damps directions that the data say little about: they are learned later,
and a record's whitened norm, sqrt(tr(K^-1 I)), and so its clip and the noise of all directions, is smaller.

*Its interior fixed points are SEP's*, for factors linear in the weights about m and a precision whose basis
holds: there sum_n g'_n J_n = lambda m, the mean equation of theta = theta_0 + sum_n theta_fn, and
Lambda = lambda + N E[s' J J^T].

*Prior precision.* With a Gamma(a, a / lambda_0) hyper-prior the expected lambda of a layer given q is
(a + d / 2) / (a / lambda_0 + E|w|^2 / 2), E|w|^2 = |m|^2 + tr(Lambda^-1), less the known noise of m: a
function of what was released.

*What noise changes.* Each step adds eta^2 sd^2 / K to the variance of m in a coordinate and contracts what
was there by 1 - eta Lambda / K; the state carries this variance, turned from basis to basis (its diagonal).
The final mean is an average over the last steps; of the noise's variance it keeps at least the share that an
average of that many contracting steps leaves.

*Start.* Hidden weights are random. Where the inputs also reach the output directly, their first weights are
those of a linear model that the released moments of the columns give, and the first noise variance is what it
leaves: the hidden units then have only to learn what is not linear.

**Privacy.** Post-processing of what a gate released. This file sees no record.
The proof is in docs/proofs/network-factors.md.
"""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from dpsep.families import Gamma
from dpsep.inference.gate_protocol import Summed
from dpsep.inference.network_state import Result, Settings, Shape, State
from dpsep.models.network_factors import (
    Basis,
    NetworkPublic,
    Weights,
    back,
    bases_of,
    into,
    made_inputs,
    unflatten,
)


def init(shape: Shape, settings: Settings, seed: Any = 0) -> State:
    """Random means, of a small output layer: with all means zero, hidden units would never differ."""
    keys = jax.random.split(jax.random.key(seed), len(shape.layers))
    dtype = jnp.result_type(settings.input_half, 0.0)
    layers = zip(keys, shape.layers, strict=True)
    weights = tuple(jax.random.normal(key, layer, dtype) for key, layer in layers)
    weights = _first(shape, settings, weights)
    return _state(settings, weights, _bases(shape, settings, weights, jnp.asarray(0)))


def _first(shape: Shape, settings: Settings, draws: Weights) -> Weights:
    """First means from standard normal draws."""
    last = draws[-1] * settings.start
    if shape.direct:
        hidden = shape.widths[-2]
        last = last.at[0, hidden:].set(0.0)
        last = last.at[0, hidden:-1].set(settings.linear)
    return (*draws[:-1], last)


def _state(settings: Settings, weights: Weights, bases: tuple[Basis, ...]) -> State:
    """State before the first step."""
    nothing = tuple(jnp.zeros_like(part) for part in weights)
    prior = jnp.full(len(weights), 1.0) * settings.prior
    zero = jnp.asarray(0.0) * prior[0]
    noise = zero + settings.first_noise
    return State(weights, bases, prior, noise, nothing, nothing, zero, zero, jnp.asarray(0))


def precisions(settings: Settings, state: State, damping: Any = 1.0) -> Weights:
    """N I + damping lambda in the bases: the posterior precision, or K."""
    scale = settings.records / state.noise
    parts = zip(state.bases, state.prior, strict=True)
    return tuple(scale * basis.information + damping * prior for basis, prior in parts)


def load(settings: Settings, state: State) -> jax.Array:
    """tr(K^-1 N I): how many directions the data determine, under damping."""
    metric = precisions(settings, state, settings.damping)
    scale = settings.records / state.noise
    parts = zip(state.bases, metric, strict=True)
    return sum((jnp.sum(scale * basis.information / part) for basis, part in parts), jnp.zeros(()))


def publish(shape: Shape, settings: Settings, state: State) -> NetworkPublic:
    """Return what contributions may depend on; mean parts are in units in which their clip is one."""
    n = settings.records
    posterior = precisions(settings, state)
    cavity = tuple(part - (part - prior) / n for part, prior in zip(posterior, state.prior, strict=True))
    turned = into(state.bases, state.weights)
    parts = zip(turned, state.prior, cavity, strict=True)
    offset = tuple(-mean * prior / n / precision for mean, prior, precision in parts)
    clip = clip_of(settings, state)
    metric = precisions(settings, state, settings.damping)
    unit = tuple(jax.lax.rsqrt(part) / clip for part in metric)
    noise = Gamma(0.5 * n - 1.0, 0.5 * n * state.noise)
    return NetworkPublic(
        settings.features, settings.outcome, state.weights, state.bases, cavity, offset, unit, noise
    )


def clip_of(settings: Settings, state: State) -> jax.Array:
    """What a record's whitened mean part is clipped to, and divided by; one where there is no clip."""
    size = jnp.sqrt(load(settings, state) / settings.records)
    return jnp.where(jnp.isinf(settings.clip), 1.0, settings.clip * size)


def update(
    shape: Shape,
    settings: Settings,
    state: State,
    mean_part: jax.Array,
    noise_part: jax.Array | None,
    batch: Any,
    deviation: Any,
    noise_deviation: Any = 0.0,
) -> State:
    """One step from released sums.

    Parameters
    ----------
    mean_part, noise_part
        Released sums of the blocks ``mean`` (flat) and ``noise``.
    batch
        Expected records of a release.
    deviation, noise_deviation
        Standard deviations of the noise of the two, in their units.
    """
    up = settings.records / batch
    clip = clip_of(settings, state)
    metric = precisions(settings, state, settings.damping)
    posterior = precisions(settings, state)
    turned = into(state.bases, state.weights)
    released = unflatten(mean_part, state.weights)
    parts = zip(released, metric, turned, state.prior, strict=True)
    move = tuple((up * clip * part * jnp.sqrt(k) - prior * mean) / k for part, k, mean, prior in parts)
    rate = _rate(settings, state.step)
    length = jnp.sqrt(sum((jnp.sum(k * part**2) for k, part in zip(metric, move, strict=True)), 0.0))
    longest = settings.cap * jnp.sqrt(load(settings, state))
    rate = rate * jnp.minimum(1.0, longest / jnp.maximum(rate * length, 1e-30))
    weights = tuple(
        old + part
        for old, part in zip(state.weights, back(state.bases, tuple(rate * p for p in move)), strict=True)
    )
    sd = up * clip * deviation
    blur = tuple(
        (1.0 - rate * jnp.minimum(own / k, 1.0 / rate)) ** 2 * old + (rate * sd) ** 2 / k
        for own, k, old in zip(posterior, metric, state.blur, strict=True)
    )
    noise = _noise(settings, state, noise_part, up, noise_deviation)
    moved = state._replace(weights=weights, noise=noise)
    bases = _bases(shape, settings, weights, state.step + 1, state.bases)
    blur = _turn_variance(state.bases, bases, blur)
    prior = state.prior
    if shape.learn_prior:
        prior = _prior(settings, moved._replace(bases=bases), blur)
    on = (state.step >= (1.0 - settings.tail) * settings.steps).astype(noise.dtype)
    average = tuple(old + on * part for old, part in zip(state.average, weights, strict=True))
    return State(
        weights,
        bases,
        prior,
        noise,
        blur,
        average,
        state.average_noise + on * noise,
        state.weight + on,
        state.step + 1,
    )


def finish(shape: Shape, settings: Settings, state: State) -> Result:
    """Average the last means (where too few steps were taken: the last), and give the posterior there."""
    weights, noise = _averaged(state)
    bases = _fresh(shape, settings, weights, state.step + 1)
    final = state._replace(weights=weights, bases=bases, noise=noise)
    precision, blur = _finished(settings, state, final)
    half = 0.5 * float(settings.records)
    gamma = None if shape.outcome == "classification" else (half, half * float(final.noise))
    return Result(final.weights, final.bases, precision, blur, gamma, np.asarray(state.prior))


@jax.jit
def _averaged(state: State) -> tuple[Weights, jax.Array]:
    weight = jnp.maximum(state.weight, 1.0)
    means = zip(state.average, state.weights, strict=True)
    weights = tuple(jnp.where(state.weight > 0, total / weight, last) for total, last in means)
    return weights, jnp.where(state.weight > 0, state.average_noise / weight, state.noise)


@jax.jit
def _finished(settings: Settings, state: State, final: State) -> tuple[Weights, Weights]:
    """Posterior precision at the averaged means, and the variance that the noise leaves in them."""
    # Of a stationary variance b with memory of one step in 1 / (eta Lambda / K), an average of n keeps this.
    rate = settings.rate * settings.last
    weight = jnp.maximum(state.weight, 1.0)
    posterior = precisions(settings, state)
    metric = precisions(settings, state, settings.damping)
    share = tuple(
        jnp.minimum(1.0, 2.0 / jnp.maximum(weight * rate * own / k, 1e-30))
        for own, k in zip(posterior, metric, strict=True)
    )
    blur = tuple(part * left for part, left in zip(state.blur, share, strict=True))
    return precisions(settings, final), _turn_variance(state.bases, final.bases, blur)


def run(gate: Summed, shape: Shape, settings: Settings, steps: int, seed: int = 0) -> Result:
    """Take `steps` releases through a gate, private or open, each followed by an update."""
    with jax.enable_x64(True):
        settings = jax.tree.map(lambda part: jnp.asarray(part, jnp.float64), settings)
        # NumPy's draws: the compiler takes a second for those of JAX.
        random = np.random.default_rng(seed)
        draws = tuple(jnp.asarray(random.standard_normal(layer)) for layer in shape.layers)
        weights = jax.jit(_first, static_argnums=0)(shape, settings, draws)
        state = jax.jit(_state)(settings, weights, _fresh(shape, settings, weights, jnp.asarray(0)))
        deviation = gate.deviations["mean"]
        for _ in range(steps):
            released = gate.release(_publish(shape, settings, state))
            noise = released.get("noise")
            state = _update(
                shape,
                settings,
                state,
                jnp.asarray(released["mean"]),
                None if noise is None else jnp.asarray(noise),
                gate.expected_batch,
                deviation,
                gate.deviations.get("noise", 0.0),
            )
        return finish(shape, settings, state)


_publish = partial(jax.jit, static_argnums=0)(publish)
_update = partial(jax.jit, static_argnums=0)(update)


def _rate(settings: Settings, step: jax.Array) -> jax.Array:
    """eta: constant over the first half, then falling in a straight line to its last."""
    passed = jnp.maximum(2.0 * step / settings.steps - 1.0, 0.0)
    return settings.rate * (1.0 - (1.0 - settings.last) * jnp.minimum(passed, 1.0))


def _noise(
    settings: Settings, state: State, noise_part: jax.Array | None, up: Any, deviation: Any
) -> jax.Array:
    """Running average of the noise variance: slower where a release says little of it.

    The released sum is n / 2 where the variance is right. A release has the relative deviation `blur`; the
    share of the new is such that the average has at most `NOISE_SPREAD`. A step changes it by a quarter at
    most.
    """
    if noise_part is None:
        return state.noise
    n = settings.records
    blur = 2.0 * up * deviation / n
    share = settings.noise_rate / (1.0 + settings.noise_rate * 0.5 * (blur / NOISE_SPREAD) ** 2)
    change = 1.0 + share * (2.0 * up * noise_part[0] / n - 1.0)
    return jnp.maximum(state.noise * jnp.clip(change, 0.75, 1.25), LEAST_NOISE)


NOISE_SPREAD = 0.1
"""Relative deviation that the gate's noise may leave in the running average of the noise variance."""
LEAST_NOISE = 1e-6
"""Smallest noise variance, in scaled units."""


def _prior(settings: Settings, state: State, blur: Weights) -> jax.Array:
    found = []
    for part, precision, extra in zip(state.weights, precisions(settings, state), blur, strict=True):
        size = jnp.maximum(jnp.sum(part**2) - jnp.sum(extra), 0.0) + jnp.sum(1.0 / precision)
        a = settings.prior_shape
        found.append((a + 0.5 * part.size) / (a / settings.prior + 0.5 * size))
    return jnp.stack(found)


def _bases(
    shape: Shape,
    settings: Settings,
    weights: Weights,
    step: jax.Array,
    known: tuple[Basis, ...] | None = None,
) -> tuple[Basis, ...]:
    """Bases at given weights from inputs made up; known ones are kept, but for every tenth step.

    What the likelihood says in them is computed anew at every step.
    """
    draws = jax.random.normal(jax.random.fold_in(jax.random.key(0), step), (shape.made, shape.widths[0]))
    inputs = made_inputs(draws, settings.input_half, settings.input_mean)

    def find(old: tuple[Basis, ...] | None) -> tuple[Basis, ...]:
        return bases_of(weights, inputs, shape.activation, shape.outcome, old)

    if known is None:
        return find(None)
    return jax.lax.cond(step % REFRESH == 0, lambda _: find(None), find, known)


@partial(jax.jit, static_argnums=0)
def _fresh(shape: Shape, settings: Settings, weights: Weights, step: jax.Array) -> tuple[Basis, ...]:
    """Bases that are found anew: compiled once, for the start and the end of a run."""
    return _bases(shape, settings, weights, step)


REFRESH = 10
"""Steps from one choice of bases to the next."""


def _turn_variance(old: tuple[Basis, ...], new: tuple[Basis, ...], variance: Weights) -> Weights:
    """Variances of coordinates in another basis, of weights that were independent in the old one."""
    found = []
    for before, after, part in zip(old, new, variance, strict=True):
        left, right = (after.left.T @ before.left) ** 2, (after.right.T @ before.right) ** 2
        found.append(left @ part @ right.T)
    return tuple(found)
