import contextlib
import math
import sys
import types
from fractions import Fraction
from pathlib import Path
from typing import Any

import mpmath
import numpy as np
import pytest
from dp_accounting.rdp import compute_epsilon
from scipy.stats import norm

from dpsep.privacy import ledger_rules
from dpsep.privacy.ledger import (
    Ledger,
    LedgerError,
    OverBudget,
    Spent,
)

from .ledger_help import charge


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "survey.ledger"


@pytest.fixture
def orders(monkeypatch: pytest.MonkeyPatch) -> tuple[float, ...]:
    """A grid of two orders, with dp-accounting's conversion, in the place of the accounting module."""
    grid = (3.0, 12.0)
    fake = types.ModuleType("dpsep.privacy.accounting")
    fake.__dict__["RDP_ORDERS"] = grid
    fake.__dict__["rdp_to_epsilon"] = lambda curve, delta: compute_epsilon(grid, curve, delta)[0]
    monkeypatch.setitem(sys.modules, "dpsep.privacy.accounting", fake)
    return grid


def renyi(order: float, first: Any, second: Any) -> float:
    """The larger of the two Rényi divergences between two laws on finitely many outcomes."""
    pairs = ((first, second), (second, first))
    sums = [sum(p * (p / q) ** (order - 1) for p, q in zip(*pair, strict=True)) for pair in pairs]
    return max(math.log(value) / (order - 1) for value in sums)


def test_the_first_charge_may_use_the_whole_delta_at_every_order(
    path: Path, orders: tuple[float, ...]
) -> None:
    curve = (0.3, 1.2)
    alone = compute_epsilon(orders, curve, 1e-3)[0]
    ledger = Ledger.create(path, epsilon=alone, delta=1e-3, rule="rdp")
    with pytest.raises(OverBudget):
        charge(ledger, rdp=(0.3, 1.3))
    charge(ledger, rdp=curve)
    assert ledger.spent() == Spent(alone, 1e-3)
    assert ledger.remaining() == Spent(0.0, 1e-3)
    with pytest.raises(OverBudget):
        charge(ledger, rdp=(0.0, 0.0))


def test_curves_add_and_delta_is_shared_between_the_orders(path: Path, orders: tuple[float, ...]) -> None:
    ledger = Ledger.create(path, epsilon=4.0, delta=1e-3, rule="rdp")
    charge(ledger, rdp=(0.1, 0.5))
    charge(ledger, rdp=(0.2, 1.0))
    expected = min(
        compute_epsilon([order], [value], 5e-4)[0]
        for order, value in zip(orders, (0.3, 1.5), strict=True)  # two orders: half of delta to each
    )
    assert ledger.spent().epsilon == pytest.approx(expected, rel=1e-12)
    room = 4.0 - expected
    with pytest.raises(OverBudget):
        charge(ledger, rdp=(9.0, room * (1 + 1e-9)))
    charge(ledger, rdp=(math.inf, room * (1 - 1e-9)))
    assert ledger.remaining().epsilon == pytest.approx(0.0, abs=1e-8)
    assert Ledger(path).spent() == ledger.spent()


def test_choosing_the_best_order_afterwards_would_break_delta_and_is_refused(
    path: Path, orders: tuple[float, ...]
) -> None:
    # One binary release; its outcome decides which binary release comes next. Each branch fits (4, 1e-3) at
    # one of the two orders when all of delta is used there, and yet the whole has a delta of 1.75e-3.
    epsilon, delta = 4.0, 1e-3
    rare, common = 0.03, 0.97
    first = ((common, rare), (1 - rare * math.exp(-1.0), rare * math.exp(-1.0)))
    branches = []
    for hit, loss in ((0.0026, 4.37), (0.42, 3.08)):
        branches.append(((hit, 1 - hit), (hit * math.exp(-loss), 1 - hit * math.exp(-loss))))
    curves = [tuple(renyi(order, *law) for order in orders) for law in (first, *branches)]
    for branch in (1, 2):
        total = [a + b for a, b in zip(curves[0], curves[branch], strict=True)]
        assert compute_epsilon(orders, total, delta)[0] <= epsilon
    true_delta = sum(
        max(0.0, p1 * p2 - math.exp(epsilon) * q1 * q2)
        for p1, q1, (p, q) in zip(*first, branches, strict=True)
        for p2, q2 in zip(p, q, strict=True)
    )
    assert true_delta > 1.7 * delta
    ledger = Ledger.create(path, epsilon=epsilon, delta=delta, rule="rdp")
    charge(ledger, rdp=curves[0])
    refused = 0
    for branch in (1, 2):
        copied = path.with_name(f"branch{branch}")
        copied.write_bytes(path.read_bytes())
        try:
            charge(Ledger(copied), rdp=curves[branch])
        except OverBudget:
            refused += 1
    assert refused >= 1


def test_a_curve_is_needed_and_must_be_on_the_ledgers_grid(
    path: Path, orders: tuple[float, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = Ledger.create(path, epsilon=4.0, delta=1e-3, rule="rdp")
    for rdp in (None, (0.1,), (0.1, math.nan)):
        with pytest.raises(LedgerError):
            charge(ledger, rdp=rdp)
    monkeypatch.setattr(sys.modules["dpsep.privacy.accounting"], "RDP_ORDERS", (3.0, 13.0))
    with pytest.raises(LedgerError, match="another grid"):
        charge(ledger, rdp=(0.1, 0.1))


def test_many_gaussian_runs_cost_what_they_should(path: Path) -> None:
    # A full-batch Gaussian run of mu has the curve order mu^2 / 2; here mu = 0.05.
    from dpsep.privacy.accounting import RDP_ORDERS

    ledger = Ledger.create(path, epsilon=1.0, delta=1e-5, rule="rdp")
    curve = np.array([order * 0.05**2 / 2 for order in RDP_ORDERS])
    runs = 0
    with contextlib.suppress(OverBudget):
        while True:
            charge(ledger, 0.2, 1e-5, f"r{runs}", rdp=curve)
            runs += 1
    free = [compute_epsilon(RDP_ORDERS, list(curve * n), 1e-5)[0] <= 1.0 for n in range(1, 100)].index(False)
    half = [compute_epsilon(RDP_ORDERS, list(curve * n), 5e-6)[0] <= 1.0 for n in range(1, 100)].index(False)
    assert half <= runs <= free
    assert runs > 5  # by points of (0.2, 1e-5) only one run would fit
    spent = ledger.spent()
    assert spent.epsilon <= 1.0
    assert gaussian_delta(spent.epsilon, 0.05 * math.sqrt(runs)) <= 1e-5


def order_epsilon(order: float, divergence: float, delta: float) -> float:
    """Proposition 12 of Canonne, Kamath and Steinke (2020), in multiple precision."""
    a, log = mpmath.mpf(order), mpmath.log
    return float(divergence + log((a - 1) / a) - (log(delta) + log(a)) / (a - 1))


@pytest.mark.parametrize("order", [1.1, 2.0, 17.0, 1024.0])
def test_one_order_is_converted_by_its_closed_form(order: float) -> None:
    for divergence, delta in ((0.0, 1e-5), (0.7, 1e-3), (math.inf, 0.5)):
        found = ledger_rules.order_epsilon(order, divergence, delta)
        assert found == pytest.approx(order_epsilon(order, divergence, delta), rel=1e-12)


def test_orders_too_near_one_say_nothing() -> None:
    assert ledger_rules.order_epsilon(1.01, 0.0, 1e-5) == math.inf
    assert ledger_rules.order_epsilon(1.011, 0.0, 1e-5) < math.inf


@pytest.mark.parametrize(("epsilon", "delta"), [(0.1, 1e-6), (1.0, 1e-5), (8.0, 1e-3)])
def test_the_main_order_leaves_most_room_for_gaussian_noise_at_half_of_delta(
    path: Path, epsilon: float, delta: float
) -> None:
    from dpsep.privacy.accounting import RDP_ORDERS

    # Curves order * x: the largest x that an order alone allows at delta / 2.
    room = {order: (epsilon - order_epsilon(order, 0.0, delta / 2)) / order for order in RDP_ORDERS}
    best = max(room, key=lambda order: room[order])
    assert Ledger.create(path, epsilon=epsilon, delta=delta, rule="rdp")._terms.main_order == best
    assert ledger_rules.main_order(RDP_ORDERS, epsilon, delta) == best


def test_half_of_delta_goes_to_the_main_order_and_the_rest_evenly_to_the_others() -> None:
    orders, delta = (2.0, 6.0, 20.0, 64.0), 1e-3
    for main in orders:
        for heavy in orders:
            curves = [[0.1 if order == heavy else 9.0 for order in orders]] * 2
            spent, at = ledger_rules.add_curves(curves, orders, main, delta)
            share = delta / 2 if heavy == main else delta / 6
            assert float(spent) == pytest.approx(order_epsilon(heavy, 0.2, share), rel=1e-12)
            assert at == Fraction("0.001")
    spent, _ = ledger_rules.add_curves([[0.1], [0.2]], (3.0,), 3.0, delta)
    assert float(spent) == pytest.approx(order_epsilon(3.0, 0.3, delta / 2), rel=1e-12)


def test_curves_of_nothing_cost_nothing_and_infinite_ones_never_fit(path: Path) -> None:
    from dpsep.privacy.accounting import RDP_ORDERS

    ledger = Ledger.create(path, epsilon=4.0, delta=0.9, rule="rdp")
    assert ledger.spent() == Spent(0.0, 0.0)
    assert ledger.remaining() == Spent(4.0, 0.9)
    for run in "ab":
        charge(ledger, run=run, rdp=[0.0] * len(RDP_ORDERS))
        assert ledger.spent() == Spent(0.0, 0.9)
    with pytest.raises(OverBudget):
        charge(ledger, rdp=[math.inf] * len(RDP_ORDERS))
    spent, _ = ledger_rules.add_curves([[math.inf], [0.0]], (3.0,), 3.0, 0.1)
    assert spent == Fraction(repr(sys.float_info.max))


def test_notes_of_a_run_cost_nothing_and_need_no_curve(path: Path) -> None:
    from dpsep.privacy.accounting import RDP_ORDERS

    ledger = Ledger.create(path, epsilon=4.0, delta=1e-5, rule="rdp")
    curve = [order * 0.05**2 / 2 for order in RDP_ORDERS]
    charge(ledger, rdp=curve)
    spent = ledger.spent()
    ledger.begin_release("r", 1)
    ledger.finish("r", "failed")
    assert ledger.spent() == spent
    charge(ledger, rdp=curve, kind="extra-step")
    assert ledger.spent().epsilon > spent.epsilon


def test_a_curve_is_kept_as_text_and_may_be_given_to_a_ledger_of_points(path: Path) -> None:
    ledger = Ledger.create(path, epsilon=4.0, delta=1e-3)
    charge(ledger, rdp=(0.0, 0.1, math.inf))
    assert ledger.rows()[-1].rdp == (0.0, 0.1, math.inf)
    for bad in ((-1e-9,), (math.nan,)):
        with pytest.raises(LedgerError, match="negative or undefined"):
            charge(ledger, rdp=bad)


def gaussian_delta(epsilon: float, mu: float) -> float:
    """The exact delta of a Gaussian mechanism (Balle and Wang 2018)."""
    upper = norm.cdf(mu / 2 - epsilon / mu)
    return float(upper - math.exp(epsilon) * norm.cdf(-mu / 2 - epsilon / mu))
