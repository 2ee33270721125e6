r"""Regression and classification by a fully connected network: models that EP, ADF and SEP run on by records.

The posterior of the weights is an independent Gaussian for each. Regression adds a Gamma for the noise
precision, q(W) q(tau), as in the paper's second experiment; classification has a probit output and weights
alone. A record's local factor follows from the output's tilted moments (`LearnedNoise`, `ProbitLikelihood`)
carried back through the network (`dpsep.models.network`). Assumed density filtering with it, several times
over the records, is probabilistic backpropagation (`dpsep.inference.pbp`).

Weights are one flat vector, layer after layer, or one array a layer (`layered`), which is faster record by
record; a local factor has the form of its cavity.
"""

import math
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from dpsep.families import DiagonalGaussian, Gamma, multiply
from dpsep.models import network
from dpsep.models.base import Predictive, Tilted
from dpsep.models.linear import LearnedNoise
from dpsep.models.network import Activation, Layer
from dpsep.models.network_weights import LayeredWeights, LayerWeights
from dpsep.models.probit import ProbitLikelihood

Weights = DiagonalGaussian | LayeredWeights
"""Natural parameters of all weights, flat or layer by layer."""


class NetworkPosterior(NamedTuple):
    """Posterior, cavity or factor of a network's weights and noise precision, independent of each other.

    Attributes
    ----------
    weights
        Natural parameters of all weights.
    noise
        Natural parameters of the noise precision.
    """

    weights: Any
    noise: Gamma

    @property
    def is_proper(self) -> jax.Array:
        """Whether both parts are densities."""
        return self.weights.is_proper & self.noise.is_proper

    def project(self, floor: ArrayLike) -> "NetworkPosterior":
        """Both parts raised to `floor` where they are below."""
        return NetworkPosterior(self.weights.project(floor), self.noise.project(floor))


@dataclass(frozen=True)
class Network:
    """What regression and classification share: the shape of the network and the two forms of its weights.

    Parameters
    ----------
    widths
        Inputs, hidden units of each layer, and the one output: (8, 50, 1). Without hidden layers the model is
        linear.
    activation
        ``"relu"`` or ``"sigmoid"``.
    """

    widths: tuple[int, ...]
    activation: Activation = "relu"

    def __post_init__(self) -> None:
        """Refuse what is no network with one output."""
        if len(self.widths) < 2 or min(self.widths) < 1 or self.widths[-1] != 1:
            raise ValueError(
                f"widths is {self.widths}; it must name the inputs, the hidden units of each layer and one "
                "output, such as (8, 50, 1)."
            )
        if self.activation not in network.ACTIVATIONS:
            raise ValueError(f"activation is {self.activation!r}; it must be one of {network.ACTIVATIONS}.")

    @property
    def size(self) -> int:
        """Number of weights, biases included."""
        return sum(math.prod(shape) for shape in self.shapes)

    @property
    def shapes(self) -> list[tuple[int, int]]:
        """Outputs and inputs of each layer, the bias counted as an input."""
        pairs = zip(self.widths[:-1], self.widths[1:], strict=True)
        return [(outputs, inputs + 1) for inputs, outputs in pairs]

    def layers(self, weights: Weights) -> tuple[Layer, ...]:
        """Moments of the weights, layer by layer."""
        parts = self.layered_weights(weights).layers
        variances = [part.variance for part in parts]
        return tuple(Layer(part.eta * own, own) for part, own in zip(parts, variances, strict=True))

    def layered_weights(self, weights: Weights) -> LayeredWeights:
        """One array a layer; weights that have this form already are returned as they are."""
        if isinstance(weights, LayeredWeights):
            return weights
        etas, precisions = self._split(weights.eta), self._split(weights.precision)
        return LayeredWeights(tuple(map(LayerWeights, etas, precisions)))

    def flat_weights(self, weights: Weights) -> DiagonalGaussian:
        """One vector of all weights; weights that have this form already are returned as they are."""
        if isinstance(weights, DiagonalGaussian):
            return weights
        return DiagonalGaussian(
            jnp.concatenate([layer.eta.ravel() for layer in weights.layers]),
            jnp.concatenate([layer.precision.ravel() for layer in weights.layers]),
        )

    def output(self, weights: Weights, x: ArrayLike) -> network.Moments:
        """Mean and variance of the output for each row of x, from the weights alone."""
        layers = self.layers(weights)
        return jax.vmap(lambda row: network.forward(layers, row, self.activation))(jnp.asarray(x))

    def parts(self, posterior: Any) -> tuple[Any, Any]:
        """Weights of a posterior, and the rest: the noise precision of regression."""
        return posterior, ()

    def joined(self, weights: Any, rest: Any) -> Any:
        """Posterior of these parts."""
        del rest
        return weights

    def layered(self, posterior: Any) -> Any:
        """Posterior with one array of weights a layer."""
        weights, rest = self.parts(posterior)
        return self.joined(self.layered_weights(weights), rest)

    def flat(self, posterior: Any) -> Any:
        """Posterior with one vector of all weights."""
        weights, rest = self.parts(posterior)
        return self.joined(self.flat_weights(weights), rest)

    def local_factor(self, cavity: Any, record: tuple[ArrayLike, ArrayLike]) -> Any:
        """Tilted minus cavity in natural parameters, for one record, in the form of the cavity."""
        weights, rest = self.parts(cavity)
        layers = self.layers(weights)
        slopes, factor = self._slopes(layers, rest, record)
        parts = network.local_factors(layers, slopes)
        found = LayeredWeights(tuple(LayerWeights(*part) for part in parts))
        return self.joined(
            self.flat_weights(found) if isinstance(weights, DiagonalGaussian) else found, factor
        )

    def filtered(
        self, layers: tuple[Layer, ...], rest: Any, record: tuple[ArrayLike, ArrayLike]
    ) -> tuple[tuple[Layer, ...], Any]:
        """Moments of the weights, and the rest, once a record is multiplied in: a step of filtering.

        The same as the posterior times `local_factor`, but moments stay moments, which saves the divisions.
        """
        slopes, factor = self._slopes(layers, rest, record)
        return network.tilted_layers(layers, slopes), multiply(rest, factor)

    def _slopes(
        self, layers: tuple[Layer, ...], rest: Any, record: tuple[ArrayLike, ArrayLike]
    ) -> tuple[tuple[network.Slopes, ...], Any]:
        """Derivatives of log Z by the weights' moments, and the local factor on the rest."""
        x, y = jnp.asarray(record[0]), jnp.asarray(record[1])
        tilt, factor = self._tilt(network.forward(layers, x, self.activation), rest, y)
        return network.slopes(layers, x, tilt, self.activation), factor

    def _tilt(self, output: network.Moments, rest: Any, y: jax.Array) -> tuple[Tilted, Any]:
        """Tilted moments of the output, and the local factor on the rest."""
        raise NotImplementedError("use NetworkRegression or NetworkClassification")

    def _start(self, seed: int) -> tuple[DiagonalGaussian, jax.Array]:
        means = jnp.asarray(np.random.default_rng(seed).standard_normal(self.size))
        return DiagonalGaussian(jnp.zeros(self.size), jnp.ones(self.size)), means

    def _split(self, flat: jax.Array) -> list[jax.Array]:
        parts, used = [], 0
        for shape in self.shapes:
            size = math.prod(shape)
            parts.append(flat[used : used + size].reshape(shape))
            used += size
        return parts


@dataclass(frozen=True)
class NetworkRegression(Network):
    """A network with one output and learned noise; records `(x, y)`.

    Parameters
    ----------
    widths, activation
        As of `Network`.
    noise_model
        `LearnedNoise()` integrates over the noise precision; `ConcentratedNoise()` costs as little as known
        noise and agrees with it up to O(1/a) in the shape a of the noise precision.

    Examples
    --------
    >>> NetworkRegression((8, 50, 1)).size
    501
    """

    noise_model: LearnedNoise = field(default_factory=LearnedNoise)

    def start(self, seed: int, shape: float = 6.0, rate: float = 6.0) -> tuple[NetworkPosterior, jax.Array]:
        """Prior, and random means to start from: with all means zero, hidden units would never differ.

        Weights have prior variance one: each layer divides by the square root of its inputs.
        """
        weights, means = self._start(seed)
        return NetworkPosterior(weights, Gamma(jnp.asarray(shape - 1.0), jnp.asarray(rate))), means

    def parts(self, posterior: NetworkPosterior) -> tuple[Any, Gamma]:
        """Weights and noise precision."""
        return posterior.weights, posterior.noise

    def joined(self, weights: Any, rest: Gamma) -> NetworkPosterior:
        """Posterior of these parts."""
        return NetworkPosterior(weights, rest)

    def predictive(self, posterior: NetworkPosterior, x: ArrayLike) -> Predictive:
        """Mean and variance of new outcomes, for each row of x."""
        moments = self.output(posterior.weights, x)
        noise = posterior.noise.rate / jnp.maximum(posterior.noise.shape - 1.0, 1e-3)
        return Predictive(moments.mean, moments.variance + noise)

    def log_predictive(self, posterior: NetworkPosterior, x: ArrayLike, y: ArrayLike) -> jax.Array:
        """Log predictive density of outcomes."""
        moments = self.output(posterior.weights, x)
        return self.noise_model.log_predictive(
            moments.mean, moments.variance, posterior.noise, jnp.asarray(y)
        )

    def _tilt(self, output: network.Moments, rest: Gamma, y: jax.Array) -> tuple[Tilted, Gamma]:
        return self.noise_model.tilted(output.mean, output.variance, rest, y)


@dataclass(frozen=True)
class NetworkClassification(Network):
    """A network with a probit output, P(y | u) = Phi(y u); records `(x, y)` with labels -1 and +1.

    Posterior, cavity and factor are the weights' Gaussians alone.

    Examples
    --------
    >>> model = NetworkClassification((2, 3, 1))
    >>> prior, _ = model.start(seed=0)
    >>> model.probability(prior, jnp.ones((1, 2)))          # a prior with zero means knows nothing
    Array([0.5], dtype=float32)
    """

    def start(self, seed: int) -> tuple[DiagonalGaussian, jax.Array]:
        """Prior, and random means to start from: with all means zero, hidden units would never differ."""
        return self._start(seed)

    def probability(self, posterior: Weights, x: ArrayLike) -> jax.Array:
        """Probability of the label +1, for each row of x."""
        moments = self.output(posterior, x)
        return ProbitLikelihood().probability(moments.mean, moments.variance)

    def log_predictive(self, posterior: Weights, x: ArrayLike, y: ArrayLike) -> jax.Array:
        """Log probability of labels."""
        moments = self.output(posterior, x)
        return ProbitLikelihood().log_predictive(moments.mean, moments.variance, jnp.asarray(y))

    def _tilt(self, output: network.Moments, rest: Any, y: jax.Array) -> tuple[Tilted, Any]:
        del rest
        return ProbitLikelihood().tilted(output.mean, output.variance, y), ()
