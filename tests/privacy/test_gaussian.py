"""The closed forms of Gaussian differential privacy agree with multiple precision."""

from typing import Any

import mpmath
import pytest
from dp_accounting import NeighboringRelation, pld
from dp_accounting.dp_event import GaussianDpEvent

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
        assert float((gaussian_delta(epsilon, mu) - exact) / exact) == pytest.approx(0, abs=3e-9)
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
    assert gaussian_epsilon(1e-9, 1e-5) == 0
    for call in (
        lambda: gaussian_delta(-1, 1),
        lambda: gaussian_epsilon(1, 0.0),
        lambda: gaussian_mu(1, 1.0),
    ):
        with pytest.raises(ValueError, match="must"):
            call()
