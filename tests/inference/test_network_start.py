"""Where a network starts, a linear model read off moments, and the noise variance that it learns."""

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dpsep.inference import moments, network
from dpsep.models.concentrated_noise import ConcentratedNoise
from dpsep.models.network_factors import NetworkFactors, through
from dpsep.privacy.grid import Block
from dpsep.privacy.open_gate import OpenGate

from .sep_help import identity

ROWS, FEATURES = 600, 3
RNG = np.random.default_rng(0)
X = RNG.normal(size=(ROWS, FEATURES)) @ np.array([[1.0, 0.8, 0.0], [0.0, 0.6, 0.0], [0.0, 0.0, 0.5]])
Y = X @ [1.0, -0.5, 0.3] + 0.5 * RNG.normal(size=ROWS)
CELLS = np.column_stack([X - X.mean(axis=0), Y - Y.mean()])
COVARIANCE = CELLS.T @ CELLS / ROWS
HALF = np.linalg.cholesky(COVARIANCE)


def settings(**others: Any) -> network.Settings:
    values: dict[str, Any] = {"rate": 0.5, "cap": 1e6, "records": float(ROWS), "steps": 120.0}
    values |= {"features": identity(FEATURES), "outcome": identity()}
    return network.Settings(input_mean=np.zeros(FEATURES), input_half=HALF[:-1, :-1], **(values | others))


def test_a_linear_model_off_the_moments_is_least_squares() -> None:
    weights, left = moments.regression(HALF, 0.0)
    expected, residual, *_ = np.linalg.lstsq(CELLS[:, :-1], CELLS[:, -1], rcond=None)
    np.testing.assert_allclose(weights, expected, rtol=1e-10)
    assert left == pytest.approx(float(residual[0]) / ROWS, rel=1e-10)
    turned = HALF @ np.linalg.qr(RNG.normal(size=(4, 4)))[0]
    np.testing.assert_allclose(moments.regression(turned, 0.0)[0], expected, rtol=1e-9)


def test_a_ridge_shrinks_weights_and_what_is_left_is_what_they_leave() -> None:
    weights, left = moments.regression(HALF, 0.3)
    x, y = CELLS[:, :-1], CELLS[:, -1]
    expected = np.linalg.solve(x.T @ x / ROWS + 0.3 * np.eye(FEATURES), x.T @ y / ROWS)
    np.testing.assert_allclose(weights, expected, rtol=1e-10)
    assert left == pytest.approx(float(np.mean((y - x @ expected) ** 2)), rel=1e-10)
    assert left > moments.regression(HALF, 0.0)[1]
    assert moments.regression(HALF, 1e12)[1] == pytest.approx(float(np.mean(y**2)), rel=1e-6)


def test_what_is_left_is_never_negative() -> None:
    """An exact relation between the columns leaves nothing, and rounding may not make it less."""
    for seed in range(50):
        rng = np.random.default_rng(seed)
        half = rng.normal(size=(4, 4)) * 10.0 ** rng.uniform(-8, 8)
        half[-1] = rng.normal(size=3) @ half[:-1]
        assert moments.regression(half, 0.0)[1] >= 0.0


def test_the_ridge_is_what_noise_may_have_made_of_a_column() -> None:
    """Half the spectral edge of the noise of all releases together, beside a small constant."""
    assert moments.ridge_of(0.0, 3) == moments.LEAST_RIDGE
    columns, deviation, batch, steps = 40, 7.0, 500.0, 4
    edge = math.sqrt(2 * columns) * deviation / batch
    found = moments.ridge_of(edge, steps) - moments.LEAST_RIDGE
    rng = np.random.default_rng(0)
    draws = rng.normal(size=(steps, columns, columns)) * deviation / batch / math.sqrt(2)
    mean = np.mean(draws + np.swapaxes(draws, 1, 2), axis=0)  # off the diagonal entries deviate by deviation
    own = np.abs(np.linalg.eigvalsh(mean)).max()
    assert 0.25 * own < found < own
    assert moments.ridge_of(edge / 4, steps) < moments.LEAST_RIDGE + found / 3


def test_under_noise_the_ridge_makes_a_linear_model_better() -> None:
    """Nearly collinear columns through a noisy covariance: without a ridge their weights blow up."""
    rng = np.random.default_rng(1)
    columns, deviation = 6, 40.0
    x = rng.normal(size=(ROWS, 5)) * [1.0, 1.0, 1.0, 0.1, 0.1]
    cells = np.column_stack([x, x[:, 0] + 0.3 * rng.normal(size=ROWS)])
    errors = {}
    for ridge in (0.0, moments.ridge_of(math.sqrt(2 * columns) * deviation / ROWS, 1)):
        errors[ridge] = []
        for seed in range(30):
            draws = np.random.default_rng(seed).normal(size=(columns, columns))
            noisy = cells.T @ cells / ROWS + (draws + draws.T) / math.sqrt(2) * deviation / ROWS
            value, vectors = np.linalg.eigh(noisy)
            half = vectors * np.sqrt(np.maximum(value, 1e-3))
            weights, _ = moments.regression(half, ridge)
            errors[ridge].append(np.mean((cells[:, -1] - x @ weights) ** 2))
    none, some = (float(np.mean(found)) for found in errors.values())
    assert some < 0.7 * none
    assert some < np.var(cells[:, -1])


@pytest.mark.parametrize("widths", [(FEATURES, 5, 1), (FEATURES, 5, 4, 1)])
def test_direct_inputs_start_at_the_linear_model_and_hidden_units_at_random(widths: tuple[int, ...]) -> None:
    linear, left = moments.regression(HALF, 0.02)
    shape, hidden = network.Shape(widths, "sine", direct=True), widths[-2]
    draws = [np.random.default_rng(1).normal(size=layer) for layer in shape.layers]
    assert sum(part.size for part in draws) == shape.size
    with jax.enable_x64(True):
        given = settings(linear=linear, first_noise=left, start=0.5)
        first = network._first(shape, given, tuple(map(jnp.asarray, draws)))
        assert float(network._state(given, first, ()).noise) == pytest.approx(left)
        for found, expected in zip(first[:-1], draws[:-1], strict=True):
            np.testing.assert_array_equal(found, expected)
        np.testing.assert_array_equal(first[-1][0, :hidden], 0.5 * draws[-1][0, :hidden])
        np.testing.assert_array_equal(first[-1][0, hidden:], [*linear, 0.0])
        silent = (*first[:-1], first[-1].at[0, :hidden].set(0.0))
        np.testing.assert_allclose(through(silent, jnp.asarray(X), "sine").output, X @ linear, rtol=1e-10)


def test_a_run_asks_for_its_first_sums_at_the_start() -> None:
    shape, linear = network.Shape((FEATURES, 4, 1), "sine", direct=True, made=50), np.array([1.0, -2.0, 3.0])
    seen: list[Any] = []

    class Asked(Blurred):
        def release(self, public: Any) -> dict[str, np.ndarray]:
            seen.append(public)
            return super().release(public)

    network.run(Asked(shape, 0.0, 0), shape, settings(linear=linear, first_noise=0.4), 1)
    np.testing.assert_array_equal(seen[0].weights[-1][0, 4:], [*linear, 0.0])
    noise = seen[0].noise
    assert float(noise.rate) / (float(noise.shape_minus_one) + 1.0) == pytest.approx(0.4, rel=1e-9)
    assert np.unique(seen[0].weights[0]).size == seen[0].weights[0].size


class Blurred:
    """Exact sums; those of the noise block with Gaussian noise."""

    def __init__(self, shape: network.Shape, deviation: float, seed: int) -> None:
        blocks = [Block("mean", shape.size, math.inf), Block("noise", 1, math.inf)]
        self._gate = OpenGate((X, Y), blocks, NetworkFactors(ConcentratedNoise(), shape.activation))
        self._rng = np.random.default_rng(seed)
        self.records, self.expected_batch = ROWS, float(ROWS)
        self.deviations = {"mean": 0.0, "noise": deviation}

    def release(self, public: Any) -> dict[str, np.ndarray]:
        released = self._gate.release(public)
        return released | {"noise": released["noise"] + self.deviations["noise"] * self._rng.normal(size=1)}


def test_the_learned_noise_variance_has_no_bias_under_heavy_noise() -> None:
    """Noise nearly as large as the sum itself; a ratio of two such sums would lie a fifth too high."""
    shape, steps = network.Shape((FEATURES, 1), made=500), 120
    config = settings(first_noise=0.25)
    exact, *noisy = (
        network.run(Blurred(shape, deviation, seed), shape, config, steps).noise
        for deviation, seed in [(0.0, 0)] + [(0.45 * ROWS, seed) for seed in range(40)]
    )
    assert exact is not None
    truth = exact[1] / exact[0]
    assert truth == pytest.approx(0.25, rel=0.15)
    found = np.array([rate / shape for shape, rate in (pair for pair in noisy if pair)]) / truth
    assert len(found) == 40
    assert 0.01 < found.std() < 2 * network.NOISE_SPREAD
    assert found.mean() == pytest.approx(1.0, abs=4 * found.std() / math.sqrt(40) + 0.01)
    assert abs(found.mean() - 1.0) < 0.06


@pytest.mark.parametrize("relative", [0.1, 0.45, 1.5])
def test_the_running_average_of_the_noise_variance_is_linear_in_what_is_released(relative: float) -> None:
    """Without a posterior variance the sum is n/2 times true over assumed variance; 4000 runs at once."""
    runs, truth, n = 4000, 0.3, float(ROWS)
    rng = np.random.default_rng(0)
    with jax.enable_x64(True):
        config = settings()
        state = network.init(network.Shape((FEATURES, 1), made=50), config)
        state = state._replace(noise=jnp.full(runs, truth))
        total = np.zeros(runs)
        for step in range(1200):
            sums = 0.5 * n * truth / state.noise + relative * n * jnp.asarray(rng.normal(size=runs))
            noise = network._noise(config, state, sums[None], 1.0, relative * n)
            assert float(jnp.max(jnp.abs(noise / state.noise - 1.0))) <= 0.25 + 1e-12
            state = state._replace(noise=noise)
            total += np.asarray(noise) * (step >= 600)
    found = total / 600 / truth
    assert found.mean() == pytest.approx(1.0, abs=0.02)
    assert np.std(np.asarray(state.noise) / truth) < 1.3 * network.NOISE_SPREAD


def test_sums_of_a_sampled_batch_tell_of_the_noise_as_those_of_all_records() -> None:
    with jax.enable_x64(True):
        config = settings()
        state = network.init(network.Shape((FEATURES, 1), made=50), config)
        whole = network._noise(config, state, jnp.array([0.4 * ROWS]), 1.0, 8.0)
        quarter = network._noise(config, state, jnp.array([0.1 * ROWS]), 4.0, 2.0)
        assert float(whole) == pytest.approx(float(quarter), rel=1e-12)
        assert float(whole) < 1.0, "the sum is below n / 2"
        right = network._noise(config, state, jnp.array([0.5 * ROWS]), 1.0, 8.0)
        assert float(right) == 1.0
        assert float(network._noise(config, state, None, 1.0, 0.0)) == 1.0
