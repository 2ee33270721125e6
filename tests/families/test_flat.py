import jax
import jax.numpy as jnp
import numpy as np

from dpsep.families import DiagonalGaussian, Gamma, Gaussian, GaussianSet, norm
from dpsep.families.flat import from_vector, sizes, to_vector
from dpsep.models import WeightsAndNoise


def symmetric(seed: int, d: int) -> np.ndarray:
    matrix = np.random.default_rng(seed).normal(size=(d, d))
    return matrix + matrix.T


def test_a_matrix_enters_as_its_upper_triangle_with_the_root_of_two_off_the_diagonal():
    with jax.enable_x64(True):
        matrix = jnp.array([[1.0, 2.0, 3.0], [2.0, 4.0, 5.0], [3.0, 5.0, 6.0]])
        vector = to_vector(Gaussian(jnp.array([7.0, 8.0, 9.0]), matrix))
        root = np.sqrt(2.0)
        np.testing.assert_allclose(vector, [7, 8, 9, 1, 2 * root, 3 * root, 4, 5 * root, 6], rtol=1e-15)


def three_by_three() -> GaussianSet:
    """As many components as dimensions: no shape tells means from matrices."""
    precision = np.stack([symmetric(seed, 3) for seed in (3, 4, 5)])
    return GaussianSet(jnp.arange(9.0).reshape(3, 3), jnp.asarray(precision))


def test_a_set_of_gaussians_enters_with_all_its_means_and_a_triangle_for_each_component():
    with jax.enable_x64(True):
        q, root = three_by_three(), np.sqrt(2.0)
        vector = to_vector(q)
        assert sizes(q) == (9, 18)
        np.testing.assert_array_equal(vector[:9], np.arange(9.0))
        a = symmetric(4, 3)
        second = [a[0, 0], root * a[0, 1], root * a[0, 2], a[1, 1], root * a[1, 2], a[2, 2]]
        np.testing.assert_allclose(vector[15:21], second, rtol=1e-15)
        np.testing.assert_allclose(np.linalg.norm(vector), norm(q), rtol=1e-14)


def test_sizes_count_the_coordinates_of_each_leaf():
    full = Gaussian.isotropic(4)
    noise = Gamma(jnp.asarray(0.5), jnp.asarray(2.0))
    assert sizes(full) == (4, 10)
    assert sizes(WeightsAndNoise(full, noise)) == (4, 10, 1, 1)
    assert sum(sizes(full)) == len(to_vector(full))


def test_the_norm_of_the_vector_is_that_of_the_parameters():
    with jax.enable_x64(True):
        eta, matrix = np.arange(4.0), symmetric(0, 4)
        factor = WeightsAndNoise(
            Gaussian(jnp.asarray(eta), jnp.asarray(matrix)), Gamma(jnp.asarray(0.5), jnp.asarray(-2.0))
        )
        expected = np.sqrt(eta @ eta + np.linalg.norm(matrix) ** 2 + 0.25 + 4.0)
        np.testing.assert_allclose(np.linalg.norm(to_vector(factor)), expected, rtol=1e-14)
        np.testing.assert_allclose(norm(factor), expected, rtol=1e-14)


def test_a_vector_turns_back_into_the_parameters_it_came_from():
    with jax.enable_x64(True):
        full = Gaussian(jnp.arange(3.0), jnp.asarray(symmetric(1, 3)))
        for p in (
            full,
            DiagonalGaussian(jnp.arange(3.0), jnp.ones(3)),
            WeightsAndNoise(full, Gamma(jnp.asarray(0.5), jnp.asarray(2.0))),
            {"b": full, "a": jnp.asarray(3.0)},
            (three_by_three(), {"a": full}),
        ):
            back = from_vector(p, to_vector(p))
            assert jax.tree.structure(back) == jax.tree.structure(p)
            for new, old in zip(jax.tree.leaves(back), jax.tree.leaves(p), strict=True):
                assert new.shape == old.shape
                np.testing.assert_allclose(new, old, rtol=1e-15)


def test_single_precision_stays_single_and_batches_map():
    p = Gaussian(jnp.ones((5, 2), jnp.float32), jnp.tile(jnp.eye(2, dtype=jnp.float32), (5, 1, 1)))
    vectors = jax.jit(jax.vmap(to_vector))(p)
    assert vectors.shape == (5, 5)
    assert vectors.dtype == jnp.float32
    one = jax.tree.map(lambda leaf: leaf[0], p)
    back = jax.vmap(lambda vector: from_vector(one, vector))(vectors)
    assert back.precision.dtype == jnp.float32
    np.testing.assert_array_equal(back.precision, p.precision)
