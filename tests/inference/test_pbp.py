"""Probabilistic backpropagation: its prior factors in closed form, and what it learns of made functions."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.integrate import quad
from scipy.stats import gamma, norm

from dpsep.families import DiagonalGaussian, Gamma
from dpsep.inference import pbp
from dpsep.models.concentrated_noise import ConcentratedNoise
from dpsep.models.network_model import NetworkClassification, NetworkRegression

NOISE = 0.15


def bend(records: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Return a function that no line follows, with known noise."""
    generator = np.random.default_rng(seed)
    x = generator.uniform(-2, 2, (records, 1))
    return x, np.abs(x[:, 0]) - 1.0 + NOISE * generator.standard_normal(records)


MODEL = NetworkRegression((1, 20, 1), noise_model=ConcentratedNoise())


@pytest.fixture(scope="module")
def fitted() -> pbp.State:
    return pbp.run(MODEL, bend(600), passes=15, seed=1)[0]


def test_it_follows_a_bend_that_a_line_misses(fitted):
    x, y = bend(1000, seed=5)
    with jax.enable_x64(True):
        error = y - np.asarray(MODEL.predictive(fitted.posterior, x).mean)
    line = np.polynomial.Polynomial.fit(x[:, 0], y, 1)
    assert np.sqrt(np.mean(error**2)) < 1.1 * NOISE
    assert np.sqrt(np.mean((y - line(x[:, 0])) ** 2)) > 3 * NOISE


def test_its_predictive_density_is_calibrated(fitted):
    """New outcomes score nearly the best possible, -log(sd sqrt(2 pi e)), and 90 % intervals hold 90 %."""
    x, y = bend(4000, seed=6)
    with jax.enable_x64(True):
        scores = np.asarray(MODEL.log_predictive(fitted.posterior, x, y))
        found = MODEL.predictive(fitted.posterior, x)
        inside = np.abs(y - np.asarray(found.mean)) < norm.ppf(0.95) * np.sqrt(np.asarray(found.variance))
    best = -np.log(NOISE * np.sqrt(2 * np.pi * np.e))
    assert best - 0.1 < scores.mean() < best + 0.02
    assert 0.87 < inside.mean() < 0.94


def test_the_same_seed_gives_the_same_result_and_another_one_does_not(fitted):
    again = pbp.run(MODEL, bend(600), passes=15, seed=1)[0]
    other = pbp.run(MODEL, bend(600), passes=15, seed=2)[0]
    np.testing.assert_array_equal(again.posterior.weights.eta, fitted.posterior.weights.eta)
    assert not np.array_equal(other.posterior.weights.eta, fitted.posterior.weights.eta)


def test_the_posterior_of_lambda_is_its_prior_times_all_sites(fitted):
    found, sites = (jax.tree.map(np.asarray, part) for part in (fitted.precision, fitted.precision_sites))
    assert float(found.shape_minus_one) == pytest.approx(5 + np.sum(sites.shape_minus_one))
    assert float(found.rate) == pytest.approx(6 + np.sum(sites.rate))


def test_a_classifier_learns_what_no_line_separates():
    generator = np.random.default_rng(0)
    x = generator.uniform(-2, 2, (800, 1))
    y = np.where(np.abs(x[:, 0]) > 1, 1.0, -1.0)
    model = NetworkClassification((1, 15, 1))
    state, _ = pbp.run(model, (x, y), passes=10)
    with jax.enable_x64(True):
        found = np.asarray(model.probability(state.posterior, np.array([[-1.7], [0.0], [1.7]])))
    assert found[0] > 0.8
    assert found[1] < 0.2
    assert found[2] > 0.8


def test_known_weights_teach_lambda_what_the_conjugate_posterior_says():
    """With weights w known, lambda ~ Gamma(6 + n/2, 6 + sum w^2 / 2)."""
    model = NetworkRegression((19, 50, 1), noise_model=ConcentratedNoise())
    known = np.random.default_rng(0).standard_normal(model.size) * 2.0
    with jax.enable_x64(True):
        state = pbp.init(model, 0)
        weights = DiagonalGaussian.from_moments(known, jnp.full(model.size, 1e-8))
        state = state._replace(posterior=state.posterior._replace(weights=weights))
        info = pbp.Info(jnp.asarray(model.size))
        for _ in range(3):
            state, info = pbp.step(model, state, (np.zeros((0, 19)), np.zeros(0)), np.zeros(0, int))
        mean, deviation = float(state.precision.mean), float(jnp.sqrt(state.precision.variance))
    assert int(info.skipped) == 0
    exact = gamma(6 + model.size / 2, scale=1 / (6 + np.sum(known**2) / 2))
    assert mean == pytest.approx(exact.mean(), rel=0.01)
    # The normalisers are Gaussian where the exact ones are Student's t: the spread is matched more roughly.
    assert deviation == pytest.approx(exact.std(), rel=0.1)
    np.testing.assert_allclose(state.sites.precision, exact.mean(), rtol=0.1)


def test_lambda_is_matched_to_its_tilted_moments():
    """Mean and variance of lambda under Gamma(a, b) N(m; 0, v + 1 / lambda), where a is large."""
    mean, variance, a, b = 1.5, 0.4, 400.0, 300.0
    with jax.enable_x64(True):
        found = pbp._tilted_precision(
            jnp.asarray(mean), jnp.asarray(variance), Gamma.from_shape_and_rate(a, b)
        )
        found_mean, found_variance = float(found.mean), float(found.variance)

    def moment(order):
        return quad(
            lambda t: t**order * gamma.pdf(t, a, scale=1 / b) * norm.pdf(mean, 0, np.sqrt(variance + 1 / t)),
            0.8,
            2.0,
            epsabs=0.0,
            epsrel=1e-11,
        )[0]

    first = moment(1) / moment(0)
    assert found_mean == pytest.approx(first, rel=1e-4)
    assert found_variance == pytest.approx(moment(2) / moment(0) - first**2, rel=0.01)


def test_means_start_at_random_with_variance_one_over_the_inputs():
    with jax.enable_x64(True):
        weights = pbp.init(NetworkRegression((99, 400, 1)), 0).posterior.weights
        means, variances = np.asarray(weights.mean), np.asarray(weights.variance)
    assert means[: 400 * 100].std() == pytest.approx(0.1, rel=0.02)
    assert means[400 * 100 :].std() == pytest.approx(401**-0.5, rel=0.15)
    np.testing.assert_allclose(variances, 6 / 5)


def test_no_pass_and_an_improper_prior_are_refused():
    with pytest.raises(ValueError, match="at least 1"):
        pbp.run(MODEL, bend(5), passes=0)
    with pytest.raises(ValueError, match="above 1"):
        pbp.init(MODEL, 0, shape=1.0)
