"""The terms of a ledger, fixed when it is made, and its two composition rules.

`add_points` is the rule `sum`, `add_curves` the rule `rdp`; both return what has been spent as exact
rationals. Amounts are decimal text: a charge of 0.1 means one tenth, not the binary number nearest to it, so
that ten of them fill a budget of 1.0 exactly.

**Privacy**

Both rules are filters: charges may be chosen in the light of earlier results, for any relation, as long as
each charge's own guarantee was fixed before its run began. They may also run side by side (Haney et al. 2023,
arXiv 2309.05901).

- `sum`: basic composition of (epsilon, delta) points holds for adaptively chosen parameters (Rogers, Roth,
  Ullman and Vadhan 2016).
- `rdp`: for *one* order fixed beforehand the sum of Rényi divergences is a filter (Feldman and Zrnic 2021,
  arXiv 2008.11193). To take the best of several orders *afterwards* is not: which is best may depend on the
  results, and the true delta can exceed the budget D (a test has two orders and a two-outcome release where
  it does). So D is shared out over the orders beforehand, D = sum_a w_a D: half to the order that is best for
  Gaussian noise, the rest evenly; a charge fits if some order a stays within E at delta w_a D. Proof: let p,
  q be the laws of everything released on two neighbours, and p_a, q_a those of the same play halted before
  the first charge that takes order a out of its share. Each transcript z has an order a(z) still within its
  share, where p(z) = p_a(z) and q(z) = q_a(z); hence integral (p - e^E q)_+ <= sum_a integral (p_a - e^E
  q_a)_+ <= sum_a w_a D = D. The first charge of a ledger was chosen before anything was released; alone it
  may use all of D at every order. Curves are summed with one rounding (`math.fsum`) and converted in double
  precision, a relative error of about 1e-15.
"""

import json
import math
import secrets
import sys
from collections.abc import Iterable, Sequence
from decimal import Decimal
from fractions import Fraction
from numbers import Real
from typing import Any, NamedTuple

from dpsep.privacy.ledger_rows import CHARGES, Entry, LedgerError, canonical_json, event_json

RELATIONS = ("zero-out", "replace-one")
RULES = ("sum", "rdp")
Charge = tuple[str, str, str | None]  # epsilon, delta and Rényi curve, as a row stores them


class Terms(NamedTuple):
    """What a ledger fixed when it was made."""

    ledger: str
    epsilon: float
    delta: float
    relation: str
    unit: str
    rule: str
    orders: tuple[float, ...]
    main_order: float | None

    def check_same(self, **given: float | str | None) -> None:
        """Refuse terms that differ from these; None agrees with everything."""
        for name, value in given.items():
            fixed = getattr(self, name)
            if value is not None and value != fixed:
                raise LedgerError(
                    f"the ledger has {name} {fixed!r} and {value!r} was given: a ledger's terms are fixed "
                    f"when it is made. Leave {name} out, or make another ledger (the same data would then "
                    "have two budgets)"
                )

    def check_charge(self, relation: str, unit: str) -> None:
        """Refuse a charge of another unit, or one whose relation does not imply the ledger's."""
        if relation not in RELATIONS:
            raise LedgerError(f"relation is {relation!r}: allowed are {', '.join(RELATIONS)}")
        if relation == "zero-out" and self.relation == "replace-one":
            raise LedgerError(
                "the ledger counts replace-one neighbours and the charge holds for zero-out only, which is "
                "weaker: account the run under replace-one. (A replace-one charge may enter a zero-out "
                "ledger, never the reverse)"
            )
        if unit != self.unit:
            raise LedgerError(
                f"the ledger counts the unit {self.unit!r} and the charge counts {unit!r}: account the run "
                f"for {self.unit!r}, or use a ledger for {unit!r}"
            )

    def curve_text(self, rdp: Iterable[float] | None) -> str | None:
        """Return a Rényi curve as it is stored, or refuse one that does not suit the ledger's orders."""
        if rdp is None:
            if self.rule == "rdp":
                raise LedgerError("the ledger adds Rényi curves: give the run's curve as rdp=")
            return None
        curve = [float(value) for value in rdp]
        if any(math.isnan(value) or value < 0 for value in curve):
            raise LedgerError("the Rényi curve has negative or undefined values: give values of at least 0")
        if self.rule == "rdp" and (len(curve) != len(self.orders) or rdp_orders() != self.orders):
            raise LedgerError(
                f"the ledger was made for a grid of {len(self.orders)} Rényi orders and this curve has "
                f"{len(curve)}, or is on another grid: compute it on accounting.RDP_ORDERS with the version "
                "of dpsep that made the ledger"
            )
        return canonical_json([repr(value) for value in curve])  # text, for JSON has no infinity

    def total(self, charges: Sequence[Charge]) -> tuple[Fraction, Fraction]:
        """Add charges by the ledger's rule and return epsilon and delta spent."""
        if self.rule == "sum" or self.main_order is None:
            return add_points((epsilon, delta) for epsilon, delta, _ in charges)
        curves = [[float(value) for value in json.loads(curve or "[]")] for _, _, curve in charges]
        return add_curves(curves, self.orders, self.main_order, self.delta)


def first_row(epsilon: float, delta: float, relation: str, unit: str, rule: str) -> dict[str, Any]:
    """Return the content of a new ledger's first row, once its terms have been checked."""
    if relation not in RELATIONS or rule not in RULES:
        raise LedgerError(
            f"relation {relation!r} and rule {rule!r}: allowed are {', '.join(RELATIONS)} for the relation, "
            f"{', '.join(RULES)} for the rule"
        )
    check_name("unit", unit)
    row = {"run": "", "kind": "create", "rdp": None, "relation": relation, "unit": unit}
    row |= {"epsilon": decimal_text("epsilon", epsilon), "delta": decimal_text("delta", delta)}
    if epsilon <= 0 or delta >= 1 or (rule == "rdp" and delta <= 0):
        raise LedgerError(
            f"a budget of epsilon {epsilon} and delta {delta} under the rule '{rule}' says nothing: epsilon "
            "must be above 0 and delta below 1, and above 0 for the rule 'rdp'"
        )
    terms: dict[str, Any] = {"ledger": secrets.token_hex(16), "rule": rule}
    if rule == "rdp":
        orders = rdp_orders()
        terms |= {"orders": list(orders), "main_order": main_order(orders, float(epsilon), float(delta))}
    return row | {"event": event_json(terms)}


def read_terms(first: Entry) -> Terms:
    """Return the terms that a ledger's first row holds."""
    event = json.loads(first.event)
    return Terms(
        event["ledger"],
        float(first.epsilon),
        float(first.delta),
        first.relation,
        first.unit,
        event["rule"],
        tuple(event.get("orders", ())),
        event.get("main_order"),
    )


def unsound_row(entries: Sequence[Entry]) -> int | None:
    """Return the number of the first row that holds what no ledger writes, None where all are sound.

    A hash guards against changes and can be made to fit any content; nothing is added up before this look.
    """
    try:
        terms = read_terms(entries[0])
        sound = (
            terms.rule in RULES and isinstance(terms.ledger, str) and terms.epsilon > 0 and terms.delta < 1
        )
        if terms.rule == "rdp":
            sound &= terms.delta > 0 and terms.main_order in terms.orders
            sound &= all(isinstance(order, float) and order > 0 for order in terms.orders)
    except (TypeError, ValueError, KeyError, OverflowError, RecursionError):
        return 1
    for entry in entries:
        if not (sound and _is_sound(entry, terms)):
            return entry.number
    return None


def _is_sound(entry: Entry, terms: Terms) -> bool:
    try:
        event = json.loads(entry.event)
        curve = None if entry.rdp is None else [float(value) for value in json.loads(entry.rdp)]
        amounts = (float(entry.epsilon), float(entry.delta))
    except (TypeError, ValueError, OverflowError, RecursionError):
        return False
    written = all(math.isfinite(amount) and amount >= 0 for amount in amounts)
    written &= (repr(amounts[0]), repr(amounts[1])) == (entry.epsilon, entry.delta)
    if terms.rule == "rdp" and entry.kind in CHARGES:
        written &= curve is not None and len(curve) == len(terms.orders)
    numbered = entry.kind != "release" or (isinstance(event, dict) and type(event.get("number")) is int)
    known = entry.relation in RELATIONS and isinstance(event, dict) and numbered
    return written and known and all(value >= 0 for value in curve or ())


def check_name(what: str, name: str) -> None:
    """Refuse a name that is not text or is empty."""
    if not isinstance(name, str) or not name:
        raise LedgerError(f"{what} is {name!r}: give a name, as text that is not empty")


def decimal_text(name: str, value: float) -> str:
    """Return an amount as the decimal text that stands for it in every sum.

    Examples
    --------
    >>> decimal_text("epsilon", 0.1)
    '0.1'
    """
    number = float(value) if isinstance(value, Real | Decimal) and not isinstance(value, bool) else math.nan
    if not math.isfinite(number) or number < 0:
        raise LedgerError(f"{name} is {value!r}: give a finite number of at least 0")
    return repr(number)


def exact(value: float) -> Fraction:
    """Return the decimal number that Python prints for a float, as a fraction."""
    return Fraction(repr(float(value)))


def safe_float(value: Fraction, *, up: bool) -> float:
    """Round to a float whose decimal text lies on the asked side of the exact value, or on it."""
    try:
        nearest = float(value)
    except OverflowError:
        most = sys.float_info.max
        return (math.inf if up else most) if value > 0 else (-most if up else -math.inf)
    wrong = exact(nearest) < value if up else exact(nearest) > value
    return math.nextafter(nearest, math.inf if up else -math.inf) if wrong else nearest


def add_points(points: Iterable[tuple[str, str]]) -> tuple[Fraction, Fraction]:
    """Add (epsilon, delta) points given as decimal text, exactly.

    Examples
    --------
    >>> add_points([("0.1", "1e-06")] * 10)
    (Fraction(1, 1), Fraction(1, 100000))
    """
    epsilon, delta = Fraction(), Fraction()
    for point in points:
        epsilon += Fraction(point[0])
        delta += Fraction(point[1])
    return epsilon, delta


def rdp_orders() -> tuple[float, ...]:
    """Return the public grid of orders on which every curve is computed."""
    from dpsep.privacy.accounting import RDP_ORDERS  # only this rule needs the accountant

    return tuple(float(order) for order in RDP_ORDERS)


def main_order(orders: Sequence[float], epsilon: float, delta: float) -> float:
    """Return the order to which a new ledger gives half of its delta.

    It leaves most room for Gaussian noise, whose curve is proportional to the order.
    """
    return max(orders, key=lambda order: (epsilon - order_epsilon(order, 0.0, delta / 2)) / order)


def add_curves(
    curves: Sequence[Sequence[float]], orders: Sequence[float], main: float, delta: float
) -> tuple[Fraction, Fraction]:
    """Add Rényi curves and return the epsilon they imply at the ledger's delta; see the Privacy section.

    Parameters
    ----------
    curves
        One curve a charge, each with one value an order.
    orders, main
        The ledger's grid and the order with half of the delta.
    delta
        The ledger's delta.
    """
    from dpsep.privacy.accounting import rdp_to_epsilon

    if not curves:
        return Fraction(), Fraction()
    total = [math.fsum(values) for values in zip(*curves, strict=True)]
    if len(curves) == 1:
        epsilon = float(rdp_to_epsilon(tuple(total), delta))
    else:
        other = delta / 2 / max(len(orders) - 1, 1)
        shares = [delta / 2 if order == main else other for order in orders]
        epsilon = max(0.0, min(map(order_epsilon, orders, total, shares)))
    return exact(min(epsilon, sys.float_info.max)), exact(delta)


def order_epsilon(order: float, divergence: float, delta: float) -> float:
    """Convert one order's divergence to epsilon at a delta.

    Canonne, Kamath and Steinke 2020 (arXiv 2004.00010), proposition 12; below 0 it means 0.
    """
    if order <= 1.01:  # the bound is unstable and useless there
        return math.inf
    return divergence + math.log1p(-1 / order) - math.log(delta * order) / (order - 1)
