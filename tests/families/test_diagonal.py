from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from dpsep.families import DiagonalGaussian

MEANS = arrays(np.float64, 3, elements=st.integers(-5000, 5000).map(lambda k: k / 100))
VARIANCES = arrays(np.float64, 3, elements=st.floats(1e-3, 1e3))


@given(MEANS, VARIANCES)
@settings(max_examples=25, deadline=None)
def test_moments_survive_the_round_trip(mean, variance):
    with jax.enable_x64(True):
        q = DiagonalGaussian.from_moments(mean, variance)
        np.testing.assert_allclose(q.mean, mean, rtol=1e-13)
        np.testing.assert_allclose(q.variance, variance, rtol=1e-13)
        np.testing.assert_allclose(q.covariance, np.diag(variance), rtol=1e-13)


@given(MEANS, VARIANCES, MEANS, VARIANCES)
@settings(max_examples=25, deadline=None)
def test_density_entropy_and_divergence_agree_with_scipy_and_the_closed_form(
    mean, variance, mean_2, variance_2
):
    reference: Any = scipy.stats.norm(mean, np.sqrt(variance))
    x = np.array([0.5, -1.0, 2.0])
    with jax.enable_x64(True):
        p, q = (
            DiagonalGaussian.from_moments(mean, variance),
            DiagonalGaussian.from_moments(mean_2, variance_2),
        )
        assert float(p.log_density(x)) == pytest.approx(reference.logpdf(x).sum(), rel=1e-12)
        assert float(p.entropy) == pytest.approx(reference.entropy().sum(), rel=1e-12, abs=1e-12)
        terms = variance / variance_2 + (mean - mean_2) ** 2 / variance_2 - 1 - np.log(variance / variance_2)
        assert float(p.kl(q)) == pytest.approx(0.5 * terms.sum(), rel=1e-10, abs=1e-12)
        raw = (p.eta * x - 0.5 * p.precision * x**2).sum()
        assert float(raw - p.log_partition) == pytest.approx(reference.logpdf(x).sum(), rel=1e-9)


def test_projection_raises_low_precisions_and_only_those():
    q = DiagonalGaussian(jnp.ones(3), jnp.array([-1.0, 0.3, 0.7]))
    np.testing.assert_array_equal(q.project(0.5).precision, jnp.array([0.5, 0.5, 0.7]))
    np.testing.assert_array_equal(q.project(0.5).eta, q.eta)


def test_only_positive_precisions_are_proper():
    q = DiagonalGaussian(jnp.zeros((3, 2)), jnp.array([[1.0, 1.0], [1.0, 0.0], [jnp.nan, 1.0]]))
    np.testing.assert_array_equal(q.is_proper, [True, False, False])


def test_samples_have_the_moments_of_the_distribution_in_both_precisions():
    for wide in (False, True):
        with jax.enable_x64(wide):
            dtype = jnp.float64 if wide else jnp.float32
            q = DiagonalGaussian.from_moments(jnp.array([1.0, -2.0], dtype), jnp.array([4.0, 0.25], dtype))
            draws = jax.jit(lambda key, q=q: q.sample(key, (100_000,)))(jax.random.key(1))
            assert draws.dtype == dtype
            draws = np.asarray(draws)
            np.testing.assert_allclose(draws.mean(0), [1.0, -2.0], atol=0.04)
            np.testing.assert_allclose(draws.var(0), [4.0, 0.25], rtol=0.03)
