"""A ledger's rows: what one holds, how it is chained to the one before, and what a place for rows must do.

This module knows rows; `dpsep.privacy.ledger` knows privacy, `ledger_file` and `ledger_server` know where
rows are kept. Each row carries the SHA-256 of its own canonical JSON and of the row before it. A *head*
beside the rows keeps their number and the last hash, so that a cut tail shows as well as an edited row. Since
the head's hash stands for every row before it, two lists of rows that suit one head are the same list.
"""

import hashlib
import json
import os
import threading
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from numbers import Integral, Real
from typing import Any, NamedTuple, Protocol

GENESIS = "0" * 64
EVENT_LIMIT = 65536
CHARGES = ("charge", "extra-step")
"""Kinds of the rows that spend."""


class LedgerError(RuntimeError):
    """Something about a ledger is not as it must be; no record may be read. The message says what is sure."""


class LedgerDamaged(LedgerError):
    """The ledger was edited, cut or torn: its rows do not match their hashes."""


class LedgerForeign(LedgerError):
    """What is at the ledger's place is none of ours, or one in a newer format."""


class LedgerLocked(LedgerError):
    """Another process kept the ledger locked for longer than the timeout."""


class LedgerUnwritable(LedgerError):
    """The ledger cannot be written (rights, a full disk), or not durably."""


class Entry(NamedTuple):
    """One row as it is stored: amounts as decimal text, the curve and the event as JSON text."""

    number: int
    time: str
    run: str
    kind: str
    epsilon: str
    delta: str
    rdp: str | None
    relation: str
    unit: str
    event: str
    previous: str
    hash: str


Decision = Callable[[list[Entry]], dict[str, Any]]
"""Given every row, the content of the next one, or an error; called again where a transaction is."""


class Store(Protocol):
    """A place for the rows of one ledger. Rows that it hands out have been checked as a chain."""

    @property
    def place(self) -> str:
        """How messages name it; never a password."""
        ...

    def exists(self, timeout: float) -> bool:
        """Say whether something is there already, a ledger or not."""
        ...

    def create(self, timeout: float, **content: Any) -> None:
        """Make a ledger with its first row; one that is there already is left alone."""
        ...

    def read(self, timeout: float) -> list[Entry]:
        """Return every row, as of one moment."""
        ...

    def append(self, timeout: float, decide: Decision) -> Entry:
        """Add one row, while nobody else does; on return it is durable, and there once."""
        ...


def canonical_json(value: Any) -> str:
    """Return the one JSON text of a value: sorted keys, no spaces, ASCII, no NaN.

    Examples
    --------
    >>> canonical_json({"steps": 10, "sampling": "poisson"})
    '{"sampling":"poisson","steps":10}'
    """
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False, default=_plain_number)


def event_json(event: dict[str, Any]) -> str:
    """Return an event as canonical JSON, or refuse it: it describes a mechanism and has no room for data."""
    if not isinstance(event, dict):
        raise LedgerError(f"the event is a {type(event).__name__}: give a dict that describes the mechanism")
    try:
        text = canonical_json(event)
    except (TypeError, ValueError) as error:
        raise LedgerError(
            f"the event cannot be written as JSON ({error}): give names, text and finite numbers"
        ) from error
    if len(text) > EVENT_LIMIT:
        raise LedgerError(
            f"the event takes {len(text)} characters and {EVENT_LIMIT} are allowed: describe the mechanism "
            "(sampling, steps, sigma, records), put no data in it"
        )
    return text


def entry_hash(entry: Entry) -> str:
    """Return the SHA-256 of a row's content, the previous row's hash included."""
    content = entry._asdict()
    del content["hash"]
    return hashlib.sha256(canonical_json(content).encode()).hexdigest()


def next_entry(entries: Sequence[Entry], **content: Any) -> Entry:
    """Return the row that follows others, with its place in the chain."""
    # The time is for people: order comes from the numbers and the chain, so a clock that jumps harms nothing.
    time = datetime.now(UTC).isoformat(timespec="seconds")
    previous = entries[-1].hash if entries else GENESIS
    entry = Entry(number=len(entries) + 1, time=time, previous=previous, hash="", **content)
    return entry._replace(hash=entry_hash(entry))


def check_chain(place: object, rows: Sequence[Sequence[Any]], heads: Sequence[Sequence[Any]]) -> list[Entry]:
    """Return the rows once each, and the whole chain against the head kept beside it, has been checked."""
    entries = [Entry(*row) for row in rows]
    previous = GENESIS
    for position, entry in enumerate(entries, start=1):
        if not _is_text(entry):
            raise damaged(place, f"row {position} holds cells of another type than a ledger's")
        if entry.number != position or entry.previous != previous or entry.hash != entry_hash(entry):
            raise damaged(place, f"row {position} does not match its hash or its place")
        previous = entry.hash
    head = (len(entries), previous)
    if [tuple(one) for one in heads] != [head] or not entries or entries[0].kind != "create":
        raise damaged(
            place, f"it has {len(entries)} rows, which is not what its head says: rows are missing or added"
        )
    return entries


def fork_lock() -> threading.Lock:
    """Return a lock that nobody holds while this process forks, so that a child never has it for good."""
    lock = threading.Lock()
    if hasattr(os, "register_at_fork"):  # absent where processes cannot fork
        os.register_at_fork(before=lock.acquire, after_in_parent=lock.release, after_in_child=lock.release)
    return lock


def damaged(place: object, what: str) -> LedgerDamaged:
    """Return the error of a ledger that must not be used any more."""
    return LedgerDamaged(
        f"the ledger {place} is damaged: {what}. It will not be used, since what was spent is no longer "
        "certain; restore it from a copy that holds every charge"
    )


def other_format(place: object, found: object, known: int) -> LedgerForeign:
    """Return the error of a ledger in a format that is not the known one."""
    return LedgerForeign(
        f"the ledger {place} has format {found} and this version of dpsep reads format {known}: use the "
        "version that made it"
    )


def locked(place: object, timeout: float, done: str) -> LedgerLocked:
    """Return the error of a ledger that others kept for longer than the timeout; `done` says what is sure."""
    return LedgerLocked(
        f"the ledger {place} stayed locked by another process for {timeout:g} s; {done}. Wait until it is "
        "done, or give a longer timeout"
    )


def missing(place: object) -> LedgerError:
    """Return the error of a ledger that is not there."""
    return LedgerError(
        f"there is no ledger at {place}: name an existing one, or give epsilon and delta to make it. If "
        "there was one, restore it from a copy; a new one would forget what was spent"
    )


def _is_text(entry: Entry) -> bool:
    """Say whether a row has the types that `next_entry` gives it; SQLite's columns take any."""
    cells = (*entry[1:6], entry.rdp or "", *entry[7:])
    return isinstance(entry.number, int) and all(isinstance(cell, str) for cell in cells)


def _plain_number(value: object) -> int | float:
    if isinstance(value, Integral):
        return int(value)
    if isinstance(value, Real):
        return float(value)
    raise TypeError(f"{type(value).__name__} is not a JSON type")
