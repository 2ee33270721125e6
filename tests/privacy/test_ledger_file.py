import contextlib
import hashlib
import json
import os
import sqlite3
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dpsep.privacy import ledger_file
from dpsep.privacy.ledger import (
    Ledger,
    LedgerDamaged,
    LedgerError,
    LedgerForeign,
    LedgerLocked,
    LedgerUnwritable,
    Spent,
)
from dpsep.privacy.ledger_rows import GENESIS, Entry, entry_hash

from .ledger_help import charge, run_script


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "survey.ledger"


def edit(path: Path, *statements: str) -> None:
    """Do what the triggers forbid, as someone with an SQLite shell could."""
    connection = sqlite3.connect(path, isolation_level=None)
    triggers = connection.execute("SELECT name, sql FROM sqlite_master WHERE type = 'trigger'").fetchall()
    for name, _ in triggers:
        connection.execute(f"DROP TRIGGER {name}")
    for statement in statements:
        connection.execute(statement)
    for _, sql in triggers:
        connection.execute(sql)
    connection.close()


@pytest.fixture
def filled(path: Path) -> Ledger:
    ledger = Ledger.create(path, epsilon=9.0, delta=1e-5)
    for run in "abc":
        charge(ledger, 1.0, 1e-6, run)
    return ledger


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE entries SET epsilon = '0.0' WHERE number = 2",
        "DELETE FROM entries WHERE number = 4",
        "DELETE FROM entries",
        "INSERT OR REPLACE INTO entries SELECT 2, time, run, kind, '0.0', delta, rdp, relation, unit, event, "
        "previous, hash FROM entries WHERE number = 2",
        "INSERT INTO entries SELECT 9, time, run, kind, '0.0', delta, rdp, relation, unit, event, "
        "previous, hash FROM entries WHERE number = 2",
        "UPDATE head SET count = 2",
        "UPDATE head SET hash = 'x'",
        "DELETE FROM head",
        "INSERT INTO head VALUES (1, 'x')",
    ],
)
def test_the_file_itself_refuses_to_change_a_row(filled: Ledger, statement: str) -> None:
    connection = sqlite3.connect(filled.path, isolation_level=None)
    with pytest.raises(sqlite3.IntegrityError, match="a ledger only appends"):
        connection.execute(statement)
    connection.close()
    assert filled.verify() == 4


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE entries SET epsilon = '0.5' WHERE number = 2",
        "UPDATE entries SET epsilon = '9.5' WHERE number = 1",
        "UPDATE entries SET kind = 'failed' WHERE number = 3",
        "UPDATE entries SET event = '{}' WHERE number = 4",
        "UPDATE entries SET time = '' WHERE number = 4",
        "DELETE FROM entries WHERE number = 2",
        "DELETE FROM entries WHERE number = 4",
        "DELETE FROM entries",
        "DELETE FROM head",
        "UPDATE head SET count = 3",
        "UPDATE head SET hash = (SELECT previous FROM entries WHERE number = 4)",
        "DROP TABLE head",
        "CREATE TABLE more (x)",
    ],
)
def test_an_edited_or_cut_ledger_is_refused_by_every_operation(filled: Ledger, statement: str) -> None:
    before = filled.path.read_bytes()
    if statement.startswith(("DROP", "CREATE")):
        connection = sqlite3.connect(filled.path)
        connection.execute(statement)
        connection.commit()
        connection.close()
    else:
        edit(filled.path, statement)
    assert filled.path.read_bytes() != before
    for operation in (
        filled.verify,
        filled.spent,
        filled.rows,
        lambda: charge(filled),
        lambda: Ledger(filled.path),
    ):
        with pytest.raises(LedgerDamaged, match="restore it from a copy"):
            operation()


@pytest.mark.parametrize("change", [{"previous": "1" * 64}, {"number": 9}])
def test_a_row_whose_own_hash_was_made_to_fit_still_has_to_follow_the_one_before(
    filled: Ledger, change: dict[str, Any]
) -> None:
    with contextlib.closing(sqlite3.connect(filled.path)) as connection:
        last = Entry(*connection.execute("SELECT * FROM entries WHERE number = 4").fetchone())
    forged = last._replace(**change)
    forged = forged._replace(hash=entry_hash(forged))
    edit(
        filled.path,
        f"UPDATE entries SET number = {forged.number}, previous = '{forged.previous}', "
        f"hash = '{forged.hash}' WHERE number = 4",
        f"UPDATE head SET hash = '{forged.hash}'",
    )
    with pytest.raises(LedgerDamaged, match="row 4 does not match its hash or its place"):
        filled.verify()


def test_a_ledger_without_its_first_row_is_damaged_though_its_head_was_made_to_fit(path: Path) -> None:
    Ledger.create(path, epsilon=9.0, delta=1e-5)
    with contextlib.closing(sqlite3.connect(path)) as connection:
        first = Entry(*connection.execute("SELECT * FROM entries").fetchone())
    other = entry_hash(first._replace(kind="charge"))
    for rows, head in (
        (f"UPDATE entries SET kind = 'charge', hash = '{other}'", f"UPDATE head SET hash = '{other}'"),
        ("DELETE FROM entries", f"UPDATE head SET count = 0, hash = '{GENESIS}'"),
    ):
        edit(path, rows, head)
        with pytest.raises(LedgerDamaged, match="rows are missing or added"):
            Ledger(path)


def test_missing_triggers_are_noticed(filled: Ledger) -> None:
    connection = sqlite3.connect(filled.path)
    connection.execute("DROP TRIGGER entries_no_update")
    connection.commit()
    connection.close()
    with pytest.raises(LedgerDamaged, match="triggers"):
        charge(filled)


def test_a_torn_file_is_refused(filled: Ledger) -> None:
    whole = filled.path.read_bytes()
    for size in (0, 1, 50, 100, len(whole) // 2, len(whole) - 1000):
        filled.path.write_bytes(whole[:size])
        with pytest.raises(LedgerError):
            Ledger(filled.path, epsilon=9.0, delta=1e-5)
        with pytest.raises(LedgerError):
            charge(filled)
        assert filled.path.stat().st_size == size  # nothing was made in its place


def test_bytes_changed_anywhere_never_lower_what_was_spent(filled: Ledger) -> None:
    whole = filled.path.read_bytes()
    draw = np.random.default_rng(5)
    for position in draw.integers(0, len(whole), 150):
        changed = bytearray(whole)
        changed[position] ^= 1 << int(draw.integers(8))
        filled.path.write_bytes(changed)
        with contextlib.suppress(LedgerError):
            assert filled.spent() == Spent(3.0, 3e-6)


def test_an_old_copy_is_found_with_a_receipt(filled: Ledger) -> None:
    old = filled.path.read_bytes()
    receipt = charge(filled)
    assert filled.verify(receipt) == 5
    filled.path.write_bytes(old)
    assert filled.verify() == 4  # alone, an old copy is a good ledger
    with pytest.raises(LedgerDamaged, match="old copy"):
        filled.verify(receipt)


def test_a_ledger_that_was_taken_away_or_swapped_is_not_made_anew(filled: Ledger) -> None:
    filled.path.unlink()
    with pytest.raises(LedgerError, match="no ledger at"):
        charge(filled)
    assert not filled.path.exists()
    Ledger.create(filled.path, epsilon=9.0, delta=1e-5)
    with pytest.raises(LedgerDamaged, match="another ledger"):
        charge(filled)


def test_foreign_files_are_left_as_they_are(path: Path) -> None:
    path.write_text("this is a table of records, not a ledger\n" * 50)
    before = path.read_bytes()
    with pytest.raises(LedgerForeign, match="not even an SQLite file"):
        Ledger(path, epsilon=1.0, delta=0.0)
    assert path.read_bytes() == before
    path.unlink()
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE entries (x)")
    connection.commit()
    connection.close()
    before = path.read_bytes()
    with pytest.raises(LedgerForeign, match="no dpsep ledger"):
        Ledger(path, epsilon=1.0, delta=0.0)
    assert path.read_bytes() == before


def test_a_newer_format_is_refused_by_name(filled: Ledger) -> None:
    connection = sqlite3.connect(filled.path)
    connection.execute("PRAGMA user_version = 2")
    connection.close()
    for operation in (lambda: charge(filled), lambda: Ledger(filled.path)):
        with pytest.raises(LedgerForeign, match="has format 2 and this version of dpsep reads format 1"):
            operation()


def test_a_locked_file_is_waited_for_and_then_refused(filled: Ledger) -> None:
    connection = sqlite3.connect(filled.path, isolation_level=None)
    connection.execute("BEGIN IMMEDIATE")
    filled.timeout = 0.05
    with pytest.raises(LedgerLocked, match=r"for 0\.05 s; nothing was charged"):
        charge(filled)
    assert filled.spent().epsilon == 3.0  # readers need not wait for a writer that has not begun to write
    connection.execute("ROLLBACK")
    connection.close()
    charge(filled)
    assert Ledger(filled.path).timeout == 30.0


def test_a_lock_that_is_given_back_in_time_is_waited_for(filled: Ledger) -> None:
    connection = sqlite3.connect(filled.path, isolation_level=None, check_same_thread=False)
    connection.execute("BEGIN IMMEDIATE")
    timer = threading.Timer(0.2, lambda: connection.execute("ROLLBACK"))
    timer.start()
    charge(filled)
    timer.join()
    connection.close()
    assert filled.spent().epsilon == 4.0


def test_a_full_disk_charges_nothing_and_says_so(filled: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    connect = ledger_file._connect

    def small_disk(*arguments: Any) -> sqlite3.Connection:
        connection = connect(*arguments)
        connection.execute("PRAGMA max_page_count = 1")  # no page more than there are
        return connection

    with monkeypatch.context() as patch:
        patch.setattr(ledger_file, "_connect", small_disk)
        with pytest.raises(LedgerUnwritable, match="database or disk is full"):
            charge(filled, event={"note": "x" * 20_000})
        with pytest.raises(LedgerUnwritable, match="disk is full"):
            Ledger.create(filled.path.with_name("new"), epsilon=1.0, delta=0.0)
    assert filled.verify() == 4
    assert [name.name for name in filled.path.parent.iterdir()] == [filled.path.name]


LIMITED = """
import resource, sys
from dpsep.privacy.ledger import Ledger, LedgerUnwritable
ledger = Ledger(sys.argv[1])
resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))
try:
    ledger.charge("late", epsilon=1.0, delta=0.0, relation="zero-out", event={})
except LedgerUnwritable as error:
    print(error)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="no limit on the size of files")
def test_a_write_that_fails_charges_nothing(filled: Ledger) -> None:
    pytest.importorskip("resource")
    assert "the disk is full or failing" in run_script(LIMITED, filled.path)
    assert filled.verify() == 4
    charge(filled)


READ_ONLY = """
import os, sys
from dpsep.privacy.ledger import Ledger, LedgerUnwritable
path = sys.argv[1]
ledger = Ledger(path)
os.chmod(path, int(sys.argv[2], 8))
os.chmod(os.path.dirname(path), int(sys.argv[3], 8))
if os.geteuid() == 0:
    os.seteuid(65534)  # root may write anywhere
for attempt in (
    lambda: ledger.charge("late", epsilon=1.0, delta=0.0, relation="zero-out", event={}),
    lambda: Ledger.create(path + "-new", epsilon=1.0, delta=0.0),
):
    try:
        attempt()
    except LedgerUnwritable as error:
        print(error)
print(ledger.spent().epsilon)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="permissions work otherwise")
@pytest.mark.parametrize(("file", "folder"), [("444", "555"), ("666", "555"), ("444", "755")])
def test_a_read_only_file_or_folder_can_be_read_but_not_charged(
    filled: Ledger, file: str, folder: str
) -> None:
    base = filled.path.parent
    modes = {}
    for name in (base, *base.parents):  # another user must be able to come here
        modes[name] = name.stat().st_mode
        if os.access(name, os.W_OK) and name != name.parent and not modes[name] & 0o001:
            name.chmod(modes[name] | 0o055)
    try:
        lines = run_script(READ_ONLY, filled.path, file, folder).splitlines()
    finally:
        for name, mode in modes.items():
            if name.stat().st_mode != mode:
                name.chmod(mode)
    assert lines[-1] == "3.0"
    assert "a charge needs write access to the file" in lines[0]
    assert "folder" in lines[1]
    assert filled.verify() == 4


def test_a_missing_folder_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(LedgerUnwritable, match="folder, which must exist"):
        Ledger.create(tmp_path / "no" / "ledger", epsilon=1.0, delta=0.0)
    with pytest.raises(LedgerError):
        Ledger.create(tmp_path, epsilon=1.0, delta=0.0)


def test_a_file_system_without_hard_links_is_refused(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(ledger_file.os, "link", fail)
    with pytest.raises(LedgerUnwritable, match="hard links"):
        Ledger.create(path, epsilon=1.0, delta=0.0)
    assert not list(path.parent.iterdir())


def test_every_connection_is_durable(filled: Ledger) -> None:
    with ledger_file.open_file(filled.path, 1.0) as connection:
        assert connection.execute("PRAGMA synchronous").fetchone() == (3,)  # EXTRA
        assert connection.execute("PRAGMA journal_mode").fetchone() == ("delete",)


def test_a_chain_can_be_checked_without_this_library(filled: Ledger) -> None:
    previous = "0" * 64
    connection = sqlite3.connect(filled.path)
    cursor = connection.execute("SELECT * FROM entries ORDER BY number")
    names = [column[0] for column in cursor.description]
    for values in cursor.fetchall():
        row = dict(zip(names, values, strict=True))
        found = row.pop("hash")
        assert row["previous"] == previous
        previous = hashlib.sha256(json.dumps(row, sort_keys=True, separators=(",", ":")).encode()).hexdigest()
        assert found == previous
    assert connection.execute("SELECT count, hash FROM head").fetchall() == [(4, previous)]
    connection.close()
