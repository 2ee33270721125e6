"""What a ledger notes about its runs, and what it tells of its rows, receipts and paths."""

import math
import os
import sqlite3
from fractions import Fraction
from pathlib import Path

import pytest

from dpsep.privacy import ledger_file, ledger_rules
from dpsep.privacy.ledger import (
    Ledger,
    LedgerDamaged,
    LedgerError,
    LedgerForeign,
    LedgerLocked,
    LedgerUnwritable,
    OverBudget,
    Receipt,
    Spent,
)

from .ledger_help import Place, charge


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "survey.ledger"


def test_a_release_is_noted_once_and_in_order_for_each_run(place: Place) -> None:
    ledger = Ledger.create(place, epsilon=3.0, delta=1e-5, relation="replace-one", unit="patient")
    for run in "ab":
        charge(ledger, 1.0, run=run, relation="replace-one", unit="patient")
    ledger.begin_release("a", 0)
    ledger.begin_release("a", 1)
    ledger.begin_release("a", 5)
    for number in (0, 4, 5):
        with pytest.raises(LedgerError, match="has begun this release or a later one"):
            ledger.begin_release("a", number)
    ledger.begin_release("b", 2)  # another run counts for itself
    ledger.begin_release("a", 6)
    rows = ledger.rows()[3:]
    assert [(row.run, row.kind, row.event) for row in rows] == [
        (run, "release", {"number": number})
        for run, number in (("a", 0), ("a", 1), ("a", 5), ("b", 2), ("a", 6))
    ]
    assert {(row.epsilon, row.delta, row.rdp) for row in rows} == {(0.0, 0.0, None)}
    assert {(row.relation, row.unit) for row in rows} == {("replace-one", "patient")}
    assert ledger.spent() == Spent(2.0, 0.0)


def test_a_run_may_end_more_than_once_but_not_before_its_own_charge(place: Place) -> None:
    ledger = Ledger.create(place, epsilon=3.0, delta=1e-5)
    charge(ledger, run="a")
    ledger.finish("a", "failed")
    ledger.finish("a", "failed")
    for call in (lambda: ledger.finish("b", "finished"), lambda: ledger.begin_release("b", 0)):
        with pytest.raises(LedgerError, match="no charge of run 'b'"):
            call()
    charge(ledger, run="b", kind="extra-step")
    ledger.begin_release("b", 0)
    assert [row.kind for row in ledger.rows()[1:]] == ["charge", "failed", "failed", "extra-step", "release"]
    assert [row.event for row in ledger.rows()[2:4]] == [{}, {}]


def test_receipts_are_checked_by_ledger_number_and_hash(place: Place) -> None:
    ledger = Ledger.create(place, epsilon=3.0, delta=1e-5)
    receipts = [charge(ledger, run=run) for run in "ab"]
    assert ledger.verify(*receipts) == 3
    assert receipts[1] == Receipt(ledger.id, 3, "b", "charge", 1.0, 0.0, ledger.rows()[2].hash)
    bad = [
        receipts[0]._replace(ledger="0" * 32),
        receipts[0]._replace(number=3),
        receipts[1]._replace(number=4),
        receipts[0]._replace(hash="0" * 64),
    ]
    for receipt in bad:
        with pytest.raises(LedgerDamaged, match="does not hold the charge"):
            ledger.verify(receipts[1], receipt)


def test_a_path_is_resolved_when_the_ledger_is_opened(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(path.parent)
    ledger = Ledger.create("survey.ledger", epsilon=3.0, delta=1e-5)
    (path.parent / "elsewhere").mkdir()
    monkeypatch.chdir("elsewhere")
    charge(ledger)
    assert ledger.path == Path(os.path.realpath(path))
    with pytest.raises(LedgerError, match="a s3 URL is not supported"):
        Ledger("s3://bucket/ledger")


def test_the_target_of_a_dead_link_is_the_place_of_a_new_ledger(path: Path) -> None:
    path.symlink_to(path.with_name("gone"))
    Ledger.create(path, epsilon=1.0, delta=0.0)
    assert path.with_name("gone").is_file()
    assert path.is_symlink()


def test_a_new_ledger_is_marked_as_one_and_its_name_is_made_durable(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[tuple[Path, bool]] = []
    monkeypatch.setattr(ledger_file, "fsync_folder", lambda folder: synced.append((folder, path.exists())))
    Ledger.create(path, epsilon=1.0, delta=0.0)
    assert (Path(os.path.realpath(path.parent)), True) in synced  # after it has got its name
    header = path.read_bytes()[:100]
    assert header[68:72] == b"dpSE"
    assert int.from_bytes(header[60:64], "big") == 1  # the format


@pytest.mark.parametrize(
    ("said", "kind"),
    [
        ("database is locked", LedgerLocked),
        ("file is not a database", LedgerForeign),
        ("database disk image is malformed", LedgerDamaged),
        ("no such table: head", LedgerDamaged),
        ("database or disk is full", LedgerUnwritable),
        ("disk I/O error", LedgerUnwritable),
        ("attempt to write a readonly database", LedgerUnwritable),
        ("unable to open database file", LedgerUnwritable),
        ("something else", LedgerError),
    ],
)
def test_what_sqlite_says_becomes_an_error_of_its_own_kind(path: Path, said: str, kind: type) -> None:
    error = ledger_file._explain(sqlite3.OperationalError(said), path, 2.5)
    assert type(error) is kind
    assert str(path) in str(error)


def test_an_empty_file_is_a_damaged_ledger_and_not_a_foreign_one(path: Path) -> None:
    path.touch()
    for opened in (lambda: Ledger(path), lambda: Ledger(path, epsilon=1.0, delta=0.0)):
        with pytest.raises(LedgerDamaged, match="it is empty"):
            opened()
    assert path.stat().st_size == 0


def test_the_default_terms_are_zero_out_records_and_points(path: Path) -> None:
    ledger = Ledger.create(path, epsilon=3.0, delta=1e-5, timeout=5.0)
    assert (ledger.relation, ledger.unit, ledger.rule, ledger.timeout) == ("zero-out", "record", "sum", 5.0)
    assert len(ledger.id) == 32
    for unit in (5, ("record",)):
        with pytest.raises(LedgerError, match="unit is"):
            Ledger.create(path.with_name("other"), epsilon=1.0, delta=0.0, unit=unit)  # pyright: ignore[reportArgumentType]
    with pytest.raises(LedgerError, match="run is"):
        charge(ledger, run=5)  # pyright: ignore[reportArgumentType]


def test_what_does_not_fit_says_what_was_spent(place: Place) -> None:
    ledger = Ledger.create(place, epsilon=3.0, delta=1e-5)
    charge(ledger, 2.5, 1e-6)
    with pytest.raises(OverBudget, match=r"epsilon 3 and delta 1e-05 in all, 2\.5 and 1e-06 are spent"):
        charge(ledger, 1.0, 0.0)
    with pytest.raises(OverBudget):
        charge(ledger, 0.0, 1e-5)
    charge(ledger, 0.5, 9e-6)


@pytest.mark.parametrize(
    "value", [Fraction(1, 3), Fraction(2, 3), Fraction(1, 10), Fraction(7, 5), Fraction()]
)
def test_floats_are_rounded_to_the_side_that_was_asked_for(value: Fraction) -> None:
    above, below = (ledger_rules.safe_float(value, up=up) for up in (True, False))
    assert Fraction(repr(above)) >= value >= Fraction(repr(below))
    assert above <= math.nextafter(below, math.inf)
    if value in (Fraction(1, 10), Fraction(7, 5), 0):  # decimals that a float's text can say
        assert above == below == float(value)


def test_the_event_may_fill_its_room_and_no_more(place: Place) -> None:
    ledger = Ledger.create(place, epsilon=3.0, delta=1e-5)
    room = 65536 - len('{"x":""}')
    charge(ledger, event={"x": "a" * room})
    with pytest.raises(LedgerError, match="65537 characters"):
        charge(ledger, event={"x": "a" * (room + 1)})
    for event in ({"x": math.inf}, {"x": object()}):
        with pytest.raises(LedgerError, match="cannot be written as JSON"):
            charge(ledger, event=event)
    assert ledger.rows()[-1].event["x"] == "a" * room
