r"""Does clipping stabilise SEP on a network? The paper's own algorithm, without noise, on small made data.

`dpsep_lab.paper.network_written` runs SEP and clipped SEP (each of the four natural parameters to C) on a
network of one hidden layer, whose local factors may have negative precision. The target is a sine of two
features; in the case with outliers one training target in twenty is far off. Figures are those of a test part
without outliers: root mean squared error in units of the target's standard deviation and mean log predictive
density. A run has diverged where a score is not finite, or the error exceeds three of these units (predicting
the mean gives one).

**Privacy**: none. Nothing here has noise.
"""

import math
from collections.abc import Iterable
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from dpsep_lab.paper.network_written import written
from dpsep_lab.paper.networks import Scores, Split, split_of

__all__ = ["CASES", "CLIPS", "made_split", "rows"]

Array = NDArray[np.float64]
Row = dict[str, Any]

CLAIM = "clipping stabilises SEP"
CASES = ("network", "network, outliers")
CLIPS = (math.inf, 10.0, 3.0, 1.0)
GAMMAS: tuple[float | Literal["N"], ...] = (1.0, "N")
SEEDS, RECORDS, PASSES, HIDDEN = 20, 150, 10, 8
DIVERGED = 3.0
"""Root mean squared error, in standard deviations of the target, from which on a run has diverged."""


def made_split(seed: int, case: str = CASES[0], records: int = RECORDS) -> Split:
    """Draw a training and a test part.

    Parameters
    ----------
    seed
        The same seed gives the same data.
    case
        One of `CASES`.
    records
        Of the training part; the test part has 200.

    Examples
    --------
    >>> made_split(0, records=50).X.shape
    (50, 2)
    """
    if case not in CASES:
        raise ValueError(f"case must be one of {', '.join(map(repr, CASES))}, not {case!r}.")
    generator = np.random.default_rng([seed, 3])
    x = generator.uniform(-2.0, 2.0, (records + 200, 2))
    y = np.sin(2.0 * x[:, 0]) + 0.5 * x[:, 1] + 0.1 * generator.standard_normal(len(x))
    wild = generator.random(len(x)) < (0.05 if case == CASES[1] else 0.0)
    wild[records:] = False
    y = y + np.where(wild, 10.0, 0.0) * generator.standard_normal(len(x))
    split = split_of("made", seed, (x[:records], y[:records]), (x[records:], y[records:]))
    return split._replace(hidden=HIDDEN)


def rows(
    cases: Iterable[str] = CASES,
    clips: Iterable[float] = CLIPS,
    *,
    seeds: int = SEEDS,
    records: int = RECORDS,
    passes: int = PASSES,
) -> list[Row]:
    """Return how often runs diverge, and their scores.

    Parameters
    ----------
    cases
        Some of `CASES`.
    clips
        Values of C; infinity, for no clip, comes first and is what the others are compared with.
    seeds, records, passes
        Sets of data, training records in each, and passes over them.
    """
    bounds = tuple(clips)
    if not bounds or bounds[0] != math.inf:
        raise ValueError(f"clips must begin with infinity, which is SEP without a clip, not {bounds}.")
    table: list[Row] = []
    for case in cases:
        splits = [made_split(seed, case, records) for seed in range(seeds)]
        for gamma in GAMMAS:
            plain: Array | None = None
            for clip in bounds:
                fit = written(passes, gamma=gamma, clip=clip)
                errors, densities = _scores(splits, [fit(split) for split in splits])
                plain = errors if plain is None else plain
                speed = 1.0 if gamma == "N" else gamma / records
                base = {"case": case, "clip": clip if clip < math.inf else None, "gamma_over_n": speed}
                table += _rows_of(base, errors, densities, plain)
    return table


def _scores(splits: list[Split], found: list[Scores]) -> tuple[Array, Array]:
    """Return errors in units of the test target, and log densities; a run that diverged has infinite ones."""
    units = [float(split.y_test.std()) for split in splits]
    errors = np.array([scores.rmse / unit for scores, unit in zip(found, units, strict=True)])
    densities = np.array([scores.log_likelihood for scores in found])
    fine = np.isfinite(errors) & np.isfinite(densities)
    return np.where(fine, errors, np.inf), np.where(fine, densities, -np.inf)


def _rows_of(base: Row, errors: Array, densities: Array, plain: Array) -> list[Row]:
    count = len(errors)

    def row(quantity: str, value: float, error: float | None = None) -> Row:
        number = value if math.isfinite(value) else None
        found = {"claim": CLAIM, **base, "quantity": quantity, "value": number, "standard_error": error}
        return found | {"n": count}

    def share(quantity: str, holds: NDArray[np.bool_]) -> Row:
        value = float(holds.mean())
        return row(quantity, value, math.sqrt(value * (1 - value) / count))

    return [
        share("share of runs that diverge", errors > DIVERGED),
        row("test error, median", float(np.median(errors))),
        row("test error, worst", float(errors.max())),
        row("test log density, median", float(np.median(densities))),
        share("share of runs with a smaller error than without a clip", errors < plain),
        share("share of runs with a larger error than without a clip", errors > plain),
    ]
