"""Pictures of docs/honesty.md."""

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np

matplotlib.use("Agg")
import matplotlib.pyplot as plt
from lab.tools.docs.honesty_tables import CLASSES, Kept, _plain

from dpsep_lab.bench.honesty.cells import MAIN
from dpsep_lab.bench.honesty.results import LEAST, MOST, Score

COLORS = {"common": "C0", "rare": "C3", "hard": "C1", "intercept": "C7"}
NOT_PRIVATE = 32.0
"""Where fits without privacy stand on the axis of epsilon."""


def coverage(kept: Kept, path: Path) -> None:
    """Coverage against epsilon, one panel a role, one point a class of a cell."""
    figure, axes = plt.subplots(1, 2, figsize=(10, 4.2), sharey=True)
    for axis, role in zip(axes, ("choose", "judge"), strict=True):
        axis.axhspan(LEAST, MOST, color="0.9", zorder=0)
        axis.axhline(0.9, color="0.5", lw=0.8)
        for kind, color in COLORS.items():
            found = [
                score
                for score in kept.of(role=role)
                if score.kind == kind and score.cell.right and (score.cell.epsilon or 0) < 100
            ]
            x = np.array([score.cell.epsilon or NOT_PRIVATE for score in found])
            x *= np.exp(np.random.default_rng(0).uniform(-0.12, 0.12, len(x)))
            y = [score.coverage for score in found]
            axis.scatter(x, y, s=11, color=color, alpha=0.7, lw=0, label=CLASSES[kind])
        _epsilons(axis)
        axis.set_title(role)
    axes[0].set_ylabel("coverage of 90 % intervals")
    _finish(figure, axes, path)


def error(kept: Kept, path: Path) -> None:
    """RMSE over that without privacy against epsilon: rare and hard coefficients, one line a design."""
    _lines(kept, path, lambda score: score.against_open, "RMSE / without privacy", (None, 1.0))


def width(kept: Kept, path: Path) -> None:
    """Stated width without noise over the width without privacy against epsilon, one line a design."""
    _lines(kept, path, lambda score: score.width, "width without noise / without privacy", (0.2, 1.0))


def _lines(
    kept: Kept, path: Path, value: Callable[[Score], float], label: str, band: tuple[float | None, float]
) -> None:
    figure, axes = plt.subplots(1, len(MAIN), figsize=(11, 4.4), sharey=True)
    designs = list(
        dict.fromkeys(s.cell.design for s in kept.scores if s.cell.target in MAIN and s.kind != "intercept")
    )
    for axis, target in zip(axes, MAIN, strict=True):
        if band[0] is not None:
            axis.axhspan(1 / (1 + band[0]), 1 + band[0], color="0.9", zorder=0)
        axis.axhline(band[1], color="0.5", lw=0.8)
        for number, design in enumerate(designs):
            found = [
                score
                for score in kept.of(target=target, design=design, records=10_000)
                if _plain(score.cell) and score.cell.epsilon and score.kind == _chosen(kept, design)
            ]
            known = sorted(
                (score.cell.epsilon, value(score))
                for score in found
                if score.cell.epsilon and not math.isnan(value(score))
            )
            if known:
                x, y = zip(*known, strict=True)
                style = "-" if found[0].cell.role == "choose" else "--"
                color = plt.get_cmap("tab20")(number % 20)
                axis.plot(x, y, style, marker="o", ms=3.5, lw=1.2, color=color, label=design)
        _epsilons(axis, none=False)
        axis.set_yscale("log")
        axis.yaxis.set_major_formatter(lambda number, _: f"{number:g}")
        axis.set_title(target)
    axes[0].set_ylabel(label)
    _finish(figure, axes, path)


def _chosen(kept: Kept, design: str) -> str:
    """The class that a design is about."""
    kinds = {score.kind for score in kept.of(design=design)}
    return next(kind for kind in ("rare", "hard", "common", "all") if kind in kinds)


def ranks(kept: Kept, path: Path) -> None:
    """Histograms of the ranks of the truth."""
    found = kept.document["ranks"]
    if not found:
        return
    rows = math.ceil(len(found) / 4)
    figure, axes = plt.subplots(rows, 4, figsize=(10, 1.9 * rows), squeeze=False, sharex=True)
    for axis, item in zip(axes.flat, found, strict=False):
        counts = np.array(item["histogram"]) / max(np.mean(item["histogram"]), 1e-9)
        axis.bar((np.arange(len(counts)) + 0.5) / len(counts), counts, 0.9 / len(counts), color="C0")
        axis.axhline(1.0, color="0.3", lw=0.8)
        parts = item["cell"].split("/")
        axis.set_title(f"{parts[0]}, {parts[3].replace('eps', 'epsilon ')}", fontsize=9)
    for axis in axes.flat[len(found) :]:
        axis.set_axis_off()
    figure.tight_layout()
    figure.savefig(path, dpi=110, metadata={"Software": None})
    plt.close(figure)


def _epsilons(axis: Any, *, none: bool = True) -> None:
    axis.set_xscale("log", base=2)
    ticks = [0.25, 0.5, 1, 2, 4, 8]
    axis.set_xticks([*ticks, *([NOT_PRIVATE] if none else [])])
    axis.set_xticklabels([*(f"{tick:g}" for tick in ticks), *(["none"] if none else [])])
    axis.xaxis.minorticks_off()
    axis.set_xlim(0.2, 1.3 * (NOT_PRIVATE if none else ticks[-1]))
    axis.set_xlabel("epsilon")


def _finish(figure: Any, axes: Any, path: Path) -> None:
    handles = {
        label: handle
        for axis in axes.flat
        for handle, label in zip(*axis.get_legend_handles_labels(), strict=True)
    }
    if handles:
        figure.legend(
            handles.values(), handles.keys(), loc="lower center", ncols=6, frameon=False, fontsize=8
        )
    figure.tight_layout(rect=(0, 0.04 + 0.045 * math.ceil(len(handles) / 6), 1, 1))
    figure.savefig(path, dpi=110, metadata={"Software": None})
    plt.close(figure)
