"""SEP for networks with correlated weights: fixed points, caps, and the variance that noise causes."""

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import brentq

from dpsep.inference import network
from dpsep.models.concentrated_noise import ConcentratedNoise
from dpsep.models.network_factors import NetworkFactors, into
from dpsep.models.probit import ProbitLikelihood
from dpsep.privacy.grid import Block
from dpsep.privacy.open_gate import OpenGate

from .sep_help import identity

ROWS, FEATURES, STEPS = 300, 3, 120
LINEAR = network.Shape((FEATURES, 1), made=20000)
RNG = np.random.default_rng(0)
X = RNG.normal(size=(ROWS, FEATURES)) @ np.array([[1.0, 0.8, 0.0], [0.0, 0.6, 0.0], [0.0, 0.0, 0.5]])
Y = X @ [1.0, -0.5, 0.3] + 0.4 + 0.5 * RNG.normal(size=ROWS)
DESIGN = np.column_stack([X, np.ones(ROWS)]) / math.sqrt(FEATURES + 1)


def settings(**others: Any) -> network.Settings:
    half = np.linalg.cholesky(np.cov(X.T, bias=True))
    values: dict[str, Any] = {"rate": 0.5, "cap": 1e6, "records": float(ROWS), "steps": float(STEPS)}
    values |= {"features": identity(FEATURES), "outcome": identity()}
    return network.Settings(input_mean=X.mean(axis=0), input_half=half, **(values | others))


def open_gate(likelihood: Any = None, y: np.ndarray = Y) -> OpenGate:
    blocks = [Block("mean", FEATURES + 1, math.inf), Block("noise", 1, math.inf)]
    if likelihood is not None:
        return OpenGate((X, y), blocks[:1], NetworkFactors(likelihood))
    return OpenGate((X, y), blocks, NetworkFactors(ConcentratedNoise()))


class Noisy:
    """Exact sums of the mean part with Gaussian noise; the noise precision is left as it is."""

    def __init__(self, deviation: float, seed: int) -> None:
        self._gate, self._rng = open_gate(), np.random.default_rng(seed)
        self.records, self.expected_batch = ROWS, float(ROWS)
        self.deviations = {"mean": deviation}

    def release(self, public: Any) -> dict[str, np.ndarray]:
        mean = self._gate.release(public)["mean"]
        return {"mean": mean + self.deviations["mean"] * self._rng.normal(size=mean.shape)}


class Fixed:
    """The same sums at every release; `seen` holds the means that each was asked for at."""

    def __init__(self, **sums: np.ndarray) -> None:
        self._sums = sums
        self.records, self.expected_batch = ROWS, float(ROWS)
        self.deviations = {"mean": 0.0}
        self.seen: list[np.ndarray] = []

    def release(self, public: Any) -> dict[str, np.ndarray]:
        self.seen.append(np.asarray(public.weights[0]))
        return self._sums


@pytest.fixture(scope="module")
def fitted() -> dict[bool, network.Result]:
    return {
        learn: network.run(open_gate(), LINEAR._replace(learn_prior=learn), settings(), STEPS)
        for learn in (False, True)
    }


@pytest.mark.parametrize("learn", [False, True], ids=["fixed prior", "learned prior"])
def test_without_hidden_units_the_fixed_point_is_bayesian_linear_regression(
    learn: bool, fitted: dict[bool, network.Result]
) -> None:
    found = fitted[learn]
    assert found.noise is not None
    tau, prior = found.noise[0] / found.noise[1], float(found.prior[0])
    precision = tau * DESIGN.T @ DESIGN + prior * np.eye(FEATURES + 1)
    exact = np.linalg.solve(precision, tau * DESIGN.T @ Y)
    np.testing.assert_allclose(found.weights[0][0], exact, atol=1e-5)
    right = np.asarray(found.bases[0].right)
    covariance = right @ np.diag(1.0 / np.asarray(found.precision[0])[0]) @ right.T
    # The information comes from 20000 inputs that are made up with the right moments.
    np.testing.assert_allclose(covariance, np.linalg.inv(precision), rtol=0.06, atol=2e-4)
    assert (np.asarray(found.blur[0]) == 0).all()


def test_the_noise_variance_is_where_the_predictive_densities_of_the_records_have_their_maximum(
    fitted: dict[bool, network.Result],
) -> None:
    """The factors on the noise precision have the slope of log N(y; m, v + 1 / tau): it sums to zero."""
    found = fitted[False]
    assert found.noise is not None
    assert found.noise[0] == ROWS / 2
    noise = found.noise[1] / found.noise[0]
    covariance = np.linalg.inv(DESIGN.T @ DESIGN / noise + np.eye(FEATURES + 1))
    square = (Y - DESIGN @ np.asarray(found.weights[0][0])) ** 2
    variance = ((DESIGN @ covariance) * DESIGN).sum(axis=1)

    def slope(own: float) -> float:
        return float(np.sum(square / (variance + own) ** 2 - 1.0 / (variance + own)))

    assert noise == pytest.approx(brentq(slope, 0.01, 10.0), rel=1e-3)


def test_a_learned_prior_precision_follows_from_the_weights(fitted: dict[bool, network.Result]) -> None:
    found = fitted[True]
    square = np.sum(np.asarray(found.weights[0]) ** 2) + np.sum(1.0 / np.asarray(found.precision[0]))
    assert found.prior[0] == pytest.approx((6.0 + 2.0) / (6.0 + 0.5 * square), rel=1e-3)
    assert fitted[False].prior.tolist() == [1.0]


def test_without_hidden_units_labels_give_the_fixed_point_of_probit_regression() -> None:
    """There the mean parts of all sites, counted from m, balance the prior: EP's mean equation."""
    labels = np.where(Y > 0.4, 1.0, -1.0)
    shape = network.Shape((FEATURES, 1), outcome="classification", made=2000)
    found = network.run(open_gate(ProbitLikelihood(), labels), shape, settings(), STEPS)
    assert found.noise is None
    with jax.enable_x64(True):
        m = np.asarray(found.weights[0])[0]
        right = np.asarray(found.bases[0].right)
        covariance = right @ np.diag(1.0 / np.asarray(found.precision[0])[0]) @ right.T
        # One site is 1/N of the likelihood's: the cavity is the posterior, up to O(1/N).
        variance = ((DESIGN @ covariance) * DESIGN).sum(axis=1)
        tilted = ProbitLikelihood().tilted(DESIGN @ m, variance, labels)
        pull = DESIGN.T @ np.asarray(tilted.gradient / tilted.shrinkage)
    np.testing.assert_allclose(pull, m, atol=0.05)


def test_a_run_is_repeated_by_its_seed_and_starts_elsewhere_with_another() -> None:
    one, two, other = (network.run(open_gate(), LINEAR, settings(), 3, seed) for seed in (0, 0, 1))
    np.testing.assert_array_equal(one.weights[0], two.weights[0])
    assert not np.allclose(one.weights[0], other.weights[0])


@pytest.mark.parametrize("steps", [1, 2, 3, 4, 7])
def test_however_few_steps_there_are_the_result_is_a_mean_that_was_reached(steps: int) -> None:
    """Sums that pull nowhere, and a prior of nothing: the mean stays where it started."""
    config = settings(steps=float(steps), prior=1e-12)
    gate = Fixed(mean=np.zeros(FEATURES + 1))
    found = network.run(gate, LINEAR, config, steps)
    assert len(gate.seen) == steps
    np.testing.assert_allclose(found.weights[0], gate.seen[0], rtol=1e-6)
    assert np.abs(np.asarray(found.weights[0])).max() > 0.1


def test_a_step_is_never_longer_than_its_cap() -> None:
    with jax.enable_x64(True):
        config = jax.tree.map(jnp.asarray, settings(cap=0.7))
        state = network.init(LINEAR, config)
        for size in (1e3, 1e12):
            huge = jnp.asarray(size * np.random.default_rng(2).normal(size=FEATURES + 1))
            moved = network._update(LINEAR, config, state, huge, None, float(ROWS), 0.0)
            metric = network.precisions(config, state, config.damping)
            step = into(state.bases, tuple(a - b for a, b in zip(moved.weights, state.weights, strict=True)))
            length = math.sqrt(sum(float(jnp.sum(k * s**2)) for k, s in zip(metric, step, strict=True)))
            assert length == pytest.approx(0.7 * math.sqrt(float(network.load(config, state))), rel=1e-9)
        assert network.load(config, state) < FEATURES + 1


def test_the_clip_is_a_multiple_of_what_a_typical_record_has() -> None:
    with jax.enable_x64(True):
        config = jax.tree.map(jnp.asarray, settings(clip=0.5))
        state = network.init(LINEAR, config)
        gate = open_gate()
        rows = NetworkFactors(ConcentratedNoise())(network.publish(LINEAR, config, state), (X, Y))[0]  # pyright: ignore
        bare = network.publish(LINEAR, config._replace(clip=jnp.inf), state)
        unclipped = NetworkFactors(ConcentratedNoise())(bare, (X, Y))[0]  # pyright: ignore
        size = math.sqrt(float(network.load(config, state)) / ROWS)
        np.testing.assert_allclose(rows * 0.5 * size, unclipped, rtol=1e-9)
        assert gate.deviations == {"mean": 0.0, "noise": 0.0}


def test_the_variance_that_noise_causes_is_the_one_that_is_carried() -> None:
    deviation, steps, seeds = 3.0, 60, 100
    shape = LINEAR._replace(made=1000)
    config = settings(steps=float(steps))
    finals, averages, state = [], [], None
    for seed in range(seeds):
        gate = Noisy(deviation, seed)
        with jax.enable_x64(True):
            values = jax.tree.map(jnp.asarray, config)
            state = network.init(shape, values)
            for _ in range(steps):
                part = jnp.asarray(gate.release(network._publish(shape, values, state))["mean"])
                state = network._update(shape, values, state, part, None, float(ROWS), deviation)
            finals.append(np.asarray(into(state.bases, state.weights)[0])[0])
            averages.append(np.asarray(state.average[0] / state.weight)[0])
    assert state is not None
    with jax.enable_x64(True):
        found = network.finish(shape, jax.tree.map(jnp.asarray, config), state)
    last = np.var(finals, axis=0, ddof=1) / np.asarray(state.blur[0])[0]
    assert np.all((last > 1 / 1.5) & (last < 1.5)), last
    turned = np.stack(averages) @ np.asarray(found.bases[0].right)
    mean = np.var(turned, axis=0, ddof=1) / np.asarray(found.blur[0])[0]
    assert np.all((mean > 1 / 3) & (mean < 1.2)), "an average has less noise than its last term, not more"


def test_sums_of_a_sampled_batch_are_scaled_up_and_so_is_their_noise() -> None:
    with jax.enable_x64(True):
        config = jax.tree.map(jnp.asarray, settings())
        state = network.init(LINEAR, config)
        part = jnp.ones(FEATURES + 1)
        whole = network._update(LINEAR, config, state, 4.0 * part, None, float(ROWS), 4.0)
        quarter = network._update(LINEAR, config, state, part, None, ROWS / 4, 1.0)
        np.testing.assert_allclose(whole.weights[0], quarter.weights[0], rtol=1e-12)
        np.testing.assert_allclose(whole.blur[0], quarter.blur[0], rtol=1e-12)
