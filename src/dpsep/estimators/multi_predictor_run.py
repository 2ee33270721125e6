r"""A fit of a model of several numbers a unit: your own model, or a mixed model with groups as units.

Private: `recipe_of` calibrates the noise from public numbers and says what `dpsep.fit` runs: scale the
columns, then `dpsep.inference.multi_predictor` through the gate. Not private: the same behind an open gate,
or EP, ADF, NUTS.

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

from dpsep.estimators.columns import map_columns, own_scaling, several, single, through_zero
from dpsep.estimators.run import design_schedule
from dpsep.families import Gaussian
from dpsep.inference import adf, ep, multi_predictor, nuts, sep_newton
from dpsep.inference.release_trace import Path, Table, watch_stable
from dpsep.models.frozen import FrozenContribution, freeze
from dpsep.models.glm import Columns
from dpsep.models.multi_predictor import LinkedModel, Units, log_joint
from dpsep.privacy.gate import Records
from dpsep.privacy.grid import Block
from dpsep.privacy.mechanism import Relation
from dpsep.privacy.open_gate import OpenGate
from dpsep.privacy.sampling import Sampling
from dpsep.privacy.scaling import Scaling
from dpsep.recipe import Opened, Recipe, Stage, Values
from dpsep.theory.glm_defaults import Plan, warn_if_weak, weights_plan

Array = NDArray[np.float64]

MOST_WEIGHTS = 300
"""Most weights: their precision is released whole."""


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
    feature_scaling: Scaling | None
    outcome_scaling: Scaling | None
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
    blocks = _blocks(task, chosen)
    warn_if_weak(chosen, schedule.parts[-1], task.dimension, task.unit)
    scaling, maps, source = map_columns(
        task.feature_scaling, task.outcome_scaling, task.shapes[0][-1], task.scaling_records
    )

    def run(opened: Opened, values: Values, path: Path) -> LinkedResult:
        features, outcome = maps(values)
        if task.keep_zero:
            features, outcome = through_zero(features), through_zero(outcome)
        settings = _settings(task, features, outcome, chosen.warmup)
        watch = None
        if task.table is not None:
            watch = watch_stable(path, settings, task.table(features, outcome))
        gate = opened(blocks, contribution)
        return _result(settings, multi_predictor.run(gate, settings, chosen.steps, watch=watch))

    return Recipe(
        schedule,
        delta,
        (*scaling, Stage("fit", run)),
        [(task.records, *shape) for shape in task.shapes],
        _public(task, contribution.digest),
        source,
        task.unit,
    )


def fit_open(task: LinkedTask, records: Records, method: str, seed: int | None) -> LinkedResult:
    """Fit without privacy by SEP (clipped where a clip is given), EP, ADF or NUTS."""
    features, outcome = columns_of(task, records)
    settings = _settings(task, features, outcome, 0)
    fixed = None
    if method in ("sep", "nuts"):
        gate = OpenGate(records, _blocks(task, _open_plan(task)), _frozen(task))
        fixed = _result(settings, multi_predictor.run(gate, settings, task.steps or 200, 1e-8))
        if method == "sep":
            return fixed
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


def columns_of(task: LinkedTask, records: Records) -> tuple[Columns, Columns]:
    """Maps of the columns for a fit without privacy: declared, or from the data itself."""
    arrays = task.scaling_records(records)
    features = task.feature_scaling or own_scaling(arrays[0])
    outcome = task.outcome_scaling or own_scaling(arrays[1][:, None])
    if task.keep_zero:
        return through_zero(several(features)), through_zero(single(outcome))
    return several(features), single(outcome)


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


def _open_plan(task: LinkedTask) -> Plan:
    """Clips of the default shape at the multiple asked for; infinite where none was."""
    chosen = weights_plan(task.records, task.dimension, 1.0, 1e-5, clip=task.clip)
    if task.clip is None:
        return chosen._replace(mean_clip=math.inf, precision_clip=math.inf)
    return chosen


def _result(settings: sep_newton.Settings, state: sep_newton.State) -> LinkedResult:
    covariance = np.linalg.inv(np.asarray(sep_newton.posterior(settings, state).precision))
    covariance = (covariance + covariance.T) / 2
    extra = sep_newton.noise_covariance(state)
    return LinkedResult(state.mean, covariance, extra, settings.features, settings.outcome, state.step)


def _frozen(task: LinkedTask) -> FrozenContribution:
    return freeze(task.model, task.shapes[0][-1], task.shapes)


def _public(task: LinkedTask, program: str) -> Any:
    scalings = (task.feature_scaling, task.outcome_scaling)
    return {
        "program": program,
        "coding": task.coding,
        "unit": task.unit,
        "records": task.records,
        "prior": [task.prior_mean.tolist(), task.prior_sd.tolist()],
        "information": task.information.tolist(),
        "clip": task.clip,
        "keep_zero": task.keep_zero,
        "scalings": [None if one is None else [part.tolist() for part in one] for one in scalings],
    }
