"""The network as a model that ADF, SEP and EP run on."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dpsep.families import DiagonalGaussian, multiply
from dpsep.inference import adf
from dpsep.models.concentrated_noise import ConcentratedNoise
from dpsep.models.linear import LearnedNoise
from dpsep.models.network_model import NetworkClassification, NetworkPosterior, NetworkRegression


def test_weights_are_counted_with_their_biases():
    assert NetworkRegression((3, 5, 4, 1)).size == 5 * 4 + 4 * 6 + 1 * 5


@pytest.mark.parametrize("widths", [(3,), (3, 2), (0, 1), (3, 0, 1)])
def test_what_is_no_network_with_one_output_is_refused(widths):
    with pytest.raises(ValueError, match="one output"):
        NetworkRegression(widths)


def test_an_unknown_activation_is_refused():
    with pytest.raises(ValueError, match="relu"):
        NetworkRegression((3, 1), "tanh")  # pyright: ignore[reportArgumentType]


def test_tilted_moments_follow_from_derivatives_of_log_z():
    """Tilted mean m + v dlogZ/dm, tilted variance v - v^2 ((dlogZ/dm)^2 - 2 dlogZ/dv)."""
    with jax.enable_x64(True):
        model = NetworkRegression((2, 4, 1))
        prior, means = model.start(0)
        cavity = prior._replace(weights=DiagonalGaussian.from_moments(means, jnp.full(model.size, 0.1)))
        record = (jnp.array([0.5, -1.0]), jnp.asarray(0.7))

        def log_z(mean, variance):
            weights = DiagonalGaussian.from_moments(mean, variance)
            moments = model.output(weights, record[0][None])
            tilt, _ = LearnedNoise().tilted(moments.mean[0], moments.variance[0], cavity.noise, record[1])
            return tilt.log_z

        mean, variance = cavity.weights.mean, cavity.weights.variance
        by_mean, by_variance = jax.jit(jax.grad(log_z, argnums=(0, 1)))(mean, variance)
        tilted = multiply(cavity, jax.jit(model.local_factor)(cavity, record)).weights
        np.testing.assert_allclose(tilted.mean, mean + variance * by_mean, rtol=1e-6, atol=1e-9)
        expected = variance - variance**2 * (by_mean**2 - 2 * by_variance)
        np.testing.assert_allclose(tilted.variance, expected, rtol=1e-5)


def test_filtering_learns_a_function_and_its_noise():
    generator = np.random.default_rng(0)
    x = generator.uniform(-2, 2, (1500, 1))
    y = np.abs(x[:, 0]) - 1.0 + 0.1 * generator.standard_normal(1500)
    with jax.enable_x64(True):
        model = NetworkRegression((1, 20, 1), noise_model=ConcentratedNoise())
        prior, means = model.start(1)
        start = prior._replace(weights=DiagonalGaussian.from_moments(0.5 * means, jnp.ones(model.size)))
        posterior = start
        filtering = jax.jit(
            lambda before: adf.run(model, before, (jnp.asarray(x), jnp.asarray(y)))[0].posterior
        )
        for _ in range(4):
            posterior = filtering(posterior)
        assert isinstance(posterior, NetworkPosterior)
        grid = np.linspace(-1.8, 1.8, 50)[:, None]
        found = model.predictive(posterior, grid)
        assert float(jnp.sqrt(jnp.mean((found.mean - (np.abs(grid[:, 0]) - 1.0)) ** 2))) < 0.1
        assert 0.07 < float(jnp.sqrt(posterior.noise.rate / posterior.noise.shape)) < 0.2
        scores = model.log_predictive(posterior, x, y)
        assert scores.shape == (1500,)
        assert float(scores.mean()) > 0.3


def test_concentrated_noise_agrees_where_the_noise_is_well_known():
    """Both are the factor at tau = E[tau] up to O(1/a), here 1e-6."""
    with jax.enable_x64(True):
        exact, concentrated = (
            NetworkRegression((2, 4, 1), noise_model=m) for m in (LearnedNoise(), ConcentratedNoise())
        )
        prior, means = exact.start(0, shape=1e6, rate=1e6)
        cavity = prior._replace(weights=DiagonalGaussian.from_moments(means, jnp.full(exact.size, 0.1)))
        record = (jnp.array([0.5, -1.0]), jnp.asarray(0.7))
        factors = [jax.jit(model.local_factor)(cavity, record) for model in (exact, concentrated)]
        for one, other in zip(*map(jax.tree.leaves, factors), strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-7)


MODELS = [
    NetworkRegression((2, 4, 3, 1), noise_model=ConcentratedNoise()),
    NetworkClassification((2, 4, 1), "sigmoid"),
]


@pytest.mark.parametrize("model", MODELS, ids=["regression", "classification"])
def test_layers_and_one_vector_give_the_same_factor_and_filtering_multiplies_it_in(model):
    with jax.enable_x64(True):
        prior, means = model.start(0)
        weights = DiagonalGaussian.from_moments(means, jnp.full(model.size, 0.3))
        cavity = model.joined(weights, model.parts(prior)[1])
        record = (jnp.array([0.5, -1.0]), jnp.asarray(1.0))
        factor = jax.jit(model.local_factor)
        flat, layered = factor(cavity, record), factor(model.layered(cavity), record)
        assert jax.tree.structure(layered) == jax.tree.structure(model.layered(cavity))
        for one, other in zip(jax.tree.leaves(flat), jax.tree.leaves(model.flat(layered)), strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-12)
        layers, rest = jax.jit(model.filtered)(model.layers(weights), model.parts(cavity)[1], record)
        expected, kept = model.parts(multiply(cavity, flat))
        for found, layer in zip(layers, model.layers(expected), strict=True):
            np.testing.assert_allclose(found.mean, layer.mean, rtol=1e-9, atol=1e-12)
            np.testing.assert_allclose(found.variance, layer.variance, rtol=1e-9)
        for one, other in zip(jax.tree.leaves(rest), jax.tree.leaves(kept), strict=True):
            np.testing.assert_allclose(one, other)


def test_tilted_moments_of_a_classifier_follow_from_derivatives_of_its_log_probability():
    with jax.enable_x64(True):
        model = NetworkClassification((2, 4, 1))
        _, means = model.start(3)
        cavity = DiagonalGaussian.from_moments(means, jnp.full(model.size, 0.2))
        x, y = jnp.array([0.5, -1.0]), jnp.asarray(-1.0)

        def log_z(mean, variance):
            return model.log_predictive(DiagonalGaussian.from_moments(mean, variance), x[None], y[None])[0]

        mean, variance = cavity.mean, cavity.variance
        by_mean, by_variance = jax.jit(jax.grad(log_z, argnums=(0, 1)))(mean, variance)
        tilted = multiply(cavity, jax.jit(model.local_factor)(cavity, (x, y)))
        np.testing.assert_allclose(tilted.mean, mean + variance * by_mean, rtol=1e-7, atol=1e-10)
        expected = variance - variance**2 * (by_mean**2 - 2 * by_variance)
        np.testing.assert_allclose(tilted.variance, expected, rtol=1e-7)


def test_probabilities_of_both_labels_are_the_log_predictive_and_sum_to_one():
    with jax.enable_x64(True):
        model = NetworkClassification((2, 4, 1))
        _, means = model.start(3)
        posterior = DiagonalGaussian.from_moments(means, jnp.full(model.size, 0.2))
        x = np.random.default_rng(0).standard_normal((5, 2))
        up = np.asarray(model.probability(posterior, x))
        np.testing.assert_allclose(np.exp(model.log_predictive(posterior, x, np.ones(5))), up, rtol=1e-12)
        np.testing.assert_allclose(
            np.exp(model.log_predictive(posterior, x, -np.ones(5))), 1 - up, rtol=1e-10
        )
