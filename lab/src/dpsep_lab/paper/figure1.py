"""Figure 1 of the paper: clusters and the posteriors of their means, by each method.

Rows as in the paper: the labelled truth, EP and SEP; clipped SEP as the paper writes it, for its three C;
DP-SEP at epsilon 1, 5 and 50; DP-EM at the same. A row of DP-SEP as the paper writes it, with the noise that
its order of records demands, stands before ours. Two of the four dimensions are shown; rings hold 98 % of the
posterior of a mean. Points have the colour of their most probable component, matched to the truth.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpsep.report.clusters import Cell, panel
from dpsep_lab.paper import noise, table1
from dpsep_lab.paper.clusters import Experiment, errors, make, match, truth

Array = NDArray[np.float64]

SEED = 4
"""The data set shown: chosen because its clusters are apart in the two dimensions shown."""
EPSILONS = (1.0, 5.0, 50.0)


def draw(
    path: Path,
    seed: int = SEED,
    passes: int = table1.PASSES,
    dims: tuple[int, int] = (0, 1),
    on_step: Callable[[int, int], None] | None = None,
) -> list[dict[str, Any]]:
    """Write the figure, and return one row a panel: what is shown and its average F-norm."""
    experiment = make(seed)
    best = truth(experiment, table1.PRIOR_PRECISION)
    lines = _lines(passes)
    total = sum(map(len, lines))
    cells, rows = [], []
    for line in lines:
        cells.append([])
        for title, fit in line:
            means, covariances = (best.means, best.covariances) if fit is None else fit(experiment, seed)
            order = match(best.means, means)
            means, covariances = means[order], covariances[order]
            labels = experiment.labels if fit is None else _labels(experiment, means, covariances)
            cells[-1].append(Cell(title, experiment.x, labels, means, covariances))
            found = errors(best.means, best.covariances, means, covariances)
            rows.append({"figure": "figure1", "panel": title, "average F-norm": found.average, "seed": seed})
            if on_step is not None:
                on_step(len(rows), total)
    note = "Made data: 1000 records, 4 clusters, 4 dimensions. Private fits: delta = 1e-5, zero-out."
    panel(path, cells, dims, title="Posterior of the cluster means", note=note)
    return rows


def _lines(passes: int) -> list[list[tuple[str, Any]]]:
    """Titles and fits of the panels, row by row; the truth has no fit."""
    ours, written = table1.ours, table1.written
    first = [
        ("truth (labels known)", None),
        ("EP", ours("ep", None, "zero-out")),
        ("SEP", ours("sep", None, "zero-out")),
    ]
    clipped = [(f"SEP clipped as written, C = {c:g}", written(passes, clip=c)) for c in table1.CLIPS]
    as_written = []
    for epsilon in EPSILONS:
        deviation = noise.as_written(epsilon, "zero-out", table1.CLIPS[-1])
        fit = written(passes, clip=table1.CLIPS[-1], deviations=(deviation, deviation))
        as_written.append((rf"DP-SEP as written, $\epsilon$ = {epsilon:g}", fit))
    private = [
        [(rf"{name}, $\epsilon$ = {epsilon:g}", _aware(method, epsilon)) for epsilon in EPSILONS]
        for name, method in (("DP-SEP (ours)", "sep"), ("DP-EM (ours)", "em"))
    ]
    return [first, clipped, as_written, *private]


def _aware(method: str, epsilon: float) -> Any:
    """Return a private fit with the posterior that users get: widened by the noise of privacy."""
    return table1.ours(method, epsilon, "zero-out", noise_aware=True)


def _labels(experiment: Experiment, means: Array, covariances: Array) -> NDArray[np.intp]:
    """Most probable component of each record, under the posterior."""
    scores = []
    for mean, covariance in zip(means, covariances, strict=True):
        predictive = covariance + experiment.noise**2 * np.eye(len(mean))
        offset = experiment.x - mean
        distance = np.sum(offset * np.linalg.solve(predictive, offset.T).T, axis=1)
        scores.append(-0.5 * (distance + np.linalg.slogdet(predictive)[1]))
    return np.argmax(np.stack(scores, axis=1), axis=1)
