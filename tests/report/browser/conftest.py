"""A browser that is installed, and pages of real runs to open in it."""

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from dpsep.cli.commands import app
from dpsep.report.page import write_report

from ..page.runs import run_folder


def _browser() -> str | None:
    named = os.environ.get("DPSEP_CHROMIUM")
    return (
        named or shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    )


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """One browser a module; tests are skipped where there is none."""
    playwright = pytest.importorskip(
        "playwright.sync_api", reason="needs playwright: pip install 'dpsep[dev]'"
    )
    path = _browser()
    if path is None:
        pytest.skip("no browser: install chromium, or name one in DPSEP_CHROMIUM")
    with playwright.sync_playwright() as driver:
        started = driver.chromium.launch(executable_path=path, args=["--no-sandbox", "--disable-gpu"])
        yield started
        started.close()


@pytest.fixture(scope="session")
def wide(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the page of a run whose first column reaches further than one, so that effects can be scaled."""
    table = run_folder("linear", tmp_path_factory.mktemp).parent / "table.csv"
    place = tmp_path_factory.mktemp("wide")
    bounds = ("--bounds", "a=-4:4", "--bounds", "b=-1:1", "--bounds", "y=-4:4")
    words = ("fit", table, "--target", "y", *bounds, "--epsilon", "3", "--out", place / "run", "--quiet")
    done = CliRunner().invoke(app, [str(word) for word in words])
    assert done.exit_code == 0, done.output
    return write_report(place / "run", place / "report.html")


@pytest.fixture(scope="session")
def report(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """Return the page of a kind of run, written once."""
    written: dict[tuple[str, ...], Path] = {}

    def make(kind: str, *beside: str) -> Path:
        key = (kind, *beside)
        if key not in written:
            folders = [run_folder(one, tmp_path_factory.mktemp) for one in key]
            out = tmp_path_factory.mktemp("page") / "report.html"
            written[key] = write_report(folders[0], out, beside=folders[1:])
        return written[key]

    return make
