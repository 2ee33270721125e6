r"""A fit of a mixture.

Private (`recipe_of`, which `dpsep.fit` runs): find bounds where none are declared (charged), release one
sketch, find a start from it (`dpsep.inference.sketch`), then a few releases of summed factors, each followed
by an update (`dpsep.inference.mixture_update`). Not private: the same behind an open gate, until nothing
moves.

The settings are those of `dpsep.theory.mixtures`.

**Privacy.** A recipe is public; records go to gates and nowhere else.
The proof is in docs/proofs/mixture-factors.md.
"""

import math
from functools import partial
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment

from dpsep.estimators.large import pieces
from dpsep.inference import mixture_update, sketch
from dpsep.inference.propagation import propagate
from dpsep.inference.release_trace import Moments, Path, Table
from dpsep.models.glm import Columns
from dpsep.models.mixture_factors import (
    ExpectedStatistics,
    LocalFactors,
    LogDensity,
    Variances,
    VariationalFactors,
)
from dpsep.models.sketch import Sketch, draw_frequencies
from dpsep.privacy.gate import Records
from dpsep.privacy.grid import Block
from dpsep.privacy.mechanism import Relation
from dpsep.privacy.open_gate import OpenGate
from dpsep.privacy.sampling import Sampling
from dpsep.recipe import FOUND, SCALING, Opened, Recipe, Stage, Values, plain, scaling_stage
from dpsep.theory.mixtures import MARGINS, STEPS, mean_margin, mixture_blocks, mixture_schedule

Array = NDArray[np.float64]
Method = Literal["sep", "vi", "em"]

OPEN_STARTS = 4
"""How many starts are tried without privacy, where trying costs nothing but time."""
CONTRIBUTIONS = {"sep": LocalFactors, "vi": VariationalFactors, "em": ExpectedStatistics}


class Task(NamedTuple):
    """Public description of a fit; J components, D columns.

    Attributes
    ----------
    records, features, components
        N, D and J.
    method
        How a record is read.
    variances
        Whether component variances are known, or how they are learned.
    noise
        Known deviations within components, one a column in the table's units; None where they are learned.
    weights
        Known weights; None where they are learned.
    concentration
        Of the Dirichlet prior of learned weights.
    scaling
        Declared; None where bounds are to be found.
    prior_mean
        Prior means of the components, (J, D) in the table's units; None for the centre of the scaling.
    clip
        Multiple of the default clips; None for the default (or, without privacy, no clip).
    steps
        Number of releases; None for the default.
    """

    records: int
    features: int
    components: int
    method: Method
    variances: Variances
    noise: Array | None
    weights: Array | None
    concentration: float
    scaling: Columns | None
    prior_mean: Array | None
    clip: float | None
    steps: int | None


class Result(NamedTuple):
    """A fit, in scaled units, and the map to them."""

    mean: Array
    covariance: Array
    noise: Array
    variance: Array
    weights: Array
    counts: Array
    count_noise: float
    scatter_noise: Array
    columns: Columns
    steps: int
    moved: float


def around(low: Array, high: Array) -> Columns:
    """Scale what lies within bounds to [-1, 1] about the middle.

    Examples
    --------
    >>> around(np.array([0.0]), np.array([4.0])).centre
    array([2.])
    """
    reach = high / 2 - low / 2
    return Columns(low, high, low / 2 + high / 2, np.where(reach > 0, reach, 1.0))


def recipe_of(task: Task, *, epsilon: float, delta: float, relation: Relation, sampling: Sampling) -> Recipe:
    """Return the private fit of a task: bounds where none are declared, the sketch, the components."""
    schedule = mixture_schedule(
        task.records, epsilon, delta, relation, sampling, scaled=task.scaling is None, steps=task.steps
    )
    blocks = blocks_of(
        task,
        mean_margin(task.records, task.features, task.components, epsilon, delta, relation),
        task.clip or 1.0,
    )
    contribution = CONTRIBUTIONS[task.method](task.variances)
    source = "declared bounds or priors" if task.scaling is not None else FOUND

    def settings_after(values: Values) -> mixture_update.Settings:
        scaling = task.scaling
        if scaling is None:
            scaling = around(values[SCALING].low, values[SCALING].high)
            if task.noise is not None:
                # Known deviations out of all proportion to the bounds found cannot be used.
                scaling = scaling._replace(scale=np.clip(scaling.scale, task.noise / 1e3, task.noise / 1e-4))
        return settings_of(task, scaling)

    def sketched(opened: Opened, values: Values, path: Path) -> tuple[mixture_update.State, Array | None]:
        """Start from a sketch; also the start's covariance."""
        del path
        settings = settings_after(values)
        frequencies = frequencies_of(task, np.asarray(settings.columns.scale))
        block = sketch.block(len(frequencies))
        total = opened([block], Sketch()).release((settings.columns, frequencies))["sketch"]
        noise = schedule.parts[-2].sigma * block.clip / task.records
        return _starts(task, settings, total / task.records, frequencies, noise, 1)[0]

    def run(opened: Opened, values: Values, path: Path) -> Result:
        settings, (start, spread) = settings_after(values), values["sketch"]
        gate = opened(blocks, contribution)
        watch = partial(_note, path, settings)
        state = mixture_update.run(gate, settings, start, task.steps or STEPS, watch=watch)
        batch, noise = gate.expected_batch, gate.deviations
        state = propagate(
            settings, state, spread, contribution, blocks, noise, records=task.records, batch=batch
        )
        return _result(settings, state)

    scaling = () if task.scaling is not None else (scaling_stage(task.features, lambda arrays: arrays),)
    return Recipe(
        schedule,
        delta,
        (*scaling, Stage("sketch", sketched), Stage("fit", run)),
        ((task.records, task.features),),
        plain(task),
        f"{source}; the start comes from one noisy sketch, inside epsilon",
    )


def fit_open(task: Task, records: Records, *, max_iter: int, tolerance: float) -> Result:
    """Fit without privacy; clipped where a clip is given."""
    # Not the stages of a private fit: exact sums let several starts be tried and the likeliest go on.
    scaling = task.scaling
    if scaling is None:
        scaling = _own_scaling(records[0])
    settings = settings_of(task, scaling)
    frequencies = frequencies_of(task, scaling.scale)
    block = sketch.block(len(frequencies))
    gate = OpenGate(records, [block], Sketch())
    total = gate.release((settings.columns, frequencies))["sketch"]
    starts = _starts(task, settings, total / task.records, frequencies, 0.0, OPEN_STARTS)
    blocks = blocks_of(task, MARGINS[1], math.inf if task.clip is None else task.clip)
    open_gate = OpenGate(records, blocks, CONTRIBUTIONS[task.method](task.variances))
    tried = [
        mixture_update.run(open_gate, settings, start, min(max_iter, 10), tolerance) for start, _ in starts
    ]
    score = OpenGate(records, [Block("score", 1, math.inf)], LogDensity())
    public = [mixture_update.public_of(settings, state, task.records) for state in tried]
    best = int(np.argmax([score.release(one)["score"][0] for one in public]))
    left = max_iter - tried[best].step
    state = tried[best]
    if left > 0 and state.moved > tolerance:
        state = mixture_update.run(open_gate, settings, state, left, tolerance)
    return _result(settings, state)


def blocks_of(task: Task, margin: float, clip: float) -> list[Block]:
    """Blocks of the fit's releases."""
    missing = CONTRIBUTIONS[task.method].missing
    return mixture_blocks(
        task.components, task.features, task.variances, missing=missing, margin=margin, clip=clip
    )


def settings_of(task: Task, scaling: Columns) -> mixture_update.Settings:
    """Public constants of the update, in scaled units: the prior of every mean has deviation one."""
    prior = np.zeros((task.components, task.features))
    if task.prior_mean is not None:
        prior = (task.prior_mean - scaling.centre) / scaling.scale
    return mixture_update.Settings(
        columns=scaling,
        prior_mean=prior,
        prior_precision=1.0,
        weights=task.weights,
        concentration=task.concentration,
        variances=task.variances,
        cavity=task.method == "sep",
    )


def frequency_count(task: Task) -> int:
    """Number of frequencies of the sketch: several for each unknown number."""
    if task.noise is not None:
        return max(200, 6 * task.components * task.features)
    return max(200, 3 * task.components * (2 * task.features + 1))


def frequencies_of(task: Task, scale: Array) -> Array:
    """Frequencies of the sketch: about one over the components' deviation, or over a range of deviations."""
    count = frequency_count(task)
    if task.noise is not None:
        return draw_frequencies(count, task.noise / scale, 0.3, 2.0, even=True)
    return draw_frequencies(count, np.ones(task.features), 0.7, 20.0, even=False)


def _starts(
    task: Task,
    settings: mixture_update.Settings,
    released: Array,
    frequencies: Array,
    noise: float,
    keep: int,
) -> list[tuple[mixture_update.State, Array | None]]:
    """States to start from, as a sketch suggests them, the likeliest first, with their covariances."""
    shape = sketch.Shape(task.components, task.variances, task.weights is not None)
    weights = np.full(task.components, 1.0 / task.components) if task.weights is None else task.weights
    scale = np.asarray(settings.columns.scale)
    offset = np.zeros(task.features)
    if task.noise is not None:
        offset = 2.0 * np.log(task.noise / scale)
    elif task.variances == "spherical":
        # One variance in the table's units is a pattern in scaled ones.
        offset = -2.0 * np.log(scale)
        offset = offset - offset.mean()
    # A mean of N cosines has a variance of at most 1 / 2N about its expectation.
    deviation = math.sqrt(noise**2 + 0.5 / task.records)
    found = sketch.decode(released, frequencies, deviation, shape, np.log(weights), offset, keep=keep)
    ordered = [_ordered(task, settings, one) for one in found]
    return [
        (
            mixture_update.init(settings, task.records, one.mean, one.variance, one.weight, one.spread),
            one.joint,
        )
        for one in ordered
    ]


def _ordered(task: Task, settings: mixture_update.Settings, found: sketch.Found) -> sketch.Found:
    """Where components are told apart by their priors, give each the found one that suits it."""
    if task.prior_mean is None:
        return found
    apart = ((settings.prior_mean[:, None] - found.mean[None]) ** 2).sum(-1)
    order = linear_sum_assignment(apart)[1]
    # Weights that are known belong to the components, not to what was found.
    weight = found.weight[order] if task.weights is None else found.weight
    joint = found.joint
    if joint is not None:
        rows = _places(order, found.mean.shape[1], len(joint), learned=task.weights is None)
        joint = joint[np.ix_(rows, rows)]
    return sketch.Found(weight, found.mean[order], found.variance[order], found.spread[order], joint)


def _note(path: Path, settings: mixture_update.Settings, state: mixture_update.State) -> None:
    """Note the component means, one after the other, in the units of the table."""
    count = len(state.mean)
    scale, centre = np.asarray(settings.columns.scale), np.asarray(settings.columns.centre)
    table = Table(np.diag(np.tile(scale, count)), np.tile(centre, count))
    path.estimate(table, lambda: Moments(state.mean.ravel()))


def _places(order: Any, dimension: int, size: int, *, learned: bool) -> NDArray[np.intp]:
    """Places of reordered components in a joint vector: means, log weights if learned, levels."""
    places = [order[:, None] * dimension + np.arange(dimension)]
    used = places[0].size
    while used < size:
        width = 1 if learned and len(places) == 1 else (size - used) // len(order)
        places.append(used + order[:, None] * width + np.arange(width))
        used += places[-1].size
    return np.concatenate([part.ravel() for part in places])


def _own_scaling(values: Any) -> Columns:
    """Range of the data itself; for fits that are not private."""
    ranges = [(piece.min(axis=0), piece.max(axis=0)) for piece in pieces(values)]
    low = np.min([one[0] for one in ranges], axis=0)
    high = np.max([one[1] for one in ranges], axis=0)
    found = around(low, high)
    unbounded = np.full_like(found.centre, np.inf)
    return found._replace(low=-unbounded, high=unbounded)


def _result(settings: mixture_update.Settings, state: mixture_update.State) -> Result:
    covariance = np.linalg.inv(state.precision)
    return Result(
        state.mean,
        (covariance + np.swapaxes(covariance, 1, 2)) / 2,
        state.noise,
        state.deviation**2,
        mixture_update.weights_of(settings, state),
        np.maximum(state.counts, 0.0),
        state.count_noise,
        state.scatter_noise,
        settings.columns,
        state.step,
        state.moved,
    )
