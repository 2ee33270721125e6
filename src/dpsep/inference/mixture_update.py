r"""How the posterior of a mixture's components moves: from released sums to means, weights and variances.

The sums come from one of the contributions of `dpsep.models.mixture_factors`, so one update serves stochastic
EP, mean-field VI and EM, private or not. With n_j the released count of a component, M_j its missing
information (zero for VI and EM) and g_j its mean part, all in units of the component's deviations, the
posterior precision is

    Lambda_j = Lambda_0 + (n_j I - M_j),

that is prior times all local factors, and its mean moves along the summed factors counted from it:

    m_j <- m_j + a_t Lambda_j^-1 ( g_j + Lambda_0 (m_0 - m_j) ).

*Fixed points.* The mean stands still where g + Lambda_0 (m_0 - m) = 0, and Lambda is then the prior plus the
summed factors: these are the fixed points of SEP (of VI, of EM's posterior mode), wherever no eigenvalue is
at its bound (below).

*Convergence.* Eigenvalues of n_j I - M_j are kept within [n_j / 2, n_j]. Steps then are at most twice those
of EM, and EM with over-relaxation below two converges locally wherever EM does.

*Averaging.* Counts, missing information and steps are averaged over releases: a_t = 1 / (t + n0), the start
counting as n0 releases. Each release tells where the mean should be with noise of its own; this is their
running mean, and its noise covariance is carried along: K <- (1 - a)^2 K + a^2 Lambda^-1 (s^2 I) Lambda^-1,
with s^2 that of the gate's noise and, where rows are sampled at a rate p, of the sampling, n_j (1 - p) / p.
This takes a step to land where the mean should be; `dpsep.inference.propagation` does better afterwards.
Noise in counts and variances is carried the same way.

*Priors.* Learned weights have a Dirichlet prior, learned precisions a Gamma prior of shape one and rate 0.01,
as two records would have.

Without privacy a_t = 1 until nothing moves.

*Small components.* A count that noise has driven to almost nothing is kept at a floor of N / (20 J), and a
step at most two deviations long, so that a component that vanishes stays where it was, with a wide posterior.

**Privacy.** Everything here follows from releases and public constants.
The proof is in docs/proofs/mixture-factors.md.
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dpsep.inference.gate_protocol import Summed
from dpsep.inference.threads import one_thread
from dpsep.models.glm import Columns
from dpsep.models.mixture_factors import Public, Variances
from dpsep.theory.mixtures import START_WEIGHT

Array = NDArray[np.float64]

LONGEST = 2.0
"""Longest step of a mean, in deviations of its component."""
PRIOR_VARIANCE, PRIOR_RECORDS = 0.01, 2.0
"""The Gamma prior of learned precisions, as a variance in scaled units and the records it counts as."""
LEAST_VARIANCE = 1e-6
"""Smallest learned variance, in scaled units."""


class Settings(NamedTuple):
    """Public constants of a run; J components, D columns, in scaled units.

    Attributes
    ----------
    columns
        Map of the table's columns.
    prior_mean
        Of the component means, (J, D).
    prior_precision
        Of every component mean, a number.
    weights
        Known weights (J,), or None where they are learned.
    concentration
        Of the Dirichlet prior of learned weights, a number each.
    variances
        Whether and how variances are learned.
    cavity
        Whether contributions want the cavity (stochastic EP) or the posterior itself.
    """

    columns: Columns
    prior_mean: Array
    prior_precision: float
    weights: Array | None
    concentration: float
    variances: Variances
    cavity: bool


class State(NamedTuple):
    """What is carried.

    Attributes
    ----------
    mean, precision
        Of the posterior of each component mean: (J, D), (J, D, D).
    deviation
        Within components, (J, D).
    counts
        Records of each component, (J,).
    missing
        Missing information in units of the deviations, (J, D, D).
    noise
        Covariance of each mean due to noise, (J, D, D).
    count_noise
        Variance of the counts due to noise, one number.
    scatter_noise
        Variance of the relative change of the variances due to noise, (J,).
    step
        Releases so far.
    moved
        Longest step of a mean in the last release, in deviations.
    """

    mean: Array
    precision: Array
    deviation: Array
    counts: Array
    missing: Array
    noise: Array
    count_noise: float
    scatter_noise: Array
    step: int
    moved: float


def init(
    settings: Settings, records: int, mean: Array, variance: Array, weight: Array, spread: Array
) -> State:
    """Start from a guess whose means have this covariance due to noise."""
    dimension = mean.shape[1]
    count = records * weight
    deviation = np.sqrt(variance)
    precision = precision_of(settings, count, np.zeros((len(mean), dimension, dimension)), deviation)
    missing = np.zeros_like(precision)
    return State(mean, precision, deviation, count, missing, spread, 0.0, np.zeros(len(mean)), 0, math.inf)


def weights_of(settings: Settings, state: State) -> Array:
    """Weights: known, or the posterior mean of the Dirichlet."""
    if settings.weights is not None:
        return settings.weights
    mass = np.maximum(state.counts, 0.0) + settings.concentration
    return mass / mass.sum()


def public_of(settings: Settings, state: State, records: int) -> Public:
    """Return what contributions need: the cavity (or the posterior) in units of the deviations."""
    centre, precision = state.mean, state.precision
    if settings.cavity:
        # q / f with f = (q / p0)^(1/N).
        prior = settings.prior_precision * np.eye(precision.shape[-1])
        pull = np.einsum("jde,je->jd", precision, state.mean) * (1.0 - 1.0 / records)
        pull = pull + settings.prior_precision * settings.prior_mean / records
        precision = precision * (1.0 - 1.0 / records) + prior / records
        centre = np.linalg.solve(precision, pull[..., None])[..., 0]
    whitened = precision * state.deviation[:, :, None] * state.deviation[:, None, :]
    information, rotation = np.linalg.eigh(whitened)
    parts = (state.mean, centre, state.deviation, np.log(weights_of(settings, state)))
    return Public(settings.columns, *parts, rotation, np.maximum(information, 1e-300))  # pyright: ignore


def step(gate: Summed, settings: Settings, state: State, gain: float) -> State:
    """One release and the update that follows from it."""
    with one_thread():
        public = public_of(settings, state, gate.records)
    released = gate.release(public)
    with one_thread():
        return update(gate, settings, state, released, gain)


def run(
    gate: Summed,
    settings: Settings,
    start: State,
    steps: int,
    tolerance: float | None = None,
    watch: Callable[[State], None] | None = None,
) -> State:
    """Make `steps` releases, averaged; or, with a tolerance, full steps until no mean moves further.

    Parameters
    ----------
    watch
        Called with the state after each release.
    """
    state = start
    for number in range(1, steps + 1):
        gain = 1.0 / (number + START_WEIGHT) if tolerance is None else 1.0
        state = step(gate, settings, state, gain)
        if watch is not None:
            watch(state)
        if tolerance is not None and state.moved <= tolerance:
            break
    return state


def update(gate: Summed, settings: Settings, state: State, released: dict[str, Array], gain: float) -> State:
    """Move the state by one release; `gain` is the share of the way that it goes."""
    components, dimension = state.mean.shape
    scale = gate.records / gate.expected_batch
    count = state.counts + gain * (scale * released["count"] - state.counts)
    missing = state.missing
    if "missing" in released:
        # The start knows nothing of it: its first release counts whole.
        weight = 1.0 if state.step == 0 else gain
        missing = missing + weight * (scale * _matrices(released["missing"], components) - missing)
    precision = precision_of(settings, count, missing, state.deviation, gate.records)
    slope = scale * released["mean"].reshape(components, dimension) / state.deviation
    slope = slope + settings.prior_precision * (settings.prior_mean - state.mean)
    move = np.linalg.solve(precision, slope[..., None])[..., 0]
    length = np.linalg.norm(move / state.deviation, axis=1)
    move = move * np.minimum(1.0, LONGEST / np.maximum(length, 1e-300))[:, None]
    inverse = np.linalg.inv(precision)
    kept = _kept(count, gate.records)
    fade = (1.0 - gain) ** 2
    sampled = (scale - 1.0) * kept  # variance of sums over rows that are sampled, at about one a record
    noise = inverse / state.deviation[:, None, :]
    noise = noise * np.sqrt((scale * gate.deviations["mean"]) ** 2 + sampled)[:, None, None]
    deviation, scatter_noise = state.deviation, state.scatter_noise
    if settings.variances != "known":
        excess = scale * released["scatter"].reshape(components, -1)
        deviation = _new_deviation(settings, state, excess, kept, inverse, gain)
        spread = (scale * gate.deviations["scatter"]) ** 2 + 2.0 * sampled
        if settings.variances == "spherical":
            spread = spread / dimension
        scatter_noise = fade * scatter_noise + gain**2 * spread / kept**2
    longest = float(np.max(np.linalg.norm(gain * move / state.deviation, axis=1)))
    changed = float(np.max(np.abs(deviation / state.deviation - 1.0)))
    return State(
        state.mean + gain * move,
        precision_of(settings, count, missing, deviation, gate.records),
        deviation,
        count,
        missing,
        fade * state.noise + gain**2 * noise @ np.swapaxes(noise, 1, 2),
        fade * state.count_noise + gain**2 * (scale * gate.deviations["count"]) ** 2,
        scatter_noise,
        state.step + 1,
        max(longest, changed),
    )


def _new_deviation(
    settings: Settings, state: State, excess: Array, kept: Array, inverse: Any, gain: float
) -> Array:
    """Deviations whose squares grow by the released excess, at most twofold a step."""
    dimension = state.mean.shape[1]
    variance = state.deviation**2
    # The mean's own uncertainty is part of the expected square.
    own = np.diagonal(inverse, axis1=1, axis2=2) / variance
    prior = PRIOR_VARIANCE / variance - 1.0
    each = 1
    if settings.variances == "spherical":
        # Public units of the columns differ; a common factor is what the prior speaks of.
        excess, each = excess * math.sqrt(dimension), dimension
        own, prior = own.sum(axis=1, keepdims=True), prior.mean(axis=1, keepdims=True)
    counted = kept[:, None]
    ratio = (excess + counted * own + PRIOR_RECORDS * prior) / (counted * each + PRIOR_RECORDS)
    variance = variance * np.clip(1.0 + gain * ratio, 0.5, 2.0)
    if settings.variances == "spherical":
        # One floor for the row: a component's variances keep their ratios.
        level = np.exp(np.log(variance).mean(axis=1, keepdims=True))
        return np.sqrt(variance * np.maximum(1.0, LEAST_VARIANCE / level))
    return np.sqrt(np.maximum(variance, LEAST_VARIANCE))


def _kept(count: Array, records: int) -> Array:
    """Counts, kept from vanishing."""
    return np.maximum(count, records / (20.0 * len(count)))


def precision_of(
    settings: Settings, count: Array, missing: Array, deviation: Array, records: int | None = None
) -> Array:
    """Prior plus summed factors, in scaled units, with eigenvalues within [1/2, 1] of a count."""
    dimension = missing.shape[-1]
    kept = count if records is None else _kept(count, records)
    values, vectors = np.linalg.eigh(missing)
    values = kept[:, None] - values
    values = np.clip(values, 0.5 * kept[:, None], kept[:, None])
    summed = np.einsum("jdk,jk,jek->jde", vectors, values, vectors)
    summed = summed / deviation[:, :, None] / deviation[:, None, :]
    return summed + settings.prior_precision * np.eye(dimension)


def _matrices(flat: Array, components: int) -> Array:
    """Symmetric matrices from upper triangles with sqrt(2) off the diagonal."""
    triangles = flat.reshape(components, -1)
    dimension = (math.isqrt(8 * triangles.shape[1] + 1) - 1) // 2
    rows, columns = np.triu_indices(dimension)
    matrices = np.zeros((components, dimension, dimension))
    matrices[:, rows, columns] = triangles / np.where(rows == columns, 1.0, math.sqrt(2.0))
    return matrices + np.swapaxes(np.triu(matrices, 1), 1, 2)
