"""The stable update over models of several numbers: its fixed point, and when negative parts count."""

from typing import Any

import numpy as np
import pytest

from dpsep.inference import multi_predictor, sep_newton
from dpsep.models.glm import Columns
from dpsep.models.multi_predictor import LinkedPublic

SIZE, RECORDS = 2, 100


class Quadratic:
    """A gate of Gaussian units, whose summed factors are known, and which writes down what it was asked."""

    records = RECORDS
    expected_batch = float(RECORDS)

    def __init__(self, noise: float = 0.0) -> None:
        self.deviations = {"mean": noise, "precision": noise}
        self.asked: list[bool] = []
        root = np.array([[3.0, 0.0], [1.0, 2.0]])
        self.precision = root @ root.T
        self.best = np.array([1.0, -2.0])

    def release(self, public: Any) -> dict[str, np.ndarray]:
        assert isinstance(public, LinkedPublic)
        self.asked.append(bool(public.positive))
        half = np.asarray(public.base.half)
        whitened = half @ self.precision @ half.T
        row, column = np.triu_indices(SIZE)
        return {
            "mean": half @ self.precision @ (self.best - np.asarray(public.base.centre)),
            "precision": whitened[row, column] * np.where(row == column, 1.0, np.sqrt(2.0)),
        }


def settings(warmup: int = 0) -> sep_newton.Settings:
    flat = Columns(*(np.zeros(SIZE) for _ in range(4)))  # pyright: ignore[reportArgumentType]
    return sep_newton.Settings(
        np.zeros(SIZE), np.eye(SIZE), flat, flat, np.ones(SIZE), warmup=warmup, least=0.05
    )


def test_released_triangles_become_matrices() -> None:
    gate = Quadratic()
    state = sep_newton.init(settings())
    public, factor = sep_newton.publish(settings(), state, RECORDS)
    released = multi_predictor.Matrices(gate, SIZE).release(public)
    np.testing.assert_allclose(factor @ released["precision"] @ factor.T, gate.precision, rtol=1e-12)


def test_the_fixed_point_is_prior_times_factors() -> None:
    gate = Quadratic()
    q = sep_newton.posterior(settings(), multi_predictor.run(gate, settings(), 50, 1e-12))
    precision = np.eye(SIZE) + gate.precision
    np.testing.assert_allclose(q.precision, precision, rtol=1e-9)
    np.testing.assert_allclose(q.eta, gate.precision @ gate.best, rtol=1e-8)


def test_without_noise_negative_parts_count_once_the_mean_rests_and_only_then_it_ends() -> None:
    gate = Quadratic()
    multi_predictor.run(gate, settings(), 50, 1e-9)
    assert gate.asked[0]
    assert not gate.asked[-1]
    assert sorted(gate.asked, reverse=True) == gate.asked, "it never turns back"
    assert len(gate.asked) < 50


def test_with_noise_the_warmup_decides_and_all_steps_are_taken() -> None:
    gate = Quadratic(noise=1e-9)
    state = multi_predictor.run(gate, settings(warmup=3), 8, tolerance=1.0)
    assert gate.asked == [True] * 3 + [False] * 5
    assert state.step == 8


@pytest.mark.parametrize("tolerance", [0.0, 1e-9])
def test_no_more_steps_are_taken_than_asked_for(tolerance: float) -> None:
    gate = Quadratic()
    assert multi_predictor.run(gate, settings(), 2, tolerance).step == 2
