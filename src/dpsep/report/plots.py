"""Pictures of a fitted model: its posterior with the part that is noise of privacy, and its predictions.

Each function draws into the axes it is given, or into a new figure, and returns the axes. Matplotlib is
imported when one is called (extra ``demo``). Blue is what the data say, orange what the noise of privacy
adds, grey what would be expected where the model is right.

**Privacy.** A picture of the posterior shows what a fit released and costs nothing. A picture with targets
shows them as they are: give rows that are public, and say so.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import polars
from numpy.typing import NDArray
from scipy.stats import binom, norm

from dpsep.data import as_matrix
from dpsep.report.calibration import Calibration, warn_of_rows
from dpsep.report.drawing import BLUE, GREY, ORANGE, PALE, legend_above, new_axes, plain, rows_down
from dpsep.report.marginals import COMPONENTS, marginals
from dpsep.report.planning import plot_plan

__all__ = [
    "plot_coverage",
    "plot_forest",
    "plot_pit",
    "plot_plan",
    "plot_posterior",
    "plot_predictive",
    "plot_reliability",
]

LEVEL = 0.9
BAND = 0.95
"""Share of the pointwise bands of what would be expected."""
MOST = 100
"""Most rows that a picture of predictions shows, evenly spread over those given."""

Array = NDArray[np.float64]


def plot_forest(
    estimator: Any, level: float = 0.9, *, names: Sequence[str] | None = None, ax: Any = None
) -> Any:
    """Draw the interval of every coefficient, with the part of it that the noise of privacy adds.

    Parameters
    ----------
    estimator
        Fitted. Of a mixture the component means are drawn; of a network an interval about zero for each
        layer, as wide as that of a typical weight.
    level
        Of the intervals.
    names
        Which coefficients to draw, by name; all by default.
    ax
        Matplotlib axes; None makes a figure.

    Examples
    --------
    >>> from dpsep import LinearRegression
    >>> X = np.linspace(-1, 1, 200)[:, None]; y = 1 + 2 * X[:, 0] + 0.3 * np.sin(np.arange(200.0))
    >>> model = LinearRegression(private=False).fit(X, y)
    >>> axes = plot_forest(model, names=["x0"])
    >>> axes.get_xlabel()
    'coefficient'
    """
    rows, noisy, quantity = marginals(estimator, level, names)
    ax = new_axes(ax, height=1.5 + 0.34 * len(rows))
    places = np.arange(len(rows))
    means = np.array([row.mean for row in rows])
    reach, own = np.array([row.reach for row in rows]), np.array([row.own for row in rows])
    if quantity != COMPONENTS:  # zero is no special place for a component
        ax.axvline(0.0, color=GREY, linewidth=1, zorder=1)
    if noisy:
        label = f"{level:.0%} interval"
        ax.hlines(places, means - reach, means + reach, color=ORANGE, linewidth=3, zorder=2, label=label)
        label = "without the noise of privacy"
        ax.hlines(places, means - own, means + own, color=BLUE, linewidth=6, zorder=3, label=label)
    else:
        label = f"{level:.0%} interval"
        ax.hlines(places, means - reach, means + reach, color=BLUE, linewidth=4, zorder=3, label=label)
    # A thin mark: a round one would cover intervals that are narrow on the scale of the means.
    ax.plot(means, places, "|", color="black", markersize=12, markeredgewidth=1.2, zorder=4, label="mean")
    rows_down(ax, [row.label for row in rows], top=-0.6)
    ax.set_xlabel(quantity)
    return legend_above(ax)


def plot_posterior(estimator: Any, *, names: Sequence[str] | None = None, ax: Any = None) -> Any:
    """Draw the marginal density of every coefficient, with and without the noise of privacy.

    Parameters
    ----------
    estimator
        Fitted; as in `plot_forest`.
    names
        Which coefficients to draw, by name; all by default.
    ax
        Matplotlib axes; None makes a figure.

    Examples
    --------
    >>> from dpsep import LinearRegression
    >>> X = np.linspace(-1, 1, 200)[:, None]; y = 1 + 2 * X[:, 0] + 0.3 * np.sin(np.arange(200.0))
    >>> model = LinearRegression(private=False).fit(X, y)
    >>> axes = plot_posterior(model)
    >>> len(axes.lines) > 0
    True
    """
    rows, noisy, quantity = marginals(estimator, LEVEL, names)
    ax = new_axes(ax, height=1.4 + 0.55 * len(rows))
    if quantity != COMPONENTS:  # zero is no special place for a component
        ax.axvline(0.0, color=GREY, linewidth=1, zorder=1)
    reach = float(norm.ppf(0.5 + LEVEL / 2))
    grid = np.linspace(-3.5, 3.5, 141)
    bell = np.exp(-0.5 * grid**2)
    for place, row in enumerate(rows):
        first = place == 0
        # Both curves hold the same area; the one without noise is the higher and sets the scale.
        height = 0.85 * (row.own / row.reach if noisy else 1.0)
        colour = ORANGE if noisy else BLUE
        x = row.mean + grid * row.reach / reach
        order = {"zorder": 2 + place, "label": "posterior" if first else None}
        ax.fill_between(x, place, place - height * bell, color=colour, alpha=0.5, linewidth=0, **order)
        if noisy:
            x, label = row.mean + grid * row.own / reach, "without the noise of privacy" if first else None
            ax.plot(x, place - 0.85 * bell, color=BLUE, linewidth=1.4, zorder=2 + place, label=label)
    rows_down(ax, [row.label for row in rows], top=-1.0, shift=-0.42)
    ax.set_xlabel(quantity)
    return legend_above(ax)


def plot_pit(found: Calibration, bins: int = 10, *, ax: Any = None) -> Any:
    """Draw the histogram of PIT values, with the band in which 95 % of bars lie where the model is right.

    A valley says that predictions are too narrow, a hill that they are too wide, a slope that they are off
    to one side.

    Parameters
    ----------
    found
        Of `dpsep.report.calibration.calibration`.
    bins
        Number of bars.
    ax
        Matplotlib axes; None makes a figure.

    Examples
    --------
    >>> from dpsep import LinearRegression
    >>> X = np.linspace(-1, 1, 200)[:, None]; y = 1 + 2 * X[:, 0] + 0.3 * np.sin(np.arange(200.0))
    >>> model = LinearRegression(private=False).fit(X, y)
    >>> from dpsep import calibration
    >>> axes = plot_pit(calibration(model, X, y, public=True), bins=8)
    >>> axes.get_xlabel()
    'PIT value of the target'
    """
    ax = new_axes(ax)
    low, high = binom.ppf([(1 - BAND) / 2, (1 + BAND) / 2], found.rows, 1 / bins) * bins / found.rows
    edges = np.linspace(0.0, 1.0, bins + 1)
    heights = np.histogram(found.pit, edges)[0] * bins / found.rows
    ax.bar(edges[:-1], heights, 1 / bins, align="edge", color=BLUE, alpha=0.75, edgecolor="white", zorder=2)
    ax.axhspan(
        low, high, color=GREY, alpha=0.25, linewidth=0, zorder=3, label=f"{BAND:.0%} band if calibrated"
    )
    ax.axhline(1.0, color=GREY, linewidth=1, zorder=3)
    ax.set(xlim=(0, 1), ylim=(0, max(1.35 * high, 1.12 * heights.max())))
    ax.set(xlabel="PIT value of the target", ylabel="density")
    ax.legend(frameon=False, fontsize=9, loc="upper right")
    return plain(ax)


def plot_coverage(found: Calibration, *, ax: Any = None) -> Any:
    """Draw the share of targets inside central predictive intervals against the level these name.

    Parameters
    ----------
    found
        Of `dpsep.report.calibration.calibration`; its levels are marked.
    ax
        Matplotlib axes; None makes a figure.

    Examples
    --------
    >>> from dpsep import LinearRegression
    >>> X = np.linspace(-1, 1, 200)[:, None]; y = 1 + 2 * X[:, 0] + 0.3 * np.sin(np.arange(200.0))
    >>> model = LinearRegression(private=False).fit(X, y)
    >>> from dpsep import calibration
    >>> axes = plot_coverage(calibration(model, X, y, public=True))
    >>> axes.get_xlabel()
    'level of the interval'
    """
    ax = new_axes(ax, width=4.6, height=4.4)
    levels = np.linspace(0.0, 1.0, 201)
    low, high = binom.ppf(np.array([[(1 - BAND) / 2], [(1 + BAND) / 2]]), found.rows, levels) / found.rows
    ax.fill_between(
        levels, low, high, color=PALE, linewidth=0, zorder=1, label=f"{BAND:.0%} band if calibrated"
    )
    ax.plot([0, 1], [0, 1], color=GREY, linewidth=1, zorder=2)
    share = np.searchsorted(np.sort(2 * np.abs(found.pit - 0.5)), levels, side="right") / found.rows
    ax.plot(levels, share, color=BLUE, linewidth=1.8, zorder=3, label="targets inside")
    ax.plot(found.levels, found.coverage, "o", color=BLUE, markersize=6, zorder=4)
    ax.set(xlim=(0, 1), ylim=(0, 1), aspect="equal", xlabel="level of the interval", ylabel="share inside")
    ax.legend(frameon=False, fontsize=9, loc="upper left")
    return plain(ax)


def plot_reliability(found: Calibration, *, ax: Any = None) -> Any:
    """Draw how often the second class came against its predicted probability, in bins.

    Bars reach over the middle 95 % of what would be seen in a bin where its prediction is right; marks are
    the larger the more rows a bin holds.

    Parameters
    ----------
    found
        Of `dpsep.report.calibration.calibration`, of a classifier.
    ax
        Matplotlib axes; None makes a figure.

    Examples
    --------
    >>> from dpsep import LogisticRegression, calibration
    >>> X = np.linspace(-3, 3, 400)[:, None]; y = (X[:, 0] + np.sin(np.arange(400.0)) > 0).astype(int)
    >>> model = LogisticRegression(private=False).fit(X, y)
    >>> axes = plot_reliability(calibration(model, X, y, public=True))
    >>> axes.get_xlabel()
    'predicted probability'
    """
    bins = found.reliability
    if bins is None:
        raise ValueError("reliability is of classifiers; draw the calibration of others with plot_pit.")
    ax = new_axes(ax, width=4.6, height=4.4)
    ax.plot([0, 1], [0, 1], color=GREY, linewidth=1, zorder=1)
    ends = [(1 - BAND) / 2, (1 + BAND) / 2]
    low, high = (binom.ppf(end, bins.rows, bins.predicted) / bins.rows for end in ends)
    label = f"{BAND:.0%} band if calibrated"
    ax.vlines(bins.predicted, low, high, color="#BBBBBB", linewidth=5, zorder=2, label=label)
    size = 20 + 100 * bins.rows / bins.rows.max()
    ax.scatter(
        bins.predicted,
        bins.observed,
        s=size,
        color=BLUE,
        edgecolor="white",
        zorder=3,
        label="observed (size: rows)",
    )
    ax.set(xlim=(-0.03, 1.03), ylim=(-0.03, 1.03), aspect="equal")
    ax.set(xlabel="predicted probability", ylabel="observed share of the second class")
    note = f"expected calibration\nerror {bins.expected_error:.3f}"
    ax.text(0.98, 0.03, note, transform=ax.transAxes, ha="right", va="bottom", fontsize=9)
    ax.legend(frameon=False, fontsize=9, loc="upper left")
    return plain(ax)


def plot_predictive(
    estimator: Any,
    X: Any,
    y: Any = None,
    *,
    feature: int | str | None = None,
    level: float = 0.9,
    public: bool = False,
    draws: int = 1000,
    random_state: int | np.random.Generator | None = 0,
    ax: Any = None,
) -> Any:
    """Draw the predictive interval of each row against a feature, or against the observed target.

    For classifiers it is the interval of the probability of the second class, and targets are shown as 0
    and 1. Of many rows at most `MOST` are shown.

    Parameters
    ----------
    estimator
        Fitted, with a target.
    X
        Rows.
    y
        Their targets; without them a feature must be named.
    feature
        Name or place of the column to draw against; None draws against y.
    level
        Of the intervals.
    public
        Say True where y is public; otherwise a private estimator raises a `PrivacyLeakWarning`.
    draws, random_state
        Of the draws that intervals are made of.
    ax
        Matplotlib axes; None makes a figure.

    Examples
    --------
    >>> from dpsep import LinearRegression
    >>> X = np.linspace(-1, 1, 200)[:, None]; y = 1 + 2 * X[:, 0] + 0.3 * np.sin(np.arange(200.0))
    >>> model = LinearRegression(private=False).fit(X, y)
    >>> axes = plot_predictive(model, X, y, feature=0, public=True)
    >>> axes.get_xlabel()
    'x0'
    """
    if y is None and feature is None:
        raise ValueError("name a feature to draw against, or give y to draw against the observed targets.")
    labels = hasattr(estimator, "classes_")
    if labels and feature is None:
        raise ValueError("predictions of labels are drawn against a feature; for y use plot_reliability.")
    if y is not None:
        warn_of_rows(estimator, "plot_predictive", public=public)
    matrix, names = as_matrix(X)
    kept = np.unique(np.linspace(0, len(matrix) - 1, MOST).astype(int))
    rows = matrix[kept]
    draw = estimator.posterior_expected if labels else estimator.posterior_predictive
    # Rows keep the names of their columns, so that these are checked.
    sample = draw(rows if names is None else polars.DataFrame(rows, schema=list(names)), draws, random_state)
    low, middle, high = np.quantile(sample, [0.5 - level / 2, 0.5, 0.5 + level / 2], axis=0)
    seen = None if y is None else np.asarray(y).reshape(-1)[kept]
    if labels and seen is not None:
        seen = (seen == estimator.classes_[1]).astype(float)
    ax = new_axes(ax)
    place = None if feature is None else _place(estimator, feature)
    across = np.asarray(seen, dtype=float) if place is None else rows[:, place]
    ax.vlines(
        across, low, high, color=BLUE, alpha=0.35, linewidth=1.6, zorder=2, label=f"{level:.0%} interval"
    )
    ax.plot(across, middle, "o", color=BLUE, markersize=3, zorder=3, label="median")
    if place is None:
        ends = [across.min(), across.max()]
        ax.plot(ends, ends, color=GREY, linewidth=1, zorder=1)
        ax.set(xlabel="observed", ylabel="predicted")
    else:
        if seen is not None:
            mark = "|" if labels else "x"
            ax.plot(across, seen, mark, color="black", markersize=5, zorder=4, label="observed")
        target = f"probability of {estimator.classes_[1]}" if labels else "target"
        ax.set(xlabel=_names(estimator)[place], ylabel=target)
    return legend_above(plain(ax))


def _names(estimator: Any) -> list[str]:
    names = getattr(estimator, "feature_names_in_", None)
    return [f"x{place}" for place in range(estimator.n_features_in_)] if names is None else list(names)


def _place(estimator: Any, feature: int | str) -> int:
    names = _names(estimator)
    if isinstance(feature, str) and feature in names:
        return names.index(feature)
    if not isinstance(feature, str) and 0 <= feature < len(names):
        return int(feature)
    raise ValueError(f"there is no feature {feature!r}; the names are {', '.join(names)}.")
