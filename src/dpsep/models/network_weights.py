"""Weights of a network as one array a layer: the same density as a flat `DiagonalGaussian`, cheaper to move.

A step on one record costs about as much as copying all weights, so that cutting a flat vector into layers and
joining it again is felt. Natural-parameter arithmetic works on any pytree; algorithms that run record by
record take a prior of this form (`NetworkRegression.layered`) and give their result in it.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike


class LayerWeights(NamedTuple):
    """Independent Gaussians on the weights of one layer, by natural parameters.

    Attributes
    ----------
    eta
        Precision times mean, shape (outputs, inputs + 1).
    precision
        Inverse variances, same shape.
    """

    eta: jax.Array
    precision: jax.Array

    event_ndims = (2, 2)  # no annotation: a constant of the class, not a field
    symmetric = (False, False)

    @property
    def mean(self) -> jax.Array:
        """Means, shape (outputs, inputs + 1)."""
        return self.eta / self.precision

    @property
    def variance(self) -> jax.Array:
        """Variances, shape (outputs, inputs + 1)."""
        return 1.0 / self.precision


class LayeredWeights(NamedTuple):
    """Independent Gaussians on all weights of a network, layer by layer.

    Attributes
    ----------
    layers
        From the inputs to the output.

    Examples
    --------
    >>> bool(LayeredWeights((LayerWeights(jnp.zeros((2, 3)), jnp.ones((2, 3))),)).is_proper)
    True
    """

    layers: tuple[LayerWeights, ...]

    @property
    def is_proper(self) -> jax.Array:
        """Whether this is a density: finite, with positive precisions."""
        good = jnp.asarray(True)
        for layer in self.layers:
            # A sum of finite numbers is finite, and a comparison with NaN is false: two cheap reductions.
            good = good & jnp.all(layer.precision > 0) & jnp.all(jnp.isfinite(layer.eta + layer.precision))
        return good

    def project(self, floor: ArrayLike) -> "LayeredWeights":
        """Raise the precisions that are below `floor` to `floor`; the others stay bit for bit."""
        layers = tuple(
            LayerWeights(layer.eta, jnp.maximum(layer.precision, jnp.asarray(floor, layer.precision.dtype)))
            for layer in self.layers
        )
        return LayeredWeights(layers)
