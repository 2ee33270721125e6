r"""Privacy loss distributions of runs with Poisson sampling, by numerical composition.

One step at rate r and noise multiplier sigma is dominated by the pair :math:`P = (1 - r) N(0, \sigma^2) + r
N(1, \sigma^2)`, :math:`Q = N(0, \sigma^2)` and, for the other direction, the same pair exchanged; over a
schedule that is fixed beforehand the privacy losses add (Zhu, Dong and Wang, 2022). Each direction's loss
is put on a grid by the *connect the dots* rule (Doroshenko et al., 2022) and the sum's law is found by fast
Fourier transform (Koskela, Jälkö and Honkela, 2020). dp-accounting's own accountant gives the same figures,
and the tests compare them; this one is vectorised, works on losses of any scale and bounds its memory.

**Privacy.** Relation: a record zeroed or present. Event: the dp-accounting event that the caller hands in;
what is not a Poisson-sampled or plain Gaussian, composed, is refused by name. Every approximation errs on
the safe side: the mass :math:`a` (under P) and :math:`b` (under Q) of the outcomes between two grid losses
is moved to the two ends so that both are kept, which spreads the likelihood ratio and so dominates; tails
go up to the next grid loss or to infinity; an allowance for the rounding of the transforms is added to
delta. The interval is halved until epsilon moves by less than `TOLERANCE`, and the larger of the last two
values is returned. Where that takes more memory than a fixed cap, the finest value reached is returned, an
upper bound still; where none could be computed, or delta lies below the allowance, `AccountingRefused` is
raised. Never NaN.
"""

import math
from collections.abc import Callable
from functools import lru_cache
from typing import Literal, NamedTuple, cast

import dp_accounting as dpa
import numpy as np
from numpy.typing import NDArray
from scipy.fft import next_fast_len
from scipy.optimize import brentq
from scipy.special import ndtr

TOLERANCE = 2e-4
"""Relative change of epsilon (or delta) at which the grid counts as fine enough."""

_TAIL = 10.5  # standard deviations kept; what lies beyond, 5e-26 a step, counts as infinite loss
_FIRST_BINS = 1 << 12
_MAX_STEP_BINS = 1 << 20
_MAX_BINS = 1 << 22  # some 64 MB a complex array
_CUT = 1e-15  # mass of the sum of losses that may be cut off, counted as infinite loss
_MAX_SHIFT = 25.001  # 1 / sigma: up to there no loss or tail leaves the range of doubles


_MOST_HOP = 700.0  # e to this is near the largest double; no such epsilon is worth a number


class AccountingRefused(ValueError):
    """No valid figure can be computed for this run; the message says why and what to change."""


class Part(NamedTuple):
    """``steps`` Gaussian releases with noise multiplier ``sigma``, each Poisson-sampled at ``rate``."""

    rate: float
    sigma: float
    steps: int


def parts_of(event: dpa.DpEvent, count: int = 1) -> tuple[Part, ...]:
    """Return what an event consists of; raise AccountingRefused for anything but (sampled) Gaussians.

    Parameters
    ----------
    event
        An event of dp-accounting, under the relation that zeroes one record.
    count
        How often it happens.
    """
    match event:
        case dpa.GaussianDpEvent():
            return (Part(1.0, event.noise_multiplier, count),)
        case dpa.PoissonSampledDpEvent(event=dpa.GaussianDpEvent() as inner):
            return (Part(event.sampling_probability, inner.noise_multiplier, count),)
        case dpa.SelfComposedDpEvent():
            return parts_of(event.event, count * event.count)
        case dpa.ComposedDpEvent():
            return tuple(part for inner in event.events for part in parts_of(inner, count))
    raise AccountingRefused(
        f"the event {event} has no privacy loss distribution here; allowed are Gaussian and Poisson-sampled "
        "Gaussian events and their compositions."
    )


def pld_epsilon(
    event: dpa.DpEvent, delta: float, hops: Literal[1, 2] = 1, tolerance: float = TOLERANCE
) -> float:
    """Return an upper bound on epsilon at ``delta``, over both directions.

    Parameters
    ----------
    event
        What happens in the run: Gaussian and Poisson-sampled Gaussian events, composed.
    delta
        In (0, 1).
    hops
        1 for neighbours one zeroing apart, 2 for neighbours two apart (one record replaced by another).
    tolerance
        Relative change at which the grid counts as fine enough; a larger one gives a looser bound sooner.

    Notes
    -----
    **Privacy.** A record replaced by another is a record zeroed and then another put in its place. If each
    hop is (epsilon, delta), then P <= e^epsilon P' + delta <= e^(2 epsilon) P'' + (1 + e^epsilon) delta:
    the two together are (2 epsilon, (1 + e^epsilon) delta).
    """
    if not 0 < delta < 1:
        raise ValueError(f"delta must lie strictly between 0 and 1, not {delta}.")
    if hops == 2:
        return _refined(parts_of(event), lambda law: law.two_hop_epsilon(delta), tolerance)
    return _refined(parts_of(event), lambda law: law.epsilon(delta), tolerance)


def pld_delta(event: dpa.DpEvent, epsilon: float, hops: Literal[1, 2] = 1) -> float:
    """Return an upper bound on delta at ``epsilon``, over both directions.

    Parameters
    ----------
    event
        What happens in the run: Gaussian and Poisson-sampled Gaussian events, composed.
    epsilon
        Not negative.
    hops
        As in `pld_epsilon`.
    """
    if not epsilon >= 0:
        raise ValueError(f"epsilon must not be negative, not {epsilon}.")
    if hops == 2:
        one = _refined(parts_of(event), lambda law: law.delta(epsilon / 2), TOLERANCE)
        return 1.0 if epsilon > 1400 else min(1.0, (1 + math.exp(epsilon / 2)) * one)
    return _refined(parts_of(event), lambda law: law.delta(epsilon), TOLERANCE)


class _Law(NamedTuple):
    """Composed privacy losses on a grid, one array of masses a direction, and what adds to every delta."""

    interval: float
    lowest: tuple[int, int]  # grid index of each direction's first mass
    masses: tuple[NDArray[np.float64], NDArray[np.float64]]
    infinite: float

    def delta(self, epsilon: float) -> float:
        worst = 0.0
        for lowest, masses in zip(self.lowest, self.masses, strict=True):
            first = max(0, math.floor(epsilon / self.interval) + 1 - lowest)
            losses = np.arange(lowest + first, lowest + masses.size) * self.interval
            worst = max(worst, _inner(-np.expm1(np.minimum(epsilon - losses, 0.0)), masses[first:]))
        return min(1.0, worst + self.infinite)

    def epsilon(self, delta: float) -> float:
        if self.infinite > delta / 10:
            raise AccountingRefused(
                f"delta {delta} is too near the rounding error {self.infinite:.1g} of the numerical "
                "composition; use a larger delta, fewer steps or full batches."
            )
        if self.delta(0.0) <= delta:
            return 0.0
        low, high = 0.0, 1.0
        while self.delta(high) > delta:
            low, high = high, 2 * high
        root = cast(float, brentq(lambda at: math.log(self.delta(at) / delta), low, high, xtol=1e-8))
        step = 1e-9
        while self.delta(root) > delta:
            root, step = root + step, 2 * step
        return root

    def two_hop_epsilon(self, delta: float) -> float:
        # The least e with (1 + exp(e)) delta(e) <= delta, climbed to from below: the product need not fall.
        one, step = 0.0, self.epsilon(delta / 2)
        while step > one:
            one = step * (1 + 1e-6)
            if one > _MOST_HOP:
                return math.inf
            step = self.epsilon(delta / (1 + math.exp(one)))
        return 2 * one


def _refined(parts: tuple[Part, ...], value: Callable[[_Law], float], tolerance: float) -> float:
    """Halve the grid until ``value`` of the composed law settles; return the larger of the last two."""
    for part in parts:
        if not (0 < part.rate <= 1 and part.steps >= 1 and 1 / part.sigma <= _MAX_SHIFT):
            raise AccountingRefused(
                f"{part} is outside what can be computed: rate in (0, 1], at least one step and a noise "
                f"multiplier of at least {1 / _MAX_SHIFT:g}; use more noise."
            )
    interval = max(high - low for low, high in map(_loss_range, parts)) / _FIRST_BINS
    last: float | None = None
    while (law := _compose(parts, interval)) is not None:
        now = value(law)
        if last is not None and abs(last - now) <= tolerance * now:
            return max(last, now)
        last, interval = now, interval / 2
    if last is None or not math.isfinite(last):
        raise AccountingRefused(
            f"composing {parts} takes a larger grid than memory allows; use more noise or fewer steps."
        )
    return last


def _loss_range(part: Part) -> tuple[float, float]:
    """Return the privacy losses at the ends of the outcomes kept, present against zeroed."""
    low, high = (
        float(np.logaddexp(_log_absent(part.rate), math.log(part.rate) + (x - 0.5) / part.sigma**2))
        for x in (-_TAIL * part.sigma, 1 + _TAIL * part.sigma)
    )
    return low, high


def _log_absent(rate: float) -> float:
    return math.log1p(-rate) if rate < 1 else -math.inf


class _Step(NamedTuple):
    """One step's losses in one direction: grid index of the first mass, masses, mass at infinity."""

    lowest: int
    masses: NDArray[np.float64]
    infinite: float


def _one_step(part: Part, interval: float) -> tuple[_Step, _Step]:
    """Put one step's privacy loss on the grid: a present record against a zeroed one, and the reverse."""
    low, high = _loss_range(part)
    first, last = math.floor(low / interval), math.ceil(high / interval)
    grid = np.asarray(np.arange(first, last + 1) * interval, dtype=np.float64)
    x = _outcome_of_loss(grid, part) / part.sigma
    absent = _between(x)  # of N(0, 1) between neighbouring grid losses, the two tails at the ends
    shifted = _between(x - 1 / part.sigma)
    present = (1 - part.rate) * absent + part.rate * shifted
    # Between losses l and l + h: a mass `upper` at l + h and the rest at l keeps the masses under both laws.
    forward = np.clip(
        (present[1:-1] - absent[1:-1] * np.exp(grid[:-1])) / -math.expm1(-interval), 0, present[1:-1]
    )
    backward = np.clip(
        (absent[1:-1] - present[1:-1] * np.exp(-grid[1:])) / -math.expm1(-interval), 0, absent[1:-1]
    )
    masses = np.zeros((2, grid.size))
    masses[0, 1:] += forward
    masses[0, :-1] += present[1:-1] - forward
    masses[0, 0] += present[0]  # losses below the grid, rounded up to its end
    masses[1, :-1] += backward
    masses[1, 1:] += absent[1:-1] - backward
    masses[1, -1] += absent[-1]
    return _Step(first, masses[0], float(present[-1])), _Step(-last, masses[1, ::-1].copy(), float(absent[0]))


def _outcome_of_loss(loss: NDArray[np.float64], part: Part) -> NDArray[np.float64]:
    """Return the x whose loss log(1 - r + r exp((x - 1/2) / sigma^2)) this is; -inf where there is none."""
    if part.rate == 1:
        return loss * part.sigma**2 + 0.5
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        ratio = np.where(
            loss < 1,
            np.log1p(np.maximum(np.expm1(loss) / part.rate, -1.0)),
            loss + np.log1p(-(1 - part.rate) * np.exp(-loss)) - math.log(part.rate),
        )
    return ratio * part.sigma**2 + 0.5


def _between(x: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return standard normal masses below x[0], between neighbours, and above x[-1], from the nearer tail."""
    left, right = ndtr(x), ndtr(-x)
    inner = np.where(x[:-1] > 0, right[:-1] - right[1:], left[1:] - left[:-1])
    return np.concatenate([left[:1], inner, right[-1:]])


@lru_cache(maxsize=4)
def _compose(parts: tuple[Part, ...], interval: float) -> _Law | None:
    """Return the law of the summed losses on this grid, or None if it would not fit in memory."""
    if sum((high - low) / interval for low, high in map(_loss_range, parts)) > _MAX_STEP_BINS:
        return None
    steps = [_one_step(part, interval) for part in parts]
    counts = [part.steps for part in parts]
    lowest, masses, infinite = [], [], 0.0
    for direction in (0, 1):
        chosen = [step[direction] for step in steps]
        summed = _sum_of_losses(chosen, counts)
        if summed is None:
            return None
        lowest.append(summed[0])
        masses.append(summed[1])
        escaped = sum(count * step.infinite for count, step in zip(counts, chosen, strict=True))
        infinite = max(infinite, escaped)
    return _Law(
        interval, (lowest[0], lowest[1]), (masses[0], masses[1]), infinite + 2 * _CUT + _rounding(counts)
    )


def _rounding(counts: list[int]) -> float:
    """Return an allowance for the transforms' rounding.

    A transform errs by a few 1e-16, which grows with the exponent; sums of the errors over a tail were found
    at up to 0.8e-16 a step, and the allowance is over ten times that.
    """
    return 1e-13 + 1e-15 * sum(counts)


def _sum_of_losses(steps: list[_Step], counts: list[int]) -> tuple[int, NDArray[np.float64]] | None:
    """Return the first grid index and the masses of the sum of independent losses; None if too many."""
    low, high = _chernoff_range(steps, counts)
    needed = max([high - low + 1, *(step.masses.size for step in steps)])
    size = cast(int, next_fast_len(needed, real=True))  # typed as None by its dispatcher
    if size > _MAX_BINS:
        return None
    product = np.ones(size // 2 + 1, dtype=np.complex128)
    for step, count in zip(steps, counts, strict=True):
        # Loss i sits at i modulo size, so that the small phases of small losses keep their relative accuracy.
        wrapped = np.zeros(size)
        wrapped[np.arange(step.lowest, step.lowest + step.masses.size) % size] = step.masses
        product *= _power(np.fft.rfft(wrapped), count)
    return low, np.roll(np.fft.irfft(product, size), -low)[: high - low + 1]


def _power(values: NDArray[np.complex128], count: int) -> NDArray[np.complex128]:
    """Return values ** count by repeated squaring; what would fall below e^-80 counts as zero."""
    out = np.zeros_like(values)
    active = np.flatnonzero(values.real**2 + values.imag**2 > math.exp(-160 / count))
    base, result = values[active], np.ones(active.size, dtype=np.complex128)
    while count:
        if count & 1:
            result *= base
        count >>= 1
        if count:
            base *= base
    out[active] = result
    return out


def _chernoff_range(steps: list[_Step], counts: list[int]) -> tuple[int, int]:
    """Return grid indices outside of which the sum of losses has mass at most `_CUT` on either side."""
    weights = np.asarray(counts, dtype=np.float64)
    first = np.array([step.lowest for step in steps])
    last = np.array([step.lowest + step.masses.size - 1 for step in steps])
    low, high = (
        sum(count * int(end) for count, end in zip(counts, ends, strict=True)) for ends in (first, last)
    )
    order = 2.0**-8 / max(step.masses.size for step in steps)
    # exp(order * distance from an end of the step's grid); squared at every round, for twice the order.
    tilts = [np.exp(order * np.arange(step.masses.size)) for step in steps]
    mirrored = [step.masses[::-1].copy() for step in steps]
    for _ in range(16):
        up = np.log([_inner(step.masses, tilt) for step, tilt in zip(steps, tilts, strict=True)])
        down = np.log([_inner(masses, tilt) for masses, tilt in zip(mirrored, tilts, strict=True)])
        high = min(high, math.ceil((weights @ (up + order * first) - math.log(_CUT)) / order))
        low = max(low, math.floor((weights @ (order * last - down) + math.log(_CUT)) / order))
        order *= 2
        for tilt in tilts:
            np.square(tilt, out=tilt)
    return low, high


def _inner(left: NDArray[np.float64], right: NDArray[np.float64]) -> float:
    """Return an inner product on this thread alone: threads cost more than they save at these sizes."""
    return float(np.einsum("i,i->", left, right))
