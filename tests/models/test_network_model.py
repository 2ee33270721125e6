"""The network as a model that ADF, SEP and EP run on."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dpsep.families import DiagonalGaussian, multiply
from dpsep.inference import adf
from dpsep.models.linear import LearnedNoise
from dpsep.models.network_model import NetworkPosterior, NetworkRegression


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
            moments = model._moments(cavity._replace(weights=weights), record[0][None])
            tilt, _ = LearnedNoise().tilted(moments.mean[0], moments.variance[0], cavity.noise, record[1])
            return tilt.log_z

        mean, variance = cavity.weights.mean, cavity.weights.variance
        by_mean, by_variance = jax.grad(log_z, argnums=(0, 1))(mean, variance)
        tilted = multiply(cavity, model.local_factor(cavity, record)).weights
        np.testing.assert_allclose(tilted.mean, mean + variance * by_mean, rtol=1e-6, atol=1e-9)
        expected = variance - variance**2 * (by_mean**2 - 2 * by_variance)
        np.testing.assert_allclose(tilted.variance, expected, rtol=1e-5)


def test_filtering_learns_a_function_and_its_noise():
    generator = np.random.default_rng(0)
    x = generator.uniform(-2, 2, (1500, 1))
    y = np.abs(x[:, 0]) - 1.0 + 0.1 * generator.standard_normal(1500)
    with jax.enable_x64(True):
        model = NetworkRegression((1, 20, 1))
        prior, means = model.start(1)
        start = prior._replace(weights=DiagonalGaussian.from_moments(0.5 * means, jnp.ones(model.size)))
        posterior = start
        for _ in range(4):
            posterior = adf.run(model, posterior, (jnp.asarray(x), jnp.asarray(y)))[0].posterior
        assert isinstance(posterior, NetworkPosterior)
        grid = np.linspace(-1.8, 1.8, 50)[:, None]
        found = model.predictive(posterior, grid)
        assert float(jnp.sqrt(jnp.mean((found.mean - (np.abs(grid[:, 0]) - 1.0)) ** 2))) < 0.1
        assert 0.07 < float(jnp.sqrt(posterior.noise.rate / posterior.noise.shape)) < 0.2
        scores = model.log_predictive(posterior, x, y)
        assert scores.shape == (1500,)
        assert float(scores.mean()) > 0.3
