r"""A fit of a model of several numbers a unit: your own model, or a mixed model with groups as units.

Private: `recipe_of` calibrates the noise from public numbers and says what `dpsep.fit` runs: scale the
columns, then `dpsep.inference.multi_predictor` through the gate. Not private: the same stages behind an open
gate, or EP, ADF, NUTS.

**Privacy.** A recipe is public; records go to gates and nowhere else. A row of the
gate's arrays is one unit, so its sensitivity is that of whole units: where they are groups, all rows of a
group are one contribution and clipped together. The proof is in docs/proofs/own-model.md.
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from dpsep.estimators.columns import Maps, map_columns, own_columns
from dpsep.estimators.run import design_schedule, open_plan
from dpsep.families import Gaussian
from dpsep.fit import fit_open
from dpsep.inference import adf, ep, multi_predictor, nuts, sep_newton
from dpsep.inference.release_trace import Path, Table, watch_stable
from dpsep.models.frozen import FrozenContribution, freeze
from dpsep.models.glm import Columns
from dpsep.models.multi_predictor import LinkedModel, Units, log_joint
from dpsep.privacy.gate import Records
from dpsep.privacy.grid import Block
from dpsep.privacy.mechanism import Relation
from dpsep.privacy.sampling import Sampling
from dpsep.recipe import Opened, Recipe, Stage, Values, plain, source_of
from dpsep.theory.glm_defaults import Plan, doubt_of

Array = NDArray[np.float64]

MOST_WEIGHTS = 300
"""Most weights: their precision is released whole."""
REST = 1e-8
"""Without privacy: the mean rests where a step is shorter, in posterior standard deviations."""


class LinkedTask(NamedTuple):
    """Public description of a fit.

    Attributes
    ----------
    model
        Of the units.
    records
        Number of units, N of q = p0 f^N.
    prior_mean, prior_sd
        Of the scaled weights, independent of each other.
    information
        Guess of the precision that one unit adds to each weight, made without data.
    feature_scaling, outcome_scaling
        Declared; None where it is to be found privately (or, without privacy, from the data).
    clip, steps
        As asked for; None for the defaults.
    coding
        How labels and groups are coded, in words: a resumed run must code them alike.
    shapes
        Of the arrays of one unit; the first ends with the number of columns.
    unit
        Whose privacy is counted.
    scaling_records
        What private scaling reads of the arrays: one row a unit.
    reach, spare
        How much noise a larger clip may cost (`dpsep.theory.glm_defaults`).
    room
        Least multiple for the precision's clip.
    parts, hindsight
        Weights of one kind, whose precisions are guessed together, and whether mean parts are used again with
        later precisions: for few units (`dpsep.inference.sep_newton`).
    keep_zero
        Whether columns are scaled and not shifted, because no intercept could take a shift up.
    step
        Most that each weight may move in a step; None for no such bound.
    table
        Map of the weights that are shown to the units of the table, given the maps of the columns.
    """

    model: Units
    records: int
    prior_mean: Array
    prior_sd: Array
    information: Array
    feature_scaling: Columns | None
    outcome_scaling: Columns | None
    clip: float | None
    steps: int | None
    coding: str
    shapes: tuple[tuple[int, ...], ...]
    unit: str = "record"
    scaling_records: Callable[[Records], Records] = lambda arrays: arrays
    reach: float = 0.85
    spare: float = 1.0
    room: float = 1.2
    parts: NDArray[np.int64] | None = None
    hindsight: bool = False
    keep_zero: bool = False
    step: Array | None = None
    table: Callable[[Columns, Columns], Table] | None = None

    @property
    def dimension(self) -> int:
        """Number of weights."""
        return len(self.prior_mean)

    @property
    def learned_noise(self) -> bool:
        """Whether a noise precision is released apart: never, a scale is one of the weights."""
        return False


class LinkedResult(NamedTuple):
    """A fit, in scaled units; `draws` where it was sampled."""

    mean: Array
    covariance: Array
    noise_covariance: Array
    features: Columns
    outcome: Columns
    steps: int
    draws: Array | None = None


def recipe_of(
    task: LinkedTask, *, epsilon: float, delta: float, relation: Relation, sampling: Sampling
) -> Recipe:
    """Return the private fit of a task: bounds where none are declared, then the weights."""
    contribution = _frozen(task)
    schedule, chosen = design_schedule(task, epsilon, delta, relation, sampling)
    doubt = doubt_of(chosen, schedule.parts[-1], task.dimension, task.unit)
    stages = _stages_of(task, chosen, contribution)
    shapes = [(task.records, *shape) for shape in task.shapes]
    public = _public(task, contribution.digest)
    return Recipe(schedule, delta, stages, shapes, public, source_of(stages), task.unit, doubt=doubt)


def _stages_of(task: LinkedTask, chosen: Plan, contribution: FrozenContribution) -> tuple[Stage, ...]:
    blocks = _blocks(task, chosen)
    scaling, maps = _maps_of(task)

    def run(opened: Opened, values: Values, path: Path) -> LinkedResult:
        features, outcome = maps(values)
        settings = _settings(task, features, outcome, chosen.warmup)
        watch = None
        if task.table is not None:
            watch = watch_stable(path, settings, task.table(features, outcome))
        gate = opened(blocks, contribution)
        return _result(settings, multi_predictor.run(gate, settings, chosen.steps, REST, watch))

    return (*scaling, Stage("fit", run))


def fit_by(method: str, task: LinkedTask, records: Records, seed: int | None = None) -> LinkedResult:
    """Fit without privacy by SEP (clipped where a clip is given), EP, ADF or NUTS."""
    fixed = None
    if method in ("sep", "nuts"):
        fixed = fit_open(_stages_of(task, open_plan(task), _frozen(task)), records)
        if method == "sep":
            return fixed
    features, outcome = own_columns(*_maps_of(task), records)
    settings = _settings(task, features, outcome, 0)
    with jax.enable_x64(True):
        arrays = tuple(jnp.asarray(array) for array in records)
        maps = [Columns(*(jnp.asarray(part) for part in one)) for one in (features, outcome)]
        prior = Gaussian.from_moments(jnp.asarray(task.prior_mean), jnp.diag(jnp.asarray(task.prior_sd**2)))
        if fixed is not None:
            return _sampled(task, settings, prior, maps, arrays, seed, fixed.mean)
        model = LinkedModel(task.model, *maps)
        if method == "adf":
            q, steps = adf.run(model, prior, arrays)[0].posterior, 1
        else:
            state = ep.run(model, prior, arrays, max_iter=task.steps or 100, start=_start(settings))
            q, steps = state.posterior, int(state.sweeps)
        mean, covariance = np.asarray(q.mean), np.asarray(q.covariance)
    return LinkedResult(mean, covariance, np.zeros_like(covariance), features, outcome, steps)


def _maps_of(task: LinkedTask) -> tuple[tuple[Stage, ...], Maps]:
    scalings = (task.feature_scaling, task.outcome_scaling)
    return map_columns(*scalings, task.shapes[0][-1], task.scaling_records, keep_zero=task.keep_zero)


def _sampled(
    task: LinkedTask,
    settings: sep_newton.Settings,
    prior: Gaussian,
    maps: Any,
    arrays: Any,
    seed: int | None,
    start: Array,
) -> LinkedResult:
    """Draws of the sampler, which starts where SEP has ended."""
    features, outcome = maps

    def log_likelihood(w: jax.Array) -> jax.Array:
        return log_joint(task.model, features, outcome, w, arrays)

    found = nuts.run_joint(log_likelihood, prior, jax.random.key(0 if seed is None else seed), start=start)
    draws = np.asarray(found.weights)
    covariance = np.atleast_2d(np.cov(draws, rowvar=False))
    return LinkedResult(
        draws.mean(0),
        covariance,
        np.zeros_like(covariance),
        settings.features,
        settings.outcome,
        len(draws),
        draws,
    )


def _start(settings: sep_newton.Settings) -> Gaussian:
    """Where EP starts: the prior's mean, as narrow as the guess of what the data will say."""
    precision = settings.prior_precision + np.diag(settings.start)
    return Gaussian(jnp.asarray(precision @ settings.prior_mean), jnp.asarray(precision))


def _settings(task: LinkedTask, features: Columns, outcome: Columns, warmup: int) -> sep_newton.Settings:
    information = float(np.mean(task.information))
    return sep_newton.Settings(
        prior_mean=task.prior_mean,
        prior_precision=np.diag(task.prior_sd**-2.0),
        features=features,
        outcome=outcome,
        start=task.records * task.information,
        warmup=warmup,
        cap=2.0 * math.sqrt(task.records * information),
        reach=task.step,
        least=0.05,
        hindsight=task.hindsight,
        parts=task.parts,
    )


def _blocks(task: LinkedTask, chosen: Plan) -> list[Block]:
    size = task.dimension
    return [
        Block("mean", size, chosen.mean_clip, chosen.mean_share),
        Block("precision", size * (size + 1) // 2, chosen.precision_clip, chosen.precision_share),
    ]


def _result(settings: sep_newton.Settings, state: sep_newton.State) -> LinkedResult:
    covariance = np.linalg.inv(np.asarray(sep_newton.posterior(settings, state).precision))
    covariance = (covariance + covariance.T) / 2
    extra = sep_newton.noise_covariance(state)
    return LinkedResult(state.mean, covariance, extra, settings.features, settings.outcome, state.step)


def _frozen(task: LinkedTask) -> FrozenContribution:
    return freeze(task.model, task.shapes[0][-1], task.shapes)


def _public(task: LinkedTask, program: str) -> Any:
    public = {
        "program": program,
        "coding": task.coding,
        "unit": task.unit,
        "records": task.records,
        "prior": (task.prior_mean, task.prior_sd),
        "information": task.information,
        "clip": task.clip,
        "keep_zero": task.keep_zero,
        "scalings": (task.feature_scaling, task.outcome_scaling),
    }
    return plain(public)
