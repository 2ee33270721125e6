"""The page of real runs: well formed, whole, and private only where all of it is."""

import hashlib
import json
import re
from base64 import b64decode
from collections.abc import Callable
from pathlib import Path

import pytest

from dpsep.estimators.store import load, save
from dpsep.privacy.ledger import Ledger
from dpsep.report.page import render, write_report

from .checks import check_page, says_nothing_of_privacy
from .forged import drop, put, restated
from .runs import changed, seal, wide_summary

Runs = Callable[[str], Path]


@pytest.mark.parametrize("kind", ["linear", "logistic", "mixture", "network"])
def test_a_private_run_states_its_guarantee_and_is_well_formed(whole: Runs, kind: str) -> None:
    text = render(whole(kind))
    page = check_page(text)
    assert "PRIVATE, (ε = 3, δ = 1e−5)" in page.words
    assert "NOT PRIVATE" not in page.words
    assert "could not be read" not in page.words
    assert {"fig-delta", "fig-releases", "fig-block-0"} <= set(page.ids)
    assert len(text) < 300_000


def test_the_curve_passes_through_the_stated_point(whole: Runs) -> None:
    page = check_page(render(whole("linear")))
    assert "ε = 3 at δ = 1e−5" in page.words
    assert "stated: ε = 3 at δ = 1e−5" in page.words


def test_every_coefficient_has_its_row_its_numbers_and_its_prior(whole: Runs) -> None:
    page = check_page(render(whole("linear")))
    rows = load(whole("linear")).summary()
    assert len(rows) == 3
    for row in rows:
        assert row["name"] in page.words
    assert (
        sum(attributes.get("class") == "prior" for _, attributes in page.elements) == 3 + 1
    )  # and the legend
    assert sum("own" in str(attributes.get("class")).split() for _, attributes in page.elements) == 3 + 1


def test_metrics_and_calibration_of_public_rows_are_drawn(whole: Runs) -> None:
    page = check_page(render(whole("linear")))
    assert {"fig-pit", "fig-coverage", "fig-residuals"} <= set(page.ids)
    assert "fig-reliability" in check_page(render(whole("logistic"))).ids


def test_a_run_without_metrics_says_why_and_how_to_get_them(whole: Runs) -> None:
    words = check_page(render(whole("weaker"))).words
    assert "would read private rows without a charge" in words
    assert "--public-test" in words
    assert "--metrics-epsilon" in words


def test_a_run_without_privacy_makes_no_statement(whole: Runs) -> None:
    assert says_nothing_of_privacy(check_page(render(whole("open"))))


def test_one_run_without_privacy_takes_the_statement_from_the_whole_page(whole: Runs, tmp_path: Path) -> None:
    ledger = Ledger.create(tmp_path / "study.db", epsilon=5.0, delta=1e-4)
    (tmp_path / "audit.json").write_text(
        json.dumps([{"claimed": 1.0, "lower_bound": 0.5, "target": "linear"}])
    )
    for first, second in (("linear", "open"), ("open", "linear")):
        text = render(whole(first), beside=[whole(second)], ledger=ledger, audit=tmp_path / "audit.json")
        assert says_nothing_of_privacy(check_page(text))


def test_private_runs_side_by_side_state_their_sum(whole: Runs) -> None:
    page = check_page(render(whole("linear"), beside=[whole("weaker")]))
    assert "PRIVATE, (ε = 4, δ = 2e−5)" in page.words
    assert "distance to weaker" in page.words


@pytest.mark.parametrize(
    "name", ["privacy.json", "posterior.json", "summary.csv", "metrics.json", "schema.toml"]
)
def test_a_changed_file_takes_the_statement(copy: Runs, name: str) -> None:
    folder = copy("linear")
    (folder / name).write_bytes((folder / name).read_bytes() + b"\n")
    page = check_page(render(folder))
    assert says_nothing_of_privacy(page)
    assert f"{name} was changed after the fit" in page.words


@pytest.mark.parametrize("name", ["privacy.json", "posterior.json", "manifest.json"])
def test_a_missing_file_takes_the_statement(copy: Runs, name: str) -> None:
    folder = copy("linear")
    (folder / name).unlink()
    assert says_nothing_of_privacy(check_page(render(folder)))


def test_a_statement_below_its_schedule_is_said_loudly(copy: Runs) -> None:
    folder = copy("linear")
    restated(folder, put(epsilon=1.0))
    page = check_page(render(folder))
    assert "THE STATEMENT AND THE SCHEDULE DISAGREE" in page.words
    assert says_nothing_of_privacy(page)


def test_a_statement_that_the_posterior_does_not_hold_is_not_repeated(copy: Runs) -> None:
    folder = copy("linear")
    changed(folder, "privacy.json", lambda privacy: privacy.update(epsilon=9.0))
    assert says_nothing_of_privacy(check_page(render(folder)))


def test_a_statement_put_into_an_open_run_is_not_believed(copy: Runs, whole: Runs) -> None:
    folder = copy("open")
    (folder / "privacy.json").write_bytes((whole("linear") / "privacy.json").read_bytes())
    seal(folder)
    assert says_nothing_of_privacy(check_page(render(folder)))


def test_an_older_run_without_schedule_and_path_is_private_and_says_what_is_missing(copy: Runs) -> None:
    folder = copy("linear")
    restated(folder, drop("schedule"))
    changed(folder, "posterior.json", lambda content: content["learned"].pop("path_") and None)
    page = check_page(render(folder))
    assert "PRIVATE, (ε = 3" in page.words
    assert "does not hold its schedule" in page.words
    assert "does not hold what it released" in page.words


def test_a_seeded_run_is_stamped_not_for_release(copy: Runs) -> None:
    folder = copy("linear")
    restated(folder, put(secure=False))
    assert "NOT FOR RELEASE" in check_page(render(folder)).words


def test_a_run_saved_from_python_shows_its_posterior(whole: Runs, tmp_path: Path) -> None:
    for kind in ("linear", "mixture", "network"):
        save(load(whole(kind)), tmp_path / kind)
        page = check_page(render(tmp_path / kind))
        assert "PRIVATE, (ε = 3" in page.words
        assert "There is no schema.toml." in page.words
        assert "mean" in page.words


def test_the_ledger_shows_the_runs_rows_or_that_it_does_not_know_it(whole: Runs, tmp_path: Path) -> None:
    known = json.loads((whole("linear") / "privacy.json").read_bytes())["run"]
    ledger = Ledger.create(tmp_path / "study.db", epsilon=5.0, delta=1e-4)
    assert "does not know the run" in check_page(render(whole("linear"), ledger=ledger)).words
    ledger.charge(known, epsilon=3.0, delta=1e-5, relation="zero-out", event={"purpose": "the fit"})
    page = check_page(render(whole("linear"), ledger=tmp_path / "study.db"))
    assert "Rows of the runs on this page" in page.words
    assert "the fit" in page.words
    assert "no ledger at the place" in check_page(render(whole("linear"), ledger=tmp_path / "no.db")).words


def test_an_audit_is_drawn_and_a_broken_claim_is_counted(whole: Runs, tmp_path: Path) -> None:
    rows = [
        {"target": "linear", "attack": "canary", "claimed": 1.0, "lower_bound": 0.4, "caught": False},
        {"target": "broken", "attack": "canary", "claimed": 1.0, "lower_bound": 2.5, "caught": True},
    ]
    (tmp_path / "audit.json").write_text(json.dumps(rows))
    page = check_page(render(whole("linear"), audit=tmp_path / "audit.json"))
    assert "1 of 2 claims were broken" in page.words


def test_a_claim_is_broken_by_what_was_proved_whatever_the_row_says_of_itself(
    whole: Runs, tmp_path: Path
) -> None:
    marks = []
    for proved, words in ((0.5, "No claim was broken"), (3.0, "1 of 1 claims were broken")):
        rows = [{"target": "linear", "claimed": 1.0, "lower_bound": proved, "caught": False}]
        (tmp_path / "audit.json").write_text(json.dumps(rows))
        page = check_page(render(whole("linear"), audit=tmp_path / "audit.json"))
        assert words in page.words
        marks.append(sum("dot-caught" in str(found.get("class")) for _, found in page.elements))
    assert marks[1] == marks[0] + 1  # the others are the legend's


def test_runs_of_other_models_are_neither_laid_over_nor_compared(whole: Runs) -> None:
    page = check_page(render(whole("linear"), beside=[whole("logistic"), whole("weaker")]))
    assert "distance to weaker" in page.words
    assert "distance to logistic" not in page.words
    assert "Run logistic is of another model" in page.words
    alone = check_page(render(whole("linear"), beside=[whole("logistic")]))
    drawn = [str(found.get("class")) for _, found in alone.elements]
    assert any("run0" in one for one in drawn)
    assert not any("run1" in one for one in drawn)


def test_a_summary_that_is_not_the_posteriors_is_said_and_not_shown(copy: Runs) -> None:
    for kind in ("linear", "mixture", "network"):
        folder = copy(kind)
        assert "summary.csv is not" not in check_page(render(folder)).words
        lines = (folder / "summary.csv").read_text("utf-8").splitlines()
        cells = lines[1].split(",")
        cells[-1] = "0.98765432"
        (folder / "summary.csv").write_text(
            "\n".join([lines[0], ",".join(cells), *lines[2:]]) + "\n", "utf-8"
        )
        seal(folder)
        text = render(folder)
        assert "summary.csv is not the summary of the posterior" in check_page(text).words
        assert "0.9877" not in text


def test_a_summary_without_some_rows_is_not_the_posteriors(copy: Runs) -> None:
    folder = copy("linear")
    lines = (folder / "summary.csv").read_text("utf-8").splitlines()
    (folder / "summary.csv").write_text("\n".join(lines[:2]) + "\n", "utf-8")
    seal(folder)
    page = check_page(render(folder))
    assert "summary.csv is not the summary of the posterior" in page.words
    assert sum(name == "tr" and "data-order" in found for name, found in page.elements) == 3


def test_many_coefficients_are_capped_and_the_page_stays_small(copy: Runs) -> None:
    folder = copy("linear")
    (folder / "summary.csv").write_text(wide_summary(100_000))
    # No posterior of this size is stored here: one that cannot be summarised leaves the file as it is.
    changed(folder, "posterior.json", lambda content: content["learned"].pop("posterior_") and None)
    text = render(folder)
    page = check_page(text)
    assert "Of 100,000 coefficients the 400 largest are drawn" in page.words
    assert sum(name == "tr" and "data-order" in attributes for name, attributes in page.elements) == 400
    assert len(text) < 1_000_000


def test_the_policy_allows_this_style_and_this_script_and_nothing_else(whole: Runs) -> None:
    text = render(whole("linear"))
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', text)
    assert policy is not None
    rules = policy[1].replace("&#x27;", "'")
    assert "default-src 'none'" in rules
    assert "unsafe" not in rules
    for name in ("style", "script"):
        inside = re.search(rf"<{name}>(.*?)</{name}>", text, re.DOTALL)
        allowed = re.search(rf"{name}-src 'sha256-([^']*)'", rules)
        assert inside is not None
        assert allowed is not None
        assert hashlib.sha256(inside[1].encode()).digest() == b64decode(allowed[1])


def test_a_report_is_written_into_the_folder_which_still_loads(copy: Runs, tmp_path: Path) -> None:
    folder = copy("linear")
    assert write_report(folder) == folder / "report.html"
    load(folder)
    assert "PRIVATE, (ε = 3" in check_page(render(folder)).words
    out = write_report(folder, tmp_path / "page.html", title="A <b>title</b>")
    assert "A &lt;b&gt;title&lt;/b&gt;" in out.read_text("utf-8")
    with pytest.raises(ValueError, match="there is no folder"):
        write_report(tmp_path / "nothing")
    with pytest.raises(ValueError, match="too many"):
        write_report(folder, beside=[folder] * 9)
