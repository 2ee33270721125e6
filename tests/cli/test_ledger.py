import json
import os
import shutil
import sqlite3
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import Result

from dpsep.privacy.ledger import Ledger

from .help import BOUNDED, call, some, write_csv


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder that other users may enter, which pytest's own are not."""
    place = Path(tempfile.mkdtemp())
    place.chmod(0o755)
    write_csv(place / "t.csv", some("a b y"))
    yield place
    shutil.rmtree(place)


def fit(folder: Path, *more: object) -> Result:
    return call(
        *("fit", folder / "t.csv", "--target", "y", "--epsilon", 1, "--out", folder / "results" / "run"),
        *("--ledger", folder / "study.db", "--wait", 0.1, *BOUNDED, *more),
    )


def assert_refused(done: Result, word: str) -> None:
    assert done.exit_code == 2, done.output
    assert word in done.stderr.strip().splitlines()[-1]
    assert done.stdout == ""


def test_a_ledger_is_made_shown_and_verified(tmp_path: Path) -> None:
    path = tmp_path / "study.db"
    assert call("ledger", "create", path, "--epsilon", 3, "--delta", 1e-5).exit_code == 0
    Ledger(path).charge("run-1", epsilon=1.0, delta=1e-6, relation="zero-out", event={"purpose": "fit"})
    document = json.loads(call("ledger", "show", path, "--json").stdout)
    assert document["spent"] == {"epsilon": 1.0, "delta": 1e-6}
    assert document["left"] == {"epsilon": 2.0, "delta": 9e-6}
    assert document["verified"] is True
    assert [row["kind"] for row in document["rows"]] == ["create", "charge"]
    shown = call("ledger", "show", path).stdout
    assert "run-1" in shown
    assert "left     epsilon 2" in shown
    assert json.loads(call("ledger", "verify", path, "--json").stdout)["rows"] == 2
    assert "is whole: 2 rows" in call("ledger", "verify", path).stdout


def test_terms_that_make_no_sense_are_refused(tmp_path: Path) -> None:
    for terms in (("--epsilon", -1, "--delta", 1e-5), ("--epsilon", 1, "--delta", 2)):
        done = call("ledger", "create", tmp_path / "study.db", *terms)
        assert done.exit_code == 2
        assert done.stderr.startswith("dpsep: error: ")
    assert (
        call("ledger", "create", tmp_path / "s.db", "--epsilon", 1, "--delta", 0.1, "--rule", "x").exit_code
        == 2
    )
    assert list(tmp_path.iterdir()) == []


def test_a_ledger_counts_rows_or_whole_units(tmp_path: Path) -> None:
    terms = ("--epsilon", 1, "--delta", 1e-5, "--json")
    for path, option, unit in (("a.db", (), "record"), ("b.db", ("--unit", "group"), "group")):
        assert json.loads(call("ledger", "create", tmp_path / path, *terms, *option).stdout)["unit"] == unit
    table = write_csv(tmp_path / "t.csv", some("a b"))
    done = call("schema", table, "--epsilon", 0.5, "--ledger", tmp_path / "b.db")
    assert_refused(done, "counts whole units (--unit group), and this command protects single rows")
    assert Ledger(tmp_path / "b.db").spent().epsilon == 0.0


def test_a_ledger_that_exists_is_not_made_again(tmp_path: Path) -> None:
    Ledger.create(tmp_path / "study.db", epsilon=1.0, delta=1e-5)
    assert_refused(call("ledger", "create", tmp_path / "study.db", "--epsilon", 9, "--delta", 1e-5), "exists")
    assert_refused(call("ledger", "show", tmp_path / "none.db"), "there is no ledger")


def test_a_fit_needs_a_ledger_that_can_be_written(folder: Path) -> None:
    Ledger.create(folder / "study.db", epsilon=3.0, delta=1e-4)
    (folder / "study.db").chmod(0o444)
    (folder / "results").mkdir()
    (folder / "results").chmod(0o777)
    folder.chmod(0o555)
    user = os.geteuid()
    if user == 0:
        os.seteuid(65534)  # root may write anywhere
    try:
        done = fit(folder)
    finally:
        if user == 0:
            os.seteuid(0)
        folder.chmod(0o755)
    assert_refused(done, "needs write access")
    assert list((folder / "results").iterdir()) == []
    assert Ledger(folder / "study.db").spent().epsilon == 0.0


def test_a_fit_waits_for_a_locked_ledger_and_then_gives_up(folder: Path) -> None:
    ledger = Ledger.create(folder / "study.db", epsilon=3.0, delta=1e-4)
    other = sqlite3.connect(folder / "study.db", isolation_level=None)
    other.execute("BEGIN EXCLUSIVE")
    try:
        assert_refused(fit(folder), "stayed locked")
    finally:
        other.close()
    assert ledger.spent().epsilon == 0.0


def test_a_damaged_ledger_is_not_charged(folder: Path) -> None:
    Ledger.create(folder / "study.db", epsilon=3.0, delta=1e-4)
    content = (folder / "study.db").read_bytes()
    (folder / "study.db").write_bytes(content[: len(content) // 2])
    for done in (fit(folder), call("ledger", "verify", folder / "study.db")):
        assert_refused(done, "is damaged")


def test_a_foreign_file_is_not_charged_and_left_as_it_is(folder: Path) -> None:
    (folder / "study.db").write_text("dear diary")
    assert_refused(fit(folder), "is no dpsep ledger")
    assert (folder / "study.db").read_text() == "dear diary"
    (folder / "study.db").unlink()
    other = sqlite3.connect(folder / "study.db")
    other.execute("CREATE TABLE songs (title TEXT)")
    other.commit()
    other.close()
    assert_refused(fit(folder), "no dpsep ledger")


def test_a_ledger_for_another_relation_is_not_charged(folder: Path) -> None:
    ledger = Ledger.create(folder / "study.db", epsilon=3.0, delta=1e-4, relation="replace-one")
    assert_refused(fit(folder), "replace-one")
    assert ledger.spent().epsilon == 0.0
