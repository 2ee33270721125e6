"""The forest plot: bars where they belong, arrows where they are cut off, numbers that follow the view."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dpsep.report.page import render
from dpsep.report.page.contents import read_run
from dpsep.report.page.context import Context
from dpsep.report.page.forest import Forest, reach_of, short, skewed
from dpsep.report.page.page import part
from dpsep.report.page.priors import Prior
from dpsep.report.page.rendering import macro
from dpsep.report.page.svg import Axis
from dpsep.report.page.verdict import judge

from .checks import Page, check_page

Runs = Callable[[str], Path]
EVEN = {
    "name": "a",
    "mean": 1.0,
    "low": 0.0,
    "high": 2.0,
    "noise_share": 0.75,
    "width_without_noise": 1.0,
}
SKEWED = EVEN | {"name": "sd(a)", "mean": 0.779, "low": 0.0034, "high": 2.788, "width_without_noise": 0.361}


def drawn(*rows: dict[str, Any], **parts: Any) -> Page:
    return Page(macro("forest.html", "forest", "forest", Forest(rows, Axis(-4.0, 4.0), **parts)))


def kinds(page: Page, kind: str) -> list[dict[str, str]]:
    return [found for _, found in page.elements if kind in str(found.get("class")).split()]


def test_the_bar_without_noise_stands_where_it_would_and_only_where_that_is_known() -> None:
    (bar,) = kinds(drawn(EVEN), "own")
    assert bar["data-v"] == "0.5 1.5"
    page = drawn(SKEWED)
    assert kinds(page, "own") == []
    assert "not drawn: the interval is not symmetric about the mean" in page.words
    assert "without it 0.361 wide" in page.words


def test_an_interval_of_numbers_that_are_none_is_not_taken_for_symmetric() -> None:
    assert not skewed(EVEN)
    assert skewed(SKEWED)
    assert skewed({"mean": 0.0, "low": float("nan"), "high": 1.0})


def test_a_skewed_row_is_explained_in_the_page(whole: Runs) -> None:
    run = read_run(whole("linear"))
    ctx = Context(run=run, beside=(), verdict=judge((run,)), title=None, written="")
    assert "not symmetric" not in Page(part("posterior", ctx)).words
    ctx = ctx._replace(run=run._replace(rows=[EVEN, SKEWED]))
    assert "Where an interval is not symmetric about its mean there is no thick bar" in part("posterior", ctx)


@pytest.mark.parametrize(
    ("mean", "sd", "arrows"), [(0.0, 20.0, ["◂", "▸"]), (0.0, 1.0, []), (6.0, 1.0, ["▸"]), (-9.0, 1.0, ["◂"])]
)
def test_a_prior_that_goes_on_beyond_the_axis_has_arrows(mean: float, sd: float, arrows: list[str]) -> None:
    page = drawn(EVEN, priors={"a": Prior(mean, sd)})
    assert [text for text in page.text if text in "◂▸"] == arrows
    assert len(kinds(page, "of-prior")) == len(arrows)


def test_an_interval_that_is_cut_off_has_an_arrow_though_its_mean_is_inside() -> None:
    page = drawn(EVEN | {"high": 9.0, "low": -7.0})
    assert len(kinds(page, "beyond")) == 2


def test_numbers_and_tips_of_scaled_effects_are_there_for_the_script() -> None:
    page = drawn(EVEN, SKEWED, units={"a": 10.0}, priors={"a": Prior(0.0, 1.0)})
    texts = [found["data-scaled-text"] for _, found in page.elements if "data-scaled-text" in found]
    assert texts == ["10", "[0, 20]", "7.79", "[0.034, 27.88]"]
    tips = [found["data-scaled-tip"] for _, found in page.elements if "data-scaled-tip" in found]
    assert tips[0].startswith("a: 10, 90 % interval [0, 20]; 75 % of its variance")
    assert "without it 10 wide" in tips[0]
    assert "prior [−16.45, 16.45]" in tips[0]
    assert [found["data-unit"] for _, found in page.elements if "data-unit" in found] == ["10", "10"]
    assert "data-scaled-text" not in str(drawn(EVEN).elements)


def test_a_spread_between_groups_goes_with_its_column() -> None:
    assert reach_of("sd(a)", {"a": 3.0}) == 3.0
    assert reach_of("sd(a)", {"a": 3.0, "sd(a)": 5.0}) == 5.0
    assert reach_of("sd(intercept)", {"a": 3.0}) == 1.0
    assert reach_of("a", {"a": float("inf")}) == 1.0


def test_the_view_of_priors_and_scaled_effects_has_an_axis_of_its_own(whole: Runs) -> None:
    """Bounds of the target are -4 to 4, so its scale is 4, and a prior scale of 2 gives sd 8 a unit reach."""
    figure = next(
        found for _, found in check_page(render(whole("linear"))).elements if "data-forest" in found
    )
    assert float(figure["data-prior-high"]) >= 1.645 * 8
    assert "data-scaled-low" not in figure  # columns that reach one


def test_long_names_are_shortened_and_stay_apart() -> None:
    names = [f"a_rather_long_column_name_that_ends_in_number_{place}" for place in range(20)]
    middles = [f"answer_to_question_{place}_of_the_second_visit_in_the_study" for place in range(20)]
    for some in (names, middles):
        assert len(set(short(some))) == 20
        assert all(len(name) <= 25 for name in short(some))
    far = [f"{'a' * 40}{one}{'b' * 40}{other}{'c' * 40}" for one in "xy" for other in "xy"]
    assert len(set(short(far))) == 4
    assert short(["age", "age"]) == ["age", "age"]
    page = drawn(EVEN | {"name": names[7]})
    assert [found["title"] for found in kinds(page, "name")] == [names[7]]
