"""One piece of work of the survey: a cell on some seeds, as one line of results.

A line holds, for every seed, the mean, the standard deviation, the standard deviation without the noise of
privacy (from the summary's ``width_without_noise``) and the prior's standard deviation of each coefficient,
two statistics of the whole posterior, whether the fit warned of a weak budget, and how long it took. All
that is said of a cell is worked out from such lines (`dpsep_lab.bench.honesty.results`).

**Privacy.** Made data only; the noise is seeded, so nothing here is for release.
"""

import hashlib
import math
import time
import warnings
import zlib
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import chi2

import dpsep
from dpsep.privacy.leaks import PrivacyLeakWarning
from dpsep.theory.glm_defaults import WeakBudgetWarning
from dpsep_lab.bench.honesty import others
from dpsep_lab.bench.honesty.cells import Cell
from dpsep_lab.bench.honesty.floor import DELTA, floor
from dpsep_lab.bench.honesty.targets import Absent, Table, made, make

__all__ = ["code", "fit", "line", "program"]

LEVEL = 0.9
SPAN = 1.6448536269514722
"""Standard deviations that a 90 % interval reaches to each side."""
DRAWS = 400
"""Draws of a posterior whose distances from a reference point are compared with the truth's."""

Array = NDArray[np.float64]


def line(cell: Cell, seeds: range) -> dict[str, Any]:
    """Fit a cell on the tables of some seeds; return the line of results.

    Parameters
    ----------
    cell
        Of the list.
    seeds
        Numbers of the tables.
    """
    out: dict[str, Any] = {"cell": cell.name, "code": code(), "version": dpsep.__version__}
    first = made(cell.target, cell.design, cell.records, seeds.start)
    out |= {"classes": list(first.classes), "floor": _short(floor(cell, first))}
    done: list[dict[str, Any]] = []
    failed: dict[str, str] = {}
    for seed in seeds:
        table = made(cell.target, cell.design, cell.records, seed)
        try:
            done.append({"seed": seed, "truth": _short(table.truth)} | fit(cell, table, seed))
        except Absent as error:
            return out | {"absent": str(error), "fits": [], "failed": {}}
        except Exception as error:  # a fit that fails is a result
            failed[str(seed)] = f"{type(error).__name__}: {error}"[:300]
    return out | {"fits": done, "failed": failed}


def fit(cell: Cell, table: Table, seed: int) -> dict[str, Any]:
    """Fit one table and read the result.

    Parameters
    ----------
    cell
        Of the list.
    table
        Its table of this seed.
    seed
        Of the noise, too, together with the cell's name.
    """
    rng = np.random.default_rng([zlib.crc32(cell.name.encode()), seed])
    start = time.perf_counter()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        if cell.who != "dpsep":
            mean, covariance = others.fit(cell, table, rng)
            found: dict[str, Any] = {"mean": mean, "bare": None, "prior": None, "covariance": covariance}
        else:
            found = _ours(cell, table, int(rng.integers(2**31)))
    seconds = time.perf_counter() - start
    weak = any(issubclass(item.category, WeakBudgetWarning) for item in caught)
    covariance = found.pop("covariance")
    out: dict[str, Any] = {"seconds": round(seconds, 3), "weak": weak}
    out |= {name: None if value is None else _short(value) for name, value in found.items()}
    out["sd"] = None if covariance is None else _short(np.sqrt(np.diagonal(covariance)))
    return out | (_whole(found["mean"], covariance, table.truth, rng) if covariance is not None else {})


def _ours(cell: Cell, table: Table, noise: int) -> dict[str, Any]:
    settings: dict[str, Any] = {"private": False}
    if cell.epsilon is not None:
        settings = {"epsilon": cell.epsilon, "delta": DELTA, "relation": cell.relation}
        settings |= {"sampling": cell.sampling, "random_state": noise}
    model, more = make(cell.target, table, bounded=cell.bounded, by_person=cell.by_person, **settings)
    warnings.filterwarnings("ignore", category=PrivacyLeakWarning)
    model.fit(table.X, table.y, **more)
    count = len(table.truth)
    posterior = model.posterior_
    names = list(posterior.names)[:count]
    rows = {row["name"]: row for row in model.summary(LEVEL)}
    bare = [rows[name].get("width_without_noise", math.nan) / (2 * SPAN) for name in names]
    return {
        "mean": posterior.mean[:count],
        "covariance": posterior.covariance[:count, :count],
        "bare": np.asarray(bare, np.float64),
        "prior": _prior(model, table),
    }


def _prior(model: Any, table: Table) -> Array:
    """Standard deviations of the prior in units of the table, as the posterior says them, or as documented.

    As documented: `prior_scale` per reach of the column's bounds (a standard deviation where there are none),
    ten times that for the intercept, in units of the reach of the target's bounds (where those are not
    declared, of three standard deviations).
    """
    said = getattr(model.posterior_, "prior_sd", getattr(model, "prior_sd_", None))
    if said is not None:
        return np.asarray(said, np.float64)[: len(table.truth)]
    parameters = model.get_params(deep=False)
    scale = float(parameters.get("prior_scale", 2.0))
    size = 1.0
    if "target_bounds" in parameters and len(np.unique(table.y)) > 2 and np.min(table.y) < 0:
        declared = parameters["target_bounds"]
        size = 3 * float(np.std(table.y)) if declared is None else (declared[1] - declared[0]) / 2
    low, high = np.asarray(model.feature_bounds_, np.float64)[:, : len(table.low)]
    reach = (high - low) / 2
    reach = np.where(np.isfinite(reach) & (reach > 0), reach, np.std(table.X, axis=0))
    return np.concatenate([[10 * scale * size], scale * size / np.maximum(reach, 1e-300)])


def _whole(mean: Array, covariance: Array, truth: Array, rng: np.random.Generator) -> dict[str, float]:
    """Two numbers that are uniform over tables where the whole posterior is calibrated.

    ``region`` is the level of the ellipsoid that just holds the truth (chi-square); ``tarp`` is the share of
    draws nearer than the truth to a reference point (TARP, Lemos et al. 2023), with distances in
    posterior standard deviations.
    """
    error = truth - mean
    try:
        factor = np.linalg.cholesky(covariance)
    except np.linalg.LinAlgError:
        return {"region": math.nan, "tarp": math.nan}
    region = float(chi2.cdf(np.sum(np.linalg.solve(factor, error) ** 2), len(mean)))
    sd = np.sqrt(np.diagonal(covariance))
    # The point may know the table, but not the truth.
    reference = mean + 1.5 * sd * rng.standard_normal(len(mean))
    draws = mean + rng.standard_normal((DRAWS, len(mean))) @ factor.T
    far = np.sum(((draws - reference) / sd) ** 2, axis=1)
    tarp = float(np.mean(far < np.sum(((truth - reference) / sd) ** 2)))
    return {"region": round(region, 5), "tarp": tarp}


def program(cell: Cell) -> tuple[Any, ...]:
    """What cells that share compiled programs have in common."""
    open_or = "open" if cell.epsilon is None else "private"
    wide = {"one-hot", "interactions", "nested"}
    parts = (cell.who, cell.target, cell.design in wide, open_or, cell.sampling == "full", cell.bounded)
    return (*parts, cell.by_person, cell.records)


@cache
def code() -> str:
    """Digest of the library and of what makes the survey's tables: lines of another one are not mixed in."""
    digest = hashlib.sha256()
    own = Path(__file__).resolve().parent
    root = Path(dpsep.__file__).resolve().parent
    files = [(path.relative_to(root).as_posix(), path) for path in sorted(root.rglob("*.py"))]
    files += [(name, own / name) for name in ("designs.py", "targets.py", "others.py", "work.py")]
    for name, path in files:
        digest.update(name.encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()[:12]


def _short(values: Any) -> list[float | None]:
    """Numbers with six significant digits; null where not finite."""
    return [float(f"{value:.6g}") if math.isfinite(value) else None for value in np.asarray(values)]
