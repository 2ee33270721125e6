r"""Do intervals under privacy cover the truth as often as they say? Simulated tables, many of them.

A data set is drawn from the model itself: weights from a distribution no wider than the prior, features that
are standard normal and clamped to declared bounds, outcomes from the likelihood. Then a posterior is fitted
with privacy, and every coefficient's central interval either holds the true value or does not. With
`noise_aware` the interval knows the noise that privacy added; without, it is that of q alone, which stands
for a user who takes the private posterior at its word.

Coefficients of one data set are fitted together, so the standard error of a coverage is taken over data sets.
Every budget sees the same data sets, so that a difference between budgets is not one of luck with the data.

**Privacy.** Made data only; the noise is seeded, so nothing here is for release.
"""

import math
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpsep.privacy.leaks import PrivacyLeakWarning
from dpsep_lab.bench.coverage_kinds import KINDS, Made
from dpsep_lab.bench.table import Row, row

EPSILONS = (0.5, 1.0, 3.0)
"""Budgets of the grid."""

Array = NDArray[np.float64]


def cases(quick: bool) -> list[Row]:
    """Return the rows of ``dpsep bench coverage``: every kind, or the first two on few data sets."""
    found = grid(tuple(KINDS)[:2], datasets=10) if quick else grid(tuple(KINDS))
    return [
        row(
            f"coverage/{item['kind']}",
            "dpsep private" + ("" if item["noise_aware"] else ", noise_aware=False"),
            f"coverage of {item['level']:.0%} intervals, epsilon {item['epsilon']:g}",
            item["coverage"],
            against=("nominal", item["level"]),
            n=item["datasets"],
            relation="zero-out",
            **{key: item[key] for key in ("standard_error", "epsilon", "delta", "records", "features")},
            **{key: item[key] for key in ("width_ratio", "error_in_sds", "pull_in_sds")},
        )
        for item in found
    ]


def grid(
    kinds: Sequence[str] = ("linear", "logistic"),
    epsilons: Sequence[float] = EPSILONS,
    datasets: int = 200,
    **settings: Any,
) -> list[dict[str, Any]]:
    """Return the rows of `coverage` for every kind and budget, with `noise_aware` and without.

    Parameters
    ----------
    kinds, epsilons
        What to cross.
    datasets
        Number of made data sets in each cell.
    settings
        Handed to `coverage`.
    """
    for kind in kinds:
        _check(kind, datasets)
    return [
        item
        for kind in kinds
        for epsilon in epsilons
        for item in coverage(kind, epsilon, datasets, **settings)
    ]


def coverage(
    kind: str,
    epsilon: float = 1.0,
    datasets: int = 200,
    records: int = 5000,
    features: int = 5,
    *,
    delta: float = 1e-5,
    level: float = 0.9,
    seed: int = 0,
    **parameters: Any,
) -> list[dict[str, Any]]:
    """Share of true coefficients, the intercept among them, inside their intervals.

    Parameters
    ----------
    kind
        A name out of `KINDS`.
    epsilon, delta
        Budget of each fit.
    datasets
        Number of made data sets.
    records, features
        Shape of each.
    level
        Nominal level of the intervals.
    seed
        Of the data and of the noise.
    parameters
        Handed to the estimator.

    Returns
    -------
    Two rows, with `noise_aware` and without: the coverage, its standard error over data sets, the mean width
    of an interval over that of the same interval without noise of privacy, the root mean square of the
    errors in posterior standard deviations (1 where the posterior is calibrated), and the mean error away
    from zero in the same unit (`pull_in_sds`, below 0 where coefficients are drawn towards zero, as clips
    and priors do).

    Examples
    --------
    >>> rows = coverage("linear", datasets=2, records=400, features=2)
    >>> [row["noise_aware"] for row in rows], rows[0]["coefficients"]
    ([True, False], 6)
    """
    _check(kind, datasets)
    truths, means, wide, narrow = [], [], [], []
    for number in range(datasets):
        made = simulate(kind, records, features, seed=(seed, number))
        budget = {"epsilon": epsilon, "delta": delta, "random_state": seed + number}
        model = KINDS[kind].estimator(**budget, **(made.declared or {}), **parameters)
        with warnings.catch_warnings():
            # The seed is meant: this is an experiment on made data.
            warnings.simplefilter("ignore", PrivacyLeakWarning)
            model.fit(**made.records)
        found = KINDS[kind].moments(model)
        truths.append(made.truth)
        means.append(found.mean)
        wide.append(found.variance)
        narrow.append(found.variance - found.noise_variance)
    truth, mean, base = np.asarray(truths), np.asarray(means), np.sqrt(np.asarray(narrow))
    public = {"kind": kind, "epsilon": epsilon, "delta": delta, "records": records, "features": features}
    public |= {"datasets": datasets, "level": level, "coefficients": truth.size, "seed": seed}
    return [
        public | {"noise_aware": aware} | _row(truth, mean, np.sqrt(np.asarray(variance)), base, level)
        for aware, variance in ((True, wide), (False, narrow))
    ]


def simulate(kind: str, records: int, features: int, *, seed: int | tuple[int, ...]) -> Made:
    """Draw a table with known coefficients, the intercept first."""
    return KINDS[kind].simulate(records, features, np.random.default_rng(seed))


def _check(kind: str, datasets: int) -> None:
    if kind not in KINDS:
        raise ValueError(f"kind is {kind!r}; it must be one of {', '.join(KINDS)}.")
    if datasets < 2:
        raise ValueError(f"datasets is {datasets}; a standard error needs at least 2.")


def _row(truth: Array, mean: Array, sd: Array, base: Array, level: float) -> dict[str, float]:
    # Imported here: the command line must start without SciPy's distributions.
    from scipy.stats import norm

    errors = (mean - truth) / sd
    inside = (np.abs(errors) <= norm.ppf(0.5 + level / 2)).mean(axis=1)
    return {
        "coverage": float(inside.mean()),
        "standard_error": float(inside.std(ddof=1) / math.sqrt(len(inside))),
        "width_ratio": float((sd / base).mean()),
        "error_in_sds": float(np.sqrt((errors**2).mean())),
        "pull_in_sds": float((np.sign(truth) * errors).mean()),
    }
