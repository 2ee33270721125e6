"""Accounting in one place: what a run costs, and the noise that meets a target.

`Mechanism` and `Schedule` (see `dpsep.privacy.mechanism`) say what a run does and answer for its epsilon;
`calibrate` and `calibrate_schedule` invert that answer. The closed forms and the Rényi conversions that a
ledger needs are exported here too.

**Privacy.** Calibration looks at public numbers only. Its answer is checked with the very function that
reports epsilon afterwards, so a calibrated run never reports more than its target; nothing here is an
approximation from below.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import lru_cache

from dpsep.privacy.gaussian import gaussian_delta, gaussian_epsilon, gaussian_mu
from dpsep.privacy.mechanism import Mechanism, Relation, Schedule, UnsupportedPair, gaussian_event
from dpsep.privacy.pld import TOLERANCE, AccountingRefused
from dpsep.privacy.rdp import RDP_ORDERS, rdp_to_delta, rdp_to_epsilon
from dpsep.privacy.sampling import Sampling

__all__ = [
    "RDP_ORDERS",
    "AccountingRefused",
    "Mechanism",
    "Relation",
    "Schedule",
    "UnsupportedPair",
    "calibrate",
    "calibrate_schedule",
    "compose",
    "gaussian_delta",
    "gaussian_epsilon",
    "gaussian_event",
    "gaussian_mu",
    "rdp_to_delta",
    "rdp_to_epsilon",
]

MIN_SIGMA = 0.04
"""The least noise that `calibrate` answers with where sampling alone already meets the target."""
_MAX_SIGMA = 1e9
_ROUGH = 2e-2
_CLOSE = 1e-3  # a calibrated epsilon lies at most this far below its target


def compose(mechanisms: Sequence[Mechanism], delta: float) -> float:
    """Return the epsilon at ``delta`` of mechanisms whose parameters are all fixed beforehand.

    Examples
    --------
    >>> from dpsep.privacy.sampling import FullBatch
    >>> once = Mechanism(FullBatch(), "zero-out", steps=1, sigma=5.0, records=1000)
    >>> round(compose([once], 1e-5), 2), round(compose([once, once], 1e-5), 2)
    (0.73, 1.06)
    """
    return Schedule(tuple(mechanisms)).epsilon(delta)


def calibrate(
    target_epsilon: float,
    target_delta: float,
    sampling: Sampling,
    relation: Relation,
    steps: int,
    records: int,
) -> float:
    """Return the least noise, over the clip norm, that keeps a run within a target.

    Parameters
    ----------
    target_epsilon, target_delta
        The epsilon of the answer at this delta never exceeds the target and lies at most 0.1 % below it
        (further below where sampling alone meets the target and the answer is `MIN_SIGMA`).
    sampling, relation, steps, records
        As in `Mechanism`.

    Examples
    --------
    >>> from dpsep.privacy.sampling import FullBatch
    >>> round(calibrate(1.0, 1e-5, FullBatch(), "zero-out", steps=1, records=1000), 2)
    3.73
    """
    start = Mechanism(sampling, relation, steps, 1.0, records)
    return calibrate_schedule(target_epsilon, target_delta, (start,)).parts[0].sigma


def calibrate_schedule(target_epsilon: float, target_delta: float, parts: Sequence[Mechanism]) -> Schedule:
    """Return a schedule within a target whose noises keep the ratios of the ones given.

    Parameters
    ----------
    target_epsilon, target_delta
        As in `calibrate`.
    parts
        The mechanisms; only the ratios of their ``sigma`` matter.

    Examples
    --------
    >>> from dpsep.privacy.sampling import FullBatch
    >>> scaling = Mechanism(FullBatch(), "zero-out", steps=1, sigma=3.0, records=1000)
    >>> fit = Mechanism(FullBatch(), "zero-out", steps=20, sigma=1.0, records=1000)
    >>> found = calibrate_schedule(1.0, 1e-5, [scaling, fit])
    >>> [round(part.sigma, 1) for part in found.parts], round(found.epsilon(1e-5), 3)
    ([50.2, 16.7], 1.0)
    """
    if not 0 < target_epsilon < math.inf or not 0 < target_delta < 1:
        raise ValueError(
            f"a target needs epsilon > 0 and 0 < delta < 1, not {target_epsilon} and {target_delta}."
        )
    return _calibrated(float(target_epsilon), float(target_delta), Schedule(tuple(parts)))


@lru_cache(maxsize=256)
def _calibrated(target_epsilon: float, target_delta: float, given: Schedule) -> Schedule:
    """Search for the noise; the same question is asked again at every fit with the same public numbers."""
    parts = given.parts

    def scaled(factor: float) -> Schedule:
        return Schedule(tuple(replace(part, sigma=part.sigma * factor) for part in given.parts))

    mu = gaussian_mu(target_epsilon, target_delta)
    if all(part.is_gaussian for part in parts):
        factor = math.hypot(*(part.mu for part in parts)) / mu
        while scaled(factor).epsilon(target_delta) > target_epsilon:  # by a rounding at most
            factor *= 1 + 1e-12
        return scaled(factor)
    floor = MIN_SIGMA / min(part.sigma for part in parts)
    factor = max(_central_limit_factor(given, mu), floor)
    for tolerance, stride in ((_ROUGH, 1.2), (TOLERANCE, 1.01)):  # near first, with a cheap upper bound
        factor = _search(
            lambda at, tolerance=tolerance: scaled(at).epsilon(target_delta, tolerance),
            target_epsilon,
            (factor, floor, stride),
        )
    return scaled(factor)


def _central_limit_factor(schedule: Schedule, mu: float) -> float:
    """Return a first guess: where the central limit of the losses, r sqrt(T (e^(1/sigma^2) - 1)), is mu."""

    def total(log_factor: float) -> float:
        squares = 0.0
        for part in schedule.parts:
            rate = 1.0 if part.is_gaussian else part.sampling.expected_batch(part.records) / part.records
            shift = min(part.sensitivity / (part.sigma * math.exp(log_factor)), 15.0)
            squares += part.releases * (shift**2 if part.is_gaussian else rate**2 * math.expm1(shift**2))
        return math.sqrt(squares)

    low, high = -10.0, 20.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if total(middle) > mu else (low, middle)
    return math.exp(high)


def _search(epsilon_of: Callable[[float], float], target: float, near: tuple[float, float, float]) -> float:
    """Return a factor whose epsilon lies within `_CLOSE` below ``target``; more noise, less epsilon.

    ``near`` holds where to start, the least factor to answer with, and the first stride.
    """
    start, floor, stride = near

    def excess(factor: float) -> float:
        try:
            epsilon = epsilon_of(factor)
        except AccountingRefused:
            if factor > start:
                raise
            return math.inf  # too little noise to compute with: certainly too much loss
        return math.log(epsilon / target) if epsilon > 0 else -math.inf

    low = high = (start, excess(start))
    while low[1] <= 0 and low[0] > floor:
        factor = max(floor, low[0] / stride)
        high, low = low, (factor, excess(factor))
        stride *= stride
    if low[1] <= 0:
        return low[0]  # sampling alone meets the target
    while high[1] > 0:
        low, high = high, (high[0] * stride, excess(high[0] * stride))
        stride *= stride
        if high[0] > _MAX_SIGMA * start:
            raise AccountingRefused("no amount of noise meets the target; use a larger epsilon or delta.")
    return _close_in(excess, low, high)


def _close_in(excess: Callable[[float], float], low: tuple[float, float], high: tuple[float, float]) -> float:
    """Narrow (too little, enough noise) by secants in logarithms, halving where they stall; return enough."""
    aim = -_CLOSE / 10  # a little inside, so that the secant lands on the safe side
    for tries in range(60):
        if high[1] >= -_CLOSE * (0.3 if tries < 3 else 0.9) or high[0] / low[0] < 1 + 1e-9:
            break
        share = 0.5
        if tries < 8 and math.isfinite(low[1]) and math.isfinite(high[1]):
            share = min(0.99, max(0.01, (low[1] - aim) / (low[1] - high[1])))
        factor = low[0] * (high[0] / low[0]) ** share
        value = excess(factor)
        low, high = ((factor, value), high) if value > 0 else (low, (factor, value))
    return high[0]
