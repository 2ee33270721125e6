import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dpsep.families import DiagonalGaussian, Gaussian, multiply
from dpsep.models import (
    GLM,
    GaussianLikelihood,
    LogisticLikelihood,
    PoissonLikelihood,
    ProbitLikelihood,
    local_factor,
    predictor_moments,
    site,
)

LIKELIHOODS = [GaussianLikelihood(2.0), ProbitLikelihood(), LogisticLikelihood(), PoissonLikelihood()]


def random_cavity(seed: int, dimension: int = 3) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    root = rng.normal(size=(dimension, dimension))
    return rng.normal(size=dimension), root @ root.T + 0.2 * np.eye(dimension)


def tilted_on_a_grid(likelihood, mean, covariance, x, y) -> tuple[np.ndarray, np.ndarray]:
    """Moments of the tilted weights: integrate over u by a dense sum, then condition the Gaussian on u."""
    m, v = x @ mean, x @ covariance @ x
    u = m + np.sqrt(v) * np.linspace(-14, 14, 20_001)
    log_density = np.asarray(likelihood.log_likelihood(u, y)) - 0.5 * (u - m) ** 2 / v
    weight = np.exp(log_density - log_density.max())
    weight /= weight.sum()
    mean_u = (weight * u).sum()
    variance_u = (weight * (u - mean_u) ** 2).sum()
    gain = covariance @ x / v
    return mean + gain * (mean_u - m), covariance + np.outer(gain, gain) * (variance_u - v)


@pytest.mark.parametrize("likelihood", LIKELIHOODS, ids=lambda model: type(model).__name__)
def test_cavity_times_local_factor_has_the_tilted_moments(likelihood):
    x, y = np.array([0.5, -1.0, 2.0]), 1.0
    for seed in range(3):
        mean, covariance = random_cavity(seed)
        with jax.enable_x64(True):
            cavity = Gaussian.from_moments(mean, covariance)
            updated = multiply(cavity, local_factor(likelihood, cavity, (x, y)))
            exact_mean, exact_covariance = tilted_on_a_grid(likelihood, mean, covariance, x, y)
            np.testing.assert_allclose(updated.mean, exact_mean, rtol=1e-8, atol=1e-8)
            np.testing.assert_allclose(updated.covariance, exact_covariance, rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("likelihood", LIKELIHOODS, ids=lambda model: type(model).__name__)
def test_a_diagonal_cavity_times_its_factor_has_the_tilted_marginals(likelihood):
    x, y = np.array([0.5, -1.0, 2.0]), 1.0
    mean, variance = np.array([0.2, -0.4, 0.1]), np.array([0.3, 1.0, 2.0])
    with jax.enable_x64(True):
        cavity = DiagonalGaussian.from_moments(mean, variance)
        updated = multiply(cavity, GLM(likelihood).local_factor(cavity, (x, y)))
        exact_mean, exact_covariance = tilted_on_a_grid(likelihood, mean, np.diag(variance), x, y)
        np.testing.assert_allclose(updated.mean, exact_mean, rtol=1e-8, atol=1e-8)
        np.testing.assert_allclose(updated.variance, np.diag(exact_covariance), rtol=1e-8)


@pytest.mark.parametrize("likelihood", LIKELIHOODS, ids=lambda model: type(model).__name__)
def test_factors_map_over_records_are_static_under_jit_and_vanish_for_an_empty_row(likelihood):
    x, y = jnp.array([[1.0, 0.0], [0.0, 0.0], [0.3, -2.0]]), jnp.ones(3)
    factors = jax.jit(
        lambda model, cavity, records: jax.vmap(model.local_factor, (None, 0))(cavity, records),
        static_argnums=0,
    )
    for cavity in (Gaussian.isotropic(2), DiagonalGaussian.isotropic(2)):
        result = factors(GLM(likelihood), cavity, (x, y))
        assert result.eta.dtype == jnp.float32
        assert all(np.all(np.isfinite(leaf)) for leaf in result)
        np.testing.assert_array_equal(result.precision[1], 0.0)
        np.testing.assert_array_equal(result.eta[1], 0.0)


def test_counting_from_an_origin_subtracts_precision_times_origin():
    with jax.enable_x64(True):
        tilted = LogisticLikelihood().tilted(0.4, 2.0, -1.0)
        plain, moved = site(tilted, 0.4, 2.0), site(tilted, 0.4, 2.0, origin=1.7)
        assert float(moved.precision) == float(plain.precision)
        assert float(moved.mean_part) == pytest.approx(
            float(plain.mean_part - 1.7 * plain.precision), rel=1e-13
        )


def test_predictor_moments_are_those_of_the_inner_product():
    mean, covariance = random_cavity(0)
    x = np.arange(6.0).reshape(2, 3)
    with jax.enable_x64(True):
        m, v = predictor_moments(Gaussian.from_moments(mean, covariance), x)
        np.testing.assert_allclose(m, x @ mean, rtol=1e-10)
        np.testing.assert_allclose(v, np.diag(x @ covariance @ x.T), rtol=1e-10)
        m, v = predictor_moments(DiagonalGaussian.from_moments(mean, np.diag(covariance)), x[0])
        assert float(v) == pytest.approx(x[0] ** 2 @ np.diag(covariance), rel=1e-12)
