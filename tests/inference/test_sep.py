import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

from dpsep.families import Gamma, Gaussian, norm
from dpsep.inference import ep, nuts, sep
from dpsep.models import (
    GLM,
    GaussianMean,
    LearnedNoise,
    LogisticLikelihood,
    PoissonLikelihood,
    ProbitLikelihood,
    WeightsAndNoise,
)

from .sep_help import ROWS, WEIGHTS, factor_gate, probit_factor, problem, refreshed
from .test_ep import fair

SIZE = WEIGHTS + WEIGHTS * (WEIGHTS + 1) // 2
PROBIT = GLM(ProbitLikelihood())


def written_out(x, y, order, *, gamma, clip=math.inf, floor=1e-6, prior=1.0):
    """Equation (4) with steps 7, 10 and 12 for probit regression, in NumPy, one record a step."""
    count, d = x.shape
    eta_0, precision_0 = np.zeros(d), prior * np.eye(d)
    eta, precision = eta_0.copy(), precision_0.copy()

    def clipped(a, b):
        if isinstance(clip, tuple):
            return tuple(
                part * min(1.0, bound / max(np.linalg.norm(part), 1e-300))
                for part, bound in zip((a, b), clip, strict=True)
            )
        size = math.sqrt(a @ a + np.sum(b * b))
        return (a, b) if size <= clip else (a * clip / size, b * clip / size)

    for n in order:
        factor = (eta - eta_0) / count, (precision - precision_0) / count
        own = clipped(*probit_factor(eta - factor[0], precision - factor[1], x[n], y[n]))
        eta = eta + gamma / count * (own[0] - factor[0])
        precision = precision + gamma / count * (own[1] - factor[1])
        values, vectors = np.linalg.eigh(precision)
        precision = (vectors * np.maximum(values, floor)) @ vectors.T
        factor = clipped((eta - eta_0) / count, (precision - precision_0) / count)
        eta, precision = eta_0 + count * factor[0], precision_0 + count * factor[1]
    return eta, precision


@pytest.mark.parametrize(
    ("gamma", "clip"),
    [
        (1.0, math.inf),
        (ROWS, math.inf),
        (ROWS, 0.3),
        (10.0 * ROWS, 0.05),
        (ROWS, (0.2, 0.4)),
        (ROWS, (0.5, 0.1)),
    ],
)
def test_steps_are_equation_four_written_out_record_by_record(gamma, clip):
    x, y = problem("probit")
    order = np.random.default_rng(1).permutation(ROWS)[:25]
    with jax.enable_x64(True):
        settings = sep.Settings(Gaussian.isotropic(WEIGHTS), ROWS, gamma=gamma, clip=clip)
        q = sep.posterior(settings, sep.run(PROBIT, settings, (x, y), order))
        eta, precision = written_out(x, y, order, gamma=gamma, clip=clip)
        np.testing.assert_allclose(q.eta, eta, rtol=1e-9, atol=1e-12)
        np.testing.assert_allclose(q.precision, precision, rtol=1e-9, atol=1e-12)


def test_with_gamma_one_a_share_of_the_data_is_absorbed():
    count, passes = 100, 10
    records = np.random.default_rng(0).normal(1.0, 1.0, (count, 2))
    with jax.enable_x64(True):
        settings = sep.Settings(Gaussian.isotropic(2), count, gamma=1.0)
        order = np.tile(np.arange(count), passes)
        q = sep.posterior(settings, sep.run(GaussianMean(2.0), settings, records, order))
        share = (np.asarray(q.precision) - np.eye(2)) / (2.0 * count)
        # Every step keeps 1 - gamma / N^2 of the factor.
        exact = 1 - (1 - 1 / count**2) ** (passes * count)
        np.testing.assert_allclose(np.diag(share), exact, rtol=1e-10)
        np.testing.assert_allclose(np.diag(share), 1 - math.exp(-passes / count), rtol=1e-3)


def test_with_gamma_n_a_conjugate_model_is_learned_in_a_few_passes():
    records = np.random.default_rng(0).normal(1.0, 1.0, (100, 2))
    with jax.enable_x64(True):
        settings = sep.Settings(Gaussian.isotropic(2), 100, gamma=100.0)
        q = sep.posterior(
            settings, sep.run(GaussianMean(2.0), settings, records, np.tile(np.arange(100), 12))
        )
        np.testing.assert_allclose(q.precision, 201.0 * np.eye(2), rtol=1e-4, atol=1e-10)


MODELS: list[tuple[str, Any]] = [
    ("probit", PROBIT),
    ("logistic", GLM(LogisticLikelihood("fast"))),
    ("poisson", GLM(PoissonLikelihood("fast"))),
]


@pytest.mark.parametrize(("kind", "model"), MODELS)
def test_the_batch_form_comes_to_rest_where_the_posterior_reproduces_itself(kind, model):
    records = problem(kind)
    with jax.enable_x64(True):
        prior = Gaussian.isotropic(WEIGHTS)
        q = batch(model, prior, records, SIZE)
        again = refreshed(model, prior, q, records)
        np.testing.assert_allclose(again.eta, q.eta, rtol=1e-8, atol=1e-8)
        np.testing.assert_allclose(again.precision, q.precision, rtol=1e-8, atol=1e-8)


def test_the_batch_form_with_learned_noise_comes_to_rest_where_the_posterior_reproduces_itself():
    records = problem("linear")
    with jax.enable_x64(True):
        prior = WeightsAndNoise(Gaussian.isotropic(WEIGHTS), Gamma(jnp.asarray(1.0), jnp.asarray(0.5)))
        q = batch(LearnedNoise(), prior, records, SIZE + 2, steps=60)
        again = refreshed(LearnedNoise(), prior, q, records)
        for new, old in zip(jax.tree.leaves(again), jax.tree.leaves(q), strict=True):
            np.testing.assert_allclose(new, old, rtol=1e-8, atol=1e-8)


def batch(model: Any, prior: Any, records: Any, size: int, steps: int = 60) -> Any:
    """Damped batch form: gamma = N / 2 with all records in every step moves theta half of the way."""
    settings = sep.Settings(prior, ROWS, gamma=ROWS / 2)
    return sep.posterior(settings, sep.run_gate(factor_gate(model, records, size), settings, steps))


def test_one_record_a_step_with_falling_gamma_ends_at_the_same_fixed_point():
    records = problem("probit")
    with jax.enable_x64(True):
        prior = Gaussian.isotropic(WEIGHTS)
        settings = sep.Settings(prior, ROWS, gamma=float(ROWS))
        x, y = map(jnp.asarray, records)
        order = np.random.default_rng(2)
        rows = jnp.asarray(np.concatenate([order.permutation(ROWS) for _ in range(150)]))
        gammas = ROWS * np.minimum(1.0, 6.0 / (1.0 + np.arange(len(rows)) // ROWS))

        def one(state, inputs):
            gamma, row = inputs
            return sep.step(PROBIT, settings._replace(gamma=gamma), state, (x[row], y[row])), None

        start = sep.init(settings)
        state, _ = jax.jit(lambda: jax.lax.scan(one, start, (jnp.asarray(gammas), rows)))()
        q, rest = sep.posterior(settings, state), batch(PROBIT, prior, records, SIZE)
        deviation = np.sqrt(rest.variance)
        np.testing.assert_array_less(np.abs(q.mean - rest.mean), 0.01 * deviation)
        np.testing.assert_allclose(q.precision, rest.precision, rtol=0.01)


@pytest.mark.deep
@pytest.mark.parametrize("likelihood", [ProbitLikelihood(), LogisticLikelihood("fast")])
def test_it_agrees_with_expectation_propagation_and_monte_carlo_on_the_affairs_survey(likelihood):
    x, y = fair()
    with jax.enable_x64(True):
        prior = Gaussian.isotropic(x.shape[1])
        d = x.shape[1]
        settings = sep.Settings(prior, len(x), gamma=len(x) / 2)
        gate = factor_gate(GLM(likelihood), (x, y), d + d * (d + 1) // 2)
        q = sep.posterior(settings, sep.run_gate(gate, settings, 60))
        draws = nuts.run(likelihood, prior, (x, y), jax.random.key(0), draws=1500, warmup=200, chains=2)
        deviation = np.sqrt(np.diag(draws.covariance))
        np.testing.assert_array_less(np.abs(q.mean - draws.mean), 0.1 * deviation)
        np.testing.assert_allclose(np.sqrt(q.variance), deviation, rtol=0.1)
        own = jax.jit(ep.run, static_argnums=0)(GLM(likelihood), prior, (x, y)).posterior
        np.testing.assert_array_less(np.abs(q.mean - own.mean), 0.02 * np.sqrt(own.variance))
        np.testing.assert_allclose(np.sqrt(q.variance), np.sqrt(own.variance), rtol=0.02)


def test_the_batch_form_behind_a_gate_clips_as_steps_one_by_one_do():
    # With one record a pass of the gate is a step of the paper; sums on the grid are off by half a unit.
    x, y = problem("probit")
    records = x[:1], y[:1]
    with jax.enable_x64(True):
        settings = sep.Settings(Gaussian.isotropic(WEIGHTS), 1, gamma=0.5, clip=0.2)
        gate = factor_gate(PROBIT, records, SIZE, 0.2)
        one = sep.run_gate(gate, settings, 4)
        two = sep.run(PROBIT, settings, records, np.zeros(4, int))
        np.testing.assert_allclose(one.factor.eta, two.factor.eta, atol=4 * gate.blocks[0].unit)
        np.testing.assert_allclose(one.factor.precision, two.factor.precision, atol=4 * gate.blocks[0].unit)


def test_a_clip_of_zero_returns_the_prior_exactly():
    records = problem("probit")
    with jax.enable_x64(True):
        prior = Gaussian(jnp.arange(3.0), 2.0 * jnp.eye(3))
        settings = sep.Settings(prior, ROWS, gamma=ROWS, clip=0.0)
        for state in (
            sep.run(PROBIT, settings, records, np.arange(20)),
            sep.run_gate(factor_gate(PROBIT, records, SIZE, 0.0), settings, 3),
        ):
            q = sep.posterior(settings, state)
            np.testing.assert_array_equal(q.eta, prior.eta)
            np.testing.assert_array_equal(q.precision, prior.precision)


def test_a_clip_that_nothing_reaches_changes_no_bit_of_single_steps():
    records = problem("probit")
    with jax.enable_x64(True):
        plain = sep.Settings(Gaussian.isotropic(WEIGHTS), ROWS, gamma=ROWS)
        order = np.arange(50)
        free = sep.run(PROBIT, plain, records, order)
        wide = sep.run(PROBIT, plain._replace(clip=1e9), records, order)
        for a, b in zip(jax.tree.leaves(free), jax.tree.leaves(wide), strict=True):
            np.testing.assert_array_equal(a, b)


def test_the_require_line_is_told_and_not_enforced():
    prior = Gaussian.isotropic(4)  # norm 2
    assert sep.prior_exceeds(sep.Settings(prior, 10, clip=1.9))
    assert not sep.prior_exceeds(sep.Settings(prior, 10, clip=2.1))
    assert not sep.prior_exceeds(sep.Settings(prior, 10))
    assert sep.prior_exceeds(sep.Settings(prior, 10, clip=(1.0, 1.9)))
    assert not sep.prior_exceeds(sep.Settings(prior, 10, clip=(0.1, 2.1)))
    settings = sep.Settings(prior, 10, clip=0.5)
    np.testing.assert_array_equal(sep.posterior(settings, sep.init(settings)).precision, np.eye(4))


def test_step_ten_raises_the_eigenvalues_below_the_floor_and_no_others():
    with jax.enable_x64(True):
        settings = sep.Settings(Gaussian.isotropic(2), 10, gamma=10.0, floor=0.25)
        vectors = np.array([[0.6, -0.8], [0.8, 0.6]])
        noise = Gaussian(jnp.zeros(2), jnp.asarray(vectors @ np.diag([-7.0, 3.0]) @ vectors.T))
        q = sep.posterior(settings, sep.update(settings, sep.init(settings), noise, 10.0))
        # gamma / N = 1: the precision would have eigenvalues 1 - 7 and 1 + 3.
        np.testing.assert_allclose(q.precision, vectors @ np.diag([0.25, 4.0]) @ vectors.T, rtol=1e-12)


def test_step_twelve_clips_the_factor_and_the_posterior_follows_it():
    with jax.enable_x64(True):
        settings = sep.Settings(Gaussian.isotropic(2), 10, gamma=10.0, clip=0.5)
        total = Gaussian(jnp.array([30.0, 0.0]), jnp.diag(jnp.array([40.0, 0.0])))
        state = sep.update(settings, sep.init(settings), total, 10.0)
        assert float(norm(state.factor)) == pytest.approx(0.5, rel=1e-12)
        np.testing.assert_allclose(state.factor.eta, [0.3, 0.0], rtol=1e-12)
        q = sep.posterior(settings, state)
        np.testing.assert_allclose(q.eta, [3.0, 0.0], rtol=1e-12)
        np.testing.assert_allclose(q.precision, np.diag([5.0, 1.0]), rtol=1e-12)
        assert int(state.step) == 1


def test_the_cavity_is_the_posterior_without_one_factor():
    settings = sep.Settings(Gaussian.isotropic(1), 5)
    state = sep.State(Gaussian(jnp.array([2.0]), jnp.array([[3.0]])), jnp.asarray(0))
    assert float(sep.posterior(settings, state).precision[0, 0]) == 16.0
    assert float(sep.cavity(settings, state).precision[0, 0]) == 13.0


def test_each_leaf_is_clipped_by_its_own_norm_where_each_has_its_own_bound():
    with jax.enable_x64(True):
        settings = sep.Settings(Gaussian.isotropic(2), 10, gamma=10.0, clip=(1.0, 8.0))
        total = Gaussian(jnp.array([30.0, 0.0]), jnp.diag(jnp.array([40.0, 0.0])))
        state = sep.update(settings, sep.init(settings), total, 10.0)
        np.testing.assert_allclose(state.factor.eta, [1.0, 0.0], rtol=1e-12)
        np.testing.assert_allclose(state.factor.precision, np.diag([4.0, 0.0]), rtol=1e-12)


def test_clips_and_deviations_of_the_wrong_number_are_refused():
    records = problem("probit")
    settings = sep.Settings(Gaussian.isotropic(WEIGHTS), ROWS)
    with pytest.raises(ValueError, match="clip has 3 numbers; the family has 2"):
        sep.run(PROBIT, settings._replace(clip=(1.0, 1.0, 1.0)), records, np.arange(3))
    with pytest.raises(ValueError, match="deviations has 1 numbers; the family has 2"):
        sep.simulate(PROBIT, settings, records, np.arange(3), jax.random.key(0), (1.0,))


@pytest.mark.parametrize("clip", [math.inf, 0.3, (0.2, 0.4)])
def test_a_simulation_without_noise_is_the_run(clip):
    records = problem("probit")
    order = np.random.default_rng(1).permutation(ROWS)[:40]
    with jax.enable_x64(True):
        settings = sep.Settings(Gaussian.isotropic(WEIGHTS), ROWS, gamma=ROWS, clip=clip)
        plain = sep.run(PROBIT, settings, records, order)
        noisy = sep.simulate(PROBIT, settings, records, order, jax.random.key(0), (0.0, 0.0))
        assert int(noisy.step) == 40
        np.testing.assert_allclose(noisy.factor.eta, plain.factor.eta, rtol=1e-10, atol=1e-13)
        np.testing.assert_allclose(noisy.factor.precision, plain.factor.precision, rtol=1e-10, atol=1e-13)


def noise_alone(prior: Gaussian, keys: jax.Array, steps: int, deviations: tuple[float, float]) -> Gaussian:
    """theta - theta_0 after steps with gamma = 0, in which nothing but noise moves theta."""
    settings = sep.Settings(prior, 1, gamma=0.0, floor=0.5)
    records, rows = jnp.zeros((1, prior.eta.shape[-1])), np.zeros(steps, int)

    def one(key: jax.Array) -> Gaussian:
        return sep.simulate(GaussianMean(1.0), settings, records, rows, key, deviations).factor

    return jax.vmap(one)(keys)


def test_simulated_noise_is_independent_in_flat_coordinates_and_fresh_at_every_step():
    count, steps, deviations = 4000, 2, (3.0, 0.5)
    with jax.enable_x64(True):
        prior = Gaussian.isotropic(2, 100.0)  # so narrow that step 10 has nothing to do
        moved = noise_alone(prior, jax.random.split(jax.random.key(0), count), steps, deviations)
        eta, precision = np.asarray(moved.eta), np.asarray(moved.precision)
    np.testing.assert_array_equal(precision, precision.swapaxes(1, 2))
    flat = np.column_stack([eta, precision[:, 0, 0], math.sqrt(2) * precision[:, 0, 1], precision[:, 1, 1]])
    expected = math.sqrt(steps) * np.array([3.0, 3.0, 0.5, 0.5, 0.5])
    scaled = flat / expected
    # Five deviations of the sample mean, and of sample variances and covariances.
    np.testing.assert_allclose(scaled.mean(0), 0.0, atol=5 / math.sqrt(count))
    np.testing.assert_allclose(scaled.T @ scaled / count, np.eye(5), atol=5 * math.sqrt(2 / count))
    for column in scaled.T:
        assert scipy.stats.kstest(column, "norm").pvalue > 1e-4


def test_where_noise_breaks_positive_definiteness_the_precision_is_projected():
    keys = jax.random.split(jax.random.key(1), 20)
    with jax.enable_x64(True):
        noise = np.asarray(noise_alone(Gaussian.isotropic(3, 1e3), keys, 1, (0.0, 2.0)).precision)
        moved = np.asarray(noise_alone(Gaussian.isotropic(3), keys, 1, (0.0, 2.0)).precision)
    values, vectors = np.linalg.eigh(np.eye(3) + noise)
    assert np.sum(values[:, 0] < 0) > 5
    expected = np.einsum("nik,nk,nlk->nil", vectors, np.maximum(values, 0.5), vectors) - np.eye(3)
    np.testing.assert_allclose(moved, expected, atol=1e-11)
