import jax
import jax.numpy as jnp
import numpy as np

from dpsep.families import DiagonalGaussian, Gamma, Gaussian
from dpsep.inference import adf
from dpsep.models import (
    GLM,
    GaussianLikelihood,
    GaussianMean,
    LearnedNoise,
    ProbitLikelihood,
    WeightsAndNoise,
)


def test_filtering_the_mean_of_gaussian_records_gives_the_conjugate_posterior():
    rng = np.random.default_rng(0)
    records, noise = rng.normal(size=(50, 3)), np.diag([1.0, 2.0, 0.5]) + 0.2
    model = GaussianMean(tuple(map(tuple, noise.tolist())))
    with jax.enable_x64(True):
        state, info = jax.jit(adf.run, static_argnums=0)(model, Gaussian.isotropic(3, 0.7), records)
        np.testing.assert_allclose(state.posterior.precision, 0.7 * np.eye(3) + 50 * noise, rtol=1e-12)
        np.testing.assert_allclose(state.posterior.eta, noise @ records.sum(0), rtol=1e-10, atol=1e-10)
        assert np.all(info.accepted)


def test_filtering_linear_regression_with_known_noise_gives_the_conjugate_posterior():
    rng = np.random.default_rng(1)
    x, y = rng.normal(size=(200, 4)), rng.normal(size=200)
    with jax.enable_x64(True):
        state, _ = adf.run(GLM(GaussianLikelihood(2.5)), Gaussian.isotropic(4, 0.3), (x, y))
        np.testing.assert_allclose(
            state.posterior.precision, 0.3 * np.eye(4) + 2.5 * x.T @ x, rtol=1e-8, atol=1e-8
        )
        np.testing.assert_allclose(state.posterior.eta, 2.5 * x.T @ y, rtol=1e-8, atol=1e-8)


def test_one_probit_record_has_the_skew_normal_moments():
    """N(0, 1) times Phi(u) has mean 1 / sqrt(pi) and variance 1 - 1 / pi (Azzalini 1985, shape 1)."""
    with jax.enable_x64(True):
        record = (np.ones((1, 1)), np.ones(1))
        for prior in (Gaussian.isotropic(1), DiagonalGaussian.isotropic(1)):
            posterior = adf.run(GLM(ProbitLikelihood()), prior, record)[0].posterior
            np.testing.assert_allclose(posterior.mean, np.pi**-0.5, rtol=1e-12)
            np.testing.assert_allclose(posterior.variance, 1 - 1 / np.pi, rtol=1e-12)


def test_a_record_that_is_not_finite_is_passed_over():
    x, y = jnp.array([[1.0], [jnp.nan], [2.0]]), jnp.array([1.0, 1.0, 1.0])
    state, info = adf.run(GLM(GaussianLikelihood(1.0)), Gaussian.isotropic(1), (x, y))
    np.testing.assert_array_equal(info.accepted, [True, False, True])
    np.testing.assert_allclose(state.posterior.precision, [[6.0]], rtol=1e-5)


def test_filtering_learns_weights_and_noise_together():
    rng = np.random.default_rng(2)
    x = rng.normal(size=(2000, 2))
    y = x @ [1.0, -2.0] + 0.5 * rng.normal(size=2000)
    with jax.enable_x64(True):
        prior = WeightsAndNoise(Gaussian.isotropic(2, 0.1), Gamma.from_shape_and_rate(1.0, 1.0))
        posterior = jax.jit(adf.run, static_argnums=0)(LearnedNoise(), prior, (x, y))[0].posterior
        np.testing.assert_allclose(posterior.weights.mean, [1.0, -2.0], atol=0.05)
        np.testing.assert_allclose(posterior.noise.mean, 4.0, rtol=0.1)
