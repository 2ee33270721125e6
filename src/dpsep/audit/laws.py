"""Are noise and coins what is declared? Tests of their laws on the runs of any private estimator.

A canary sees noise that is too small; it does not see noise that comes twice, or batches that are not drawn
as the accountant believes. These tests look from inside the gate, over many seeded runs: at the noise (its
deviation, and that no two releases share any of it) and at the rows read (each record by a coin of its own in
every step, with the declared rate).

**Privacy.** None: this reads sums before noise and the rows of batches. It is for made-up tables. A finding
is reported at a level at which a sound run shows one once in a million times.
"""

import math
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.stats import binom, chi2, norm

from dpsep.audit.taps import seeded, tapped
from dpsep.privacy.gate import Gate, Reader
from dpsep.privacy.grid import Block
from dpsep.privacy.sampling import FixedSizeSampling, PoissonSampling, RowNumbers, Sampling, ShuffledEpochs

Array = NDArray[np.float64]
LEVEL = 1e-6
"""Probability of a finding in a sound run."""


class Step(NamedTuple):
    """One release from inside the gate.

    Attributes
    ----------
    noise
        Noise of all coordinates, in units of its declared deviation.
    rows
        Which records were read.
    sampling, records
        What was declared of them.
    """

    noise: Array
    rows: NDArray[np.int64]
    sampling: Sampling
    records: int


def steps_of(estimator: Any, X: Array, y: Array | None, *, runs: int, seed: int = 0) -> list[list[Step]]:
    """Fit a table many times with seeded noise; return the releases of each fit.

    Examples
    --------
    >>> from dpsep import LinearRegression
    >>> X, y = np.linspace(-1, 1, 40).reshape(20, 2), np.linspace(-1, 1, 20)
    >>> model = LinearRegression(delta=1e-3, bounds=(-1, 1), target_bounds=(-1, 1), steps=3)
    >>> [len(fit) for fit in steps_of(model, X, y, runs=2)]
    [13, 13]
    """
    found = []
    for run in range(seed, seed + runs):
        fitted = seeded(estimator, run)
        steps: list[Step] = []
        with _looking(steps), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            fitted.fit(X, *(() if y is None else (y,)))
        found.append(steps)
    return found


def noise_findings(runs: list[list[Step]]) -> list[str]:
    """Return what is wrong with the noise: its deviation, or that releases share it.

    Parameters
    ----------
    runs
        As from `steps_of`.

    Examples
    --------
    >>> from dpsep.privacy.sampling import FullBatch
    >>> noise = np.random.default_rng(0).standard_normal((8, 500))
    >>> sound = [[Step(row, np.arange(3), FullBatch(), 3) for row in noise]]
    >>> noise_findings(sound)
    []
    >>> noise_findings([[step._replace(noise=step.noise / 2) for step in sound[0]]])
    ['deviation of the noise: 0.499 of what is declared']
    >>> noise_findings([[*sound[0][:2], *sound[0][:2]]])
    ['noise of releases 2 apart: correlation 1.000']
    """
    found = []
    everything = np.concatenate([step.noise for steps in runs for step in steps])
    square = float(np.sum(everything**2))
    low, high = chi2.ppf([LEVEL / 4, 1 - LEVEL / 4], everything.size)
    if not low <= square <= high:
        share = math.sqrt(square / everything.size)
        found.append(f"deviation of the noise: {share:.3f} of what is declared")
    pairs = {
        f"releases {lag} apart": [
            (one, two) for steps in runs for one, two in zip(steps, steps[lag:], strict=False)
        ]
        for lag in (1, 2, 3)
    }
    pairs["the first releases of two runs"] = [(one[0], two[0]) for one, two in pairwise(runs)]
    for name, both in pairs.items():
        if not both:
            continue
        one, two = (np.concatenate([pair[place].noise[: _common(pair)] for pair in both]) for place in (0, 1))
        size = float(np.linalg.norm(one) * np.linalg.norm(two))
        correlation = float(one @ two) / size if size > 0 else 1.0
        if abs(correlation) * math.sqrt(len(one)) > norm.isf(LEVEL / 16):
            found.append(f"noise of {name}: correlation {correlation:.3f}")
    return found


def _common(pair: tuple[Step, Step]) -> int:
    """Releases of different blocks are compared as far as both go."""
    return min(len(pair[0].noise), len(pair[1].noise))


def sampling_findings(runs: list[list[Step]]) -> list[str]:
    """Return what is wrong with the rows that were read, against the declared sampling.

    Parameters
    ----------
    runs
        As from `steps_of`; every fit should make many releases.

    Examples
    --------
    >>> generator = np.random.default_rng(0)
    >>> poisson = PoissonSampling(0.25)
    >>> coins = generator.random((400, 40)) < 0.25
    >>> sampling_findings([[Step(np.zeros(1), np.flatnonzero(row), poisson, 40) for row in coins]])
    []
    >>> blocks = np.stack([np.roll(np.arange(40) < 10, 10 * step) for step in range(400)])
    >>> sampling_findings([[Step(np.zeros(1), np.flatnonzero(row), poisson, 40) for row in blocks]])[0]
    'sizes of batches vary 0.000 times as much as those of Poisson sampling at rate 0.25'
    """
    found: list[str] = []
    for sampling in {step.sampling for steps in runs for step in steps}:
        table = [[step for step in steps if step.sampling == sampling] for steps in runs]
        coins = np.stack([_coins(step) for steps in table for step in steps])
        if isinstance(sampling, PoissonSampling) and sampling.rate < 1:
            found += _unlike_poisson(coins, table, sampling)
        elif isinstance(sampling, FixedSizeSampling | ShuffledEpochs):
            found += _unlike_batches(coins, sampling)
        elif not coins.all():
            found.append(f"{sampling.describe()} left records out")
    return found


def _unlike_poisson(coins: Array, table: list[list[Step]], sampling: PoissonSampling) -> list[str]:
    rate, name = sampling.rate, sampling.describe()
    spread = rate * (1 - rate)
    found = []
    read = int(coins.sum())
    if min(binom.cdf(read, coins.size, rate), binom.sf(read - 1, coins.size, rate)) < LEVEL / 8:
        found.append(f"records are read at rate {coins.mean():.4f} under {name}")
    sizes = coins.sum(axis=1)
    squares = float(np.sum((sizes - rate * coins.shape[1]) ** 2) / (spread * coins.shape[1]))
    if _too_odd(squares, len(sizes), spread * coins.shape[1]):
        share = float(np.var(sizes) / (spread * coins.shape[1]))
        found.append(f"sizes of batches vary {share:.3f} times as much as those of {name}")
    # Within a fit, how often each record was read: dealt out evenly by passes, independent by coins.
    squares, count, least = 0.0, 0, math.inf
    for steps in table:
        taken = np.sum([_coins(step) for step in steps], axis=0)
        squares += float(np.sum((taken - rate * len(steps)) ** 2) / (spread * len(steps)))
        count += len(taken)
        least = min(least, spread * len(steps))
    if _too_odd(squares, count, least):
        found.append(f"records are read {squares / count:.3f} times as unevenly as by {name}")
    return found


def _unlike_batches(coins: Array, sampling: FixedSizeSampling | ShuffledEpochs) -> list[str]:
    sizes = coins.sum(axis=1)
    return [f"{sampling.describe()} made batches of different sizes"] if np.ptp(sizes) > 1 else []


def _too_odd(squares: float, count: int, variance: float) -> bool:
    """Whether a sum of squares of standardised binomials is far from its mean, on either side.

    Binomials of little variance are far from normal, and nothing is said of them; of the others, fourth
    moments are those of a normal to within the inverse of the variance, and a fifth more room is given.
    """
    if variance < 4:
        return False
    limit = 1.2 * float(norm.isf(LEVEL / 8)) * math.sqrt((2 + 1 / variance) * count)
    return abs(squares - count) > limit


def _coins(step: Step) -> Array:
    taken = np.zeros(step.records)
    taken[step.rows] = 1.0
    return taken


@contextmanager
def _looking(steps: list[Step]) -> Iterator[None]:
    """Write down noise and rows of every release."""
    sums, release, noised = Reader.sums, Gate.release, Gate._noised
    rows_read: list[NDArray[np.int64]] = []
    parts: list[Array] = []

    def tapped_sums(
        self: Reader, contribution: Any, blocks: tuple[Block, ...], public: Any, rows: RowNumbers
    ) -> list[NDArray[Any]]:
        rows_read.append(np.array(rows))
        return sums(self, contribution, blocks, public, rows)

    def tapped_noised(self: Gate, block: Block, total: NDArray[np.int64]) -> Array:
        found = noised(self, block, total)
        deviation = self.deviations[block.name] / block.unit * block.deviations()
        parts.append((found - total) / deviation)
        return found

    def tapped_release(self: Gate, public: Any) -> dict[str, Array]:
        parts.clear()
        released = release(self, public)
        mechanism = self.mechanism
        steps.append(Step(np.concatenate(parts), rows_read[-1], mechanism.sampling, mechanism.records))
        return released

    with tapped(sums=tapped_sums, release=tapped_release, noised=tapped_noised):
        yield
