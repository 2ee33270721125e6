"""The closed forms of Gaussian differential privacy agree with multiple precision."""

import math
from typing import Any

import mpmath
import pytest
from dp_accounting import NeighboringRelation, pld
from dp_accounting.dp_event import GaussianDpEvent

from dpsep.privacy import gaussian
from dpsep.privacy.gaussian import gaussian_delta, gaussian_epsilon, gaussian_mu

MP: Any = mpmath.mp.clone()
MP.prec = 400


def exact_delta(epsilon: float, mu: float) -> Any:
    e, m = MP.mpf(epsilon), MP.mpf(mu)
    return MP.ncdf(-e / m + m / 2) - MP.exp(e) * MP.ncdf(-e / m - m / 2)


@pytest.mark.parametrize("mu", [1e-4, 1e-2, 0.22, 1.0, 4.0, 12.0, 40.0])
@pytest.mark.parametrize("epsilon", [0.0, 1e-4, 1e-2, 1.0, 5.0, 60.0, 900.0])
def test_delta_is_exact_and_never_below(epsilon, mu):
    exact = exact_delta(epsilon, mu)
    if exact > 1e-300:
        above = float((gaussian_delta(epsilon, mu) - exact) / exact)
        assert 0.5e-9 < above < 1.5e-9 or exact > 1 - 1e-8  # the slack and the rounding of the formulas
        assert gaussian_delta(epsilon, mu) >= exact or exact > 1 - 1e-12
    else:
        assert gaussian_delta(epsilon, mu) < 1e-290


@pytest.mark.parametrize("delta", [1e-12, 1e-5, 1e-2])
@pytest.mark.parametrize("mu", [1e-3, 0.3, 1.0, 7.0])
def test_epsilon_and_mu_invert_delta_from_the_safe_side(mu, delta):
    epsilon = gaussian_epsilon(mu, delta)
    assert exact_delta(epsilon, mu) <= delta
    if epsilon > 0:
        assert exact_delta(epsilon * (1 - 1e-6), mu) > delta
        assert gaussian_mu(epsilon, delta) == pytest.approx(mu, rel=1e-6)
        assert exact_delta(epsilon, gaussian_mu(epsilon, delta)) <= delta


def test_agrees_with_the_reference_accountant():
    for mu in (0.1, 1.0, 3.0):
        reference = pld.PLDAccountant(NeighboringRelation.REPLACE_SPECIAL).compose(GaussianDpEvent(1 / mu))
        assert gaussian_epsilon(mu, 1e-5) == pytest.approx(reference.get_epsilon(1e-5), rel=1e-3)


def test_limits_and_bad_arguments():
    assert gaussian_delta(1.0, 0.0) == 0
    assert gaussian_delta(1.0, float("inf")) == 1
    assert gaussian_delta(float("inf"), 1.0) == 0
    assert gaussian_epsilon(1e-9, 1e-5) == 0
    assert gaussian_epsilon(0.0, 1e-5) == 0
    for call in (
        lambda: gaussian_delta(-1, 1),
        lambda: gaussian_delta(1, -1),
        lambda: gaussian_delta(float("nan"), 1),
        lambda: gaussian_delta(1, float("nan")),
        *(lambda delta=delta: gaussian_epsilon(1, delta) for delta in (0.0, 1.0, 1.5, float("nan"))),
        *(lambda delta=delta: gaussian_mu(1, delta) for delta in (0.0, 1.0, 1.5)),
    ):
        with pytest.raises(ValueError, match="must"):
            call()


def test_noise_is_answered_for_from_a_ten_thousandth_to_a_thousand_million_times_the_sensitivity():
    assert gaussian_epsilon(9_999.0, 1e-5) < float("inf")
    assert gaussian_epsilon(10_000.5, 1e-5) == float("inf")
    # At epsilon 0, delta is mu / sqrt(2 pi); at delta 1/2, epsilon is nearly mu^2 / 2.
    assert gaussian_mu(0.0, 5e-10) == pytest.approx(5e-10 * math.sqrt(2 * math.pi), rel=1e-6)
    assert gaussian_mu(9_999.5**2 / 2, 0.5) == pytest.approx(9_999.5, rel=1e-6)
    for epsilon, delta in ((0.0, 3.9e-10), (10_000.5**2 / 2, 0.5)):
        with pytest.raises(ValueError, match="between 1e-9 and 1e4"):
            gaussian_mu(epsilon, delta)


@pytest.mark.parametrize("jump", [0.1, 0.37, 0.7, 1 / 3, 2.5, 1e-6, 3e-20])
@pytest.mark.parametrize("up", [True, False])
def test_a_root_is_moved_to_the_side_where_the_excess_is_not_positive(jump: float, up: bool) -> None:
    def excess(x: float) -> float:
        return 1.0 if (x < jump) == up else -1.0

    root = gaussian._to_safe_side(excess, 0.0, 4.0, up=up)
    assert excess(root) < 0
    assert root == pytest.approx(jump, rel=1e-9, abs=1e-14)
