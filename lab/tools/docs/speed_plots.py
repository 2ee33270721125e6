"""The pictures of docs/speed.md: records a second beside their floor, and growth."""

from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("Agg")
import matplotlib.pyplot as plt
import matplotlib.ticker

Row = dict[str, Any]
OURS, REFERENCE, PEER, FLOOR = "#3b5bdb", "#868e96", "#e8590c", "#2b8a3e"
AXES = {
    "records": "records in the table",
    "width": "hidden units",
    "depth": "hidden layers of 50",
    "features": "features",
    "batch": "records of a batch",
}


def draw(rows: list[Row], gpu: list[Row], folder: Path) -> None:
    """Draw both pictures into a folder; where there are no rows, none is drawn."""
    one = [row for row in rows if row["case"] == "speed/1 core" and row["metric"] == "speed"]
    if one:
        _rates(one, folder / "speed_rates.png")
    grown = [row for row in rows if row["case"].startswith("speed/growth") and row["metric"] in AXES]
    if grown:
        far = [row for row in gpu if row["case"] == "speed/gpu, growth"]
        _growth(grown, far, folder / "speed_growth.png")


def _colour(who: str) -> str:
    if who.startswith(("Opacus", "jax_privacy", "diffprivlib")):
        return PEER
    return REFERENCE if who.startswith(("NumPy", "the authors")) else OURS


def _rates(rows: list[Row], path: Path) -> None:
    """Bars of records a second, the floor as a mark."""
    rows = sorted(rows, key=lambda row: row["value"])
    figure, axes = plt.subplots(figsize=(10, 0.34 * len(rows) + 1.4))
    names = [f"{row['who']} ({row['digits']} bits)" for row in rows]
    places = range(len(rows))
    axes.barh(places, [row["value"] for row in rows], color=[_colour(row["who"]) for row in rows])
    with_floor = [(place, row["floor"]) for place, row in enumerate(rows) if row.get("floor")]
    if with_floor:
        axes.plot(
            [floor for _, floor in with_floor],
            [place for place, _ in with_floor],
            "|",
            color=FLOOR,
            markersize=11,
            markeredgewidth=2.2,
        )
    axes.set_xscale("log")
    axes.set_yticks(places, names, fontsize=8)
    axes.set_ylim(-0.7, len(rows) - 0.3)
    axes.set_xlabel("records a second, one core")
    axes.grid(axis="x", alpha=0.3)
    handles = [plt.Rectangle((0, 0), 1, 1, color=colour) for colour in (OURS, REFERENCE, PEER)]
    mark = plt.Line2D([], [], color=FLOOR, marker="|", linestyle="", markersize=11, markeredgewidth=2.2)
    labels = ["dpsep", "references", "other packages", "arithmetic floor of the same work"]
    axes.legend([*handles, mark], labels, fontsize=8, loc="lower center", bbox_to_anchor=(0.4, 1.0), ncols=4)
    figure.tight_layout()
    figure.savefig(path, dpi=110)
    plt.close(figure)


def _growth(rows: list[Row], gpu: list[Row], path: Path) -> None:
    """A panel for each number that grows."""
    figure, panels = plt.subplots(2, 3, figsize=(12, 6.6))
    for axes, (what, label) in zip(panels.flat, AXES.items(), strict=False):
        sets = [(rows, ""), (gpu, "accelerator: ")]
        for some, name in sets:
            mine = [row for row in some if row["metric"] == what]
            for who in dict.fromkeys(row["who"] for row in mine):
                points = sorted((row["size"], row["value"]) for row in mine if row["who"] == who)
                style = "o--" if name else "o-"
                axes.plot(*zip(*points, strict=True), style, markersize=4, label=f"{name}{who}")
        axes.set_xscale("log", base=10 if what == "records" else 2)
        if what != "records":
            axes.xaxis.set_major_formatter(mpl.ticker.ScalarFormatter())
        axes.set_yscale("log")
        axes.set_xlabel(label)
        axes.set_ylabel("microseconds a record")
        axes.grid(alpha=0.3)
        axes.legend(fontsize=7)
        if what == "records":
            low, high = axes.get_ylim()
            axes.set_ylim(min(low, high / 20), high * 2)
    for axes in panels.flat[len(AXES) :]:
        axes.set_visible(False)
    figure.tight_layout()
    figure.savefig(path, dpi=110)
    plt.close(figure)
