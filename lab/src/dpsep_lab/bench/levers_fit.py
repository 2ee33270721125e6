"""A private network fit as one compiled program, with levers that change it one at a time.

With no lever moved it is the committed method: `dpsep.inference.network` publishes, updates and finishes,
`dpsep_lab.bench.levers_sums` sums as its gate would, and noise has the gate's deviation. What differs from a
release is where noise comes from (`jax.random`) and that sums are not rounded to a grid. Fits with several
settings and seeds run side by side.

**Privacy.** For measurement only, on made and public tables; nothing here is a release.
"""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from dpsep.inference import network
from dpsep.inference.network import Settings, Shape, State
from dpsep.models.network import Activation
from dpsep.models.network_factors import (
    Weights,
    back,
    flatten,
    into,
    made_inputs,
    through,
)
from dpsep_lab.bench.levers_data import Data, whole
from dpsep_lab.bench.levers_steps import Memory, changed, old_noise, plain_bases, remembered
from dpsep_lab.bench.levers_sums import Sums, sums, typical_share

__all__ = ["Form", "Numbers", "fits", "lifted", "prepared", "shape_of", "start_seed"]

QUANTILE_SHARE, QUANTILE_RATE = 0.02, 0.2
"""Share of a release for the noisy number of records below the clip, and the step of the clip's logarithm."""


class Form(NamedTuple):
    """Levers that change the program.

    Attributes
    ----------
    hidden
        Hidden units.
    activation, direct
        As of `dpsep.inference.network.Shape`.
    fixed_features
        Whether the first layer stays as it was drawn.
    other_steps
        Whether steps are those of `dpsep_lab.bench.levers_steps`; else they are the committed ones.
    """

    hidden: int
    activation: Activation = "sine"
    direct: bool = True
    fixed_features: bool = False
    other_steps: bool = False


class Numbers(NamedTuple):
    """Levers that are numbers; yes is 1 and no is 0.

    Attributes
    ----------
    mu
        Of all releases of the fit together.
    noise_share, noise_clip
        Of the noise statistic.
    clip, damping, rate, last, cap, tail, start
        As of `dpsep.inference.network.Settings`.
    hold
        Share of the steps before the rate falls.
    early
        What a step of the first half spends, over one of the second.
    linear, released, learn_prior
        Whether to start from the linear model, whether bases know the released moments, and whether the
        prior precision is learned.
    compensation
        Power of the clip's share that releases are divided by.
    anneal
        Multiple of the noise variance at the start, which falls to one over the first half.
    kappa, stretch
        Share of the last noise that is taken off, and `correlation_norm` of it.
    by_layer, quantile, target
        Whether layers are clipped by themselves, whether the clip follows a quantile, and which.
    two_numbers
        Whether the noise statistic is the older one.
    networks, member
        How many networks share the budget, and which of them this is.
    own, raw
        Whether clip and noise are in the weights' own coordinates, and whether these are not whitened.
    momentum, kalman, forget
        Of the other steps.
    """

    mu: Any
    noise_share: Any
    noise_clip: Any
    clip: Any
    damping: Any
    rate: Any
    last: Any
    cap: Any
    tail: Any
    start: Any
    hold: Any = 0.5
    early: Any = 1.0
    linear: Any = 1.0
    released: Any = 1.0
    learn_prior: Any = 1.0
    compensation: Any = 0.0
    anneal: Any = 1.0
    kappa: Any = 0.0
    stretch: Any = 1.0
    by_layer: Any = 0.0
    quantile: Any = 0.0
    target: Any = 0.5
    two_numbers: Any = 0.0
    networks: Any = 1.0
    member: Any = 0.0
    own: Any = 0.0
    raw: Any = 0.0
    momentum: Any = 0.0
    kalman: Any = 0.0
    forget: Any = 0.0


def shape_of(form: Form, columns: int) -> Shape:
    """Shape of the network that is learned: with fixed features, a linear one of those."""
    if form.fixed_features:
        return Shape((form.hidden + columns, 1), form.activation, learn_prior=True)
    widths = (columns, form.hidden, 1)
    return Shape(widths, form.activation, direct=form.direct, learn_prior=True)


def settings_of(form: Form, numbers: Numbers, data: Data, steps: Any) -> Settings:
    """Settings of the committed method, with the levers that it knows."""
    n, d = data.X.shape
    return Settings(
        whole(d),
        whole(1),
        numbers.released * data.mean,
        jnp.where(numbers.released > 0, data.half, jnp.eye(d)),
        float(n),
        steps * 1.0,
        damping=numbers.damping,
        rate=numbers.rate,
        last=numbers.last,
        cap=numbers.cap,
        tail=numbers.tail,
        start=numbers.start,
        linear=numbers.linear * data.linear,
        first_noise=jnp.where((numbers.linear > 0) & form.direct, data.first_noise, 1.0),
        clip=numbers.clip,
    )


def fits(form: Form, numbers: Numbers, data: Data, seeds: Any, steps: int) -> State:
    """Last states of fits, (settings, seeds, ...) in every array.

    Parameters
    ----------
    form
        The program.
    numbers
        Arrays (settings,).
    data
        Arrays (seeds, ...).
    seeds
        (seeds,) whole numbers.
    steps
        Of every fit.
    """
    with jax.enable_x64(True):
        return _fits(form, jax.tree.map(jnp.asarray, numbers), data, jnp.asarray(seeds), float(steps))


@partial(jax.jit, static_argnums=0)
def _fits(form: Form, numbers: Numbers, data: Data, seeds: jax.Array, steps: Any) -> State:
    def one(own: Numbers, table: Data, seed: jax.Array) -> State:
        return _fit(form, own, table, seed, steps)

    by_seed = jax.vmap(one, in_axes=(None, 0, 0))
    return jax.vmap(by_seed, in_axes=(0, None, None))(numbers, data, seeds)


def _fit(form: Form, numbers: Numbers, data: Data, seed: jax.Array, steps: Any) -> State:
    seed = start_seed(numbers, seed)
    shape, settings, data = prepared(form, numbers, data, seed, steps)
    state = network.init(shape, settings, seed)
    if form.fixed_features:
        direct = state.weights[-1].at[0, form.hidden : -1].set(numbers.linear * data.linear)
        state = state._replace(weights=(direct,))
    if form.other_steps:
        plain = plain_bases(shape, settings, state.weights, jnp.asarray(0))
        bases = jax.tree.map(lambda one, other: jnp.where(numbers.own > 0, one, other), plain, state.bases)
        state = state._replace(bases=bases)
    key = jax.random.fold_in(jax.random.key(5), seed)

    def step(_: Any, carry: tuple[State, Memory]) -> tuple[State, Memory]:
        return _step(form, shape, numbers, settings, data, key, *carry)

    return jax.lax.fori_loop(0, jnp.asarray(steps, int), step, (state, remembered(settings, state)))[0]


def start_seed(numbers: Numbers, seed: Any) -> Any:
    """Seed of a network: members of an ensemble have their own."""
    return seed + 1000 * jnp.asarray(numbers.member, int)


def prepared(form: Form, numbers: Numbers, data: Data, seed: Any, steps: Any) -> tuple[Shape, Settings, Data]:
    """Shape, settings and records of a fit; fixed features take the place of the inputs."""
    columns = data.X.shape[1]
    settings = settings_of(form, numbers, data, steps)
    shape = shape_of(form, columns)
    if not form.fixed_features:
        return shape, settings, data
    draws = jax.random.normal(jax.random.key(6), (4096, columns))
    made = lifted(form, made_inputs(draws, settings.input_half, settings.input_mean), seed)
    covariance = jnp.cov(made.T) + 1e-9 * jnp.eye(made.shape[1])
    settings = settings._replace(
        features=whole(made.shape[1]),
        input_mean=jnp.mean(made, axis=0),
        input_half=jnp.linalg.cholesky(covariance),
        linear=0.0,
    )
    return shape, settings, data._replace(X=lifted(form, data.X, seed))


def lifted(form: Form, x: jax.Array, seed: Any) -> jax.Array:
    """Hidden units as they are drawn, and the inputs: as a network's last layer would see them."""
    first = jax.random.normal(jax.random.fold_in(jax.random.key(8), seed), (form.hidden, x.shape[1] + 1))
    last = jnp.zeros((1, form.hidden + x.shape[1] + 1))
    given = through((first, last), x, form.activation).inputs[-1][:, :-1]
    return given * np.sqrt(given.shape[1] + 1)


def _step(
    form: Form,
    shape: Shape,
    numbers: Numbers,
    settings: Settings,
    data: Data,
    key: jax.Array,
    state: State,
    memory: Memory,
) -> tuple[State, Memory]:
    """Publish, sum, add noise, update."""
    passed = state.step / settings.steps
    slack = jnp.maximum((passed - numbers.hold) / (1.0 - numbers.hold), 0.0)
    falling = 1.0 - (1.0 - numbers.last) * jnp.minimum(slack, 1.0)
    now = settings._replace(rate=settings.rate * falling, last=1.0, clip=memory.clip)
    anneal = numbers.anneal ** jnp.maximum(1.0 - 2.0 * passed, 0.0)
    warm = state._replace(noise=anneal * state.noise)
    public = network.publish(shape, now, warm)
    plain = 1.0 / _raw_clip(now, warm)
    public = public._replace(unit=tuple(jnp.where(numbers.raw > 0, plain, part) for part in public.unit))
    total = sums(
        public,
        (data.X, data.y),
        form.activation,
        noise_clip=numbers.noise_clip,
        layer_clips=_layer_clips(now, warm),
        by_layer=numbers.by_layer,
    )
    sigma = _sigma(numbers, passed, settings.steps)
    keys = jax.random.split(jax.random.fold_in(key, state.step), 4)
    mean, deviation, memory = _mean_part(numbers, state, memory, total, sigma, keys[0])
    draws = jax.random.normal(keys[2], (shape.made, shape.widths[0]))
    inputs = made_inputs(draws, now.input_half, now.input_mean)
    more = typical_share(public, inputs, form.activation) ** -numbers.compensation
    mean, deviation = tuple(more * part for part in mean), more * deviation
    sd = sigma * numbers.noise_clip / jnp.sqrt(numbers.noise_share)
    draw = sd * jax.random.normal(keys[1], (2,))
    part = total.noise + draw[:1]
    noise = network._noise(now, state, anneal * part, 1.0, anneal * sd)
    noise = jnp.where(numbers.two_numbers > 0, old_noise(now, state, total.pair + draw, sd), noise)
    if form.other_steps:
        found, memory = changed(
            shape,
            now,
            warm,
            memory,
            tuple(one / unit for one, unit in zip(mean, public.unit, strict=True)),
            tuple(deviation / unit for unit in public.unit),
            noise,
            own=numbers.own,
            momentum=numbers.momentum,
            kalman=numbers.kalman,
            forget=numbers.forget * falling,
        )
    else:
        found = network.update(shape, now, warm, flatten(mean), part, settings.records, deviation, sd)
        on = found.weight - state.weight
        found = found._replace(noise=noise, average_noise=found.average_noise + on * (noise - found.noise))
    found = found._replace(prior=jnp.where(numbers.learn_prior > 0, found.prior, state.prior))
    return found, _followed(numbers, memory, total.below, sigma, settings.records, keys[3])


def _sigma(numbers: Numbers, passed: jax.Array, steps: Any) -> jax.Array:
    """Noise multiplier of a step: the budget is divided over steps, and over networks."""
    first = jnp.ceil(steps / 2.0)
    whole_budget = first * numbers.early + steps - first
    own = jnp.where(passed < 0.5, numbers.early, 1.0) / whole_budget
    return jnp.sqrt(numbers.networks / own) / numbers.mu


def _mean_part(
    numbers: Numbers,
    state: State,
    memory: Memory,
    total: Sums,
    sigma: jax.Array,
    key: jax.Array,
) -> tuple[Weights, jax.Array, Memory]:
    """Noisy mean part, the deviation of its noise in the long run, and the noise to remember."""
    rest = 1.0 - numbers.noise_share - QUANTILE_SHARE * numbers.quantile
    sd = numbers.stretch * sigma / jnp.sqrt(rest)
    keys = jax.random.split(key, len(total.mean))
    draw = tuple(sd * jax.random.normal(one, p.shape) for one, p in zip(keys, total.mean, strict=True))
    last = into(state.bases, memory.draw)
    parts = zip(total.mean, draw, last, strict=True)
    mean = tuple(part + new - numbers.kappa * old for part, new, old in parts)
    return mean, (1.0 - numbers.kappa) * sd, memory._replace(draw=back(state.bases, draw))


def _raw_clip(settings: Settings, state: State) -> jax.Array:
    """Clip of a gradient that is not whitened: the same multiple of what a typical record has."""
    size = sum((jnp.sum(basis.information) for basis in state.bases), jnp.zeros(()))
    return settings.clip * jnp.sqrt(size / state.noise)


def _layer_clips(settings: Settings, state: State) -> jax.Array:
    """Clip of each layer in units of the whole clip; their squares sum to one, as does the sensitivity."""
    metric = network.precisions(settings, state, settings.damping)
    loads = [jnp.sum(basis.information / part) for basis, part in zip(state.bases, metric, strict=True)]
    return jnp.sqrt(jnp.stack(loads) / sum(loads))


def _followed(
    numbers: Numbers, memory: Memory, below: jax.Array, sigma: jax.Array, records: Any, key: jax.Array
) -> Memory:
    """Move the clip towards a quantile of norms: a record counts plus or minus one half, with noise."""
    sd = 0.5 * sigma / jnp.sqrt(QUANTILE_SHARE)
    count = below - 0.5 * records + sd * jax.random.normal(key)
    share = jnp.clip(count / records + 0.5, 0.0, 1.0)
    return memory._replace(
        clip=memory.clip * jnp.exp(-QUANTILE_RATE * numbers.quantile * (share - numbers.target))
    )
