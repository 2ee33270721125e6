import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.integrate
import scipy.special
import scipy.stats

from dpsep.models import PoissonLikelihood
from dpsep.models.poisson import lambert_of_exp


def test_lambert_of_exp_solves_its_equation_where_scipy_can_and_where_it_cannot():
    with jax.enable_x64(True):
        z = np.concatenate([np.linspace(-700, 700, 301), np.linspace(-3, 4, 200)])
        np.testing.assert_allclose(lambert_of_exp(z), scipy.special.lambertw(np.exp(z)).real, rtol=1e-12)
        far = np.array([1e4, 1e6, 1e9])
        w = np.asarray(lambert_of_exp(far))
        np.testing.assert_allclose(w + np.log(w), far, rtol=1e-14)


def test_neighbouring_counts_are_tied_by_the_mean_of_the_rate():
    """exp(u) p(y | u) = (y + 1) p(y + 1 | u), so g(y) = y - (y + 1) Z(y + 1) / Z(y)."""
    with jax.enable_x64(True):
        mean, variance, y = np.linspace(-3, 3, 13), np.logspace(-2, 1, 13), np.arange(13.0)
        here = jax.jit(PoissonLikelihood().tilted)(mean, variance, y)
        after = jax.jit(PoissonLikelihood().tilted)(mean, variance, y + 1)
        np.testing.assert_allclose(
            here.gradient, y - (y + 1) * np.exp(after.log_z - here.log_z), rtol=1e-9, atol=1e-9
        )


def test_the_masses_of_all_counts_sum_to_one_and_have_the_predictive_moments():
    with jax.enable_x64(True):
        counts = np.arange(1500.0)
        model = PoissonLikelihood()
        mass = np.exp(np.asarray(model.log_predictive(1.0, 0.25, counts)))
        mean, variance = model.predictive(1.0, 0.25)
        assert mass.sum() == pytest.approx(1.0, rel=1e-10)
        assert (mass * counts).sum() == pytest.approx(float(mean), rel=1e-10)
        assert (mass * (counts - float(mean)) ** 2).sum() == pytest.approx(float(variance), rel=1e-9)


def test_tilted_moments_stay_finite_where_the_rate_would_overflow():
    with jax.enable_x64(True):
        t = jax.jit(PoissonLikelihood().tilted)(
            jnp.array([-900.0, 300.0, 900.0]), jnp.array([1.0, 100.0, 900.0]), 3.0
        )
        assert all(np.all(np.isfinite(part)) for part in t)
        assert np.all(np.asarray(t.shrinkage) > 0)
    narrow = jax.jit(PoissonLikelihood().tilted)(
        jnp.array([30.0, -30.0], jnp.float32), jnp.float32(9.0), jnp.float32(0.0)
    )
    assert all(np.all(np.isfinite(part)) for part in narrow)


@pytest.mark.parametrize("y", [0.3, 2.5, 17.25])
def test_targets_that_are_no_counts_have_the_moments_of_the_quasi_likelihood(y):
    mean, variance = 0.4, 0.7

    def tilted(u: float) -> float:
        return np.exp(y * u - np.exp(u) - scipy.special.gammaln(y + 1)) * scipy.stats.norm.pdf(
            u, mean, variance**0.5
        )

    span = (-8.0, 8.0)
    z = scipy.integrate.quad(tilted, *span, epsabs=0, epsrel=1e-11)[0]
    first = scipy.integrate.quad(lambda u: u * tilted(u), *span, epsabs=1e-14)[0] / z
    with jax.enable_x64(True):
        found = PoissonLikelihood().tilted(mean, variance, y)
    assert float(found.log_z) == pytest.approx(np.log(z), abs=1e-8)
    assert float(found.gradient) == pytest.approx((first - mean) / variance, abs=1e-7)


def test_log_likelihood_draws_and_valid_counts_agree_with_scipy():
    model = PoissonLikelihood()
    y = np.arange(5.0)
    np.testing.assert_allclose(
        model.log_likelihood(0.7, y), scipy.stats.poisson.logpmf(y, np.exp(0.7)), rtol=1e-5
    )
    draws = np.asarray(model.sample(jax.random.key(0), jnp.full(50_000, 0.7)))
    assert draws.mean() == pytest.approx(np.exp(0.7), rel=0.02)
    np.testing.assert_array_equal(
        model.valid(jnp.array([0.0, 3.0, -1.0, 0.5, jnp.nan, jnp.inf])), [1, 1, 0, 1, 0, 0]
    )
