"""Intervals of forty private fits, as they are and without what is known of the noise.

Logistic regression, 5000 made records, five columns, epsilon 0.5, delta 1e-5: a setting like that of the
table in docs/posterior.md. One fit for each made table, seeded noise; both intervals are of the same fit.
"""

import warnings
from typing import Any

import numpy as np
from explain_common import BLUE, GREEN, GREY, ORANGE, RED, main

from dpsep import LogisticRegression, PrivacyLeakWarning

FITS, RECORDS, WEIGHTS, EPSILON = 40, 5000, np.array([0.8, -0.5, 0.3, 0.0, 1.0]), 0.5


def draw() -> Any:
    """Return the figure."""
    from matplotlib import pyplot

    found = np.array([_fit(seed) for seed in range(FITS)])
    figure, axes = pyplot.subplots(1, 2, figsize=(9.2, 4.2), layout="constrained", sharex=True, sharey=True)
    titles = ("As if there were no noise", "Noise-aware, the default")
    for ax, width, title, colour in zip(
        axes, (found[:, 2], found[:, 1]), titles, (BLUE, ORANGE), strict=True
    ):
        missed = np.abs(found[:, 0] - WEIGHTS[0]) > width / 2
        for held, tint, style, name in (
            (~missed, colour, "-", "holds the truth"),
            (missed, RED, ":", "misses it"),
        ):
            rows = np.flatnonzero(held)
            low, high = found[held, 0] - width[held] / 2, found[held, 0] + width[held] / 2
            ax.hlines(rows, low, high, color=tint, linestyle=style, linewidth=2.2, label=name)
        ax.plot(found[:, 0], np.arange(FITS), "|", color="black", markersize=5)
        ax.axvline(WEIGHTS[0], color=GREEN, linewidth=1.2, zorder=0)
        ax.set(
            title=f"{title}: {FITS - missed.sum()} of {FITS} hold the truth",
            xlabel="first coefficient",
            yticks=[],
        )
        ax.legend(loc="lower center", ncols=2, bbox_to_anchor=(0.5, -0.32))
    axes[0].set_ylabel("private fits of made tables", color=GREY)
    return figure


def _fit(seed: int) -> tuple[float, float, float]:
    """Mean of the first coefficient, and the widths of its 90 % interval with the noise and without."""
    rng = np.random.default_rng([7, seed])
    x = rng.uniform(-2, 2, (RECORDS, len(WEIGHTS)))
    y = rng.logistic(size=RECORDS) < x @ WEIGHTS
    model = LogisticRegression(EPSILON, 1e-5, bounds=(-2, 2), classes=[False, True], random_state=seed)
    with warnings.catch_warnings():
        warnings.simplefilter(
            "ignore", PrivacyLeakWarning
        )  # seeded, on made tables: a picture, not a release
        row = model.fit(x, y).summary(level=0.9)[1]
    return row["mean"], row["high"] - row["low"], row["width_without_noise"]


if __name__ == "__main__":
    main("intervals", draw, __doc__)
