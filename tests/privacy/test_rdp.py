"""Rényi curves and their conversion agree with quadrature and with the reference library."""

import math

import dp_accounting as dpa
import numpy as np
import pytest
from dp_accounting.rdp import compute_epsilon
from scipy.integrate import quad

from dpsep.privacy import rdp
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


def test_orders_are_the_grid_that_ledgers_were_written_with():
    quarters = [number / 4 for number in range(5, 21)]
    powers = [72, 80, 96, 112, 128, 160, 192, 256, 384, 512, 768, 1024]
    assert list(RDP_ORDERS) == [1.1, *quarters, 5.5, *range(6, 65), *powers]


def test_curves_that_do_not_fit_raise():
    with pytest.raises(ValueError, match="RDP_ORDERS"):
        rdp_to_epsilon([1.0, 2.0], 1e-5)
    with pytest.raises(ValueError, match="RDP_ORDERS"):
        rdp_to_epsilon([math.nan] * len(RDP_ORDERS), 1e-5)
    with pytest.raises(ValueError, match="RDP_ORDERS"):
        rdp_to_delta([-1e-9] * len(RDP_ORDERS), 1.0)
    for delta in (0.0, 1.0, 1.5, math.nan):
        with pytest.raises(ValueError, match="delta"):
            rdp_to_epsilon([1.0] * len(RDP_ORDERS), delta)
    for epsilon in (-1e-9, math.nan):
        with pytest.raises(ValueError, match="epsilon"):
            rdp_to_delta([1.0] * len(RDP_ORDERS), epsilon)


def test_conversions_stay_between_nothing_and_everything():
    assert rdp_to_epsilon([0.0] * len(RDP_ORDERS), 0.9) == 0.0
    assert rdp_to_delta([1e3] * len(RDP_ORDERS), 0.0) == 1.0
    assert 0 < rdp_to_delta([0.0] * len(RDP_ORDERS), 0.0) < 1e-2


def test_every_release_adds_an_allowance_for_rounding_and_what_is_undefined_is_infinite(monkeypatch):
    class Reference:
        rdp = np.array([math.nan, -1e-17, 0.25])

        def __init__(self, *_: object) -> None: ...

        def compose(self, _: object) -> "Reference":
            return self

    monkeypatch.setattr(rdp, "RdpAccountant", Reference)
    curve = event_curve(dpa.GaussianDpEvent(1.0), ZEROED, 1000, (2.0, 3.0, 5.0))
    # 1e-13 of (order - 1) times the divergence, a release.
    assert curve[0] == math.inf
    np.testing.assert_allclose(curve[1:], [1000 * 1e-13 / 2, 1000 * (0.25 + 1e-13 / 4)], rtol=1e-15)
