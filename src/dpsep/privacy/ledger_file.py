"""The ledger's file: an append-only, hash-chained table in SQLite, and what can be wrong with it.

This module knows files; `ledger_rows` knows rows and their chain, whose head is kept in a second table.
Triggers refuse UPDATE, DELETE and rows out of turn. The chain finds accidents and careless edits; whoever can
write the file can also rewrite all of it, or put an old copy back, so keep receipts (`Ledger.verify` takes
them) or the file where only its owner writes.

Durability: rollback journal (`journal_mode=DELETE`) with `synchronous=EXTRA`. FULL would not do here: a
transaction in that mode commits when its journal's name is removed, and only EXTRA syncs the folder after
that, so that a power cut cannot bring the journal back and roll a charge off again. SQLite passes over a
folder that it cannot open for that (no right to read it, too many open files), so a write opens the folder
before it begins and syncs it once more at its end. WAL with FULL is as durable but needs shared memory and
two more files beside the ledger.

Each operation opens a connection of its own, under one lock that also holds off `fork`: SQLite's locks must
not cross a fork.

Why `sqlite3` and not SQLAlchemy Core, which was tried for both places of a ledger and kept every law here: of
a file only five statements on rows become expressions. Pragmas, BEGIN IMMEDIATE, the triggers and the text of
the schema, which a file is compared with, stay as they are, and the two places grow from 526 to 555 lines of
code. Each process that opens a ledger would load 180 modules more: 0.17 s and 18 MB, and `dpsep ledger show`
takes 0.58 s of processor time in place of 0.32. A charge takes 1.2 ms in place of 0.8, syncs aside, and
everybody would need SQLAlchemy.
"""

import contextlib
import os
import secrets
import sqlite3
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dpsep.privacy.checkpoint import durable_names, fsync_folder
from dpsep.privacy.ledger_rows import (
    GENESIS,
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

FORMAT = 1
APPLICATION = 0x64705345  # marks the file as ours: "dpSE"

_REFUSED = "BEGIN SELECT RAISE(ABORT, 'a ledger only appends'); END"
_SCHEMA = {  # a file is compared with this text: a change of it is a new format
    "entries": "CREATE TABLE entries (number INTEGER PRIMARY KEY, time TEXT NOT NULL, run TEXT NOT NULL, "
    "kind TEXT NOT NULL, "
    "epsilon TEXT NOT NULL, delta TEXT NOT NULL, rdp TEXT, relation TEXT NOT NULL, unit TEXT NOT NULL, "
    "event TEXT NOT NULL, previous TEXT NOT NULL, hash TEXT NOT NULL)",
    "head": "CREATE TABLE head (count INTEGER NOT NULL, hash TEXT NOT NULL)",
    "entries_in_turn": "CREATE TRIGGER entries_in_turn BEFORE INSERT ON entries "
    f"WHEN NEW.number IS NOT (SELECT count + 1 FROM head) {_REFUSED}",
    "entries_no_update": f"CREATE TRIGGER entries_no_update BEFORE UPDATE ON entries {_REFUSED}",
    "entries_no_delete": f"CREATE TRIGGER entries_no_delete BEFORE DELETE ON entries {_REFUSED}",
    "head_once": "CREATE TRIGGER head_once BEFORE INSERT ON head WHEN (SELECT count(*) FROM head) > 0 "
    f"{_REFUSED}",
    "head_forward": "CREATE TRIGGER head_forward BEFORE UPDATE ON head WHEN NEW.count IS NOT OLD.count + 1 "
    f"{_REFUSED}",
    "head_no_delete": f"CREATE TRIGGER head_no_delete BEFORE DELETE ON head {_REFUSED}",
}

_turn = fork_lock()
"""One operation at a time in this process, and none while it forks."""


@dataclass(frozen=True)
class FileStore:
    """The rows of a ledger in a file; see `dpsep.privacy.ledger_rows.Store`."""

    path: Path

    @property
    def place(self) -> str:
        """The file's path."""
        return str(self.path)

    def exists(self, timeout: float) -> bool:
        """Say whether the path is taken, by a dead link too."""
        del timeout
        return os.path.lexists(self.path)

    def create(self, timeout: float, **content: Any) -> None:
        """Make a ledger with its first row; a file that is already there is left alone.

        The new file gets its name by a hard link once it is whole and durable, so that of several creators
        exactly one wins, and an empty file at the path is never a young ledger but always a damaged one.
        """
        temporary = self.path.with_name(f".{secrets.token_hex(8)}.tmp")
        try:
            with _operation(temporary, timeout, mode="rwc", shown=self.path) as connection:
                connection.execute(f"PRAGMA application_id = {APPLICATION}")
                connection.execute(f"PRAGMA user_version = {FORMAT}")
                connection.execute("BEGIN IMMEDIATE")
                for statement in _SCHEMA.values():
                    connection.execute(statement)
                connection.execute("INSERT INTO head VALUES (0, ?)", (GENESIS,))
                append(connection, [], **content)
                connection.execute("COMMIT")
            os.link(temporary, self.path)
            fsync_folder(self.path.parent)
        except FileExistsError:
            pass  # another process was first: its file counts
        except OSError as error:
            raise LedgerUnwritable(
                f"the ledger {self.path} cannot be made ({error.strerror}): choose an existing folder that "
                "you may write to, on a local file system with hard links (network shares often lack these "
                "and reliable locks)"
            ) from error
        finally:
            for name in (temporary, temporary.with_name(f"{temporary.name}-journal")):
                with contextlib.suppress(OSError):
                    name.unlink()

    def read(self, timeout: float) -> list[Entry]:
        """Return every row, checked."""
        with open_file(self.path, timeout) as connection:
            return read_entries(connection, self.path)

    def append(self, timeout: float, decide: Decision) -> Entry:
        """Add the row that `decide` makes of those before it."""
        with open_file(self.path, timeout, write=True) as connection:
            entries = read_entries(connection, self.path)
            return append(connection, entries, **decide(entries))


@contextlib.contextmanager
def open_file(path: Path, timeout: float, *, write: bool = False) -> Iterator[sqlite3.Connection]:
    """Open one transaction on an existing ledger; a write is durable once the block ends without error."""
    if not os.path.exists(path):
        raise missing(path)
    committed = False
    names = _durably(path, lambda: committed) if write else contextlib.nullcontext()
    with names, _operation(path, timeout, mode="rw") as connection:
        connection.execute("BEGIN IMMEDIATE" if write else "BEGIN")
        _check_format(connection, path)
        yield connection
        connection.execute("COMMIT")
        committed = True


@contextlib.contextmanager
def _durably(path: Path, committed: Callable[[], bool]) -> Iterator[None]:
    """Sync the ledger's folder behind a write, and say what is certain where that fails."""
    try:
        with durable_names(path.parent):
            yield
    except LedgerError:
        raise
    except OSError as error:
        done = (
            "Its last row may be there all the same: look before you charge again"
            if committed()
            else ("Nothing was written")
        )
        raise LedgerUnwritable(
            f"the ledger {path} cannot be written durably: its folder cannot be opened or synced "
            f"({error.strerror}). {done}. Do not read records; make the folder one that you may read and "
            "write, or name a path elsewhere"
        ) from error


def read_entries(connection: sqlite3.Connection, path: Path) -> list[Entry]:
    """Read every row and check the whole chain against the count and the last hash kept beside it."""
    rows = connection.execute("SELECT * FROM entries ORDER BY number").fetchall()
    return check_chain(path, rows, connection.execute("SELECT count, hash FROM head").fetchall())


def append(connection: sqlite3.Connection, entries: list[Entry], **content: Any) -> Entry:
    """Add one row after `entries`, inside the caller's transaction."""
    entry = next_entry(entries, **content)
    connection.execute(f"INSERT INTO entries VALUES ({', '.join('?' * len(entry))})", entry)
    connection.execute("UPDATE head SET count = ?, hash = ?", (entry.number, entry.hash))
    return entry


def _connect(path: Path, timeout: float, mode: str) -> sqlite3.Connection:
    connection = sqlite3.connect(
        f"{path.as_uri()}?mode={mode}", uri=True, timeout=timeout, isolation_level=None
    )
    connection.execute("PRAGMA synchronous = EXTRA")
    return connection


@contextlib.contextmanager
def _operation(
    path: Path, timeout: float, mode: str, shown: Path | None = None
) -> Iterator[sqlite3.Connection]:
    try:
        with _turn, contextlib.closing(_connect(path, timeout, mode)) as connection:
            yield connection  # closing without COMMIT rolls back
    except sqlite3.Error as error:
        raise _explain(error, shown or path, timeout) from error
    except UnicodeDecodeError as error:  # SQLite's own words about a damaged file
        raise damaged(shown or path, "it holds text that is not UTF-8") from error


def _check_format(connection: sqlite3.Connection, path: Path) -> None:
    if path.stat().st_size == 0:
        raise damaged(path, "it is empty")
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if application != APPLICATION:
        raise LedgerForeign(
            f"{path} is an SQLite file but no dpsep ledger: it was left as it is. Name another path"
        )
    if version != FORMAT:
        raise other_format(path, version, FORMAT)
    found = connection.execute("SELECT name, sql FROM sqlite_master WHERE name NOT LIKE 'sqlite%'")
    if dict(found) != _SCHEMA:
        raise damaged(path, "its tables or the triggers that protect them were changed")


def _explain(error: sqlite3.Error, path: Path, timeout: float) -> LedgerError:
    said = str(error)
    if "locked" in said:
        return locked(path, timeout, "nothing was charged")
    if "not a database" in said:
        return LedgerForeign(
            f"{path} is no dpsep ledger (not even an SQLite file): it was left as it is. Name another path"
        )
    if "malformed" in said or "no such table" in said:
        return damaged(path, f"SQLite says '{said}'")
    if "full" in said or "I/O" in said:
        return LedgerUnwritable(
            f"the ledger {path} could not be written: the disk is full or failing (SQLite says '{said}'). "
            "Do not read records; free some room and try again"
        )
    if "readonly" in said or "unable to open" in said:
        return LedgerUnwritable(
            f"the ledger {path} cannot be written (SQLite says '{said}'): a charge needs write access to "
            "the file and, for its journal, to its folder, which must exist. Change the permissions, or "
            "name a path where you may write"
        )
    return LedgerError(f"the ledger {path} cannot be used: SQLite says '{said}'; nothing was charged")
