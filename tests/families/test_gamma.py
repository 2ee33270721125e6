from typing import Any

import jax
import jax.numpy as jnp
import mpmath
import numpy as np
import pytest
import scipy.integrate
import scipy.stats
from hypothesis import given, settings
from hypothesis import strategies as st

from dpsep.families import Gamma
from dpsep.families.gamma import inverse_log_minus_digamma, log_minus_digamma, shape_increment

SHAPES = 10.0 ** np.linspace(-3, 8, 45)


def exact_h(a: float) -> mpmath.mpf:
    with mpmath.workdps(60):
        return mpmath.log(mpmath.mpf(a)) - mpmath.digamma(mpmath.mpf(a))


def test_log_minus_digamma_and_its_inverse_are_accurate_over_eleven_decades():
    exact = np.array([float(exact_h(a)) for a in SHAPES])
    with jax.enable_x64(True):
        np.testing.assert_allclose(log_minus_digamma(SHAPES), exact, rtol=1e-14)
        np.testing.assert_allclose(jax.jit(inverse_log_minus_digamma)(exact), SHAPES, rtol=1e-12)


def test_the_inverse_is_accurate_to_rounding_in_float32():
    exact = np.array([float(exact_h(a)) for a in SHAPES], np.float32)
    np.testing.assert_allclose(inverse_log_minus_digamma(exact), SHAPES, rtol=3e-6)


def test_the_inverse_is_nan_where_no_shape_exists():
    assert np.isnan(inverse_log_minus_digamma(-1.0))
    assert np.isnan(inverse_log_minus_digamma(0.0))


@pytest.mark.parametrize("a", [1e-2, 0.7, 5.0, 11.8, 13.0, 300.0, 1e5, 1e8])
@pytest.mark.parametrize("x", [-0.4, 1e-4, 0.5, 3.0])
def test_a_small_increment_of_a_large_shape_keeps_its_digits(a, x):
    if a + x <= 0:
        x = -0.4 * a
    with mpmath.workdps(60):
        difference = float(exact_h(mpmath.mpf(a) + mpmath.mpf(x)) - exact_h(a))
    with jax.enable_x64(True):
        assert float(shape_increment(a, difference)) == pytest.approx(x, rel=1e-10, abs=1e-12)


@given(st.floats(1e-2, 1e4), st.floats(1e-3, 1e3))
@settings(max_examples=25, deadline=None)
def test_both_ways_of_matching_moments_return_the_distribution(shape, rate):
    with jax.enable_x64(True):
        q = Gamma.from_shape_and_rate(shape, rate)
        for match in (
            Gamma.from_moments(q.mean, q.variance),
            Gamma.from_mean_and_mean_log(q.mean, q.mean_log),
        ):
            # log(mean) - mean_log is 1/(2a) of numbers of size log(a/b): the input itself loses these digits.
            assert float(match.shape) == pytest.approx(shape, rel=1e-10 * (1 + shape))
            assert float(match.rate) == pytest.approx(rate, rel=1e-10 * (1 + shape))


@given(st.floats(0.2, 200.0), st.floats(1e-2, 1e2))
@settings(max_examples=25, deadline=None)
def test_density_entropy_and_moments_agree_with_scipy(shape, rate):
    reference: Any = scipy.stats.gamma(shape, scale=1 / rate)
    with jax.enable_x64(True):
        q = Gamma.from_shape_and_rate(shape, rate)
        x = reference.ppf(0.3)
        assert float(q.log_density(x)) == pytest.approx(reference.logpdf(x), rel=1e-9, abs=1e-9)
        assert float(q.entropy) == pytest.approx(reference.entropy(), rel=1e-8, abs=1e-8)
        assert float(q.mean) == pytest.approx(reference.mean(), rel=1e-12)
        assert float(q.variance) == pytest.approx(reference.var(), rel=1e-12)


@pytest.mark.parametrize(
    ("a", "b", "c", "d"), [(2.0, 3.0, 5.0, 1.0), (0.7, 0.2, 0.9, 2.0), (50.0, 5.0, 40.0, 6.0)]
)
def test_the_divergence_is_the_integral_that_defines_it(a, b, c, d):
    p: Any = scipy.stats.gamma(a, scale=1 / b)
    q: Any = scipy.stats.gamma(c, scale=1 / d)
    # In log t the integrand is smooth; 1e-12 of the mass at each end is left out.
    low, high = np.log(p.ppf(1e-14)), np.log(p.isf(1e-14))
    value, _ = scipy.integrate.quad(
        lambda s: p.pdf(np.exp(s)) * np.exp(s) * (p.logpdf(np.exp(s)) - q.logpdf(np.exp(s))),
        low,
        high,
        limit=200,
    )
    with jax.enable_x64(True):
        divergence = Gamma.from_shape_and_rate(a, b).kl(Gamma.from_shape_and_rate(c, d))
        assert float(divergence) == pytest.approx(value, rel=1e-8)
        assert float(Gamma.from_shape_and_rate(a, b).kl(Gamma.from_shape_and_rate(a, b))) == pytest.approx(
            0.0
        )


def test_projection_raises_shape_and_rate_to_the_floor():
    q = Gamma(jnp.array([-2.0, 1.0]), jnp.array([3.0, -1.0])).project(0.5)
    np.testing.assert_array_equal(q.shape, [0.5, 2.0])
    np.testing.assert_array_equal(q.rate, [3.0, 0.5])
    np.testing.assert_array_equal(Gamma(jnp.array([-2.0, 1.0]), jnp.ones(2)).is_proper, [False, True])


def test_samples_have_the_moments_of_the_distribution_under_vmap():
    q = Gamma.from_shape_and_rate(jnp.array([3.0, 0.5]), jnp.array([2.0, 1.0]))
    draws = jax.vmap(lambda p, key: p.sample(key, (50_000,)))(q, jax.random.split(jax.random.key(0), 2))
    np.testing.assert_allclose(draws.mean(1), q.mean, rtol=0.03)
    np.testing.assert_allclose(draws.var(1), q.variance, rtol=0.06)
