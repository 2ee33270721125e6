"""Adam from released gradients: closed-form fixed points, the noise precision, and what releases may do."""

import math
from typing import Any

import jax
import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import log_ndtr

from dpsep.inference import descent
from dpsep.inference.descent import Settings, blocks_of, estimate, init, learning_rate, public_of, run, step
from dpsep.models.glm import Columns
from dpsep.models.network_gradients import PointGradient, VariationalGradient
from dpsep.privacy.gate import Gate, authorise, check_blocks
from dpsep.privacy.mechanism import Mechanism, Schedule
from dpsep.privacy.noise import SeededStream
from dpsep.privacy.open_batches import OpenBatches
from dpsep.privacy.open_gate import OpenGate
from dpsep.privacy.sampling import PoissonSampling

TAU = 3.0
LAMBDA = 2.0


def columns(width: int | None) -> Columns:
    shape = () if width is None else (width,)
    parts: Any = (np.full(shape, -np.inf), np.full(shape, np.inf), np.zeros(shape), np.ones(shape))
    return Columns(*parts)


def settings(**more: Any) -> Settings:
    known = {
        "features": columns(2),
        "outcome": columns(None),
        "method": "variational",
        "steps": 1200,
        "learning_rate": 0.05,
        "final_rate": 0.0,
        "tail": 0.05,
        "prior_precision": LAMBDA,
        "learn_noise": False,
    }
    return Settings(**(known | more))


def table(count: int = 60, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(count, 2)) @ np.array([[1.0, 0.5], [0.0, 0.8]])
    return x, x @ np.array([0.7, -0.4]) + 0.3 + 0.5 * rng.normal(size=count)


def design(x: np.ndarray) -> np.ndarray:
    """Inputs of a linear network: with a bias, over the square root of their number."""
    return np.column_stack([x, np.ones(len(x))]) / math.sqrt(x.shape[1] + 1)


def open_gate(model: Any, records: tuple[np.ndarray, np.ndarray]) -> OpenGate:
    return OpenGate(records, blocks_of(model.sizes, math.inf, math.inf, 0.1), model)


class Scripted:
    """A gate that releases what it was given, in turn."""

    def __init__(
        self, gradients: Any, noise: Any = None, records: int = 100, batch: float = 20.0, sd: float = 0.0
    ) -> None:
        self.records, self.expected_batch = records, batch
        self.deviations = {"gradient": 0.0, "noise": sd}
        parts = [{"gradient": np.asarray(gradient, float)} for gradient in gradients]
        for part, value in zip(parts, noise or [], strict=False):
            part["noise"] = np.array([value])
        self._left = parts

    def release(self, public: Any) -> dict[str, np.ndarray]:
        return self._left.pop(0)


@pytest.mark.parametrize("beta", [1.0, 5.0])
def test_in_a_linear_model_the_mean_field_posterior_is_reached(beta: float) -> None:
    """Means solve (beta lambda I + tau Z'Z) m = tau Z'y; variances are beta over that matrix's diagonal."""
    x, y = table()
    chosen = settings(beta=beta)
    gate = open_gate(VariationalGradient((2, 1), noise=False), (x, y))
    found = estimate(gate, chosen, run(gate, chosen, init(chosen, np.zeros(3), -1.0, TAU)))
    z = design(x)
    precision = beta * LAMBDA * np.eye(3) + TAU * z.T @ z
    np.testing.assert_allclose(found.mean, np.linalg.solve(precision, TAU * z.T @ y), atol=2e-4)
    np.testing.assert_allclose(found.deviation**2, beta / np.diag(precision), rtol=2e-3)
    assert found.shape / found.rate == pytest.approx(TAU)


def test_a_point_estimate_is_ridge_regression_and_learns_the_noise() -> None:
    """At the fixed point tau = N / |y - Z m|^2 and (lambda I + tau Z'Z) m = tau Z'y."""
    x, y = table()
    chosen = settings(method="point", learn_noise=True)
    gate = open_gate(PointGradient((2, 1)), (x, y))
    found = estimate(gate, chosen, run(gate, chosen, init(chosen, np.zeros(3))))
    z, tau, mean = design(x), 1.0, np.zeros(3)
    for _ in range(200):
        mean = np.linalg.solve(LAMBDA * np.eye(3) + tau * z.T @ z, tau * z.T @ y)
        tau = 1.0 / np.mean((y - z @ mean) ** 2)
    np.testing.assert_allclose(found.mean, mean, atol=2e-4)
    assert found.shape / found.rate == pytest.approx(tau, rel=1e-3)
    assert found.shape == pytest.approx(len(y) / 2)
    assert not found.deviation.any()


def test_the_noise_of_a_variational_fit_counts_the_uncertainty_of_the_weights() -> None:
    """At the fixed point 1 / tau = mean of (y - Z m)^2 + Z^2 s^2, s^2 the mean-field variances."""
    x, y = table()
    chosen = settings(learn_noise=True)
    gate = open_gate(VariationalGradient((2, 1)), (x, y))
    found = estimate(gate, chosen, run(gate, chosen, init(chosen, np.zeros(3), -1.0)))
    z, tau, mean, variance = design(x), 1.0, np.zeros(3), np.zeros(3)
    for _ in range(200):
        precision = LAMBDA * np.eye(3) + tau * z.T @ z
        mean, variance = np.linalg.solve(precision, tau * z.T @ y), 1.0 / np.diag(precision)
        tau = 1.0 / np.mean((y - z @ mean) ** 2 + z**2 @ variance)
    np.testing.assert_allclose(found.mean, mean, atol=3e-4)
    np.testing.assert_allclose(found.deviation**2, variance, rtol=3e-3)
    assert found.shape / found.rate == pytest.approx(tau, rel=1e-3)


def test_the_gradient_of_the_kl_term_is_its_derivative_and_beta_scales_it() -> None:
    chosen = settings()
    rng = np.random.default_rng(1)
    state = init(chosen, rng.normal(size=4))._replace(log_deviation=rng.normal(size=4))

    def divergence(at: np.ndarray) -> float:
        """KL( N(m, s^2) || N(0, 1 / lambda) ), summed."""
        mean, log_deviation = at[:4], at[4:]
        quadratic = LAMBDA * (mean**2 + np.exp(2 * log_deviation)) - 1.0
        return float(np.sum(0.5 * quadratic - log_deviation - 0.5 * math.log(LAMBDA)))

    at, moves = np.concatenate([state.mean, state.log_deviation]), 1e-6 * np.eye(8)
    slopes = np.array([(divergence(at + move) - divergence(at - move)) / 2e-6 for move in moves])
    np.testing.assert_allclose(descent.pull(chosen, state), slopes, atol=1e-7)
    np.testing.assert_allclose(descent.pull(chosen._replace(beta=7.0), state), 7.0 * slopes, atol=1e-6)


def test_without_data_the_posterior_returns_to_the_prior() -> None:
    chosen = settings(steps=800)
    state = run(Scripted([np.zeros(6)] * 800), chosen, init(chosen, np.array([0.5, -0.8, 0.1]), -3.0))
    np.testing.assert_allclose(state.mean, np.zeros(3), atol=1e-3)
    np.testing.assert_allclose(np.exp(-2 * state.log_deviation), np.full(3, LAMBDA), rtol=1e-3)


def test_sums_are_divided_by_the_expected_batch() -> None:
    chosen = settings(method="point", prior_precision=1e-300, beta=0.0)
    _, info = step(Scripted([[60.0, 80.0]], batch=20.0), chosen, init(chosen, np.zeros(2)))
    assert info.gradient_norm == pytest.approx(5.0)


def test_the_first_step_of_adam_is_the_learning_rate_along_every_sign() -> None:
    chosen = settings(method="point", beta=0.0)
    state, _ = step(Scripted([[1e-3, -50.0]]), chosen, init(chosen, np.zeros(2)))
    np.testing.assert_allclose(state.mean, [0.05, -0.05], rtol=1e-3)


def test_the_noise_variance_moves_within_bounds_and_less_where_its_statistic_is_noisy() -> None:
    chosen = settings(method="point", learn_noise=True, noise_rate=0.2)
    start = init(chosen, np.zeros(1), precision=2.0)

    def factor(statistic: float, sd: float) -> float:
        """Of the variance after one release of 100 records' sum, all of them read."""
        gate = Scripted([[0.0]], [100.0 * statistic], 100, 100.0, 100.0 * sd)
        return start.precision / step(gate, chosen, start)[0].precision

    assert factor(1.0, 0.0) == pytest.approx(1.0)
    assert factor(1.5, 0.0) == pytest.approx(1.1)
    assert factor(1.5, 3.0) == pytest.approx(1.01)
    assert factor(1e9, 0.0) == pytest.approx(1.4)
    assert factor(-1e9, 0.0) == pytest.approx(0.7)


def test_a_known_noise_precision_stays_and_its_gradients_have_unit_one() -> None:
    chosen = settings()
    state, info = step(Scripted([np.zeros(6)]), chosen, init(chosen, np.zeros(3), precision=TAU))
    assert state.precision == TAU
    assert math.isnan(info.noise)
    assert public_of(chosen, state).unit == 1.0
    learned = public_of(chosen._replace(learn_noise=True), state)
    assert learned.unit == pytest.approx(math.sqrt(TAU))


def test_the_reported_shape_covers_the_spread_of_the_noise_variance_over_releases() -> None:
    """A statistic s = (true variance) / v + noise: over seeds log v spreads by at most 1 / shape - 2 / N."""
    records, sd, steps = 400, 0.4, 300
    chosen = settings(method="point", learn_noise=True, noise_rate=0.1, steps=steps, tail=0.25)

    class Response(Scripted):
        generator = np.random.default_rng(0)

        def release(self, public: Any) -> dict[str, np.ndarray]:
            value = records * (public.precision + sd * self.generator.normal())
            return {"gradient": np.zeros(1), "noise": np.array([value])}

    gate = Response([], records=records, batch=float(records), sd=records * sd)
    found = [estimate(gate, chosen, run(gate, chosen, init(chosen, np.zeros(1)))) for _ in range(120)]
    spread = np.var([math.log(one.rate / one.shape) for one in found])
    claimed = 1.0 / found[0].shape - 2.0 / records
    assert 0.4 * claimed < spread < 1.2 * claimed


def test_the_estimate_is_the_average_of_the_last_iterates() -> None:
    chosen = settings(method="point", steps=8, tail=0.5)
    gradients = np.random.default_rng(3).normal(size=(8, 2))
    gate, state, seen = Scripted(gradients), init(chosen, np.ones(2)), []
    assert (estimate(gate, chosen, state).mean == 1.0).all()
    for _ in range(8):
        state, _ = step(gate, chosen, state)
        seen.append(state.mean)
    np.testing.assert_allclose(estimate(gate, chosen, state).mean, np.mean(seen[4:], axis=0), rtol=1e-12)


def test_the_learning_rate_falls_from_its_start_to_its_end() -> None:
    chosen = settings(steps=100, learning_rate=0.2, final_rate=0.1)
    rates = [learning_rate(chosen, number) for number in range(101)]
    assert rates[0] == pytest.approx(0.2)
    assert rates[50] == pytest.approx(0.11)
    assert rates[100] == pytest.approx(0.02)
    assert (np.diff(rates) < 0).all()


def test_draws_follow_from_seed_and_step_and_come_in_pairs() -> None:
    chosen = settings(samples=5)
    state = init(chosen, np.zeros(3))
    first = np.asarray(public_of(chosen, state).samples)
    assert first.shape == (5, 3)
    np.testing.assert_array_equal(first[:2], -first[3:])
    np.testing.assert_array_equal(first, public_of(chosen, state).samples)
    assert (first != np.asarray(public_of(chosen, state._replace(step=1)).samples)).all()
    assert (first != np.asarray(public_of(chosen._replace(seed=1), state).samples)).all()


def test_a_run_in_two_parts_is_the_run_in_one() -> None:
    model = VariationalGradient((2, 4, 1))
    chosen = settings(learn_noise=True, steps=12, tail=0.5)
    begin = init(chosen, np.random.default_rng(4).normal(size=model.size))
    gate = open_gate(model, table())
    whole = run(gate, chosen, begin)
    halves = run(gate, chosen, run(gate, chosen, begin, 7))
    assert halves.step == whole.step == 12
    for one, other in zip(jax.tree.leaves(whole), jax.tree.leaves(halves), strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("kind", [VariationalGradient, PointGradient])
def test_a_network_learns_a_bend_from_batches(kind: Any) -> None:
    rng = np.random.default_rng(0)
    x = rng.uniform(-2, 2, (600, 1))
    y = np.abs(x[:, 0]) - 1.0 + 0.1 * rng.normal(size=600)
    model = kind((1, 20, 1))
    method = "variational" if kind is VariationalGradient else "point"
    chosen = settings(method=method, features=columns(1), learn_noise=True, steps=900, prior_precision=1.0)
    blocks = blocks_of(model.sizes, math.inf, math.inf, 0.1)
    gate = OpenBatches((x, y), blocks, model, 60, seed=1)
    found = estimate(gate, chosen, run(gate, chosen, init(chosen, rng.normal(size=model.size), -3.0)))
    hidden = np.maximum(design(x) @ found.mean[:40].reshape(20, 2).T, 0.0)
    fitted = design(hidden) @ found.mean[40:]
    assert np.sqrt(np.mean((fitted - np.abs(x[:, 0]) + 1.0) ** 2)) < 0.05
    assert 0.08 < math.sqrt(found.rate / found.shape) < 0.13


@pytest.mark.parametrize("method", ["variational", "point"])
def test_private_defaults_make_a_release_that_a_gate_takes(method: Any) -> None:
    defaults = descent.PRIVATE_DEFAULTS[method]
    model = (VariationalGradient if method == "variational" else PointGradient)((2, 4, 1))
    blocks = blocks_of(model.sizes, defaults.clip, defaults.noise_clip, defaults.noise_share)
    assert defaults.rate is not None
    part = Mechanism(PoissonSampling(defaults.rate), "zero-out", 3, 5.0, 200)
    check_blocks(part, blocks)
    gate = Gate(
        table(200), part, blocks, model, authorise(None, Schedule((part,)), 1e-3), stream=SeededStream(0)
    )
    chosen = settings(method=method, learn_noise=True, steps=3, learning_rate=defaults.learning_rate)
    start = init(chosen, defaults.mean_scale * np.random.default_rng(0).normal(size=model.size))
    found = estimate(gate, chosen, run(gate, chosen, start))
    assert np.isfinite(found.mean).all()
    assert found.shape > 0


def test_a_point_estimate_of_labels_is_the_mode_of_probit_regression() -> None:
    x, outcome = table()
    y = (outcome + 0.8 * np.random.default_rng(2).normal(size=len(x)) > 0.2).astype(float)
    chosen = settings(method="point")
    gate = open_gate(PointGradient((2, 1), task="classification"), (x, y))
    found = estimate(gate, chosen, run(gate, chosen, init(chosen, np.zeros(3)))).mean
    z = (2 * y - 1)[:, None] * design(x)
    mode = minimize(lambda w: 0.5 * LAMBDA * w @ w - log_ndtr(z @ w).sum(), np.zeros(3), tol=1e-10).x
    np.testing.assert_allclose(found, mode, atol=2e-4)


def test_a_label_has_no_noise_block() -> None:
    model = PointGradient((2, 4, 1), task="classification")
    (block,) = blocks_of(model.sizes, 0.5, 9.0, 0.1)
    assert (block.name, block.share, block.clip) == ("gradient", 1.0, 0.5)
