r"""Stochastic EP for generalised linear models in its stable form: precision first, mean second.

With S the released sums of local factors, whitened by the cavity and counted from the posterior mean m
(`dpsep.models.glm`), scaled to N records, one step is

    Lambda <- Lambda_0 + (average of the released precisions), floored where noise hides it
    m      <- m + Lambda^-1 ( g + Lambda_0 (m_0 - m) ),   g the released mean part; steps are capped.

*Its interior fixed points are SEP's.* If no clip, floor or cap is active, a fixed point has
Lambda = Lambda_0 + sum_n Lambda_fn, and sum_n g'_n + Lambda_0 (m_0 - m) = 0 with g'_n = eta_fn - Lambda_fn m.
Adding Lambda m to the second gives eta = Lambda m = eta_0 + sum_n eta_fn: with the first, theta = theta_0 +
sum_n theta_fn, the fixed point of the batch form of the paper's equation (4).

*What noise changes.* A released precision is the truth plus symmetric noise whose size follows the geometry
of its own release: L E L^T. Releases are averaged entry by entry in the basis in which both geometries, old
and new, are diagonal, with weights inverse to the noise variances, so a direction that an early, coarse
release could not see is not spoiled by it later. Eigenvalues below a fraction `floor` of the noise level are
raised to it: the geometry tightens by a factor a step until the data, the prior or the noise stops it (the
idea of CoinPress, Biswas et al. 2020). Each step's Newton target for m is averaged by its information
Lambda C^-1 Lambda, C the known covariance of the released mean part: a Kalman filter for a constant state.
Where rows are sampled at a rate p, C holds (1/p - 1) times the precision that the records add, too: about the
spread of a sum over sampled rows where the model is right.
The first `warmup` steps only find the way: their estimates of the mean and of the noise are forgotten, and
their precisions lose half of their weight with every further one.

**Privacy.** Post-processing of what a gate released. This file sees no record: it gets a gate's `release` and
the public numbers beside it. The proof is in docs/proofs/glm.md.
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_solve, eigh, solve_triangular

from dpsep.families import Gamma, Gaussian
from dpsep.inference.gate_protocol import Summed
from dpsep.inference.threads import one_thread
from dpsep.models.glm import Columns, Public

Array = NDArray[Any]


class Settings(NamedTuple):
    """Public constants of a run.

    Attributes
    ----------
    prior_mean, prior_precision
        The prior N(m_0, Lambda_0^-1).
    features, outcome
        Maps of the columns.
    start
        Diagonal of the precision that the likelihood is expected to add, before any data.
    noise
        Prior of the noise precision where it is learned; None otherwise.
    noise_guess
        First guess of the noise precision; one where it is not learned.
    warmup
        Steps that are forgotten.
    floor
        Fraction of the noise's spectral edge that eigenvalues are raised to.
    cap
        Longest step of the mean, as a length in posterior standard deviations; infinite for none.
    reach
        Most that each weight may move in a step; None for no such bound. For weights that likelihoods are far
        from quadratic in, such as logarithms of scales.
    least
        Without noise: how far the geometry may shrink in a step, as a ratio. For likelihoods that are not
        log-concave, whose released precision need not be positive before the mean is near the fixed point.
    hindsight
        Whether all mean parts that count are used again with the latest precision at every step. Where noise
        hides the precision for long, early steps fall short of the fixed point and their average does, too.
    parts
        Part of each weight, 0, 1, ...: the averaged precision is drawn towards the start, scaled part by
        part, by as much as its noise says (James and Stein). None for not at all.
    """

    prior_mean: Array
    prior_precision: Array
    features: Columns
    outcome: Columns
    start: Array
    noise: Gamma | None = None
    noise_guess: float = 1.0
    warmup: int = 0
    floor: float = 0.4
    cap: float = math.inf
    reach: Array | None = None
    least: float = 0.0
    hindsight: bool = False
    parts: NDArray[np.int64] | None = None


class State(NamedTuple):
    """What is carried from step to step: functions of released vectors only.

    Attributes
    ----------
    mean
        Posterior mean.
    geometry
        Precision that the likelihood adds, at noise precision one.
    precision, blur
        Average of the released precisions (at noise precision one), and the geometry of its noise.
    information, target
        Sum of the informations of the mean's estimates, and of information times estimate.
    noise, noise_weight
        Posterior of the noise precision, and the weight of its average.
    step
        Number of releases used.
    seen
        With hindsight: the released mean parts that count.
    """

    mean: Array
    geometry: Array
    precision: Array
    blur: Array
    information: Array
    target: Array
    noise: Gamma
    noise_weight: float
    step: int
    seen: tuple["Seen", ...] = ()

    @property
    def scale(self) -> float:
        """Expected noise precision."""
        return float(self.noise.mean)


class Seen(NamedTuple):
    """A released mean part, where it was taken, and the inverse of its noise covariance."""

    at: Array
    gradient: Array
    weight: Array


class Info(NamedTuple):
    """Diagnostics of a step, all from released quantities: how far the mean moved, in posterior sds."""

    moved: float


def init(settings: Settings) -> State:
    """State before any release: the prior mean, and a geometry guessed without data."""
    d = len(settings.prior_mean)
    zeros = np.zeros((d, d))
    guess = settings.noise_guess
    # The guess carries no weight; any shape gives the same first step.
    noise = _gamma(1.0, 1.0 / guess)
    start = np.diag(settings.start)
    return State(settings.prior_mean.copy(), start, zeros, zeros, zeros, np.zeros(d), noise, 0.0, 0)


def step(gate: Summed, settings: Settings, state: State) -> tuple[State, Info]:
    """One release, and the update from it."""
    # Threads cost more than they bring on matrices of this size.
    with one_thread():
        public, factor = publish(settings, state, gate.records)
    released = gate.release(public)
    with one_thread():
        return update(gate, settings, state, factor, released)


def publish(settings: Settings, state: State, records: int) -> tuple[Public, Array]:
    """Return what contributions may depend on, and the Cholesky factor of the cavity precision."""
    prior = settings.prior_precision
    precision = prior + state.scale * state.geometry
    cavity = precision - (precision - prior) / records
    eta, eta_0 = precision @ state.mean, prior @ settings.prior_mean
    factor = np.linalg.cholesky(cavity)
    cavity_mean = cho_solve((factor, True), eta - (eta - eta_0) / records)
    half = solve_triangular(factor, np.eye(len(factor)), lower=True)
    noise = _noise_cavity(settings, state, records)
    centre: Any = state.mean
    return Public(settings.features, settings.outcome, half, cavity_mean, centre, noise), factor


def update(
    gate: Summed, settings: Settings, state: State, factor: Array, released: dict[str, Array]
) -> tuple[State, Info]:
    """Precision first, mean second, then the noise."""
    up = gate.records / gate.expected_batch
    deviations = {name: value * up for name, value in gate.deviations.items()}
    warm = state.step < settings.warmup
    # What is held when the first step that counts arrives is the last warm one; it goes too.
    forget = state.step <= settings.warmup
    scale = state.scale
    fresh = factor @ (up * released["precision"]) @ factor.T / scale
    blur = (factor @ factor.T) * (deviations["precision"] / scale)
    precision, blur = _average(state, fresh, blur, forget=warm)
    geometry = _floored(_drawn(precision, blur, settings), blur, state.geometry, settings)
    posterior = settings.prior_precision + scale * geometry
    gradient = factor @ (up * released["mean"])
    gradient += settings.prior_precision @ (settings.prior_mean - state.mean)
    damped = posterior + (_edge(len(blur)) * settings.floor * scale) * blur if warm else posterior
    move = np.linalg.solve(damped, gradient)
    length = math.sqrt(float(move @ posterior @ move))
    move *= min(1.0, settings.cap / length) if length > 0 else 1.0
    if settings.reach is not None:
        move /= max(1.0, float(np.max(np.abs(move) / settings.reach)))
    root = _root(factor, deviations["mean"], up, scale * geometry)
    spread = np.linalg.solve(damped, root)
    seen: tuple[Seen, ...] = ()
    if settings.hindsight and deviations["mean"] > 0 and not warm:
        half = solve_triangular(root, np.eye(len(root)), lower=True)
        seen = (*state.seen, Seen(state.mean, gradient, half.T @ half))
        information, target = _again(posterior, seen)
    else:
        information, target = _filter(state, state.mean + move, spread, forget=forget)
    mean = np.linalg.solve(information, target) if deviations["mean"] > 0 else state.mean + move
    noise, weight = _noise(settings, state, released, up, deviations, forget, gate.records)
    moved = float(np.linalg.norm(np.linalg.cholesky(posterior).T @ (mean - state.mean)))
    after = State(mean, geometry, precision, blur, information, target, noise, weight, state.step + 1, seen)
    return after, Info(moved)


def run(
    gate: Summed,
    settings: Settings,
    steps: int,
    tolerance: float = 0.0,
    watch: Callable[[State], None] | None = None,
) -> State:
    """Take `steps` steps; stop earlier only where nothing is private and the mean rests.

    Parameters
    ----------
    tolerance
        In posterior standard deviations; ignored where the gate adds noise.
    watch
        Called with the state after each step.
    """
    noisy = any(value > 0 for value in gate.deviations.values())
    state = init(settings)
    for _ in range(steps):
        state, info = step(gate, settings, state)
        if watch is not None:
            watch(state)
        if not noisy and info.moved < tolerance:
            break
    return state


def posterior(settings: Settings, state: State) -> Gaussian:
    """The approximate posterior q of the weights, in natural parameters (arrays of NumPy)."""
    precision = settings.prior_precision + state.scale * state.geometry
    return Gaussian(precision @ state.mean, precision)  # pyright: ignore[reportArgumentType]


def noise_covariance(state: State) -> Array:
    """Covariance of the posterior mean that the gate's noise causes; zero without noise."""
    if not state.information.any():
        return np.zeros_like(state.information)
    return np.linalg.inv(state.information)


def _gamma(shape: float, rate: float) -> Gamma:
    return Gamma(np.asarray(shape - 1.0), np.asarray(rate))  # pyright: ignore[reportArgumentType]


def _noise_cavity(settings: Settings, state: State, records: int) -> Gamma:
    """Posterior of the noise precision without one of its N factors, as for the weights."""
    if settings.noise is None:
        return state.noise
    shape, rate = float(state.noise.shape), float(state.noise.rate)
    prior = settings.noise
    return _gamma(shape - (shape - float(prior.shape)) / records, rate - (rate - float(prior.rate)) / records)


def _edge(d: int) -> float:
    """Spectral edge of symmetric noise with unit variance on the diagonal and one half off it."""
    return math.sqrt(2 * d)


def _whiten(factor: Array, matrix: Array) -> Array:
    half = solve_triangular(factor, matrix, lower=True)
    full = solve_triangular(factor, half.T, lower=True)
    return (full + full.T) / 2


def _average(state: State, fresh: Array, blur: Array, *, forget: bool) -> tuple[Array, Array]:
    """Average of released precisions, entry by entry in the basis common to both noise geometries."""
    if not blur.any() or state.step == 0:
        return fresh, blur
    old = state.blur * (2.0 if forget else 1.0)
    factor = np.linalg.cholesky(blur)
    ratio, vectors = eigh(_whiten(factor, old))
    basis = factor @ vectors  # old = basis diag(ratio) basis^T, new = basis basis^T
    back = vectors.T @ solve_triangular(factor, np.eye(len(factor)), lower=True)
    odds = np.outer(ratio, ratio)
    weight = odds / (1.0 + odds)
    mixed = (1.0 - weight) * (back @ state.precision @ back.T) + weight * (back @ fresh @ back.T)
    left = ratio / np.sqrt(1.0 + ratio**2)
    return basis @ mixed @ basis.T, (basis * left) @ basis.T


def _floored(precision: Array, blur: Array, before: Array, settings: Settings) -> Array:
    """Raise what noise hides: eigenvalues relative to min(floor * edge * blur, the geometry before)."""
    floor = settings.floor
    if not blur.any():
        return precision if settings.least == 0 else _raised(precision, settings.least * before)
    factor = np.linalg.cholesky(before)
    level, vectors = eigh(_whiten(factor, blur))
    basis = factor @ vectors
    # Never above the geometry before: noise that hides everything must not loosen what is known.
    lowest = (basis * np.minimum(floor * _edge(len(blur)) * level, 1.0)) @ basis.T
    return _raised(precision, (lowest + lowest.T) / 2)


def _drawn(precision: Array, blur: Array, settings: Settings) -> Array:
    """Draw an averaged precision towards the start, by as much as its noise says.

    In coordinates whitened by the noise every entry of the triangle has unit variance (off the diagonal one
    half, twice). There the start, cut into parts, is fitted by least squares; what is left has the noise's
    d (d + 1) / 2 and, beyond that, what the data say.
    """
    if settings.parts is None or not blur.any():
        return precision
    factor = np.linalg.cholesky(blur)
    seen = _whiten(factor, precision)
    guesses = [
        _whiten(factor, np.diag(np.where(settings.parts == part, settings.start, 0.0)))
        for part in range(int(settings.parts.max()) + 1)
    ]
    matrix = np.array([[float(np.sum(one * other)) for other in guesses] for one in guesses])
    sizes = np.linalg.solve(matrix, [float(np.sum(one * seen)) for one in guesses])
    # A part hidden by noise keeps a tenth of its guess at least: it must stay a precision.
    guess = sum((max(size, 0.1) * one for size, one in zip(sizes, guesses, strict=True)), np.zeros_like(seen))
    rest = seen - guess
    noise, d = float(np.sum(rest**2)), len(blur)
    keep = max(0.0, 1.0 - d * (d + 1) / 2 / noise) if noise > 0 else 1.0
    back = factor @ (guess + keep * rest) @ factor.T
    return (back + back.T) / 2


def _raised(precision: Array, lowest: Array) -> Array:
    """Raise the eigenvalues of a matrix relative to another to at least one."""
    factor = np.linalg.cholesky(lowest)
    value, vectors = eigh(_whiten(factor, precision))
    basis = factor @ vectors
    raised = (basis * np.maximum(value, 1.0)) @ basis.T
    return (raised + raised.T) / 2


def _root(factor: Array, deviation: float, up: float, geometry: Array) -> Array:
    """Cholesky factor of the covariance of a released mean part: noise of the gate, and of sampled rows."""
    if up <= 1.0 or deviation == 0.0:
        return factor * deviation
    covariance = deviation**2 * (factor @ factor.T) + (up - 1.0) * geometry
    return np.linalg.cholesky((covariance + covariance.T) / 2)


def _filter(state: State, estimate: Array, spread: Array, *, forget: bool) -> tuple[Array, Array]:
    """Add an estimate with covariance spread spread^T to the information held."""
    if not spread.any():
        return state.information, state.target
    half = np.linalg.inv(spread)
    information = half.T @ half
    keep = 0.0 if forget else 1.0
    return keep * state.information + information, keep * state.target + information @ estimate


def _again(posterior: Array, seen: tuple[Seen, ...]) -> tuple[Array, Array]:
    """Information and information times estimate of the mean, of all mean parts under one precision.

    A mean part g taken at m is Lambda (m* - m) plus noise of covariance C: it says that m* is m + Lambda^-1
    g, with information Lambda C^-1 Lambda.
    """
    weight = sum((one.weight for one in seen), np.zeros_like(posterior))
    pull = sum((one.weight @ (posterior @ one.at + one.gradient) for one in seen), np.zeros(len(posterior)))
    information = posterior @ weight @ posterior
    return (information + information.T) / 2, posterior @ pull


def _noise(
    settings: Settings,
    state: State,
    released: dict[str, Array],
    up: float,
    deviations: dict[str, float],
    forget: bool,
    records: int,
) -> tuple[Gamma, float]:
    """Posterior of the noise precision: averages of released factors, within a factor of 20 a step."""
    if settings.noise is None:
        return state.noise, 0.0
    shape_part, rate_part = up * released["noise"]
    prior = settings.noise
    scale = float(_noise_cavity(settings, state, records).mean)  # what contributions were divided by
    shape = float(prior.shape) + records / 2 + float(np.clip(shape_part, -records / 4, records / 4))
    rate = float(prior.rate) + float(np.clip(rate_part, records / 40, 10.0 * records)) / scale
    weight = 1.0 / deviations["noise"] ** 2 if deviations["noise"] > 0 else 1.0
    if forget or state.noise_weight == 0 or deviations["noise"] == 0:
        return _gamma(shape, rate), weight
    total = state.noise_weight + weight
    mix = weight / total
    old = state.noise
    return _gamma((1 - mix) * float(old.shape) + mix * shape, (1 - mix) * float(old.rate) + mix * rate), total
