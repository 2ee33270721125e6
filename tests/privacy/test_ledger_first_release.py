"""Ledgers that the first release made (`kept/`, by its own code) are read and charged."""

import math
import shutil
from pathlib import Path

import pytest

from dpsep.privacy.accounting import RDP_ORDERS
from dpsep.privacy.ledger import Ledger, LedgerError, OverBudget, Row, Spent

from .ledger_help import EVENT, charge
from .server import PrivateServer

KEPT = Path(__file__).parent / "kept"


def copy(name: str, folder: Path) -> Ledger:
    return Ledger.open(shutil.copyfile(KEPT / name, folder / name))


def check_rows_and_charge(ledger: Ledger, last: str) -> None:
    """Compare a ledger with what the first release wrote and said of it, then use it up."""
    assert (ledger.epsilon, ledger.delta) == (3.0, 1e-5)
    assert (ledger.relation, ledger.unit, ledger.rule) == ("zero-out", "record", "sum")
    rows = ledger.rows()
    assert [(row.run, row.kind, row.epsilon, row.delta) for row in rows] == [
        ("", "create", 3.0, 1e-5),
        ("first", "charge", 0.1, 1e-6),
        ("first", "release", 0.0, 0.0),
        ("first", "release", 0.0, 0.0),
        ("first", "failed", 0.0, 0.0),
        ("first", "extra-step", 0.25, 0.0),
        ("first", "finished", 0.0, 0.0),
        ("sécond", "charge", 1.0, 2e-6),
    ]
    assert [row.event for row in rows[1:5]] == [EVENT, {"number": 0}, {"number": 1}, {}]
    extra: Row = rows[5]
    assert (extra.rdp, extra.relation) == ((0.5, math.inf), "replace-one")
    assert extra.event == EVENT | {"note": "ünï"}
    assert rows[7].hash == last
    assert ledger.spent() == Spent(1.35, 3e-6)
    with pytest.raises(LedgerError, match="has begun this release or a later one"):
        ledger.begin_release("first", 1)
    ledger.begin_release("first", 2)
    receipt = charge(ledger, 1.65, 7e-6, "third")
    assert ledger.remaining() == Spent(0.0, 0.0)
    assert ledger.verify(receipt) == 10
    with pytest.raises(OverBudget):
        charge(ledger, 0.0, 5e-324)


def test_a_file_of_the_first_release_is_read_and_charged(tmp_path: Path) -> None:
    last = "cbecf84e03135e730c473a82d4f76f4d5fe83d3e00c32afad59d7984936a1f99"
    check_rows_and_charge(copy("first_release_points.ledger", tmp_path), last)


def test_a_server_of_the_first_release_is_read_and_charged(server: PrivateServer) -> None:
    dump = (KEPT / "first_release.sql").read_text(encoding="utf-8")
    server.client("psql", "--set", "ON_ERROR_STOP=1", "--quiet", "postgres", typed=dump)
    ledger = Ledger.open(server.url("first_release"))
    check_rows_and_charge(ledger, "bf429931ab75390f73619bf0ba26fc676bcaa7027cfc8195cb9971f2693b34a2")


def test_curves_of_the_first_release_are_added_to(tmp_path: Path) -> None:
    ledger = copy("first_release_curves.ledger", tmp_path)
    assert (ledger.relation, ledger.unit, ledger.rule) == ("replace-one", "patient", "rdp")
    assert ledger.spent() == Spent(0.3407566219828986, 1e-5)  # what the first release said
    curve = [order * 0.05**2 / 2 for order in RDP_ORDERS]
    assert ledger.rows()[2].rdp == tuple(curve)
    charge(ledger, 0.4, 1e-6, "third", relation="replace-one", unit="patient", rdp=curve)
    assert ledger.verify() == 4
    assert ledger.spent().epsilon > 0.3407566219828986
