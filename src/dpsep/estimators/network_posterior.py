"""What a fitted network knows: weights with their posterior, the maps of the columns, predictions and draws.

Draws of the output follow the same approximation as its moments. With a Kronecker posterior the network is
linear in its weights about their mean: far from it, which a wide posterior reaches, the network itself is not
what the posterior was fitted to. With independent weights the drawn network is passed through as it is.
"""

import math
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from dpsep.estimators.outcomes import Normal, normal_below
from dpsep.estimators.predictive import PosteriorDraws
from dpsep.estimators.summary import LEFT_OUT, Summary, spans, width_parts
from dpsep.models import ProbitLikelihood, network
from dpsep.models.glm import Columns
from dpsep.models.network_factors import Basis, layer_shapes, spread, through, turn

Array = NDArray[np.float64]
ROWS = 4096
"""Rows that are predicted at a time."""
LARGEST = 1e100
"""Largest cell that is computed with: squares must not overflow."""


class FittedNetwork(NamedTuple):
    """A network with a Gaussian posterior of its weights, in scaled units.

    Attributes
    ----------
    kind
        ``"kronecker"`` (the output is linear in the weights about their mean), ``"diagonal"`` (independent
        weights, moments propagated) or ``"point"`` (weights without a posterior).
    widths, activation
        Of the network.
    direct
        Whether the inputs also reach the output directly.
    mean
        Posterior means of all weights, layer after layer, each (outputs, inputs + 1); with direct inputs the
        last layer has theirs between those of the hidden units and the bias.
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

    Examples
    --------
    >>> from dpsep import NetworkRegressor
    >>> X = np.linspace(-1, 1, 60)[:, None]
    >>> posterior = NetworkRegressor(private=False, hidden=3, steps=2).fit(X, X[:, 0]).posterior_
    >>> posterior.kind, posterior.widths
    ('diagonal', (1, 3, 1))
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
    direct: bool = False

    @property
    def shapes(self) -> list[tuple[int, int]]:
        """Shape of each layer's weights."""
        return layer_shapes(self.widths, direct=self.direct)

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

    def outputs(self, drawn: list[Array], X: Array) -> Array:
        """Output of each drawn network for each row, (draws, rows), in scaled units; see the module."""
        with jax.enable_x64(True):
            weights = tuple(jnp.asarray(part) for part in drawn)
            found = [
                np.asarray(_outputs(*self._known(self.variance), weights, X[start : start + ROWS]))
                for start in range(0, len(X), ROWS)
            ]
        return np.concatenate([np.zeros((len(drawn[0]), 0)), *found], axis=1)

    def summary(self, level: float = 0.9) -> Summary:
        """Return one row a layer: its weights, their size, width and how much of it is noise of privacy.

        Size and sd are root mean squares over the weights, `width` is that of an interval of that sd.
        """
        rows = []
        parts = (self.layers(part) for part in (self.mean, self.variance, self.noise_variance))
        for place, (mean, variance, noise) in enumerate(zip(*parts, strict=True)):
            noise_part = float(np.mean(noise)) if self.noise_aware else 0.0
            total = float(np.mean(variance)) + noise_part
            row: dict[str, Any] = {"layer": place + 1, "weights": int(mean.size)}
            row |= {"size": float(np.sqrt(np.mean(mean**2))), "sd": math.sqrt(total)}
            rows.append(
                row | {"width": 2 * spans(level) * math.sqrt(total)} | width_parts(total, noise_part, level)
            )
        noisy = bool(np.any(self.noise_variance > 0))
        return Summary(
            rows, level=level, noise=noisy, note=LEFT_OUT if noisy and not self.noise_aware else ""
        )

    def _known(self, variance: Array) -> tuple[str, str, "_Known"]:
        """What programs are compiled for, and what they take: the network with these variances of weights."""
        columns = Columns(*(jnp.asarray(part) for part in (self.low, self.high, self.centre, self.scale)))
        layers = self.layers(self.mean), self.layers(variance)
        return self.kind, self.activation, _Known(columns, self.turn, *layers, self.left, self.right)

    def _predictor(self, rows: Array) -> tuple[Array, Array]:
        total = self.variance + (self.noise_variance if self.noise_aware else 0.0)
        with jax.enable_x64(True):
            mean, variance = _moments(*self._known(total), np.asarray(rows, np.float64))
        return np.asarray(mean), np.asarray(variance)


class _Known(NamedTuple):
    """A network as compiled programs take it: maps of the features, and of each layer the weights."""

    columns: Columns
    turn: Any
    mean: tuple[Any, ...]
    variance: tuple[Any, ...]
    left: tuple[Any, ...]
    right: tuple[Any, ...]


@partial(jax.jit, static_argnums=(0, 1))
def _moments(kind: str, activation: Any, known: _Known, rows: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Mean and variance of the output for each row."""
    x = known.columns.apply(rows)
    if kind == "diagonal":
        layers = tuple(map(network.Layer, known.mean, known.variance))
        moments = jax.vmap(lambda row: network.forward(layers, row, activation))(x @ known.turn)
        return moments.mean, moments.variance
    passed = through(known.mean, x, activation)
    if kind == "point":
        return passed.output, jnp.zeros(len(rows))
    bases = tuple(
        Basis(left, right, jnp.zeros(())) for left, right in zip(known.left, known.right, strict=True)
    )
    return passed.output, spread(turn(bases, passed), known.variance)


@partial(jax.jit, static_argnums=(0, 1))
def _outputs(
    kind: str, activation: Any, known: _Known, drawn: tuple[jax.Array, ...], rows: jax.Array
) -> jax.Array:
    """Output of each drawn network for each row."""
    x = known.columns.apply(rows)
    if kind == "kronecker":
        output, tangent = jax.linearize(lambda weights: through(weights, x, activation).output, known.mean)
        moved = tuple(one - centre for one, centre in zip(drawn, known.mean, strict=True))
        return output + jax.lax.map(tangent, moved)
    x = x @ known.turn if kind == "diagonal" else x
    return jax.lax.map(lambda weights: through(weights, x, activation).output, drawn)


class NetworkSample(NamedTuple):
    """Drawn parameters of a network: one array a layer; noise precision, scaled, (draws, 1) or None."""

    layers: list[Array]
    precision: Array | None


class NetworkDraws(PosteriorDraws):
    """Draws of the network estimators."""

    posterior_: FittedNetwork

    def _draw_parameters(self, draws: int, generator: np.random.Generator) -> NetworkSample:
        found = self.posterior_
        layers = found.draw(draws, generator)
        if found.noise_shape is None or found.noise_rate is None:
            return NetworkSample(layers, None)
        return NetworkSample(layers, generator.gamma(found.noise_shape, 1.0 / found.noise_rate, (draws, 1)))

    def _named(self, parameters: NetworkSample) -> dict[str, Array]:
        names = {f"layer_{place + 1}": part for place, part in enumerate(parameters.layers)}
        if parameters.precision is not None:
            names["noise_sd"] = self.posterior_.target_scale * parameters.precision[:, 0] ** -0.5
        return names

    def _predictors(self, parameters: NetworkSample, X: Any) -> Array:
        found = self.posterior_
        # Far beyond what can be computed with, an input says no more than that it is far.
        rows = np.clip(self._new_rows(X), -LARGEST, LARGEST)
        return found.target_centre + found.target_scale * found.outputs(parameters.layers, rows)

    def _law(self, parameters: NetworkSample) -> Any:
        if parameters.precision is None:
            return ProbitLikelihood()
        return Normal(parameters.precision / self.posterior_.target_scale**2)

    def _normal_below(self, mean: Array, variance: Array, y: Array) -> Array:
        found = self.posterior_
        scaled = (y - found.target_centre) / found.target_scale
        assert found.noise_rate is not None
        return normal_below(mean, variance, scaled, found.noise_shape, found.noise_rate)
