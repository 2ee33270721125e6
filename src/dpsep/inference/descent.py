r"""Variational inference and point estimates of networks by Adam, from released sums of gradients.

Ascent of the paper's bound (its appendix on DP-VI), for N records and d weights with prior N(0, 1 / lambda),

    F(m, rho) = (1 / N) sum_n E_q log p(y_n | x_n, w) - (beta / N) KL( q || prior ),    q = N(m, exp(2 rho)),

with the sum over records from a gate (`dpsep.models.network_gradients`) over the public expected batch.
The KL term's gradient, beta / N times (lambda m, lambda exp(2 rho) - 1), needs no data and is added outside
the clip. A point estimate is the same with the KL term's part in m alone: a penalty lambda |m|^2 / 2. The
rest is Kingma and Ba's Adam (2015) on released gradients, which are in the units of the contribution, a
learning rate that falls by half a cosine, and the average of the last iterates.

*Noise precision.* Where it is learned, the release holds s, the average of tau E_q (y - f)^2, which is one in
expectation where tau is right. The noise variance v = 1 / tau moves by

    v <- v clip( 1 + w (s - 1), 0.7, 1.4 ),    w = rate / (1 + e^2),

e the known standard deviation of s: a running mean of the estimates s v, in which noisy ones count less. Near
its fixed point log v then has variance of at most e^2 min( w / (2 - w), 1 / (averaged iterates) ) due to
noise; with 2 / N for the records themselves it gives the shape of the Gamma that is reported.

*Adam is our own.* With optax 0.2.8 this file is as long (347 lines) and `dpsep.inference.sketch` four lines
shorter (308), fits agree to the net's tolerance, and a move takes 115 instead of 30 microseconds at 100
weights (128 for 46 at 1000; half as long at 20,000), a search of mixtures 28 instead of 21 ms, the import of
an estimator 2.25 instead of 2.11 s; optax and absl-py would be two more packages to trust.

**Privacy.** Everything here follows from releases and public constants. The Monte Carlo draws are public:
they come from the seed and the number of the step, and hide nothing.
The proof is in docs/proofs/network-gradients.md.
"""

import math
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dpsep.inference.gate_protocol import Summed
from dpsep.models.glm import Columns
from dpsep.models.network_gradients import GradientPublic
from dpsep.privacy.grid import Block

Array = NDArray[np.float64]
Method = Literal["variational", "point"]
"""What is fitted: a Gaussian for every weight, or the weights themselves."""

MOMENTUM, SQUARES, SMALL = 0.9, 0.999, 1e-8
"""Adam's decay of first and second moments, and what keeps it from dividing by zero."""
LOG_DEVIATIONS = (-8.0, 0.5)
"""Bounds of log deviations, in units of the prior's deviation."""
FACTOR = (0.7, 1.4)
"""Bounds of the factor by which the noise variance moves in a step."""
VARIANCES = (1e-6, 1e2)
"""Bounds of the noise variance, in scaled units."""
CERTAIN = 1e6
"""Shape of the Gamma of a noise precision that is known."""


class Defaults(NamedTuple):
    """Public constants of a method that are to suit every data set.

    Attributes
    ----------
    rate, steps
        Of Poisson sampling, and releases; without privacy, the rate is None and steps are passes.
    batch
        Records of a batch without privacy.
    clip
        Of the gradient, in units of sqrt(tau).
    noise_clip, noise_share
        Clip of the noise statistic and its share of the budget.
    learning_rate
        At the start; the rest of its schedule is `Settings`'.
    beta, samples
        Weight of the KL term, and draws of the hidden weights a step.
    mean_scale, log_deviation
        To start from: means are standard normal draws times the first.
    """

    rate: float | None
    batch: int | None
    steps: int
    clip: float
    noise_clip: float
    noise_share: float
    learning_rate: float
    beta: float
    samples: int
    mean_scale: float
    log_deviation: float


# Chosen for networks of 50 hidden units at epsilon 1, delta 1e-5 on made data alone (arm kinematics of 8
# inputs, Friedman's first function, 14 collinear columns, skewed noise, each with 5000 to 10,000 records; a
# target of six values with 1400), one setting for all, by the mean over sets of log RMSE and of the test
# log-likelihood. Both are flat around it: half or twice the clip or the steps costs up to 2% of RMSE.
PRIVATE_DEFAULTS: dict[Method, Defaults] = {
    "variational": Defaults(0.05, None, 2000, 0.25, 9.0, 0.05, 0.04, 1.0, 2, 0.6, -4.0),
    "point": Defaults(0.05, None, 2000, 0.25, 9.0, 0.05, 0.04, 1.0, 1, 0.6, -4.0),
}
# On the same made data, without Friedman's.
OPEN_DEFAULTS: dict[Method, Defaults] = {
    "variational": Defaults(None, 100, 100, math.inf, math.inf, 0.05, 0.01, 1.0, 4, 0.6, -4.0),
    "point": Defaults(None, 100, 100, math.inf, math.inf, 0.05, 0.02, 1.0, 1, 0.6, -4.0),
}


class Settings(NamedTuple):
    """Public constants of a run.

    Attributes
    ----------
    features, outcome
        Maps of the columns.
    method
        ``"variational"`` or ``"point"``.
    steps
        Releases that the learning rate's schedule and the average are laid out for.
    learning_rate, final_rate
        Adam's at the start, and what share of it is left at the end.
    tail
        Share of the steps, at the end, whose iterates are averaged.
    beta
        Weight of the KL term or the penalty.
    prior_precision
        Of every weight.
    samples
        Draws of the hidden weights a step, in pairs of opposite sign.
    learn_noise
        Whether the noise precision is learned, from a block ``noise``, and gradients are in units of its
        square root; else (as for labels, which have none) it stays as it is and the unit is one.
    noise_rate
        How fast it moves, w at most.
    seed
        Of the draws.
    """

    features: Columns
    outcome: Columns
    method: Method
    steps: int
    learning_rate: float
    final_rate: float = 0.3
    tail: float = 0.25
    beta: float = 1.0
    prior_precision: float = 1.0
    samples: int = 2
    learn_noise: bool = True
    noise_rate: float = 0.05
    seed: int = 0


class State(NamedTuple):
    """What is carried.

    Attributes
    ----------
    mean, log_deviation
        Of q, (d,); the second is not used by a point estimate.
    first, second
        Adam's moments of the gradient, (2 d,) or (d,).
    precision
        Of the noise, tau.
    step
        Releases so far.
    averaged
        How many iterates the averages hold.
    average_mean, average_log_deviation, average_log_variance
        Averages of the last iterates and of log (1 / tau).
    """

    mean: Array
    log_deviation: Array
    first: Array
    second: Array
    precision: float
    step: int
    averaged: int
    average_mean: Array
    average_log_deviation: Array
    average_log_variance: float


class Info(NamedTuple):
    """Of one step, all from the release: learning rate, norm of the gradient, noise statistic or NaN."""

    learning_rate: float
    gradient_norm: float
    noise: float


class Estimate(NamedTuple):
    """What is found; a point estimate has deviations zero.

    Attributes
    ----------
    mean, deviation
        Of the weights, (d,).
    shape, rate
        Of a Gamma for the noise precision.
    """

    mean: Array
    deviation: Array
    shape: float
    rate: float


def blocks_of(sizes: dict[str, int], clip: float, noise_clip: float, noise_share: float) -> list[Block]:
    """Return the blocks of a release: names, sizes, clips and shares of the budget.

    Parameters
    ----------
    sizes
        Of a contribution of `dpsep.models.network_gradients`: its ``sizes``.
    clip, noise_clip
        Of the gradient and of the noise statistic; infinite for none.
    noise_share
        Share of the budget for the noise statistic, where there is one.
    """
    if "noise" not in sizes:
        return [Block("gradient", sizes["gradient"], clip)]
    gradient = Block("gradient", sizes["gradient"], clip, 1.0 - noise_share)
    return [gradient, Block("noise", 1, noise_clip, noise_share)]


def init(settings: Settings, mean: Array, log_deviation: float = -3.0, precision: float = 1.0) -> State:
    """Start from these means (random: with equal ones hidden units would never differ)."""
    mean = np.asarray(mean, np.float64)
    zero = np.zeros(mean.size * (2 if settings.method == "variational" else 1))
    spread = np.full(mean.size, log_deviation, np.float64)
    return State(mean, spread, zero, zero, precision, 0, 0, np.zeros_like(mean), np.zeros_like(mean), 0.0)


def public_of(settings: Settings, state: State) -> GradientPublic:
    """Return what contributions need: q, this step's draws, and the noise."""
    samples = np.zeros((1, state.mean.size))
    if settings.method == "variational":
        samples = _draws(settings, state)
    parts = (state.mean, state.log_deviation, samples, np.float64(state.precision))
    return GradientPublic(settings.features, settings.outcome, *parts, np.float64(_unit(settings, state)))  # pyright: ignore


def step(gate: Summed, settings: Settings, state: State) -> tuple[State, Info]:
    """One release and the update that follows from it."""
    return update(gate, settings, state, gate.release(public_of(settings, state)))


def run(gate: Summed, settings: Settings, start: State, steps: int | None = None) -> State:
    """Make `steps` releases, or as many as are left of the schedule."""
    state = start
    for _ in range(settings.steps - start.step if steps is None else steps):
        state, _ = step(gate, settings, state)
    return state


def update(gate: Summed, settings: Settings, state: State, released: dict[str, Array]) -> tuple[State, Info]:
    """Move the state by one release."""
    unit = _unit(settings, state)
    slope = released["gradient"] / gate.expected_batch - pull(settings, state) / (gate.records * unit)
    first = MOMENTUM * state.first + (1.0 - MOMENTUM) * slope
    second = SQUARES * state.second + (1.0 - SQUARES) * slope**2
    count = state.step + 1
    length = learning_rate(settings, state.step)
    move = length * first / (1.0 - MOMENTUM**count)
    move = move / (np.sqrt(second / (1.0 - SQUARES**count)) + SMALL)
    size = state.mean.size
    log_deviation = state.log_deviation
    if settings.method == "variational":
        bounds = np.asarray(LOG_DEVIATIONS) - 0.5 * math.log(settings.prior_precision)
        log_deviation = np.clip(log_deviation + move[size:], *bounds)
    precision, statistic = state.precision, math.nan
    if settings.learn_noise:
        statistic = released["noise"].item() / gate.expected_batch
        factor = np.clip(1.0 + _gain(gate, settings) * (statistic - 1.0), *FACTOR)
        precision = 1.0 / float(np.clip(factor / precision, *VARIANCES))
    moved = state._replace(
        mean=state.mean + move[:size],
        log_deviation=log_deviation,
        first=first,
        second=second,
        precision=precision,
        step=count,
    )
    return _averaged(settings, moved), Info(length, float(np.linalg.norm(slope)), statistic)


def pull(settings: Settings, state: State) -> Array:
    """Gradient of beta KL(q || prior) by mean and log deviation, or of the penalty beta lambda |m|^2 / 2."""
    by_mean = settings.beta * settings.prior_precision * state.mean
    if settings.method == "point":
        return by_mean
    by_log = settings.beta * (settings.prior_precision * np.exp(2.0 * state.log_deviation) - 1.0)
    return np.concatenate([by_mean, by_log])


def learning_rate(settings: Settings, number: int) -> float:
    """Adam's learning rate at a step: half a cosine from the first to the last."""
    done = min(number / max(settings.steps, 1), 1.0)
    left = settings.final_rate + (1.0 - settings.final_rate) * 0.5 * (1.0 + math.cos(math.pi * done))
    return settings.learning_rate * left


def estimate(gate: Summed, settings: Settings, state: State) -> Estimate:
    """Return what the averages of the last iterates say; the last iterate where none was averaged."""
    mean, log_deviation, log_variance = state.mean, state.log_deviation, -math.log(state.precision)
    if state.averaged:
        mean, log_deviation = state.average_mean, state.average_log_deviation
        log_variance = state.average_log_variance
    deviation = np.exp(log_deviation) if settings.method == "variational" else np.zeros_like(mean)
    shape = CERTAIN
    if settings.learn_noise:
        gain = _gain(gate, settings)
        share = min(gain / (2.0 - gain), 1.0 / max(state.averaged, 1))
        shape = 1.0 / (2.0 / gate.records + share * _statistic_variance(gate))
    return Estimate(mean, deviation, shape, shape * math.exp(log_variance))


def _averaged(settings: Settings, state: State) -> State:
    """Take the iterate into the averages where it is one of the last."""
    if state.step <= (1.0 - settings.tail) * settings.steps:
        return state
    count = state.averaged + 1
    log_variance = -math.log(state.precision)
    return state._replace(
        averaged=count,
        average_mean=state.average_mean + (state.mean - state.average_mean) / count,
        average_log_deviation=state.average_log_deviation
        + (state.log_deviation - state.average_log_deviation) / count,
        average_log_variance=state.average_log_variance + (log_variance - state.average_log_variance) / count,
    )


def _unit(settings: Settings, state: State) -> float:
    return math.sqrt(state.precision) if settings.learn_noise else 1.0


def _gain(gate: Summed, settings: Settings) -> float:
    return settings.noise_rate / (1.0 + _statistic_variance(gate))


def _statistic_variance(gate: Summed) -> float:
    """Variance of the noise statistic around its mean over all records: noise, and the sampling of rows."""
    noise = gate.deviations["noise"] / gate.expected_batch
    return noise**2 + 2.0 * (1.0 / gate.expected_batch - 1.0 / gate.records)


def _draws(settings: Settings, state: State) -> Array:
    """Standard normal draws (L, d) in pairs of opposite sign, by seed and step."""
    generator = np.random.default_rng([settings.seed, state.step])
    half = generator.standard_normal((-(-settings.samples // 2), state.mean.size))
    return np.concatenate([half, -half])[: settings.samples]
