"""What the lines of the survey say: coverage, errors, widths, verdicts.

`scores` gives one entry a cell and class of coefficients. `verdict` holds it to what a posterior promises:
where the model is right, a 90 % interval covers at least 86 % of the truths; where the data speak (posterior
standard deviation below half the prior's), at most 95 %. A cell is excused where the library warned and the
floor of the variance (`dpsep_lab.bench.honesty.floor`) exceeds a quarter of the prior's.

`consistency` compares fits at a huge budget with those without privacy, `steps` successive budgets on the
same tables, `ranks` whole posteriors.
"""

import math
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.stats import chi2, norm

from dpsep_lab.bench.honesty.cells import CELLS, HUGE, Cell, open_twin

__all__ = ["Fits", "Score", "aims", "consistency", "joined", "outside", "ranks", "scores", "steps", "verdict"]

SPAN = 1.6448536269514722
"""Standard deviations that a 90 % interval reaches to each side."""
LEAST, WORST, MOST = 0.86, 0.82, 0.95
"""Limits of coverage."""
NEAR = 0.1
"""Root mean square, in posterior standard deviations, of what a huge budget may leave."""
WORSE = 1.10
"""Bound of the ratio of errors of successive budgets."""
BINS = 10
"""Of ranks, for the chi-square test."""
CLASSES = ("common", "rare", "hard", "intercept")

Array = NDArray[np.float64]


class Fits(NamedTuple):
    """All fits of a cell.

    Attributes
    ----------
    cell
        Of the list.
    seeds
        Numbers of the tables, shape (fits,).
    classes
        Of the coefficients.
    truth, mean, sd, bare, prior
        Shape (fits, coefficients); not a number where there is none. `bare` is the standard deviation
        without the noise of privacy.
    floor
        Least variance of each coefficient.
    region, tarp, weak, seconds
        Of each fit.
    failed
        Why fits failed.
    absent
        Why there are none, if there are none.
    """

    cell: Cell
    seeds: NDArray[np.int64]
    classes: tuple[str, ...]
    truth: Array
    mean: Array
    sd: Array
    bare: Array
    prior: Array
    floor: Array
    region: Array
    tarp: Array
    weak: Array
    seconds: Array
    failed: tuple[str, ...]
    absent: str = ""


class Score(NamedTuple):
    """What is said of a cell and a class of coefficients.

    Attributes
    ----------
    cell, kind
        Of what.
    tables, coefficients
        How many fits, and coefficients of the class in each.
    coverage, error
        Of 90 % intervals, and its standard error over tables.
    bias, rmse
        Of the means, in units of the table.
    against_open
        RMSE of each coefficient over that without privacy on the same tables; their root mean square.
    z_mean, z_sd
        Of (mean - truth) / stated standard deviation.
    of_prior
        Median of stated standard deviation over the prior's.
    width
        Median of stated width without noise over the width without privacy; should be one.
    warned, failed
        Shares of fits.
    floor
        Floor of the variance over the prior's, the least of the class; above 1/4 nothing can be learned.
    seconds
        Median of a fit.
    verdict
        See `verdict`.
    sure
        Whether a coverage beyond a limit is so by more than two standard errors.
    """

    cell: Cell
    kind: str
    tables: int
    coefficients: int
    coverage: float
    error: float
    bias: float
    rmse: float
    against_open: float
    z_mean: float
    z_sd: float
    of_prior: float
    width: float
    warned: float
    failed: float
    floor: float
    seconds: float
    verdict: str
    sure: bool = False


def joined(lines: Iterable[dict[str, Any]]) -> dict[str, Fits]:
    """Join lines: the fits of each cell by its name, in the order of the list."""
    groups: dict[str, list[dict[str, Any]]] = {}
    for line in lines:
        groups.setdefault(line["cell"], []).append(line)
    return {cell.name: _fits(cell, groups[cell.name]) for cell in CELLS if cell.name in groups}


def _fits(cell: Cell, lines: Sequence[dict[str, Any]]) -> Fits:
    fits = {item["seed"]: item for line in lines for item in line["fits"]}
    ordered = [fits[seed] for seed in sorted(fits)]
    failed = {seed: why for line in lines for seed, why in line["failed"].items() if int(seed) not in fits}
    whole = next((line for line in lines if "classes" in line), {"classes": (), "floor": ()})
    count = len(whole["classes"])

    def columns(name: str) -> Array:
        empty = [math.nan] * count
        rows = [item.get(name) or empty for item in ordered]
        return np.array(rows, np.float64).reshape(len(ordered), count)

    def numbers(name: str) -> Array:
        return np.array([item.get(name, math.nan) for item in ordered], np.float64)

    return Fits(
        cell=cell,
        seeds=np.array(sorted(fits), np.int64),
        classes=tuple(whole["classes"]),
        truth=columns("truth"),
        mean=columns("mean"),
        sd=columns("sd"),
        bare=columns("bare"),
        prior=columns("prior"),
        floor=np.array(whole["floor"], np.float64),
        region=numbers("region"),
        tarp=numbers("tarp"),
        weak=numbers("weak"),
        seconds=numbers("seconds"),
        failed=tuple(failed.values()),
        absent=next((line["absent"] for line in lines if "absent" in line), ""),
    )


def scores(results: dict[str, Fits]) -> list[Score]:
    """Return what is said of every cell and class, in the order of the list.

    Parameters
    ----------
    results
        As `joined` returns them.
    """
    found = []
    for fits in results.values():
        twin = results.get(open_twin(fits.cell).name)
        if len(fits.seeds) == 0:
            found.append(_empty(fits))
            continue
        found += [
            _score(fits, kind, np.array([name == kind for name in fits.classes]), twin)
            for kind in CLASSES
            if kind in fits.classes
        ]
    return found


def _empty(fits: Fits) -> Score:
    nothing: Any = dict.fromkeys(Score._fields, math.nan)
    known = {"cell": fits.cell, "kind": "all", "tables": 0, "coefficients": 0}
    known |= {"failed": float(bool(fits.failed)), "verdict": "absent" if fits.absent else "failed"}
    return Score(**(nothing | known))


def _score(fits: Fits, kind: str, which: NDArray[np.bool_], twin: Fits | None) -> Score:
    errors = fits.mean[:, which] - fits.truth[:, which]
    z = errors / fits.sd[:, which]
    inside = (np.abs(z) <= SPAN).mean(axis=1)
    tables = len(errors)
    silent = bool(np.isnan(fits.sd[:, which]).all())
    coverage = math.nan if silent else float(inside.mean())
    spread = float(inside.std(ddof=1) / math.sqrt(tables)) if tables > 1 and not silent else math.nan
    against, width = math.nan, math.nan
    if twin is not None and len(twin.seeds):
        both, mine, theirs = np.intersect1d(fits.seeds, twin.seeds, return_indices=True)
        if len(both):
            open_errors = twin.mean[theirs][:, which] - twin.truth[theirs][:, which]
            # Columns have units of their own: a ratio for each coefficient, and their root mean square.
            unit = np.sqrt(np.mean(open_errors**2, axis=0))
            against = _rms(errors[mine] / np.where(unit > 0, unit, math.nan))
            width = _median(fits.bare[mine][:, which] / twin.sd[theirs][:, which])
    done = len(fits.seeds) + len(fits.failed)
    score = Score(
        cell=fits.cell,
        kind=kind,
        tables=tables,
        coefficients=int(which.sum()),
        coverage=coverage,
        error=spread,
        bias=float(errors.mean()),
        rmse=_rms(errors),
        against_open=against,
        z_mean=float(z.mean()),
        z_sd=float(z.std()),
        of_prior=_median(fits.sd[:, which] / fits.prior[:, which]),
        width=width,
        warned=float(fits.weak.mean()),
        failed=len(fits.failed) / done,
        floor=_least(fits.floor[which] / fits.prior[:, which] ** 2),
        seconds=_median(fits.seconds),
        verdict="",
    )
    # The standard error of few tables that all agree is not zero.
    doubt = 2 * max(spread, 0.3 / math.sqrt(inside.size * which.sum()))
    sure = not LEAST - doubt <= coverage <= MOST + doubt
    return score._replace(verdict=verdict(score), sure=sure)


def outside(scores: Iterable[Score], role: str) -> dict[str, int]:
    """Return how many scores of a role count, are outside their limits, surely so, and far too low."""
    judged = [score for score in scores if counted(score) and score.cell.role == role]
    bad = [score for score in judged if score.verdict != "holds"]
    far = sum(score.verdict == "far too low" for score in bad)
    return {"judged": len(judged), "outside": len(bad), "surely": sum(s.sure for s in bad), "far": far}


def verdict(score: Score) -> str:
    """Return what a score comes to, in a word or two.

    ``holds``, ``low`` (below 0.86), ``far too low`` (below 0.82), ``high`` (above 0.95 though the data
    speak), ``excused`` (the library warned, and the floor says that nothing can be learned), ``wrong model``
    (not judged), ``no interval`` (of a peer), ``failed`` (more than one fit in fifty).
    """
    if score.failed > 0.02:
        return "failed"
    if math.isnan(score.coverage):
        return "no interval"
    if not score.cell.right:
        return "wrong model"
    low, high = score.coverage < LEAST, score.coverage > MOST and score.of_prior < 0.5
    if not low and not high:
        return "holds"
    if score.warned > 0.5 and score.floor > 0.25:
        return "excused"
    if high:
        return "high"
    return "far too low" if score.coverage < WORST else "low"


def counted(score: Score) -> bool:
    """Whether a score counts in the share of cells that hold: epsilon 0.25 to 8, and the model is right."""
    epsilon = score.cell.epsilon
    ours = score.cell.who == "dpsep" and epsilon is not None and 0.25 <= epsilon <= 8
    return ours and score.verdict not in ("absent", "wrong model", "excused")


RARE_ERRORS = {
    ("logistic", "zero-out"): {1.0: 0.40, 3.0: 0.22, 8.0: 0.19},
    ("poisson", "zero-out"): {1.0: 0.20, 3.0: 0.11, 8.0: 0.085},
    ("logistic", "replace-one"): {1.0: 0.65},
    ("poisson", "replace-one"): {1.0: 0.35},
}
"""RMSE of the coefficient of a 0/1 column of 1.5 % of 10,000 rows that is to be reached, by budget."""
ROOM = 1.3
"""How much larger an error may be with loose bounds at epsilon 1, and without bounds from epsilon 3 on."""


def aims(found: Iterable[Score]) -> list[dict[str, Any]]:
    """Return the errors that are to be reached, each with its limit and whether it holds.

    Parameters
    ----------
    found
        As `scores` returns them.
    """
    known = {(score.cell, score.kind): score for score in found if score.tables}
    out = []
    for (cell, kind), score in known.items():
        limits = RARE_ERRORS.get((cell.target, cell.relation), {})
        usual = cell.sampling == "full" and cell.who == "dpsep" and not cell.by_person
        if not usual or cell.epsilon is None:
            continue
        rare = cell.design == "rare" and cell.records == 10_000 and cell.bounded and kind == "rare"
        if rare and cell.epsilon in limits:
            out.append(_aim(cell, kind, "RMSE", score.rmse, limits[cell.epsilon]))
        tight = known.get((cell._replace(bounded=True), kind))
        if not cell.bounded and 3 <= cell.epsilon <= 8 and tight is not None:
            out.append(_aim(cell, kind, "RMSE over that with bounds", score.rmse / tight.rmse, ROOM))
        plain = known.get((cell._replace(design="plain"), kind))
        if cell.design == "loose" and cell.epsilon == 1 and plain is not None:
            out.append(_aim(cell, kind, "RMSE over that with tight bounds", score.rmse / plain.rmse, ROOM))
    return out


def _aim(cell: Cell, kind: str, what: str, value: float, limit: float) -> dict[str, Any]:
    row = {"cell": cell.name, "kind": kind, "what": what, "value": value, "limit": limit}
    return row | {"holds": value <= limit}


def consistency(results: dict[str, Fits]) -> list[dict[str, Any]]:
    """Return, of each cell with a huge budget, how far its means are from those without privacy.

    The root mean square over tables and coefficients, and of the worst class, in posterior standard
    deviations of the fit without privacy.
    """
    found = []
    for fits in results.values():
        twin = results.get(open_twin(fits.cell).name)
        if fits.cell.epsilon != HUGE or twin is None:
            continue
        both, mine, theirs = np.intersect1d(fits.seeds, twin.seeds, return_indices=True)
        if not len(both):
            continue
        gaps = (fits.mean[mine] - twin.mean[theirs]) / twin.sd[theirs]
        by_class = {
            kind: _rms(gaps[:, [name == kind for name in fits.classes]])
            for kind in CLASSES
            if kind in fits.classes
        }
        whole = _rms(gaps)
        row = {"cell": fits.cell.name, "tables": len(both), "gap": whole, "holds": whole <= NEAR}
        found.append(row | {"worst": max(by_class.values()), "by_class": by_class})
    return found


def steps(results: dict[str, Fits]) -> list[dict[str, Any]]:
    """Return the paired ratio of errors of successive budgets, with a one-sided 99 % bound.

    For every class whose model is right and whose posterior at the smaller budget is below half the prior's:
    RMSE at the larger budget over RMSE at the smaller one on the same tables, errors in units of the
    smaller budget's typical error of each coefficient. The bound is of the logarithm, by the delta method.
    """
    series: dict[tuple[Any, ...], list[Fits]] = {}
    for fits in results.values():
        cell = fits.cell
        if cell.epsilon is not None and cell.who == "dpsep" and cell.right and len(fits.seeds):
            series.setdefault(cell._replace(epsilon=None), []).append(fits)
    found = []
    for group in series.values():
        group.sort(key=lambda fits: fits.cell.epsilon or 0.0)
        for small, large in pairwise(group):
            found += _step(small, large)
    return found


def _step(small: Fits, large: Fits) -> list[dict[str, Any]]:
    both, first, second = np.intersect1d(small.seeds, large.seeds, return_indices=True)
    found = []
    for kind in CLASSES:
        which = [name == kind for name in small.classes]
        if not any(which) or len(both) < 2:
            continue
        if not _median(small.sd[first][:, which] / small.prior[first][:, which]) < 0.5:
            continue
        before = (small.mean - small.truth)[first][:, which]
        after = (large.mean - large.truth)[second][:, which]
        unit = np.sqrt(np.mean(before**2, axis=0))
        a, b = np.mean((before / unit) ** 2, axis=1), np.mean((after / unit) ** 2, axis=1)
        logarithm = 0.5 * math.log(b.mean() / a.mean())
        spread = 0.5 * np.std(b / b.mean() - a / a.mean(), ddof=1) / math.sqrt(len(both))
        bound = math.exp(logarithm + float(norm.ppf(0.99)) * float(spread))
        row = {"cell": large.cell.name, "from": small.cell.epsilon, "kind": kind, "tables": len(both)}
        found.append(row | {"ratio": math.exp(logarithm), "bound": bound, "holds": bound < WORSE})
    return found


def ranks(results: dict[str, Fits]) -> list[dict[str, Any]]:
    """Return tests of whole posteriors where coefficients are drawn for every table.

    For each: p-values of a chi-square test that the ranks of the truth, the levels of the ellipsoid that
    just holds it, and TARP's shares are uniform; and the largest gap of TARP's coverage from its level.
    """
    found = []
    for fits in results.values():
        if fits.cell.design != "drawn" or not len(fits.seeds):
            continue
        rank = norm.cdf((fits.truth - fits.mean) / fits.sd)
        tarp = fits.tarp[np.isfinite(fits.tarp)]
        levels = np.sort(tarp)
        gap = (
            np.max(np.abs(levels - (np.arange(len(levels)) + 0.5) / len(levels))) if len(levels) else math.nan
        )
        found.append(
            {
                "cell": fits.cell.name,
                "tables": len(fits.seeds),
                "ranks": uniform(rank.ravel()),
                "region": uniform(fits.region),
                "tarp": uniform(tarp),
                "gap": float(gap),
                "histogram": np.histogram(rank, BINS, (0, 1))[0].tolist(),
            }
        )
    return found


def uniform(values: Array) -> float:
    """Return the p-value of the chi-square test that numbers in [0, 1] are uniform, in up to `BINS` bins."""
    kept = values[np.isfinite(values)]
    bins = min(BINS, len(kept) // 5)
    if bins < 2:
        return math.nan
    counts = np.histogram(kept, bins, (0, 1))[0]
    expected = len(kept) / bins
    return float(chi2.sf(np.sum((counts - expected) ** 2) / expected, bins - 1))


def _rms(values: Array) -> float:
    return float(np.sqrt(np.mean(values**2)))


def _median(values: Array) -> float:
    known = values[np.isfinite(values)]
    return float(np.median(known)) if known.size else math.nan


def _least(values: Array) -> float:
    known = np.median(values, axis=0)
    known = known[np.isfinite(known)]
    return float(known.min()) if known.size else math.nan
