import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

from dpsep.families import Gaussian, GaussianSet, clip, norm, power, small

SIZES = [(3, 1), (4, 4), (2, 10)]  # the last is above the largest size that is unrolled


def random_moments(seed: int, components: int, dimension: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    root = rng.normal(size=(components, dimension, dimension))
    return rng.normal(size=(components, dimension)), root @ root.swapaxes(1, 2) + 0.3 * np.eye(dimension)


@pytest.mark.parametrize(("components", "dimension"), SIZES)
def test_moments_survive_the_round_trip(components, dimension):
    mean, covariance = random_moments(0, components, dimension)
    with jax.enable_x64(True):
        q = GaussianSet.from_moments(mean, covariance)
        assert q.components == components
        np.testing.assert_allclose(q.mean, mean, rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(q.covariance, covariance, rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(
            q.variance, np.diagonal(covariance, axis1=1, axis2=2), rtol=1e-9, atol=1e-12
        )


@pytest.mark.parametrize(("components", "dimension"), SIZES)
def test_density_and_entropy_are_those_of_independent_components(components, dimension):
    mean, covariance = random_moments(1, components, dimension)
    x = np.random.default_rng(2).normal(size=(components, dimension))
    each: list[Any] = [scipy.stats.multivariate_normal(m, c) for m, c in zip(mean, covariance, strict=True)]  # pyright: ignore
    with jax.enable_x64(True):
        q = GaussianSet.from_moments(mean, covariance)
        expected = sum(part.logpdf(point) for part, point in zip(each, x, strict=True))
        assert float(q.log_density(x)) == pytest.approx(expected, rel=1e-9)
        assert float(q.entropy) == pytest.approx(sum(part.entropy() for part in each), rel=1e-9)
        raw = np.sum(q.eta * x) - 0.5 * np.einsum("ji,jik,jk->", x, q.precision, x)
        assert float(raw - q.log_partition) == pytest.approx(expected, rel=1e-8)


def test_the_divergence_is_the_sum_over_components():
    mean, covariance = random_moments(3, 3, 4)
    other_mean, other_covariance = random_moments(4, 3, 4)
    expected = 0.0
    for m, c, n, d in zip(mean, covariance, other_mean, other_covariance, strict=True):
        logs = np.linalg.slogdet(d)[1] - np.linalg.slogdet(c)[1]
        expected += 0.5 * (
            np.trace(np.linalg.solve(d, c)) + (n - m) @ np.linalg.solve(d, n - m) - len(m) + logs
        )
    with jax.enable_x64(True):
        p = GaussianSet.from_moments(mean, covariance)
        q = GaussianSet.from_moments(other_mean, other_covariance)
        assert float(p.kl(q)) == pytest.approx(expected, rel=1e-9)
        assert float(p.kl(p)) == pytest.approx(0.0, abs=1e-10)


def test_all_components_together_are_one_event():
    q = GaussianSet(jnp.array([[3.0, 0.0], [0.0, 0.0]]), jnp.zeros((2, 2, 2)).at[1, 0, 1].set(4.0))
    assert norm(q).shape == ()
    assert float(norm(q)) == pytest.approx(5.0)
    shrunk = clip(q, 1.0)
    assert float(shrunk.eta[0, 0]) == pytest.approx(0.6)
    assert float(shrunk.precision[1, 0, 1]) == pytest.approx(0.8)
    batch = jax.tree.map(lambda leaf: jnp.stack([leaf, 2 * leaf, 0 * leaf]), q)
    np.testing.assert_allclose(norm(batch), [5.0, 10.0, 0.0])
    np.testing.assert_allclose(power(batch, jnp.array([1.0, 0.5, 3.0])).eta[1], q.eta)


@pytest.mark.parametrize("dimension", [2, 10])
def test_one_bad_component_makes_the_whole_improper(dimension):
    good = GaussianSet.isotropic(3, dimension, 2.0)
    assert good.is_proper.shape == ()
    assert bool(good.is_proper)
    assert not GaussianSet(good.eta, good.precision.at[1, 0, 0].set(-1.0)).is_proper
    assert not GaussianSet(good.eta, good.precision.at[1, 0, 0].set(0.0)).is_proper
    assert not GaussianSet(good.eta, good.precision.at[2, 1, 1].set(jnp.inf)).is_proper
    assert not GaussianSet(good.eta, good.precision.at[2, 0, 1].set(jnp.nan)).is_proper
    assert not GaussianSet(good.eta.at[0, 0].set(jnp.nan), good.precision).is_proper


@pytest.mark.parametrize("dimension", [1, 4, 10])
@pytest.mark.parametrize("floor", [1e-6, 0.7])
def test_projection_raises_low_eigenvalues_of_any_component_and_only_those(dimension, floor):
    rng = np.random.default_rng(5)
    matrices = rng.normal(size=(6, dimension, dimension))
    matrices = matrices + matrices.swapaxes(1, 2)
    matrices[0] = np.eye(dimension) * 3.1
    values, vectors = np.linalg.eigh(matrices)
    expected = np.einsum("jik,jk,jlk->jil", vectors, np.maximum(values, floor), vectors)
    with jax.enable_x64(True):
        projected = jax.jit(lambda p: p.project(floor))(GaussianSet(jnp.ones((6, dimension)), matrices))  # pyright: ignore
        np.testing.assert_allclose(projected.precision, expected, atol=1e-12)
        np.testing.assert_array_equal(projected.precision[0], matrices[0])
        np.testing.assert_array_equal(projected.eta, 1.0)


def test_projection_returns_its_input_bit_for_bit_where_nothing_is_low():
    mean, covariance = random_moments(6, 4, 4)
    q = GaussianSet.from_moments(jnp.asarray(mean), jnp.asarray(covariance))
    np.testing.assert_array_equal(q.project(1e-3).precision, q.precision)


def test_samples_have_the_moments_of_the_distribution():
    mean, covariance = random_moments(7, 2, 3)
    with jax.enable_x64(True):
        draws = np.asarray(GaussianSet.from_moments(mean, covariance).sample(jax.random.key(0), (200_000,)))
    assert draws.shape == (200_000, 2, 3)
    for j in range(2):
        spread = covariance[j].max()
        np.testing.assert_allclose(draws[:, j].mean(0), mean[j], atol=5 * math.sqrt(spread / 200_000))
        np.testing.assert_allclose(np.cov(draws[:, j].T), covariance[j], atol=0.03 * spread)
    assert abs(np.corrcoef(draws[:, 0, 0], draws[:, 1, 0])[0, 1]) < 5 / math.sqrt(200_000)


@pytest.mark.parametrize(("wide", "rtol"), [(False, 1e-4), (True, 1e-12)])
def test_batches_jit_and_both_precisions_agree_with_single_entries(wide, rtol):
    with jax.enable_x64(wide):
        dtype = jnp.float64 if wide else jnp.float32
        pairs = [random_moments(seed, 2, 3) for seed in range(4)]
        batch = GaussianSet.from_moments(
            jnp.asarray([m for m, _ in pairs], dtype), jnp.asarray([c + np.eye(3) for _, c in pairs], dtype)
        )

        def summary(p: GaussianSet) -> jax.Array:
            parts = [p.log_partition, p.entropy, p.kl(p.project(0.6)), p.log_density(jnp.ones((2, 3), dtype))]
            parts += [p.mean[..., 1, 0], p.covariance[..., 0, 0, 1], p.is_proper.astype(dtype)]
            return jnp.stack(parts, -1)

        direct, mapped = jax.jit(summary)(batch), jax.vmap(summary)(batch)
        assert direct.shape == (4, 7)
        assert direct.dtype == dtype
        np.testing.assert_allclose(direct, mapped, rtol=rtol, atol=rtol)
        assert batch.sample(jax.random.key(0), (7,)).shape == (7, 4, 2, 3)


def test_the_isotropic_set_is_a_stack_of_isotropic_gaussians():
    q, one = GaussianSet.isotropic(3, 2, 0.5), Gaussian.isotropic(2, 0.5)
    np.testing.assert_array_equal(q.precision, np.stack([one.precision] * 3))
    np.testing.assert_array_equal(q.eta, np.zeros((3, 2)))


@pytest.mark.parametrize("dimension", [1, 2, 5, 8, 9])
def test_small_matrices_are_inverted_and_solved_as_numpy_does(dimension):
    mean, matrices = random_moments(8, 3, dimension)
    with jax.enable_x64(True):
        inverse = small.inverse(jnp.asarray(matrices))
        np.testing.assert_allclose(inverse, np.linalg.inv(matrices), rtol=1e-9, atol=1e-9)
        np.testing.assert_array_equal(inverse, np.swapaxes(inverse, 1, 2))
        many = np.stack([mean, 2 * mean])  # batch axes broadcast
        solution, logs = small.solve(jnp.asarray(matrices), jnp.asarray(many))
        np.testing.assert_allclose(
            solution[1], np.linalg.solve(matrices, 2 * mean[..., None])[..., 0], rtol=1e-8
        )
        np.testing.assert_allclose(logs, np.linalg.slogdet(matrices)[1], rtol=1e-10, atol=1e-12)
        np.testing.assert_allclose(
            small.multiply(jnp.asarray(matrices), jnp.asarray(mean)), np.einsum("jik,jk->ji", matrices, mean)
        )


@pytest.mark.parametrize("dimension", [2, 5, 9])
def test_pivots_tell_whether_the_least_eigenvalue_is_above_a_floor(dimension):
    rng = np.random.default_rng(9)
    matrices = rng.normal(size=(50, dimension, dimension))
    matrices = matrices + matrices.swapaxes(1, 2) + 2 * np.sqrt(dimension) * np.eye(dimension)
    least = np.linalg.eigvalsh(matrices)[:, 0]
    floor = float(np.median(least))  # half of them are above
    with jax.enable_x64(True):
        above = small.is_above(jnp.asarray(matrices), floor + 1e-9)
        np.testing.assert_array_equal(above, least > floor + 1e-9)
        assert 0 < np.sum(above) < 50
        assert np.all(np.isnan(small.inverse(-jnp.eye(dimension))))
