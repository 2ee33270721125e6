"""Mean and covariance from a few releases: exact without noise, and closer with every release under it."""

import math
from typing import Any

import numpy as np
import pytest

from dpsep.inference import moments
from dpsep.privacy.gate import Gate, authorise
from dpsep.privacy.grid import Block
from dpsep.privacy.mechanism import Mechanism, Schedule
from dpsep.privacy.noise import SeededStream
from dpsep.privacy.open_gate import OpenGate
from dpsep.privacy.sampling import FullBatch

from .sep_help import identity

ROWS, COLUMNS = 2000, 4
SIGMA = 20.0


def table(seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Three features and an outcome; two features are nearly the same."""
    rng = np.random.default_rng(seed)
    x = rng.uniform(-1, 1, (ROWS, 3))
    x[:, 2] = x[:, 1] + 0.012 * rng.uniform(-1, 1, ROWS)
    return x, 0.3 + 0.5 * x[:, 0] + 0.2 * rng.uniform(-1, 1, ROWS)


X, Y = table()
CELLS = np.column_stack([X, Y])


def blocks(*clips: float) -> list[Block]:
    first, second = clips or moments.clips(COLUMNS)
    return [Block("first", COLUMNS, first, 0.2), Block("second", COLUMNS, second, 0.8, "outer")]


def gate(steps: int, seed: int = 1, records: Any = (X, Y)) -> Gate:
    part = Mechanism(FullBatch(), "zero-out", steps, SIGMA, ROWS)
    permit = authorise(None, Schedule((part,)), 1e-5)
    contribution = moments.MomentContribution()
    return Gate(records, part, blocks(), contribution, permit, stream=SeededStream(seed))


def run(summed: Any, steps: int, columns: int = COLUMNS) -> moments.Moments:
    return moments.run(summed, identity(3), identity(), columns, steps)


@pytest.mark.parametrize("steps", [1, 2])
def test_without_clip_and_noise_mean_and_covariance_are_exact(steps: int) -> None:
    found = run(OpenGate((X, Y), blocks(math.inf, math.inf), moments.MomentContribution()), steps)
    np.testing.assert_allclose(found.mean, CELLS.mean(axis=0), atol=1e-12)
    np.testing.assert_allclose(found.covariance, np.cov(CELLS.T, bias=True), atol=1e-12)


def test_an_outcome_may_be_left_out() -> None:
    wide = [Block("first", 3, math.inf, 0.2), Block("second", 3, math.inf, 0.8, "outer")]
    found = run(OpenGate((X, Y), wide, moments.MomentContribution(with_outcome=False)), 2, 3)
    np.testing.assert_allclose(found.covariance, np.cov(X.T, bias=True), atol=1e-12)


def test_with_the_default_clip_and_no_noise_it_comes_close() -> None:
    found = run(OpenGate((X, Y), blocks(), moments.MomentContribution()), 5)
    np.testing.assert_allclose(found.mean, CELLS.mean(axis=0), atol=0.03)
    deviations = np.sqrt(np.diag(found.covariance))
    np.testing.assert_allclose(deviations, CELLS.std(axis=0), rtol=0.05)


def test_clips_grow_with_what_a_whitened_record_has() -> None:
    first, second = moments.clips(9)
    assert first == pytest.approx(1.25 * 3)
    assert second == pytest.approx(2.0 * 9)


def test_nearly_collinear_columns_are_seen_after_five_noisy_releases_and_not_after_one() -> None:
    truth = np.cov(CELLS.T, bias=True)
    values, vectors = np.linalg.eigh(truth)
    assert values[0] / values[-1] < 1.1e-4
    small = vectors[:, 0]
    for seed in range(5):
        one, five = (run(gate(steps, seed), steps).covariance for steps in (1, 5))
        assert small @ one @ small > 30 * values[0]
        assert 0.3 * values[0] < small @ five @ small < 5 * values[0]
        np.testing.assert_allclose(np.sqrt(np.diag(five)), CELLS.std(axis=0), rtol=0.25)


def test_the_square_root_is_never_singular_however_large_the_noise() -> None:
    """A release that says nothing at all leaves the guess: a floor of one at most."""
    rng = np.random.default_rng(0)
    found = moments.init(3)
    for _ in range(6):
        draws = rng.normal(size=(3, 3)) * 1e6
        released = {"first": rng.normal(size=3) * 1e3, "second": draws + draws.T}
        found = moments.update(found, released, 100.0, 1e6)
        assert np.isfinite(found.half).all()
        assert np.linalg.matrix_rank(found.half) == 3


def test_a_floor_keeps_directions_that_drown_in_noise() -> None:
    released = {"first": np.zeros(2), "second": np.diag([-500.0, 2000.0])}
    found = moments.update(moments.init(2), released, 1000.0, 50.0)
    floor = 0.3 * math.sqrt(4) * 50.0 / 1000.0
    np.testing.assert_allclose(np.linalg.eigvalsh(found.covariance), [floor, 2.0], rtol=1e-12)


@pytest.mark.parametrize("bad", [(np.nan, 0.0), (np.inf, 0.0), (0.0, np.nan), (0.0, np.inf)])
def test_a_bad_record_contributes_nothing(bad: tuple[float, float]) -> None:
    x, y = X.copy(), Y.copy()
    x[7, 0], y[7] = bad
    others = np.arange(ROWS) != 7
    summed = OpenGate((x, y), blocks(), moments.MomentContribution())
    public = moments.MomentPublic(identity(3), identity(), np.zeros(4), np.eye(4))  # pyright: ignore
    found = summed.release(public)
    expected = OpenGate((X[others], Y[others]), blocks(), moments.MomentContribution()).release(public)
    for name in ("first", "second"):
        np.testing.assert_array_equal(found[name], expected[name])
    assert not np.array_equal(
        found["first"], OpenGate((X, Y), blocks(), moments.MomentContribution()).release(public)["first"]
    )
