"""Moments of a rectified Gaussian against quadrature, in both tails and both precisions."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.integrate import quad
from scipy.stats import norm

from dpsep.models.rectifier import rectified_normal

ALPHAS = [-35.0, -25.0, -12.0, -5.0, -1.0, -1e-3, 0.0, 0.5, 3.0, 8.0, 30.0]


def reference(alpha: float) -> tuple[float, float, float, float]:
    """Chance, first moment, second moment and variance by quadrature."""
    reach = max(alpha, 0.0) + 12.0
    points = [alpha - 9, alpha] if alpha > 9 else None

    def integral(function):
        density = lambda a: function(a) * norm.pdf(a, alpha)  # noqa: E731
        return quad(density, 0, reach, epsabs=0.0, epsrel=1e-12, limit=500, points=points)[0]

    first, second = integral(lambda a: a), integral(lambda a: a * a)
    variance = integral(lambda a: (a - first) ** 2) + first**2 * norm.cdf(-alpha)
    return float(norm.cdf(alpha)), first, second, variance


@pytest.mark.parametrize("alpha", ALPHAS)
def test_all_moments_keep_their_digits_in_both_tails(alpha):
    with jax.enable_x64(True):
        found = rectified_normal(jnp.asarray(alpha))
    chance, first, second, variance = reference(alpha)
    assert float(found.density) == pytest.approx(norm.pdf(alpha), rel=1e-12)
    assert float(found.chance) == pytest.approx(chance, rel=1e-12)
    assert float(found.first) == pytest.approx(first, rel=1e-10)
    assert float(found.second) == pytest.approx(second, rel=1e-10)
    assert float(found.variance) == pytest.approx(variance, rel=1e-10)


@pytest.mark.parametrize("alpha", [alpha for alpha in ALPHAS if alpha > -10])
def test_single_precision_keeps_five_digits(alpha):
    found = rectified_normal(jnp.asarray(alpha, jnp.float32))
    got = [float(part) for part in (found.chance, found.first, found.second, found.variance)]
    # The density itself has the rounding of alpha^2 / 2 in its exponent.
    np.testing.assert_allclose(got, reference(alpha), rtol=1e-5)


@pytest.mark.parametrize("doubles", [True, False])
def test_far_out_nothing_overflows(doubles):
    with jax.enable_x64(doubles):
        far = jnp.asarray([-1e18, -1e3, 1e3, 1e18])
        found = rectified_normal(far)
    np.testing.assert_allclose(found.chance, [0, 0, 1, 1])
    np.testing.assert_allclose(found.first, [0, 0, 1e3, 1e18], rtol=1e-6)
    np.testing.assert_allclose(found.variance, [0, 0, 1, 1])
