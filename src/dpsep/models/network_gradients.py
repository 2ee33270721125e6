r"""Gradients of a network's bound or likelihood, a chunk of records at a time, as contributions to a release.

Variational inference (the paper's appendix on DP-VI) fits q(w) = prod_j N(w_j; m_j, s_j^2), s = exp(rho), by
ascent of sum_n E_q log p(y_n | x_n, w) - beta KL(q || prior); a point estimate ascends log p at w = m. The
network is that of `dpsep.models.network`: a layer of n inputs, the bias among them, maps z to W z / sqrt(n).

Hidden weights are drawn, W^l = m + s eps^l with l = 1 .. L public draws that all records of a step share.
Given them the output is Gaussian under the last layer's weights, with mean and variance

    mu = m' z / sqrt(n),        v = s'^2 z^2 / n,

and the expected log-likelihood h(mu, v) is not sampled: with precision tau of Gaussian noise it is
-tau ((y - mu)^2 + v) / 2 and a constant, and for a label of probability Phi(+-f) a fixed Gauss-Hermite rule.
Its derivatives (by v, half the expected second derivative: Price's theorem) are carried back by hand; the
gradient by rho is s eps^l times that by W^l, and 2 s'^2 dh/ds'^2 in the last layer. Draws are summed over
before an array of all weights for each record and draw would be made.

*Units.* tau times a residual is of order sqrt(tau). Gradients are divided by the public `unit`, sqrt(tau)
where tau is learned, so that one clip suits every tau.

**Privacy.** A contribution reads one record and public values; the draws are public. A record with a cell
that is not finite, or with a label other than 0 and 1, yields NaN, which the gate turns into a zero
contribution. The proof is in docs/proofs/network-gradients.md.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import ndtr

from dpsep.models.glm import Columns
from dpsep.models.network import ACTIVATIONS, Activation
from dpsep.models.probit import mills
from dpsep.models.sine import wave

Task = Literal["regression", "classification"]
"""Outcomes y ~ N(f(x), 1 / tau), or labels y in {0, 1} with P(y = 1) = Phi(f(x))."""

_NODES, _WEIGHTS = np.polynomial.hermite_e.hermegauss(12)
_WEIGHTS = _WEIGHTS / _WEIGHTS.sum()
_SLOPE = math.sqrt(math.pi / 8.0)
_HALF_LOG_2PI = 0.5 * math.log(2.0 * math.pi)


class GradientPublic(NamedTuple):
    """What gradients depend on besides the record; d weights, L draws.

    Attributes
    ----------
    features, outcome
        Maps of the columns.
    mean, log_deviation
        Of q, (d,); a point estimate is at the mean and does not read the second.
    samples
        Standard normal draws, (L, d), the same for all records of a step; of no use to a point estimate.
        Those of the last layer are not read.
    precision
        Of the noise, tau; one for labels.
    unit
        What gradients are divided by before they are clipped.
    """

    features: Columns
    outcome: Columns
    mean: jax.Array
    log_deviation: jax.Array
    samples: jax.Array
    precision: jax.Array
    unit: jax.Array


@dataclass(frozen=True)
class _Gradient:
    widths: tuple[int, ...]
    activation: Activation = "relu"
    task: Task = "regression"
    noise: bool = True

    def __post_init__(self) -> None:
        """Refuse what is no network with one output."""
        if len(self.widths) < 2 or min(self.widths) < 1 or self.widths[-1] != 1:
            raise ValueError(
                f"widths is {self.widths}; it must name the inputs, the hidden units of each layer and one "
                "output, such as (8, 50, 1)."
            )
        if self.activation not in ACTIVATIONS:
            raise ValueError(f"activation is {self.activation!r}; it must be one of {ACTIVATIONS}.")
        if self.task not in ("regression", "classification"):
            raise ValueError(f"task is {self.task!r}; it must be 'regression' or 'classification'.")

    @property
    def size(self) -> int:
        """Number of weights, biases included."""
        return sum(math.prod(shape) for shape in self._shapes)

    @property
    def _shapes(self) -> list[tuple[int, int]]:
        pairs = zip(self.widths[:-1], self.widths[1:], strict=True)
        return [(outputs, inputs + 1) for inputs, outputs in pairs]

    def _split(self, flat: jax.Array) -> list[jax.Array]:
        """Layers of weights (..., outputs, inputs + 1) from flat vectors (..., d)."""
        ends = np.cumsum([math.prod(shape) for shape in self._shapes])[:-1]
        parts = zip(jnp.split(flat, ends, axis=-1), self._shapes, strict=True)
        return [part.reshape(*flat.shape[:-1], *shape) for part, shape in parts]

    def _sizes(self, gradient: int) -> dict[str, int]:
        with_noise = self.noise and self.task == "regression"
        return {"gradient": gradient} | ({"noise": 1} if with_noise else {})


@dataclass(frozen=True)
class VariationalGradient(_Gradient):
    """Gradients of the expected log-likelihood: blocks ``gradient`` (2 d) and, in regression, ``noise`` (1).

    ``gradient`` is by the mean and then by the log deviation, over the public unit. ``noise`` is tau times
    the expected squared residual E_q (y - f)^2, about one where tau is right; it has a clip of its own,
    because in one joint clip it would be shrunk together with large gradients and the noise underestimated.

    Parameters
    ----------
    widths
        Inputs, hidden units of each layer, and the one output: (8, 50, 1).
    activation
        ``"relu"``, ``"sigmoid"`` or ``"sine"``.
    task
        ``"regression"`` or ``"classification"``.
    noise
        Whether regression has the block ``noise``: not where the noise precision is known.

    Examples
    --------
    >>> VariationalGradient((8, 50, 1)).sizes
    {'gradient': 1002, 'noise': 1}
    """

    @property
    def sizes(self) -> dict[str, int]:
        """Size of each block."""
        return self._sizes(2 * self.size)

    def __call__(self, public: GradientPublic, chunk: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, ...]:
        """Return the blocks, one row a record."""
        mean = self._split(public.mean)
        deviation = self._split(jnp.exp(public.log_deviation))
        draws = self._split(public.samples)
        hidden = [m + s * eps for m, s, eps in zip(mean[:-1], deviation[:-1], draws[:-1], strict=True)]
        back = _propagate(self, public, chunk, hidden, mean[-1][0], deviation[-1][0] ** 2)
        by_mean, by_log = [], []
        for place, layer in enumerate(back.layers):
            first, scaled = _average(layer, draws[place])
            by_mean.append(_flat(first))
            by_log.append(_flat(deviation[place] * scaled))
        by_mean.append(back.last_mean)
        by_log.append(2.0 * deviation[-1][0] ** 2 * back.last_variance)
        gradient = jnp.concatenate([*by_mean, *by_log], axis=1) / public.unit
        return (gradient, back.noise[:, None])[: len(self.sizes)]


@dataclass(frozen=True)
class PointGradient(_Gradient):
    """Gradients of the log-likelihood at the mean: blocks ``gradient`` (d) and, in regression, ``noise`` (1).

    ``gradient`` is over the public unit; ``noise`` is tau times the squared residual.

    Parameters
    ----------
    widths
        Inputs, hidden units of each layer, and the one output: (8, 50, 1).
    activation
        ``"relu"``, ``"sigmoid"`` or ``"sine"``.
    task
        ``"regression"`` or ``"classification"``.
    noise
        Whether regression has the block ``noise``: not where the noise precision is known.

    Examples
    --------
    >>> PointGradient((8, 50, 1), task="classification").sizes
    {'gradient': 501}
    """

    @property
    def sizes(self) -> dict[str, int]:
        """Size of each block."""
        return self._sizes(self.size)

    def __call__(self, public: GradientPublic, chunk: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, ...]:
        """Return the blocks, one row a record."""
        mean = self._split(public.mean)
        hidden = [layer[None] for layer in mean[:-1]]
        back = _propagate(self, public, chunk, hidden, mean[-1][0], None)
        parts = [_flat(layer.slope[0][:, :, None] * layer.given[0][:, None, :]) for layer in back.layers]
        gradient = jnp.concatenate([*parts, back.last_mean], axis=1) / public.unit
        return (gradient, back.noise[:, None])[: len(self.sizes)]


class _Layer(NamedTuple):
    """Of a hidden layer: slopes by W z (L, rows, o), over sqrt(n), and its inputs z (L or 1, rows, i)."""

    slope: jax.Array
    given: jax.Array


class _Back(NamedTuple):
    """Hidden layers, derivatives by the last one's means and variances (rows, i), and the noise statistic."""

    layers: list[_Layer]
    last_mean: jax.Array
    last_variance: jax.Array
    noise: jax.Array


def _propagate(
    model: _Gradient,
    public: GradientPublic,
    chunk: tuple[jax.Array, jax.Array],
    hidden: list[jax.Array],
    last: jax.Array,
    spread: jax.Array | None,
) -> _Back:
    """Forward and back through drawn hidden weights (L, o, i) and a last layer with means and variances."""
    x, y = _design(public, chunk, model.task)
    given, bends = [_with_bias(x[None])], []
    for weights in hidden:
        scaled = weights / math.sqrt(weights.shape[-1])
        value, bend = _activate(model.activation, jnp.matmul(given[-1], jnp.swapaxes(scaled, 1, 2)))
        given.append(_with_bias(value))
        bends.append(bend)
    z, root = given[-1], 1.0 / math.sqrt(len(last))
    mu = root * z @ last
    variance = None if spread is None else root**2 * z**2 @ spread
    by_mu, by_variance, noise = _likelihood(model.task, public.precision, mu, variance, y)
    down = root * by_mu[..., None] * last
    if spread is not None:
        down = down + 2.0 * root**2 * by_variance[..., None] * z * spread
    layers = []
    for place in reversed(range(len(hidden))):
        scaled = 1.0 / math.sqrt(hidden[place].shape[-1])
        slope = scaled * down[..., :-1] * bends[place]
        layers.append(_Layer(slope, given[place]))
        down = jnp.matmul(slope, hidden[place])
    last_mean = root * jnp.mean(by_mu[..., None] * z, 0)
    last_variance = root**2 * jnp.mean(by_variance[..., None] * z**2, 0)
    return _Back(layers[::-1], last_mean, last_variance, jnp.mean(noise, 0))


def _design(
    public: GradientPublic, chunk: tuple[jax.Array, jax.Array], task: Task
) -> tuple[jax.Array, jax.Array]:
    x = public.features.apply(chunk[0])
    y = public.outcome.apply(chunk[1])
    # A bad cell must spoil its whole record, and only it: mark the outcome, zero the row.
    usable = jnp.all(jnp.isfinite(x), axis=1)
    x = jnp.where(usable[:, None], x, 0.0)
    if task == "classification":
        usable = usable & ((y == 0) | (y == 1))
    return x, jnp.where(usable, y, jnp.nan)


def _likelihood(
    task: Task, precision: jax.Array, mu: jax.Array, variance: jax.Array | None, y: jax.Array
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Derivatives of E log p(y | f), f ~ N(mu, variance), by both; and tau times E (y - f)^2."""
    if task == "regression":
        residual = y - mu
        square = residual**2 if variance is None else residual**2 + variance
        return precision * residual, jnp.full_like(mu, -0.5 * precision), precision * square
    sign = 2.0 * y - 1.0
    if variance is None:
        ratio, excess, _ = mills(sign * mu)
        return sign * ratio, -0.5 * ratio * excess, jnp.zeros_like(mu)
    nodes, weights = jnp.asarray(_NODES, mu.dtype), jnp.asarray(_WEIGHTS, mu.dtype)
    ratio, excess, _ = mills(sign[:, None] * (mu[..., None] + jnp.sqrt(variance)[..., None] * nodes))
    return sign * (ratio @ weights), -0.5 * (ratio * excess) @ weights, jnp.zeros_like(mu)


def _average(layer: _Layer, draws: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Average over draws of slope times input, and of that times the draw: (rows, o, i) each."""
    slope, given, count = layer.slope[..., None], layer.given[:, :, None, :], len(draws)
    draws = draws[:, None]
    if len(given) == 1:
        scaled = _total(lambda s, eps: s * eps, slope, draws)
        return jnp.mean(slope, 0) * given[0], scaled * given[0] / count
    first = _total(lambda s, z: s * z, slope, given)
    return first / count, _total(lambda s, z, eps: s * z * eps, slope, given, draws) / count


def _total(product: Callable[..., jax.Array], *parts: jax.Array) -> jax.Array:
    """Sum over the first axis, a few at a time: no array of all products is made, as a sum over one would."""
    start = jax.eval_shape(product, *(part[0] for part in parts))

    def add(total: jax.Array, each: tuple[jax.Array, ...]) -> tuple[jax.Array, None]:
        return total + product(*each), None

    return jax.lax.scan(add, jnp.zeros(start.shape, start.dtype), parts, unroll=4)[0]


def _activate(activation: Activation, a: jax.Array) -> tuple[jax.Array, jax.Array]:
    """What an activation makes of a, and its derivative; the sigmoid is that of `dpsep.models.network`."""
    if activation == "relu":
        return jnp.maximum(a, 0.0), (a > 0).astype(a.dtype)
    if activation == "sine":
        return wave(a)
    density = jnp.exp(-0.5 * (_SLOPE * a) ** 2 - _HALF_LOG_2PI)
    return ndtr(_SLOPE * a), _SLOPE * density


def _with_bias(z: jax.Array) -> jax.Array:
    return jnp.concatenate([z, jnp.ones_like(z[..., :1])], axis=-1)


def _flat(rows: jax.Array) -> jax.Array:
    return rows.reshape(len(rows), -1)
