"""Pictures of docs/frontier.md: accuracy against epsilon."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
from lab.tools.docs.frontier_tables import NAMES, Results

from dpsep_lab.bench.frontier_people import PEOPLE

LINES = ("ours", "dp-vi", "gate", "opacus", "dp-ebm", "linear")
"""Who has a line against epsilon, where measured."""
LEVELS = {"pbp": ":", "sep": "--"}
"""Who, without privacy, has a level line."""


def curve(results: Results, datasets: Sequence[str], path: Path) -> None:
    """Draw log-likelihood and RMSE against epsilon, one column of panels a set.

    Parameters
    ----------
    results
        The kept fits.
    datasets
        Names of the sets.
    path
        Of the picture.
    """
    metrics = ("log_likelihood", "rmse")
    figure, axes = plt.subplots(
        len(metrics), len(datasets), figsize=(3.2 * len(datasets), 5.6), squeeze=False, sharex=True
    )
    for column, name in enumerate(datasets):
        for place, metric in enumerate(metrics):
            _panel(axes[place][column], results, name, metric)
        axes[0][column].set_title(name)
        axes[-1][column].set_xlabel("epsilon")
    for place, metric in enumerate(metrics):
        axes[place][0].set_ylabel(NAMES[metric])
    handles = {
        label: handle
        for axis in axes.flat
        for handle, label in zip(*axis.get_legend_handles_labels(), strict=True)
    }
    if handles:
        figure.legend(handles.values(), handles.keys(), loc="lower center", ncols=4, frameon=False)
    figure.tight_layout(rect=(0, 0.1, 1, 1))
    figure.savefig(path, dpi=110, metadata={"Software": None})
    plt.close(figure)


def _panel(axis: Any, results: Results, name: str, metric: str) -> None:
    shown = []
    for number, who in enumerate(LINES):
        budgets = results.epsilons(name, who)
        points = [results.estimate(name, who, metric, budget) for budget in budgets]
        known = [(budget, point) for budget, point in zip(budgets, points, strict=True) if point]
        if not known:
            continue
        x, means = [budget for budget, _ in known], [point.mean for _, point in known]
        errors = [point.error or 0.0 for _, point in known]
        axis.errorbar(
            x, means, errors, marker="o", ms=3.5, lw=1.2, color=f"C{number}", label=PEOPLE[who].label
        )
        if who != "dp-ebm":
            shown += means
    for who, style in LEVELS.items():
        level = results.estimate(name, who, metric)
        if level is not None:
            axis.axhline(level.mean, ls=style, color="black", lw=1, label=PEOPLE[who].label)
            shown.append(level.mean)
    axis.set_xscale("log", base=2)
    axis.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
    if shown:
        # One peer that fails at a small epsilon must not flatten the rest: the worst tenth may leave.
        ordered = sorted(shown, reverse=metric == "log_likelihood")
        best, worst = ordered[0], ordered[int(0.9 * (len(ordered) - 1))]
        margin = 0.15 * abs(worst - best) or 0.1 * abs(best) or 1.0
        axis.set_ylim(min(best, worst) - margin, max(best, worst) + margin)
