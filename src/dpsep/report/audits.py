"""Picture of an audit: what is claimed, and what was proved against it."""

from collections.abc import Mapping, Sequence
from typing import Any

from dpsep.report.drawing import BLUE, GREY, ORANGE, PALE, legend_above, new_axes, rows_down

__all__ = ["plot_audit"]


def plot_audit(rows: Sequence[Mapping[str, Any]], ax: Any = None) -> Any:
    """Draw claims and lower bounds, one line a target and attack.

    Parameters
    ----------
    rows
        As `dpsep audit --json` writes them; those with a lower bound are drawn.
    ax
        Axes to draw on; new ones by default.

    Returns
    -------
        The axes. A bound right of its claim would be proof of a leak.

    Examples
    --------
    >>> row = {"target": "linear", "attack": "canary", "claimed": 1.0, "lower_bound": 0.7, "caught": False}
    >>> plot_audit([row]).get_xlabel()
    'epsilon'
    """
    drawn = [row for row in rows if row.get("lower_bound") is not None]
    if not drawn:
        raise ValueError("there is no row with a lower bound to draw.")
    drawn.sort(key=lambda row: (str(row["target"]), str(row["attack"]), float(row["claimed"])))
    labels = [f"{row['target']}, {row['attack']}" for row in drawn]
    ax = new_axes(ax, width=7.0, height=1.2 + 0.24 * len(drawn))
    rows_down(ax, labels, top=-0.8)
    places = range(len(drawn))
    claims = [float(row["claimed"]) for row in drawn]
    ax.hlines(places, 0, claims, color=PALE, linewidth=6, zorder=1)
    ax.scatter(claims, places, marker="|", s=160, linewidths=2.5, color=GREY, label="claimed", zorder=2)
    for broken, colour, name in (
        (False, BLUE, "proved, at least"),
        (True, ORANGE, "proved, above the claim"),
    ):
        chosen = [place for place in places if bool(drawn[place]["caught"]) is broken]
        if chosen:
            bounds = [min(float(drawn[place]["lower_bound"]), 3 * max(claims)) for place in chosen]
            ax.scatter(bounds, chosen, s=26, color=colour, label=name, zorder=3)
    ax.set_xlim(left=0)
    ax.set_xlabel("epsilon")
    return legend_above(ax)
