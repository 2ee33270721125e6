r"""White-box canary audit: how well can a release tell whether a worst-case record is there?

The attacker knows everything but one bit: the table, the public values that enter each release, the code,
the noise's law. A *canary* is a slot of the table whose contribution is the worst there can be: a vector far
beyond the clip, which goes through the gate's own clip, rounding, sum and noise like any record's. Each
canary is in or out by a fair coin. From the releases R_t of a run the attacker computes the likelihood ratio

.. math:: \sum_t \log(1 - r_t + r_t e^{\ell_t}), \qquad
          \ell_t = \langle R_t - O_t, a_t \rangle - |a_t|^2 / 2

where O_t is the sum of everybody else, a_t the canary's clipped contribution, both in units of the declared
noise, and r_t the rate at which records are sampled (1 in a full batch). Under replace-one a canary that is
out is another one, whose contribution is -a_t (where a block can have it), and the ratio is that of the two.
By Neyman and Pearson no attack does better if the noise is what it is declared to be; so for a full batch the
rates of right and wrong guesses come as close to the claimed epsilon as the number of trials lets them. If
clip, noise or sampling are not what is declared, they exceed it.

Several canaries ride in one run. Their contributions are orthogonal (the i-th has the i-th coordinate of
every block), so that the noise each of them sees is independent of the others', and a run gives as many
trials as it has canaries. Blocks with fewer coordinates than canaries hold the first ones only; `reach` says
how much of the clip the canaries use on average.

**Privacy.** None: this reads sums before noise, and its runs are seeded. It is for made-up tables. *What a
bound above the claim proves:* the mechanism is not what it claims. *What a bound below proves:* nothing by
itself; `power` says how likely this audit would have found noise half as large as declared.
"""

import math
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone

from dpsep.audit.bounds import Bound, Counts, counts_at, gaussian_power, lower_bound
from dpsep.privacy.gate import Gate, Reader
from dpsep.privacy.gaussian import gaussian_mu
from dpsep.privacy.grid import Block
from dpsep.privacy.mechanism import Mechanism
from dpsep.privacy.sampling import FullBatch

Array = NDArray[np.float64]
FAR = 1e3
"""Length of a canary's contribution before the clip, in clips."""


class Trials(NamedTuple):
    """What canaries looked like to the attacker.

    Attributes
    ----------
    inside, outside
        Log likelihood ratios of the canaries that were in, and of those that were not.
    reach
        Share of the declared sensitivity that canaries use, averaged (root mean square).
    full
        Whether every release read every record.
    epsilon, delta
        What the runs claim.
    """

    inside: Array
    outside: Array
    reach: float
    full: bool
    epsilon: float
    delta: float


class Audit(NamedTuple):
    """What an audit found.

    Attributes
    ----------
    attack
        What was done, in words.
    claimed, delta
        What the estimator claims.
    bound
        What was proved.
    counts
        Guesses, right and wrong.
    runs
        Fits made.
    reach
        Share of the declared sensitivity that the canary used; NaN where it is not known.
    power
        Probability that this audit would have found noise half as large as declared; NaN where not known.
    full
        Whether every release read every record; then `Bound.gaussian` holds.
    scores
        Of members and of others, for a picture.
    """

    attack: str
    claimed: float
    delta: float
    bound: Bound
    counts: Counts
    runs: int
    reach: float
    power: float
    full: bool
    scores: tuple[Array, Array]

    @property
    def epsilon(self) -> float:
        """The largest lower bound on epsilon that holds for this mechanism."""
        return max(self.bound.epsilon, self.bound.gaussian if self.full else 0.0)

    @property
    def caught(self) -> bool:
        """Whether the mechanism was shown to cost more than it claims."""
        return self.epsilon > self.claimed


@dataclass
class Watch:
    """Canaries of one run: their slots, their coins, and what the releases tell of them.

    Parameters
    ----------
    slots
        Row of each canary.
    coins
        Which canaries are in.
    clipped
        Contributions of the canaries after the clip, by blocks: they are the same in every run.
    """

    slots: NDArray[np.int64]
    coins: NDArray[np.bool_]
    clipped: dict[tuple[Block, ...], list[Array]] = field(default_factory=dict)
    scores: Array = field(init=False)
    squares: list[float] = field(default_factory=list, init=False)
    full: bool = field(default=True, init=False)
    mechanism: Mechanism = field(init=False)

    def __post_init__(self) -> None:
        self.scores = np.zeros(len(self.slots))

    def add(self, blocks: tuple[Block, ...], others: list[NDArray[Any]], released: list[Array]) -> None:
        """Take in one release: the likelihood ratio of each canary, given everybody else."""
        mechanism, count = self.mechanism, len(self.slots)
        log_in, log_out, square = np.zeros(count), np.zeros(count), np.zeros(count)
        for block, rest, part, seen in zip(blocks, others, self.clipped[blocks], released, strict=True):
            deviation = mechanism.sigma * block.clip / math.sqrt(block.share) / block.unit
            weight = 1.0 / (deviation * block.deviations()) ** 2
            away = instead(mechanism, block, part)
            log_in += part @ (weight * (seen - rest)) - part**2 @ weight / 2
            log_out += away @ (weight * (seen - rest)) - away**2 @ weight / 2
            square += (part - away) ** 2 @ weight
        rate = mechanism.sampling.expected_batch(mechanism.records) / mechanism.records
        self.full &= isinstance(mechanism.sampling, FullBatch) or rate == 1.0
        if rate < 1.0:
            log_in, log_out = (
                np.logaddexp(math.log1p(-rate), math.log(rate) + one) for one in (log_in, log_out)
            )
        self.scores += log_in - log_out
        self.squares.append(float(square.mean()) * (mechanism.sigma / mechanism.sensitivity) ** 2)


def instead(mechanism: Mechanism, block: Block, part: Array) -> Array:
    """Return what stands in a canary's slot while it is out: nothing, or its opposite under replace-one."""
    return -part if mechanism.relation == "replace-one" and block.kind == "flat" else np.zeros_like(part)


def crafted(blocks: tuple[Block, ...], canaries: int) -> list[Array]:
    """Return contributions far beyond the clip, one row a canary, orthogonal to each other in every block.

    Examples
    --------
    >>> [part.tolist() for part in crafted((Block("mean", 2, 1.0, 0.5), Block("noise", 1, 2.0, 0.5)), 2)]
    [[[1000.0, 0.0], [0.0, 1000.0]], [[2000.0], [0.0]]]
    """
    parts = []
    for block in blocks:
        if block.kind == "count":
            parts.append(np.repeat((np.arange(canaries) % block.bins)[:, None], block.size, 1).astype(float))
            continue
        rows = np.zeros((canaries, block.size))
        some = min(canaries, block.size)
        length = block.clip if block.kind == "flat" else math.sqrt(block.clip)
        rows[np.arange(some), np.arange(some)] = FAR * length
        parts.append(rows)
    return parts


@dataclass(frozen=True)
class AsGiven:
    """The contribution of a row is the row itself: how a canary goes through the gate's own clip."""

    def __call__(self, public: Any, chunk: tuple[Any, ...]) -> tuple[Any, ...]:
        """Return the rows."""
        return tuple(part + 0.0 for part in chunk)


@contextmanager
def watching(watch: Watch) -> Iterator[None]:
    """Let canaries ride in every release of the gates, and tell the watch what came out."""
    sums, release, noised = Reader.sums, Gate.release, Gate._noised
    taken: list[NDArray[Any]] = []
    seen: list[Array] = []

    def tapped_sums(
        self: Reader, contribution: Any, blocks: tuple[Block, ...], public: Any, rows: NDArray[np.int64]
    ) -> list[NDArray[Any]]:
        others = sums(self, contribution, blocks, public, rows)
        count = len(watch.slots)
        if blocks not in watch.clipped:
            rider = Reader(tuple(crafted(blocks, count)), 8)
            alone = [sums(rider, AsGiven(), blocks, 0.0, np.array([place])) for place in range(count)]
            watch.clipped[blocks] = [np.stack(part).astype(float) for part in zip(*alone, strict=True)]
        there = np.isin(watch.slots, rows)
        taken[:] = others
        return [
            other
            + (
                part[there & watch.coins].sum(axis=0)
                + instead(watch.mechanism, block, part)[there & ~watch.coins].sum(axis=0)
            ).astype(np.int64)
            for block, other, part in zip(blocks, others, watch.clipped[blocks], strict=True)
        ]

    def tapped_noised(self: Gate, block: Block, total: NDArray[np.int64]) -> Array:
        found = noised(self, block, total)
        seen.append(np.array(found))
        return found

    def tapped_release(self: Gate, public: Any) -> dict[str, Array]:
        seen.clear()
        watch.mechanism = self.mechanism
        released = release(self, public)
        watch.add(self.blocks, taken, seen)
        return released

    Reader.sums, Gate.release, Gate._noised = tapped_sums, tapped_release, tapped_noised
    try:
        yield
    finally:
        Reader.sums, Gate.release, Gate._noised = sums, release, noised


def trials(
    estimator: Any, X: Array, y: Array | None, *, canaries: int = 16, runs: int = 100, seed: int = 0
) -> Trials:
    """Fit a table with canaries many times and return what the attacker saw of them.

    Parameters
    ----------
    estimator
        A private estimator; it is cloned and seeded for every run.
    X, y
        A made-up table. Rows for canaries, with no value in any cell, are added to it.
    canaries
        How many ride in a run, at most as many as the largest block has coordinates.
    runs, seed
        How many fits, and where their seeds begin.
    """
    canaries = max(1, canaries)
    table = np.concatenate([X, np.full((canaries, X.shape[1]), np.nan)])
    target = () if y is None else (np.concatenate([y, np.full(canaries, np.nan)]),)
    slots = np.arange(len(X), len(table))
    inside, outside, squares, full = [], [], [], True
    claim: Any = None
    clipped: dict[tuple[Block, ...], list[Array]] = {}
    for run in range(seed, seed + runs):
        coins = np.random.default_rng([run, 0]).random(canaries) < 0.5
        watch = Watch(slots, coins, clipped)
        fitted: Any = clone(estimator)
        fitted.set_params(random_state=run)
        with watching(watch), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            fitted.fit(table, *target)
        claim = fitted.privacy_
        inside.append(watch.scores[coins])
        outside.append(watch.scores[~coins])
        squares.append(np.mean(watch.squares))
        full &= watch.full
    if claim is None:
        raise ValueError("an audit needs at least one run.")
    return Trials(
        np.concatenate(inside),
        np.concatenate(outside),
        float(np.sqrt(np.mean(squares))),
        full,
        claim.epsilon,
        claim.delta,
    )


def canary_audit(
    estimator: Any,
    X: Array,
    y: Array | None = None,
    *,
    canaries: int = 16,
    runs: int = 100,
    confidence: float = 0.999,
    seed: int = 0,
) -> Audit:
    """Audit a private estimator by crafted canaries; see the module.

    Parameters
    ----------
    estimator, X, y, canaries, runs, seed
        As in `trials`.
    confidence
        Of the bound.

    Examples
    --------
    >>> from dpsep import LinearRegression
    >>> X, y = np.linspace(-1, 1, 20).reshape(10, 2), np.linspace(-1, 1, 10)
    >>> model = LinearRegression(epsilon=1.0, delta=1e-2, bounds=(-1, 1), target_bounds=(-1, 1), steps=2)
    >>> found = canary_audit(model, X, y, canaries=3, runs=20)
    >>> found.epsilon <= found.claimed, found.caught
    (True, False)
    """
    seen = trials(estimator, X, y, canaries=canaries, runs=runs, seed=seed)
    # The likelihood ratio is one at the middle of the two laws; fixed before the trials.
    counts = counts_at(seen.inside, seen.outside, 0.0)
    bound = lower_bound(counts, seen.delta, confidence)
    power = math.nan
    if seen.full:
        claimed = gaussian_mu(seen.epsilon, seen.delta)
        power = gaussian_power(
            2 * claimed * seen.reach, claimed, min(counts.members, counts.others), confidence
        )
    return Audit(
        f"{canaries} crafted canaries in {runs} runs",
        seen.epsilon,
        seen.delta,
        bound,
        counts,
        runs,
        seen.reach,
        power,
        seen.full,
        (seen.inside, seen.outside),
    )
