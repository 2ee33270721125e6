"""The sketch of a mixture: norms, frequencies, and the characteristic function that it estimates."""

import math
from typing import Any

import jax
import numpy as np
import pytest

from dpsep.models.glm import Columns
from dpsep.models.sketch import Sketch, draw_frequencies


def sketch(x: np.ndarray, frequencies: np.ndarray, columns: Columns | None = None) -> np.ndarray:
    edge, width = np.full(x.shape[1], np.inf), x.shape[1]
    plain: Any = (-edge, edge, np.zeros(width), np.ones(width))
    public: Any = (columns or Columns(*plain), frequencies)
    chunk: Any = (x,)
    with jax.enable_x64(True):
        (rows,) = Sketch()(public, chunk)
        return np.asarray(rows)


def characteristic(
    frequencies: np.ndarray, weights: np.ndarray, means: np.ndarray, variances: np.ndarray
) -> np.ndarray:
    """E exp(i omega . x) of a mixture of Gaussians: cosines, then sines."""
    values = np.zeros(len(frequencies), complex)
    for weight, mean, variance in zip(weights, means, variances, strict=True):
        values += weight * np.exp(1j * frequencies @ mean - 0.5 * frequencies**2 @ variance)
    return np.concatenate([np.real(values), np.imag(values)])


def test_every_finite_record_has_the_norm_that_is_accounted_for() -> None:
    frequencies = draw_frequencies(50, np.array([0.1, 1.0, 30.0]), 0.3, 20.0, even=False)
    rng = np.random.default_rng(0)
    x = rng.normal(size=(200, 3)) * 10.0 ** rng.uniform(-8, 12, (200, 1))
    extreme = np.array(
        [[1e300, -1e300, 0], [1e300, 1e300, 1e300], [0, 0, 0], [5e-324, 2.0**53 + 1, -0.0], [-1e160, 3, 1e15]]
    )
    rows = sketch(np.concatenate([x, extreme]), frequencies)
    assert np.isfinite(rows).all()
    np.testing.assert_allclose(np.linalg.norm(rows, axis=1), math.sqrt(50), rtol=1e-12)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_a_bad_cell_spoils_its_record_whole_and_no_other(bad: float) -> None:
    frequencies = draw_frequencies(20, np.ones(2), 0.3, 2.0, even=True)
    x = np.random.default_rng(0).normal(size=(5, 2))
    good = sketch(x, frequencies)
    x[3, 0] = bad
    rows = sketch(x, frequencies)
    assert np.isnan(rows[3]).all()
    np.testing.assert_array_equal(np.delete(rows, 3, 0), np.delete(good, 3, 0))


def test_cosines_come_first_of_cells_clamped_shifted_and_scaled() -> None:
    columns: Any = (np.array([-1.0]), np.array([5.0]), np.array([2.0]), np.array([3.0]))
    rows = sketch(np.array([[9.0], [0.5], [-7.0]]), np.array([[0.7], [2.0]]), Columns(*columns))
    places = np.array([1.0, -0.5, -1.0])[:, None] * np.array([0.7, 2.0])
    np.testing.assert_allclose(rows, np.concatenate([np.cos(places), np.sin(places)], axis=1), atol=1e-15)


def test_the_mean_sketch_is_the_characteristic_function_of_the_mixture() -> None:
    weights, means = np.array([0.2, 0.5, 0.3]), np.array([[0.0, 1.0], [-1.0, -0.5], [0.8, -0.9]])
    variances = np.array([[0.04, 0.1], [0.3, 0.02], [0.09, 0.09]])
    frequencies = draw_frequencies(64, np.ones(2), 0.7, 10.0, even=False)
    rng = np.random.default_rng(5)
    size = 100_000
    labels = rng.choice(3, size, p=weights)
    rows = sketch(means[labels] + np.sqrt(variances[labels]) * rng.normal(size=(size, 2)), frequencies)
    expected = characteristic(frequencies, weights, means, variances)
    error = (rows.mean(0) - expected) / (rows.std(0) / math.sqrt(size))
    assert np.abs(error).max() < 4.5
    assert np.sqrt(np.mean(error**2)) == pytest.approx(1.0, abs=0.35)


def test_frequencies_are_public_the_same_at_every_call() -> None:
    one, two = (draw_frequencies(30, np.array([0.5, 2.0]), 0.3, 2.0, even=True) for _ in range(2))
    np.testing.assert_array_equal(one, two)
    narrow = draw_frequencies(30, np.array([0.05, 0.2]), 0.3, 2.0, even=True)
    np.testing.assert_allclose(narrow, 10 * one, rtol=1e-12)


@pytest.mark.parametrize("even", [True, False])
def test_lengths_fill_their_range_and_directions_the_sphere(even: bool) -> None:
    drawn = draw_frequencies(4000, np.ones(3), 0.5, 8.0, even=even)
    lengths = np.linalg.norm(drawn, axis=1)
    assert lengths.min() >= 0.5 - 1e-12
    assert lengths.max() <= 8.0 + 1e-12
    median = 4.25 if even else 2.0  # half way, of the lengths or of their logarithms
    assert np.median(lengths) == pytest.approx(median, rel=0.08)
    directions = drawn / lengths[:, None]
    assert np.abs(directions.mean(0)).max() < 0.05
    np.testing.assert_allclose(directions.T @ directions / 4000, np.eye(3) / 3, atol=0.03)
