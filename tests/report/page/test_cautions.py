"""A private page says in its stamp what makes its number weak, and adds up only what adds up."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dpsep import Ledger, LinearRegression
from dpsep.estimators.store import save
from dpsep.federated import Federation, InProcess, Site, fit
from dpsep.report.page import render
from dpsep.report.page.contents import read_ledger, read_run
from dpsep.report.page.verdict import Verdict, judge

from .checks import check_page, says_nothing_of_privacy
from .forged import put, restated
from .runs import changed, copied, seal

Runs = Callable[[str], Path]


def _judged(*folders: Path) -> Verdict:
    found = judge(tuple(read_run(folder) for folder in folders))
    assert found.private, found.reasons
    return found


def _says(verdict: Verdict, words: str) -> bool:
    return any(words in caution for caution in verdict.cautions)


def _stated(folder: Path, **values: Any) -> Path:
    restated(folder, put(**values))
    asked = {name: values[name] for name in values.keys() & {"epsilon", "delta"}}
    changed(folder, "posterior.json", lambda content: content["parameters"].update(asked))
    return folder


def test_a_sound_run_has_no_cautions(copy: Runs) -> None:
    assert _judged(_stated(copy("linear"), leaks=[])).cautions == ()


def test_a_large_epsilon_and_a_large_delta_are_said(copy: Runs) -> None:
    assert _says(_judged(_stated(copy("linear"), epsilon=50.0)), "ε = 50 is large")
    # one over 400 records
    assert _says(
        _judged(_stated(copy("weaker"), delta=0.0025)), "not below one over the number of records (400)"
    )
    assert not _judged(_stated(copy("weaker"), delta=0.002, leaks=[])).cautions


def test_runs_that_are_large_only_together_are_said_to_be(whole: Runs) -> None:
    many = _judged(*[whole("linear")] * 4)
    assert _says(many, "ε = 12 is large")


def test_what_is_outside_the_guarantee_is_counted_over_all_runs(copy: Runs) -> None:
    leaky = _stated(copy("weaker"), leaks=["one", "two"])
    assert _says(_judged(leaky), "2 things are outside the guarantee")
    other = _stated(copy("linear"), leaks=["three"])
    assert _says(_judged(other, leaky), "3 things are outside the guarantee")
    assert _says(_judged(_stated(copy("weaker"), leaks=["one"])), "One thing is outside the guarantee")


def test_declarations_read_off_the_data_are_said_of_every_run(copy: Runs, whole: Runs) -> None:
    folder = copy("weaker")
    text = (folder / "schema.toml").read_text("utf-8")
    (folder / "schema.toml").write_text("looked = true\n" + text, "utf-8")
    seal(folder)
    assert _says(_judged(whole("linear"), folder), "Run weaker: Declarations of columns were read off")


@pytest.fixture(scope="module")
def federated(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Return the folder of a small federated fit in some mode."""

    def make(mode: str) -> Path:
        kept = tmp_path_factory.mktemp(mode)
        X = np.linspace(-1, 1, 800).reshape(400, 2)
        y = X @ [1.0, 2.0]
        sites = {}
        for name, rows in (("north", slice(0, 150)), ("south", slice(150, 400))):
            ledger = Ledger.create(kept / f"{name}.db", epsilon=9.0, delta=1e-3)
            sites[name] = Site(name, (X[rows], y[rows]), ledger, kept / name)
        more = {"honest": 2} if mode == "sites" else {}
        model = LinearRegression(1.0, 1e-4, bounds=(-1, 1), target_bounds=(-4, 4), steps=2)
        save(fit(model, Federation(InProcess(sites), mode=mode, **more)), kept / "run")  # pyright: ignore[reportArgumentType]
        return kept / "run"

    return make


def test_what_holds_against_the_server_of_a_federation_stands_in_the_stamp(
    federated: Callable[[str], Path], tmp_path: Path
) -> None:
    folder = federated("sites")
    verdict = _judged(folder)
    alone = verdict.stated[0].fit.federation
    assert alone is not None
    assert alone["alone_epsilon"] > 1.2
    assert _says(verdict, "the server of the federation included, the fit keeps ε = 1.")
    words = check_page(render(folder)).words
    assert "earlier version" not in words
    # A site's ledger is charged for its answers alone, which is more than the sums cost, and stated.
    for name in ("north", "south"):
        assert judge((read_run(folder),), read_ledger(folder.parent / f"{name}.db")).private
    forged = copied(folder, tmp_path)
    restated(forged, lambda statement: statement["federation"]["sites"]["north"].update(epsilon=30.0))
    assert says_nothing_of_privacy(check_page(render(forged)))


def test_a_trusted_server_and_sites_that_trust_nobody_are_told_apart(
    federated: Callable[[str], Path], tmp_path: Path
) -> None:
    assert _says(_judged(federated("server")), "nothing is promised against it")
    folder = copied(federated("own"), tmp_path)
    assert not _says(_judged(folder), "against")
    restated(folder, lambda statement: statement["federation"]["sites"]["south"].update(epsilon=30.0))
    page = check_page(render(folder))
    assert says_nothing_of_privacy(page)
    assert "A site of the federation was charged more than is stated." in page.words


def _grouped(folder: Path, column: str | None) -> Path:
    """Make a run look as if groups were protected."""
    restated(folder, put(unit="group"))
    changed(folder, "posterior.json", lambda content: content["parameters"].update(unit="group"))
    text = (folder / "schema.toml").read_text("utf-8")
    if column is not None:
        (folder / "schema.toml").write_text(f'unit = "{column}"\nrows_per_unit = 5\n' + text, "utf-8")
    seal(folder)
    return folder


def test_groups_of_different_columns_do_not_add_up(copy: Runs) -> None:
    one, other = _grouped(copy("linear"), "ward"), copy("weaker")
    for column, adds_up in (("ward", True), ("street", False)):
        grouped = _grouped(copied(other, one.parent / column), column)
        assert (_judged(one, grouped).total is not None) == adds_up


def test_groups_without_a_schema_do_not_add_up(copy: Runs) -> None:
    one, other = _grouped(copy("linear"), None), _grouped(copy("weaker"), None)
    assert _judged(one).total is not None
    assert _judged(one, other).total is None
