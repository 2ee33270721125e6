"""The picture of a plan holds its numbers."""

from dataclasses import replace
from typing import Any

import matplotlib as mpl
import numpy as np
import pytest

mpl.use("Agg")
from matplotlib import pyplot

from dpsep import plan, plots
from dpsep.theory.forecast import ROUGH
from dpsep.theory.planner import NEARLY_FREE, Planned


@pytest.fixture(autouse=True)
def _closed():
    yield
    pyplot.close("all")


@pytest.fixture(scope="module")
def planned() -> Planned:
    return plan("linear", 1000, 10, epsilon=3.0)


def curves(ax: Any) -> tuple[np.ndarray, np.ndarray]:
    """The dotted part of a panel's curve, and the other."""
    dotted, solid = [line for line in ax.lines if len(line.get_xdata()) > 2]
    assert dotted.get_linestyle() == ":"
    return np.array(dotted.get_data()), np.array(solid.get_data())


def test_both_panels_hold_the_forecasts_and_the_asked_one(planned: Planned) -> None:
    ax = plots.plot_plan(planned)
    upper, lower = ax.figure.axes
    assert upper is ax
    assert planned.forecast is not None
    points = sorted([*planned.curve, (3.0, planned.forecast)])
    anyway = planned.request.dimension / (2 * planned.request.records)
    for panel, values in (
        (upper, [one.widening for _, one in points]),
        (lower, [one.excess_risk / anyway for _, one in points]),
    ):
        dotted, solid = curves(panel)
        drawn = np.concatenate([dotted[:, :-1], solid], axis=1)
        np.testing.assert_allclose(drawn, [[epsilon for epsilon, _ in points], values])
        assert panel.get_xscale() == panel.get_yscale() == "log"
        # Forecasts are rough at small budgets, and drawn so.
        assert [one.hidden > ROUGH for _, one in points] == [epsilon < solid[0, 0] for epsilon, _ in points]
        assert dotted[0, -1] == solid[0, 0]


def test_the_width_without_privacy_and_the_asked_budget_are_marked(planned: Planned) -> None:
    ax = plots.plot_plan(planned)
    assert planned.forecast is not None
    flat = {line.get_ydata()[0] for line in ax.lines if len(set(line.get_ydata())) == 1}
    assert {1.0, NEARLY_FREE} <= flat
    marks = [line.get_data() for line in ax.lines if len(line.get_xdata()) == 1]
    np.testing.assert_allclose(marks, [[[3.0], [planned.forecast.widening]]])
    words = [text.get_text() for text in ax.texts]
    assert f"epsilon 3: {planned.forecast.widening:.3g} times as wide" in words
    assert {"without privacy", "nearly free"} <= set(words)


def test_where_no_forecast_is_rough_nothing_is_dotted() -> None:
    ax = plots.plot_plan(plan("logistic", 10**6, 3, epsilon=1.0))
    dotted = [line for line in ax.lines if line.get_linestyle() == ":"]
    assert [len(line.get_xdata()) for line in dotted] == [1]  # a point alone: no line is seen


def test_axes_that_are_given_get_the_width_alone(planned: Planned) -> None:
    figure, (left, right) = pyplot.subplots(1, 2)
    assert plots.plot_plan(planned, ax=left) is left
    assert figure.axes == [left, right]
    assert left.get_xlabel() == "epsilon"
    assert not right.lines


def test_a_plan_without_a_forecast_or_a_curve_is_refused(planned: Planned) -> None:
    with pytest.raises(ValueError, match="a network of 5000 records has no forecast to draw"):
        plots.plot_plan(plan("network", 5000, 4, epsilon=1.0))
    with pytest.raises(ValueError, match="of 1 records has no forecast"):
        plots.plot_plan(plan("linear", 1, 4, epsilon=1.0))
    with pytest.raises(ValueError, match="curve=True"):
        plots.plot_plan(replace(planned, curve=()))
