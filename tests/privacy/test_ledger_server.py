"""The laws of a ledger on a server that are its own; `test_ledger.py` has those it shares with a file."""

import contextlib
import hashlib
import json
import threading
import time
from collections.abc import Callable, Iterator
from datetime import datetime
from typing import Any

import pytest

from dpsep.privacy import ledger_rows, ledger_server
from dpsep.privacy.ledger import (
    Ledger,
    LedgerDamaged,
    LedgerError,
    LedgerForeign,
    LedgerLocked,
    LedgerUnwritable,
    OverBudget,
    Spent,
)

from .ledger_help import charge
from .server import PrivateServer
from .storm import storm


@pytest.fixture
def filled(server: PrivateServer) -> Ledger:
    ledger = Ledger.create(server.url(), epsilon=9.0, delta=1e-5)
    for run in "abc":
        charge(ledger, 1.0, 1e-6, run)
    return ledger


def schema_of(ledger: Ledger) -> str:
    return f'"dpsep_{ledger.path.rpartition("=")[2]}"'


def told(ledger: Ledger, statement: str) -> str:
    return statement.replace("S.", f"{schema_of(ledger)}.")


CHANGED_ROW = (
    "SELECT {number}, time, run, kind, '0.0', delta, rdp, relation, unit, event, {previous}, hash, {token} "
    "FROM S.entries WHERE number = {source}"
)


def row_like(number: int, previous: str = "previous", token: str = "'new'", source: int = 4) -> str:
    return "INSERT INTO S.entries " + CHANGED_ROW.format(
        number=number, previous=previous, token=token, source=source
    )


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE S.entries SET epsilon = '0.0' WHERE number = 2",
        "DELETE FROM S.entries WHERE number = 4",
        "DELETE FROM S.entries",
        "TRUNCATE S.entries",
        "TRUNCATE S.entries, S.head",
        row_like(9),
        row_like(4),
        row_like(5),  # the right number, and not what follows the last row
        row_like(5, "hash", source=3),
        row_like(2, source=2) + " ON CONFLICT DO NOTHING",
        row_like(2, source=2) + " ON CONFLICT (number) DO UPDATE SET epsilon = '0.0'",
        "UPDATE S.head SET count = 2",
        "UPDATE S.head SET count = 5",
        "UPDATE S.head SET hash = 'x'",
        "DELETE FROM S.head",
        "TRUNCATE S.head",
        "INSERT INTO S.head VALUES (1, 'x')",
    ],
)
def test_the_server_itself_refuses_to_change_a_row(
    server: PrivateServer, filled: Ledger, statement: str
) -> None:
    import psycopg

    with pytest.raises(psycopg.Error, match="a ledger only appends"):
        server.sql(told(filled, statement))
    assert filled.verify() == 4
    assert filled.spent() == Spent(3.0, 3e-6)


def test_a_token_enters_once(server: PrivateServer, filled: Ledger) -> None:
    import psycopg

    (token,) = server.sql(told(filled, "SELECT token FROM S.entries WHERE number = 4"))[0]
    with pytest.raises(psycopg.errors.UniqueViolation):
        server.sql(told(filled, row_like(5, "hash", f"'{token}'")))
    server.sql(told(filled, row_like(5, "hash")))  # all else the same, it would have followed the last row
    with pytest.raises(LedgerDamaged, match="row 5 does not match its hash"):
        filled.verify()


def edit(server: PrivateServer, ledger: Ledger, *statements: str) -> None:
    """Do what the triggers forbid, as the owner of the tables could."""
    off = [told(ledger, f"ALTER TABLE S.{table} DISABLE TRIGGER USER") for table in ("entries", "head")]
    on = [told(ledger, f"ALTER TABLE S.{table} ENABLE TRIGGER USER") for table in ("entries", "head")]
    server.sql(*off, *(told(ledger, statement) for statement in statements), *on)


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE S.entries SET epsilon = '0.5' WHERE number = 2",
        "UPDATE S.entries SET epsilon = '9.5' WHERE number = 1",
        "UPDATE S.entries SET kind = 'failed' WHERE number = 3",
        "UPDATE S.entries SET time = '' WHERE number = 4",
        "DELETE FROM S.entries WHERE number = 2",
        "DELETE FROM S.entries WHERE number = 4",
        "DELETE FROM S.entries",
        "DELETE FROM S.head",
        "INSERT INTO S.head SELECT * FROM S.head",
        "UPDATE S.head SET count = 3",
        "UPDATE S.head SET hash = (SELECT previous FROM S.entries WHERE number = 4)",
    ],
)
def test_an_edited_or_cut_ledger_is_refused_by_every_operation(
    server: PrivateServer, filled: Ledger, statement: str
) -> None:
    edit(server, filled, statement)
    operations: tuple[Callable[[], object], ...] = (
        *(filled.verify, filled.spent, filled.rows, lambda: charge(filled)),
        lambda: filled.finish("a", "finished"),
    )
    for operation in operations:
        with pytest.raises(LedgerDamaged, match="restore it from a copy"):
            operation()


@pytest.mark.parametrize(
    "statement",
    [
        "DROP TRIGGER entries_in_turn ON S.entries",
        "DROP TRIGGER entries_stay ON S.entries",
        "DROP TRIGGER head_forward ON S.head",
        "ALTER TABLE S.head DISABLE TRIGGER head_stays",
        "ALTER TABLE S.entries ENABLE REPLICA TRIGGER entries_stay",
        "CREATE OR REPLACE TRIGGER entries_stay BEFORE UPDATE OF token OR DELETE OR TRUNCATE ON S.entries "
        "FOR EACH STATEMENT EXECUTE FUNCTION S.refuse()",
        "CREATE ROLE other; ALTER TABLE S.entries OWNER TO other",
        "CREATE TRIGGER more BEFORE INSERT ON S.entries FOR EACH ROW EXECUTE FUNCTION S.refuse()",
        "CREATE RULE nothing AS ON INSERT TO S.entries DO INSTEAD NOTHING",
        "CREATE OR REPLACE FUNCTION S.refuse() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER "
        "SET search_path = pg_catalog, pg_temp AS $$BEGIN RETURN NULL; END$$",
        "ALTER FUNCTION S.take_turn() SECURITY INVOKER",
        "ALTER FUNCTION S.take_turn() RESET search_path",
        "ALTER TABLE S.entries SET UNLOGGED",
        "ALTER TABLE S.entries ENABLE ROW LEVEL SECURITY",
        "ALTER TABLE S.entries ADD COLUMN more text",
        "ALTER TABLE S.entries ALTER COLUMN token DROP NOT NULL",
        "ALTER TABLE S.entries DROP CONSTRAINT entries_token_key",
        "ALTER TABLE S.entries DROP CONSTRAINT entries_pkey",
        "DROP TABLE S.head",
        "CREATE TABLE S.more (x text)",
        "CREATE TABLE S.more () INHERITS (S.entries)",
        "CREATE VIEW S.more AS SELECT 1",
    ],
)
def test_changed_tables_and_triggers_are_noticed(
    server: PrivateServer, filled: Ledger, statement: str
) -> None:
    server.sql(told(filled, statement))
    for operation in (filled.spent, lambda: charge(filled)):
        with pytest.raises(LedgerDamaged, match="its tables or the triggers that protect them were changed"):
            operation()


def test_an_old_copy_is_found_with_a_receipt(server: PrivateServer, filled: Ledger) -> None:
    receipt = charge(filled)
    assert filled.verify(receipt) == 5
    edit(
        server,
        filled,
        "DELETE FROM S.entries WHERE number = 5",
        "UPDATE S.head SET count = 4, hash = (SELECT hash FROM S.entries WHERE number = 4)",
    )
    assert filled.verify() == 4  # alone, an old copy is a good ledger
    with pytest.raises(LedgerDamaged, match="old copy"):
        filled.verify(receipt)


def test_a_ledger_that_was_taken_away_or_swapped_is_not_made_anew(server: PrivateServer) -> None:
    url = server.url()
    ledger = Ledger.create(url, epsilon=9.0, delta=1e-5)
    server.sql(f"DROP SCHEMA {schema_of(ledger)} CASCADE")
    with pytest.raises(LedgerError, match="no ledger at"):
        charge(ledger)
    Ledger.create(url, epsilon=9.0, delta=1e-5)
    with pytest.raises(LedgerDamaged, match="another ledger"):
        charge(ledger)


def test_a_foreign_schema_is_left_as_it_is(server: PrivateServer) -> None:
    server.sql("CREATE SCHEMA dpsep_foreign", "CREATE TABLE dpsep_foreign.entries (x text)")
    for budget in (None, 1.0):
        with pytest.raises(LedgerForeign, match="is no dpsep ledger"):
            Ledger(server.url("foreign"), epsilon=budget, delta=budget and 0.0)
    assert server.sql("SELECT count(*) FROM dpsep_foreign.entries") == [(0,)]


def test_a_newer_format_is_refused_by_name(server: PrivateServer, filled: Ledger) -> None:
    server.sql(f"COMMENT ON SCHEMA {schema_of(filled)} IS 'dpsep ledger, format 2'")
    with pytest.raises(LedgerForeign, match="has format 2 and this version of dpsep reads format 1"):
        charge(filled)


def lock_key(ledger: Ledger) -> int:
    name = schema_of(ledger).strip('"')
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "big", signed=True)


def test_a_locked_ledger_is_waited_for_and_then_refused(server: PrivateServer, filled: Ledger) -> None:
    with server.connect() as other:
        other.execute("SELECT pg_advisory_lock(%s)", (lock_key(filled),))
        filled.timeout = 0.1
        with pytest.raises(LedgerLocked, match=r"for 0\.1 s; nothing was charged"):
            charge(filled)
        assert filled.spent().epsilon == 3.0  # readers need not wait
        filled.timeout = 30.0
        timer = threading.Timer(0.2, lambda: other.execute("SELECT pg_advisory_unlock_all()"))
        timer.start()
        charge(filled)
        timer.join()
    assert filled.spent().epsilon == 4.0


def test_a_writer_that_does_not_take_the_lock_is_not_overtaken(
    server: PrivateServer, filled: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = Ledger(server.url(filled.path.rpartition("=")[2]))
    insert = ledger_server.ServerStore._insert
    waiting = [1]

    def late(self: Any, connection: Any, entry: Any, token: str) -> None:
        if waiting:  # somebody else writes between our look and our row
            waiting.clear()
            charge(other, 5.5)
        insert(self, connection, entry, token)

    ask = ledger_server._ask

    def no_lock(connection: Any, statement: str, **values: Any) -> Any:
        return ask(connection, statement.replace("SELECT pg_advisory_xact_lock(:key)", "SELECT 1"), **values)

    monkeypatch.setattr(ledger_server, "_ask", no_lock)
    monkeypatch.setattr(ledger_server.ServerStore, "_insert", late)
    with pytest.raises(OverBudget):  # decided anew, on what the other spent
        charge(filled, 1.0)
    assert filled.spent().epsilon == 8.5


@pytest.fixture
def restored(server: PrivateServer) -> Iterator[PrivateServer]:
    """A server that a test may stop and start as it likes."""
    yield server
    server.stop("immediate")
    server.start()


@pytest.mark.parametrize("setting", ["fsync", "full_page_writes"])
def test_a_server_that_may_forget_is_refused(restored: PrivateServer, filled: Ledger, setting: str) -> None:
    restored.stop()
    restored.start(**{setting: "off"})
    for operation in (
        lambda: charge(filled),
        lambda: filled.finish("a", "finished"),
        lambda: Ledger.create(restored.url(), epsilon=1.0, delta=0.0),
    ):
        with pytest.raises(LedgerUnwritable, match=f"does not keep what it commits.*{setting} off"):
            operation()
    assert filled.verify() == 4


def test_commits_are_durable_whatever_the_role_has_set(
    server: PrivateServer, filled: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = []
    insert = ledger_server.ServerStore._insert

    def spy(self: Any, connection: Any, *arguments: Any) -> None:
        names = ("synchronous_commit", "transaction_isolation", "statement_timeout")
        seen.extend(ledger_server._ask(connection, f"SHOW {name}").scalar_one() for name in names)
        insert(self, connection, *arguments)

    monkeypatch.setattr(ledger_server.ServerStore, "_insert", spy)
    hasty = {"synchronous_commit": "off", "default_transaction_isolation": "'serializable'"}
    hasty |= {"statement_timeout": "'1h'", "default_transaction_read_only": "on"}
    try:
        server.sql(*(f"ALTER ROLE owner SET {name} = {value}" for name, value in hasty.items()))
        charge(filled)
        with monkeypatch.context() as patch:
            patch.setattr(ledger_server, "_SETTINGS", "SELECT 'nothing is set', :wait, 150000")
            with pytest.raises(LedgerUnwritable, match="synchronous_commit off"):
                charge(filled)
    finally:
        server.sql("SET default_transaction_read_only = off", "ALTER ROLE owner RESET ALL")
    assert seen == ["on", "read committed", "0"]
    assert filled.verify() == 5


def test_a_server_that_comes_back_in_time_fails_nobody(restored: PrivateServer, filled: Ledger) -> None:
    restored.stop()
    timer = threading.Timer(0.5, restored.start)
    timer.start()
    receipt = charge(filled, run="d")
    timer.join()
    assert filled.verify(receipt) == 5


def test_a_server_that_stays_away_charges_nothing_and_says_so(
    restored: PrivateServer, filled: Ledger
) -> None:
    restored.stop()
    filled.timeout = 0.3
    with pytest.raises(LedgerError, match=r"was not there for 0\.3 s.*; nothing was charged"):
        charge(filled)
    restored.start()
    assert filled.verify() == 4


class LostAnswers:
    """What a COMMIT meets: the answer to so many of them is lost, after or before they are done."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, fates: list[str]) -> None:
        import psycopg
        from sqlalchemy.dialects.postgresql.psycopg import PGDialect_psycopg

        self.left = fates
        self.meanwhile: Callable[[], object] = lambda: None
        self.error = psycopg.OperationalError
        monkeypatch.setattr(PGDialect_psycopg, "do_commit", lambda _, connection: self.commit(connection))

    def commit(self, connection: Any) -> None:
        fate = self.left.pop(0) if self.left else "answered"
        if fate in ("answered", "done"):
            connection.commit()
        if fate != "answered":
            connection.driver_connection.close()
            self.meanwhile()
            raise self.error("server closed the connection unexpectedly")


@pytest.mark.parametrize(
    "fates", [["done"], ["undone"], ["undone", "undone", "done"], ["undone", "undone", "undone"]]
)
def test_a_charge_whose_answer_was_lost_is_there_once(
    server: PrivateServer, filled: Ledger, monkeypatch: pytest.MonkeyPatch, fates: list[str]
) -> None:
    lost = LostAnswers(monkeypatch, list(fates))
    receipt = charge(filled, 5.5, run="d")
    assert lost.left == []
    assert filled.verify(receipt) == 5
    assert filled.spent().epsilon == 8.5
    filled.begin_release("d", 1)
    lost.left = ["done"]
    filled.begin_release("d", 2)
    assert [row.kind for row in filled.rows()[4:]] == ["charge", "release", "release"]


def test_a_commit_that_the_server_refused_charged_nothing_and_the_error_is_sure_of_it(
    server: PrivateServer, filled: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    import psycopg
    from sqlalchemy.dialects.postgresql.psycopg import PGDialect_psycopg

    def refuse(_: Any, connection: Any) -> None:
        connection.rollback()
        raise psycopg.errors.DiskFull("no space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(PGDialect_psycopg, "do_commit", refuse)
        with pytest.raises(LedgerUnwritable, match=r"no space left on device.*nothing was charged"):
            charge(filled)
    assert filled.verify() == 4


def test_a_connection_that_breaks_behind_an_answered_commit_doubles_nothing(
    server: PrivateServer, filled: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    import psycopg
    from sqlalchemy.exc import OperationalError

    transaction = ledger_server.ServerStore._transaction
    fates = ["breaks"]

    @contextlib.contextmanager
    def breaking(self: Any, until: float, *, write: bool) -> Iterator[Any]:
        with transaction(self, until, write=write) as connection:
            yield connection
        if write and fates:
            fates.clear()
            gone = psycopg.OperationalError("the server closed the connection")
            raise OperationalError("close", None, gone)

    monkeypatch.setattr(ledger_server.ServerStore, "_transaction", breaking)
    receipt = charge(filled, 5.5, run="d")
    assert fates == []
    assert filled.verify(receipt) == 5


def test_somebody_elses_same_row_is_not_taken_for_ones_own(
    server: PrivateServer, filled: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Still(datetime):
        @classmethod
        def now(cls, tz: Any = None) -> Any:
            return cls(2026, 1, 1, tzinfo=tz)

    monkeypatch.setattr(ledger_rows, "datetime", Still)  # the two rows are the same to the last character
    other = Ledger(server.url(filled.path.rpartition("=")[2]))
    receipts = []
    lost = LostAnswers(monkeypatch, ["undone"])
    lost.meanwhile = lambda: receipts.append(charge(other, 1.0, run="same"))
    receipts.append(charge(filled, 1.0, run="same"))
    assert [receipt.number for receipt in receipts] == [5, 6]
    assert filled.spent().epsilon == 5.0


@pytest.mark.parametrize(("fate", "rows"), [("done", 5), ("undone", 4)])
def test_where_the_answer_stays_unknown_the_error_says_so(
    restored: PrivateServer, filled: Ledger, monkeypatch: pytest.MonkeyPatch, fate: str, rows: int
) -> None:
    lost = LostAnswers(monkeypatch, [fate])
    lost.meanwhile = lambda: restored.stop("immediate")
    filled.timeout = 0.5
    with pytest.raises(LedgerError, match="may be there all the same: look for it") as caught:
        charge(filled)
    assert "nothing was charged" not in str(caught.value)
    restored.start()
    assert filled.verify() == rows


def test_a_lost_answer_to_the_making_of_a_ledger_makes_one(
    server: PrivateServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    LostAnswers(monkeypatch, ["done"])
    assert Ledger.create(server.url(), epsilon=1.0, delta=0.0).verify() == 1
    LostAnswers(monkeypatch, ["undone"])
    assert Ledger.create(server.url(), epsilon=1.0, delta=0.0).verify() == 1


@pytest.mark.parametrize("affordable", [100, 70])
def test_a_crash_among_several_processes_loses_and_doubles_no_charge(
    restored: PrivateServer, affordable: int
) -> None:
    result = storm(restored, processes=4, charges=100, affordable=affordable, modes=["immediate"])
    assert result.errors == ()
    assert (result.granted, result.rows, result.refused) == (affordable, affordable, 100 - affordable)
    assert (result.lost, result.doubled, result.failed) == (0, 0, 0)
    assert result.spent == result.budget == affordable / 10


@pytest.mark.deep
def test_four_restarts_among_sixteen_processes_lose_and_double_no_charge(
    restored: PrivateServer, record_property: Callable[[str, object], None]
) -> None:
    modes = ["fast", "immediate"] * 2
    result = storm(restored, processes=16, charges=2000, affordable=1500, modes=modes)
    assert result.errors == ()
    assert (result.granted, result.rows, result.refused) == (1500, 1500, 500)
    assert (result.lost, result.doubled, result.failed) == (0, 0, 0)
    record_property("charges while a server restarts", result.asked)


def test_a_chain_can_be_checked_without_this_library(server: PrivateServer, filled: Ledger) -> None:
    previous = "0" * 64
    names = ("number", "time", "run", "kind", "epsilon", "delta", "rdp", "relation", "unit", "event")
    columns = ", ".join((*names, "previous", "hash"))
    for *values, link, found in server.sql(told(filled, f"SELECT {columns} FROM S.entries ORDER BY number")):
        row = dict(zip(names, values, strict=True)) | {"previous": link}
        assert link == previous
        previous = hashlib.sha256(json.dumps(row, sort_keys=True, separators=(",", ":")).encode()).hexdigest()
        assert found == previous
    assert server.sql(told(filled, "SELECT count, hash FROM S.head")) == [(4, previous)]


@pytest.mark.filterwarnings("ignore::dpsep.NewLedgerWarning")
def test_several_creators_make_one_ledger(server: PrivateServer) -> None:
    url = server.url()
    made: list[str] = []
    threads = [
        threading.Thread(target=lambda: made.append(Ledger(url, epsilon=1.0, delta=0.0).id)) for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(made) == 4
    assert len(set(made)) == 1


def test_no_connection_stays_open(server: PrivateServer, filled: Ledger) -> None:
    charge(filled)
    count = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'dpsep'"
    until = time.monotonic() + 60  # a server needs a moment to see that somebody has gone
    while server.sql(count) != [(0,)]:
        assert time.monotonic() < until
        time.sleep(0.05)


def test_a_connection_begins_under_the_lock_that_a_fork_waits_for(
    server: PrivateServer, filled: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    from sqlalchemy.dialects.postgresql.psycopg import PGDialect_psycopg

    connect = PGDialect_psycopg.connect
    held = []

    def spy(self: Any, *arguments: Any, **more: Any) -> Any:
        held.append(ledger_server._connecting.locked())
        return connect(self, *arguments, **more)

    monkeypatch.setattr(PGDialect_psycopg, "connect", spy)
    charge(filled)
    assert held == [True]
    assert not ledger_server._connecting.locked()


def test_a_dump_that_is_restored_is_the_same_ledger(server: PrivateServer) -> None:
    url = server.url("dumped")
    ledger = Ledger.create(url, epsilon=9.0, delta=1e-5)
    receipt = charge(ledger)
    server.sql("CREATE DATABASE elsewhere")
    text = server.client("pg_dump", "--schema", "dpsep_dumped", "postgres")
    server.client("psql", "--set", "ON_ERROR_STOP=1", "--quiet", "elsewhere", typed=text)
    copy = Ledger(url.replace("/postgres?", "/elsewhere?"))
    assert copy.id == ledger.id
    assert copy.verify(receipt) == 2
    assert copy.verify(charge(copy)) == 3
