from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats
from hypothesis import given, settings
from hypothesis import strategies as st

from dpsep.families import DiagonalGaussian, Gaussian


def random_moments(seed: int, dimension: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    root = rng.normal(size=(dimension, dimension))
    return rng.normal(size=dimension), root @ root.T + 0.1 * np.eye(dimension)


def kl_by_definition(m_p, cov_p, m_q, cov_q) -> float:
    inverse = np.linalg.inv(cov_q)
    logs = np.linalg.slogdet(cov_q)[1] - np.linalg.slogdet(cov_p)[1]
    return 0.5 * (np.trace(inverse @ cov_p) + (m_q - m_p) @ inverse @ (m_q - m_p) - len(m_p) + logs)


@given(st.integers(0, 10**6), st.sampled_from([1, 4]))
@settings(max_examples=25, deadline=None)
def test_moments_survive_the_round_trip(seed, dimension):
    mean, covariance = random_moments(seed, dimension)
    with jax.enable_x64(True):
        q = Gaussian.from_moments(mean, covariance)
        np.testing.assert_allclose(q.mean, mean, rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(q.covariance, covariance, rtol=1e-9, atol=1e-9)
        np.testing.assert_array_equal(q.covariance, q.covariance.T)
        np.testing.assert_allclose(q.variance, np.diag(covariance), rtol=1e-9)


@given(st.integers(0, 10**6), st.sampled_from([1, 4]))
@settings(max_examples=25, deadline=None)
def test_density_entropy_and_divergence_agree_with_scipy_and_the_closed_form(seed, dimension):
    mean, covariance = random_moments(seed, dimension)
    other_mean, other_covariance = random_moments(seed + 1, dimension)
    reference: Any = scipy.stats.multivariate_normal(mean, covariance)  # pyright: ignore
    x = np.ones(dimension)
    with jax.enable_x64(True):
        p, q = Gaussian.from_moments(mean, covariance), Gaussian.from_moments(other_mean, other_covariance)
        assert float(p.log_density(x)) == pytest.approx(reference.logpdf(x), rel=1e-9, abs=1e-9)
        assert float(p.entropy) == pytest.approx(reference.entropy(), rel=1e-9, abs=1e-9)
        expected = kl_by_definition(mean, covariance, other_mean, other_covariance)
        assert float(p.kl(q)) == pytest.approx(expected, rel=1e-8)
        assert float(p.kl(p)) == pytest.approx(0.0, abs=1e-11)
        # log density = eta x - x Lambda x / 2 - log partition
        raw = p.eta @ x - 0.5 * x @ p.precision @ x
        assert float(raw - p.log_partition) == pytest.approx(reference.logpdf(x), rel=1e-8, abs=1e-8)


@given(st.integers(0, 10**6), st.floats(0.01, 2.0))
@settings(max_examples=25, deadline=None)
def test_projection_raises_low_eigenvalues_and_only_those(seed, floor):
    rng = np.random.default_rng(seed)
    matrix = rng.normal(size=(4, 4))
    matrix = matrix + matrix.T
    with jax.enable_x64(True):
        projected = Gaussian(jnp.zeros(4), jnp.asarray(matrix)).project(floor).precision
        before, vectors = np.linalg.eigh(matrix)
        expected = vectors @ np.diag(np.maximum(before, floor)) @ vectors.T
        np.testing.assert_allclose(projected, expected, atol=1e-12)


def test_projection_returns_its_input_bit_for_bit_where_nothing_is_low():
    mean, covariance = random_moments(0, 5)
    q = Gaussian.from_moments(jnp.asarray(mean), jnp.asarray(covariance))
    np.testing.assert_array_equal(q.project(1e-3).precision, q.precision)
    batch = Gaussian(jnp.zeros((2, 2)), jnp.stack([jnp.eye(2) * 3.1, jnp.diag(jnp.array([-1.0, 2.0]))]))
    projected = jax.jit(lambda p: p.project(0.5))(batch)
    np.testing.assert_array_equal(projected.precision[0], batch.precision[0])
    np.testing.assert_allclose(projected.precision[1], np.diag([0.5, 2.0]), atol=1e-6)


def test_samples_have_the_moments_of_the_distribution():
    mean, covariance = random_moments(1, 3)
    with jax.enable_x64(True):
        draws = Gaussian.from_moments(mean, covariance).sample(jax.random.key(0), (200_000,))
    assert draws.shape == (200_000, 3)
    draws = np.asarray(draws)
    np.testing.assert_allclose(draws.mean(0), mean, atol=5 * np.sqrt(covariance.max() / 200_000))
    np.testing.assert_allclose(np.cov(draws.T), covariance, atol=0.03 * covariance.max())


def test_only_a_positive_definite_precision_is_proper():
    precisions = jnp.stack([jnp.eye(2), -jnp.eye(2), jnp.full((2, 2), jnp.nan)])
    np.testing.assert_array_equal(Gaussian(jnp.zeros((3, 2)), precisions).is_proper, [True, False, False])
    assert not Gaussian(jnp.array([jnp.nan, 0.0]), jnp.eye(2)).is_proper


@pytest.mark.parametrize(("wide", "rtol"), [(False, 1e-5), (True, 1e-13)])
def test_batches_jit_and_both_precisions_agree_with_single_entries(wide, rtol):
    with jax.enable_x64(wide):
        dtype = jnp.float64 if wide else jnp.float32
        pairs = [random_moments(seed, 3) for seed in range(4)]
        batch = Gaussian.from_moments(
            jnp.asarray([m for m, _ in pairs], dtype), jnp.asarray([c + np.eye(3) for _, c in pairs], dtype)
        )
        assert batch.eta.dtype == dtype

        def summary(p: Gaussian) -> jax.Array:
            parts = [p.log_partition, p.entropy, p.kl(p.project(0.6)), p.log_density(jnp.ones(3, dtype))]
            return jnp.stack([*parts, p.mean[..., 0], p.covariance[..., 0, 1]], -1)

        direct, mapped = jax.jit(summary)(batch), jax.vmap(summary)(batch)
        assert direct.dtype == dtype
        np.testing.assert_allclose(direct, mapped, rtol=rtol, atol=rtol)
        assert batch.sample(jax.random.key(0), (7,)).shape == (7, 4, 3)


def test_the_isotropic_constructors_agree():
    full, diagonal = Gaussian.isotropic(3, 2.0), DiagonalGaussian.isotropic(3, 2.0)
    np.testing.assert_array_equal(full.precision, np.diag(diagonal.precision))
    np.testing.assert_array_equal(full.eta, diagonal.eta)
