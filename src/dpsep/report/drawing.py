"""What the plots share: colours, new axes, rows from top to bottom, legends that cover nothing.

Colours are Okabe and Ito's for colour-blind readers: blue is what the data say, orange what the noise of
privacy adds, grey what would be expected.
"""

from typing import Any

BLUE, ORANGE, GREY, PALE = "#0072B2", "#E69F00", "#666666", "#E2E2E2"


def new_axes(ax: Any, *, width: float = 6.0, height: float = 3.8) -> Any:
    """Return the axes given, or those of a new figure of this size in inches."""
    if ax is not None:
        return ax
    try:
        from matplotlib import pyplot
    except ImportError as error:
        raise ImportError("pictures need matplotlib: pip install 'dpsep[demo]'.") from error
    return pyplot.subplots(figsize=(width, height), layout="constrained")[1]


def rows_down(ax: Any, labels: list[str], *, top: float, shift: float = 0.0) -> Any:
    """Label rows at the heights 0, 1, 2, ... from top to bottom, every other one shaded.

    Parameters
    ----------
    top
        Upper end of the axes.
    shift
        Of the shade against the label, for what is drawn above its height.
    """
    for place in range(0, len(labels), 2):
        ax.axhspan(place + shift - 0.5, place + shift + 0.5, color="#F5F5F5", linewidth=0, zorder=0)
    ax.set_yticks(range(len(labels)), labels)
    ax.set_ylim(len(labels) - 0.4, top)
    ax.tick_params(axis="y", length=0)
    ax.spines["left"].set_visible(False)
    return plain(ax)


def plain(ax: Any) -> Any:
    """Leave only the lines that are read."""
    for side in ("top", "right"):
        ax.spines[side].set_visible(False)
    ax.set_axisbelow(True)
    return ax


def legend_above(ax: Any) -> Any:
    """Put the legend above the axes, in one line, where no label of an axis can be."""
    entries = len(ax.get_legend_handles_labels()[1])
    place = {"loc": "lower center", "bbox_to_anchor": (0.5, 1.0), "ncols": entries, "borderaxespad": 0.2}
    ax.legend(frameon=False, fontsize=9, columnspacing=1.4, handlelength=1.6, **place)
    return ax
