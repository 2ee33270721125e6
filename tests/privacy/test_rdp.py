"""Rényi curves and their conversion agree with quadrature and with the reference library."""

import math

import dp_accounting as dpa
import numpy as np
import pytest
from dp_accounting.rdp import compute_epsilon
from scipy.integrate import quad

from dpsep.privacy.rdp import RDP_ORDERS, event_curve, rdp_to_delta, rdp_to_epsilon

ZEROED = dpa.NeighboringRelation.REPLACE_SPECIAL


@pytest.mark.parametrize(("rate", "sigma"), [(0.01, 1.0), (0.2, 3.0), (0.001, 0.7)])
def test_poisson_curves_bound_both_directions_by_quadrature(rate, sigma):
    orders = (1.5, 2.75, 4.0, 9.0)
    curve = event_curve(dpa.PoissonSampledDpEvent(rate, dpa.GaussianDpEvent(sigma)), ZEROED, 1, orders)

    def ratio(x: float) -> float:
        return 1 - rate + rate * math.exp((x - 0.5) / sigma**2)

    def normal(x: float) -> float:
        return math.exp(-(x**2) / (2 * sigma**2)) / (sigma * math.sqrt(2 * math.pi))

    for order, value in zip(orders, curve, strict=True):
        peaks = [-order, 0.0, 1.0, order / 2, order]
        directions = [
            math.log(quad(lambda x, p=p: normal(x) * ratio(x) ** p, -40, 40, points=peaks, limit=400)[0])
            / (order - 1)
            for p in (order, 1 - order)
        ]
        assert value >= max(directions) * (1 - 1e-6)
        if order == int(order):  # between integers the library's series is an upper bound only
            assert value == pytest.approx(max(directions), rel=1e-4, abs=1e-12)


def test_curves_are_never_negative_however_small_the_rate():
    curve = event_curve(dpa.PoissonSampledDpEvent(1e-9, dpa.GaussianDpEvent(5.0)), ZEROED, 10**6)
    assert np.all(curve > 0)
    assert rdp_to_epsilon(curve, 1e-5) < 0.1


def test_conversion_agrees_with_the_reference():
    for scale in (0.01, 0.1, 1.0):
        curve = [order * scale for order in RDP_ORDERS]
        for delta in (1e-9, 1e-5, 1e-2):
            epsilon = rdp_to_epsilon(curve, delta)
            assert epsilon == pytest.approx(compute_epsilon(RDP_ORDERS, curve, delta)[0], rel=1e-12)
            assert rdp_to_delta(curve, epsilon) <= delta * (1 + 1e-9)


def test_orders_are_a_fixed_increasing_grid_above_one():
    assert all(b > a for a, b in zip((1.0, *RDP_ORDERS), RDP_ORDERS, strict=False))


def test_curves_that_do_not_fit_raise():
    with pytest.raises(ValueError, match="RDP_ORDERS"):
        rdp_to_epsilon([1.0, 2.0], 1e-5)
    with pytest.raises(ValueError, match="RDP_ORDERS"):
        rdp_to_epsilon([math.nan] * len(RDP_ORDERS), 1e-5)
    with pytest.raises(ValueError, match="delta"):
        rdp_to_epsilon([1.0] * len(RDP_ORDERS), 0.0)
