r"""Stochastic EP on a network in plain NumPy, and along the authors' code path: what speeds are told against.

Both take the steps of `dpsep.inference.sep.run` one record at a time, on a network of rectifiers with
independent Gaussian weights and a Gamma noise precision. With theta = theta_0 + N theta_f:

    cavity = theta_0 + (N - 1) theta_f,    theta <- theta + (gamma / N) ( theta_fn - theta_f ).

`NumpySep` is what one would write by hand: closed-form moments and derivatives, a layer at a time, noise as
in `dpsep.models.concentrated_noise`. `AuthorsSep` goes the way of the public code of the paper, which is
built on the Theano code of probabilistic backpropagation: parameters are lists of arrays that are rebuilt for
every record, a compiled graph gives log Z and its automatic derivatives by all of them, the noise precision
is matched through log Z at shapes a, a + 1 and a + 2, and everything else is done outside the graph. The
graph is JAX's here.

**Privacy.** None: records are read without a gate and nothing is noised.
"""

import math
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

Array = NDArray[np.float64]
_DENSITY = 1.0 / math.sqrt(2.0 * math.pi)


class Theta(NamedTuple):
    """Natural parameters: mean part and precision of each layer's weights, shape minus one and rate."""

    etas: list[Array]
    precisions: list[Array]
    shape_minus_one: float
    rate: float

    def scaled(self, by: float) -> "Theta":
        """All of them times a number."""
        return Theta(
            [by * part for part in self.etas],
            [by * part for part in self.precisions],
            by * self.shape_minus_one,
            by * self.rate,
        )

    def plus(self, other: "Theta", by: float = 1.0) -> "Theta":
        """The sum with another one times a number."""
        return Theta(
            [own + by * part for own, part in zip(self.etas, other.etas, strict=True)],
            [own + by * part for own, part in zip(self.precisions, other.precisions, strict=True)],
            self.shape_minus_one + by * other.shape_minus_one,
            self.rate + by * other.rate,
        )

    def norm(self) -> float:
        """Euclidean norm of all natural parameters."""
        parts = [*self.etas, *self.precisions]
        squares = sum(float(np.vdot(part, part)) for part in parts)
        return math.sqrt(squares + self.shape_minus_one**2 + self.rate**2)

    @classmethod
    def of(cls, posterior: Any) -> "Theta":
        """Take those of a layered posterior of `dpsep.models.network_model.NetworkRegression`."""
        layers = posterior.weights.layers
        return cls(
            [np.asarray(layer.eta, np.float64) for layer in layers],
            [np.asarray(layer.precision, np.float64) for layer in layers],
            float(posterior.noise.shape_minus_one),
            float(posterior.noise.rate),
        )


class NumpySep:
    """SEP, or clipped SEP, in NumPy.

    Parameters
    ----------
    prior
        theta_0.
    records
        N.
    gamma
        Damping; N makes it SEP.
    clip
        C, of the whole natural parameter; None for no clip.
    floor
        Least precision.
    """

    def __init__(
        self,
        prior: Theta,
        records: int,
        gamma: float | None = None,
        clip: float | None = None,
        floor: float = 1e-6,
    ) -> None:
        self.prior = prior
        self.records = records
        self.gamma = float(records) if gamma is None else gamma
        self.clip = clip
        self.floor = floor

    def run(self, x: Array, y: Array, order: Any, start: Theta) -> Theta:
        """Visit rows in an order, from a posterior to start with; return the posterior."""
        factor = start.plus(self.prior, -1.0).scaled(1.0 / self.records)
        for row in order:
            factor = self._step(factor, x[row], float(y[row]))
        return self.prior.plus(factor, self.records)

    def local_factor(self, cavity: Theta, x: Array, y: float) -> Theta:
        """Tilted minus cavity, for one record."""
        variances = [1.0 / part for part in cavity.precisions]
        means = [eta * own for eta, own in zip(cavity.etas, variances, strict=True)]
        passed = _forward(means, variances, x)
        tilt = _tilt(*passed.output, cavity.shape_minus_one + 1.0, cavity.rate, y)
        slopes = _slopes(means, variances, passed, tilt.gradient, tilt.curvature)
        etas, precisions = [], []
        for mean, variance, (by_mean, by_variance) in zip(means, variances, slopes, strict=True):
            curvature = by_mean * by_mean - 2.0 * by_variance
            shrinkage = 1.0 - variance * curvature
            usable = shrinkage > 0
            inverse = np.where(usable, 1.0 / np.where(usable, shrinkage, 1.0), 0.0)
            etas.append((by_mean + mean * curvature) * inverse)
            precisions.append(curvature * inverse)
        return Theta(etas, precisions, tilt.shape, tilt.rate)

    def _step(self, factor: Theta, x: Array, y: float) -> Theta:
        local = self._clipped(self.local_factor(self.prior.plus(factor, self.records - 1), x, y))
        theta = self.prior.plus(factor, self.records)
        moved = theta.plus(local.plus(factor, -1.0), self.gamma / self.records)
        moved = moved._replace(
            precisions=[np.maximum(part, self.floor) for part in moved.precisions],
            shape_minus_one=max(moved.shape_minus_one, self.floor - 1.0),
            rate=max(moved.rate, self.floor),
        )
        return self._clipped(moved.plus(self.prior, -1.0).scaled(1.0 / self.records))

    def _clipped(self, theta: Theta) -> Theta:
        if self.clip is None:
            return theta
        norm = theta.norm()
        return theta if norm <= self.clip else theta.scaled(self.clip / norm)


class AuthorsSep(NumpySep):
    """SEP along the authors' code path: automatic derivatives of log Z, everything else rebuilt a record."""

    def local_factor(self, cavity: Theta, x: Array, y: float) -> Theta:
        """Tilted minus cavity, for one record."""
        import jax

        variances = [1.0 / part for part in cavity.precisions]
        means = [eta * own for eta, own in zip(cavity.etas, variances, strict=True)]
        shape, rate = cavity.shape_minus_one + 1.0, cavity.rate
        with jax.enable_x64(True):
            logs, (by_means, by_variances) = _graph()(means, variances, shape, rate, x, y)
            logs = [float(one) for one in logs]
            by_means = [np.asarray(one) for one in by_means]
            by_variances = [np.asarray(one) for one in by_variances]
        etas, precisions = [], []
        for place, (mean, variance) in enumerate(zip(means, variances, strict=True)):
            tilted_mean = mean + variance * by_means[place]
            tilted = variance - variance**2 * (by_means[place] ** 2 - 2.0 * by_variances[place])
            usable = tilted > 0
            tilted = np.where(usable, tilted, variance)
            precision = 1.0 / tilted
            etas.append(np.where(usable, tilted_mean * precision - cavity.etas[place], 0.0))
            precisions.append(np.where(usable, precision - cavity.precisions[place], 0.0))
        tilted_shape, tilted_rate = _matched(logs, shape, rate)
        return Theta(etas, precisions, tilted_shape - shape, tilted_rate - rate)


class _Passed(NamedTuple):
    output: tuple[float, float]
    means: list[Array]
    variances: list[Array | None]
    rectified: list[tuple[Array, ...]]


class _Tilt(NamedTuple):
    gradient: float
    curvature: float
    shape: float
    rate: float


def _forward(means: list[Array], variances: list[Array], x: Array) -> _Passed:
    """Moments of the output, inputs of each layer with the bias, and what the rectifiers need again."""
    given, spread = np.append(x, 1.0), None
    inputs, spreads, rectified = [], [], []
    for place, (mean, variance) in enumerate(zip(means, variances, strict=True)):
        inputs.append(given)
        spreads.append(spread)
        n = len(given)
        a = mean @ given / math.sqrt(n)
        if spread is None:
            v = variance @ (given * given) / n
        else:
            v = (variance @ (given * given + spread) + (mean * mean) @ spread) / n
        if place == len(means) - 1:
            return _Passed((float(a[0]), float(v[0])), inputs, spreads, rectified)
        deviation = np.sqrt(v)
        alpha = a / deviation
        chance, density = ndtr(alpha), _DENSITY * np.exp(-0.5 * alpha * alpha)
        first = alpha * chance + density
        second = (1.0 + alpha * alpha) * chance + alpha * density
        rectified.append((deviation, chance, density, first))
        given = np.append(deviation * first, 1.0)
        spread = np.append(v * (second - first * first), 0.0)
    raise AssertionError("a network has layers")


def _tilt(mean: float, variance: float, shape: float, rate: float, y: float) -> _Tilt:
    """Tilted moments of the output and the factor on the noise precision, at its mean."""
    tau, residual = shape / rate, y - mean
    spread = 1.0 + variance * tau
    k = tau / spread
    surprise = 1.0 - residual**2 * k
    more = (0.5 + surprise * variance * tau) / spread**2
    return _Tilt(residual * k, k, more, (more - 0.5 * surprise / spread) / tau)


def _slopes(
    means: list[Array], variances: list[Array], passed: _Passed, gradient: float, curvature: float
) -> list[tuple[Array, Array]]:
    """Derivatives of log Z by mean and variance of every weight."""
    down_mean, down_variance = np.array([gradient]), np.array([0.5 * (gradient**2 - curvature)])
    found: list[tuple[Array, Array]] = []
    for place in reversed(range(len(means))):
        given, spread = passed.means[place], passed.variances[place]
        n = len(given)
        by_mean = np.outer(down_mean / math.sqrt(n), given)
        if spread is None:
            found.append((by_mean, np.outer(down_variance / n, given * given)))
            break
        mean, variance = means[place], variances[place]
        by_mean += (2.0 / n * down_variance)[:, None] * mean * spread
        found.append((by_mean, np.outer(down_variance / n, given * given + spread)))
        weights, own = mean[:, :-1], variance[:, :-1]
        of_mean = down_mean @ weights / math.sqrt(n) + 2.0 / n * (down_variance @ own) * given[:-1]
        of_variance = down_variance @ (weights * weights + own) / n
        deviation, chance, density, first = passed.rectified[place - 1]
        down_mean = of_mean * chance + 2.0 * of_variance * deviation * first * (1.0 - chance)
        down_variance = 0.5 * of_mean * density / deviation + of_variance * (chance - first * density)
    return found[::-1]


def _matched(logs: list[float], shape: float, rate: float) -> tuple[float, float]:
    """Shape and rate of the Gamma with the tilted mean and variance, from log Z at three shapes."""
    ratio = math.exp(logs[2] - 2.0 * logs[1] + logs[0]) * (shape + 1.0) / shape
    step = math.exp(logs[2] - logs[1]) * (shape + 1.0) / rate - math.exp(logs[1] - logs[0]) * shape / rate
    return 1.0 / (ratio - 1.0), 1.0 / step


@cache
def _graph() -> Any:
    """The compiled graph: log Z at shapes a, a + 1, a + 2, and derivatives of the first by all moments."""
    import jax

    return jax.jit(_logs_and_slopes)


def _logs_and_slopes(means: Any, variances: Any, shape: Any, rate: Any, x: Any, y: Any) -> Any:
    import jax
    import jax.numpy as jnp

    def log_z(more: float, by: tuple[Any, Any]) -> Any:
        mean, variance = _output(*by, x)
        total = variance + rate / (shape - 1.0 + more)
        return -0.5 * ((y - mean) ** 2 / total + jnp.log(total) + math.log(2.0 * math.pi))

    first, slopes = jax.value_and_grad(lambda by: log_z(0.0, by))((means, variances))
    return (first, log_z(1.0, (means, variances)), log_z(2.0, (means, variances))), slopes


def _output(means: Any, variances: Any, x: Any) -> tuple[Any, Any]:
    """Moments of the output, as one writes them for automatic derivatives."""
    import jax.numpy as jnp
    from jax.scipy.special import ndtr as chance_of

    m, v = jnp.asarray(x), jnp.zeros_like(jnp.asarray(x))
    for place, (mean, variance) in enumerate(zip(means, variances, strict=True)):
        m, v = jnp.append(m, 1.0), jnp.append(v, 0.0)
        n = len(m)
        m, v = mean @ m / math.sqrt(n), (variance @ (m**2 + v) + mean**2 @ v) / n
        if place < len(means) - 1:
            deviation = jnp.sqrt(v)
            alpha = m / deviation
            density, chance = _DENSITY * jnp.exp(-0.5 * alpha**2), chance_of(alpha)
            first = deviation * (alpha * chance + density)
            second = v * ((1.0 + alpha**2) * chance + alpha * density)
            m, v = first, second - first**2
    return m[0], v[0]
