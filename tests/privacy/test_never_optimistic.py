"""No figure of privacy is below the truth: every sampling scheme against draws of its privacy loss.

For two laws P, Q of everything released, delta(epsilon) = E_P max(0, 1 - exp(epsilon - L)), L the privacy
loss. A coin with that probability at each draw of L is a Bernoulli variable whose mean is delta, so that its
exact lower confidence bound (Clopper and Pearson, 1934), here with confidence 1 - 1e-6, is one on delta; what
the library tells must not be less. Small deltas are found by drawing from a law under which large losses are
usual. The laws are written down here from tables of records in -1, 0 and 1, not taken from the library;
of each pair both directions are drawn.
"""

import math
from collections.abc import Callable, Iterator
from typing import NamedTuple, cast

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats
from scipy.optimize import brentq

from dpsep.privacy.accounting import Mechanism, Relation, calibrate, rdp_to_delta
from dpsep.privacy.sampling import FixedSizeSampling, FullBatch, PoissonSampling, Sampling, ShuffledEpochs

LEVEL = 1e-6
DRAWS = 30_000
RECORDS = 1000
Array = NDArray[np.float64]


class Pair(NamedTuple):
    """What one release may do to a record: its sampling, two shifts of the sum, and how often it joins."""

    sampling: Sampling
    relation: Relation
    shifts: tuple[float, float]  # of the sum where the record joins, under P and under Q
    rate: float


def pairs(rate: float) -> Iterator[Pair]:
    """Pairs of tables for the schemes that draw records afresh; the others' records are 0, or all -1."""
    poisson, fixed = PoissonSampling(rate), FixedSizeSampling(round(rate * RECORDS))
    yield Pair(poisson, "zero-out", (1.0, 0.0), rate)
    yield Pair(poisson, "replace-one", (1.0, -1.0), rate)
    yield Pair(poisson, "replace-one", (1.0, 0.0), rate)
    yield Pair(fixed, "replace-one", (2.0, 0.0), rate)  # it takes the place of a -1
    yield Pair(fixed, "replace-one", (1.0, -1.0), rate)


def step_losses(pair: Pair, x: Array, sigma: float) -> Array:
    """Log P(x) / Q(x) of each step's outcome."""

    def log_density(shift: float) -> Array:
        with np.errstate(divide="ignore"):
            away = np.log1p(-pair.rate)
        return np.logaddexp(away, math.log(pair.rate) + (shift * x - shift**2 / 2) / sigma**2)

    return log_density(pair.shifts[0]) - log_density(pair.shifts[1])


def losses(pair: Pair, sigma: float, steps: int, forward: bool, seed: int) -> Array:
    """Privacy losses of whole runs, drawn under P against Q, or under Q against P."""
    random = np.random.default_rng(seed)
    shift = pair.shifts[0 if forward else 1]
    total = np.zeros(DRAWS)
    for _ in range(steps):
        joins = random.random(DRAWS) < pair.rate
        total += step_losses(pair, sigma * random.standard_normal(DRAWS) + shift * joins, sigma)
    return total if forward else -total


def proved(loss: Array, epsilon: float, seed: int) -> float:
    """What these losses prove of delta, with confidence 1 - 1e-6."""
    coins = np.random.default_rng(seed).random(loss.size) < -np.expm1(np.minimum(epsilon - loss, 0.0))
    heads = int(coins.sum())
    return float(stats.beta.ppf(LEVEL, heads, loss.size - heads + 1)) if heads else 0.0


def deltas(run: Mechanism) -> Callable[[float], float]:
    """The delta that is told at an epsilon; a Rényi curve, where it decides, is computed once."""
    if not isinstance(run.sampling, FixedSizeSampling):
        return run.delta
    curve = run.rdp_curve()
    return lambda epsilon: rdp_to_delta(curve, epsilon)


GRID = [(0.01, 0.5, 20), (0.02, 1.0, 25), (0.1, 0.7, 1), (0.1, 1.0, 8), (0.1, 3.0, 25), (0.5, 2.0, 8)]


@pytest.mark.parametrize(("rate", "sigma", "steps"), GRID)
def test_sampled_runs_lose_at_most_what_is_told(rate, sigma, steps):
    slack = []
    for number, pair in enumerate(pairs(rate)):
        told = deltas(Mechanism(pair.sampling, pair.relation, steps, sigma, RECORDS))
        for forward in (True, False):
            loss = losses(pair, sigma, steps, forward, seed=number)
            for epsilon in (0.05, float(np.quantile(loss, 0.97))):
                if epsilon < 0:
                    continue
                bound = proved(loss, epsilon, seed=7)
                assert told(epsilon) >= bound
                if pair.relation == "zero-out" and forward and bound > 1e-3:
                    less_noise = Mechanism(pair.sampling, "zero-out", steps, 1.15 * sigma, RECORDS)
                    slack.append(less_noise.delta(epsilon) >= bound)
    # The check has teeth: told of 15 % more noise than there is, delta would be too small.
    assert slack
    assert not all(slack)


@pytest.mark.parametrize(("batches", "sigma"), [(2, 0.8), (10, 1.0), (50, 0.6)])
@pytest.mark.parametrize(("relation", "shifts"), [("zero-out", (2.0, 1.0)), ("replace-one", (2.0, 0.0))])
def test_shuffled_passes_lose_at_most_what_is_told(batches, sigma, relation: Relation, shifts):
    # The others are -1; the record's batch, unknown, is higher by a shift.
    run = Mechanism(ShuffledEpochs(RECORDS // batches), relation, 2 * batches, sigma, RECORDS)
    random = np.random.default_rng(batches)

    def log_density(x: Array, shift: float) -> Array:
        return np.log(np.exp((shift * x - shift**2 / 2) / sigma**2).mean(axis=1))

    for here, there in (shifts, shifts[::-1]):
        loss = np.zeros(DRAWS)
        for _ in range(2):
            x = sigma * random.standard_normal((DRAWS, batches))
            x[:, 0] += here  # which batch it was does not matter to the loss
            loss += log_density(x, here) - log_density(x, there)
        for epsilon in (0.1, 1.0, float(np.quantile(loss, 0.9))):
            assert run.delta(max(epsilon, 0.0)) >= proved(loss, max(epsilon, 0.0), seed=8)


@pytest.mark.parametrize("steps", [1, 30])
@pytest.mark.parametrize("sigma", [0.5, 4.0])
@pytest.mark.parametrize(("relation", "shift"), [("zero-out", 1.0), ("replace-one", 2.0)])
def test_full_batches_lose_exactly_what_is_told(steps, sigma, relation: Relation, shift):
    run = Mechanism(FullBatch(), relation, steps, sigma, RECORDS)
    mu = shift * math.sqrt(steps) / sigma
    loss = mu**2 / 2 + mu * np.random.default_rng(steps).standard_normal(DRAWS)
    for epsilon in np.quantile(np.maximum(loss, 0.0), [0.2, 0.6, 0.95]):
        bound = proved(loss, epsilon, seed=9)
        assert bound <= run.delta(epsilon)
        if bound > 1e-3:
            assert run.delta(epsilon) < bound * (1 + 8 / math.sqrt(bound * DRAWS))


@pytest.mark.parametrize(
    ("rate", "sigma", "steps", "epsilon"),
    [(0.01, 1.0, 50, 1.0), (0.002, 0.8, 100, 2.0), (0.02, 1.5, 40, 0.5), (0.05, 2.0, 20, 0.8)],
)
def test_small_deltas_are_covered_too(rate, sigma, steps, epsilon):
    """Drawn from the law tilted by exp(t L), under which losses about epsilon are usual, and weighed."""
    pair = next(pairs(rate))
    x = np.linspace(-9 * sigma, 12 + 9 * sigma, 400_001)
    loss = step_losses(pair, x, sigma)
    log_masses = stats.norm.logpdf(x, 0, sigma) + loss + math.log(x[1] - x[0])

    def tilted(by: float) -> tuple[float, Array]:
        """Log of the moment generating function of the loss there, and the tilted law."""
        logs = log_masses + by * loss
        scale = float(logs.max() + np.log(np.exp(logs - logs.max()).sum()))
        return scale, np.exp(logs - scale)

    tilt = cast(float, brentq(lambda by: steps * (tilted(by)[1] @ loss) - epsilon, 0.0, 200.0, xtol=1e-3))
    scale, law = tilted(tilt)
    places = np.random.default_rng(steps).random((steps, DRAWS // 2))
    drawn = loss[np.searchsorted(np.cumsum(law) / law.sum(), places)].sum(axis=0)
    log_weight = steps * scale - tilt * drawn
    terms = np.exp(log_weight) * -np.expm1(np.minimum(epsilon - drawn, 0.0))
    mean, error = terms.mean(), terms.std() / math.sqrt(terms.size)
    told = Mechanism(pair.sampling, "zero-out", steps, sigma, RECORDS).delta(epsilon)
    assert told < 2e-6
    assert mean - 6 * error <= told <= (mean + 6 * error) * 1.01 + 1e-12
    assert Mechanism(pair.sampling, "zero-out", steps, 1.2 * sigma, RECORDS).delta(epsilon) < mean - 6 * error


def answered(call: Callable[[], float]) -> bool:
    """Whether a call gives a number that means something; False for a refusal that says why."""
    try:
        value = call()
    except ValueError as error:
        value, reason = None, str(error)
    else:
        reason = ""
    if value is None:
        assert len(reason) > 30, f"no reason: {reason!r}"
        return False
    assert value >= 0  # so it is not NaN
    return True


EXTREMES: list[tuple[Sampling, Relation]] = [
    (PoissonSampling(1e-7), "zero-out"),
    (PoissonSampling(1e-7), "replace-one"),
    (PoissonSampling(0.5), "zero-out"),
    (PoissonSampling(0.5), "replace-one"),
    (FullBatch(), "zero-out"),
    (FullBatch(), "replace-one"),
    (FixedSizeSampling(1), "replace-one"),
    (ShuffledEpochs(1), "replace-one"),
]


@pytest.mark.parametrize(("sampling", "relation"), EXTREMES)
def test_extreme_runs_are_answered_or_refused_with_a_reason(sampling, relation):
    numbers = 0
    for sigma in (1e-3, 0.05, 1e4):
        run = Mechanism(sampling, relation, 10**6, sigma, 10**7)
        for delta in (1e-12, 1e-5):
            numbers += answered(lambda run=run, delta=delta: run.epsilon(delta))
        numbers += answered(lambda run=run: run.delta(100.0))
    assert numbers >= 2


@pytest.mark.parametrize(
    ("sampling", "relation"),
    [
        (PoissonSampling(1e-7), "zero-out"),
        (PoissonSampling(0.5), "zero-out"),
        (FullBatch(), "replace-one"),
        (ShuffledEpochs(1), "replace-one"),
    ],
)
def test_extreme_targets_are_calibrated_or_refused_with_a_reason(sampling, relation):
    for steps, epsilon, delta in (
        (1, 1e-3, 1e-5),
        (1, 100.0, 1e-12),
        (10**6, 1e-3, 1e-12),
        (10**6, 100.0, 1e-5),
    ):
        answered(lambda n=steps, e=epsilon, d=delta: calibrate(e, d, sampling, relation, n, 10**7))
