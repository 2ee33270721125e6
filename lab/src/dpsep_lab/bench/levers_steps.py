r"""Steps other than the committed one, for measuring what the committed one is worth.

`changed` is `dpsep.inference.network.update` with three things that may differ: the bases, the law of the
noise over coordinates, and the rule that turns a released gradient into a move. With none of them changed it
takes the same step.

*Momentum* (heavy ball, as a running average): v <- beta v + (1 - beta) move, m <- m + eta v.

*Kalman gains.* Each released gradient, over the posterior precision Lambda, is an observation of the way to
the fixed point with the known variance sd^2 / Lambda^2. With P the variance of that way in a coordinate, the
gain is P / (P + sd^2 / Lambda^2), and P <- ((1 - gain)^2 P + gain^2 sd^2 / Lambda^2)(1 + forget): what was
learned of an earlier mean counts for less.

*Correlated noise.* Let step t release x_t + z_t - kappa z_(t-1): noise B z with B lower bidiagonal, which is
B (C x + z), C = B^-1 with entries C_ts = kappa^(t-s) for s <= t. It is thus a function of the Gaussian
release C x + z, also where x_t depends on what was released before, since C is lower triangular (Denisov et
al. 2022). A record is in every step, with a vector of norm at most one in each, so that C x moves by at most
(sum_t (sum_s C_ts)^2)^(1/2) = |C 1| because all entries are positive, and z must be scaled by |C 1| where
independent noise is scaled by |1| = sqrt(T). Turning z_(t-1) from basis to basis is orthogonal and changes no
norm. As T grows |C 1| / sqrt(T) tends to 1 / (1 - kappa): the sum of all noises is that of independent noise,
and every other frequency has more. A gain can come only from the ends.

**Privacy.** Functions of released numbers and of the noise's law; for measurement only.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from dpsep.inference import network
from dpsep.inference.network import Settings, Shape, State
from dpsep.models.network_factors import Basis, Weights, back, bases_of, into, made_inputs

__all__ = ["Memory", "changed", "correlation_norm", "old_noise", "plain_bases", "remembered"]


class Memory(NamedTuple):
    """What levers carry beside the committed state.

    Attributes
    ----------
    velocity
        Running average of moves.
    variance
        Kalman's P, in the bases.
    draw
        The last noise, as weights.
    clip
        Multiple of the clip.
    """

    velocity: Weights
    variance: Weights
    draw: Weights
    clip: jax.Array


def remembered(settings: Settings, state: State) -> Memory:
    """Memory at the start: nothing yet, and the prior's variance."""
    nothing = tuple(jnp.zeros_like(part) for part in state.weights)
    variance = tuple(
        jnp.ones_like(part) / prior for part, prior in zip(state.weights, state.prior, strict=True)
    )
    return Memory(nothing, variance, nothing, settings.clip * jnp.ones_like(state.noise))


def plain_bases(shape: Shape, settings: Settings, weights: Weights, step: jax.Array) -> tuple[Basis, ...]:
    """Information of each layer in the weights' own coordinates: nothing is turned."""
    draws = jax.random.normal(jax.random.fold_in(jax.random.key(0), step), (shape.made, shape.widths[0]))
    inputs = made_inputs(draws, settings.input_half, settings.input_mean)
    known = tuple(
        Basis(jnp.eye(part.shape[0]), jnp.eye(part.shape[1]), jnp.zeros_like(part)) for part in weights
    )
    return bases_of(weights, inputs, shape.activation, shape.outcome, known)


def correlation_norm(kappa: float, steps: int) -> float:
    """|C 1| over sqrt(T): by how much correlated noise must be larger than independent noise.

    Parameters
    ----------
    kappa
        Share of the last noise that is taken off.
    steps
        T.

    Examples
    --------
    >>> correlation_norm(0.0, 10), round(correlation_norm(0.5, 1000), 2)
    (1.0, 2.0)
    """
    rows = np.cumsum(kappa ** np.arange(steps))
    return float(np.sqrt(np.mean(rows**2)))


def old_noise(settings: Settings, state: State, noise_part: jax.Array, deviation: Any) -> jax.Array:
    """Noise variance from two noisy sums, shape and rate: their ratio, as it was before."""
    n = settings.records
    blur = 2.0 * deviation / n
    share = settings.noise_rate / (1.0 + settings.noise_rate * 0.5 * (blur / network.NOISE_SPREAD) ** 2)
    shape = 0.5 * n + jnp.clip(noise_part[0], -0.25 * n, 0.25 * n)
    change = (1.0 - share) + share * noise_part[1] / shape
    return jnp.maximum(state.noise * jnp.clip(change, 0.75, 1.25), network.LEAST_NOISE)


def changed(
    shape: Shape,
    settings: Settings,
    state: State,
    memory: Memory,
    gradient: Weights,
    deviation: Weights,
    noise: jax.Array,
    *,
    own: Any = 0.0,
    momentum: Any = 0.0,
    kalman: Any = 0.0,
    forget: Any = 0.0,
) -> tuple[State, Memory]:
    """One step from a released gradient.

    Parameters
    ----------
    gradient, deviation
        The noisy sum of mean parts, not in any units, and the deviation of its noise, in the bases.
    noise
        The new noise variance.
    own
        Whether bases are the weights' own coordinates; else they are turned.
    momentum
        beta.
    kalman, forget
        Whether each coordinate has its gain, times the rate, and how fast it forgets.
    """
    metric = network.precisions(settings, state, settings.damping)
    posterior = network.precisions(settings, state)
    rate = network._rate(settings, state.step)
    gain, per, variance = _gains(state, memory, metric, posterior, deviation, kalman, forget, rate)
    rate = jnp.where(kalman > 0, 1.0, rate)
    parts = zip(gain, gradient, into(state.bases, state.weights), state.prior, per, strict=True)
    move = tuple(g * (part - prior * mean) / k for g, part, mean, prior, k in parts)
    old = into(state.bases, memory.velocity)
    move = tuple(momentum * v + (1.0 - momentum) * part for v, part in zip(old, move, strict=True))
    velocity = back(state.bases, move)
    length = jnp.sqrt(sum((jnp.sum(k * part**2) for k, part in zip(metric, move, strict=True)), 0.0))
    longest = settings.cap * jnp.sqrt(network.load(settings, state))
    rate = rate * jnp.minimum(1.0, longest / jnp.maximum(rate * length, 1e-30))
    weights = tuple(old + rate * part for old, part in zip(state.weights, velocity, strict=True))
    blur = tuple(
        (1.0 - rate * g * jnp.minimum(keep / k, 1.0 / rate)) ** 2 * old + (rate * g * sd / k) ** 2
        for keep, k, g, sd, old in zip(posterior, per, gain, deviation, state.blur, strict=True)
    )
    turned = network._bases(shape, settings, weights, state.step + 1, state.bases)
    plain = plain_bases(shape, settings, weights, state.step + 1)
    bases = jax.tree.map(lambda one, other: jnp.where(own > 0, one, other), plain, turned)
    blur = network._turn_variance(state.bases, bases, blur)
    moved = state._replace(weights=weights, bases=bases, noise=noise, blur=blur)
    if shape.learn_prior:
        moved = moved._replace(prior=network._prior(settings, moved, blur))
    variance = network._turn_variance(state.bases, bases, variance)
    return _counted(settings, moved), memory._replace(velocity=velocity, variance=variance)


def _gains(
    state: State,
    memory: Memory,
    metric: Weights,
    posterior: Weights,
    deviation: Weights,
    kalman: Any,
    forget: Any,
    rate: jax.Array,
) -> tuple[Weights, Weights, Weights]:
    """Gain of each coordinate, what a gradient is divided by, and Kalman's variance after the step."""
    gains, per, variances = [], [], []
    parts = zip(metric, posterior, deviation, memory.variance, state.prior, strict=True)
    for k, keep, sd, before, prior in parts:
        seen = (sd / keep) ** 2
        gain = rate * before / (before + seen)
        after = ((1.0 - gain) ** 2 * before + gain**2 * seen) * (1.0 + forget)
        gains.append(jnp.where(kalman > 0, gain, 1.0))
        per.append(jnp.where(kalman > 0, keep, k))
        variances.append(jnp.minimum(after, 1.0 / prior))
    return tuple(gains), tuple(per), tuple(variances)


def _counted(settings: Settings, state: State) -> State:
    """Add to the averages of the last steps."""
    on = (state.step >= (1.0 - settings.tail) * settings.steps).astype(state.noise.dtype)
    average = tuple(old + on * part for old, part in zip(state.average, state.weights, strict=True))
    total = state.average_noise + on * state.noise
    return state._replace(average=average, average_noise=total, weight=state.weight + on, step=state.step + 1)
