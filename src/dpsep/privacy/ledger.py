"""The ledger: what has been spent on a data set, written down durably before the first record is read.

A ledger is a *privacy filter* (Rogers, Roth, Ullman and Vadhan 2016): it fixes a budget, a relation, a unit
and a composition rule when it is made, takes each charge in one durable transaction and refuses what does not
fit, so that later runs may depend on earlier results in any way. Nothing is ever given back: a run that fails
after its charge has spent it.

**Privacy**

Assumption: every release from the data is charged here first, each with a guarantee that was fixed before its
run began. Then all of them together, running side by side or one after another, are (E, D)-DP for the
ledger's relation and unit.

- Rule `sum` (default): (epsilon, delta) points add, exactly. Rule `rdp`: Rényi curves add, and delta is
  shared out over the orders beforehand. `ledger_rules` says why each is valid when runs depend on earlier
  results.
- Relation: under zero-out one record becomes one that contributes nothing. Such a record may also be the
  other one under replace-one, so a replace-one guarantee is a zero-out guarantee with the same numbers and
  may enter a zero-out ledger. The reverse needs more than the same numbers and is refused.

Rows hold what a mechanism is (sampling, steps, sigma, records), never data nor a hash of data. `ledger_rows`
chains them, `ledger_file` and `ledger_server` keep them.
"""

import json
import os
import re
from collections.abc import Iterable
from fractions import Fraction
from numbers import Real
from pathlib import Path
from typing import Any, Literal, NamedTuple

from dpsep.privacy import ledger_rules, ledger_server
from dpsep.privacy.ledger_connection import FORM, is_url
from dpsep.privacy.ledger_file import FileStore
from dpsep.privacy.ledger_rows import (
    Entry,
    LedgerDamaged,
    LedgerError,
    LedgerForeign,
    LedgerLocked,
    LedgerUnwritable,
    Store,
    event_json,
)

__all__ = [
    "Ledger",
    "LedgerDamaged",
    "LedgerError",
    "LedgerForeign",
    "LedgerLocked",
    "LedgerUnwritable",
    "OverBudget",
    "Receipt",
    "Row",
    "Spent",
    "as_ledger",
]

CHARGES = ("charge", "extra-step")
MOST_PATIENCE = 86400.0
"""Most seconds that a ledger waits for others."""


class OverBudget(LedgerError):
    """The charge does not fit into what is left; nothing was written and no record may be read."""


class Spent(NamedTuple):
    """An amount of privacy: what was spent, or what is left.

    Examples
    --------
    >>> Spent(epsilon=0.5, delta=1e-6).epsilon
    0.5
    """

    epsilon: float
    delta: float


class Receipt(NamedTuple):
    """Proof of a charge: the ledger it is in, its row and the row's hash.

    Examples
    --------
    >>> import tempfile
    >>> ledger = Ledger(Path(tempfile.mkdtemp()) / "survey.ledger", epsilon=1.0, delta=1e-5)
    >>> receipt = ledger.charge("run-1", epsilon=0.75, delta=1e-6, relation="zero-out", event={"steps": 20})
    >>> receipt.run, receipt.epsilon
    ('run-1', 0.75)
    """

    ledger: str
    number: int
    run: str
    kind: str
    epsilon: float
    delta: float
    hash: str


class Row(NamedTuple):
    """One row of a ledger, in the order in which it was written; `time` is informational.

    Examples
    --------
    >>> import tempfile
    >>> ledger = Ledger(Path(tempfile.mkdtemp()) / "survey.ledger", epsilon=1.0, delta=1e-5)
    >>> receipt = ledger.charge("run-1", epsilon=0.75, delta=1e-6, relation="zero-out", event={"steps": 20})
    >>> [(row.run, row.kind, row.epsilon) for row in ledger.rows()]
    [('', 'create', 1.0), ('run-1', 'charge', 0.75)]
    """

    number: int
    time: str
    run: str
    kind: str
    epsilon: float
    delta: float
    rdp: tuple[float, ...] | None
    relation: str
    unit: str
    event: dict[str, Any]
    previous: str
    hash: str


class Ledger:
    """A privacy budget in a file or on a server, safe for several processes, threads and forks.

    Parameters
    ----------
    path
        The file, or the URL of a ledger on PostgreSQL (`ledger_server` says how it is written). A new one is
        made if `epsilon` and `delta` are given; of an existing one the terms are read.
    epsilon, delta
        The budget. For an existing ledger: None, or what it fixed.
    relation
        `"zero-out"` (a new ledger's default) or `"replace-one"`.
    unit
        Whose privacy is counted: `"record"` (a new ledger's default), or a name for groups of records.
    rule
        `"sum"` (a new ledger's default) or `"rdp"`; see the module.
    create
        False: never make one.
    timeout
        How many seconds to wait while other processes write, or while a server is away.

    Examples
    --------
    >>> import tempfile
    >>> ledger = Ledger(Path(tempfile.mkdtemp()) / "survey.ledger", epsilon=1.0, delta=1e-5)
    >>> receipt = ledger.charge("run-1", epsilon=0.75, delta=1e-6, relation="zero-out", event={"steps": 20})
    >>> ledger.finish("run-1", "finished")
    >>> ledger.remaining()
    Spent(epsilon=0.25, delta=9e-06)
    >>> ledger.charge("run-2", epsilon=0.5, delta=1e-6, relation="zero-out", event={"steps": 20})
    Traceback (most recent call last):
        ...
    dpsep.privacy.ledger.OverBudget: the charge (epsilon 0.5, delta 1e-06) does not fit: ...
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        epsilon: float | None = None,
        delta: float | None = None,
        relation: str | None = None,
        unit: str | None = None,
        rule: str | None = None,
        create: bool = True,
        timeout: float = 30.0,
    ) -> None:
        self._store = store_at(path)
        if not isinstance(timeout, Real) or not 0 < float(timeout) <= MOST_PATIENCE:
            raise LedgerError(f"timeout is {timeout!r}: give seconds, above 0 and at most {MOST_PATIENCE:g}")
        self.timeout: float = float(timeout)
        self.id = ""  # not known until the first row has been read
        if create and epsilon is not None and delta is not None and not self._store.exists(timeout):
            first = ledger_rules.first_row(
                epsilon, delta, relation or "zero-out", unit or "record", rule or "sum"
            )
            self._store.create(timeout, **first)
        self._terms = terms = ledger_rules.read_terms(self._read()[0])
        self.id, self.epsilon, self.delta = terms.ledger, terms.epsilon, terms.delta
        self.relation, self.unit, self.rule = terms.relation, terms.unit, terms.rule
        terms.check_same(epsilon=epsilon, delta=delta, relation=relation, unit=unit, rule=rule)

    def __repr__(self) -> str:
        return f"Ledger({self._store.place!r})"

    @property
    def path(self) -> Any:
        """Where it is: a file's path, or as text a server's URL, without a password."""
        return self._store.path if isinstance(self._store, FileStore) else self._store.place

    def charge(
        self,
        run: str,
        *,
        epsilon: float,
        delta: float,
        relation: str,
        unit: str = "record",
        event: dict[str, Any],
        rdp: Iterable[float] | None = None,
        kind: Literal["charge", "extra-step"] = "charge",
    ) -> Receipt:
        """Take a charge from the budget; on return it is on the disk, and only then may records be read.

        Parameters
        ----------
        run
            The run's name.
        epsilon, delta
            The run's guarantee. Under the rule `rdp` the curve decides and these are what the run reports on
            its own.
        relation, unit
            What the guarantee holds for.
        event
            A description of the mechanism in JSON types: sampling, steps, sigma, records. No data, no hash of
            data.
        rdp
            The Rényi curve on `accounting.RDP_ORDERS`; needed under the rule `rdp`.
        kind
            `"extra-step"` for steps that a resumed run takes again.

        Raises
        ------
        OverBudget
            It does not fit; nothing was written.
        LedgerError
            It is not of the ledger's relation, unit or rule, or it cannot be used.
        """
        ledger_rules.check_name("run", run)
        if kind not in CHARGES:
            raise LedgerError(f"kind is {kind!r}: a charge is one of {', '.join(CHARGES)}")
        self._terms.check_charge(relation, unit)
        content = {
            "run": run,
            "kind": kind,
            "epsilon": ledger_rules.decimal_text("epsilon", epsilon),
            "delta": ledger_rules.decimal_text("delta", delta),
            "rdp": self._terms.curve_text(rdp),
            "relation": relation,
            "unit": unit,
            "event": event_json(event),
        }

        def decide(entries: list[Entry]) -> dict[str, Any]:
            self._check_budget(self._checked(entries), content)
            return content

        entry = self._store.append(self.timeout, decide)
        return Receipt(self.id, entry.number, run, kind, float(epsilon), float(delta), entry.hash)

    def finish(self, run: str, status: Literal["finished", "failed"]) -> None:
        """Note how a run ended, in a row of its own; what it was charged stays spent."""
        if status not in ("finished", "failed"):
            raise LedgerError(f"status is {status!r}: a run ends as 'finished' or 'failed'")
        self._note(run, status, {})

    def begin_release(self, run: str, number: int) -> None:
        """Note, durably, that a run that can be resumed begins its release of this number.

        What was charged covers it. Each number is granted once, in one transaction: two copies of a run, one
        of them still alive, make no more releases together than the run was charged for.
        """
        self._note(run, "release", {"number": number})

    def _note(self, run: str, kind: str, event: dict[str, Any]) -> None:
        content = {"run": run, "kind": kind, "epsilon": "0.0", "delta": "0.0", "rdp": None}
        content |= {"relation": self.relation, "unit": self.unit, "event": event_json(event)}

        def decide(entries: list[Entry]) -> dict[str, Any]:
            self._checked(entries)
            if not any(entry.run == run and entry.kind in CHARGES for entry in entries):
                raise LedgerError(
                    f"the ledger {self.path} has no charge of run {run!r}: charge it before it ends"
                )
            noted = [json.loads(entry.event) for entry in entries if entry.run == run and entry.kind == kind]
            if kind == "release" and any(int(one["number"]) >= event["number"] for one in noted):
                raise LedgerError(
                    f"another copy of run {run!r} has begun release {event['number']} or a later one: this "
                    "one is out of date and makes no release. Go on with the other, or start anew"
                )
            return content

        self._store.append(self.timeout, decide)

    def spent(self) -> Spent:
        """Return what has been spent, rounded up; under the rule `rdp`, epsilon at the ledger's own delta."""
        epsilon, delta = self._total(self._read())
        return Spent(ledger_rules.safe_float(epsilon, up=True), ledger_rules.safe_float(delta, up=True))

    def remaining(self) -> Spent:
        """Return what is left, rounded down; under the rule `rdp` runs share delta and never use it up."""
        epsilon, delta = self._total(self._read())
        budget = ledger_rules.exact(self.delta)
        left = ledger_rules.exact(self.epsilon) - epsilon
        return Spent(
            ledger_rules.safe_float(left, up=False),
            ledger_rules.safe_float(budget if self.rule == "rdp" else budget - delta, up=False),
        )

    def rows(self) -> tuple[Row, ...]:
        """Return every row, the creation first."""
        return tuple(_row(entry) for entry in self._read())

    def verify(self, *receipts: Receipt) -> int:
        """Recompute the whole chain and return the number of rows; raise `LedgerDamaged` at the first fault.

        Given receipts, also check that their rows are there: this finds a ledger that was set back to an
        old copy of itself.
        """
        entries = self._read()
        for receipt in receipts:
            there = receipt.number <= len(entries) and entries[receipt.number - 1].hash == receipt.hash
            if receipt.ledger != self.id or not there:
                raise LedgerDamaged(
                    f"the ledger {self.path} does not hold the charge of run {receipt.run!r} (row "
                    f"{receipt.number}): it is another ledger or an old copy. Restore the one that was "
                    "charged"
                )
        return len(entries)

    def _read(self) -> list[Entry]:
        return self._checked(self._store.read(self.timeout))

    def _checked(self, entries: list[Entry]) -> list[Entry]:
        unsound = ledger_rules.unsound_row(entries)
        if unsound is not None:
            raise LedgerDamaged(
                f"the ledger {self.path} is damaged: row {unsound} holds what no ledger writes. It will not "
                "be used, since what was spent is no longer certain; restore it from a copy that holds every "
                "charge"
            )
        found = json.loads(entries[0].event)["ledger"]
        if self.id and found != self.id:
            raise LedgerDamaged(
                f"{self.path} now holds another ledger ({found}, it was {self.id}): put the first one back"
            )
        return entries

    def _total(self, entries: list[Entry], *new: ledger_rules.Charge) -> tuple[Fraction, Fraction]:
        charges = [(entry.epsilon, entry.delta, entry.rdp) for entry in entries if entry.kind in CHARGES]
        return self._terms.total([*charges, *new])

    def _check_budget(self, entries: list[Entry], new: dict[str, Any]) -> None:
        epsilon, delta = self._total(entries, (new["epsilon"], new["delta"], new["rdp"]))
        if epsilon <= ledger_rules.exact(self.epsilon) and delta <= ledger_rules.exact(self.delta):
            return
        spent, spent_delta = (float(part) for part in self._total(entries))
        asked = f"epsilon {float(new['epsilon']):.6g}, delta {float(new['delta']):.6g}"
        raise OverBudget(
            f"the charge ({asked}) does not fit: {self.path} allows "
            f"epsilon {self.epsilon:g} and delta {self.delta:g} in all, {spent:g} and {spent_delta:g} are "
            f"spent by the rule '{self.rule}'. No record was read. Ask for less, or do without this run: a "
            "budget cannot be raised."
        )


def as_ledger(target: str | os.PathLike[str] | Ledger | None) -> Ledger | None:
    """Return a ledger for the path or URL of an existing one, a ledger as it is, and None for None.

    Examples
    --------
    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "survey.ledger"
    >>> made = Ledger(path, epsilon=1.0, delta=1e-5)
    >>> as_ledger(path).remaining()
    Spent(epsilon=1.0, delta=1e-05)
    >>> as_ledger(made) is made, as_ledger(None)
    (True, None)
    """
    return target if target is None or isinstance(target, Ledger) else Ledger(target)


def store_at(path: str | os.PathLike[str]) -> Store:
    """Return where the rows of a ledger are, by its path or URL, whether it exists or not."""
    text = os.fspath(path)
    if isinstance(path, str) and is_url(text):
        return ledger_server.open_store(text)
    scheme = re.match(r"([A-Za-z][A-Za-z0-9+.-]+):/", text)
    if scheme:  # the rest of a URL may hold a password
        raise LedgerError(
            f"a ledger at a {scheme[1]} URL is not supported: give a file's path, or as text (no Path) a URL "
            f"such as {FORM}"
        )
    return FileStore(Path(text).resolve())


def _row(entry: Entry) -> Row:
    curve = None if entry.rdp is None else tuple(float(value) for value in json.loads(entry.rdp))
    return Row(
        *entry[:4],
        float(entry.epsilon),
        float(entry.delta),
        curve,
        entry.relation,
        entry.unit,
        json.loads(entry.event),
        entry.previous,
        entry.hash,
    )
