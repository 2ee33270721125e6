"""What a report shows besides the run's folder, where it is asked for: a ledger's rows and an audit's."""

from pathlib import Path
from typing import Any

from dpsep.privacy.ledger import Ledger, LedgerError, store_at
from dpsep.report.page.contents import Value
from dpsep.report.page.files import Absent, read_json, read_plain

__all__ = ["read_audit", "read_ledger"]


def read_ledger(ledger: Any) -> Value | Absent:
    """Return a ledger's terms, sums and rows after its chain was checked; nothing is written to it."""
    try:
        if not isinstance(ledger, Ledger):
            if not store_at(ledger).exists(30.0):
                return Absent("There is no ledger at the place that was named.")
            ledger = Ledger(ledger, create=False)
        rows = ledger.rows()
        return {
            "id": ledger.id,
            "epsilon": ledger.epsilon,
            "delta": ledger.delta,
            "relation": ledger.relation,
            "unit": ledger.unit,
            "rule": ledger.rule,
            "spent": ledger.spent()._asdict(),
            "left": ledger.remaining()._asdict(),
            "count": ledger.verify(),
            "rows": [row._asdict() | {"purpose": row.event.get("purpose", "")} for row in rows],
        }
    except (LedgerError, OSError) as error:
        return Absent(f"It cannot be used ({type(error).__name__}); 'dpsep ledger verify' says more.")


def read_audit(path: Path) -> list[Value] | Absent:
    """Return an audit's rows."""
    rows = read_json(read_plain(path), "The audit's file")
    if isinstance(rows, Absent):
        return rows
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        return Absent("The file holds no list of rows, as 'dpsep audit --json' writes it.")
    return rows
