r"""White-box canary audit: how well can a release tell whether a worst-case record is there?

The attacker knows everything but one bit: the table, the public values that enter each release, the code,
the noise's law. A *canary* is a slot of the table whose contribution is the worst there can be: a vector far
beyond the clip, clipped, rounded and summed by the gate's own code and released under the gate's noise. Each
canary is in or out by a fair coin. From the releases R_t of a run the attacker computes the likelihood ratio

.. math:: \sum_t \log(1 - r_t + r_t e^{\ell_t}), \qquad
          \ell_t = \langle R_t - O_t, a_t \rangle - |a_t|^2 / 2

where O_t is the sum of everybody else, a_t the canary's clipped contribution, both in units of the declared
noise, and r_t the rate at which records are sampled (1 in a full batch). Under replace-one a canary that is
out is another one, whose contribution is -a_t (where a block can have it), and the ratio is that of the two.
By Neyman and Pearson no attack does better if the noise is what it is declared to be; so for a full batch the
rates of right and wrong guesses come as close to the claimed epsilon as the number of trials lets them. If
noise, clip or sampling let more through than is declared, in the directions that canaries have, they exceed
it. (What canaries do not see: see `dpsep.audit.laws` and `dpsep.audit.replay`.)

Several canaries ride in one run. Their contributions are orthogonal: the i-th has the i-th row of a cosine
transform in every block, and nothing in blocks that have fewer coordinates than that. So the noise that each
of them sees is independent of the others' (for full batches, and for Poisson sampling, whose coins are
independent), and a run gives as many trials as it has canaries. Where batches have a fixed size canaries
share them; then let one ride at a time. `reach` says how much of the declared sensitivity canaries use.

**Privacy.** None: this reads sums before noise, and its runs are seeded. It is for made-up tables. *What a
bound above the claim proves:* the mechanism is not what it claims. *What a bound below proves:* nothing by
itself; `power` says how likely this audit would have found noise half as large as declared.
"""

import math
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dpsep.audit.bounds import Bound, Counts, counts_at, gaussian_power, lower_bound
from dpsep.audit.taps import seeded, tapped
from dpsep.models.frozen import same_functions
from dpsep.privacy.gate import Gate, Reader
from dpsep.privacy.gaussian import gaussian_mu
from dpsep.privacy.grid import Block
from dpsep.privacy.mechanism import Mechanism
from dpsep.privacy.sampling import FullBatch, RowNumbers

Array = NDArray[np.float64]
FAR = 1e3
"""Length of a canary's contribution before the clip, in clips."""


class Trials(NamedTuple):
    """What canaries looked like to the attacker.

    Attributes
    ----------
    inside, outside
        Log likelihood ratios of the canaries that were in, and of those that were not.
    mus
        What separates the two worlds of each canary, in deviations of the declared noise.
    full
        Whether every release read every record.
    epsilon, delta
        What the runs claim.
    """

    inside: Array
    outside: Array
    mus: Array
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

    Examples
    --------
    >>> from dpsep.audit.bounds import Counts, lower_bound
    >>> counts = Counts(hits=900, members=1000, alarms=100, others=1000)
    >>> bound, scores = lower_bound(counts, delta=1e-5), (np.ones(1000), np.zeros(1000))
    >>> found = Audit("canary", 1.0, 1e-5, bound, counts, 2000, 1.0, 0.9, full=False, scores=scores)
    >>> round(found.epsilon, 2), found.caught
    (1.86, True)
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


class Rows(NamedTuple):
    """Contributions of the canaries of a run: what each adds while it is in, and while it is out.

    Attributes
    ----------
    inside, outside
        Rows as a gate reads them, one array a block; a row of NaN adds nothing.
    clipped_in, clipped_out
        What they add after the clip, one array a block.
    """

    inside: tuple[Array, ...]
    outside: tuple[Array, ...]
    clipped_in: tuple[Array, ...]
    clipped_out: tuple[Array, ...]


@dataclass
class Watch:
    """Canaries of one run: their slots, their coins, and what the releases tell of them.

    Parameters
    ----------
    slots
        Row of each canary.
    coins
        Which canaries are in.
    rows
        Contributions by blocks and relation, shared by the runs of an audit. They tell the attacker what to
        look for; what is released is clipped anew every time.
    """

    slots: NDArray[np.int64]
    coins: NDArray[np.bool_]
    rows: dict[Any, Rows] = field(default_factory=dict)
    scores: Array = field(init=False)
    squares: Array = field(init=False)
    full: bool = field(default=True, init=False)
    mechanism: Mechanism = field(init=False)

    def __post_init__(self) -> None:
        self.scores, self.squares = np.zeros(len(self.slots)), np.zeros(len(self.slots))

    def rows_of(self, blocks: tuple[Block, ...], sums: Callable[..., list[NDArray[Any]]]) -> Rows:
        """Return the canaries' contributions to these blocks."""
        key = (blocks, self.mechanism.relation)
        if key not in self.rows:
            count = len(self.slots)
            both = crafted(blocks, count), instead(blocks, count, self.mechanism.relation)
            clipped = []
            for parts in both:
                rider = Reader(parts, 8)
                alone = [sums(rider, AsGiven(), blocks, 0.0, np.array([place])) for place in range(count)]
                clipped.append(tuple(np.stack(part).astype(float) for part in zip(*alone, strict=True)))
            self.rows[key] = Rows(*both, *clipped)
        return self.rows[key]

    def add(self, blocks: tuple[Block, ...], others: list[NDArray[Any]], released: list[Array]) -> None:
        """Take in one release: the likelihood ratio of each canary, given everybody else."""
        mechanism, count = self.mechanism, len(self.slots)
        rows = self.rows[blocks, mechanism.relation]
        log_in, log_out, square = np.zeros(count), np.zeros(count), np.zeros(count)
        for block, rest, part, away, seen in zip(
            blocks, others, rows.clipped_in, rows.clipped_out, released, strict=True
        ):
            deviation = mechanism.sigma * block.clip / math.sqrt(block.share) / block.unit
            weight = 1.0 / (deviation * block.deviations()) ** 2
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
        self.squares += square


def crafted(blocks: tuple[Block, ...], canaries: int) -> tuple[Array, ...]:
    """Return contributions far beyond the clip, one row a canary, orthogonal to each other in every block.

    A histogram has room for as many canaries as it has bins; the others add nothing to such a release.

    Examples
    --------
    >>> parts = crafted((Block("mean", 2, 1.0, 0.5), Block("noise", 1, 2.0, 0.5)), 2)
    >>> [np.round(part).tolist() for part in parts]
    [[[707.0, 707.0], [707.0, -707.0]], [[2000.0], [0.0]]]
    """
    parts: list[Array] = []
    for block in blocks:
        if block.kind == "count":
            bins = np.where(np.arange(canaries) < block.bins, np.arange(canaries, dtype=float), np.nan)
            parts.append(np.repeat(bins[:, None], block.size, 1))
            continue
        rows = np.zeros((canaries, block.size))
        some = np.arange(min(canaries, block.size))[:, None]
        angle = np.pi * some * (2 * np.arange(block.size) + 1) / (2 * block.size)
        length = block.clip if block.kind == "flat" else math.sqrt(block.clip)
        scale = np.where(some == 0, math.sqrt(1 / block.size), math.sqrt(2 / block.size))
        rows[: len(some)] = FAR * length * scale * np.cos(angle)
        parts.append(rows)
    return tuple(parts)


def instead(blocks: tuple[Block, ...], canaries: int, relation: str) -> tuple[Array, ...]:
    """Return what stands in a canary's slot while it is out: nothing, or its opposite under replace-one.

    Products and histograms have no opposite: nothing stands for them.
    """
    parts = crafted(blocks, canaries)
    if relation == "zero-out" or any(block.kind == "count" for block in blocks):
        return tuple(np.full_like(part, np.nan) for part in parts)
    return tuple(
        -part if block.kind == "flat" else 0 * part for block, part in zip(blocks, parts, strict=True)
    )


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
        self: Reader, contribution: Any, blocks: tuple[Block, ...], public: Any, rows: RowNumbers
    ) -> list[NDArray[Any]]:
        others = sums(self, contribution, blocks, public, rows)
        riders = watch.rows_of(blocks, sums)
        there = np.isin(watch.slots, np.asarray(rows))
        taken[:] = others
        found = [other.copy() for other in others]
        for parts, riding in ((riders.inside, there & watch.coins), (riders.outside, there & ~watch.coins)):
            if riding.any():
                added = sums(Reader(parts), AsGiven(), blocks, 0.0, np.flatnonzero(riding))
                found = [total + part for total, part in zip(found, added, strict=True)]
        return found

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

    with tapped(sums=tapped_sums, release=tapped_release, noised=tapped_noised):
        yield


@same_functions()
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
    found: list[tuple[Array, NDArray[np.bool_], Array]] = []
    full, claim = True, None
    rows: dict[Any, Rows] = {}
    for run in range(seed, seed + runs):
        coins = np.random.default_rng([run, 0]).random(canaries) < 0.5
        watch = Watch(slots, coins, rows)
        fitted = seeded(estimator, run)
        with watching(watch), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            fitted.fit(table, *target)
        claim = fitted.privacy_
        found.append((watch.scores, coins, watch.squares))
        full &= watch.full
    if claim is None:
        raise ValueError("an audit needs at least one run.")
    scores, coins, squares = (np.concatenate(part) for part in zip(*found, strict=True))
    seen = squares > 0  # a canary without room in any block tells nothing
    return Trials(
        scores[seen & coins], scores[seen & ~coins], np.sqrt(squares[seen]), full, claim.epsilon, claim.delta
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
    power = reach = math.nan
    if seen.full:
        claimed = gaussian_mu(seen.epsilon, seen.delta)
        reach = float(np.sqrt(np.mean(seen.mus**2))) / claimed
        power = gaussian_power(2 * seen.mus, claimed, min(counts.members, counts.others), confidence)
    return Audit(
        f"{canaries} crafted canaries in {runs} runs",
        seen.epsilon,
        seen.delta,
        bound,
        counts,
        runs,
        reach,
        power,
        seen.full,
        (seen.inside, seen.outside),
    )
