"""The ablation measures the committed method: its sums, its step and its budget, and levers that do move."""

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dpsep.inference import network
from dpsep.models.concentrated_noise import ConcentratedNoise
from dpsep.models.network_factors import NetworkFactors, unflatten
from dpsep.privacy.accounting import calibrate
from dpsep.privacy.sampling import FullBatch
from dpsep_lab.bench import levers, levers_data, levers_fit, levers_score, levers_steps, levers_sums
from dpsep_lab.bench.levers import DEFAULT, LEVERS, Lever
from dpsep_lab.bench.levers_data import Split

N, D = 80, 2
FORM = levers_fit.Form(3)


def table(seed: int) -> Split:
    rng = np.random.default_rng([seed, 4])
    X = rng.standard_normal((N + 40, D))
    y = np.sin(2 * X[:, 0]) + 0.5 * X[:, 1] + 0.2 * rng.standard_normal(N + 40)
    return Split(X[:N], y[:N], X[N:], y[N:])


@pytest.fixture(scope="module")
def case() -> Any:
    """A network after two committed steps, with its shape and settings."""
    with jax.enable_x64(True):
        data = levers_data.data_of(table(0), 0.5, 0)
        numbers = DEFAULT.numbers_of(N)[0]
        shape, settings, data = levers_fit.prepared(FORM, numbers, data, 3, 40.0)
        settings = jax.tree.map(jnp.asarray, settings)
        state = network.init(shape, settings, 3)
        for step in range(2):
            rng = np.random.default_rng(step)
            part, noise = rng.standard_normal(shape.size), np.array([0.6 * N])
            state = network._update(
                shape, settings, state, jnp.asarray(part), jnp.asarray(noise), N, 0.4, 3.0
            )
        return shape, settings, state, data


@pytest.mark.deep
def test_sums_are_those_of_the_committed_factors(case: Any) -> None:
    shape, settings, state, data = case
    with jax.enable_x64(True):
        public = network._publish(shape, settings, state)
        factors = NetworkFactors(ConcentratedNoise(), shape.activation)
        mean, noise = factors(public, (jnp.asarray(data.X), jnp.asarray(data.y)))
        found = levers_sums.sums(public, (data.X, data.y), shape.activation, noise_clip=0.7)
    norms = np.linalg.norm(mean, axis=1)
    wanted = (np.asarray(mean) * np.minimum(1.0, 1.0 / norms)[:, None]).sum(axis=0)
    assert np.sum(norms > 1) > 5
    flat = np.concatenate([np.ravel(part) for part in found.mean])
    np.testing.assert_allclose(flat, wanted, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(found.noise, np.clip(noise, -0.7, 0.7).sum(axis=0), rtol=1e-9)
    assert float(found.below) == np.sum(norms <= 1)


def test_layers_clipped_by_themselves_stay_within_the_whole_clip(case: Any) -> None:
    shape, settings, state, data = case
    with jax.enable_x64(True):
        public = network._publish(shape, settings, state)
        clips = levers_fit._layer_clips(settings, state)
        one = (data.X[:1] * 50.0, data.y[:1] + 50.0)
        found = levers_sums.sums(
            public, one, shape.activation, noise_clip=1.0, layer_clips=clips, by_layer=1.0
        )
    assert np.sum(np.asarray(clips) ** 2) == pytest.approx(1.0)
    norms = [np.linalg.norm(np.asarray(part)) for part in found.mean]
    np.testing.assert_allclose(norms, clips, rtol=1e-9)


def test_a_step_that_changes_nothing_is_the_committed_step(case: Any) -> None:
    shape, settings, state, _ = case
    with jax.enable_x64(True):
        part = jnp.asarray(np.random.default_rng(5).standard_normal(shape.size))
        noise = jnp.asarray([0.7 * N])
        wanted = network._update(shape, settings, state, part, noise, N, 0.4, 3.0)
        unit = network._publish(shape, settings, state).unit
        layers = unflatten(part, state.weights)
        found, _ = levers_steps.changed(
            shape,
            settings,
            state,
            levers_steps.remembered(settings, state),
            tuple(one / own for one, own in zip(layers, unit, strict=True)),
            tuple(0.4 / own for own in unit),
            network._noise(settings, state, noise, 1.0, 3.0),
        )
    for one, other in zip(jax.tree.leaves(wanted), jax.tree.leaves(found), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-8, atol=1e-9)


@pytest.mark.parametrize("lever", [{"own": 1.0}, {"kalman": 1.0}, {"momentum": 0.5}])
def test_other_steps_do_differ(case: Any, lever: dict[str, float]) -> None:
    shape, settings, state, _ = case
    with jax.enable_x64(True):
        memory = levers_steps.remembered(settings, state)
        ones = tuple(jnp.ones_like(part) for part in state.weights)
        given = (shape, settings, state, memory, ones, ones, state.noise)
        plain = levers_steps.changed(*given)[0]
        other = levers_steps.changed(*given, **lever)[0]
    moved = [np.concatenate([np.ravel(part) for part in (*one.weights, *one.blur)]) for one in (plain, other)]
    assert not np.allclose(moved[0], moved[1])


def test_the_budget_is_what_the_accountant_gives() -> None:
    steps = DEFAULT.steps_of(7372)
    sigma = calibrate(levers.EPSILON, levers.DELTA, FullBatch(), "zero-out", steps, 7372)
    numbers = Lever("all for the fit", "", moments=0.0).numbers_of(7372)[0]
    for early in (1.0, 3.0):
        own = numbers._replace(early=early)
        spent = [float(levers_fit._sigma(own, jnp.asarray(t / steps), steps)) ** -2 for t in range(steps)]
        assert sum(spent) == pytest.approx(steps / sigma**2, rel=1e-3)


def test_correlated_noise_is_scaled_by_the_sensitivity_of_all_steps() -> None:
    kappa, steps = 0.6, 7
    inverse = np.linalg.inv(np.eye(steps) - kappa * np.eye(steps, k=-1))
    wanted = np.linalg.norm(inverse @ np.ones(steps)) / math.sqrt(steps)
    assert levers_steps.correlation_norm(kappa, steps) == pytest.approx(wanted)


def test_levers_are_named_once_and_fit_side_by_side() -> None:
    assert len({lever.name for lever in LEVERS}) == len(LEVERS)
    groups = levers.groups(LEVERS, 7372)
    assert sorted(lever.name for group in groups for lever in group) == sorted(one.name for one in LEVERS)
    for group in groups:
        assert len({(one.form_of(7372), one.steps_of(7372), one.moments) for one in group}) == 1
        assert sum(one.networks for one in group) <= levers.MOST


@pytest.mark.deep
def test_a_fit_is_the_committed_loop_and_levers_move_it() -> None:
    names = ("committed method", "clip 1 of a typical record", "two networks within the budget")
    chosen = [lever for lever in LEVERS if lever.name in names]
    parts = [table(0), table(1)]
    found = {one.lever: one for one in levers.measured("made", chosen, parts, [0, 1])}
    assert all(0.1 < value < 2.0 for one in found.values() for value in one.rmse)
    default = found["committed method"]
    assert len(default.log_likelihood) == 2
    for name in names[1:]:
        assert not np.allclose(found[name].log_likelihood, default.log_likelihood, rtol=1e-6)


def test_a_mixture_of_equal_laws_is_one_of_them() -> None:
    y, mean, variance = np.array([0.3, 1.0]), np.array([[0.0, 1.0]]), np.array([[1.0, 2.0]])
    once = levers_score._mixture(y, mean, variance)
    assert once == pytest.approx(levers_score._mixture(y, np.repeat(mean, 3, 0), np.repeat(variance, 3, 0)))
    assert once == pytest.approx(
        np.mean([-0.5 * (math.log(2 * math.pi) + 0.09), -0.5 * math.log(4 * math.pi)])
    )


def test_a_table_of_a_folder_needs_the_folder() -> None:
    with pytest.raises(ValueError, match="folder"):
        levers_data.split("storms", 0)
