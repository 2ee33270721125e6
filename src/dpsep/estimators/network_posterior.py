"""What a fitted network knows: weights with their posterior, the maps of the columns, and predictions."""

import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from dpsep.models import network
from dpsep.models.glm import Columns
from dpsep.models.network_factors import Basis, spread, through, turn

Array = NDArray[np.float64]
ROWS = 4096
"""Rows that are predicted at a time."""


class FittedNetwork(NamedTuple):
    """A network with a Gaussian posterior of its weights, in scaled units.

    Attributes
    ----------
    kind
        ``"kronecker"`` (the output is linear in the weights about their mean), ``"diagonal"`` (independent
        weights, moments propagated) or ``"point"`` (weights without a posterior).
    widths, activation
        Of the network.
    mean
        Posterior means of all weights, layer after layer, each (outputs, inputs + 1).
    left, right
        Of kind kronecker: basis of each layer, in which the posterior is independent.
    variance
        Posterior variances, in the bases.
    noise_variance
        Variances of the means that the noise of privacy causes, in the bases.
    turn
        Of kind diagonal: orthogonal matrix that scaled inputs are multiplied by.
    low, high, centre, scale
        Maps of the features: clamped, shifted, scaled.
    target_centre, target_scale
        A target y is scaled to (y - target_centre) / target_scale.
    noise_shape, noise_rate
        Gamma posterior of the noise precision in scaled units; None for labels.
    noise_aware
        Whether predictions account for `noise_variance`.
    """

    kind: str
    widths: tuple[int, ...]
    activation: str
    mean: Array
    left: tuple[Array, ...]
    right: tuple[Array, ...]
    variance: Array
    noise_variance: Array
    turn: Array
    low: Array
    high: Array
    centre: Array
    scale: Array
    target_centre: float
    target_scale: float
    noise_shape: float | None
    noise_rate: float | None
    noise_aware: bool

    @property
    def shapes(self) -> list[tuple[int, int]]:
        """Shape of each layer's weights."""
        pairs = zip(self.widths[:-1], self.widths[1:], strict=True)
        return [(outputs, inputs + 1) for inputs, outputs in pairs]

    @property
    def noise_precision(self) -> float:
        """Expected noise precision, in scaled units."""
        assert self.noise_shape is not None
        assert self.noise_rate is not None
        return self.noise_shape / self.noise_rate

    def layers(self, flat: Array) -> tuple[Array, ...]:
        """One array a layer."""
        ends = np.cumsum([math.prod(shape) for shape in self.shapes])[:-1]
        return tuple(part.reshape(s) for part, s in zip(np.split(flat, ends), self.shapes, strict=True))

    def predictor(self, X: Array) -> tuple[Array, Array]:
        """Mean and variance of the output for each row, in scaled units."""
        means, variances = [], []
        for start in range(0, len(X), ROWS):
            mean, variance = self._predictor(X[start : start + ROWS])
            means.append(mean)
            variances.append(variance)
        empty = np.zeros(0)
        return np.concatenate([empty, *means]), np.concatenate([empty, *variances])

    def draw(self, draws: int, generator: np.random.Generator) -> list[Array]:
        """Draw weights from the posterior: one array (draws, outputs, inputs + 1) a layer."""
        total = self.variance + (self.noise_variance if self.noise_aware else 0.0)
        spread_of = self.layers(np.sqrt(total))
        found = []
        for place, (mean, deviation) in enumerate(zip(self.layers(self.mean), spread_of, strict=True)):
            noise = generator.standard_normal((draws, *mean.shape)) * deviation
            if self.kind == "kronecker":
                noise = self.left[place] @ noise @ self.right[place].T
            found.append(mean + noise)
        return found

    def summary(self) -> list[dict[str, Any]]:
        """Return one row a layer: its weights, their size and width, and how much of it is DP noise."""
        rows = []
        parts = (self.layers(part) for part in (self.mean, self.variance, self.noise_variance))
        for place, (mean, variance, noise) in enumerate(zip(*parts, strict=True)):
            total = variance + (noise if self.noise_aware else 0.0)
            rows.append(
                {
                    "layer": place + 1,
                    "weights": int(mean.size),
                    "size": float(np.sqrt(np.mean(mean**2))),
                    "sd": float(np.sqrt(np.mean(total))),
                    "noise_share": float(np.mean(noise / np.maximum(total, 1e-300)))
                    if self.noise_aware
                    else 0.0,
                }
            )
        return rows

    def _predictor(self, rows: Array) -> tuple[Array, Array]:
        with jax.enable_x64(True):
            columns = Columns(*(jnp.asarray(part) for part in (self.low, self.high, self.centre, self.scale)))
            x = columns.apply(jnp.asarray(rows, jnp.float64))
            total = self.variance + (self.noise_variance if self.noise_aware else 0.0)
            activation: Any = self.activation
            if self.kind == "diagonal":
                layers = tuple(
                    network.Layer(jnp.asarray(mean), jnp.asarray(variance))
                    for mean, variance in zip(self.layers(self.mean), self.layers(total), strict=True)
                )
                moments = jax.vmap(lambda row: network.forward(layers, row, activation))(x @ self.turn)
                return np.asarray(moments.mean), np.asarray(moments.variance)
            weights = tuple(jnp.asarray(part) for part in self.layers(self.mean))
            passed = through(weights, x, activation)
            if self.kind == "point":
                return np.asarray(passed.output), np.zeros(len(rows))
            bases = tuple(
                Basis(jnp.asarray(left), jnp.asarray(right), jnp.zeros(()))
                for left, right in zip(self.left, self.right, strict=True)
            )
            variance = spread(turn(bases, passed), tuple(map(jnp.asarray, self.layers(total))))
            return np.asarray(passed.output), np.asarray(variance)
