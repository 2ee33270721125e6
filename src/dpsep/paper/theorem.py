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

import itertools
import math
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.integrate import quad

from dpsep.families import Gaussian
from dpsep.paper import claims_all, claims_budget, claims_noise
from dpsep.privacy.accounting import calibrate
from dpsep.privacy.sampling import ShuffledEpochs
from dpsep.theory.cases import Cases, check_corrected, random_cases, search_printed
from dpsep.theory.clipping import FORMS, clipping_kl
from dpsep.theory.corrected_bound import corrected_bound
from dpsep.theory.expected_kl import Rule, expected_kl_batch
from dpsep.theory.printed_bound import READINGS, Reading, best_M, printed_bound

__all__ = [
    "Point",
    "check_rows",
    "claims_rows",
    "clipping_rows",
    "grid",
    "grid_rows",
    "known_rows",
    "literal_rows",
    "noise_of_a_step",
    "only",
    "posterior",
    "rate_rows",
    "rows",
    "search_rows",
    "truncated_mean",
]

Array = NDArray[np.float64]
Row = dict[str, Any]
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
CHECKED = ((1, 2_000, 1_000), (2, 4_000, 1_000), (4, 3_000, 400), (10, 800, 300), (30, 200, 200))
"""Dimension, cases and draws a case of the check of the corrected bound: 10 000 cases in all."""
LITERAL = {"precision": 1.0, "eta": 1.0, "sigma": 1.0, "rho": 0.1}
"""The case in which step 10 is read word for word."""
RULES: tuple[Rule, Rule] = ("shift", "floor")


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


def only(rows: Iterable[Row], name: str | None = None, **wanted: Any) -> list[Row]:
    """Return rows of one name whose keys, or whose setting's keys, have these values."""
    return [
        row
        for row in rows
        if name in (None, row["row"])
        and all(
            row[key] == value if key in row else row["setting"].get(key) == value
            for key, value in wanted.items()
        )
    ]


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
    return _compare("bounds", cases, settings, draws or (4_000 if points[0].d < 30 else 400), budgets)


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
        fitted.append(_row("rate", source, method, "exponent in N", slope, setting=dict(setting)))
    return fitted


def search_rows(
    dimension: int, rule: Rule, count: int = 400, *, climbs: int = 40, draws: int = 300
) -> list[Row]:
    """Return how often the printed bound is undefined, fails or holds in random cases, and the worst case.

    Parameters
    ----------
    dimension, rule
        d, and how the precision is made positive definite.
    count
        Random cases for each reading.
    climbs
        Rounds of climbing in the reading in which b belongs to the eigenvectors.
    draws
        Noise matrices for each case.
    """
    table = []
    for reading in READINGS:
        steps = climbs if reading == "eigenbasis" else 0
        found = search_printed(dimension, count, rule=rule, reading=reading, climbs=steps, draws=draws)
        base = {"d": dimension, "rule": rule, "reading": reading}
        make = partial(_row, "search", "printed", f"{rule}, {reading}")
        for metric in ("undefined", "fails", "holds"):
            table.append(make(f"cases: {metric}", getattr(found, metric), n=count, setting=base))
        used = (found.mean - found.start) / (found.bound - found.start)
        table.append(make("room used in the worst case", used, setting=base))
        if found.mean - 4.0 * found.standard_error > found.bound:
            table += _example(base, found.case, reading, f"random, d = {dimension}", 20 * draws)
    return table


def known_rows(draws: int = 4_000) -> list[Row]:
    """Return a counter-example by hand, and the case of d = 4 and N = 1000 with three rho."""
    hand = Cases(
        *(np.array([part]) for part in ([0.0, 1.0], np.diag([100.0, 1.0]))),
        *(np.array([number]) for number in (1e-3, 1e-3, 0.1)),
    )
    table = []
    for reading in READINGS:
        table += _example({"d": 2, "rule": "shift", "reading": reading}, hand, reading, "by hand", draws)
    rotation = np.linalg.qr(np.random.default_rng(0).normal(size=(4, 4)))[0]
    precision = 1_000.0 * (rotation * np.array([0.8, 1.0, 1.2, 1.5])) @ rotation.T
    precision = (precision + precision.T) / 2.0
    rhos = np.array([1e-4, 400.0, 800.0])
    sigma = np.full(3, 6.5e-3)
    etas = np.tile(precision @ np.array([2.0, -1.0, 2.0, 1.5]), (3, 1))
    cases = Cases(etas, np.tile(precision, (3, 1, 1)), sigma, sigma, rhos)
    settings = [{"d": 4, "N": 1_000, "rho": rho, "sigma": 6.5e-3} for rho in rhos.tolist()]
    return table + _compare("known case", cases, settings, draws, [None] * 3)


def check_rows(parts: Iterable[tuple[int, int, int]] = CHECKED, seed: int = 0) -> list[Row]:
    """Return violations of the corrected bound in random cases, and bound over sample mean by bucket.

    Parameters
    ----------
    parts
        Triples: dimension, cases, draws a case.
    seed
        Of the cases and the draws.
    """
    table = []
    for d, count, draws in parts:
        found = check_corrected(random_cases(d, count, seed), draws=draws, seed=seed)
        make = partial(_row, "check", "corrected", "floor")
        setting = {"d": d, "draws": draws}
        table.append(make("violations", len(found.violations), n=count, setting=setting))
        ratios = found.tightness.tolist()
        table.append(make("bound over sample mean", ratios, setting=setting))
        for bucket in found.buckets:
            own = setting | {"floor": bucket.rho, "decade": bucket.decade, "largest": bucket.largest}
            row = make("bound over sample mean, by bucket", bucket.median, n=bucket.size, setting=own)
            table.append(row | {"mean": None, "sd": None})
    return table


def literal_rows(
    sizes: Iterable[int] = (1_000, 10_000, 100_000, 400_000), repeats: int = 5, dimension: int = 2
) -> list[Row]:
    """Return sample means under step 10 word for word, beside the floor, and the exact d = 1 divergence.

    Parameters
    ----------
    sizes
        Numbers of draws.
    repeats
        Sample means for each.
    dimension
        Of the sampled case.
    """
    table = []
    eye = np.broadcast_to(LITERAL["precision"] * np.eye(dimension), (repeats, dimension, dimension))
    eta = np.zeros((repeats, dimension))
    eta[:, 0] = LITERAL["eta"]
    scales = [np.full(repeats, LITERAL[name]) for name in ("sigma", "sigma", "rho")]
    rules: tuple[Rule, ...] = ("literal", "floor")
    for rule in rules:
        for draws in sizes:
            means = expected_kl_batch(eta, eye, *scales, rule=rule, draws=draws, seed=draws).mean.tolist()
            setting = {"d": dimension, "draws": draws, "least": min(means), "largest": max(means)}
            table.append(_row("step 10", "simulated", rule, "sample mean of KL", means, setting=setting))
    for exponent in (2, 4, 8, 16, 32, 64):
        value = truncated_mean(10.0**-exponent)
        setting = {"d": 1, "c": 10.0**-exponent}
        table.append(_row("step 10", "exact", "literal", "E[KL; not 0 < w < c]", value, setting=setting))
    growth = (truncated_mean(1e-64) - truncated_mean(1e-32)) / (32.0 * math.log(10.0))
    density = math.exp(-0.5 / LITERAL["sigma"] ** 2) / (math.sqrt(2.0 * math.pi) * LITERAL["sigma"])
    limit = 0.5 * (LITERAL["sigma"] ** 2 + LITERAL["eta"] ** 2) * density
    for metric, number in (("growth with log(1/c)", growth), ("growth, closed form", limit)):
        table.append(_row("step 10", "exact", "literal", metric, number, setting={"d": 1}))
    return table


def truncated_mean(c: float) -> float:
    """Mean of the divergence under `literal` at d = 1, leaving out noisy precisions between 0 and c.

    With precision 1, mean 1 and w ~ N(1, sigma^2) it is the integral of KL(w) over w > c, plus KL(rho) times
    the probability of w <= 0. It grows without limit as c goes to zero.

    Examples
    --------
    >>> truncated_mean(1e-8) > truncated_mean(1e-4) > truncated_mean(1e-2)
    True
    """
    sigma, eta = LITERAL["sigma"], LITERAL["eta"]

    def divergence(w: float) -> float:
        return 0.5 * (w - 1.0 - math.log(w) + (sigma**2 + (w - 1.0) ** 2 * eta**2) / w)

    def density(y: float) -> float:
        w = math.exp(y)  # an integral over log w, in which the pole is flat
        return divergence(w) * math.exp(-0.5 * ((w - 1.0) / sigma) ** 2 + y)

    top = math.log(1.0 + 12.0 * sigma)
    edges = [math.log(c), *(y for y in (-20.0, -5.0, 0.0) if y > math.log(c)), top]
    parts = [quad(density, low, high)[0] for low, high in itertools.pairwise(edges)]
    below = 0.5 * math.erfc(1.0 / (sigma * math.sqrt(2.0)))
    return sum(parts) / (sigma * math.sqrt(2.0 * math.pi)) + below * divergence(LITERAL["rho"])


def clipping_rows(points: int = 49) -> list[Row]:
    """Return the divergence that clipping makes, over C, in three forms, for a sharp and a wide posterior."""
    table = []
    mean = np.array([2.0, -1.0, 2.0, 1.5])
    for name, scale in (("sharp", 100.0), ("wide", 0.01)):
        precision = scale * np.diag([0.8, 1.0, 1.2, 1.5])
        q = _gaussian(precision @ mean, precision)
        for clip in np.geomspace(1e-2, 1e4, points).tolist():
            for form in FORMS:
                source = "definition" if form == "general" else form
                setting = {"posterior": name, "d": 4, "C": clip}
                value = clipping_kl(q, clip, form=form)
                table.append(_row("clipping", source, "clipped SEP", "KL", value, setting=setting))
    return table


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
    found = _row(claim, "simulated", method, metric, math.nan if value is None else value, n=count)
    found |= {"relation": relation, "sd": None if error is None else error * math.sqrt(count), "setting": own}
    return found | {"epsilon": 1.0 if claim.startswith(("sigma", "1/N beats 1/B, whole")) else None}


def _grid_and_rates(points: Sequence[Point], draws: int = 0) -> list[Row]:
    found = grid_rows(points, draws)
    return found + rate_rows(found)


def _compare(
    name: str, cases: Cases, settings: Sequence[Row], draws: int, budgets: Sequence[float | None]
) -> list[Row]:
    """Rows of both bounds and of the simulation under both rules."""
    table = []
    found = {rule: expected_kl_batch(*cases, rule=rule, draws=draws) for rule in RULES}
    for place, (setting, epsilon) in enumerate(zip(settings, budgets, strict=True)):
        q, rho = cases.posterior(place), float(cases.rho[place])
        one, two = float(cases.sigma_1[place]), float(cases.sigma_2[place])
        printed = printed_bound(q, one, two, rho=rho, M=best_M(len(cases.eta[place]), two)).total
        corrected = corrected_bound(q, one, two, rho=rho).total
        bounds = [
            _row(name, "printed", "shift", "expected KL", printed, setting=setting),
            _row(name, "corrected", "floor", "expected KL", corrected, setting=setting),
        ]
        for rule, estimate in found.items():
            pairs = estimate.draws // 2
            mean, error = float(estimate.mean[place]), float(estimate.standard_error[place])
            row = _row(name, "simulated", rule, "expected KL", mean, n=pairs, setting=setting)
            bounds.append(row | {"median": None, "sd": error * math.sqrt(pairs)})
        relation = "replace-one" if epsilon is not None else "none"
        table += [row | {"epsilon": epsilon, "relation": relation} for row in bounds]
    return table


def _example(base: Row, case: Cases, reading: Reading, name: str, draws: int) -> list[Row]:
    """Rows of one case with all its numbers: the printed bound and the simulated divergence."""
    numbers = {"eta": case.eta[0].tolist(), "precision": case.precision[0].tolist()}
    numbers |= {key: float(part[0]) for key, part in zip(case._fields[2:], case[2:], strict=True)}
    setting = base | {"case": name} | numbers
    bound = printed_bound(
        case.posterior(0),
        numbers["sigma_1"],
        numbers["sigma_2"],
        rho=numbers["rho"],
        M=best_M(base["d"], numbers["sigma_2"]),
        reading=reading,
    ).total
    estimate = expected_kl_batch(*case, rule=base["rule"], draws=draws, seed=1)
    pairs = estimate.draws // 2
    mean, spread = float(estimate.mean[0]), float(estimate.standard_error[0]) * math.sqrt(pairs)
    simulated = _row("example", "simulated", base["rule"], "expected KL", mean, n=pairs, setting=setting)
    return [
        _row("example", "printed", base["rule"], "expected KL", bound, setting=setting),
        simulated | {"median": None, "sd": spread},
    ]


def _gaussian(eta: Array, precision: Array) -> Gaussian:
    return Gaussian(eta, precision)  # pyright: ignore[reportArgumentType]


def _row(
    name: str,
    source: str,
    method: str,
    metric: str,
    value: float | Sequence[float],
    *,
    n: int | None = None,
    setting: Row | None = None,
) -> Row:
    """One figure, of a number or of several; numbers that are not finite become None."""
    numbers = np.atleast_1d(np.asarray(value, np.float64))
    mean, median = (
        float(part) if math.isfinite(part) else None for part in (numbers.mean(), np.median(numbers))
    )
    sd = float(numbers.std(ddof=1)) if len(numbers) > 1 else 0.0
    return {
        "table": "theorem",
        "row": name,
        "source": source,
        "dataset": None,
        "method": method,
        "epsilon": None,
        "relation": "none",
        "metric": metric,
        "mean": mean,
        "median": median,
        "sd": sd,
        "n": len(numbers) if n is None else n,
        "setting": setting or {},
    }
