"""Rings of a private mixture beside the one without privacy."""

from pathlib import Path

import numpy as np
from common import Measured, Picture, compress, main, rounded, say, seeded
from made import CLUSTER_BOUND, clusters, error_of_means, order_of_means

from dpsep import GaussianMixture
from dpsep.report.clusters import Cell, panel

PICTURE = Picture(
    name="rings",
    title="A private mixture",
    see=(
        "The same four clusters, found without privacy and at three budgets: each ring holds 98 % of the "
        "posterior of a cluster's mean, and grows by the noise that privacy adds. The means are off by "
        "{free:.3f} without privacy, {high:.3f} at epsilon 3, {middle:.3f} at 1 and {low:.3f} at 0.3 (root "
        "mean square)."
    ),
    made=(
        "{records:,} made records, four clusters of unequal sizes and shapes in two columns, data seed 0, "
        "noise seed 0; weights and variances learned; delta 1e-5, zero-out."
    ),
    alt=(
        "Four scatter panels of four coloured clusters with a ring around each found mean. Without privacy "
        "the rings are small; at epsilon 3 and 1 they are a little larger, and at 0.3 one of them is as "
        "large as its cluster; all lie in their clusters."
    ),
    still="rings.png",
)
BUDGETS = (("free", None), ("high", 3.0), ("middle", 1.0), ("low", 0.3))


def measure(quick: bool, folder: Path) -> Measured:
    """Fit the same records at every budget."""
    del folder
    x, truth = clusters(300 if quick else 800)
    cells: Measured = {}
    caption: Measured = {"records": len(x)}
    for name, epsilon in BUDGETS:
        budget: Measured = {"private": False} if epsilon is None else {"epsilon": epsilon, "random_state": 0}
        with seeded():
            model = GaussianMixture(len(truth), bounds=(-CLUSTER_BOUND, CLUSTER_BOUND), **budget).fit(x)
        order = order_of_means(model.means_, truth)
        back = np.argsort(order)
        cells[name] = {
            "means": rounded(model.means_[order], 5),
            "covariances": rounded(model.mean_covariances_[order], 7),
            "labels": back[model.predict(x)].tolist(),
        }
        caption[name] = error_of_means(model.means_, truth)
        say(f"  {'no privacy' if epsilon is None else f'epsilon {epsilon:g}'}: error {caption[name]:.3f}")
    return {"x": rounded(x, 3), "cells": cells, "caption": caption}


def draw(found: Measured, folder: Path) -> None:
    """Draw a panel for each budget."""
    x = np.asarray(found["x"])
    drawn = []
    for name, epsilon in BUDGETS:
        cell = found["cells"][name]
        title = "no privacy" if epsilon is None else rf"$\epsilon$ = {epsilon:g}"
        moments = (np.asarray(cell["means"]), np.asarray(cell["covariances"]))
        drawn.append(Cell(title, x, np.asarray(cell["labels"]), *moments))
    note = "Made data. A ring holds 98 % of the posterior of a mean."
    panel(folder / PICTURE.still, [drawn[:2], drawn[2:]], note=note)
    compress(folder / PICTURE.still)


if __name__ == "__main__":
    main(PICTURE, measure, draw)
