"""What a network fit with correlated weights carries: its shape, its settings, its state and its result.

The algorithm that these belong to, with its equations and its privacy contract, is `dpsep.inference.network`.

**Privacy.** Public numbers, and functions of released vectors; no record comes here.
"""

import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from numpy.typing import NDArray

from dpsep.models.glm import Columns
from dpsep.models.network import Activation
from dpsep.models.network_factors import Basis, Outcome, Weights, layer_shapes

Array = NDArray[Any]


class Shape(NamedTuple):
    """What does not change within a run and decides how it is compiled.

    Attributes
    ----------
    widths
        Inputs, hidden units of each layer, the one output.
    activation, outcome
        Of the network.
    direct
        Whether the inputs also reach the output directly.
    made
        How many inputs are made up for each step's basis.
    learn_prior
        Whether the prior precision of each layer is learned.
    """

    widths: tuple[int, ...]
    activation: Activation = "relu"
    outcome: Outcome = "regression"
    direct: bool = False
    made: int = 1024
    learn_prior: bool = False

    @property
    def layers(self) -> list[tuple[int, int]]:
        """Shape of each layer's weights."""
        return layer_shapes(self.widths, direct=self.direct)

    @property
    def size(self) -> int:
        """Number of weights."""
        return sum(math.prod(shape) for shape in self.layers)


class Settings(NamedTuple):
    """Public numbers of a run.

    Attributes
    ----------
    features, outcome
        Maps of the columns.
    input_mean, input_half
        Law of the inputs that bases are made from, in scaled units.
    records
        N.
    steps
        Number of steps, which the schedule below is laid over.
    prior
        Prior precision of the weights, and the mean of its hyper-prior.
    prior_shape
        a of the hyper-prior.
    damping
        c, at least one.
    rate, last
        eta of the first half of the steps, and the share of it that is left at the end.
    cap
        Longest step, in units of sqrt(tr(K^-1 N I)).
    noise_rate
        Share of the new in the running average of the noise variance.
    tail
        Share of the steps whose means are averaged.
    start
        Deviation of the output layer's first means; other layers have one.
    linear, first_noise
        First weights of direct inputs, and the first noise variance.
    clip
        Multiple of sqrt(tr(K^-1 I)) that a record's mean part is clipped to: a release is in these units.
    """

    features: Columns
    outcome: Columns
    input_mean: Any
    input_half: Any
    records: Any
    steps: Any
    prior: Any = 1.0
    prior_shape: Any = 6.0
    damping: Any = 3.0
    rate: Any = 0.1
    last: Any = 0.1
    cap: Any = 3.0
    noise_rate: Any = 0.3
    tail: Any = 0.2
    start: Any = 0.5
    linear: Any = 0.0
    first_noise: Any = 1.0
    clip: Any = jnp.inf


class State(NamedTuple):
    """What is carried from step to step: functions of released vectors only.

    Attributes
    ----------
    weights
        Posterior mean.
    bases
        Basis and information of each layer at that mean.
    prior
        Prior precision of each layer.
    noise
        Noise variance: its running average.
    blur
        Variance of each coordinate of the mean that comes from the gate's noise.
    average, average_noise, weight
        Sum of the last means and of the last noise variances, and their number.
    step
        Number of releases used.
    """

    weights: Weights
    bases: tuple[Basis, ...]
    prior: jax.Array
    noise: jax.Array
    blur: Weights
    average: Weights
    average_noise: jax.Array
    weight: jax.Array
    step: jax.Array


class Result(NamedTuple):
    """A finished fit, in scaled units.

    Attributes
    ----------
    weights
        Posterior means.
    bases
        Basis of each layer.
    precision
        Posterior precision in the bases.
    blur
        Variance of the means that the gate's noise causes, in the bases.
    noise
        Shape and rate of the noise precision; None in classification.
    prior
        Prior precision of each layer.
    """

    weights: Weights
    bases: tuple[Basis, ...]
    precision: Weights
    blur: Weights
    noise: tuple[float, float] | None
    prior: Array
