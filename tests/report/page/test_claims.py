"""What a run claims is believed only where everything else in its folder, and a ledger, agrees with it."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from dpsep.cli.commands import app
from dpsep.privacy.ledger import Ledger
from dpsep.privacy.mechanism import Mechanism
from dpsep.privacy.sampling import FullBatch
from dpsep.report.page import render

from .checks import check_page, says_nothing_of_privacy
from .forged import drop, put, recharged, restated, restated_inside
from .runs import changed, copied

Runs = Callable[[str], Path]


@pytest.fixture(scope="module")
def scored(whole: Runs, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Return a run with charged metrics, and its ledger."""
    place = tmp_path_factory.mktemp("scored")
    table = whole("linear").parent / "table.csv"
    Ledger.create(place / "study.db", epsilon=5.0, delta=1e-4)
    words = ("fit", table, "--target", "y", "--bounds", "a=-1:1", "--bounds", "b=-1:1", "--bounds", "y=-4:4")
    words += ("--epsilon", "3", "--metrics-epsilon", "1", "--ledger", place / "study.db")
    done = CliRunner().invoke(app, [str(word) for word in (*words, "--out", place / "scored", "--quiet")])
    assert done.exit_code == 0, done.output
    return place / "scored", place / "study.db"


def _parts(**values: Any) -> Callable[[Any], None]:
    return lambda statement: statement["schedule"]["parts"][-1].update(values)


def _refused(folder: Path, why: str, **more: Any) -> bool:
    page = check_page(render(folder, **more))
    assert says_nothing_of_privacy(page)
    return why in page.words


@pytest.mark.parametrize(
    "change",
    [
        put(secure=False),
        put(leaks=["a leak"]),
        put(federation={"text": "words"}),
        drop("schedule"),
        _parts(sigma=200.0),
        _parts(steps=1),
        put(scaling="other"),
        put(sigma=1e9),
    ],
)
def test_both_copies_of_a_statement_agree_to_the_last_field(copy: Runs, change: Callable[[Any], Any]) -> None:
    folder = copy("linear")
    restated_inside(folder, change)
    assert _refused(folder, "privacy.json and posterior.json do not state the same")


@pytest.mark.parametrize(
    "change",
    [
        put(sigma=-3.0),
        put(steps=-1),
        put(steps=0),
        put(steps=2.5),
        put(run=""),
        put(unit=""),
        put(epsilon=0.0),
        put(delta=0.0),
        put(sigma=1.0),
        put(steps=1),
        put(unit="family"),
        put(relation="replace-one"),
    ],
)
def test_a_statement_that_its_own_numbers_contradict_is_refused(
    copy: Runs, change: Callable[[Any], Any]
) -> None:
    folder = copy("linear")
    restated(folder, change)
    assert says_nothing_of_privacy(check_page(render(folder)))


@pytest.mark.parametrize(
    "change",
    [
        put(epsilon=50.0),
        put(delta=0.1),
        put(relation="replace-one"),
        put(private=0),
        put(private="no"),
        drop("private"),
        drop("epsilon"),
    ],
)
def test_a_statement_that_is_not_of_what_was_asked_is_refused(
    copy: Runs, change: Callable[[Any], Any]
) -> None:
    folder = copy("linear")
    changed(folder, "posterior.json", lambda content: change(content["parameters"]))
    assert says_nothing_of_privacy(check_page(render(folder)))


def test_a_resumed_run_may_state_more_than_was_asked(copy: Runs) -> None:
    folder = copy("linear")
    changed(folder, "posterior.json", lambda content: content["parameters"].update(epsilon=2.8))
    assert "PRIVATE, (ε = 3" in check_page(render(folder)).words


def test_a_small_number_without_a_schedule_is_held_against_the_noise(copy: Runs) -> None:
    folder = copy("linear")

    def forge(statement: Any) -> None:
        statement.update(epsilon=0.1)
        statement.pop("schedule")

    restated(folder, forge)
    changed(folder, "posterior.json", lambda content: content["parameters"].update(epsilon=0.1))
    assert _refused(folder, "The releases that are stated cost more than is stated for them.")


def test_a_run_without_a_schedule_says_in_the_stamp_that_it_was_not_checked(copy: Runs) -> None:
    folder = copy("linear")
    restated(folder, drop("schedule"))
    page = check_page(render(folder))
    stamp = page.words[: page.words.index("Skip to") + 2500]
    assert "PRIVATE, (ε = 3" in stamp
    assert "as those of earlier versions of dpsep do not: epsilon is as stated and could not" in stamp


def test_an_unknown_entry_may_be_a_charge_and_refuses(copy: Runs) -> None:
    folder = copy("linear")
    changed(folder, "privacy.json", put(other={"epsilon": 50.0, "delta": 0.1}))
    assert _refused(folder, "entries that this version does not know")


def test_charged_metrics_are_stated_with_the_fit(scored: tuple[Path, Path]) -> None:
    page = check_page(render(scored[0], ledger=scored[1]))
    assert "PRIVATE, (ε = 4, δ = 2e−5)" in page.words
    assert "Rows of the runs on this page" in page.words


def test_a_run_is_not_shown_beside_a_ledger_that_it_was_not_charged_to(
    scored: tuple[Path, Path], tmp_path: Path
) -> None:
    Ledger.create(tmp_path / "other.db", epsilon=5.0, delta=1e-4)
    statement = json.loads((scored[0] / "privacy.json").read_bytes())
    assert statement["ledger"] == statement["metrics"]["ledger"] == Ledger.open(scored[1]).id
    assert statement["ledger"] in (scored[0] / "privacy.txt").read_text()
    assert _refused(scored[0], "charged to another ledger", ledger=tmp_path / "other.db")


def test_two_releases_of_metrics_are_stated_as_two(scored: tuple[Path, Path], tmp_path: Path) -> None:
    folder = copied(scored[0], tmp_path)
    charge = json.loads((folder / "privacy.json").read_bytes())["metrics"]
    twice = put(releases=2, epsilon=2 * charge["epsilon"], delta=2 * charge["delta"])
    recharged(folder, twice)
    assert "PRIVATE, (ε = 5, δ = 3e−5)" in check_page(render(folder)).words
    # Two releases of full batches are one Gaussian mechanism, which costs less than the sum.
    both = Mechanism(FullBatch(), "zero-out", 2, charge["sigma"], charge["rows"]).epsilon(charge["delta"])
    assert both < 1.6 * charge["epsilon"]
    recharged(folder, put(epsilon=both, delta=charge["delta"]))
    assert "PRIVATE, (ε = 4" in check_page(render(folder)).words
    recharged(folder, put(epsilon=charge["epsilon"]))
    assert _refused(folder, "The release of the metrics costs more than is stated for it.")


@pytest.mark.parametrize(
    "change",
    [
        put(epsilon=0.2),
        put(sigma=0.01),
        put(sigma=-1.0),
        put(rows=0),
        put(unit="group"),
        put(releases=0),
        put(relation="replace-one"),
        put(sampling="Poisson"),
        put(other=1),
        drop("sigma"),
        put(run=""),
    ],
)
def test_a_charge_of_metrics_that_does_not_hold_is_refused(
    scored: tuple[Path, Path], tmp_path: Path, change: Callable[[Any], Any]
) -> None:
    folder = copied(scored[0], tmp_path)
    recharged(folder, change)
    assert says_nothing_of_privacy(check_page(render(folder)))


def test_metrics_and_statement_hold_the_same_charge(scored: tuple[Path, Path], tmp_path: Path) -> None:
    folder = copied(scored[0], tmp_path)
    changed(folder, "privacy.json", lambda privacy: privacy["metrics"].update(epsilon=0.9))
    assert _refused(folder, "do not state the same charge")


def test_metrics_of_held_out_rows_do_not_become_public_by_a_word(
    scored: tuple[Path, Path], tmp_path: Path
) -> None:
    folder = copied(scored[0], tmp_path)
    changed(folder, "privacy.json", drop("metrics"))
    for on in ("not public", "a table declared public"):

        def rename(metrics: Any, on: str = on) -> None:
            metrics.pop("privacy", None)
            metrics.update(on=on)
            metrics["calibration"]["source"] = "public"

        changed(folder, "metrics.json", rename)
        assert _refused(folder, "no charge for them is stated")


def test_metrics_that_were_begun_and_lost_are_counted_and_have_no_numbers(
    scored: tuple[Path, Path], tmp_path: Path
) -> None:
    folder = copied(scored[0], tmp_path)
    lost = {"epsilon": 1.0, "delta": 1e-5, "releases": 1, "rows": 0}
    changed(folder, "privacy.json", put(metrics=lost))
    changed(folder, "metrics.json", put(privacy=lost))
    assert _refused(folder, "the charge says that there are none")
    nothing = {"on": "held-out rows, privately", "rows": 0, "metrics": {}, "privacy": lost}
    changed(folder, "metrics.json", lambda _: nothing)
    assert "PRIVATE, (ε = 4, δ = 2e−5)" in check_page(render(folder)).words


def test_a_ledger_that_was_charged_more_than_is_stated_refuses(copy: Runs, tmp_path: Path) -> None:
    folder = copy("linear")
    run = json.loads((folder / "privacy.json").read_bytes())["run"]
    ledger = Ledger.create(tmp_path / "study.db", epsilon=9.0, delta=1e-3)
    ledger.charge(run, epsilon=3.0, delta=1e-5, relation="zero-out", event={"purpose": "fit"})
    assert "PRIVATE, (ε = 3" in check_page(render(folder, ledger=ledger)).words
    ledger.charge(run, epsilon=0.5, delta=0.0, relation="zero-out", event={}, kind="extra-step")
    assert _refused(folder, "The ledger was charged more for this run", ledger=ledger)


def test_a_ledger_of_other_terms_refuses(copy: Runs, tmp_path: Path) -> None:
    folder = copy("linear")
    run = json.loads((folder / "privacy.json").read_bytes())["run"]
    ledger = Ledger.create(tmp_path / "study.db", epsilon=9.0, delta=1e-3, relation="replace-one")
    ledger.charge(run, epsilon=3.0, delta=1e-5, relation="replace-one", event={"purpose": "fit"})
    assert _refused(folder, "by other terms", ledger=ledger)
