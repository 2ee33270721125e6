r"""How noise travels through a mixture's fit: the covariance of what was found, due to the noise of releases.

Near the result, an update is linear in what it starts from and in the noise of its release:

    e_t = (I + a_t B) e_{t-1} + a_t C xi_t,

with e the error of (means, log deviations, counts), a_t the gains, B how the update answers to an error and C
how it answers to noise. Where components overlap, or variances and weights are learned beside the means, B is
far from -I: errors of one feed those of the other. So B and C are measured, by differences, on records drawn
from the fitted mixture itself. Starting from the covariance of the sketch's own solution, the recursion gives
the covariance of e at the end, of every part, for every method, clips and sampling included. (Noise of the
missing information only changes the length of steps, which is of second order, and is left out.)

**Privacy.** Post-processing: the records are made from the released result, by public random numbers.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpsep.inference import mixture_update
from dpsep.inference.mixture_update import Settings, State
from dpsep.inference.threads import one_thread
from dpsep.models.glm import Columns
from dpsep.privacy.grid import Block
from dpsep.privacy.open_gate import OpenGate

Array = NDArray[np.float64]

FEWEST, MOST = 512, 4096
"""Records that are made: as many as there are, within these; below the first nothing is propagated."""
MOST_PARAMETERS = 120
"""Beyond so many unknown numbers differences take too long, and the simple recursion must do."""


def parameters(settings: Settings, components_: int, dimension: int) -> int:
    """Number of unknown numbers."""
    each = {"known": 0, "spherical": 1, "diag": dimension}[settings.variances]
    return components_ * (dimension + each + (settings.weights is None))


def propagate(
    settings: Settings,
    state: State,
    start: Array | None,
    contribution: Any,
    blocks: Sequence[Block],
    deviations: dict[str, float],
    *,
    records: int,
    batch: float,
) -> State:
    """Return the state with its noise as it travelled; unchanged where there are too few records or too many
    unknowns.

    Parameters
    ----------
    start
        Covariance of the start: means, then log weights where learned, then log variances where learned.
    contribution, blocks, deviations
        As the gate of the fit had them.
    records, batch
        Records of the fit, and expected rows of a release.
    """
    shape = state.mean.shape
    if start is None or records < FEWEST or parameters(settings, *shape) > MOST_PARAMETERS:
        return state
    made = min(records, MOST)
    world = _World(settings, state, contribution, blocks, made, records)
    with one_thread():
        covariance = _recursion(world, start, deviations, records / batch, state.step)
    return _with_noise(settings, state, covariance, records / made)


class _World:
    """The fitted mixture with made records in the place of real ones; counts are of made records."""

    def __init__(
        self,
        settings: Settings,
        state: State,
        contribution: Any,
        blocks: Sequence[Block],
        made: int,
        records: int,
    ) -> None:
        dimension = state.mean.shape[1]
        unbounded = np.full(dimension, np.inf)
        same = Columns(-unbounded, unbounded, np.zeros(dimension), np.ones(dimension))  # pyright: ignore
        self.settings = settings._replace(columns=same)
        self.share = made / records
        weights = mixture_update.weights_of(settings, state)
        counts = made * weights
        self.state = state._replace(counts=counts, missing=state.missing * self.share, step=1)
        generator = np.random.default_rng(20220102)
        labels = generator.choice(len(weights), made, p=weights)
        normal = generator.standard_normal((made, dimension))
        self.gate = OpenGate((state.mean[labels] + state.deviation[labels] * normal,), blocks, contribution)
        self.released = self.gate.release(
            mixture_update.public_of(self.settings, self.at(self.vector()), made)
        )

    def vector(self) -> Array:
        """The state as one vector of unknown numbers."""
        return self.flat(self.state)

    def flat(self, state: State) -> Array:
        parts = [state.mean.ravel()]
        if self.settings.variances != "known":
            logs = np.log(state.deviation)
            parts.append(logs.ravel() if self.settings.variances == "diag" else logs.mean(axis=1))
        if self.settings.weights is None:
            parts.append(state.counts)
        return np.concatenate(parts)

    def at(self, vector: Array) -> State:
        """The state that a vector stands for."""
        state, (count, dimension) = self.state, self.state.mean.shape
        used = count * dimension
        mean = vector[:used].reshape(count, dimension)
        deviation, counts = state.deviation, state.counts
        if self.settings.variances == "diag":
            deviation = np.exp(vector[used : 2 * used].reshape(count, dimension))
            used *= 2
        elif self.settings.variances == "spherical":
            change = vector[used : used + count] - np.log(state.deviation).mean(axis=1)
            deviation = state.deviation * np.exp(change)[:, None]
            used += count
        if self.settings.weights is None:
            counts = vector[used:]
        precision = mixture_update.precision_of(
            self.settings, counts, state.missing, deviation, self.gate.records
        )
        return state._replace(mean=mean, deviation=deviation, counts=counts, precision=precision)

    def update(self, state: State, released: dict[str, Array], gain: float) -> Array:
        """The vector after one update."""
        return self.flat(mixture_update.update(self.gate, self.settings, state, released, gain))


def _recursion(world: _World, start: Array, deviations: dict[str, float], scale: float, steps: int) -> Array:
    """Covariance of the error after all releases."""
    answer, noise = _answers(world), _noise(world, deviations, scale)
    covariance = _start(world, start)
    for number in range(1, steps + 1):
        gain = 1.0 / (number + mixture_update.START_WEIGHT)
        carried = np.eye(len(answer)) + gain * answer
        covariance = carried @ covariance @ carried.T + gain**2 * noise
    return (covariance + covariance.T) / 2


def _answers(world: _World) -> Array:
    """B: how the update's direction answers to each unknown number, by central differences."""
    base, gain = world.vector(), 0.01
    steps = np.concatenate(
        [
            1e-3 * world.state.deviation.ravel(),
            np.full(len(base) - world.state.mean.size, 1e-3),
        ]
    )
    if world.settings.weights is None:
        steps[-len(world.state.counts) :] = 1e-3 * world.gate.records
    columns = []
    for place, step in enumerate(steps):
        moved = []
        for sign in (1.0, -1.0):
            vector = base.copy()
            vector[place] += sign * step
            state = world.at(vector)
            public = mixture_update.public_of(world.settings, state, world.gate.records)
            moved.append(world.update(state, world.gate.release(public), gain))
        columns.append((moved[0] - moved[1]) / (2 * step))
    return (np.stack(columns, axis=1) - np.eye(len(base))) / gain


def _noise(world: _World, deviations: dict[str, float], scale: float) -> Array:
    """C R C^T: covariance that one release's noise, and its sampling, gives to the update's direction."""
    gain = 0.01
    state = world.at(world.vector())
    base = world.update(state, world.released, gain)
    kept = np.maximum(state.counts, 1.0)
    total = np.zeros((len(base), len(base)))
    for name, factor in (("count", 1.0), ("mean", 1.0), ("scatter", 2.0)):
        if name not in world.released:
            continue
        size = len(world.released[name])
        sampled = factor * (scale - 1.0) * np.repeat(kept, size // len(kept)) * world.share
        variance = (scale * deviations[name] * world.share) ** 2 + sampled
        for place, one in enumerate(variance):
            released = {key: value.copy() for key, value in world.released.items()}
            step = max(np.sqrt(one), 1e-9)
            released[name][place] += step
            answer = (world.update(state, released, gain) - base) / (gain * step)
            total += one * np.outer(answer, answer)
    return total


def _start(world: _World, start: Array) -> Array:
    """The sketch's covariance in the units of the vector."""
    settings, (count, dimension) = world.settings, world.state.mean.shape
    size = count * dimension
    rows = [np.eye(len(start))[:size]]
    used = size + (count if settings.weights is None else 0)
    if settings.variances != "known":
        rows.append(0.5 * np.eye(len(start))[used:])  # log deviations are half of log variances
    if settings.weights is None:
        weights = world.state.counts / world.state.counts.sum()
        slope = world.gate.records * (np.diag(weights) - np.outer(weights, weights))
        rows.append(slope @ np.eye(len(start))[size : size + count])
    turn = np.concatenate(rows)
    return turn @ start @ turn.T


def _with_noise(settings: Settings, state: State, covariance: Array, more: float) -> State:
    count, dimension = state.mean.shape
    size = count * dimension
    blocks = covariance[:size, :size].reshape(count, dimension, count, dimension)
    noise = np.einsum("jdje->jde", blocks)
    variance = np.diagonal(covariance)
    scatter, counts = state.scatter_noise, state.count_noise
    used = size
    if settings.variances != "known":
        each = dimension if settings.variances == "diag" else 1
        scatter = 4.0 * variance[used : used + count * each].reshape(count, each).mean(axis=1)
        used += count * each
    if settings.weights is None:
        counts = float(variance[used:].mean()) * more**2
    return state._replace(noise=noise, count_noise=counts, scatter_noise=scatter)
