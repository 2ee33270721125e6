"""Parts of the page by themselves: escaping, scales, odds, priors, and the command."""

import json
import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from dpsep import LinearRegression, LogisticRegression
from dpsep.cli.commands import app
from dpsep.estimators.columns import several, single
from dpsep.estimators.posterior import to_original
from dpsep.estimators.store import save
from dpsep.privacy.scaling import within
from dpsep.report.page.contents import read_run
from dpsep.report.page.files import Absent, read_plain
from dpsep.report.page.priors import priors
from dpsep.report.page.svg import Axis, axis_of, log_axis
from dpsep.report.page.words import (
    chance_after,
    clean,
    number,
    number_up,
    odds,
    one_in,
    percent,
    percent_up,
)

Runs = Callable[[str], Path]


def test_characters_that_a_browser_would_obey_are_replaced() -> None:
    assert clean("a\u2066b\x00c\ud800") == "a\ufffdb\ufffdc\ufffd"
    assert clean("👩‍👧 é\n\tb") == "👩‍👧 é  b"


def test_numbers_are_written_for_readers() -> None:
    assert number(10**400) == "too large"
    assert number(True) == number("1") == number(None) == "not a number"
    assert number(-math.inf) == "−∞"
    assert percent(0.5) == "50 %"


@pytest.mark.parametrize(
    ("low", "high"), [(0.0, 1.0), (-3e-7, 2e-7), (990.0, 1040.0), (-1e12, 3e12), (5.0, 5.0)]
)
def test_an_axis_holds_its_values_and_a_few_ticks_inside(low: float, high: float) -> None:
    axis = axis_of([low, high])
    ticks = axis.ticks()
    assert axis.low <= low <= high <= axis.high
    assert 2 <= len(ticks) <= 11
    assert all(axis.low - 1e-9 * abs(axis.low) <= tick <= axis.high + 1e-9 * abs(axis.high) for tick in ticks)
    assert len({axis.words(tick) for tick in ticks}) == len(ticks)


def test_an_axis_of_nothing_or_of_the_undrawable_is_still_an_axis() -> None:
    for values in ([], [math.nan], [math.inf, -math.inf], [1e308, -1e308], [0.0, 0.0]):
        axis = axis_of(values)
        assert axis.low < axis.high
        assert axis.ticks()
    axis = log_axis([0.0, -1.0, 1e-3, 50.0])
    assert axis.low < -3 < math.log10(50) < axis.high
    assert all(10**axis.low <= tick <= 10**axis.high for tick in axis.ticks())
    assert Axis(0.0, 1.0).share(math.nan) == 0.0


def test_odds_grow_by_e_to_epsilon_once_and_for_two_values_twice() -> None:
    took_part, says = odds(1.0, 1e-6, "zero-out", "record")
    assert (took_part.exponent, took_part.beyond) == (1.0, 1e-6)
    assert says.exponent == 2.0
    assert says.beyond == pytest.approx((1 + math.e) * 1e-6)
    (only,) = odds(1.0, 1e-6, "replace-one", "record")
    assert (only.exponent, only.beyond) == (1.0, 1e-6)
    # By Bayes, with a likelihood ratio of e: odds of 1 to 9 become e to 9.
    assert chance_after(0.1, 1.0) == pytest.approx(math.e / (math.e + 9))
    assert chance_after(0.1, 1e6) == 1.0


def test_the_bound_on_a_chance_is_met_by_randomised_response() -> None:
    """An answer that is true with chance e/(1+e) is 1-DP under replace-one, and the bound is exact there."""
    right = math.e / (1 + math.e)
    for before in (0.01, 0.1, 0.5):
        after = before * right / (before * right + (1 - before) * (1 - right))
        assert chance_after(before, 1.0) == pytest.approx(after)


def test_small_chances_are_never_understated() -> None:
    for chance in (3.7e-6, 1e-5, 1 / 3, 9.99e-7, 1.2345e-9):
        words = one_in(chance).removeprefix("1 in ").replace(",", "")
        assert 1 / float(words) >= chance * (1 - 1e-9)


def test_bounds_are_never_shown_smaller_than_they_are() -> None:
    for value in (
        1.46512,
        2.000001,
        math.e,
        1.00049,
        9.9991,
        123456.7,
        1.2345e-9,
        7.0,
        3.0000000001,
        0.1 + 0.2,
    ):
        for digits in (2, 3, 4):
            shown = float(number_up(value, digits).replace("−", "-"))
            assert value * (1 - 2e-9) <= shown <= value * (1 + 10.0 ** (1 - digits)) + 1e-9
    assert [number_up(value) for value in (3.0, 0.999999999999999, math.inf, 0.0)] == ["3", "1", "∞", "0"]
    for value in (0.7311, 0.5, 0.02672, 0.0994, 0.09951, 1e-6, 0.99999):
        shown = float(percent_up(value).removesuffix(" %").replace("−", "-"))
        assert (
            100 * value * (1 - 3e-9) <= shown <= min(100 * value * 1.1 + 1e-9, 100.0)
            or shown - 100 * value < 1
        )
    assert [percent_up(value) for value in (0.0, 1.0)] == ["0 %", "100 %"]


def test_claims_are_of_the_unit_and_of_no_person() -> None:
    for unit, start in (
        ("record", "This record "),
        ("group", "The rows of this group "),
        ("person", "The rows of this person "),
        ("x" * 500, "The rows of this x"),
    ):
        for relation in ("zero-out", "replace-one"):
            for one in odds(1.0, 1e-6, relation, unit):
                assert one.claim.startswith(start)
                assert len(one.claim) < 100


def _saved(model: LinearRegression | LogisticRegression, X: np.ndarray, y: np.ndarray, place: Path) -> Path:
    save(model.fit(X, y), place)
    return place


@pytest.mark.parametrize("intercept", [True, False])
def test_the_prior_in_table_units_is_the_map_of_the_scaled_prior(tmp_path: Path, intercept: bool) -> None:
    rng = np.random.default_rng(0)
    X, y = rng.uniform((10, -1), (20, 3), (60, 2)), rng.uniform(100, 140, 60)
    low, high = np.array([10.0, -1.0]), np.array([20.0, 3.0])
    model = LinearRegression(
        private=False, bounds=(low, high), target_bounds=(100, 140), fit_intercept=intercept, prior_scale=1.5
    )
    found = priors(read_run(_saved(model, X, y, tmp_path / "run")))
    assert not isinstance(found, Absent)
    if not intercept:  # columns keep their zero: 1.5 * 140 / 20 and 1.5 * 140 / 3
        assert found["x0"].sd == pytest.approx(1.5 * 140 / 20)
        assert found["x1"].sd == pytest.approx(1.5 * 140 / 3)
        return
    scaled = np.diag([15.0**2, 1.5**2, 1.5**2])
    outcome = single(within(np.array([100.0]), np.array([140.0])))
    expected = to_original(
        ("intercept", "x0", "x1"),
        np.zeros(3),
        scaled,
        0 * scaled,
        several(within(low, high)),
        outcome,
        None,
        intercept=True,
    )
    for place, name in enumerate(expected.names):
        assert found[name].mean == pytest.approx(expected.mean[place])
        assert found[name].sd == pytest.approx(expected.sd[place])


def test_a_prior_that_is_not_stored_is_said_not_to_be(tmp_path: Path) -> None:
    X = np.random.default_rng(0).normal(size=(60, 1))
    y = np.where(X[:, 0] > 0, 1, 0)
    found = priors(read_run(_saved(LogisticRegression(private=False), X, y, tmp_path / "run")))
    assert isinstance(found, Absent)
    assert "scaled by the data" in found.why


def test_only_regular_files_are_read(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"text")
    (tmp_path / "link").symlink_to(tmp_path / "file")
    assert read_plain(tmp_path / "file") == b"text"
    for name in ("link", "nothing", "."):
        assert isinstance(read_plain(tmp_path / name), Absent)


def _call(*words: object) -> tuple[int, str, str]:
    done = CliRunner().invoke(app, [str(word) for word in words])
    return done.exit_code, done.stdout, done.stderr


def test_the_command_writes_the_page_and_says_where(copy: Runs, tmp_path: Path) -> None:
    folder = copy("linear")
    code, output, remarks = _call("report", folder)
    assert (code, output) == (0, "")
    assert "report.html" in remarks
    assert (folder / "report.html").exists()
    out = tmp_path / "page.html"
    code, output, _ = _call("report", folder, "--out", out, "--beside", folder, "--title", "Ours", "--json")
    assert code == 0
    assert json.loads(output)["bytes"] == out.stat().st_size
    assert "Ours" in out.read_text("utf-8")
    assert _call("report", folder, "--quiet") == (0, "", "")


def test_the_command_refuses_what_is_not_there_in_one_line(copy: Runs, tmp_path: Path) -> None:
    folder = copy("linear")
    for words in (
        ("report", tmp_path / "nothing"),
        ("report", folder / "privacy.json"),
        ("report", folder, "--beside", tmp_path / "nothing"),
        ("report", folder, "--ledger", tmp_path / "no.db"),
        ("report", folder, "--audit", tmp_path / "no.json"),
    ):
        code, output, errors = _call(*words)
        assert (code, output) == (2, "")
        assert errors.startswith("dpsep: error: ")
        assert "Traceback" not in errors
