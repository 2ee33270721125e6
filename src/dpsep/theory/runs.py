r"""Fits as they would be: settings and forecast of a request, and the least budget or table that will do.

The settings come from the modules that the estimators take them from (`dpsep.theory.glm_defaults`,
`mixtures`, `networks`). Forecasts need not be monotone in epsilon or in N, because clips widen as noise
allows it: a search answers with the least value, on a grid and then between its points, from which on a
target is met.

**Privacy.** Public numbers in, public numbers out.
"""

import math
from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from typing import NamedTuple

from dpsep.privacy.gate import check_blocks
from dpsep.privacy.mechanism import Schedule
from dpsep.privacy.sampling import FullBatch, PoissonSampling, Sampling
from dpsep.registry import named
from dpsep.theory import networks
from dpsep.theory.forecast import Forecast, mixture_forecast, weights_forecast
from dpsep.theory.mixtures import STEPS, mean_margin, mixture_blocks, mixture_schedule
from dpsep.theory.request import MOST_RECORDS, Request
from dpsep.theory.weighted_defaults import weighted_blocks, weighted_schedule

Met = Callable[[Forecast], bool]
"""Whether a forecast meets a target."""

FEWEST_A_WEIGHT = 2.0
"""Records a weight below which a posterior is mostly its prior, private or not."""
LEAST_EPSILON, MOST_EPSILON = 1e-3, 100.0
"""Range of budgets that is searched."""


class Settings(NamedTuple):
    """How a fit will be done.

    Attributes
    ----------
    sampling
        Share of the records that a release reads.
    steps
        Releases of the fit.
    clip
        Largest norm of a record's part, over that of a typical record; of a regression, the standard
        deviations at which unbounded scores are cut.
    step_size
        How far a step goes: of the way to where a release says (1 is all of it).
    sigma
        Noise of a release of the fit, over the clip.
    accountant
        What answers for epsilon.
    hidden
        Hidden units of a network; empty otherwise.
    """

    sampling: float
    steps: int
    clip: float
    step_size: str
    sigma: float
    accountant: str
    hidden: tuple[int, ...] = ()


@lru_cache(maxsize=1024)
def run(request: Request) -> tuple[Settings, Forecast]:
    """Settings and forecast of a model whose cost can be forecast."""
    budget = (request.epsilon, request.delta, request.relation)
    sampling = _sampling(request)
    if request.model == "mixture":
        schedule = mixture_schedule(request.records, *budget, sampling, scaled=not request.declared)
        shape = (request.components, request.features)
        margin = mean_margin(request.records, request.features, request.components, *budget)
        blocks = mixture_blocks(*shape, "diag", missing=True, margin=margin, clip=1.0)
        check_blocks(schedule.parts[-1], blocks)
        forecast = mixture_forecast(blocks, schedule.parts[-1], STEPS, *shape)
        clip = 1.0 + margin / math.sqrt(request.features)
        return _settings(request, schedule, STEPS, clip, "1 / (1 + number of the release)"), forecast
    defaults = named(request.model).load().defaults
    schedule, chosen = weighted_schedule(
        request.records,
        request.dimension,
        *budget,
        sampling,
        scaled=not request.declared,
        more=defaults.learned_noise or defaults.dispersed,
        cut=defaults.cut,
    )
    check_blocks(schedule.parts[-1], weighted_blocks(chosen, request.dimension))
    forecast = weights_forecast(request.model, chosen, schedule.parts[-1], request.dimension, request.levels)
    size = f"Newton's; {chosen.approach} releases before them find the way"
    return _settings(request, schedule, chosen.fit, chosen.cut, size), forecast


def network_settings(request: Request) -> Settings:
    """Return the settings of a network, whose cost is not forecast."""
    steps = networks.default_steps(request.records)
    schedule = networks.network_schedule(
        request.records,
        request.epsilon,
        request.delta,
        request.relation,
        _sampling(request),
        scaled=not request.declared,
        moments=(networks.MOMENT_SHARE, networks.moment_looks(request.records)),
        steps=steps,
    )
    clip = networks.MEAN_CLIP if request.model == "network" else networks.LABEL_CLIP
    default = networks.SepPlan(steps, clip)
    size = f"{default.rate:g}, falling to {default.last:g} of it"
    return _settings(request, schedule, steps, clip, size, request.units)


def _settings(
    request: Request, schedule: Schedule, steps: int, clip: float, size: str, hidden: tuple[int, ...] = ()
) -> Settings:
    last = schedule.parts[-1]
    rate = last.sampling.expected_batch(request.records) / request.records
    return Settings(rate, steps, clip, size, last.sigma, schedule.accountant, hidden)


def _sampling(request: Request) -> Sampling:
    if request.sampling is not None:
        return PoissonSampling(request.sampling)
    if request.is_network:
        return networks.default_sampling(request.records, request.dimension, request.relation)
    return FullBatch()


def try_forecast(request: Request) -> Forecast | None:
    """Return the forecast of a request; None where no accountant or gate would take its schedule."""
    try:
        return run(request)[1]
    except ValueError:
        return None


def _usable(request: Request, met: Met) -> bool:
    """Whether a target is met by a fit that can be relied on."""
    forecast = try_forecast(request)
    return forecast is not None and not forecast.is_rough and met(forecast)


def least_epsilon(request: Request, met: Met) -> float | None:
    """Least epsilon from which on the target is met, rounded up to three digits."""
    count = _points(request)
    grid = [LEAST_EPSILON * (MOST_EPSILON / LEAST_EPSILON) ** (i / count) for i in range(count + 1)]
    place = _first_of_tail([_usable(replace(request, epsilon=each), met) for each in grid])
    if place is None:
        return None
    low, high = grid[max(place - 1, 0)], grid[place]
    for _ in range(20 if request.sampling is None else 8):
        middle = math.sqrt(low * high)
        low, high = (low, middle) if _usable(replace(request, epsilon=middle), met) else (middle, high)
    digits = 2 - math.floor(math.log10(high))
    return min(math.ceil(high * 10**digits) / 10**digits, MOST_EPSILON)


def least_records(request: Request, met: Met) -> int | None:
    """Least number of records from which on the target is met, rounded up to three digits."""
    least = max(2, math.ceil(FEWEST_A_WEIGHT * request.dimension))
    count = _points(request)
    grid = [round(least * (MOST_RECORDS / least) ** (i / count)) for i in range(count + 1)]
    place = _first_of_tail([_usable(replace(request, records=each), met) for each in grid])
    if place is None:
        return None
    low, high = grid[max(place - 1, 0)], grid[place]
    while high - low > max(1, high // 2000):
        middle = (low + high) // 2
        low, high = (low, middle) if _usable(replace(request, records=middle), met) else (middle, high)
    unit = 10 ** max(0, math.floor(math.log10(high)) - 2)
    return -(-high // unit) * unit


def most_features(request: Request, met: Met) -> int | None:
    """Most features with which the target is met; None where categories say which columns go together."""
    if request.levels:
        return None
    low, high = 0, request.features
    while high - low > 1:
        middle = (low + high) // 2
        smaller = replace(request, features=middle)
        crowded = smaller.records < FEWEST_A_WEIGHT * smaller.dimension
        low, high = (middle, high) if not crowded and _usable(smaller, met) else (low, middle)
    return low or None


def _points(request: Request) -> int:
    """Points of a search: fewer where each is calibrated by loss distributions."""
    return 60 if request.sampling is None else 20


def _first_of_tail(met: list[bool]) -> int | None:
    """Place from which on all is well; None where the last is not."""
    place = len(met)
    while place and met[place - 1]:
        place -= 1
    return place if place < len(met) else None


def feasible(request: Request) -> bool:
    """Whether there are records enough for any fit."""
    return request.records > 1 and request.records >= FEWEST_A_WEIGHT * request.dimension
