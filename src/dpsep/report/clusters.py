"""Clusters as in the paper's Figure 1: records coloured by component, rings around the components' means.

A grid of scatter panels in two of the dimensions, one panel a method, all with the same limits. A ring holds
98 % of the Gaussian posterior of a component's mean, marginal in these two dimensions: the ellipse where the
squared Mahalanobis distance is the 98 % point of a chi-square with two degrees of freedom, -2 log 0.02.
Colours are Okabe and Ito's for colour-blind readers and follow the label, so that they mean the same in every
panel where labels are matched to the truth first.

**Privacy.** A picture of records shows them: it is for made data or for the owner's own eyes, and no panel of
it is private, whatever the fit was.
"""

import math
import os
from collections.abc import Sequence
from io import BytesIO
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dpsep.privacy.checkpoint import atomic_write

__all__ = ["COLOURS", "Cell", "panel", "ring"]

COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#F0E442", "#8C8C8C")
Array = NDArray[np.float64]
LEVEL = 0.98
WIDTH = 10.0
DPI = 160
_MARGIN = 0.04
_SHAPES = (0.6, 0.85)  # the least and largest height of a panel over its width


class Cell(NamedTuple):
    """One panel.

    Attributes
    ----------
    title
        Above it.
    x
        The records, (n, D).
    labels
        The component of each, (n,), from 0.
    means, covariances
        Of the posterior of the components' means, (J, D) and (J, D, D); None where there is nothing to draw.
        Without covariances the means have crosses and no rings.
    """

    title: str
    x: Array
    labels: NDArray[np.integer]
    means: Array | None = None
    covariances: Array | None = None


def panel(
    path: str | os.PathLike[str],
    cells: Sequence[Sequence[Cell]],
    dims: tuple[int, int] = (0, 1),
    *,
    title: str = "",
    note: str = "",
) -> None:
    """Draw a grid of panels into a PNG file, 1600 pixels wide, which appears whole or not at all.

    Parameters
    ----------
    path
        The file; one that exists is replaced.
    cells
        Rows of panels from top to bottom; a row shorter than the longest leaves its last places empty.
    dims
        The two dimensions across and up.
    title, note
        Above and below the grid.
    """
    _check(cells, dims)
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
        from matplotlib.layout_engine import ConstrainedLayoutEngine
    except ImportError as error:
        raise ImportError("pictures need matplotlib: pip install 'dpsep[demo]'.") from error
    limits = _limits(cells, dims)
    columns = max(len(row) for row in cells)
    shape = np.ptp(limits[1]) / np.ptp(limits[0])
    height = len(cells) * (WIDTH / columns * shape + 0.2) + 0.3 * bool(title) + 0.25 * bool(note)
    # A figure of its own, outside pyplot: no window system is asked for and no global state is touched.
    figure = Figure(
        figsize=(WIDTH, height),
        layout=ConstrainedLayoutEngine(w_pad=0.05, h_pad=0.05, wspace=0.01, hspace=0.01),
    )
    FigureCanvasAgg(figure)
    axes = figure.subplots(len(cells), columns, squeeze=False)
    for row, places in zip(cells, axes, strict=True):
        for cell, axis in zip(row, places[: len(row)], strict=True):
            _draw(axis, cell, dims, limits)
        for axis in places[len(row) :]:
            axis.set_axis_off()
    if title:
        figure.suptitle(title, fontsize=13, fontweight="bold")
    if note:
        figure.supxlabel(note, fontsize=9, color="#444444")
    buffer = BytesIO()
    figure.savefig(buffer, format="png", dpi=DPI)
    atomic_write(path, buffer.getvalue())


def ring(mean: Array, covariance: Array, points: int = 200) -> Array:
    """Return the ellipse, (points, 2), that holds 98 % of a Gaussian in the plane.

    Parameters
    ----------
    mean, covariance
        (2,) and (2, 2); an eigenvalue below zero by rounding counts as zero.
    points
        How many, spread over the whole turn, the last one equal to the first.
    """
    values, vectors = np.linalg.eigh(covariance)
    if values.min() < -1e-9 * abs(values).max():
        raise ValueError("a ring needs a positive semidefinite covariance; project it first.")
    radii = np.sqrt(np.maximum(values, 0.0) * -2 * math.log(1 - LEVEL))
    turn = np.linspace(0.0, 2 * np.pi, points)
    return mean + (np.stack([np.cos(turn), np.sin(turn)], axis=1) * radii) @ vectors.T


def _draw(axis: Any, cell: Cell, dims: tuple[int, int], limits: Array) -> None:
    colours = [COLOURS[label % len(COLOURS)] for label in np.asarray(cell.labels)]
    across, up = cell.x[:, dims[0]], cell.x[:, dims[1]]
    axis.scatter(across, up, s=9, c=colours, alpha=0.6, linewidths=0, rasterized=True, zorder=2)
    axis.set(xlim=limits[0], ylim=limits[1], xticks=[], yticks=[], aspect="equal", facecolor="#FCFCFC")
    axis.set_title(cell.title, fontsize=11, pad=4)
    for spine in axis.spines.values():
        spine.set(color="#CCCCCC", linewidth=0.8)
    if cell.means is not None:
        _draw_posterior(axis, cell.means, cell.covariances, dims, limits)


def _draw_posterior(
    axis: Any,
    means: Array,
    covariances: Array | None,
    dims: tuple[int, int],
    limits: Array,
) -> None:
    from matplotlib.path import Path
    from matplotlib.patheffects import withStroke

    pair = list(dims)
    centres = np.asarray(means)[:, pair]
    halo = [withStroke(linewidth=3.2, foreground="white")]
    inside = _inside(centres, limits)
    shown = centres[inside]
    axis.plot(*shown.T, "+", color="black", markersize=4, markeredgewidth=1.0, path_effects=halo, zorder=4)
    corners = np.stack(np.meshgrid(*limits), axis=-1).reshape(4, 2)
    hidden_rings = 0
    for number, centre in enumerate(centres if covariances is not None else ()):
        ellipse = ring(centre, np.asarray(covariances)[number][np.ix_(pair, pair)])
        axis.plot(*ellipse.T, color="black", linewidth=1.5, path_effects=halo, zorder=3)
        hidden_rings += bool(inside[number]) and bool(Path(ellipse).contains_points(corners).all())
    counts = ((int((~inside).sum()), "mean"), (hidden_rings, "ring"))
    words = ", ".join(f"{count} {thing}{'s' * (count > 1)} outside" for count, thing in counts if count)
    if words:
        box = {"boxstyle": "round,pad=0.25", "facecolor": "white", "edgecolor": "#CCCCCC", "linewidth": 0.6}
        place = {"transform": axis.transAxes, "ha": "right", "va": "bottom", "fontsize": 8.5, "zorder": 5}
        axis.text(0.975, 0.03, words, bbox=box, **place)


def _inside(points: Array, limits: Array) -> NDArray[np.bool_]:
    return np.all((points >= limits[:, 0]) & (points <= limits[:, 1]), axis=1)


def _limits(cells: Sequence[Sequence[Cell]], dims: tuple[int, int]) -> Array:
    """Return lower and upper limits, (2, 2), that hold all records of all panels in a panel of fair shape."""
    points = np.concatenate([np.asarray(cell.x)[:, list(dims)] for row in cells for cell in row])
    low, high = points.min(axis=0), points.max(axis=0)
    reach = np.maximum(high - low, 1e-6) * (1 + 2 * _MARGIN)
    reach = np.maximum(reach, [reach[1] / _SHAPES[1], reach[0] * _SHAPES[0]])
    return np.stack([(low + high - reach) / 2, (low + high + reach) / 2], axis=1)


def _check(cells: Sequence[Sequence[Cell]], dims: tuple[int, int]) -> None:
    if not cells or not all(cells):
        raise ValueError("cells must hold at least one row, and every row at least one panel.")
    for cell in (cell for row in cells for cell in row):
        if np.ndim(cell.x) != 2 or np.shape(cell.labels) != np.shape(cell.x)[:1] or not len(cell.x):
            raise ValueError(
                f"panel {cell.title!r} needs records (n, D) and as many labels, n at least 1, not shapes "
                f"{np.shape(cell.x)} and {np.shape(cell.labels)}."
            )
        dimension = np.shape(cell.x)[1]
        if len(dims) != 2 or dims[0] == dims[1] or not all(0 <= dim < dimension for dim in dims):
            raise ValueError(f"dims must be two different numbers from 0 to {dimension - 1}, not {dims}.")
        if cell.covariances is not None and cell.means is None:
            raise ValueError(f"panel {cell.title!r} has covariances without means; give both or neither.")
        for values in (cell.x, cell.means, cell.covariances):
            if values is not None and not np.isfinite(values).all():
                raise ValueError(
                    f"panel {cell.title!r} has values that are not finite; leave out means and covariances "
                    "of a fit that failed, and records with missing cells."
                )
