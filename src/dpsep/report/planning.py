"""Picture of a plan: what each budget is expected to cost, for one table's shape.

**Privacy.** A plan is made of public numbers, and so is its picture.
"""

from collections.abc import Sequence
from typing import Any

from dpsep.privacy.shown import up
from dpsep.report.drawing import BLUE, GREY, ORANGE, PALE, new_axes, plain
from dpsep.theory.forecast import Forecast
from dpsep.theory.planner import NEARLY_FREE, Planned

__all__ = ["plot_plan"]

WIDTHS = (1.0, 1.2, 1.5, 2.0, 3.0, 5.0, 10.0, 20.0, 50.0, 100.0, 1000.0)
"""Ticks of the widening."""
BUDGETS = (0.01, 0.1, 0.2, 0.5, 1.0, 2.0, 4.0, 8.0, 20.0, 50.0, 100.0)
"""Ticks of epsilon."""

Points = Sequence[tuple[float, Forecast]]


def plot_plan(planned: Planned, ax: Any = None) -> Any:
    """Draw the width of intervals over epsilon, and below it the loss of prediction.

    The loss is drawn relative to d / 2N nats a record: what d unknown numbers cost with N records, private or
    not. Where noise is so large that forecasts are rough, lines are dotted.

    Parameters
    ----------
    planned
        What `dpsep.plan` answered, with its curve.
    ax
        Matplotlib axes for the width alone; None makes a figure with both.

    Returns
    -------
        The axes of the width.

    Examples
    --------
    >>> from dpsep import plan
    >>> axes = plot_plan(plan("linear", 5000, 5, epsilon=1.0))
    >>> [panel.get_ylabel().split()[0] for panel in axes.figure.axes]
    ['width', 'loss']
    """
    points = _points(planned)
    lower = None
    if ax is None:
        ax = new_axes(None, width=6.4, height=5.2)
        figure, place = ax.figure, ax.get_subplotspec().subgridspec(2, 1, height_ratios=(3, 2))
        ax.set_subplotspec(place[0])
        lower = figure.add_subplot(place[1], sharex=ax)
        ax.tick_params(labelbottom=False)
    _draw_width(ax, planned, points)
    if lower is not None:
        _draw_loss(lower, planned, points)
    _draw_budgets(ax if lower is None else lower, points)
    return ax


def _points(planned: Planned) -> Points:
    """Budgets and forecasts from left to right, the budget asked for among them."""
    if planned.forecast is None:
        raise ValueError(
            f"a {planned.request.model} of {planned.request.records} records has no forecast to draw; plan a "
            "regression or a mixture with more than one record."
        )
    if not planned.curve:
        raise ValueError("this plan has no curve over epsilon to draw; plan again with curve=True.")
    return sorted({**dict(planned.curve), planned.request.epsilon: planned.forecast}.items())


def _draw_width(ax: Any, planned: Planned, points: Points) -> None:
    """Intervals, with the width without privacy and the budget that was asked for, or found."""
    assert planned.forecast is not None
    epsilon, width = planned.request.epsilon, planned.forecast.widening
    widths = [one.widening for _, one in points]
    ax.axvline(epsilon, color=PALE, linewidth=6, zorder=0)
    _draw_line(ax, points, widths, BLUE)
    ax.plot([epsilon], [width], "o", color="black", markersize=7, zorder=6)
    words = {"textcoords": "offset points", "fontsize": 9}
    near_end = epsilon > 2.0
    place = {"xytext": (-6 if near_end else 6, 10), "ha": "right" if near_end else "left"}
    ax.annotate(f"epsilon {up(epsilon, 3)}: {width:.3g} times as wide", (epsilon, width), **words, **place)
    for height, name, style, side in (
        (1.0, "without privacy", "-", "top"),
        (NEARLY_FREE, "nearly free", "--", "bottom"),
    ):
        ax.axhline(height, color=GREY, linewidth=1, linestyle=style, zorder=1)
        # Beside the axes, where no curve can cross the words.
        place = {"xytext": (4, 0), "xycoords": ("axes fraction", "data"), "va": side, "color": GREY}
        ax.annotate(name, (1.0, height), **words, **place)
    ax.set_yscale("log")
    ax.set_ylim(0.97, max(1.3, 1.15 * max(widths)))
    _set_ticks(ax.yaxis, [one for one in WIDTHS if one <= 1.15 * max(widths)])
    ax.set_ylabel("width of intervals,\nover that without privacy")
    plain(ax)


def _draw_loss(ax: Any, planned: Planned, points: Points) -> None:
    """Loss of log predictive density, relative to what finite data cost anyway."""
    anyway = planned.request.dimension / (2.0 * planned.request.records)
    ax.axvline(planned.request.epsilon, color=PALE, linewidth=6, zorder=0)
    _draw_line(ax, points, [one.excess_risk / anyway for _, one in points], ORANGE)
    ax.set_yscale("log")
    ax.yaxis.set_major_formatter("{x:g}")
    ax.axhline(1.0, color=GREY, linewidth=1, linestyle=":", zorder=1)
    ax.set_ylabel("loss from privacy,\nover that of finite data")
    plain(ax)


def _draw_line(ax: Any, points: Points, values: list[float], colour: str) -> None:
    """Draw one curve, dotted up to the budget from which on forecasts hold."""
    epsilons = [epsilon for epsilon, _ in points]
    rough = [place for place, (_, one) in enumerate(points) if one.is_rough]
    first = rough[-1] + 1 if rough else 0
    ax.plot(epsilons[: first + 1], values[: first + 1], ":", color=colour, linewidth=1.6, zorder=3)
    style = {"marker": "o", "markersize": 4, "linewidth": 2, "color": colour, "zorder": 4}
    ax.plot(epsilons[first:], values[first:], **style)


def _draw_budgets(ax: Any, points: Points) -> None:
    ax.set_xscale("log")
    _set_ticks(ax.xaxis, [one for one in BUDGETS if points[0][0] <= one <= points[-1][0]])
    ax.set_xlabel("epsilon")


def _set_ticks(axis: Any, ticks: list[float]) -> None:
    """Label these values as plain numbers, and no others."""
    axis.set_ticks(ticks, labels=[f"{one:g}" for one in ticks])
    axis.set_ticks([], minor=True)
