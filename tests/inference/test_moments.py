"""Mean and covariance from a few looks: exact without noise on any column, closer with each look under it."""

import math
from functools import partial
from typing import Any

import numpy as np
import pytest

from dpsep.inference import moments
from dpsep.inference.leverage import look
from dpsep.models.weighted import Seen
from dpsep.privacy.gate import Gate, authorise
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


def private(looks: int, seed: int = 1, records: Any = (X, Y)) -> Any:
    part = Mechanism(FullBatch(), "zero-out", 2 * looks, SIGMA, ROWS)
    permit = authorise(None, Schedule((part,)), 1e-5)
    stream = SeededStream(seed)
    return lambda blocks, contribution: Gate(records, part, blocks, contribution, permit, stream=stream)


def exact(x: np.ndarray, y: np.ndarray) -> Any:
    return partial(OpenGate, (x, y))


def run(opened: Any, looks: int, features: int = 3, *, target: bool = True) -> moments.Moments:
    columns = features + target
    return moments.run(opened, identity(features), identity(), columns, looks, target=target)


def relative(found: np.ndarray, truth: np.ndarray) -> np.ndarray:
    """Eigenvalues of a covariance relative to the truth."""
    root = np.linalg.inv(np.linalg.cholesky(truth))
    return np.linalg.eigvalsh(root @ found @ root.T)


@pytest.mark.parametrize("looks", [1, 2, 5])
def test_without_noise_mean_and_covariance_are_nearly_exact(looks: int) -> None:
    found = run(exact(X, Y), looks)
    np.testing.assert_allclose(found.mean, CELLS.mean(axis=0), atol=0.01)
    values = relative(found.covariance, np.cov(CELLS.T, bias=True))
    assert values.min() > 0.9
    assert values.max() < 1.02
    assert found.edge == 0.0


def test_an_outcome_may_be_left_out() -> None:
    found = run(exact(X, Y), 1, target=False)
    np.testing.assert_allclose(found.covariance, np.cov(X.T, bias=True), atol=1e-3)


@pytest.mark.parametrize("share", [0.1, 0.015, 0.005])
@pytest.mark.parametrize("looks", [1, 2, 5])
def test_no_direction_loses_a_tenth_however_rare_a_column_is(share: float, looks: int) -> None:
    """A cap that is derived from what it has shaped found 0.044 of the deviation of the second one."""
    rng = np.random.default_rng(1)
    rows = 10_000
    rare = (rng.uniform(size=(rows, 2)) < share) * 2.0 - 1.0
    x = np.column_stack([rng.uniform(-1, 1, (rows, 3)), rare, np.exp(rng.normal(size=rows)) / 20 - 1])
    y = 0.2 * x[:, 0] + 0.3 * rare[:, 0] + 0.1 * rng.normal(size=rows)
    found = run(exact(x, y), looks, 6)
    truth = np.cov(np.column_stack([x, y]).T, bias=True)
    values = relative(found.covariance, truth)
    assert values.min() >= 0.9
    assert values.max() < 1.02
    assert np.sqrt(np.diag(found.covariance)[3] / truth[3, 3]) > 0.95


def test_nearly_collinear_columns_are_seen_after_five_noisy_looks_and_not_after_one() -> None:
    truth = np.cov(CELLS.T, bias=True)
    values, vectors = np.linalg.eigh(truth)
    assert values[0] / values[-1] < 1.1e-4
    small = vectors[:, 0]
    for seed in range(5):
        one, five = (run(private(looks, seed), looks).covariance for looks in (1, 5))
        assert small @ one @ small > 30 * values[0]
        assert 0.3 * values[0] < small @ five @ small < 5 * values[0]
        np.testing.assert_allclose(np.sqrt(np.diag(five)), CELLS.std(axis=0), rtol=0.25)


def test_the_square_root_is_never_singular_however_large_the_noise() -> None:
    """A release that says nothing at all leaves the guess: a floor of one at most."""
    rng = np.random.default_rng(0)
    half = np.eye(3)
    for _ in range(6):
        draws = rng.normal(size=(3, 3)) * 1e4
        half = moments.closer(half, draws + draws.T, 1e4)
        assert np.isfinite(half).all()
        assert np.linalg.matrix_rank(half) == 3
        np.testing.assert_array_equal(half, np.tril(half))


def test_a_floor_keeps_directions_that_drown_in_noise() -> None:
    edge = math.sqrt(4) * 0.05
    found = moments.closer(np.eye(2), np.diag([-0.5, 2.0]), edge)
    np.testing.assert_allclose(np.linalg.eigvalsh(found @ found.T), [0.3 * edge, 2.0], rtol=1e-12)


@pytest.mark.parametrize("bad", [(np.nan, 0.0), (np.inf, 0.0), (0.0, np.nan), (0.0, np.inf)])
def test_a_bad_record_contributes_nothing(bad: tuple[float, float]) -> None:
    x, y = X.copy(), Y.copy()
    x[7, 0], y[7] = bad
    others = np.arange(ROWS) != 7
    public = Seen(identity(3), identity(), np.eye(5), np.float64(64.0))  # pyright: ignore
    spoilt, without, whole = (
        look(exact(*records), public, target=True)[0] * len(records[0])
        for records in ((x, y), (X[others], Y[others]), (X, Y))
    )
    np.testing.assert_allclose(spoilt, without, rtol=1e-12)
    assert np.abs(whole - without).max() > 1e-3
