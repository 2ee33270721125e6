"""Moments of the sine of a Gaussian, against quadrature and many digits."""

from typing import Any

import jax
import jax.numpy as jnp
import mpmath
import numpy as np
import pytest

from dpsep.models import network as net

MEANS = np.linspace(-4.0, 4.0, 17)
NODES, WEIGHTS = np.polynomial.hermite_e.hermegauss(180)


@pytest.fixture(autouse=True)
def _doubles():
    with jax.enable_x64(True):
        yield


def average(function: Any, mean: np.ndarray, variance: float) -> np.ndarray:
    """Expectation under N(mean, variance), by quadrature."""
    points = np.asarray(mean)[:, None] + np.sqrt(variance) * NODES
    return function(points) @ WEIGHTS / np.sqrt(2.0 * np.pi)


def waved(mean: Any, variance: float, dtype: Any = jnp.float64) -> net.Moments:
    mean = jnp.asarray(mean, dtype)
    return net.waved(net.Moments(mean, jnp.full_like(mean, variance)))


def exact(mean: float, variance: float) -> tuple[float, float]:
    """Both moments from the characteristic function, with 400 digits."""
    with mpmath.workdps(400):
        m, v = mpmath.mpf(float(mean)), mpmath.mpf(float(variance))
        first = mpmath.exp(-v / 2) * mpmath.sin(m)
        second = (1 - mpmath.exp(-2 * v) * mpmath.cos(2 * m)) / 2
        return float(first), float(second - first**2)


@pytest.mark.parametrize("variance", [0.0, 1e-6, 0.01, 0.3, 1.0, 4.0, 9.0])
def test_moments_are_those_of_a_quadrature(variance: float) -> None:
    found = waved(MEANS, variance)
    first = average(np.sin, MEANS, variance)
    np.testing.assert_allclose(found.mean, first, atol=1e-13)
    spread = average(lambda a: (np.sin(a) - first[:, None]) ** 2, MEANS, variance)
    np.testing.assert_allclose(found.variance, spread, rtol=1e-10, atol=1e-13)


@pytest.mark.parametrize("variance", [1e-6, 0.01, 0.3, 1.0, 4.0, 9.0])
def test_derivatives_are_those_of_a_quadrature(variance: float) -> None:
    """By the heat equation a derivative by v is half the average of the second derivative."""
    given = net.Moments(jnp.asarray(MEANS), jnp.full(len(MEANS), variance))
    _, pull = jax.vjp(net.waved, given)
    one, zero = jnp.ones(len(MEANS)), jnp.zeros(len(MEANS))
    (of_mean,), (of_variance,) = pull(net.Moments(one, zero)), pull(net.Moments(zero, one))
    sine, cosine = (average(function, MEANS, variance) for function in (np.sin, np.cos))
    twice = average(lambda a: np.sin(2 * a), MEANS, variance)
    np.testing.assert_allclose(of_mean.mean, cosine, atol=1e-12)
    np.testing.assert_allclose(of_mean.variance, -0.5 * sine, atol=1e-12)
    np.testing.assert_allclose(of_variance.mean, twice - 2.0 * sine * cosine, atol=1e-12)
    double = average(lambda a: np.cos(2 * a), MEANS, variance)
    np.testing.assert_allclose(of_variance.variance, double + sine**2, atol=1e-12)


@pytest.mark.parametrize("variance", [1e-300, 1e-20, 1e-12, 1e-6, 30.0, 1e3, 1e12])
def test_tiny_and_large_variances_lose_no_digits(variance: float) -> None:
    """As v goes to zero the variance is v cos^2 m: the difference of two squares would have nothing left."""
    found = waved(MEANS, variance)
    first, spread = np.transpose([exact(mean, variance) for mean in MEANS])
    np.testing.assert_allclose(found.mean, first, rtol=1e-12, atol=1e-300)
    np.testing.assert_allclose(found.variance, spread, rtol=1e-10)
    if variance <= 1e-12:
        np.testing.assert_allclose(found.variance, variance * np.cos(MEANS) ** 2, rtol=1e-9)


def test_singles_lose_no_more_than_their_own_digits() -> None:
    for variance in (1e-12, 1e-6, 0.1, 50.0):
        found = waved(MEANS, variance, jnp.float32)
        assert found.variance.dtype == jnp.float32
        expected = [exact(mean, float(np.float32(variance)))[1] for mean in MEANS.astype(np.float32)]
        np.testing.assert_allclose(found.variance, expected, rtol=1e-5)


def test_a_variance_is_never_negative_nor_above_one_half_where_little_is_known() -> None:
    rng = np.random.default_rng(0)
    mean, variance = rng.uniform(-50, 50, 20_000), 10.0 ** rng.uniform(-18, 3, 20_000)
    for dtype in (jnp.float32, jnp.float64):
        found = net.waved(net.Moments(jnp.asarray(mean, dtype), jnp.asarray(variance, dtype)))
        assert bool(jnp.all(found.variance >= 0.0))
        assert bool(jnp.all(found.variance <= 1.0))
        far = np.asarray(found.variance)[variance > 40.0]
        np.testing.assert_allclose(far, 0.5, rtol=1e-6)
