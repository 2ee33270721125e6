"""Moments through a network against draws, quadrature and derivatives by another route."""

from itertools import pairwise
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import norm

from dpsep.models import GaussianLikelihood, ProbitLikelihood
from dpsep.models import network as net

ACTIVATED: dict[str, Any] = {
    "relu": lambda a: np.maximum(a, 0.0),
    "sigmoid": lambda a: norm.cdf(np.sqrt(np.pi / 8) * a),
    "sine": np.sin,
}


def layers(*widths: int, seed: int = 0) -> tuple[net.Layer, ...]:
    generator = np.random.default_rng(seed)
    shapes = [(outputs, inputs + 1) for inputs, outputs in pairwise(widths)]
    return tuple(
        net.Layer(
            jnp.asarray(generator.standard_normal(shape)), jnp.asarray(generator.uniform(0.01, 0.3, shape))
        )
        for shape in shapes
    )


def draw(network: tuple[net.Layer, ...], x: np.ndarray, draws: int, activation: str) -> np.ndarray:
    """Outputs of networks whose weights are drawn."""
    generator = np.random.default_rng(1)
    values = np.broadcast_to(x, (draws, len(x)))
    for place, layer in enumerate(network):
        shape = (draws, *layer.mean.shape)
        weights = np.asarray(layer.mean) + np.sqrt(layer.variance) * generator.standard_normal(shape)
        inputs = np.concatenate([values, np.ones((draws, 1))], axis=1)
        values = np.einsum("noi,ni->no", weights, inputs) / np.sqrt(inputs.shape[1])
        if place < len(network) - 1:
            values = ACTIVATED[activation](values)
    return values[:, 0]


@pytest.mark.parametrize("activation", ACTIVATED)
@pytest.mark.parametrize("widths", [(3, 1), (3, 30, 1)])
def test_moments_of_the_output_are_those_of_drawn_networks(widths, activation):
    x = np.array([0.5, -1.0, 2.0])
    with jax.enable_x64(True):
        network = layers(*widths)
        moments = net.forward(network, jnp.asarray(x), activation)
        drawn = draw(network, x, 100_000, activation)
        error = 5 * drawn.std() / np.sqrt(len(drawn))
        assert float(moments.mean) == pytest.approx(drawn.mean(), abs=error)
        assert float(moments.variance) == pytest.approx(drawn.var(), rel=0.03)


@pytest.mark.parametrize(
    "likelihood", [GaussianLikelihood(4.0), ProbitLikelihood()], ids=["gaussian", "probit"]
)
@pytest.mark.parametrize("activation", ACTIVATED)
@pytest.mark.parametrize("widths", [(3, 1), (3, 5, 1), (3, 6, 4, 1)])
def test_slopes_are_the_derivatives_of_log_z(widths, activation, likelihood):
    with jax.enable_x64(True):
        network, x, y = layers(*widths), jnp.array([0.3, -0.7, 1.2]), jnp.asarray(1.0)

        def log_z(network):
            moments = net.forward(network, x, activation)
            return likelihood.tilted(moments.mean, moments.variance, y).log_z

        moments = net.forward(network, x, activation)
        found = net.slopes(network, x, likelihood.tilted(moments.mean, moments.variance, y), activation)
        for expected, slope in zip(jax.grad(log_z)(network), found, strict=True):
            np.testing.assert_allclose(slope.mean, expected.mean, rtol=1e-8, atol=1e-12)
            np.testing.assert_allclose(slope.variance, expected.variance, rtol=1e-8, atol=1e-12)


def test_without_hidden_layers_the_factors_are_those_of_linear_regression():
    with jax.enable_x64(True):
        (layer,) = layers(2, 1)
        x, likelihood = jnp.array([0.4, -1.1]), GaussianLikelihood(2.0)
        moments = net.forward((layer,), x)
        tilt = likelihood.tilted(moments.mean, moments.variance, 0.9)
        ((mean_part, precision),) = net.local_factors((layer,), net.slopes((layer,), x, tilt))
        design = np.append(np.asarray(x), 1.0) / np.sqrt(3.0)
        # A coordinate alone: its tilted moments are m + v g x and v - v^2 s x^2.
        mean, variance = np.asarray(layer.mean[0]), np.asarray(layer.variance[0])
        tilted_mean = mean + variance * float(tilt.gradient) * design
        tilted_variance = variance - variance**2 * float(tilt.curvature) * design**2
        np.testing.assert_allclose(precision[0], 1 / tilted_variance - 1 / variance, rtol=1e-9)
        np.testing.assert_allclose(mean_part[0], tilted_mean / tilted_variance - mean / variance, rtol=1e-9)


def test_counting_from_an_origin_moves_the_mean_part_by_precision_times_origin():
    with jax.enable_x64(True):
        network, x = layers(2, 4, 1), jnp.array([0.4, -1.1])
        moments = net.forward(network, x)
        slope = net.slopes(network, x, GaussianLikelihood(2.0).tilted(moments.mean, moments.variance, 0.9))
        origin = tuple(layer.mean + 0.1 for layer in network)
        plain, moved = net.local_factors(network, slope), net.local_factors(network, slope, origin)
        for (eta, precision), (shifted, same), place in zip(plain, moved, origin, strict=True):
            np.testing.assert_array_equal(precision, same)
            np.testing.assert_allclose(shifted, eta - precision * place, rtol=1e-9, atol=1e-12)


def test_tiny_and_huge_variances_give_finite_factors():
    with jax.enable_x64(True):
        x = jnp.array([1.0, -1.0])
        for variance in (1e-300, 1e-12, 1e12):
            network = tuple(
                layer._replace(variance=jnp.full_like(layer.mean, variance)) for layer in layers(2, 5, 1)
            )
            moments = net.forward(network, x)
            tilt = GaussianLikelihood(1.0).tilted(moments.mean, moments.variance, 0.5)
            for eta, precision in net.local_factors(network, net.slopes(network, x, tilt)):
                assert bool(jnp.isfinite(eta).all() & jnp.isfinite(precision).all())
