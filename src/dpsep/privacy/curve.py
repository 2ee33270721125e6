r"""Privacy curves of a schedule: epsilon against delta, and epsilon after each of its releases.

A statement of what was spent carries its schedule as plain data (`description_of`). `schedule_of` reads such
data back, also from a folder that a stranger wrote, and the functions here draw from it what a report shows.

**Privacy.** *Public numbers only.* Sampling, noise, steps and the number of records are fixed before a run
and the same for every data set; nothing here sees a record or a release.

*Parts.* The parts of a schedule are done in their order, so that its first k releases are themselves a
schedule, fixed beforehand: all of the parts that are over and as many steps of the next one. Whatever answers
for the epsilon of schedules therefore answers for `first` as well. Adding releases never lowers epsilon.

*What the epsilon of a prefix says.* It bounds what a reader of the first k releases learns, and nobody else.
A run that goes on costs what its whole schedule costs, and that is charged before the first release. A run
that is stopped because of what it has released is not covered by the figure at the stop either: loss
distributions hold for lengths that are fixed beforehand. So such a figure is shown beside the whole, to
explain it, and is never a statement of its own.

*Bounds.* Every figure is one that `Schedule.epsilon` gives, or one of a longer prefix or of a smaller delta,
which is no less: an upper bound as it stands there.
"""

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpsep.privacy.accounting import AccountingRefused, Mechanism, Schedule, rdp_to_epsilon
from dpsep.privacy.pld import TOLERANCE
from dpsep.privacy.sampling import FixedSizeSampling, PoissonSampling
from dpsep.privacy.schedule_json import description_of, schedule_of

__all__ = ["description_of", "epsilon_curve", "first", "over_releases", "schedule_of", "spent_so_far"]

SAMPLED_POINTS = 12
"""Most prefixes whose loss distributions are composed; each takes some hundredths of a second."""

_PATIENCE = 10.0  # seconds, after which nothing more is computed: for schedules that are made to be slow
_LIVE_POINTS, _LIVE_PATIENCE, _LIVE_TOLERANCE = 8, 0.3, 2e-2


def first(schedule: Schedule, releases: int) -> Schedule:
    """Return the schedule of the first releases.

    Parameters
    ----------
    schedule
        The whole.
    releases
        How many, from 1 to the steps of all parts together.

    Examples
    --------
    >>> from dpsep.privacy.sampling import FullBatch
    >>> scaling = Mechanism(FullBatch(), "zero-out", steps=1, sigma=20.0, records=1000)
    >>> fit = Mechanism(FullBatch(), "zero-out", steps=50, sigma=30.0, records=1000)
    >>> [part.steps for part in first(Schedule((scaling, fit)), 11).parts]
    [1, 10]
    """
    total = sum(part.steps for part in schedule.parts)
    if not 1 <= releases <= total:
        raise ValueError(f"a schedule of {total} releases has no first {releases}; ask for 1 to {total}.")
    begun: list[Mechanism] = []
    for part in schedule.parts:
        if releases > 0:
            begun.append(replace(part, steps=min(part.steps, releases)))
        releases -= part.steps
    return Schedule(tuple(begun))


def epsilon_curve(schedule: Schedule, deltas: ArrayLike) -> NDArray[np.float64]:
    """Return the epsilon of the whole schedule at each delta.

    Parameters
    ----------
    schedule
        What was charged for.
    deltas
        Each in (0, 1).

    Returns
    -------
    array
        In the order of ``deltas``, never rising with delta. Infinite where the accountant gives no figure
        (loss distributions do not reach deltas near the rounding of doubles), or none in time.

    Examples
    --------
    >>> from dpsep.privacy.sampling import FullBatch
    >>> fit = Mechanism(FullBatch(), "zero-out", steps=100, sigma=37.3, records=1000)
    >>> epsilon_curve(Schedule((fit,)), [1e-8, 1e-5]).round(2).tolist()
    [1.39, 1.0]
    """
    wanted = np.asarray(deltas, dtype=np.float64)
    if wanted.ndim != 1 or not np.all((wanted > 0) & (wanted < 1)):
        raise ValueError("deltas must be a list of numbers strictly between 0 and 1.")
    epsilons = np.full(wanted.size, math.inf)
    late, least = time.monotonic() + _PATIENCE, math.inf
    for number, place in enumerate(np.argsort(wanted, kind="stable")):
        # A smaller delta's epsilon is a bound for a larger's.
        if number == 0 or time.monotonic() < late:
            least = min(least, _epsilon(schedule, float(wanted[place])))
        epsilons[place] = least
    return epsilons


def over_releases(schedule: Schedule, delta: float, points: int = 40) -> list[tuple[int, float]]:
    """Return the epsilon at ``delta`` of the first releases, for some numbers of them.

    Parameters
    ----------
    schedule
        What was charged for; its parts are done in their order.
    delta
        In (0, 1).
    points
        Most prefixes to compute. Where loss distributions are composed at most `SAMPLED_POINTS` are.

    Returns
    -------
    list of (releases, epsilon)
        Rising in both; the last is the whole schedule (`AccountingRefused` is raised where that has no
        figure). Every release has a point where they are few; else the end of each part has one, and the
        others lie so that epsilon rises about evenly.

    Examples
    --------
    >>> from dpsep.privacy.sampling import FullBatch
    >>> fit = Mechanism(FullBatch(), "zero-out", steps=100, sigma=37.3, records=1000)
    >>> [(done, round(spent, 2)) for done, spent in over_releases(Schedule((fit,)), 1e-5, points=3)]
    [(12, 0.31), (45, 0.65), (100, 1.0)]
    """
    if points < 1:
        raise ValueError(f"points must be at least 1, not {points}.")
    if _sampled(schedule):
        points = min(points, SAMPLED_POINTS)
    ends = np.cumsum([part.steps for part in schedule.parts]).tolist()
    return _rising(schedule, delta, _spread(ends, points), _PATIENCE)


def spent_so_far(schedule: Schedule, delta: float) -> Callable[[int], float]:
    """Return a function from the releases done of the last part to the epsilon spent by then.

    For a view of a run that goes on: the parts before the last are over. Nothing is computed before the first
    call. Without Poisson sampling each call is exact. With it the first call composes a few prefixes, by a
    rougher and so looser bound than the charge's, within about half a second, and a number in between gets
    the figure of the next one: never less than the truth, never more than the whole.

    Parameters
    ----------
    schedule
        What was charged for.
    delta
        In (0, 1).

    Examples
    --------
    >>> from dpsep.privacy.sampling import FullBatch
    >>> fit = Mechanism(FullBatch(), "zero-out", steps=100, sigma=37.3, records=1000)
    >>> spent = spent_so_far(Schedule((fit,)), 1e-5)
    >>> [round(spent(done), 2) for done in (0, 25, 100)]
    [0.0, 0.47, 1.0]
    """
    last = schedule.parts[-1].steps
    before = sum(part.steps for part in schedule.parts) - last

    @lru_cache(maxsize=1)
    def table() -> list[tuple[int, float]]:
        grid = sorted({before + done for done in (0, *_spread([last], _LIVE_POINTS))} - {0})
        return _rising(schedule, delta, grid, _LIVE_PATIENCE, _LIVE_TOLERANCE)

    def spent(done: int) -> float:
        releases = before + min(max(int(done), 0), last)
        if releases == 0:
            return 0.0
        if _sampled(schedule):
            return next(epsilon for known, epsilon in table() if known >= releases)
        return _epsilon(first(schedule, releases), delta)

    return spent


def _rising(
    schedule: Schedule,
    delta: float,
    grid: Sequence[int],
    patience: float,
    tolerance: float = TOLERANCE,
) -> list[tuple[int, float]]:
    """Return (releases, epsilon) on a grid that ends with the whole, which alone is computed at any price."""
    late = time.monotonic() + patience
    least = schedule.epsilon(delta)
    found = [(grid[-1], least)]
    for releases in reversed(grid[:-1]):
        if time.monotonic() > late:
            break
        # Bounds are computed to a tolerance; what bounds a longer prefix bounds this one too.
        least = min(least, _epsilon(first(schedule, releases), delta, tolerance))
        found.append((releases, least))
    return found[::-1]


def _epsilon(schedule: Schedule, delta: float, tolerance: float = TOLERANCE) -> float:
    """Return a schedule's epsilon; infinite where the accountant gives no figure."""
    try:
        if any(isinstance(part.sampling, FixedSizeSampling) for part in schedule.parts):
            curves = [_one_release(replace(part, steps=1)) * part.releases for part in schedule.parts]
            return rdp_to_epsilon(np.sum(curves, axis=0), delta)
        return schedule.epsilon(delta, tolerance)
    except AccountingRefused:
        return math.inf


@lru_cache(maxsize=16)
def _one_release(part: Mechanism) -> NDArray[np.float64]:
    """Return the Rényi curve of one release, which takes a second and serves every number of them."""
    return part.rdp_curve()


def _spread(ends: list[int], points: int) -> list[int]:
    """Return at most so many numbers of releases, rising: the ends of parts, and squares, as epsilon goes."""
    if ends[-1] <= points:
        return list(range(1, ends[-1] + 1))
    kept = ends[-points:]
    room = points - len(kept)
    return sorted({*kept, *(math.ceil(ends[-1] * ((i + 1) / (room + 1)) ** 2) for i in range(room))})


def _sampled(schedule: Schedule) -> bool:
    """Whether loss distributions are composed."""
    return any(isinstance(part.sampling, PoissonSampling) for part in schedule.parts)
