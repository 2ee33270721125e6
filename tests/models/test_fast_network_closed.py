"""Derivatives of a chunk of records, stage by stage: those that automatic differentiation gives."""

from itertools import pairwise
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dpsep.models import network
from dpsep.models.linear import GaussianLikelihood
from dpsep.models.network import Layer
from dpsep.models.network_closed import derivatives, passes

RNG = np.random.default_rng(0)
LIKELIHOOD = GaussianLikelihood(4.0)
X, Y = RNG.normal(size=(5, 3)), RNG.normal(size=5)


@pytest.fixture(autouse=True)
def _doubles():
    with jax.enable_x64(True):
        yield


def layers_of(widths: tuple[int, ...]) -> tuple[Layer, ...]:
    shapes = [(outputs, inputs + 1) for inputs, outputs in pairwise(widths)]
    return tuple(
        Layer(jnp.asarray(RNG.normal(size=shape)), jnp.asarray(RNG.uniform(0.05, 0.5, shape)))
        for shape in shapes
    )


@pytest.mark.parametrize(
    ("widths", "activation"),
    [
        ((3, 1), "relu"),
        ((3, 4, 2, 1), "relu"),
        ((3, 4, 1), "sigmoid"),
        ((3, 4, 1), "sine"),
    ],
)
def test_derivatives_are_those_of_log_z(widths: tuple[int, ...], activation: Any) -> None:
    layers = layers_of(widths)

    def log_z(layers: tuple[Layer, ...], x: Any, y: Any) -> jax.Array:
        return LIKELIHOOD.tilted(*network.forward(layers, x, activation), y).log_z

    @jax.jit
    def found(layers: tuple[Layer, ...]) -> tuple[jax.Array, jax.Array]:
        parts, rest = passes(
            layers, jnp.asarray(X), lambda u: (LIKELIHOOD.tilted(u.mean, u.variance, Y), ()), activation
        )
        assert rest == ()
        return derivatives(layers, parts)

    slopes = jax.jit(jax.vmap(jax.grad(log_z), (None, 0, 0)))(layers, jnp.asarray(X), jnp.asarray(Y))
    mean = np.concatenate([np.asarray(layer.mean).reshape(len(X), -1) for layer in slopes], axis=1)
    variance = np.concatenate([np.asarray(layer.variance).reshape(len(X), -1) for layer in slopes], axis=1)
    gradient, curvature = found(layers)
    np.testing.assert_allclose(gradient, mean, rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(curvature, mean**2 - 2.0 * variance, rtol=1e-10, atol=1e-11)
