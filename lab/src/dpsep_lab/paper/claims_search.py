"""A search for the records that move theta most, with the steps of `dpsep.inference.sep` themselves.

Records are points z of a box: their cells are sinh(z), which covers small and large cells evenly in their
logarithm. `climb` tries random points and then random changes of the best ones. What it finds is a lower
bound of the largest value there is. `step_moves` and `path_moves` are what
`dpsep_lab.paper.claims_sensitivity` searches over: how far theta moves between two worlds that differ in one
record, in one step and in several.

**Privacy**: none. Records are made up, and nothing is released.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from dpsep.families import Gamma, Gaussian, GaussianSet, divide, norm, power
from dpsep.families import clip as clip_norm
from dpsep.inference import sep
from dpsep.models import GLM, GaussianLikelihood, LearnedNoise, ProbitLikelihood
from dpsep.models.linear import WeightsAndNoise
from dpsep.models.mixture import KnownMixture

__all__ = ["CASES", "FULL", "LONGEST", "QUICK", "REACH", "Bounds", "Case", "Effort", "climb"]
__all__ += ["path_moves", "step_moves"]

Array = NDArray[np.float64]

REACH = 11.0
"""Largest z that is searched: cells up to 30 000 either way."""
LONGEST = 8
"""Most steps of a path."""


class Effort(NamedTuple):
    """How hard to search: `tries` random batches, then `rounds` of climbing from `starts` of the points."""

    tries: int = 16
    rounds: int = 60
    starts: int = 8
    proposals: int = 16

    @property
    def points(self) -> int:
        """Points evaluated in all."""
        return (self.tries + self.rounds) * self.starts * self.proposals


FULL, QUICK = Effort(), Effort(tries=10, rounds=25)


class Bounds(NamedTuple):
    """Clip norms of a factor: of all natural parameters together, and of each; infinite for none."""

    joint: float
    each: float


@dataclass(frozen=True)
class Case:
    """A likelihood whose records are searched.

    Attributes
    ----------
    name
        For the rows.
    model
        Frozen, with `local_factor`.
    outcome
        Whether a record has a number or a label beside its features, or neither.
    dimension
        Number of features.

    Examples
    --------
    >>> CASES[2].record(jnp.array([0.0, 0.0, -3.0]))       # two features and a label
    (Array([0., 0.], dtype=float32), Array(-1., ...))
    """

    name: str
    model: Any
    outcome: Literal["number", "label", "none"]
    dimension: int = 2

    @property
    def size(self) -> int:
        """Number of coordinates that describe a record."""
        return self.dimension + (self.outcome != "none")

    def prior(self) -> Any:
        """Return a standard normal prior, beside it a Gamma(6, 6) for a noise precision that is learned."""
        if self.outcome == "none":
            return GaussianSet(jnp.array([[-1.0, 0.0], [1.0, 0.0]]), jnp.stack([jnp.eye(2)] * 2))
        weights = Gaussian.isotropic(self.dimension)
        if isinstance(self.model, LearnedNoise):
            return WeightsAndNoise(weights, Gamma.from_shape_and_rate(6.0, 6.0))
        return weights

    def record(self, z: jax.Array) -> Any:
        """Return the record at a point of the box."""
        cells = jnp.sinh(z)
        if self.outcome == "none":
            return cells
        label = jnp.where(z[-1] < 0, -1.0, 1.0)
        return cells[:-1], label if self.outcome == "label" else cells[-1]


CASES = (
    Case("linear", GLM(GaussianLikelihood(1.0)), "number"),
    Case("linear, learned noise", LearnedNoise(), "number"),
    Case("probit", GLM(ProbitLikelihood()), "label"),
    Case("mixture", KnownMixture((0.5, 0.5), 0.25), "none"),
)


def climb(values_of: Callable[[Array], Array], size: int, effort: Effort = FULL, seed: int = 0) -> float:
    """Return the largest value found in the box.

    Parameters
    ----------
    values_of
        From points (starts times proposals, size) to their values; what is not finite counts as nothing.
    size
        Dimension of the box.
    effort, seed
        How hard to search, and the random numbers.

    Examples
    --------
    >>> round(climb(lambda z: 3.0 - ((z - 1.0) ** 2).sum(axis=1), 2, QUICK), 2)
    3.0
    """
    generator = np.random.default_rng(seed)
    batch, each = effort.starts * effort.proposals, np.arange(effort.starts)

    def value(points: Array) -> Array:
        found = np.asarray(values_of(points), np.float64)
        return np.where(np.isfinite(found), found, -np.inf)

    widths = generator.uniform(0.1, REACH, (effort.tries * batch, 1))
    points = widths * generator.uniform(-1.0, 1.0, (effort.tries * batch, size))
    values = np.concatenate([value(part) for part in np.split(points, effort.tries)])
    # The best of each of several parts, not the best of all: starts on different hills.
    best = values.reshape(effort.starts, -1).argmax(axis=1) + each * (len(values) // effort.starts)
    points, values = points[best], values[best]
    for _ in range(effort.rounds):
        # Widths over four decades and half of the coordinates left alone: far jumps and fine steps alike.
        shape = (effort.starts, effort.proposals, size)
        moves = 10.0 ** generator.uniform(-3.0, 1.0, (*shape[:2], 1)) * generator.standard_normal(shape)
        moves *= generator.random(shape) < 0.5
        proposed = np.clip(points[:, None] + moves, -REACH, REACH)
        found = value(proposed.reshape(-1, size)).reshape(shape[:2])
        pick = found.argmax(axis=1)
        better = found[each, pick] > values
        points = np.where(better[:, None], proposed[each, pick], points)
        values = np.where(better, found[each, pick], values)
    return float(values.max())


@partial(jax.jit, static_argnums=0)
def step_moves(
    case: Case, settings: sep.Settings, state: sep.State, bounds: Bounds, other: jax.Array, z: jax.Array
) -> jax.Array:
    """Return how far theta_new of equation (4) moves, for points (n, 2 times size) that are pairs of records.

    Parameters
    ----------
    case, settings, state
        The likelihood, and theta_f: the same in both worlds.
    bounds
        What the local factor is clipped to; the settings' own clip is of steps 10 to 12, which come after.
    other
        1 where the second record stands in the first one's place, 0 where nothing does.
    z
        The points.
    """
    raw = settings._replace(clip=None, floor=-jnp.inf)

    def theta(point: jax.Array, weight: jax.Array) -> Any:
        factor = case.model.local_factor(sep.cavity(settings, state), case.record(point))
        factor = jax.tree.map(lambda leaf: clip_norm(leaf, bounds.each), factor)
        total = power(clip_norm(factor, bounds.joint), weight)
        return sep.posterior(raw, sep.update(raw, state, total, 1.0))

    def distance(pair: jax.Array) -> jax.Array:
        one, two = pair[: case.size], pair[case.size :]
        return norm(divide(theta(one, jnp.ones_like(other)), theta(two, other)))

    return jax.vmap(distance)(z)


@partial(jax.jit, static_argnums=0)
def path_moves(case: Case, settings: sep.Settings, steps: jax.Array, z: jax.Array) -> jax.Array:
    """Return how far theta moves after several steps without noise whose first record differs.

    Parameters
    ----------
    case, settings
        The likelihood and the run: every step is one of clipped SEP, steps 10 to 12 included.
    steps
        How many are taken, at most `LONGEST`.
    z
        Points (n, (1 + LONGEST) times size): the first record, the other in its place, the later ones.
    """

    def end(first: jax.Array, later: jax.Array) -> Any:
        def one(state: sep.State, visit: tuple[jax.Array, jax.Array]) -> tuple[sep.State, None]:
            new = sep.step(case.model, settings, state, case.record(visit[0]))
            return jax.tree.map(lambda a, b: jnp.where(visit[1] < steps, a, b), new, state), None

        visits = (jnp.concatenate([first[None], later]), jnp.arange(LONGEST))
        return sep.posterior(settings, jax.lax.scan(one, sep.init(settings), visits)[0])

    def distance(point: jax.Array) -> jax.Array:
        records = point.reshape(LONGEST + 1, case.size)
        return norm(divide(end(records[0], records[2:]), end(records[1], records[2:])))

    return jax.vmap(distance)(z)
