"""SEP for networks with independent weights: fixed points, the learned prior, and what it survives."""

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dpsep.inference import network_diagonal
from dpsep.models.concentrated_noise import ConcentratedNoise
from dpsep.models.network_diagonal import DiagonalFactors
from dpsep.models.network_model import NetworkRegression
from dpsep.privacy.grid import Block
from dpsep.privacy.open_gate import OpenGate

from .sep_help import identity

ROWS, FEATURES, STEPS = 400, 3, 300
MODEL = NetworkRegression((FEATURES, 1), noise_model=ConcentratedNoise())
SIGNS = np.array(
    [[1, 1, 1], [1, -1, 1], [-1, 1, 1], [-1, -1, 1], [1, 1, -1], [1, -1, -1], [-1, 1, -1], [-1, -1, -1]]
)
X = np.tile(SIGNS * [1.0, 2.0, 0.5], (ROWS // 8, 1))
Y = X @ [1.0, -0.5, 0.3] + 0.4 + 0.5 * np.random.default_rng(0).normal(size=ROWS)
DESIGN = np.column_stack([X, np.ones(ROWS)]) / math.sqrt(FEATURES + 1)
"""Orthogonal columns: the exact posterior of the weights is independent."""


def settings(**others: Any) -> network_diagonal.Settings:
    values: dict[str, Any] = {"rate": 0.2, "records": float(ROWS), "steps": float(STEPS)}
    return network_diagonal.Settings(identity(FEATURES), identity(), np.eye(FEATURES), **(values | others))


def open_gate() -> OpenGate:
    size = FEATURES + 1
    blocks = [Block("mean", size, math.inf), Block("precision", size, math.inf), Block("noise", 2, math.inf)]
    return OpenGate((X, Y), blocks, DiagonalFactors(MODEL))


@pytest.fixture(scope="module")
def state() -> network_diagonal.State:
    return network_diagonal.run(open_gate(), MODEL, settings(), STEPS)


def test_columns_are_orthogonal() -> None:
    gram = DESIGN.T @ DESIGN
    np.testing.assert_allclose(gram, np.diag(np.diag(gram)), atol=1e-9)


def test_with_orthogonal_inputs_the_fixed_point_is_bayesian_linear_regression(
    state: network_diagonal.State,
) -> None:
    found = network_diagonal.finish(settings(), state, learned_noise=True)
    assert found.noise is not None
    tau, prior = found.noise[0] / found.noise[1], np.asarray(state.prior)
    precision = tau * (DESIGN**2).sum(axis=0) + prior
    # A weight's factor accounts for the others' uncertainty: a difference of weights over records.
    np.testing.assert_allclose(1.0 / found.variance, precision, rtol=2 * MODEL.size / ROWS)
    np.testing.assert_allclose(found.mean, tau * DESIGN.T @ Y / precision, rtol=2 * MODEL.size / ROWS)
    residual = Y - DESIGN @ found.mean
    assert 1 / tau == pytest.approx(np.mean(residual**2), rel=2 * MODEL.size / ROWS)
    assert (found.blur == 0).all()


def test_labels_have_no_noise(state: network_diagonal.State) -> None:
    assert network_diagonal.finish(settings(), state, learned_noise=False).noise is None


def test_the_prior_precision_follows_from_the_weights(state: network_diagonal.State) -> None:
    square = float(np.sum(np.asarray(state.mean) ** 2 + 1.0 / np.asarray(state.precision)))
    expected = (6.0 + 0.5 * MODEL.size) / (6.0 + 0.5 * square)
    np.testing.assert_allclose(state.prior, np.full(MODEL.size, expected), rtol=1e-9)


def test_a_run_is_repeated_by_its_seed_and_starts_elsewhere_with_another() -> None:
    one, two, other = (network_diagonal.run(open_gate(), MODEL, settings(), 3, seed) for seed in (0, 0, 1))
    np.testing.assert_array_equal(one.mean, two.mean)
    assert not np.allclose(one.mean, other.mean)


def test_turned_inputs_give_the_same_predictions_where_all_weights_are_alike() -> None:
    """Columns of one length: a turn of them is orthogonal again, and the prior does not notice."""
    x = SIGNS[np.arange(ROWS) % 8].astype(float)
    turn = np.linalg.qr(np.random.default_rng(1).normal(size=(FEATURES, FEATURES)))[0]
    found = []
    for matrix in (np.eye(FEATURES), turn):
        gate = OpenGate((x, Y), open_gate().blocks, DiagonalFactors(MODEL))
        config = settings()._replace(turn=matrix)
        mean = network_diagonal.finish(
            config, network_diagonal.run(gate, MODEL, config, STEPS), learned_noise=True
        ).mean
        found.append(np.column_stack([x @ matrix, np.ones(ROWS)]) @ mean)
    np.testing.assert_allclose(found[0], found[1], atol=0.01)


@pytest.mark.parametrize("block", [0, 1, 2])
@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_step_that_leaves_the_finite_numbers_is_not_taken(block: int, bad: float) -> None:
    with jax.enable_x64(True):
        config = jax.tree.map(jnp.asarray, settings())
        start = network_diagonal.init(MODEL, config)
        released = [jnp.ones(MODEL.size), jnp.ones(MODEL.size), jnp.array([0.0, ROWS / 2])]
        good = network_diagonal._update(MODEL, config, start, tuple(released), float(ROWS), 1.0)
        assert not np.allclose(good.mean, start.mean)
        released[block] = released[block].at[1].set(bad)
        found = network_diagonal._update(MODEL, config, start, tuple(released), float(ROWS), 1.0)
        assert int(found.step) == 1
        for name in ("mean", "precision", "prior", "noise", "blur"):
            value = np.asarray(getattr(found, name))
            assert np.isfinite(value).all()
            if np.isnan(bad) and block < 2:
                np.testing.assert_array_equal(value, getattr(start, name))


def test_a_weight_moves_by_its_cap_at_most_and_one_batch_does_not_undo_its_precision() -> None:
    with jax.enable_x64(True):
        config = jax.tree.map(jnp.asarray, settings(cap=0.5, rate=0.1))
        state = network_diagonal.init(MODEL, config)
        released = (jnp.full(MODEL.size, 1e9), jnp.full(MODEL.size, -1e9))
        found = network_diagonal._update(MODEL, config, state, released, float(ROWS), 0.0)
        np.testing.assert_allclose(found.precision, 0.8 * state.precision, rtol=1e-9)
        expected = 0.5 / np.sqrt(np.asarray(found.precision))
        np.testing.assert_allclose(found.mean - state.mean, expected, rtol=1e-9)


def test_a_precision_stays_above_the_prior() -> None:
    with jax.enable_x64(True):
        config = jax.tree.map(jnp.asarray, settings(rate=0.5))
        state = network_diagonal.init(MODEL, config)
        released = (jnp.zeros(MODEL.size), jnp.full(MODEL.size, -1e9))
        found = network_diagonal._update(MODEL, config, state, released, float(ROWS), 0.0)
        np.testing.assert_array_equal(found.precision, state.prior)


def test_the_variance_that_noise_causes_is_the_one_that_is_carried() -> None:
    deviation, steps, seeds = 3.0, 40, 150
    config = settings(steps=float(steps), cap=1e6, rate=0.3)
    gate, finals, last = open_gate(), [], None
    with jax.enable_x64(True):
        values = jax.tree.map(jnp.asarray, config)
        for seed in range(seeds):
            rng = np.random.default_rng(seed)
            last = network_diagonal.init(MODEL, values)
            # Noise of the mean part alone, with the noise precision as it is.
            for _ in range(steps):
                sums = gate.release(network_diagonal._publish(MODEL, values, last))
                noisy = sums["mean"] + deviation * rng.normal(size=MODEL.size)
                parts = (jnp.asarray(noisy), jnp.asarray(sums["precision"]))
                last = network_diagonal._update(MODEL, values, last, parts, float(ROWS), deviation)
            finals.append(np.asarray(last.mean))
    assert last is not None
    ratio = np.var(finals, axis=0, ddof=1) / np.asarray(last.blur)
    assert np.all((ratio > 1 / 1.5) & (ratio < 1.5)), ratio
