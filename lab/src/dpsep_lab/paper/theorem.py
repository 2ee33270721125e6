r"""Section 4 of the paper as numbers: Theorem 4.1 printed, corrected and simulated, and the claims around it.

*Setting.* Theorem 4.1 compares the posterior of SEP with that of DP-SEP after one step, with noise of
:math:`\sigma_1 = \sigma_2 = 2 C \sigma / N`. Sigma is calibrated for one pass (T = 1) of one record a step,
replace-one, delta = 1e-5 and C = 1. A record is in one step of a pass, so the pass is one Gaussian release
for each record, the same as one full batch; sigma then does not depend on N. The posterior has eigenvalues in
geometric progression from 1 to a condition number, a random rotation and a mean of length 1. It is *fixed*,
or its precision *grows* as N / 100. The constant rho is given in units of the smallest eigenvalue.

*Parts*, each a function that returns rows: `grid_rows` (bounds and simulation over d, N, condition number,
rho and epsilon), `rate_rows` (exponents in N fitted to them), `search_rows` (where the printed bound is
undefined or fails), `known_rows` (two cases worth knowing), `check_rows` (the corrected bound in random
cases), `literal_rows` (step 10 word for word), `clipping_rows` and `claims_rows`.

*Rows* have the format of `dpsep paper` and one more key, ``setting``, with what tells a figure apart. A mean
of None stands for a number that is not finite, such as an undefined bound. The standard error of a simulated
mean is sd / sqrt(n).

**Privacy**: none. Everything is made, noise is seeded, and nothing is released.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dpsep.privacy.accounting import calibrate
from dpsep.privacy.sampling import ShuffledEpochs
from dpsep_lab.paper import claims_all, claims_budget, claims_noise
from dpsep_lab.paper.theorem_cases import (
    CHECKED,
    check_rows,
    clipping_rows,
    known_rows,
    literal_rows,
    search_rows,
)
from dpsep_lab.paper.theorem_rows import RULES, Row, compare, theorem_row
from dpsep_lab.theorem.cases import Cases

__all__ = [
    "Point",
    "claims_rows",
    "grid",
    "grid_rows",
    "noise_of_a_step",
    "posterior",
    "rate_rows",
    "rows",
]

Array = NDArray[np.float64]
Growth = Literal["fixed", "grows"]
OnStep = Callable[[int, int], None] | None

DELTA, CLIP = 1e-5, 1.0
DIMENSIONS = (2, 4, 10, 30)
SIZES = (100, 1_000, 10_000, 100_000, 1_000_000)
CONDITIONS = (1.0, 10.0, 1_000.0)
FLOORS = (1.0, 0.5, 1e-3)
"""rho over the smallest eigenvalue."""
EPSILONS = (0.5, 1.0, 2.0, 4.0, 8.0)
FITTED = 3
"""Rates are fitted to the largest sizes, this many: the smallest are not yet in the limit."""


class Point(NamedTuple):
    """One setting of the grid.

    Attributes
    ----------
    d, N
        Dimension and number of records.
    condition
        Largest over smallest eigenvalue of the posterior's precision.
    floor
        rho over the smallest eigenvalue.
    growth
        Whether the posterior is fixed or its precision grows as N.
    epsilon
        Of one pass.
    """

    d: int
    N: int
    condition: float
    floor: float
    growth: Growth = "fixed"
    epsilon: float = 1.0


def rows(*, quick: bool = False, on_step: OnStep = None) -> list[Row]:
    """Return the rows of every part.

    Parameters
    ----------
    quick
        One dimension, few cases, and of the claims only those of signal and noise.
    on_step
        Called with the number of parts done and their total, which grows when the claims begin.
    """
    jobs = _quick() if quick else _full()
    report = on_step or (lambda done, total: None)
    found: list[Row] = []
    for done, job in enumerate(jobs, 1):
        found += job()
        report(done, len(jobs) + 1)
    # The claims take about as long as all the rest, so each of their experiments counts.
    return found + claims_rows(
        quick=quick, on_step=lambda done, total: report(len(jobs) + done, len(jobs) + total)
    )


def _full() -> list[Callable[[], list[Row]]]:
    grids = [partial(_grid_and_rates, [p for p in grid() if p.d == d]) for d in DIMENSIONS]
    searches = [partial(search_rows, d, rule) for d in (2, 4, 8) for rule in RULES]
    checks = [partial(check_rows, (part,)) for part in CHECKED]
    return [*grids, *searches, known_rows, *checks, literal_rows, clipping_rows]


def _quick() -> list[Callable[[], list[Row]]]:
    points = grid((2,), (100, 10_000, 1_000_000), (1.0, 10.0), epsilons=())
    return [
        lambda: _grid_and_rates(points, 500),
        lambda: search_rows(2, "shift", 60, climbs=0, draws=100),
        lambda: known_rows(500),
        lambda: check_rows(((2, 100, 200),)),
        lambda: literal_rows((10_000,), 3),
        lambda: clipping_rows(7),
    ]


def grid(
    dimensions: Iterable[int] = DIMENSIONS,
    sizes: Iterable[int] = SIZES,
    conditions: Iterable[float] = CONDITIONS,
    floors: Iterable[float] = FLOORS,
    epsilons: Iterable[float] = EPSILONS,
) -> list[Point]:
    """Return all settings: a fixed posterior; one that grows (condition 10); other epsilons (N = 1000).

    Examples
    --------
    >>> len(grid((2,), (100, 1000), (1.0, 10.0), (1.0,), ()))
    6
    """
    ns, rhos = tuple(sizes), tuple(floors)
    points = []
    for d in dimensions:
        points += [Point(d, n, k, rho) for k in conditions for rho in rhos for n in ns]
        points += [Point(d, n, 10.0, rho, "grows") for rho in rhos for n in ns]
        points += [Point(d, 1_000, 10.0, rho, "fixed", e) for rho in rhos for e in epsilons if e != 1.0]
    return points


def posterior(point: Point) -> tuple[Array, Array]:
    """Return eta and the precision of a setting's posterior.

    Examples
    --------
    >>> np.linalg.eigvalsh(posterior(Point(2, 1000, 10.0, 1.0, "grows"))[1]).round(6).tolist()
    [10.0, 100.0]
    """
    rng = np.random.default_rng([point.d, 41])
    rotation = np.linalg.qr(rng.normal(size=(point.d, point.d)))[0]
    mean = rng.normal(size=point.d)
    scale = point.N / SIZES[0] if point.growth == "grows" else 1.0
    precision = scale * (rotation * np.geomspace(1.0, point.condition, point.d)) @ rotation.T
    precision = (precision + precision.T) / 2.0
    return precision @ mean / np.linalg.norm(mean), precision


def noise_of_a_step(records: int, epsilon: float) -> float:
    """Return sigma_1 = sigma_2: the noise of a step of one record, for one pass at this epsilon.

    Examples
    --------
    >>> round(noise_of_a_step(1000, 1.0), 6)        # twice 3.73, over N
    0.007461
    """
    sigma = calibrate(epsilon, DELTA, ShuffledEpochs(1), "replace-one", records, records)
    return CLIP * sigma / records


def grid_rows(points: Sequence[Point], draws: int = 0) -> list[Row]:
    """Return, for settings of one dimension, both bounds and the simulated divergence under both rules.

    Parameters
    ----------
    points
        Settings, all of one dimension.
    draws
        Noise matrices for each; by default 4000, and 400 from d = 30 on.
    """
    posteriors = [posterior(point) for point in points]
    etas, precisions = (np.stack(part) for part in zip(*posteriors, strict=True))
    sigmas = np.array([noise_of_a_step(point.N, point.epsilon) for point in points])
    rhos = np.linalg.eigvalsh(precisions)[:, 0] * np.array([point.floor for point in points])
    cases = Cases(etas, precisions, sigmas, sigmas, rhos)
    settings = [{k: v for k, v in point._asdict().items() if k != "epsilon"} for point in points]
    budgets = [point.epsilon for point in points]
    return compare("bounds", cases, settings, draws or (4_000 if points[0].d < 30 else 400), budgets)


def rate_rows(found: Sequence[Row]) -> list[Row]:
    """Return exponents in N fitted to rows of `grid_rows`, for the largest sizes."""
    series: dict[tuple[Any, ...], list[tuple[int, float | None]]] = {}
    for row in found:
        if row["row"] == "bounds" and row["epsilon"] == 1.0:
            setting = dict(row["setting"])
            n = setting.pop("N")
            key = (row["source"], row["method"], tuple(setting.items()))
            series.setdefault(key, []).append((n, row["mean"]))
    fitted = []
    for (source, method, setting), pairs in series.items():
        last = [(n, value) for n, value in sorted(pairs)[-FITTED:] if value is not None and value > 0.0]
        slope = math.nan
        if len(last) >= 2:
            x, y = np.log([n for n, _ in last]), np.log([value for _, value in last])
            slope = float(np.polyfit(x, y, 1)[0])
        fitted.append(theorem_row("rate", source, method, "exponent in N", slope, setting=dict(setting)))
    return fitted


def claims_rows(*, quick: bool = False, on_step: OnStep = None) -> list[Row]:
    """Return the claims of sections 3 and 4 as experiments, in the format of the other rows.

    Parameters
    ----------
    quick
        Signal and noise only, small.
    on_step
        Called with the number of experiments done and their total.
    """
    if not quick:
        return [_claim(row) for row in claims_all.rows(on_step=on_step)]
    found = claims_noise.per_step((100,), (1, 10), 50)
    found += claims_budget.per_budget((100, 1_000), (1, 10)) + claims_budget.averaged_error(100, (1, 10), 5)
    if on_step is not None:
        on_step(1, 1)
    return [_claim(row) for row in found]


def _claim(row: Row) -> Row:
    own = dict(row)
    claim, metric, value, error, count = (
        own.pop(key) for key in ("claim", "quantity", "value", "standard_error", "n")
    )
    method = own.pop("method", own.get("case"))
    relation = own.pop("relation", method if method in ("zero-out", "replace-one") else "none")
    found = theorem_row(claim, "simulated", method, metric, math.nan if value is None else value, n=count)
    found |= {"relation": relation, "sd": None if error is None else error * math.sqrt(count), "setting": own}
    return found | {"epsilon": 1.0 if claim.startswith(("sigma", "1/N beats 1/B, whole")) else None}


def _grid_and_rates(points: Sequence[Point], draws: int = 0) -> list[Row]:
    found = grid_rows(points, draws)
    return found + rate_rows(found)
