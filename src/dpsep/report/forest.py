"""Forest plots: coefficients with their intervals, several fits of one model side by side.

One panel a model, one row a coefficient, one mark and bar a fit. Fits differ by colour, mark and place, so
that the picture reads without colour too (colours: Okabe and Ito's palette for colour-blind readers).
"""

import os
from collections.abc import Mapping, Sequence
from io import BytesIO
from typing import Any, NamedTuple

from dpsep.privacy.checkpoint import atomic_write

__all__ = ["Panel", "forest_plot"]

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7")
MARKS = ("o", "s", "D", "^")


class Panel(NamedTuple):
    """One model: its title, what its coefficients mean, and its fits.

    Attributes
    ----------
    title
        Above the panel.
    axis
        Label of the horizontal axis.
    fits
        By name; each as `summary` of an estimator gives it: rows with ``name``, ``mean``, ``low``, ``high``.
        All fits of a panel have the same coefficients.
    """

    title: str
    axis: str
    fits: Mapping[str, Sequence[Mapping[str, Any]]]


def forest_plot(
    panels: Sequence[Panel],
    path: str | os.PathLike[str],
    *,
    title: str,
    note: str = "",
    labels: Mapping[str, str] | None = None,
) -> None:
    """Draw panels side by side into a PNG file, which appears whole or not at all.

    Parameters
    ----------
    panels
        From left to right; all have the same coefficients.
    path
        The file; one that exists is replaced.
    title, note
        Above and below the panels.
    labels
        What to write for a coefficient; its name by default.
    """
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
        from matplotlib.layout_engine import ConstrainedLayoutEngine
    except ImportError as error:
        raise ImportError("pictures need matplotlib: pip install 'dpsep[demo]'.") from error
    rows = [row["name"] for row in next(iter(panels[0].fits.values()))]
    names = [(labels or {}).get(name, name) for name in rows]
    # A figure of its own, outside pyplot: no window system is asked for and no global state is touched.
    figure = Figure(
        figsize=(5.6 * len(panels), 2.1 + 0.42 * len(rows)),
        layout=ConstrainedLayoutEngine(w_pad=0.12, h_pad=0.1, wspace=0.04),
    )
    FigureCanvasAgg(figure)
    axes = figure.subplots(1, len(panels), sharey=True, squeeze=False)[0]
    for axis, panel in zip(axes, panels, strict=True):
        _draw(axis, panel, len(rows))
    axes[0].set_yticks(range(len(rows)), names, fontsize=10)
    axes[0].set_ylim(len(rows) - 0.4, -0.6)
    figure.suptitle(title, fontsize=13, fontweight="bold")
    handles, entries = axes[0].get_legend_handles_labels()
    # The note is the legend's title: what lies outside the panels finds its own room only as one piece.
    place = {"loc": "outside lower center", "ncols": len(entries), "frameon": False, "fontsize": 10}
    figure.legend(handles, entries, title=note or None, title_fontsize=9, **place)
    buffer = BytesIO()
    figure.savefig(buffer, format="png", dpi=160)
    atomic_write(path, buffer.getvalue())


def _draw(axis: Any, panel: Panel, rows: int) -> None:
    for place in range(0, rows, 2):
        axis.axhspan(place - 0.5, place + 0.5, color="#F3F3F3", zorder=0)
    axis.axvline(0.0, color="#888888", linewidth=1, zorder=1)
    count = len(panel.fits)
    for number, (name, fit) in enumerate(panel.fits.items()):
        shift = 0.36 * (number - (count - 1) / 2) / max(count - 1, 1)
        means = [row["mean"] for row in fit]
        reach = [
            [row["mean"] - row["low"] for row in fit],
            [row["high"] - row["mean"] for row in fit],
        ]
        axis.errorbar(
            means,
            [place + shift for place in range(rows)],
            xerr=reach,
            fmt=MARKS[number % len(MARKS)],
            color=COLOURS[number % len(COLOURS)],
            markersize=4.5,
            elinewidth=1.8,
            capsize=2.5,
            label=name,
            zorder=3,
        )
    axis.set_title(panel.title, fontsize=11)
    axis.set_xlabel(panel.axis, fontsize=10)
    axis.grid(axis="x", color="#DDDDDD", linewidth=0.6)
    axis.set_axisbelow(True)
    axis.tick_params(axis="y", length=0)
    for side in ("top", "right", "left"):
        axis.spines[side].set_visible(False)
