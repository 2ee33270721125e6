import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dpsep.families import Gaussian
from dpsep.inference import sep, sep_newton
from dpsep.models import (
    GLM,
    GaussianLikelihood,
    LearnedNoise,
    LogisticLikelihood,
    PoissonLikelihood,
    ProbitLikelihood,
    WeightsAndNoise,
)
from dpsep.models.concentrated_noise import ConcentratedNoise

from .sep_help import ROWS, WEIGHTS, factor_gate, open_gate, prior_of, problem, refreshed, settings

LIKELIHOODS: list[tuple[str, Any]] = [
    ("probit", ProbitLikelihood()),
    ("logistic", LogisticLikelihood("fast")),
    ("poisson", PoissonLikelihood("fast")),
    ("linear", GaussianLikelihood(6.0)),
]


class NoisyGate:
    """An open gate with Gaussian noise from NumPy, so that its law is what the update is told."""

    def __init__(self, gate: Any, deviations: dict[str, float], seed: int) -> None:
        self._gate, self.deviations = gate, deviations
        self._rng = np.random.default_rng(seed)
        self.records, self.expected_batch = gate.records, gate.expected_batch
        self.releases = 0

    def release(self, public: Any) -> dict[str, np.ndarray]:
        self.releases += 1
        released = self._gate.release(public)
        vector = self._rng.normal(size=WEIGHTS)
        square = self._rng.normal(size=(WEIGHTS, WEIGHTS))
        # Unit variance on the diagonal, one half off it, as an outer block has it.
        noise = {"mean": vector, "precision": (square + square.T) / 2}
        return {name: released[name] + self.deviations[name] * noise[name] for name in released}


class PureNoise:
    """A gate that releases nothing but noise."""

    def __init__(self, deviations: dict[str, float], seed: int = 0) -> None:
        self.records, self.expected_batch, self.deviations = ROWS, float(ROWS), deviations
        self._rng = np.random.default_rng(seed)

    def release(self, public: Any) -> dict[str, np.ndarray]:
        del public
        square = self._rng.normal(size=(WEIGHTS, WEIGHTS))
        return {
            "mean": self.deviations["mean"] * self._rng.normal(size=WEIGHTS),
            "precision": self.deviations["precision"] * (square + square.T) / 2,
        }


@pytest.mark.parametrize(("kind", "likelihood"), LIKELIHOODS)
def test_its_fixed_points_are_those_of_stochastic_ep(kind, likelihood):
    records, values = problem(kind), settings()
    state = sep_newton.run(open_gate(likelihood, records), values, 200, 1e-13)
    assert state.step < 60
    with jax.enable_x64(True):
        q = sep_newton.posterior(values, state)
        again = refreshed(GLM(likelihood), prior_of(values), q, records)
        np.testing.assert_allclose(again.eta, q.eta, rtol=1e-8, atol=1e-8)
        np.testing.assert_allclose(again.precision, q.precision, rtol=1e-8, atol=1e-8)


def test_the_prior_mean_counts():
    records = problem("probit")
    values = settings(4.0, prior_mean=np.array([1.0, -2.0, 0.5]))
    state = sep_newton.run(open_gate(ProbitLikelihood(), records), values, 200, 1e-13)
    with jax.enable_x64(True):
        q = sep_newton.posterior(values, state)
        again = refreshed(GLM(ProbitLikelihood()), prior_of(values), q, records)
        np.testing.assert_allclose(again.eta, q.eta, rtol=1e-8, atol=1e-8)


def test_known_noise_gives_the_conjugate_posterior():
    x, y = problem("linear")
    values = settings()
    state = sep_newton.run(open_gate(GaussianLikelihood(6.0), (x, y)), values, 50, 1e-13)
    precision = np.eye(WEIGHTS) + 6.0 * x.T @ x
    np.testing.assert_allclose(state.mean, np.linalg.solve(precision, 6.0 * x.T @ y), rtol=1e-10)
    np.testing.assert_allclose(sep_newton.posterior(values, state).precision, precision, rtol=1e-10)


@pytest.mark.parametrize(("model", "limit"), [(LearnedNoise(), 1e-8), (ConcentratedNoise(), 4.0 / ROWS)])
def test_with_learned_noise_it_is_a_fixed_point_up_to_one_over_the_shape(model, limit):
    records, values = problem("linear"), settings(noise=True)
    state = sep_newton.run(open_gate(model, records), values, 100, 1e-13)
    assert values.noise is not None
    with jax.enable_x64(True):
        prior = WeightsAndNoise(prior_of(values), jax.tree.map(jnp.asarray, values.noise))
        q = WeightsAndNoise(sep_newton.posterior(values, state), state.noise)
        again = refreshed(LearnedNoise(), prior, q, records)
        # The noise shape is about N / 2; the concentrated form is right up to its inverse.
        for new, old in zip(jax.tree.leaves(again), jax.tree.leaves(q), strict=True):
            size = np.max(np.abs(old))
            np.testing.assert_allclose(new, old, atol=float(limit * size))
        assert float(state.noise.shape) == pytest.approx(2.0 + ROWS / 2, rel=0.02)


def test_it_ends_where_the_paper_s_own_update_does():
    records, values = problem("logistic"), settings()
    likelihood = LogisticLikelihood("fast")
    state = sep_newton.run(open_gate(likelihood, records), values, 200, 1e-13)
    with jax.enable_x64(True):
        natural = sep.Settings(Gaussian.isotropic(WEIGHTS), ROWS, gamma=ROWS / 2)
        gate = factor_gate(GLM(likelihood), records, WEIGHTS + WEIGHTS * (WEIGHTS + 1) // 2)
        q = sep.posterior(natural, sep.run_gate(gate, natural, 60))
        np.testing.assert_allclose(state.mean, q.mean, rtol=1e-9)
        np.testing.assert_allclose(sep_newton.posterior(values, state).precision, q.precision, rtol=1e-9)


def test_a_clip_of_zero_returns_the_prior_exactly():
    values = settings(2.5)
    state = sep_newton.run(open_gate(ProbitLikelihood(), problem("probit"), 0.0, 0.0), values, 5)
    q = sep_newton.posterior(values, state)
    np.testing.assert_array_equal(q.precision, values.prior_precision)
    np.testing.assert_array_equal(q.eta, np.zeros(WEIGHTS))


def test_a_clip_that_nothing_reaches_differs_by_the_rounding_of_the_grid_only():
    records, values = problem("probit"), settings()
    free = sep_newton.run(open_gate(ProbitLikelihood(), records), values, 50, 1e-12)
    gate = open_gate(ProbitLikelihood(), records, 2.0, 1.0)
    wide = sep_newton.run(gate, values, 50, 1e-12)
    # In whitened units, half a unit a record and coordinate at the most.
    deviation = 1 / np.sqrt(np.diag(sep_newton.posterior(values, free).precision))
    bound = ROWS * math.sqrt(WEIGHTS) * gate.blocks[0].unit / 2
    assert np.max(np.abs(wide.mean - free.mean) / deviation) < bound
    np.testing.assert_allclose(wide.geometry, free.geometry, rtol=1e-4, atol=1e-3)


def test_a_clip_bounds_what_the_records_add():
    clip = 0.002
    values = settings(start=np.full(WEIGHTS, 1e-3 * ROWS))
    gate = open_gate(ProbitLikelihood(), problem("probit"), clip, clip)
    state = sep_newton.init(values)
    public, factor = sep_newton.publish(values, state, ROWS)
    released = gate.release(public)
    assert np.linalg.norm(released["mean"]) <= ROWS * clip
    assert np.trace(released["precision"]) <= ROWS * clip * (1 + 1e-12)
    after, _ = sep_newton.update(gate, values, state, factor, released)
    added = np.linalg.solve(factor, np.linalg.solve(factor, after.geometry).T)
    np.testing.assert_allclose(added, released["precision"], atol=1e-12)


def test_without_noise_it_stops_when_the_mean_rests_and_with_noise_it_takes_every_step():
    records, values = problem("probit"), settings()
    quiet = sep_newton.run(open_gate(ProbitLikelihood(), records), values, 100, 1e-3)
    assert quiet.step < 20
    noisy = NoisyGate(open_gate(ProbitLikelihood(), records), {"mean": 1e-9, "precision": 1e-9}, 0)
    assert sep_newton.run(noisy, values, 25, 1e9).step == 25
    assert noisy.releases == 25


def test_the_known_noise_of_the_mean_is_the_noise_it_has():
    """Errors over the covariance that the state claims are standard: their squares average to one."""
    x, y = problem("linear")
    precision = np.eye(WEIGHTS) + 6.0 * x.T @ x
    exact = np.linalg.solve(precision, 6.0 * x.T @ y)
    gate = open_gate(GaussianLikelihood(6.0), (x, y))
    values = settings(warmup=4, start=np.full(WEIGHTS, 6.0 * ROWS))
    squares = []
    for seed in range(60):
        noisy = NoisyGate(gate, {"mean": 1.0, "precision": 0.03}, seed)
        state = sep_newton.run(noisy, values, 12)
        error = state.mean - exact
        squares.append(error @ np.linalg.solve(sep_newton.noise_covariance(state), error) / WEIGHTS)
    # The mean of 60 chi-squares of three degrees over three: standard error 0.11.
    assert np.mean(squares) == pytest.approx(1.0, abs=0.35)


def test_noise_falls_with_the_number_of_releases():
    x, y = problem("linear")
    gate = open_gate(GaussianLikelihood(6.0), (x, y))
    # Noise follows the geometry of its release, so it starts where it will end.
    values = settings(start=6.0 * np.sum(x**2, axis=0))
    traces = []
    for steps in (4, 8, 16):
        state = sep_newton.run(NoisyGate(gate, {"mean": 0.5, "precision": 1e-4}, 1), values, steps)
        traces.append(np.trace(sep_newton.noise_covariance(state)))
    # Twice the releases, half the variance.
    np.testing.assert_allclose(np.divide(traces[:-1], traces[1:]), 2.0, rtol=0.03)


def test_no_noise_means_no_noise_covariance():
    values = settings()
    state = sep_newton.run(open_gate(ProbitLikelihood(), problem("probit")), values, 5)
    np.testing.assert_array_equal(sep_newton.noise_covariance(state), np.zeros((WEIGHTS, WEIGHTS)))


@pytest.mark.parametrize("size", [0.1, 10.0, 1e4])
def test_pure_noise_of_any_size_leaves_a_proper_posterior(size):
    values = settings(warmup=7)
    for seed in range(5):
        state = sep_newton.run(PureNoise({"mean": size, "precision": size}, seed), values, 16)
        q = sep_newton.posterior(values, state)
        assert np.linalg.eigvalsh(np.asarray(q.precision)).min() > 0.999
        assert np.isfinite(state.mean).all()
        assert np.linalg.eigvalsh(sep_newton.noise_covariance(state)).min() > 0


def test_a_step_of_the_mean_is_capped_in_posterior_deviations():
    class Push(PureNoise):
        def release(self, public):
            del public
            return {"mean": np.full(WEIGHTS, 1e6), "precision": 0.5 * np.eye(WEIGHTS)}

    gate = Push({"mean": 0.0, "precision": 0.0})
    _, info = sep_newton.step(gate, settings(cap=2.0), sep_newton.init(settings()))
    assert info.moved == pytest.approx(2.0, rel=1e-12)
    _, free = sep_newton.step(gate, settings(cap=math.inf), sep_newton.init(settings()))
    assert free.moved > 1e5


def test_the_first_state_is_the_prior_mean_with_a_geometry_without_data():
    values = settings(noise=True, prior_mean=np.arange(3.0))
    state = sep_newton.init(values)
    np.testing.assert_array_equal(state.mean, np.arange(3.0))
    np.testing.assert_array_equal(state.geometry, 0.3 * ROWS * np.eye(3))
    assert state.scale == pytest.approx(4.0)
    assert state.step == 0


def test_the_released_noise_statistic_cannot_move_the_noise_by_more_than_a_factor():
    class Wild(PureNoise):
        part = np.zeros(2)

        def release(self, public):
            return super().release(public) | {"noise": self.part}

    values = settings(noise=True)
    for part, low, high in ((np.array([1e9, -1e9]), 4.0, 160.0), (np.array([-1e9, 1e9]), 0.05, 4.0)):
        gate = Wild({"mean": 1e-3, "precision": 1e-3, "noise": 1.0})
        gate.part = part
        state, _ = sep_newton.step(gate, values, sep_newton.init(values))
        assert low <= state.scale <= high


def test_the_cavity_whitens_what_contributions_see():
    values = settings(2.0)
    state = sep_newton.init(values)._replace(mean=np.array([0.1, 0.2, 0.3]))
    public, factor = sep_newton.publish(values, state, ROWS)
    added = 0.3 * ROWS * (1 - 1 / ROWS)
    np.testing.assert_allclose(factor @ factor.T, (2.0 + added) * np.eye(3), rtol=1e-12)
    np.testing.assert_allclose(public.half @ factor, np.eye(3), atol=1e-14)
    total = 2.0 + 0.3 * ROWS
    # eta of the cavity: that of the posterior less one of N equal factors; the prior's is zero.
    np.testing.assert_allclose(
        public.cavity_mean, total * (1 - 1 / ROWS) * state.mean / (2.0 + added), rtol=1e-12
    )
    assert public.centre is state.mean
