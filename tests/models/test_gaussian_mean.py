import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dpsep.families import DiagonalGaussian, Gaussian
from dpsep.models import GaussianMean

MATRIX = ((2.0, 0.5), (0.5, 1.0))


def test_the_factor_is_the_likelihood_whatever_the_cavity():
    y = jnp.array([1.0, -2.0])
    for scale in (0.1, 10.0):
        factor = GaussianMean(MATRIX).local_factor(Gaussian.isotropic(2, scale), y)
        np.testing.assert_allclose(factor.eta, np.array(MATRIX) @ [1.0, -2.0])
        np.testing.assert_array_equal(factor.precision, MATRIX)


def test_a_scalar_precision_serves_both_gaussians_alike_and_batches():
    records = jnp.arange(6.0).reshape(3, 2)
    model = GaussianMean(2.0)
    full = jax.vmap(model.local_factor, (None, 0))(Gaussian.isotropic(2), records)
    diagonal = jax.vmap(model.local_factor, (None, 0))(DiagonalGaussian.isotropic(2), records)
    np.testing.assert_array_equal(full.eta, diagonal.eta)
    np.testing.assert_array_equal(full.precision, diagonal.precision[..., None] * np.eye(2))
    assert hash(GaussianMean(MATRIX)) == hash(GaussianMean(MATRIX))


def test_a_matrix_with_a_diagonal_gaussian_is_refused_with_the_way_out():
    with pytest.raises(TypeError, match=r"use families\.Gaussian"):
        GaussianMean(MATRIX).local_factor(DiagonalGaussian.isotropic(2), jnp.zeros(2))


def test_the_predictive_variance_adds_the_noise():
    mean, variance = GaussianMean(MATRIX).predictive(Gaussian.isotropic(2, 4.0))
    np.testing.assert_array_equal(mean, 0.0)
    np.testing.assert_allclose(variance, 0.25 + np.diag(np.linalg.inv(MATRIX)), rtol=1e-6)
    np.testing.assert_array_equal(
        GaussianMean().valid(jnp.array([[0.0, 1.0], [jnp.nan, 1.0]])), [True, False]
    )
