"""A page that is not private claims no protection, in no text, alternative text, tip or attribute."""

from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest
from typer.testing import CliRunner

from dpsep.cli.commands import app
from dpsep.report.page import render

from .checks import Page, check_page
from .runs import changed, copied

Runs = Callable[[str], Path]
CLAIMS = (
    "protect",
    "noise of privacy",
    "dp noise",
    "noise_share",
    "without noise",
    "without the noise",
    "noisy",
    "noise floor",
    "privately",
    "charge",
    "guarantee",
    "promise",
    "release",
    "no single",
    "only thing that leaves",
    "is public",
    "public numbers",
    "-differentially",
    "epsilon",
    "ε",
    "delta",
    "δ",
    "zero-out",
    "replace-one",
    "budget",
)
"""Words of the page that say, or let a reader think, that somebody is protected."""
UNSAID = ("class", "id", "aria-labelledby", "href", "content")
"""Attributes that nobody reads."""


def said(page: Page) -> str:
    """Return all that a page says, to eyes, to ears and to scripts."""
    values = [str(value) for _, found in page.elements for key, value in found.items() if key not in UNSAID]
    return " ".join([*page.text, *values]).lower()


def claims(page: Page) -> list[str]:
    words = said(page)
    return [claim for claim in CLAIMS if claim in words]


@pytest.fixture(scope="module")
def charged(tmp_path_factory: pytest.TempPathFactory, whole: Runs) -> Path:
    """Return a private run whose metrics were charged."""
    place = tmp_path_factory.mktemp("charged")
    table = place / "table.csv"
    pl.read_csv(whole("linear").parent / "table.csv").write_csv(table)
    words = ("--target", "y", "--bounds", "a=-1:1", "--bounds", "b=-1:1", "--bounds", "y=-4:4")
    more = ("--epsilon", "3", "--metrics-epsilon", "3", "--out", str(place / "run"), "--quiet")
    done = CliRunner().invoke(app, ["fit", str(table), *words, *more])
    assert done.exit_code == 0, done.output
    return place / "run"


def damaged(folder: Path) -> Path:
    """Change a file after the fit, one that the page then still shows the rest of."""
    (folder / "schema.toml").write_bytes((folder / "schema.toml").read_bytes() + b"\n")
    return folder


def test_a_private_page_does_speak_of_it(charged: Path) -> None:
    """Otherwise the search below would find nothing anywhere."""
    found = claims(check_page(render(charged)))
    for claim in ("noise of privacy", "dp noise", "noisy", "privately", "charge", "no single", "is public"):
        assert claim in found


@pytest.mark.parametrize("kind", ["linear", "logistic", "mixture", "network"])
def test_a_damaged_private_run_claims_nothing(copy: Runs, kind: str) -> None:
    page = check_page(render(damaged(copy(kind))))
    assert "NOT PRIVATE" in page.words
    assert claims(page) == []


def test_a_damaged_run_with_charged_metrics_claims_nothing(charged: Path, tmp_path: Path) -> None:
    folder = damaged(copied(charged, tmp_path))
    page = check_page(render(folder))
    assert {"fig-pit", "fig-forest", "fig-block-0"} <= set(page.ids)
    assert "held-out rows" in page.words
    assert claims(page) == []


def test_a_run_without_privacy_claims_nothing(whole: Runs) -> None:
    page = check_page(render(whole("open")))
    assert "NOT PRIVATE" in page.words
    assert claims(page) == []


def test_a_damaged_and_an_open_run_together_claim_nothing(copy: Runs, whole: Runs) -> None:
    for runs in ((damaged(copy("linear")), whole("open")), (whole("open"), damaged(copy("linear")))):
        assert claims(check_page(render(runs[0], beside=runs[1:]))) == []


def test_what_a_folder_says_of_its_rows_is_not_repeated(charged: Path, tmp_path: Path) -> None:
    folder = copied(charged, tmp_path)
    changed(folder, "metrics.json", lambda metrics: metrics.update(on="rows with epsilon 0.1"))
    page = check_page(render(damaged(folder)))
    assert "Computed on rows that are not described" in page.words
    assert claims(page) == []


def test_a_title_of_the_users_own_is_said_to_state_nothing(whole: Runs) -> None:
    page = check_page(render(whole("open"), title="Private, epsilon 0.1"))
    assert "are as the user gave them, and state nothing" in page.words
