r"""Mixed models with records as units: declared groups have coefficients of their own among the weights.

The run is that of a regression (`dpsep.estimators.run`) on wider rows; the prior of the random effects is
learned from what was released (`dpsep.inference.variances`): after every release of the warm-up, and once
more at the end.

**Privacy.** A recipe is public; records go to gates and nowhere else. The list of
groups is declared. How much groups differ is computed from releases, at no further cost.
The proof is in docs/proofs/glm.md.
"""

import math
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dpsep.estimators.columns import map_columns
from dpsep.estimators.posterior import table_map
from dpsep.estimators.run import Task, blocks_of, contribution_of, design_schedule, open_plan
from dpsep.families import Gamma
from dpsep.inference import sep_newton, variances
from dpsep.inference.gate_protocol import Summed
from dpsep.inference.release_trace import Moments, Path, Table
from dpsep.inference.variances import Known, Prior, Spread
from dpsep.models.glm import Columns
from dpsep.models.mixed import Effects, GroupedContribution
from dpsep.privacy.mechanism import Relation
from dpsep.privacy.sampling import Sampling
from dpsep.recipe import Opened, Recipe, Stage, Values, public_of, source_of
from dpsep.theory.glm_defaults import Plan, doubt_of

Array = NDArray[np.float64]


class GroupedTask(NamedTuple):
    """Public description of a fit.

    Attributes
    ----------
    task
        Of the regression on wide rows: a coefficient of its own for each group.
    effects
        Which effects there are.
    groups
        Number of declared groups.
    coding
        The declared groups in words: a resumed run must code them alike.
    """

    task: Task
    effects: Effects
    groups: int
    coding: str


class GroupedResult(NamedTuple):
    """A fit, in scaled units.

    Attributes
    ----------
    mean, covariance, noise_covariance
        Of all effects: fixed ones, then the random ones group by group.
    spread
        Of the random effects' standard deviations.
    noise
        Shape and rate of the noise precision; None where there is none.
    features, outcome
        Maps of the columns.
    steps
        Number of releases.
    """

    mean: Array
    covariance: Array
    noise_covariance: Array
    spread: Spread
    noise: tuple[float, float] | None
    features: Columns
    outcome: Columns
    steps: int


def recipe_of(
    grouped: GroupedTask, *, epsilon: float, delta: float, relation: Relation, sampling: Sampling
) -> Recipe:
    """Return the private fit of a task: bounds where none are declared, then all effects."""
    task = grouped.task
    schedule, chosen = design_schedule(task, epsilon, delta, relation, sampling)
    doubt = doubt_of(chosen, schedule.parts[-1], task.dimension)
    stages = _stages_of(grouped, chosen)
    public = public_of(task, effects=repr(grouped.effects), groups=grouped.coding)
    shapes = ((task.records, grouped.effects.features), (task.records,), (task.records,))
    return Recipe(schedule, delta, stages, shapes, public, source_of(stages), doubt=doubt)


def open_stages(grouped: GroupedTask) -> tuple[Stage, ...]:
    """Return the fit of a task without privacy: SEP, or clipped SEP where a clip is given."""
    return _stages_of(grouped, open_plan(grouped.task))


def _stages_of(grouped: GroupedTask, chosen: Plan) -> tuple[Stage, ...]:
    task = grouped.task
    blocks, contribution = blocks_of(task, chosen), _contribution(grouped)
    scalings, effects = (task.feature_scaling, task.outcome_scaling), grouped.effects
    scaling, maps = map_columns(*scalings, effects.features, keep_zero=not effects.intercept)

    def run(opened: Opened, values: Values, path: Path) -> GroupedResult:
        features, outcome = maps(values)
        table = table_map(features, outcome, intercept=effects.intercept)
        watch = partial(path.estimate, _of_effects(table, grouped))
        gate = opened(blocks, contribution)
        return _run(gate, grouped, features, outcome, chosen.steps, chosen.warmup, watch)

    return (*scaling, Stage("fit", run))


def _contribution(grouped: GroupedTask) -> GroupedContribution:
    inner = contribution_of(grouped.task)
    return GroupedContribution(inner, grouped.effects, grouped.groups)


def _of_effects(fixed: Table, grouped: GroupedTask) -> Table:
    """Map all effects to the fixed ones in the units of the table."""
    return Table(np.pad(fixed.matrix, ((0, 0), (0, grouped.groups * grouped.effects.random))), fixed.shift)


def _run(
    gate: Summed,
    grouped: GroupedTask,
    features: Columns,
    outcome: Columns,
    steps: int,
    warmup: int,
    watch: Callable[[Callable[[], Moments]], None],
) -> GroupedResult:
    noisy = any(value > 0 for value in gate.deviations.values())
    prior = _prior(grouped)
    spread = Spread(np.full(grouped.effects.random, variances.PRIOR_MEAN), np.eye(grouped.effects.random))
    settings = _settings(grouped, prior, spread, features, outcome, warmup)
    state = sep_newton.init(settings)
    for number in range(steps):
        state, info = sep_newton.step(gate, settings, state)
        if number < steps - 1:
            watch(partial(_moments, settings, state, gate.records, prior, spread))
        if noisy and number >= warmup:
            continue  # means of further releases are averaged: they must be under one prior
        before, spread = (
            spread.mean,
            variances.learn(_known(settings, state, gate.records), prior, spread.mean),
        )
        settings = _with_spread(settings, prior, spread)
        if not noisy and info.moved < 1e-6 and np.max(np.abs(spread.mean - before)) < 1e-5:
            break
    known = _known(settings, state, gate.records)
    spread = variances.learn(known, prior, spread.mean)
    moments = variances.effects(known, prior, spread)
    watch(lambda: Moments(*moments))
    noise = None
    if grouped.task.learned_noise:
        ratio = _noise_ratio(settings, state, gate.records)
        noise = (float(state.noise.shape), float(state.noise.rate) / ratio)
    return GroupedResult(*moments, spread, noise, features, outcome, state.step)


def _moments(
    settings: sep_newton.Settings, state: sep_newton.State, records: int, prior: Prior, spread: Spread
) -> Moments:
    """Return the moments of all effects on the way, under the spread that is learned so far."""
    return Moments(*variances.effects(_known(settings, state, records), prior, spread))


def _known(settings: sep_newton.Settings, state: sep_newton.State, records: int) -> Known:
    """Return the likelihood's part of what was released."""
    precision = state.scale * state.geometry
    whole = precision + settings.prior_precision
    noise = whole @ sep_newton.noise_covariance(state) @ whole
    ratio = _noise_ratio(settings, state, records)
    return Known(ratio * precision, ratio * (whole @ state.mean), ratio**2 * (noise + noise.T) / 2)


def _noise_ratio(settings: sep_newton.Settings, state: sep_newton.State, records: int) -> float:
    """Learned noise precision, corrected for what the weights fit of the noise, over the one released.

    SEP's cavity is the same for all records, so its residuals are those of a fit that has seen them: with
    mean leverage h = (effective weights) / N their squares are too small by 1 - h, and what the tilted
    moments allow for the predictor's width takes off another 1 + h. Random effects make h large.
    """
    if settings.noise is None:
        return 1.0
    precision = state.scale * state.geometry
    leverage = float(np.trace(np.linalg.solve(precision + settings.prior_precision, precision))) / records
    return (1.0 - leverage) / (1.0 + leverage)


def _parts(effects: Effects, groups: int) -> NDArray[np.int64]:
    """Weights of one kind: those that do not vary by group, then each varying one in all groups."""
    alone = np.zeros(len(effects.alone), np.int64)
    first = int(len(alone) > 0)
    return np.concatenate([alone, np.tile(first + np.arange(effects.random), groups)])


def _prior(grouped: GroupedTask) -> Prior:
    scale, effects = grouped.task.prior_scale, grouped.effects
    fixed = np.full(effects.fixed, scale**2)
    if effects.intercept:
        fixed[0] = (10.0 * scale) ** 2
    return Prior(fixed, grouped.groups, effects.sums(grouped.groups))


def _with_spread(settings: sep_newton.Settings, prior: Prior, spread: Spread) -> sep_newton.Settings:
    precision = np.linalg.inv(prior.covariance(spread.mean))
    return settings._replace(prior_precision=(precision + precision.T) / 2)


def _settings(
    grouped: GroupedTask, prior: Prior, spread: Spread, features: Columns, outcome: Columns, warmup: int
) -> sep_newton.Settings:
    task, effects = grouped.task, grouped.effects
    column = np.full(effects.features, 0.25)
    fixed = np.concatenate([[1.0], column]) if effects.intercept else column
    random = column[list(effects.slopes)] / grouped.groups
    if effects.random_intercept:
        random = np.concatenate([[1.0 / grouped.groups], random])
    second = np.concatenate([fixed[list(effects.alone)], np.tile(random, grouped.groups)])
    learned = task.learned_noise
    settings = sep_newton.Settings(
        prior_mean=np.zeros(len(second)),
        prior_precision=np.eye(len(second)),
        features=features,
        outcome=outcome,
        start=task.records * (1.0 if learned else task.curvature) * second,
        noise=Gamma(np.asarray(0.0), np.asarray(1e-3)) if learned else None,  # pyright: ignore[reportArgumentType]
        noise_guess=task.curvature if learned else 1.0,
        warmup=warmup,
        # Newton steps of a likelihood that is not quadratic go too far where the precision is too low.
        floor=0.4 if learned else 0.6,
        hindsight=True,
        parts=_parts(effects, grouped.groups),
        cap=math.inf if learned else task.cap * math.sqrt(task.records * task.curvature),
    )
    return _with_spread(settings, prior, spread)
