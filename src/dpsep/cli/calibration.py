r"""Does a run predict as it says? Histograms of PIT values and residuals, reliability of labels.

Of numbers and counts: PIT values (`dpsep.estimators.row_scores`) in ten bins, which hold equal shares where
the model is right; the share of targets inside central predictive intervals, which is a sum of shares of PIT
values about one half; and residuals in predictive standard deviations. Of labels: predicted probabilities in
ten bins, and how often the second label came in each. On public rows all this is exact. On held-out rows it
is made of the released counts of these bins: shares are those nearest to counts over the released number of
rows that are not negative and sum to one.

**Privacy.** *What is released:* histograms as blocks of the one release of `dpsep.cli.metrics`. A row adds
one to one bin of each, so that each has norm 1, by construction (a ``count`` block of
`dpsep.privacy.grid`); scores keep `SCORES_SHARE` of the budget. Edges are constants. *Relation, event:*
those of that release. What is made of released counts is post-processing. The proof is in
docs/proofs/metrics.md.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpsep.privacy.grid import Block

__all__ = ["SCORES_SHARE", "bin_numbers", "calibration_of_counts", "calibration_of_rows", "histogram_blocks"]

Array = NDArray[np.float64]

PIT_EDGES = np.round(np.linspace(0.0, 1.0, 11), 10)
RESIDUAL_EDGES = np.linspace(-4.0, 4.0, 17)
CHANCE_EDGES = PIT_EDGES
LEVELS = np.round(np.linspace(0.05, 0.95, 19), 10)
"""Levels of intervals on public rows; on held-out rows those that whole bins of PIT values make."""
SCORES_SHARE = 2.0 / 3.0
"""Share of the privacy budget of the release that the scores keep: their noise grows by sqrt(3/2), 22 %."""
LEAST_COUNT = 3.0
"""A bin whose count is less than this many deviations of its noise says nothing of how often a label came."""


def histogram_blocks(*, labels: bool) -> tuple[Block, ...]:
    """Return the blocks of the histograms of a model of labels, or of numbers and counts.

    Examples
    --------
    >>> [(block.name, block.bins, block.clip) for block in histogram_blocks(labels=False)]
    [('pit', 10, 1.0), ('residuals', 16, 1.0)]
    """
    bins = {"reliability": 2 * (len(CHANCE_EDGES) - 1)}
    if not labels:
        bins = {"pit": len(PIT_EDGES) - 1, "residuals": len(RESIDUAL_EDGES) - 1}
    share = (1.0 - SCORES_SHARE) / len(bins)
    return tuple(Block(name, 1, 1.0, share, "count", size) for name, size in bins.items())


def bin_numbers(scores: Mapping[str, Array]) -> dict[str, Array]:
    """Return the bin of each row in each histogram, NaN where the row has none.

    The bin of a label is twice that of its predicted probability, and one more where it is the second.

    Parameters
    ----------
    scores
        From `dpsep.estimators.row_scores`.
    """
    if "probability" in scores:
        return {"reliability": 2.0 * _bin(scores["probability"], CHANCE_EDGES) + scores["second"]}
    if "pit" in scores:
        return {
            "pit": _bin(scores["pit"], PIT_EDGES),
            "residuals": _bin(scores["residual"], RESIDUAL_EDGES),
        }
    return {}


def calibration_of_rows(scores: Mapping[str, Array]) -> dict[str, Any] | None:
    """Return the calibration on public rows, exact; None of a mixture and where no row can be scored."""
    bins = bin_numbers(scores)
    good = np.all([np.isfinite(numbers) for numbers in bins.values()], axis=0) if bins else np.zeros(0, bool)
    rows = int(np.sum(good))
    if rows == 0:
        return None
    if "reliability" in bins:
        return {"source": "public", "reliability": _reliability(scores, bins["reliability"], good)}
    pit = np.asarray(scores["pit"])[good]
    inside = np.abs(pit - 0.5)[:, None] <= LEVELS / 2
    shares = {
        name: np.bincount(bins[name][good].astype(int), minlength=len(edges) - 1) / rows
        for name, edges in (("pit", PIT_EDGES), ("residuals", RESIDUAL_EDGES))
    }
    return {
        "source": "public",
        "pit": _histogram(PIT_EDGES, shares["pit"], None, rows),
        "coverage": {
            "level": LEVELS.tolist(),
            "share": inside.mean(axis=0).tolist(),
            "noise_sd": None,
            "rows": rows,
        },
        "residuals": _histogram(RESIDUAL_EDGES, shares["residuals"], None, rows),
    }


def calibration_of_counts(
    released: Mapping[str, Array], deviations: Mapping[str, float], usable: float, rows: int
) -> dict[str, Any]:
    """Return the calibration that released counts tell of.

    With no count below zero, a bin's share is 1/m + (count - mean of the m counts) / n, n rows. To first
    order the noise in the share q of a bins is then sqrt(a (1 - a/m) d^2 + (q - a/m)^2 c^2) / n, d and c
    being the deviations of the noise in a count and in n. Moving to shares that are not negative comes nearer
    to the truth, and this is left out of account. A histogram states the noise of the bin where it is
    largest.

    Parameters
    ----------
    released
        Noisy counts by the name of the histogram.
    deviations
        Standard deviation of the noise in each count of a histogram, and of that in ``usable`` as "scores".
    usable
        Released number of rows that could be scored, positive.
    rows
        Number of held-out rows, public.

    Examples
    --------
    >>> counts = {"pit": np.array([7.0, 22, 17, 20, 22, 18, 21, 24, 16, 33])}
    >>> found = calibration_of_counts(counts, {"pit": 3.0, "scores": 3.0}, 200.0, 200)
    >>> [round(share, 3) for share in found["coverage"]["share"]]
    [0.2, 0.405, 0.61, 0.8, 1.0]
    """
    found: dict[str, Any] = {"source": "charged"}
    for name, edges in (("pit", PIT_EDGES), ("residuals", RESIDUAL_EDGES)):
        if name not in released:
            continue
        share = _nearest_shares(released[name] / usable)
        units = deviations[name] / usable, deviations["scores"] / usable
        noise = _noise_of_shares(share, np.ones(len(share)), len(share), *units)
        found[name] = _histogram(edges, share, float(noise.max()), rows)
        if name == "pit":
            found["coverage"] = _coverage(share, *units, rows)
    if "reliability" in released:
        found["reliability"] = _noisy_reliability(released["reliability"], deviations["reliability"])
    return found


def _bin(values: Array, edges: Array) -> Array:
    """Bin of each value, NaN of NaN; the bins at the ends take all that lies beyond."""
    place = np.searchsorted(edges[1:-1], values, side="right").astype(np.float64)
    return np.where(np.isnan(values), np.nan, place)


def _histogram(edges: Array, share: Array, noise: float | None, rows: int) -> dict[str, Any]:
    return {"edges": edges.tolist(), "share": share.tolist(), "noise_sd": noise, "rows": rows}


def _coverage(share: Array, count: float, usable: float, rows: int) -> dict[str, Any]:
    """Shares of targets in intervals of whole bins about the middle; all bins hold all targets."""
    half = len(share) // 2
    reach = np.arange(1, half + 1)
    inside = np.array([share[half - one : half + one].sum() for one in reach])
    inside[-1] = 1.0
    return {
        "level": np.round(reach / half, 10).tolist(),
        "share": inside.tolist(),
        "noise_sd": _noise_of_shares(
            inside, np.asarray(2.0 * reach, np.float64), len(share), count, usable
        ).tolist(),
        "rows": rows,
    }


def _nearest_shares(values: Array) -> Array:
    """Return the nearest point with no negative coordinate and a sum of one: all less a constant, or zero.

    Examples
    --------
    >>> _nearest_shares(np.array([0.5, 0.9, -0.2])).round(3).tolist()
    [0.3, 0.7, 0.0]
    """
    falling = np.sort(values)[::-1]
    constant = (np.cumsum(falling) - 1.0) / np.arange(1, len(values) + 1)
    return np.maximum(values - constant[np.flatnonzero(falling > constant)[-1]], 0.0)


def _noise_of_shares(share: Array, bins: Array, total: int, count: float, usable: float) -> Array:
    """Noise in the share of some bins, from that in one count and in the number of rows, both over it."""
    part = bins / total
    return np.sqrt(bins * (1.0 - part) * count**2 + ((share - part) * usable) ** 2)


def _reliability(scores: Mapping[str, Array], cells: Array, good: NDArray[np.bool_]) -> dict[str, Any]:
    bins = len(CHANCE_EDGES) - 1
    first, second = np.bincount(cells[good].astype(int), minlength=2 * bins).reshape(bins, 2).T
    rows = first + second
    place = cells[good].astype(int) // 2
    chances = np.bincount(place, np.asarray(scores["probability"])[good], minlength=bins)
    middle = (CHANCE_EDGES[1:] + CHANCE_EDGES[:-1]) / 2
    return {
        "edges": CHANCE_EDGES.tolist(),
        "predicted": np.where(rows > 0, chances / np.maximum(rows, 1), middle).tolist(),
        "observed": [
            float(part / whole) if whole else None for part, whole in zip(second, rows, strict=True)
        ],
        "rows": rows.tolist(),
        "noise_sd": None,
    }


def _noisy_reliability(released: Array, deviation: float) -> dict[str, Any]:
    """Shares of the second label, where a bin's count stands out from its noise; middles as predictions."""
    counts = np.maximum(released.reshape(-1, 2), 0.0)
    rows = counts.sum(axis=1)
    observed: list[float | None] = []
    noise: list[float | None] = []
    for (first, second), whole in zip(counts, rows, strict=True):
        if whole <= LEAST_COUNT * deviation * np.sqrt(2.0):
            observed.append(None)
            noise.append(None)
            continue
        observed.append(float(second / whole))
        noise.append(float(deviation * np.hypot(first, second) / whole**2))
    return {
        "edges": CHANCE_EDGES.tolist(),
        "predicted": np.round((CHANCE_EDGES[1:] + CHANCE_EDGES[:-1]) / 2, 10).tolist(),
        "observed": observed,
        "rows": np.rint(rows).astype(int).tolist(),
        "noise_sd": noise,
    }
