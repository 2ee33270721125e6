r"""Local factors of a network's weights with correlated posterior, a chunk of records at a time.

The posterior of the weights is q = N(m, Lambda^-1) = p0 f^N, its precision one block a layer, in a basis that
is a Kronecker product. With the network's output u = f(x, w) taken as linear in the weights about m, a record
has the predictor u = f(x, m) + J (w - m), J its gradient, and its local factor is that of a generalised
linear model (`dpsep.models.glm`): precision s' J J^T and, counted from m, mean part g' J, where g' and s'
follow from the output's tilted moments under the cavity. For one layer J is an outer product, d x^T, of
the derivative d by what the layer gives out before activation and the layer's input x (the bias is an input
of 1), over the square root of the number of inputs.

*Direct inputs.* The last layer may have the network's inputs among its own, unscaled, between the hidden
units and the bias: a linear model beside the network. Its weights' number says whether it has.

*Basis.* The sum of d d^T over inputs has eigenvectors B, that of x x^T has A. In the basis (B, A) the
gradient is (B^T d)(A^T x)^T, and the likelihood's precision is taken for diagonal there, with
second moments E[ (B^T d)_i^2 (A^T x)_j^2 I ], I the Fisher information of the output: Kronecker's
approximation with eigenvalues that are exact (Martens and Grosse 2015, George et al. 2018). The last layer
has one output, so that its block is exact and full.

*Where the basis comes from.* From inputs made up with a mean and covariance that are public or were released
(`made_inputs`). Only m and the noise precision then are released.

*Whitening.* Contributions are in units K^-1/2 of a public precision K in the same basis: the posterior's,
raised where the data say little.

**Privacy.** A contribution reads one record and public values. A record with a cell that is not finite or an
outcome outside the likelihood's support yields NaN, which the gate turns into a zero contribution.
The proof is in docs/proofs/network-factors.md.
"""

import math
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
from jax.scipy.special import log_ndtr, ndtr

from dpsep.families import Gamma
from dpsep.models.base import Likelihood
from dpsep.models.glm import Columns
from dpsep.models.linear import LearnedNoise
from dpsep.models.network import Activation
from dpsep.models.sine import wave

Weights = tuple[jax.Array, ...]
"""One array (outputs, inputs + 1) a layer."""
Outcome = Literal["regression", "classification"]


class Basis(NamedTuple):
    """Basis of one layer's weights, and what the likelihood says in it.

    Attributes
    ----------
    left, right
        Orthogonal matrices of the layer's outputs and inputs.
    information
        Expected precision that one record adds to each coordinate, (outputs, inputs + 1); in regression at
        noise precision one.
    """

    left: jax.Array
    right: jax.Array
    information: jax.Array


class NetworkPublic(NamedTuple):
    """What local factors depend on besides the record.

    Attributes
    ----------
    features, outcome
        Maps of the columns.
    weights
        The posterior mean m, which contributions are counted from.
    bases
        Basis of each layer.
    cavity_precision, offset
        Precision of the cavity, and its mean less m, in the bases.
    unit
        K^-1/2 in the bases.
    noise
        Cavity of the noise precision; of use only where it is learned.
    """

    features: Columns
    outcome: Columns
    weights: Weights
    bases: tuple[Basis, ...]
    cavity_precision: Weights
    offset: Weights
    unit: Weights
    noise: Gamma


class Passed(NamedTuple):
    """A chunk's way through a network: output, inputs of each layer with the bias, derivatives by layer."""

    output: jax.Array
    inputs: tuple[jax.Array, ...]
    derivatives: tuple[jax.Array, ...]


def layer_shapes(widths: tuple[int, ...], *, direct: bool = False) -> list[tuple[int, int]]:
    """Shape of each layer's weights, from inputs, hidden units and the one output.

    Examples
    --------
    >>> layer_shapes((8, 20, 1)), layer_shapes((8, 20, 1), direct=True)
    ([(20, 9), (1, 21)], [(20, 9), (1, 29)])
    """
    shapes = [(outputs, inputs + 1) for inputs, outputs in pairwise(widths)]
    if direct:
        shapes[-1] = (shapes[-1][0], shapes[-1][1] + widths[0])
    return shapes


def through(weights: Weights, x: jax.Array, activation: Activation = "relu") -> Passed:
    """Output (n,) of a network with fixed weights, and the parts of its gradient, for rows x (n, d)."""
    inputs, before = [], []
    first = x
    for layer in weights:
        width = x.shape[1]
        root = math.sqrt(width + 1)
        direct = (first,) if layer.shape[1] > width + 1 else ()
        x = jnp.concatenate([x / root, *direct, jnp.full_like(x[:, :1], 1.0 / root)], axis=1)
        inputs.append(x)
        before.append(x @ layer.T)
        x = _activate(before[-1], activation)
    derivative = jnp.ones_like(before[-1])
    derivatives = [derivative]
    for layer, given in zip(weights[:0:-1], before[-2::-1], strict=True):
        width = given.shape[1]
        down = derivative @ layer[:, :width] / math.sqrt(width + 1)
        derivative = down * _slope(given, activation)
        derivatives.append(derivative)
    return Passed(before[-1][:, 0], tuple(inputs), tuple(reversed(derivatives)))


def bases_of(
    weights: Weights,
    x: jax.Array,
    activation: Activation = "relu",
    outcome: Outcome = "regression",
    known: tuple[Basis, ...] | None = None,
) -> tuple[Basis, ...]:
    """Basis of every layer, from inputs that are made up.

    Parameters
    ----------
    known
        Bases to keep; only the information in them is computed anew.
    """
    passed = through(weights, x, activation)
    weight = jnp.ones_like(passed.output) if outcome == "regression" else probit_information(passed.output)
    weight = weight[:, None] / len(x)
    found = []
    for place, (given, derivative) in enumerate(zip(passed.inputs, passed.derivatives, strict=True)):
        if known is None:
            left = jnp.linalg.eigh(derivative.T @ (weight * derivative))[1]
            right = jnp.linalg.eigh(given.T @ (weight * given))[1]
        else:
            left, right = known[place].left, known[place].right
        found.append(Basis(left, right, ((derivative @ left) ** 2).T @ (weight * (given @ right) ** 2)))
    return tuple(found)


def into(bases: tuple[Basis, ...], weights: Weights) -> Weights:
    """Weights, or a gradient by them, in the bases."""
    return tuple(basis.left.T @ part @ basis.right for basis, part in zip(bases, weights, strict=True))


def back(bases: tuple[Basis, ...], turned: Weights) -> Weights:
    """Weights from their coordinates in the bases."""
    return tuple(basis.left @ part @ basis.right.T for basis, part in zip(bases, turned, strict=True))


def turn(bases: tuple[Basis, ...], passed: Passed) -> list[tuple[jax.Array, jax.Array]]:
    """The two factors of each layer's gradient in its basis: (n, outputs) and (n, inputs + 1)."""
    parts = zip(bases, passed.derivatives, passed.inputs, strict=True)
    return [(derivative @ basis.left, given @ basis.right) for basis, derivative, given in parts]


def along(turned: list[tuple[jax.Array, jax.Array]], vector: Weights) -> jax.Array:
    """Gradient times a vector given in the bases, for each row."""
    parts = zip(turned, vector, strict=True)
    return sum((jnp.sum((d @ v) * x, axis=1) for (d, x), v in parts), jnp.zeros(()))


def spread(turned: list[tuple[jax.Array, jax.Array]], variance: Weights) -> jax.Array:
    """Variance of the output where weights have independent variances in the bases, for each row."""
    return along([(d**2, x**2) for d, x in turned], variance)


def flatten(weights: Weights) -> jax.Array:
    """All weights as one vector, layer after layer."""
    return jnp.concatenate([part.ravel() for part in weights])


def unflatten(vector: jax.Array, like: Weights) -> Weights:
    """Layers from one vector."""
    parts, used = [], 0
    for part in like:
        parts.append(vector[used : used + part.size].reshape(part.shape))
        used += part.size
    return tuple(parts)


def made_inputs(draws: jax.Array, half: jax.Array, centre: jax.Array) -> jax.Array:
    """Inputs with a public mean and covariance half half^T, from standard normal draws."""
    return centre + draws @ half.T


def probit_information(predictor: jax.Array) -> jax.Array:
    """Fisher information of a probit outcome about its predictor: phi^2 / (Phi (1 - Phi))."""
    log_density = -0.5 * predictor**2 - 0.5 * math.log(2.0 * math.pi)
    return jnp.exp(2.0 * log_density - log_ndtr(predictor) - log_ndtr(-predictor))


@dataclass(frozen=True)
class NetworkFactors:
    """Whitened, centred local factors: blocks ``mean`` (flat) and, in regression, ``noise``.

    The noise block is one number, the rate part of the factor on the noise precision times its expectation,
    less what the shape part exceeds 1/2 by. It averages 1/2 where the precision is right: rate and shape of
    the posterior then agree.

    Parameters
    ----------
    likelihood
        `LearnedNoise` for regression, else a likelihood of one scalar predictor.
    activation
        ``"relu"``, ``"sigmoid"`` or ``"sine"``.
    """

    likelihood: LearnedNoise | Likelihood
    activation: Activation = "relu"

    def __call__(self, public: NetworkPublic, chunk: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, ...]:
        """Return g' K^-1/2 J and the noise part, one row a record."""
        x, y = design(public.features, public.outcome, chunk)
        passed = through(public.weights, x, self.activation)
        turned = turn(public.bases, passed)
        shift = along(turned, public.offset)
        mean = passed.output + shift
        variance = spread(turned, tuple(1.0 / part for part in public.cavity_precision))
        noise: tuple[jax.Array, ...] = ()
        if isinstance(self.likelihood, LearnedNoise):
            tilted, factor = self.likelihood.tilted(mean, variance, public.noise, y)
            noise = ((factor.rate * public.noise.mean - factor.shape_minus_one + 0.5)[:, None],)
        else:
            tilted = self.likelihood.tilted(mean, variance, jnp.where(self.likelihood.valid(y), y, jnp.nan))
        slope = (tilted.gradient + shift * tilted.curvature) / tilted.shrinkage
        parts = []
        for (d, given), unit in zip(turned, public.unit, strict=True):
            part = (slope[:, None] * d)[:, :, None] * given[:, None, :] * unit
            parts.append(part.reshape(len(x), -1))
        return (jnp.concatenate(parts, axis=1), *noise)


def design(features: Columns, outcome: Columns, chunk: Any) -> tuple[jax.Array, jax.Array]:
    """Scaled inputs and outcomes; a bad cell empties its row and marks its outcome."""
    x, y = features.apply(chunk[0]), outcome.apply(chunk[1])
    usable = jnp.all(jnp.isfinite(x), axis=1)
    return jnp.where(usable[:, None], x, 0.0), jnp.where(usable, y, jnp.nan)


def _activate(before: jax.Array, activation: Activation) -> jax.Array:
    if activation == "sine":
        return wave(before).sine
    # The sigmoid is the normal distribution function of the logistic's slope, as in `dpsep.models.network`.
    return jnp.maximum(before, 0.0) if activation == "relu" else ndtr(_SLOPE * before)


def _slope(before: jax.Array, activation: Activation) -> jax.Array:
    if activation == "relu":
        return (before > 0).astype(before.dtype)
    if activation == "sine":
        return wave(before).cosine
    return _SLOPE * jnp.exp(-0.5 * (_SLOPE * before) ** 2) / math.sqrt(2.0 * math.pi)


_SLOPE = math.sqrt(math.pi / 8.0)
