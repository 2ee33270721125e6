"""Weights layer by layer are the same density as one flat vector."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dpsep.families import norm
from dpsep.families.flat import from_vector, to_vector
from dpsep.models.network_weights import LayeredWeights, LayerWeights


def weights(seed: int = 0) -> LayeredWeights:
    generator = np.random.default_rng(seed)
    shapes = [(3, 3), (1, 4)]  # a square layer is no symmetric matrix
    return LayeredWeights(
        tuple(
            LayerWeights(
                jnp.asarray(generator.standard_normal(s)), jnp.asarray(generator.uniform(0.5, 2.0, s))
            )
            for s in shapes
        )
    )


def test_flat_coordinates_hold_every_weight_once_and_come_back():
    given = weights()
    flat = to_vector(given)
    expected = np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(given)])
    np.testing.assert_array_equal(flat, expected)
    assert float(norm(given)) == pytest.approx(float(np.linalg.norm(expected)), rel=1e-6)
    for back, leaf in zip(jax.tree.leaves(from_vector(given, flat)), jax.tree.leaves(given), strict=True):
        np.testing.assert_array_equal(back, leaf)


@pytest.mark.parametrize("value", [0.0, -1.0, np.nan, np.inf])
def test_one_bad_precision_makes_the_whole_improper(value):
    given = weights()
    assert bool(given.is_proper)
    last = given.layers[1]
    bad = LayerWeights(last.eta, last.precision.at[0, 2].set(value))
    assert not bool(LayeredWeights((given.layers[0], bad)).is_proper)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_one_bad_mean_part_makes_the_whole_improper(value):
    given = weights()
    first = given.layers[0]
    bad = LayerWeights(first.eta.at[0, 0].set(value), first.precision)
    assert not bool(LayeredWeights((bad, given.layers[1])).is_proper)


def test_projection_raises_only_what_is_below():
    given = weights()
    for before, after in zip(given.layers, given.project(1.0).layers, strict=True):
        np.testing.assert_array_equal(after.precision, np.maximum(before.precision, 1.0))
        np.testing.assert_array_equal(after.eta, before.eta)
