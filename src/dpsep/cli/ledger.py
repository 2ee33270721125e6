"""The ledger's commands: make one, show what is spent and left, check its chain."""

from typing import Any

from dpsep.cli.errors import CallError
from dpsep.cli.screen import print_json, print_table, say
from dpsep.privacy.shown import down, up

__all__ = ["create", "open_ledger", "show", "shown", "verify"]


def shown(path: str) -> str:
    """Return a path as it was given, and a URL without its password."""
    from dpsep.privacy.ledger import store_at
    from dpsep.privacy.ledger_connection import is_url

    return store_at(path).place if is_url(path) else path


def open_ledger(path: str, wait: float = 30.0) -> Any:
    """Return an existing ledger, or say how to make one."""
    from dpsep.privacy.ledger import Ledger, store_at

    if not store_at(path).exists(wait):
        raise CallError(
            f"there is no ledger at {shown(path)}. Make one, once for a data set: "
            f"dpsep ledger create {shown(path)} --epsilon E --delta D"
        )
    return Ledger(path, create=False, timeout=wait)


def create(
    path: str, epsilon: float, delta: float, relation: str, rule: str, unit: str, *, as_json: bool
) -> None:
    """Make a ledger; one that exists is never touched."""
    from dpsep.privacy.ledger import Ledger, store_at

    name = shown(path)
    if store_at(path).exists(30.0):
        raise CallError(
            f"{name} exists already and is left as it is; 'dpsep ledger show {name}' looks at it."
        )
    made = Ledger.create(path, epsilon=epsilon, delta=delta, relation=relation, unit=unit, rule=rule)
    if as_json:
        print_json(_document(made))
        return
    say(f"Made the ledger {name}: epsilon {down(made.epsilon)} and delta {down(made.delta)} in all, for each")
    say(f"{made.unit}, relation {made.relation}, rule {made.rule}. These terms are fixed. Keep the ledger as")
    say("long as the data and never set it back to an old copy: what was spent would be spent again.")
    say(f"Charge a fit to it: dpsep fit ... --ledger {name}")


def show(path: str, *, as_json: bool) -> None:
    """Print what a ledger allows, what is spent and left, and every row."""
    ledger = open_ledger(path)
    document = _document(ledger)
    if as_json:
        print_json(document)
        return
    spent, left = document["spent"], document["left"]
    say(f"Ledger {shown(path)} ({ledger.id})")
    say(f"  for each {ledger.unit}, relation {ledger.relation}, rule {ledger.rule}")
    say(f"  allowed  epsilon {down(ledger.epsilon):<10} delta {down(ledger.delta)}")
    say(f"  spent    epsilon {up(spent['epsilon']):<10} delta {up(spent['delta'])}")
    say(f"  left     epsilon {down(left['epsilon']):<10} delta {down(left['delta'])}")
    rows = [
        (
            str(row["number"]),
            row["time"],
            row["kind"],
            row["run"][:12],
            up(row["epsilon"]) if row["epsilon"] else "",
            up(row["delta"]) if row["delta"] else "",
            str(row["event"].get("purpose", "")),
        )
        for row in document["rows"]
        if row["kind"] not in ("create", "release")
    ]
    if rows:
        print_table("Rows", ("row", "time", "kind", "run", "epsilon", "delta", "what"), rows)
    say(f"The chain of {len(document['rows'])} rows is whole.")


def verify(path: str, *, as_json: bool) -> None:
    """Recompute a ledger's chain of hashes; a fault is an error."""
    count = open_ledger(path).verify()
    if as_json:
        print_json({"path": shown(path), "rows": count, "verified": True})
    else:
        say(f"{shown(path)} is whole: {count} rows, each in its place and unchanged.")


def _document(ledger: Any) -> dict[str, Any]:
    rows = [row._asdict() for row in ledger.rows()]
    return {
        "path": str(ledger.path),
        "id": ledger.id,
        "epsilon": ledger.epsilon,
        "delta": ledger.delta,
        "relation": ledger.relation,
        "unit": ledger.unit,
        "rule": ledger.rule,
        "spent": ledger.spent()._asdict(),
        "left": ledger.remaining()._asdict(),
        "verified": ledger.verify() == len(rows),
        "rows": rows,
    }
