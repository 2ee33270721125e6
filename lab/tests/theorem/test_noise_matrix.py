import numpy as np
import pytest
from scipy.special import erfc

from dpsep_lab.theorem import mean_bound, noise_draws, series_variance, tail, variance_statistic
from dpsep_lab.theorem.noise_matrix import second_moment, whitened_tail

SHARES = np.array([0.5, 1.0, 1.5, 2.0, 2.5, 3.0])


def norms(dimension: int, pairs: int = 20_000) -> np.ndarray:
    return np.abs(np.linalg.eigvalsh(noise_draws(dimension, 1.0, pairs)[:, 0])).max(1)


def covariance(dimension: int, seed: int = 3) -> np.ndarray:
    rng = np.random.default_rng(seed)
    root = rng.normal(size=(dimension, dimension))
    return root @ root.T


def test_draws_are_symmetric_with_one_variance_on_and_above_the_diagonal():
    draws = noise_draws(3, 0.5, 20_000)[:, 0]
    np.testing.assert_array_equal(draws, np.swapaxes(draws, 1, 2))
    np.testing.assert_allclose(draws.std(0), 0.5, rtol=0.03)
    upper = draws[:, *np.triu_indices(3)]
    np.testing.assert_allclose(np.corrcoef(upper.T), np.eye(6), atol=0.04)


def test_the_variance_statistic_is_the_norm_of_the_sum_of_squares():
    for dimension in (1, 2, 5):
        total = np.zeros((dimension, dimension))
        for i in range(dimension):
            for j in range(i, dimension):
                part = np.zeros((dimension, dimension))
                part[i, j] = part[j, i] = 1.0
                total += 0.09 * part @ part
        assert variance_statistic(dimension, 0.3) == pytest.approx(np.linalg.norm(total, 2))
        assert series_variance(np.eye(dimension), 0.3) == pytest.approx(np.linalg.norm(total, 2))


def test_the_mean_of_e_m_e_is_the_formula_and_not_that_of_twice_the_diagonal():
    matrix = covariance(3)
    draws = noise_draws(3, 0.7, 200_000)[:, 0]
    sampled = np.einsum("nij,jk,nkl->nil", draws, matrix, draws) / len(draws)
    sampled = sampled.sum(0) if sampled.ndim == 3 else sampled
    error = 6.0 * 0.49 * np.linalg.norm(matrix) * 3 / np.sqrt(len(draws))
    np.testing.assert_allclose(sampled, second_moment(matrix, 0.7), atol=error)
    wrong = 0.49 * (matrix + np.trace(matrix) * np.eye(3))
    assert np.abs(sampled - wrong).max() > 5 * error


@pytest.mark.parametrize("dimension", [1, 2, 4, 8])
def test_the_tail_bounds_the_norm_and_the_mean_bounds_the_largest_eigenvalue(dimension):
    found = norms(dimension)
    thresholds = SHARES * np.sqrt(dimension)
    observed = (found[:, None] >= thresholds).mean(0)
    assert (observed <= tail(dimension, 1.0, thresholds) + 4.0 * np.sqrt(observed / len(found))).all()
    largest = np.linalg.eigvalsh(noise_draws(dimension, 1.0, 20_000)[:, 0])[:, -1]
    assert largest.mean() <= mean_bound(dimension, 1.0) + 0.03


def test_a_tail_without_the_mean_of_the_norm_is_caught():
    thresholds = SHARES * np.sqrt(8)
    observed = (norms(8)[:, None] >= thresholds).mean(0)
    assert (observed > erfc(thresholds / np.sqrt(2.0 * (2.0 - 1.0 / 8)))).any()


def test_the_tail_is_exact_in_one_dimension():
    np.testing.assert_allclose(tail(1, 2.0, 2.0 * SHARES), erfc(SHARES / np.sqrt(2.0)), rtol=1e-12)


def test_the_whitened_tail_bounds_the_whitened_norm_and_sees_a_wide_spectrum():
    matrix = covariance(4)
    half = np.linalg.cholesky(matrix)
    draws = noise_draws(4, 1.0, 20_000)[:, 0]
    found = np.abs(np.linalg.eigvalsh(half.T @ draws @ half)).max(1)
    thresholds = SHARES * 2.0 * np.linalg.norm(matrix, 2)
    observed = (found[:, None] >= thresholds).mean(0)
    assert (observed <= whitened_tail(matrix, 1.0, thresholds) + 4.0 * np.sqrt(observed / len(found))).all()
    wide = np.diag([1.0, *[1e-6] * 9])
    assert whitened_tail(wide, 0.1, 0.8) < 1e-3 < tail(10, 0.1, 0.8)


@pytest.mark.parametrize(("dimension", "sigma_2"), [(0, 1.0), (2, -1.0), (2, np.inf)])
def test_an_impossible_dimension_or_scale_is_refused_by_name(dimension, sigma_2):
    with pytest.raises(ValueError, match=r"dimension is|sigma_2 is"):
        variance_statistic(dimension, sigma_2)
