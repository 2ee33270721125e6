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
import warnings
from collections.abc import Iterable
from fractions import Fraction
from numbers import Real
from pathlib import Path
from typing import Any, Literal, NamedTuple, Self

from dpsep.privacy import ledger_rules
from dpsep.privacy.ledger_connection import FORM, is_url, read_url
from dpsep.privacy.ledger_file import FileStore
from dpsep.privacy.ledger_rows import (
    CHARGES,
    Entry,
    LedgerDamaged,
    LedgerError,
    LedgerForeign,
    LedgerLocked,
    LedgerUnwritable,
    Store,
    damaged,
    event_json,
)
from dpsep.privacy.ledger_server import ServerStore
from dpsep.privacy.shown import down, up

__all__ = [
    "Ledger",
    "LedgerDamaged",
    "LedgerError",
    "LedgerForeign",
    "LedgerLocked",
    "LedgerUnwritable",
    "NewLedgerWarning",
    "OverBudget",
    "Receipt",
    "Row",
    "Spent",
    "as_ledger",
]

MOST_PATIENCE = 86400.0
"""Most seconds that a ledger waits for others."""


class OverBudget(LedgerError):
    """The charge does not fit into what is left; nothing was written and no record may be read."""


class NewLedgerWarning(UserWarning):
    """A ledger was not there and a new, empty budget was made in its place.

    Examples
    --------
    >>> import tempfile, warnings
    >>> with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings(record=True) as caught:
    ...     warnings.simplefilter("always")
    ...     ledger = Ledger(f"{folder}/study.db", epsilon=3.0, delta=1e-5)
    >>> caught[0].category.__name__
    'NewLedgerWarning'
    """


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
    >>> ledger = Ledger.create(Path(tempfile.mkdtemp()) / "survey.ledger", epsilon=1.0, delta=1e-5)
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
    >>> ledger = Ledger.create(Path(tempfile.mkdtemp()) / "survey.ledger", epsilon=1.0, delta=1e-5)
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

    `Ledger.create` makes one, once for a data set; `Ledger.open` opens it from then on. This constructor does
    either, by whether the file is there, and warns where it makes a new one: started in another folder, a
    script would have a second, empty budget.

    Parameters
    ----------
    path
        The file, or the URL of a ledger on PostgreSQL (`ledger_server` says how it is written).
    epsilon, delta
        The budget of a new ledger. For an existing one: None, or what it fixed.
    relation
        `"zero-out"` (a new ledger's default) or `"replace-one"`.
    unit
        Whose privacy is counted: `"record"` (a new ledger's default), or a name for groups of records.
    rule
        `"sum"` (a new ledger's default) or `"rdp"`; see the module.
    create
        False: never make one.
    strict
        Whether a ledger that is missing is an error, and none is made.
    timeout
        How many seconds to wait while other processes write, or while a server is away.

    Examples
    --------
    >>> import tempfile
    >>> ledger = Ledger.create(Path(tempfile.mkdtemp()) / "survey.ledger", epsilon=1.0, delta=1e-5)
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
        strict: bool = False,
        timeout: float = 30.0,
    ) -> None:
        self._store = store_at(path)
        self.timeout: float = _patience(timeout)
        self.id = ""  # not known until the first row has been read
        if create and epsilon is not None and delta is not None and not self._store.exists(timeout):
            told = (
                f"there is no ledger at {self._store.place}. If the data set has one, open it by its full "
                "path: what was spent is written there"
            )
            if strict:
                raise LedgerError(f"{told}; for a new data set, make one with Ledger.create")
            _make(self._store, self.timeout, epsilon, delta, relation, unit, rule)
            budget = f"epsilon {down(epsilon, 6)} and delta {down(delta, 6)}"
            warnings.warn(
                f"{told}. A new, empty one was made, with {budget}. Ledger.create does so without a warning, "
                "and Ledger.open never does",
                NewLedgerWarning,
                stacklevel=2,
            )
        self._terms = terms = ledger_rules.read_terms(self._read()[0])
        self.id, self.epsilon, self.delta = terms.ledger, terms.epsilon, terms.delta
        self.relation, self.unit, self.rule = terms.relation, terms.unit, terms.rule
        terms.check_same(epsilon=epsilon, delta=delta, relation=relation, unit=unit, rule=rule)

    @classmethod
    def create(
        cls,
        path: str | os.PathLike[str],
        *,
        epsilon: float,
        delta: float,
        relation: str = "zero-out",
        unit: str = "record",
        rule: str = "sum",
        timeout: float = 30.0,
    ) -> Self:
        """Make a ledger, once for a data set; one that exists is an error and is left as it is.

        Parameters
        ----------
        path, epsilon, delta, relation, unit, rule, timeout
            As of the class.

        Examples
        --------
        >>> import tempfile
        >>> path = Path(tempfile.mkdtemp()) / "survey.ledger"
        >>> Ledger.create(path, epsilon=1.0, delta=1e-5).epsilon, Ledger.open(path).remaining().epsilon
        (1.0, 1.0)
        """
        store = store_at(path)
        if store.exists(_patience(timeout)):
            raise LedgerError(
                f"{store.place} exists already and is left as it is; open it with Ledger.open, or name "
                "another"
            )
        _make(store, float(timeout), epsilon, delta, relation, unit, rule)
        terms: dict[str, Any] = {"relation": relation, "unit": unit, "rule": rule}
        return cls(path, epsilon=epsilon, delta=delta, create=False, timeout=timeout, **terms)

    @classmethod
    def open(cls, path: str | os.PathLike[str], *, timeout: float = 30.0) -> Self:
        """Open a ledger that exists; one that does not is an error, and none is made.

        Parameters
        ----------
        path, timeout
            As of the class.
        """
        store = store_at(path)
        if not store.exists(_patience(timeout)):
            raise LedgerError(
                f"there is no ledger at {store.place}. Give its full path; or make one, once for a data set, "
                "with Ledger.create"
            )
        return cls(path, create=False, timeout=timeout)

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

        A number is granted beyond all that were noted before, in one transaction: two copies of a run, one of
        them still alive, make no more releases together than the run was charged for.
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
                    f"another copy of run {run!r} has begun this release or a later one: this "
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
            raise damaged(self.path, f"row {unsound} holds what no ledger writes")
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
        asked = f"epsilon {up(float(new['epsilon']), 6)}, delta {up(float(new['delta']), 6)}"
        raise OverBudget(
            f"the charge ({asked}) does not fit: {self.path} allows "
            f"epsilon {down(self.epsilon, 6)} and delta {down(self.delta, 6)} in all, {up(spent, 6)} and "
            f"{up(spent_delta, 6)} are "
            f"spent by the rule '{self.rule}'. No record was read. Ask for less, or do without this run: a "
            "budget cannot be raised."
        )


def _patience(timeout: float) -> float:
    if not isinstance(timeout, Real) or not 0 < float(timeout) <= MOST_PATIENCE:
        raise LedgerError(f"timeout is {timeout!r}: give seconds, above 0 and at most {MOST_PATIENCE:g}")
    return float(timeout)


def _make(
    store: Store,
    timeout: float,
    epsilon: float,
    delta: float,
    relation: str | None,
    unit: str | None,
    rule: str | None,
) -> None:
    first = ledger_rules.first_row(epsilon, delta, relation or "zero-out", unit or "record", rule or "sum")
    store.create(timeout, **first)


def as_ledger(target: str | os.PathLike[str] | Ledger | None) -> Ledger | None:
    """Return a ledger for the path or URL of an existing one, a ledger as it is, and None for None.

    Examples
    --------
    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "survey.ledger"
    >>> made = Ledger.create(path, epsilon=1.0, delta=1e-5)
    >>> as_ledger(path).remaining()
    Spent(epsilon=1.0, delta=1e-05)
    >>> as_ledger(made) is made, as_ledger(None)
    (True, None)
    """
    return target if target is None or isinstance(target, Ledger) else Ledger(target)


def store_at(path: str | os.PathLike[str]) -> Store:
    """Return where the rows of a ledger are, by its path or URL; nothing is opened or contacted yet."""
    text = os.fspath(path)
    if isinstance(path, str) and is_url(text):
        return ServerStore(*read_url(text))
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
