"""Pictures of Theorem 4.1 and of the claims, drawn from the rows of `dpsep_lab.paper.theorem`.

Four pictures: both bounds against N, their tightness against the condition number, the divergence of clipping
against C, and signal over noise. Dots are simulated, lines are formulas. Blue is the package's rule and the
corrected bound, orange the paper's rule and the printed bound.

Contract: a picture shows only what is in the rows; it appears whole or not at all.
"""

from collections.abc import Callable, Sequence
from io import BytesIO
from pathlib import Path
from typing import Any

from dpsep.privacy.checkpoint import atomic_write
from dpsep.report.drawing import BLUE, GREY, ORANGE, plain
from dpsep_lab.paper.theorem_rows import only

__all__ = ["PICTURES", "draw"]

Row = dict[str, Any]
DPI = 150
SERIES = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9")
"""Okabe and Ito's, for more than two lines."""
MARKS = "osD^v"


def draw(folder: Path, rows: Sequence[Row]) -> list[Path]:
    """Draw all pictures into a folder that exists, and return their paths.

    Parameters
    ----------
    folder
        Where they go; pictures of the same names are replaced.
    rows
        From `dpsep_lab.paper.theorem.rows`.
    """
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ImportError("pictures need matplotlib: pip install 'dpsep[demo]'.") from error
    paths = []
    for name, (title, paint) in PICTURES.items():
        # A figure of its own, outside pyplot: no window system is asked for and no global state is touched.
        figure = Figure(figsize=(10.0, 4.4), layout="constrained")
        FigureCanvasAgg(figure)
        axes = figure.subplots(1, 2)
        paint(axes, rows)
        for axis in axes:
            plain(axis).grid(color="#EEEEEE", linewidth=0.8)
        figure.suptitle(title, fontsize=12, fontweight="bold")
        buffer = BytesIO()
        figure.savefig(buffer, format="png", dpi=DPI)
        paths.append(folder / name)
        atomic_write(paths[-1], buffer.getvalue())
    return paths


def _bounds(axes: Any, rows: Sequence[Row]) -> None:
    """Against N: a fixed posterior to the left, one that grows to the right; condition number 10."""
    found = only(rows, "bounds", epsilon=1.0, condition=10.0)
    d = min({row["setting"]["d"] for row in found}, key=lambda d: abs(d - 4))
    lines = (
        ("printed", "shift", 0.5, ORANGE, "--", r"printed, $\rho = \lambda_{min} / 2$"),
        ("simulated", "shift", 0.5, ORANGE, "s", r"simulated, shift, $\rho = \lambda_{min} / 2$"),
        ("printed", "shift", 1.0, ORANGE, "-", r"printed, $\rho = \lambda_{min}$"),
        ("simulated", "shift", 1.0, ORANGE, "o", r"simulated, shift, $\rho = \lambda_{min}$"),
        ("corrected", "floor", 1.0, BLUE, "-", r"corrected, $\rho = \lambda_{min}$"),
        ("corrected", "floor", 0.5, BLUE, "--", r"corrected, $\rho = \lambda_{min} / 2$"),
        ("simulated", "floor", 0.5, BLUE, "x", r"simulated, floor, $\rho = \lambda_{min} / 2$"),
    )
    names = {"fixed": "the posterior is fixed", "grows": "its precision grows as N"}
    for axis, (growth, name) in zip(axes, names.items(), strict=True):
        for source, method, floor, colour, style, label in lines:
            own = only(found, d=d, floor=floor, growth=growth, source=source, method=method)
            _line(axis, own, "N", colour, style, label)
        axis.set(xscale="log", yscale="log", xlabel="records N", title=f"d = {d}, condition 10; {name}")
    axes[0].set_ylabel("expected KL, nats")
    _legend_below(axes[0], columns=4)


def _tightness(axes: Any, rows: Sequence[Row]) -> None:
    """Bound over simulated mean against the condition number, by d: corrected left, printed right."""
    found = only(rows, "bounds", epsilon=1.0, growth="fixed")
    n = min({row["setting"]["N"] for row in found}, key=lambda n: abs(n - 1_000))
    panels = (("corrected", "floor", {1.0: "-", 0.5: "--"}), ("printed", "shift", {1.0: "-"}))
    for axis, (source, method, dashes) in zip(axes, panels, strict=True):
        for place, d in enumerate(sorted({row["setting"]["d"] for row in found})):
            for floor, dash in dashes.items():
                own = only(found, d=d, N=n, floor=floor, method=method)
                label = f"d = {d}" if floor == 1.0 else None
                style = {"color": SERIES[place], "marker": MARKS[place], "markersize": 5, "label": label}
                points = _ratios(own, source)
                if points:
                    axis.plot(*zip(*points, strict=True), dash, **style)
        axis.axhline(1.0, color=GREY, linewidth=1.0)
        axis.set(xscale="log", yscale="log", xlabel="condition number of the precision")
        axis.set_title(f"{source} bound, rule {method}, N = {n:,}")
    axes[1].legend(frameon=False, fontsize=9, loc="center right")
    axes[0].set_ylabel("bound over simulated mean (1 is tight)")
    limits = [axis.get_ylim() for axis in axes]
    for axis in axes:
        axis.set_ylim(min(0.7, limits[0][0]), max(high for _, high in limits) * 2.0)
    note = r"solid: $\rho = \lambda_{min}$;  dashed, next to 1: $\rho = \lambda_{min} / 2$"
    axes[0].text(0.03, 0.94, note, transform=axes[0].transAxes, fontsize=9)
    axes[1].text(0.03, 0.94, r"$\rho = \lambda_{min}$", transform=axes[1].transAxes, fontsize=9)


def _ratios(own: Sequence[Row], source: str) -> list[tuple[float, float]]:
    """Condition numbers and bound over simulated mean, where the bound is defined."""
    pairs = zip(only(own, source=source), only(own, source="simulated"), strict=True)
    return sorted(
        (top["setting"]["condition"], top["mean"] / low["mean"])
        for top, low in pairs
        if top["mean"] is not None
    )


def _clipping(axes: Any, rows: Sequence[Row]) -> None:
    """Divergence over C in three forms, for a sharp and a wide posterior."""
    styles = {"printed": (ORANGE, "-"), "corrected": (BLUE, "-"), "definition": (BLUE, "o")}
    names = {
        "sharp": r"sharp: $\Lambda$ = 100 diag(0.8, 1, 1.2, 1.5)",
        "wide": r"wide: $\Lambda$ = 0.01 diag(0.8, 1, 1.2, 1.5)",
    }
    for axis, (name, title) in zip(axes, names.items(), strict=True):
        for source, (colour, style) in styles.items():
            own = only(rows, "clipping", posterior=name, source=source)
            _line(axis, own, "C", colour, style, source)
        axis.set_xscale("log")
        axis.set_yscale("symlog", linthresh=1e-2)
        axis.set(xlabel="clip C of eta and of the precision", title=title)
        axis.set_ylim(bottom=-3e-3)
        axis.legend(frameon=False, fontsize=9)
    axes[0].set_ylabel("KL between SEP and clipped SEP, nats")


def _signal(axes: Any, rows: Sequence[Row]) -> None:
    """Against N, by B. Left: one step. Right: a whole run, as a share of what full batches hold."""
    left, right = axes
    found = only(rows, "1/N beats 1/B, one step", metric="signal over noise", case="linear")
    for place, batch in enumerate(sorted({row["setting"]["batch"] for row in found})):
        colour, mark = SERIES[place % len(SERIES)], MARKS[place % len(MARKS)]
        looks = {
            "DP-SEP": {"linewidth": 7.0, "alpha": 0.3, "marker": "o", "markersize": 11},
            "DP-SGD": {"linewidth": 1.2, "marker": mark, "markersize": 4, "label": f"B = {batch:,}"},
        }
        for method, look in looks.items():
            own = sorted(only(found, batch=batch, method=method), key=lambda row: row["setting"]["records"])
            points = [(row["setting"]["records"], row["mean"]) for row in own]
            left.plot(*zip(*points, strict=True), color=colour, **look)
    left.set(xscale="log", yscale="log", xlabel="records N", ylabel="signal over noise of one step")
    left.set_title("one step: wide and pale DP-SEP, thin DP-SGD")
    low, high = left.get_ylim()
    left.set_ylim(low / 2.0, high * 6.0)
    left.legend(frameon=False, fontsize=9, ncols=4, loc="upper center", columnspacing=1.2)
    whole = only(rows, "1/N beats 1/B, whole run", metric="signal over noise, as a share of full batches'")
    batches = sorted({row["setting"]["batch"] for row in whole})
    shown = [b for b in batches if any(row["setting"]["records"] > b for row in only(whole, batch=b))]
    for place, batch in enumerate(shown):
        own = sorted(only(whole, batch=batch), key=lambda row: row["setting"]["records"])
        xs, ys = [row["setting"]["records"] for row in own], [row["mean"] for row in own]
        style = {"color": SERIES[place % len(SERIES)], "marker": MARKS[place % len(MARKS)], "markersize": 5}
        right.plot(xs, ys, label=f"B = {batch:,}", **style)
    right.axhline(1.0, color=GREY, linewidth=1.0)
    right.set(
        xscale="log",
        ylim=(0.0, 1.08),
        xlabel="records N",
        ylabel="signal over noise, as a share of full batches'",
    )
    right.set_title("whole run: ten passes, epsilon 1, zero-out")
    right.legend(frameon=False, fontsize=8)


PICTURES: dict[str, tuple[str, Callable[[Any, Sequence[Row]], None]]] = {
    "theorem-bounds.png": ("Theorem 4.1 at epsilon 1: expected divergence and its bounds", _bounds),
    "theorem-tightness.png": ("How far each bound lies above the simulated divergence", _tightness),
    "theorem-clipping.png": ("Divergence that clipping makes: printed, corrected, by definition", _clipping),
    "theorem-signal.png": ("Does a sensitivity of 1/N beat one of 1/B?", _signal),
}
"""Name of each picture, its title, and what paints its two panels."""


def _line(axis: Any, rows: Sequence[Row], key: str, colour: str, style: str, label: str) -> None:
    points = sorted((row["setting"][key], row["mean"]) for row in rows if row["mean"] is not None)
    if points:
        # Hollow marks let two that lie on one another be seen.
        axis.plot(*zip(*points, strict=True), style, color=colour, label=label, markersize=7, mfc="none")


def _legend_below(axis: Any, columns: int) -> None:
    look = {"loc": "outside lower center", "ncols": columns, "frameon": False, "fontsize": 9}
    axis.figure.legend(*axis.get_legend_handles_labels(), **look)
