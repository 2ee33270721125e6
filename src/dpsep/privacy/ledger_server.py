"""A ledger on a PostgreSQL server, for a budget that a team shares: the same rows and laws as in a file.

`ledger_connection` says how the URL is written, `ledger_tables` what the server itself enforces.

**What a charge stands on.**

*One writer at a time.* A write first takes an advisory lock of its ledger that ends with the transaction. It
runs at READ COMMITTED on purpose: its first read begins once the lock is there, so it sees every charge
before it (at REPEATABLE READ or above the view would be as old as the wait for the lock). A writer without
the lock does no harm either: the server takes a row only if it follows the last one, and such a row was
decided on all rows before it.

*Durable.* The session has `synchronous_commit` on, or stronger, and a server with `fsync` or
`full_page_writes` off is refused. So what others can see is on the disk.

*Once.* A connection that dies while COMMIT is under way leaves open whether the row is there. The next
attempt looks for the row's token under the same lock, which the old transaction held until it ended: it is
there for good, or it will never be. So a server that is restarted is waited for, as long as the timeout goes,
and a charge is neither lost nor doubled.

**Assumed:** PostgreSQL keeps what it committed, its disk syncs when told to, and there is one server: a
failover to a replica that lags forgets charges. Who owns the tables can rewrite them; keep receipts. The
proof is in docs/proofs/index.md.

Each operation has a connection of its own and leaves none open, so that forks share nothing. No connection is
begun while the process forks.

SQLAlchemy connects, carries statements and sorts errors. The statements are text, for most of them are the
catalogue's and the triggers'; `ledger_file` has what its expressions cost. Its own INSERT also says that -1
rows were written, unless it is asked to count them, and `_insert` relies on that count.
"""

import contextlib
import hashlib
import math
import random
import secrets
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

from dpsep.privacy import ledger_connection as link
from dpsep.privacy import ledger_tables as tables
from dpsep.privacy.ledger_rows import (
    Decision,
    Entry,
    LedgerError,
    LedgerForeign,
    LedgerUnwritable,
    check_chain,
    damaged,
    fork_lock,
    locked,
    missing,
    next_entry,
    other_format,
)

if TYPE_CHECKING:
    from sqlalchemy import URL, Connection
    from sqlalchemy.exc import DBAPIError

OLDEST = 12
"""The oldest major version of the server that is taken."""
DURABLE = ("on", "remote_apply")
"""Values of `synchronous_commit` that hold an answer back until the commit is on the disk."""
_SETTINGS = """
SELECT set_config('synchronous_commit', CASE current_setting('synchronous_commit')
    WHEN 'remote_apply' THEN 'remote_apply' ELSE 'on' END, true),
  set_config('lock_timeout', :wait, true), set_config('statement_timeout', '0', true),
  set_config('idle_in_transaction_session_timeout', '15s', true),
  set_config('search_path', 'pg_catalog, pg_temp', true), current_setting('server_version_num')::int
"""
_DURABILITY = """
SELECT current_setting('fsync'), current_setting('full_page_writes'), current_setting('synchronous_commit')
"""

_connecting = fork_lock()
"""No connection is begun while this process forks: libraries hold locks of their own meanwhile."""

Result = TypeVar("Result")


@dataclass(frozen=True)
class ServerStore:
    """The rows of a ledger on a server; see `dpsep.privacy.ledger_rows.Store`."""

    place: str
    name: str
    url: "URL" = field(repr=False)

    @property
    def schema(self) -> str:
        """The schema that holds the tables."""
        return f"dpsep_{self.name}"

    def exists(self, timeout: float) -> bool:
        """Say whether the schema is there, whatever it holds."""
        return self._patiently(self._mark, timeout) is not None

    def create(self, timeout: float, **content: Any) -> None:
        """Make the schema with its first row, in one transaction; of several creators one wins."""

        def make(connection: "Connection") -> None:
            if self._mark(connection) is None:
                for statement in tables.making(self.schema):
                    connection.exec_driver_sql(statement)
                self._insert(connection, next_entry([], **content), secrets.token_hex(16))
                connection.commit()

        self._patiently(make, timeout, write=True)

    def read(self, timeout: float) -> list[Entry]:
        """Return every row, checked, as of one moment."""
        return self._patiently(self._entries, timeout)

    def append(self, timeout: float, decide: Decision) -> Entry:
        """Add the row that `decide` makes of those before it, once, however often the server goes away."""
        token = secrets.token_hex(16)
        unanswered = False  # a COMMIT was sent, and what became of it is not known

        def attempt(connection: "Connection") -> Entry:
            nonlocal unanswered
            entries = self._entries(connection)
            if unanswered:
                found = self._find(connection, token)
                if found is not None:
                    return entries[found - 1]
                unanswered = False  # under the lock: that transaction is over, and left nothing
            entry = next_entry(entries, **decide(entries))
            self._insert(connection, entry, token)
            unanswered = True
            try:
                connection.commit()
            except link.database_error() as error:
                unanswered = link.is_lost(error)
                raise
            return entry

        return self._patiently(attempt, timeout, write=True, is_open=lambda: unanswered)

    def _patiently(
        self,
        work: Callable[["Connection"], Result],
        timeout: float,
        *,
        write: bool = False,
        is_open: Callable[[], bool] = lambda: False,
    ) -> Result:
        """Do some work in a transaction, in another where the server went away, until the timeout is over."""
        until = time.monotonic() + timeout
        pause = 0.02
        while True:
            try:
                with self._transaction(until, write=write) as connection:
                    return work(connection)
            except link.database_error() as error:
                pause *= 1 + random.random()
                if not link.is_passing(error) or time.monotonic() + pause > until:
                    # Not chained: what a driver says of a connection may hold more than we would show.
                    raise self._explain(error, timeout, sure=not is_open()) from None
            except UnicodeError:
                raise LedgerError(
                    f"the ledger {self.place} cannot hold this text: use characters that UTF-8 knows; "
                    "nothing was charged"
                ) from None
            time.sleep(pause)
            pause = min(pause, 0.5)

    @contextlib.contextmanager
    def _transaction(self, until: float, *, write: bool) -> Iterator["Connection"]:
        """Open one transaction on a connection of its own; what is not committed in the block is undone."""
        left = max(until - time.monotonic(), 0.0)
        with _connecting:
            connection = link.engine(self.url, max(2, math.ceil(min(left, 10.0)))).connect()
        with connection:
            connection.execution_options(
                isolation_level="READ COMMITTED" if write else "REPEATABLE READ",
                postgresql_readonly=not write,
            )
            left = max(until - time.monotonic(), 0.001)
            *_, version = _ask(connection, _SETTINGS, wait=f"{math.ceil(1000 * left)}ms").one()
            if version < OLDEST * 10000:
                raise LedgerError(
                    f"the server of {self.place} is PostgreSQL {version // 10000}, and a ledger needs "
                    f"{OLDEST} or newer; nothing was charged"
                )
            if write:
                self._check_durable(connection)
                key = int.from_bytes(hashlib.sha256(self.schema.encode()).digest()[:8], "big", signed=True)
                _ask(connection, "SELECT pg_advisory_xact_lock(:key)", key=key)
            yield connection

    def _check_durable(self, connection: "Connection") -> None:
        fsync, pages, commit = _ask(connection, _DURABILITY).one()
        if fsync != "on" or pages != "on" or commit not in DURABLE:
            raise LedgerUnwritable(
                f"the server of {self.place} does not keep what it commits (fsync {fsync}, full_page_writes "
                f"{pages}, synchronous_commit {commit}): a charge could be forgotten. Nothing was charged; "
                "turn them on"
            )

    def _mark(self, connection: "Connection") -> str | None:
        """Return what the schema says it is, None where there is no schema."""
        found = _ask(
            connection,
            "SELECT coalesce(obj_description(oid, 'pg_namespace'), '') FROM pg_namespace "
            "WHERE nspname = :schema",
            schema=self.schema,
        )
        return found.scalar_one_or_none()

    def _entries(self, connection: "Connection") -> list[Entry]:
        """Read every row of one state, and check tables, triggers and chain."""
        mark = self._mark(connection)
        if mark is None:
            raise missing(self.place)
        if not mark.startswith(tables.MARK):
            raise LedgerForeign(
                f"the schema {self.schema} at {self.place} is no dpsep ledger: it was left as it is. Name "
                "another ledger"
            )
        if mark != f"{tables.MARK}{tables.FORMAT}":
            raise other_format(self.place, mark.removeprefix(tables.MARK), tables.FORMAT)
        found = _ask(connection, tables.LOOK, schema=self.schema).scalars()
        if sorted(found) != sorted(tables.expected(self.schema)):
            raise damaged(self.place, "its tables or the triggers that protect them were changed")
        schema = tables.quoted(self.schema)
        heads = _ask(connection, f"SELECT count, hash FROM {schema}.head").all()
        rows = _ask(connection, f"SELECT {', '.join(Entry._fields)} FROM {schema}.entries ORDER BY number")
        return check_chain(self.place, rows.all(), heads)

    def _find(self, connection: "Connection", token: str) -> int | None:
        statement = f"SELECT number FROM {tables.quoted(self.schema)}.entries WHERE token = :token"
        return _ask(connection, statement, token=token).scalar_one_or_none()

    def _insert(self, connection: "Connection", entry: Entry, token: str) -> None:
        schema = tables.quoted(self.schema)
        names = (*Entry._fields, "token")
        statement = f"INSERT INTO {schema}.entries ({', '.join(names)}) VALUES (:{', :'.join(names)})"
        if _ask(connection, statement, **entry._asdict(), token=token).rowcount != 1:
            raise damaged(self.place, "it did not take a row that follows its last one")

    def _explain(self, error: "DBAPIError", timeout: float, *, sure: bool) -> LedgerError:
        state, said = link.state_of(error), link.words_of(error, self.url)
        done = (
            "nothing was charged"
            if sure
            else "the last row may be there all the same: look for it (dpsep ledger show) before you charge "
            "again, and read no records"
        )
        if state == "55P03":
            return locked(self.place, timeout, done)
        if state == "42501":
            return LedgerUnwritable(
                f"this role may not do that to the ledger {self.place} (PostgreSQL says '{said}'); {done}. "
                "To charge, it needs USAGE on the schema, SELECT and INSERT on entries and SELECT on head; "
                "to make a ledger, CREATE on the database"
            )
        if state.startswith(("25006", "53", "58")):
            return LedgerUnwritable(
                f"the ledger {self.place} could not be written (PostgreSQL says '{said}'); {done}. Use the "
                "primary server, and see to its room and its disk"
            )
        if link.is_passing(error):
            return LedgerError(
                f"the server of {self.place} was not there for {timeout:g} s ('{said}'); {done}. Start it, "
                "or give a longer timeout"
            )
        return LedgerError(f"the ledger {self.place} cannot be used: PostgreSQL says '{said}'; {done}")


def _ask(connection: "Connection", statement: str, **values: Any) -> Any:
    from sqlalchemy import text

    return connection.execute(text(statement), values)
