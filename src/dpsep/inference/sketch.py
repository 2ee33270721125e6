r"""A mixture from its sketch: starting points for the components, found without reading a record again.

`dpsep.models.sketch` releases the characteristic function of the data at public frequencies, once. Here the
mixture whose characteristic function is nearest (least squares) is searched for: components are added one by
one where the residual is largest (orthogonal matching pursuit for mixtures: Keriven et al. 2018), all moved
together after each, and the whole is done again from several random candidates. The best of all runs is kept.
Misfits count in units of the sketch's error (its noise, and 1 / 2 N of sampling) and weak priors are added
(means and log weights of deviation one, log variances of deviation 0.7 about their common level), so that
where noise leaves two answers possible the plainer one is taken.

**Privacy.** Post-processing of one release: starts, restarts and the choice among them cost nothing. The
random numbers are seeded and public. The proof is in docs/proofs/mixture-sketch.md.

*Uncertainty.* Linearised: with the sketch's error of deviation s and the Jacobian A of the expected
sketch, the estimate's covariance is (A^T A / s^2 + I)^-1, the identity being the prior.
"""

import math
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from dpsep.models.mixture_factors import Variances
from dpsep.privacy.grid import Block

Array = NDArray[np.float64]

LOWEST, HIGHEST = math.log(1e-6), math.log(4.0)
"""Bounds of learned log variances, in scaled units."""
MOST_JOINT = 500
"""Most unknown numbers whose joint covariance is computed; beyond, components are taken one at a time."""
RESTARTS = 8
"""How many times the search is done."""
CANDIDATES = 16
"""Random places that a component is looked for from."""


class Shape(NamedTuple):
    """What is looked for; hashable, static under jit.

    Attributes
    ----------
    components
        J.
    variances
        Whether and how they are learned.
    weights_known
        Whether the weights are given.
    """

    components: int
    variances: Variances
    weights_known: bool


class Guess(NamedTuple):
    """A mixture, in scaled units.

    Attributes
    ----------
    log_weight
        Logarithms of the weights up to a constant, (J,).
    mean
        Means, (J, D).
    level
        Log variances less a public offset a column: (J, D), or (J, 1) where they are spherical or known.
    """

    log_weight: Any
    mean: Any
    level: Any


class Found(NamedTuple):
    """The best mixture, and how far noise may have moved its means.

    Attributes
    ----------
    weight, mean, variance
        Of the components: (J,), (J, D), (J, D), in scaled units.
    spread
        Covariance of each mean due to the sketch's error, (J, D, D).
    joint
        Covariance of everything found: means, log weights where learned, levels of log variances where
        learned; None beyond `MOST_JOINT` numbers.
    """

    weight: Array
    mean: Array
    variance: Array
    spread: Array
    joint: Array | None


def block(frequencies: int) -> Block:
    """Return the block of a sketch; its clip leaves room for rounding, so that no record is shrunk."""
    return Block("sketch", 2 * frequencies, math.sqrt(frequencies) * (1.0 + 1e-4))


def decode(
    sketch: Array,
    frequencies: Array,
    deviation: float,
    shape: Shape,
    log_weight: Array,
    offset: Array,
    keep: int = 1,
) -> list[Found]:
    """Find the mixtures nearest to a sketch, the best one first.

    Parameters
    ----------
    sketch
        Mean cosines, then mean sines, at the frequencies; released, or exact where nothing is private.
    frequencies
        Shape (m, D), in scaled units.
    deviation
        Standard deviation of the sketch's error in each coordinate: noise and sampling.
    shape
        What is known and what is learned.
    log_weight
        Known weights, in logarithms, or the start of learned ones.
    offset
        One a column: the known log variances, or the pattern that learned levels are added to.
    keep
        How many of the results are returned.
    """
    # Single precision finds the place; what follows from it needs no more.
    single = [jnp.asarray(part, jnp.float32) for part in (sketch, frequencies, log_weight, offset, deviation)]
    keys = jax.random.split(jax.random.key(0), RESTARTS)
    guesses, losses = _search(shape, *single, keys)
    losses = np.asarray(losses)
    if not np.isfinite(losses).any():
        raise FloatingPointError("no mixture fits the sketch: its frequencies or its error are out of range.")
    order = np.argsort(np.where(np.isfinite(losses), losses, np.inf))
    found = []
    with jax.enable_x64(True):
        double = [jnp.asarray(part, jnp.float64) for part in (frequencies, offset)]
        for place in order[:keep]:
            guess = jax.tree.map(lambda part, place=place: jnp.asarray(part[place], jnp.float64), guesses)
            weight, mean, variance = (np.asarray(part) for part in _mixture(shape, guess, double[1]))
            slopes = _slopes(shape, guess, *double)
            found.append(Found(weight, mean, variance, *_covariances(shape, slopes, deviation)))
    return found


def _mixture(shape: Shape, guess: Guess, offset: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
    weight = jax.nn.softmax(guess.log_weight)
    return weight, guess.mean, jnp.exp(_log_variance(shape, guess, offset))


def _log_variance(shape: Shape, guess: Guess, offset: jax.Array) -> jax.Array:
    level = guess.level if shape.variances == "known" else jnp.clip(guess.level, LOWEST, HIGHEST)
    return jnp.broadcast_to(level + offset, guess.mean.shape)


def _atoms(frequencies: jax.Array, mean: jax.Array, log_variance: jax.Array) -> jax.Array:
    """Characteristic functions of components, cosines then sines, (J, 2 m)."""
    phase = mean @ frequencies.T
    damping = jnp.exp(-0.5 * jnp.exp(log_variance) @ (frequencies**2).T)
    return jnp.concatenate([damping * jnp.cos(phase), damping * jnp.sin(phase)], axis=-1)


def _expected(
    guess: Guess, present: jax.Array, frequencies: jax.Array, log_variance: jax.Array, *, whole: bool
) -> jax.Array:
    """Expected sketch of the components that are present; unless `whole`, weights need not sum to one yet."""
    weight = jax.nn.softmax(guess.log_weight) if whole else jnp.exp(guess.log_weight) * present
    return weight @ _atoms(frequencies, guess.mean, log_variance)


@partial(jax.jit, static_argnames="shape")
def _search(
    shape: Shape,
    sketch: jax.Array,
    frequencies: jax.Array,
    log_weight: jax.Array,
    offset: jax.Array,
    deviation: jax.Array,
    keys: jax.Array,
) -> tuple[Guess, jax.Array]:
    """Run the search once for each key; return all results and their losses."""
    components, dimension = shape.components, frequencies.shape[1]
    width = dimension if shape.variances == "diag" else 1

    even = jnp.full(components, -math.log(components), sketch.dtype)

    def loss(guess: Guess, present: jax.Array, *, whole: bool) -> jax.Array:
        variance = _log_variance(shape, guess, offset)
        misfit = sketch - _expected(guess, present, frequencies, variance, whole=whole)
        level = guess.level - jnp.mean(guess.level, axis=0)
        usual = log_weight if whole else even
        prior = jnp.sum(guess.mean**2) + jnp.sum((guess.log_weight - usual) ** 2)
        return jnp.sum((misfit / deviation) ** 2) + prior + jnp.sum((level / 0.7) ** 2)

    def move(guess: Guess, present: jax.Array, steps: int, *, whole: bool) -> Guess:
        def held(moved: Guess) -> Guess:
            if whole and shape.weights_known:
                moved = moved._replace(log_weight=guess.log_weight)
            return moved._replace(level=guess.level) if shape.variances == "known" else moved

        return held(_adam(lambda moved: loss(held(moved), present, whole=whole), guess, steps, 0.05))

    def one(key: jax.Array, greedy: jax.Array, level: jax.Array) -> tuple[Guess, jax.Array]:
        empty = Guess(even, jnp.zeros((components, dimension)), jnp.full((components, width), level))

        def add(carry: tuple[Guess, jax.Array], step: tuple[jax.Array, jax.Array]) -> tuple[Any, None]:
            guess, present = carry
            number, key = step
            variance = _log_variance(shape, guess, offset)
            residual = sketch - _expected(guess, present, frequencies, variance, whole=False)
            first, second = jax.random.split(key)
            likely = _best_candidate(residual, frequencies, level + offset, first)
            # By symmetry two components in one place might never part: none is placed exactly.
            scatter = jax.random.normal(second, (dimension,))
            place = jnp.where(greedy, likely + 0.02 * scatter, 0.4 * scatter)
            guess = guess._replace(mean=guess.mean.at[number].set(place))
            present = present.at[number].set(1.0)
            return (move(guess, present, 40, whole=False), present), None

        steps = (jnp.arange(components), jax.random.split(key, components))
        (guess, present), _ = jax.lax.scan(add, (empty, jnp.zeros(components)), steps)
        if shape.weights_known:
            # The largest component found takes the largest weight, and so on.
            guess = move(guess, present, 100, whole=False)
            order = jnp.argsort(guess.log_weight)[jnp.argsort(jnp.argsort(log_weight))]
            guess = Guess(log_weight, guess.mean[order], guess.level[order])
        guess = move(guess, present, 300, whole=True)
        return guess, loss(guess, present, whole=True)

    # Every other restart places components at random; learned variances start small, larger, large.
    number = jnp.arange(len(keys))
    level = jnp.zeros(len(keys)) if shape.variances == "known" else jnp.log(0.005) + 0.7 * (number // 2 % 4)
    return jax.vmap(one)(keys, number % 2 == 0, level)


def _best_candidate(
    residual: jax.Array, frequencies: jax.Array, log_variance: jax.Array, key: jax.Array
) -> jax.Array:
    """Mean of the component most like the residual, by ascent from random places."""
    places = 0.6 * jax.random.normal(key, (CANDIDATES, frequencies.shape[1]))

    def likeness(places: jax.Array) -> jax.Array:
        atoms = _atoms(frequencies, places, jnp.broadcast_to(log_variance, places.shape))
        return atoms @ residual / jnp.sqrt(jnp.sum(atoms**2, -1) + 1e-30)

    places = _adam(lambda at: -jnp.sum(likeness(at)), places, 30, 0.1)
    return places[jnp.argmax(likeness(places))]


def _adam(loss: Any, start: Any, steps: int, rate: float) -> Any:
    """Descend by Adam with a rate that falls by a cosine; why not by optax: see `dpsep.inference.descent`."""

    def one(carry: Any, number: jax.Array) -> tuple[Any, None]:
        at, first, second = carry
        slope = jax.grad(loss)(at)
        first = jax.tree.map(lambda old, new: 0.9 * old + 0.1 * new, first, slope)
        second = jax.tree.map(lambda old, new: 0.99 * old + 0.01 * new**2, second, slope)
        pace = rate * (0.5 * (1.0 + jnp.cos(jnp.pi * number / steps)) + 0.01)
        early, late = 1.0 - 0.9 ** (number + 1.0), 1.0 - 0.99 ** (number + 1.0)
        at = jax.tree.map(
            lambda place, m, v: place - pace * (m / early) / (jnp.sqrt(v / late) + 1e-12), at, first, second
        )
        return (at, first, second), None

    zeros = jax.tree.map(jnp.zeros_like, start)
    return jax.lax.scan(one, (start, zeros, zeros), jnp.arange(steps))[0][0]


@partial(jax.jit, static_argnames="shape")
def _slopes(
    shape: Shape, guess: Guess, frequencies: jax.Array, offset: jax.Array
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Derivatives of the expected sketch by means (J, 2 m, D), log weights (J, 2 m), levels (J, 2 m, w).

    A component's numbers move its own term only, so components are taken one at a time.
    """
    weight = jax.nn.softmax(guess.log_weight)

    def term(mean: jax.Array, level: jax.Array) -> jax.Array:
        log_variance = _log_variance(shape, Guess(None, mean[None], level[None]), offset)
        return _atoms(frequencies, mean[None], log_variance)[0]

    terms = jax.lax.map(lambda one: term(*one), (guess.mean, guess.level))
    by_mean, by_level = jax.lax.map(
        lambda one: jax.jacfwd(term, argnums=(0, 1))(*one), (guess.mean, guess.level)
    )
    each = weight[:, None, None]
    return by_mean * each, weight[:, None] * (terms - weight @ terms), by_level * each


def _covariances(shape: Shape, slopes: tuple[Any, Any, Any], deviation: float) -> tuple[Array, Array | None]:
    """Covariance of each mean, and of everything found where that is not too much to ask; see the module."""
    by_mean, by_weight, by_level = (np.asarray(part) / deviation for part in slopes)
    components, _, dimension = by_mean.shape
    columns = [np.moveaxis(by_mean, 0, 1).reshape(by_mean.shape[1], -1)]
    if not shape.weights_known:
        columns.append(by_weight.T)
    if shape.variances != "known":
        columns.append(np.moveaxis(by_level, 0, 1).reshape(by_level.shape[1], -1))
    if sum(part.shape[1] for part in columns) > MOST_JOINT:
        alone = np.einsum("jkd,jke->jde", by_mean, by_mean) + np.eye(dimension)
        return np.linalg.inv(alone), None
    flat = np.concatenate(columns, axis=1)
    joint = np.linalg.inv(flat.T @ flat + np.eye(flat.shape[1]))
    size = components * dimension
    parts = joint[:size, :size].reshape(components, dimension, components, dimension)
    return np.einsum("jdje->jde", parts), np.asarray(joint, np.float64)
