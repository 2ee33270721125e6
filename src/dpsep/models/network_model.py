r"""Regression by a fully connected network: the model that EP, ADF and SEP run on, record by record.

The posterior is q(W) q(tau): an independent Gaussian for every weight and a Gamma for the noise precision, as
in the paper's second experiment. A record's local factor follows from the output's tilted moments
(`dpsep.models.linear.LearnedNoise`: the noise precision is integrated, not plugged in) carried back through
the network (`dpsep.models.network`). Assumed density filtering with it, several times over the records, is
probabilistic backpropagation. Weights are one flat vector, layer after layer.
"""

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from dpsep.families import DiagonalGaussian, Gamma
from dpsep.models import network
from dpsep.models.base import Predictive
from dpsep.models.linear import LearnedNoise
from dpsep.models.network import Activation, Layer


class NetworkPosterior(NamedTuple):
    """Posterior, cavity or factor of a network's weights and noise precision, independent of each other.

    Attributes
    ----------
    weights
        Natural parameters of all weights, (d,).
    noise
        Natural parameters of the noise precision.
    """

    weights: DiagonalGaussian
    noise: Gamma

    @property
    def is_proper(self) -> jax.Array:
        """Whether both parts are densities."""
        return self.weights.is_proper & self.noise.is_proper

    def project(self, floor: ArrayLike) -> "NetworkPosterior":
        """Both parts raised to `floor` where they are below."""
        return NetworkPosterior(self.weights.project(floor), self.noise.project(floor))


@dataclass(frozen=True)
class NetworkRegression:
    """A network with one output and learned noise; records `(x, y)`.

    Parameters
    ----------
    widths
        Inputs, hidden units of each layer, and the one output: (8, 50, 1). Without hidden layers the model is
        linear.
    activation
        ``"relu"`` or ``"sigmoid"``.

    Examples
    --------
    >>> NetworkRegression((8, 50, 1)).size
    501
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
        if self.activation not in ("relu", "sigmoid"):
            raise ValueError(f"activation is {self.activation!r}; it must be 'relu' or 'sigmoid'.")

    @property
    def size(self) -> int:
        """Number of weights, biases included."""
        return sum(math.prod(shape) for shape in self._shapes)

    @property
    def _shapes(self) -> list[tuple[int, int]]:
        pairs = zip(self.widths[:-1], self.widths[1:], strict=True)
        return [(outputs, inputs + 1) for inputs, outputs in pairs]

    def start(self, seed: int, shape: float = 6.0, rate: float = 6.0) -> tuple[NetworkPosterior, jax.Array]:
        """Prior, and random means to start from: with all means zero, hidden units would never differ.

        Weights have prior variance one: each layer divides by the square root of its inputs.
        """
        prior = NetworkPosterior(
            DiagonalGaussian(jnp.zeros(self.size), jnp.ones(self.size)),
            Gamma(jnp.asarray(shape - 1.0), jnp.asarray(rate)),
        )
        return prior, jnp.asarray(np.random.default_rng(seed).standard_normal(self.size))

    def layers(self, weights: DiagonalGaussian) -> tuple[Layer, ...]:
        """Moments of the weights, layer by layer."""
        mean, variance = self._split(weights.mean), self._split(weights.variance)
        return tuple(Layer(m, v) for m, v in zip(mean, variance, strict=True))

    def local_factor(self, cavity: NetworkPosterior, record: tuple[ArrayLike, ArrayLike]) -> NetworkPosterior:
        """Tilted minus cavity in natural parameters, for one record."""
        x, y = jnp.asarray(record[0]), jnp.asarray(record[1])
        layers = self.layers(cavity.weights)
        moments = network.forward(layers, x, self.activation)
        tilt, noise = LearnedNoise().tilted(moments.mean, moments.variance, cavity.noise, y)
        slopes = network.slopes(layers, x, tilt, self.activation)
        parts = network.local_factors(layers, slopes)
        eta = jnp.concatenate([part.ravel() for part, _ in parts])
        precision = jnp.concatenate([part.ravel() for _, part in parts])
        return NetworkPosterior(DiagonalGaussian(eta, precision), noise)

    def predictive(self, posterior: NetworkPosterior, x: ArrayLike) -> Predictive:
        """Mean and variance of new outcomes, for each row of x."""
        moments = self._moments(posterior, x)
        noise = posterior.noise.rate / jnp.maximum(posterior.noise.shape - 1.0, 1e-3)
        return Predictive(moments.mean, moments.variance + noise)

    def log_predictive(self, posterior: NetworkPosterior, x: ArrayLike, y: ArrayLike) -> jax.Array:
        """Log predictive density of outcomes."""
        moments = self._moments(posterior, x)
        return LearnedNoise().log_predictive(moments.mean, moments.variance, posterior.noise, jnp.asarray(y))

    def _moments(self, posterior: NetworkPosterior, x: ArrayLike) -> network.Moments:
        layers = self.layers(posterior.weights)
        return jax.vmap(lambda row: network.forward(layers, row, self.activation))(jnp.asarray(x))

    def _split(self, flat: Any) -> list[jax.Array]:
        parts, used = [], 0
        for shape in self._shapes:
            size = math.prod(shape)
            parts.append(flat[used : used + size].reshape(shape))
            used += size
        return parts
