import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpsep.families import DiagonalGaussian, Gamma, Gaussian, clip, divide, multiply, norm, power, zeros_like


def random_tree(seed: int, scale: float = 1.0):
    rng = np.random.default_rng(seed)
    matrix = rng.normal(size=(3, 3))
    return (
        Gaussian(jnp.asarray(scale * rng.normal(size=3)), jnp.asarray(scale * (matrix + matrix.T))),
        DiagonalGaussian(jnp.asarray(scale * rng.normal(size=2)), jnp.asarray(scale * rng.normal(size=2))),
        Gamma(jnp.asarray(scale * rng.normal()), jnp.asarray(scale * rng.normal())),
    )


def flat(tree) -> np.ndarray:
    return np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(tree)])


@given(st.integers(0, 10**6), st.integers(0, 10**6))
@settings(max_examples=25, deadline=None)
def test_dividing_undoes_multiplying(first, second):
    with jax.enable_x64(True):
        p, q = random_tree(first), random_tree(second)
        np.testing.assert_allclose(flat(divide(multiply(p, q), q)), flat(p), atol=1e-14)


@given(st.integers(0, 10**6), st.floats(1e-3, 1e3))
@settings(max_examples=25, deadline=None)
def test_the_norm_is_that_of_the_flat_vector_and_scales_with_powers(seed, exponent):
    with jax.enable_x64(True):
        p = random_tree(seed)
        assert float(norm(p)) == pytest.approx(np.linalg.norm(flat(p)), rel=1e-13)
        assert float(norm(power(p, exponent))) == pytest.approx(exponent * np.linalg.norm(flat(p)), rel=1e-13)


def test_a_symmetric_matrix_counts_as_its_upper_triangle_with_root_two_off_the_diagonal():
    with jax.enable_x64(True):
        p = random_tree(3)[0]
        rows, columns = np.triu_indices(3)
        triangle = np.asarray(p.precision)[rows, columns] * np.where(rows == columns, 1.0, np.sqrt(2.0))
        expected = np.linalg.norm(np.concatenate([p.eta, triangle]))
        assert float(norm(p)) == pytest.approx(expected, rel=1e-14)


@pytest.mark.parametrize("scale", [1e-30, 1.0, 1e25])
def test_the_norm_neither_overflows_nor_vanishes_in_float32(scale):
    p = DiagonalGaussian(jnp.array([3.0 * scale]), jnp.array([4.0 * scale]))
    assert float(norm(p)) == pytest.approx(5.0 * scale, rel=1e-6)


@given(st.integers(0, 10**6), st.floats(1e-6, 1e6))
@settings(max_examples=25, deadline=None)
def test_clipping_bounds_the_norm_and_keeps_the_direction(seed, bound):
    with jax.enable_x64(True):
        p = random_tree(seed, 10.0)
        clipped = clip(p, bound)
        assert np.linalg.norm(flat(clipped)) <= bound * (1 + 1e-14)
        cosine = flat(clipped) @ flat(p) / np.linalg.norm(flat(clipped)) / np.linalg.norm(flat(p))
        assert cosine == pytest.approx(1.0, abs=1e-13)


@pytest.mark.parametrize("bound", [np.inf, 1e9])
def test_what_is_within_the_bound_comes_back_bit_for_bit(bound):
    p = random_tree(5)
    np.testing.assert_array_equal(flat(clip(p, bound)), flat(p))


def test_a_bound_of_infinity_returns_even_what_is_not_finite():
    p = DiagonalGaussian(jnp.array([jnp.inf]), jnp.array([1.0]))
    np.testing.assert_array_equal(flat(clip(p, jnp.inf)), [np.inf, 1.0])


def test_a_bound_of_zero_gives_exact_zeros():
    np.testing.assert_array_equal(flat(clip(random_tree(1), 0.0)), 0.0)


@pytest.mark.parametrize("bound", [0.0, 1.0, np.inf])
def test_clipping_zero_gives_zero_and_no_nan(bound):
    np.testing.assert_array_equal(flat(clip(zeros_like(random_tree(1)), bound)), 0.0)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite_becomes_zero_under_a_finite_bound(bad):
    p = DiagonalGaussian(jnp.array([bad, 1.0]), jnp.array([1.0, 2.0]))
    np.testing.assert_array_equal(flat(clip(p, 1.0)), 0.0)


def test_batches_are_clipped_entry_by_entry_under_jit_and_vmap_alike():
    rng = np.random.default_rng(0)
    batch = Gaussian(jnp.asarray(rng.normal(size=(5, 2))), jnp.asarray(rng.normal(size=(5, 2, 2))))
    direct = jax.jit(clip)(batch, 1.0)
    mapped = jax.vmap(lambda p: clip(p, 1.0))(batch)
    np.testing.assert_allclose(flat(direct), flat(mapped), rtol=1e-6)
    assert norm(batch).shape == (5,)
    assert power(batch, jnp.arange(5.0)).precision.shape == (5, 2, 2)
    np.testing.assert_array_equal(power(batch, jnp.arange(5.0)).eta[2], 2 * batch.eta[2])


def test_dictionaries_and_bare_arrays_count_as_parts():
    tree = {
        "b": [jnp.array([3.0])],
        "a": random_tree(0)[1]._replace(eta=jnp.array([4.0, 0.0]), precision=jnp.zeros(2)),
    }
    assert float(norm(tree)) == pytest.approx(5.0)
    np.testing.assert_allclose(clip(tree, 1.0)["b"][0], [0.6], rtol=1e-6)
