r"""Lower bounds on epsilon from an attack's hits and misses, with their confidence.

An attack guesses, from what a run released, whether a record was in the table. A mechanism that is
(epsilon, delta)-DP bounds how often it can be right: with a true positive rate t and a false positive rate f,

.. math:: t \le e^\epsilon f + \delta, \qquad 1 - f \le e^\epsilon (1 - t) + \delta,

and one that is :math:`\mu`-GDP has :math:`\Phi^{-1}(t) - \Phi^{-1}(f) \le \mu` (Dong, Roth and Su, 2022).
Rates are measured with the error of their binomial law: each is replaced by its Clopper-Pearson bound on the
cautious side, at half of the error that the confidence leaves.

**Privacy.** *What a bound proves:* with the stated confidence, the audited mechanism satisfies no smaller
epsilon (for `gaussian`: no smaller epsilon if it is a composition of Gaussian releases, which full-batch runs
are). *What it cannot prove:* that a mechanism is private; an attack that fails may be a weak one.
`dpsep.audit.canary` says how strong its attack is.
"""

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtr, ndtri
from scipy.stats import beta, binom

from dpsep.privacy.gaussian import gaussian_epsilon


class Counts(NamedTuple):
    """How an attack fared.

    Attributes
    ----------
    hits, members
        Guesses "in" among the records that were in, and how many these are.
    alarms, others
        Guesses "in" among the records that were not in, and how many these are.
    """

    hits: int
    members: int
    alarms: int
    others: int


class Bound(NamedTuple):
    """Lower bounds on what a mechanism costs.

    Attributes
    ----------
    epsilon
        By Clopper-Pearson bounds of both rates; no assumption about the mechanism.
    mu, gaussian
        Lower bound on mu, and the epsilon that it means at this delta, for compositions of Gaussian releases.
    delta, confidence
        The delta at which epsilons are counted, and the probability that the bounds hold.

    Examples
    --------
    >>> bound = lower_bound(Counts(hits=900, members=1000, alarms=100, others=1000), delta=1e-5)
    >>> bound.delta, bound.confidence, bound.gaussian > bound.epsilon
    (1e-05, 0.999, True)
    """

    epsilon: float
    mu: float
    gaussian: float
    delta: float
    confidence: float


def lower_bound(counts: Counts, delta: float, confidence: float = 0.999) -> Bound:
    """Return what hits and misses prove.

    Parameters
    ----------
    counts
        Independent trials, the attack's threshold fixed before.
    delta
        At which epsilon is counted.
    confidence
        Of the bounds.

    Examples
    --------
    >>> bound = lower_bound(Counts(hits=900, members=1000, alarms=100, others=1000), delta=1e-5)
    >>> round(bound.epsilon, 2), round(bound.mu, 2)
    (1.86, 2.21)
    >>> lower_bound(Counts(500, 1000, 500, 1000), delta=1e-5)[:3]
    (0.0, 0.0, 0.0)
    """
    error = (1 - confidence) / 2
    low_hit = at_least(counts.hits, counts.members, error)
    high_alarm = 1 - at_least(counts.others - counts.alarms, counts.others, error)
    mu = max(0.0, float(ndtri(low_hit) - ndtri(high_alarm)))
    epsilon = max(
        0.0, _log_ratio(low_hit - delta, high_alarm), _log_ratio(1 - high_alarm - delta, 1 - low_hit)
    )
    gaussian = 0.0 if mu == 0 else gaussian_epsilon(mu, delta)
    return Bound(epsilon, mu, gaussian, delta, confidence)


def counts_at(inside: ArrayLike, outside: ArrayLike, threshold: float) -> Counts:
    """Count scores above a threshold among members and among others.

    Examples
    --------
    >>> counts_at([1.0, 2.0], [-1.0, 2.0, 0.0], threshold=0.5)
    Counts(hits=2, members=2, alarms=1, others=3)
    """
    members, others = np.asarray(inside), np.asarray(outside)
    return Counts(
        int((members > threshold).sum()), members.size, int((others > threshold).sum()), others.size
    )


def at_least(successes: int, trials: int, error: float) -> float:
    """Return Clopper and Pearson's lower bound on a success rate, wrong with probability at most ``error``.

    Examples
    --------
    >>> round(at_least(10, 10, 0.05), 3), at_least(0, 10, 0.05)
    (0.741, 0.0)
    """
    if successes == 0:
        return 0.0
    return float(beta.ppf(error, successes, trials - successes + 1))


def one_run_bound(
    correct: int, guesses: int, canaries: int, delta: float, confidence: float = 0.999
) -> float:
    r"""Return the least epsilon that one run with many canaries does not refute.

    Steinke, Nasr and Jagielski (2023): of ``guesses`` guesses about independent fair bits, a mechanism that
    is (epsilon, delta)-DP lets at least v be right with probability at most

    .. math:: f(v) + 2 m \delta \max_{i \ge 1} (f(v - i) - f(v)) / i, \quad
              f(v) = P(\mathrm{Bin}(r, e^\epsilon / (1 + e^\epsilon)) \ge v).

    No assumption is made about how canaries depend on each other: one release mixes them all.

    Parameters
    ----------
    correct, guesses
        Right guesses, and guesses made; canaries may be left without a guess.
    canaries
        Number of canaries.
    delta, confidence
        As in `lower_bound`.

    Examples
    --------
    >>> one_run_bound(50, 100, 1000, 1e-6)
    0.0
    >>> round(one_run_bound(100, 100, 1000, 1e-6), 2)
    2.61
    """
    if not 0 <= correct <= guesses <= canaries:
        raise ValueError(
            f"{correct} right guesses of {guesses} about {canaries} canaries: each number must not exceed "
            "the next."
        )
    if _chance(correct, guesses, canaries, 0.0, delta) > 1 - confidence:
        return 0.0
    low, high = 0.0, 50.0
    if _chance(correct, guesses, canaries, high, delta) <= 1 - confidence:
        return high
    for _ in range(60):
        middle = (low + high) / 2
        if _chance(correct, guesses, canaries, middle, delta) <= 1 - confidence:
            low = middle
        else:
            high = middle
    return low


def _chance(correct: int, guesses: int, canaries: int, epsilon: float, delta: float) -> float:
    """Return the most probable chance of so many right guesses under (epsilon, delta)."""
    rate = 1 / (1 + math.exp(-epsilon))
    tail: NDArray[np.float64] = np.asarray(binom.sf(np.arange(correct, -1, -1) - 1, guesses, rate))
    steps = np.arange(1, canaries + 1)
    # Below zero right guesses the tail is one.
    reached = np.concatenate([tail[1:], np.ones(max(canaries - correct, 0))])[: len(steps)]
    slope = float(np.max((reached - tail[0]) / steps))
    return float(tail[0]) + 2 * canaries * delta * slope


def gaussian_power(mu: ArrayLike, claimed_mu: float, trials: int, confidence: float = 0.999) -> float:
    """Return the probability that an audit of so many trials a side finds ``mu`` above ``claimed_mu``.

    For the attack that guesses at the middle of the two Gaussians; canaries may have different ``mu``. A
    normal approximation of both counts.

    Examples
    --------
    >>> round(gaussian_power(1.0, 0.5, 4000), 2), round(gaussian_power(0.5, 0.5, 4000), 2)
    (1.0, 0.0)
    """
    rate = float(np.mean(ndtr(np.asarray(mu) / 2)))
    spread = math.sqrt(rate * (1 - rate) / trials)
    needed = float(ndtr(claimed_mu / 2)) - float(ndtri((1 - confidence) / 2)) * math.sqrt(0.25 / trials)
    return float(ndtr((rate - needed) / spread)) if spread > 0 else float(rate > needed)


def _log_ratio(top: float, bottom: float) -> float:
    if top <= 0:
        return 0.0
    return math.inf if bottom <= 0 else math.log(top / bottom)
