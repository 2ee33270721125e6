import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.integrate
import scipy.stats

from dpsep.models import LogisticLikelihood


def test_swapping_the_label_mirrors_the_predictor_and_the_two_labels_exhaust_it():
    with jax.enable_x64(True):
        mean, variance = np.linspace(-20, 20, 41), np.logspace(-6, 2, 41)
        up = jax.jit(LogisticLikelihood().tilted)(mean, variance, 1.0)
        down = jax.jit(LogisticLikelihood().tilted)(-mean, variance, -1.0)
        np.testing.assert_array_equal(up._replace(gradient=-up.gradient), down)
        other = jax.jit(LogisticLikelihood().tilted)(mean, variance, -1.0)
        np.testing.assert_allclose(np.exp(up.log_z) + np.exp(other.log_z), 1.0, rtol=1e-12)


def test_the_probability_is_the_average_of_the_sigmoid():
    exact, _ = scipy.integrate.quad(
        lambda u: scipy.stats.norm.pdf(u, 1.2, 1.5) / (1 + np.exp(-u)), -15, 17, epsabs=1e-13
    )
    with jax.enable_x64(True):
        assert float(LogisticLikelihood().probability(1.2, 2.25)) == pytest.approx(exact, rel=1e-10)


def test_tilted_moments_stay_finite_and_positive_however_far_out():
    with jax.enable_x64(True):
        mean = jnp.array([-1e6, -1e3, -30.0, 0.0, 30.0, 1e3, 1e6])
        for variance in (0.0, 1e-12, 1.0, 1e3):
            t = jax.jit(LogisticLikelihood().tilted)(mean, variance, 1.0)
            assert all(np.all(np.isfinite(part)) for part in t)
            assert np.all(np.asarray(t.shrinkage) > 0)


def test_draws_follow_the_likelihood_and_labels_are_checked():
    model = LogisticLikelihood()
    draws = np.asarray(model.sample(jax.random.key(0), jnp.full(100_000, 0.4)))
    probability = 1 / (1 + np.exp(-0.4))
    assert set(np.unique(draws)) == {-1.0, 1.0}
    assert (draws > 0).mean() == pytest.approx(probability, abs=0.01)
    mean, variance = model.predictive(0.4, 1e-9)
    assert float(mean) == pytest.approx(2 * probability - 1, abs=1e-5)
    assert float(variance) == pytest.approx(4 * probability * (1 - probability), abs=1e-5)
    assert float(model.log_likelihood(0.4, -1.0)) == pytest.approx(np.log1p(-probability), rel=1e-6)
    np.testing.assert_array_equal(model.valid(jnp.array([1.0, -1.0, 0.0, jnp.nan])), [1, 1, 0, 0])
    assert hash(model) == hash(LogisticLikelihood())
