"""Where the noise goes: how much of an interval's width is noise of privacy, for any table and budget.

The planner's forecast (`dpsep.plan`), from public numbers alone: number of records, of columns, epsilon.
"""

import math
from pathlib import Path

import numpy as np
from common import Measured, Picture, main, new_figure, rounded, save, say
from matplotlib import colormaps

from dpsep.theory.request import Request
from dpsep.theory.runs import try_forecast

PICTURE = Picture(
    name="noise_share",
    title="Where the noise goes",
    see=(
        "How much of a 90 % interval is noise of privacy: with {records:,} records and epsilon {budget:g} it "
        "is {linear:.0%} of the width for a linear and {logistic:.0%} for a logistic regression of "
        "{features} columns. Half the epsilon takes {times:.1f} times the records for the same share (25 % "
        "of a linear regression's width). Hatched: the planner calls its own forecast rough."
    ),
    made=(
        "No data: forecasts of `dpsep plan` for {features} columns with declared bounds, delta 1e-5, "
        "zero-out, on a grid of {points} points a panel."
    ),
    alt=(
        "Two heat maps, linear and logistic regression: epsilon across from 0.1 to 10, number of records up "
        "from 300 to 300,000. The share of an interval's width that is noise falls from most of it at the "
        "lower left to almost nothing at the upper right; lines mark 5, 10, 25, 50 and 75 %."
    ),
    still="noise_share.png",
)
MODELS = ("linear", "logistic")
FEATURES, RECORDS, BUDGET = 10, 10_000, 1.0
LEVELS = (0.0, 0.05, 0.1, 0.25, 0.5, 0.75, 1.0)


def measure(quick: bool, folder: Path) -> Measured:
    """Ask the planner at every point of a grid."""
    del folder
    side = 3 if quick else 17
    epsilons = np.geomspace(0.1, 10.0, side)
    records = np.round(np.geomspace(300, 300_000, side)).astype(int)
    panels = {}
    for model in MODELS:
        cells = [[_share(model, int(count), float(epsilon)) for epsilon in epsilons] for count in records]
        panels[model] = {
            "share": rounded([[share for share, _ in row] for row in cells]),
            "rough": [[rough for _, rough in row] for row in cells],
        }
        say(f"  {model}: {side * side} forecasts")
    return {
        "epsilon": rounded(epsilons),
        "records": records.tolist(),
        "panels": panels,
        "caption": {model: _share(model, RECORDS, BUDGET)[0] for model in MODELS}
        | {"times": _records_for(0.25, BUDGET / 2) / _records_for(0.25, BUDGET)}
        | {"records": RECORDS, "budget": BUDGET, "features": FEATURES, "points": side * side},
    }


def draw(found: Measured, folder: Path) -> None:
    """Draw a heat map for each model."""
    figure, axes = new_figure(1, 2, size=(8.6, 3.9), sharey=True)
    image = None
    for ax, model in zip(axes[0], MODELS, strict=True):
        share, rough = (np.asarray(found["panels"][model][key]) for key in ("share", "rough"))
        place = (found["epsilon"], found["records"], share)
        image = ax.contourf(*place, levels=LEVELS, colors=_colours())
        ax.set(xscale="log", yscale="log", xlabel="epsilon", title=f"{model} regression, {FEATURES} columns")
        if rough.any():
            hatch = {"colors": "none", "hatches": ["", "////"]}
            ax.contourf(found["epsilon"], found["records"], rough.astype(float), [-0.5, 0.5, 1.5], **hatch)
        lines = ax.contour(*place, levels=LEVELS[1:-1], colors="black", linewidths=0.8)
        for label in ax.clabel(lines, fmt=lambda value: f"{100 * value:.0f} %", fontsize=9):
            label.set_bbox({"boxstyle": "round,pad=0.15", "facecolor": "white", "linewidth": 0})
        ax.set_xticks([0.1, 0.3, 1, 3, 10], labels=["0.1", "0.3", "1", "3", "10"])
        ax.set_xticks([], minor=True)
    axes[0, 0].set_ylabel("records")
    axes[0, 0].set_yticks([1e3, 1e4, 1e5], labels=["1,000", "10,000", "100,000"])
    words = {"label": "noise of privacy in an interval's width", "spacing": "uniform"}
    bar = figure.colorbar(image, ax=axes[0].tolist(), **words)
    bar.ax.yaxis.set_major_formatter("{x:.0%}")
    save(figure, folder / PICTURE.still)


def _colours() -> list[tuple[float, ...]]:
    """A colour for each band, from pale to dark, so that grey print shows the same order."""
    return list(colormaps["YlOrBr"](np.linspace(0.02, 0.72, len(LEVELS) - 1)))


def _records_for(share: float, epsilon: float) -> float:
    """Records at which noise has this share of a linear regression's width, by halving an interval."""
    low, high = 300.0, 3e6
    for _ in range(12):
        middle = math.sqrt(low * high)
        low, high = (middle, high) if _share("linear", round(middle), epsilon)[0] > share else (low, middle)
    return math.sqrt(low * high)


def _share(model: str, records: int, epsilon: float) -> tuple[float, bool]:
    """Share of the width that is noise, and whether the forecast is rough; all of it where none is made."""
    request = Request(model, records, FEATURES, epsilon, 1e-5, "zero-out")  # pyright: ignore
    forecast = try_forecast(request)
    if forecast is None:
        return 1.0, True
    return 1.0 - math.sqrt(1.0 - forecast.noise_share), forecast.is_rough


if __name__ == "__main__":
    main(PICTURE, measure, draw)
