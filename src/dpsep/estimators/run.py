r"""A fit of linear weights: what every estimator of them shares.

Private: `recipe_of` calibrates the noise from public numbers and says what is run, which `dpsep.fit` does:
scale the columns (declared bounds, or released histograms), then the algorithm through the gate. Not private:
the same stages behind an open gate.

**Privacy.** A recipe is public; records go to gates and nowhere else.
The proof is in docs/proofs/glm.md.
"""

import math
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dpsep.estimators import natural as natural_update
from dpsep.estimators.columns import (
    Maps,
    map_columns,
    own_columns,
    table_outcome,
)
from dpsep.estimators.posterior import table_map
from dpsep.families import Gamma
from dpsep.inference import sep_newton
from dpsep.inference.release_trace import Path, watch_stable
from dpsep.models.concentrated_noise import ConcentratedNoise
from dpsep.models.glm import Columns, GLMContribution, LinearContribution
from dpsep.models.linear import GaussianLikelihood
from dpsep.privacy.gate import Records
from dpsep.privacy.grid import Block, Contribution
from dpsep.privacy.mechanism import Relation, Schedule
from dpsep.privacy.sampling import Sampling
from dpsep.recipe import Opened, Recipe, Stage, Values, public_of, source_of
from dpsep.theory.glm_defaults import (
    HIDDEN,
    Plan,
    precision_noise,
    weights_blocks,
    weights_plan,
    weights_schedule,
)

Array = NDArray[np.float64]
MOST_OPEN, REST = 200, 1e-9
"""Without privacy: most steps, and the step at which the mean rests, in posterior standard deviations."""


class Task(NamedTuple):
    """Public description of a fit.

    Attributes
    ----------
    likelihood
        A likelihood of one predictor, or `ConcentratedNoise` where the noise precision is learned.
    records, features
        Shape of the table.
    intercept
        Whether an intercept is fitted.
    feature_scaling, outcome_scaling
        Declared; None where it is to be found privately (or, without privacy, from the data).
    prior_scale
        Prior standard deviation of a scaled weight.
    clip
        Multiple for the clips; None for the default (or, without privacy, no clip).
    steps
        Number of releases; None for the default.
    curvature
        Public guess of the local factors' precision.
    cap
        Longest step of the mean, as a change of the predictor; infinite for none.
    reach
        How much noise a larger clip may cost (`dpsep.theory.glm_defaults`).
    classes
        How labels are coded, in words: a resumed run must code them alike.
    room
        Least multiple for the precision's clip (`dpsep.theory.glm_defaults`).
    spare
        Share of `reach` that a clip beyond a typical record's tails may cost.
    excess
        Noise of a release over what the budget needs (`dpsep.theory.glm_defaults`): above one in a
        federation.
    """

    likelihood: Any
    records: int
    features: int
    intercept: bool
    feature_scaling: Columns | None
    outcome_scaling: Columns | None
    prior_scale: float
    clip: float | None
    steps: int | None
    curvature: float
    cap: float
    reach: float = 0.85
    classes: str = ""
    room: float = 1.0
    spare: float = 1.0
    excess: float = 1.0

    @property
    def dimension(self) -> int:
        """Number of weights."""
        return self.features + self.intercept

    @property
    def learned_noise(self) -> bool:
        """Whether the noise precision is learned."""
        return isinstance(self.likelihood, ConcentratedNoise)


class Result(NamedTuple):
    """A fit, in scaled units."""

    mean: Array
    covariance: Array
    noise_covariance: Array
    noise: tuple[float, float] | None
    features: Columns
    outcome: Columns
    steps: int


def design_schedule(
    task: Any, epsilon: float, delta: float, relation: Relation, sampling: Sampling
) -> tuple[Schedule, Plan]:
    """Calibrate the releases of a fit, and of private scaling before it if bounds are missing.

    Parameters
    ----------
    task
        A `Task`, or another description with the same numbers: records, dimension, scalings, clip, steps.
    """
    return weights_schedule(
        task.records,
        task.dimension,
        epsilon,
        delta,
        relation,
        sampling,
        scaled=task.feature_scaling is None or task.outcome_scaling is None,
        learned_noise=task.learned_noise,
        reach=task.reach,
        spare=task.spare,
        steps=task.steps,
        clip=task.clip,
        room=task.room,
        excess=getattr(task, "excess", 1.0),
    )


def recipe_of(
    task: Task,
    *,
    epsilon: float,
    delta: float,
    relation: Relation,
    sampling: Sampling,
    natural: float | None = None,
) -> Recipe:
    """Return the private fit of a task: bounds where none are declared, then the weights.

    Parameters
    ----------
    natural
        The paper's gamma where its own update is asked for; None for the stable one.
    """
    if natural is not None and task.steps is None:
        task = task._replace(steps=natural_update.STEPS)
    schedule, chosen = design_schedule(task, epsilon, delta, relation, sampling)
    hidden = task.excess * precision_noise(chosen, schedule.parts[-1], task.dimension) > HIDDEN
    stages = stages_of(task, chosen, natural=natural, hidden=hidden)
    shapes = ((task.records, task.features), (task.records,))
    blocks = _released(task, chosen, natural)[0]
    public = public_of(task, natural=natural, blocks=blocks, hidden=HIDDEN)
    return Recipe(schedule, delta, stages, shapes, public, source_of(stages))


def stages_of(
    task: Task, chosen: Plan, *, natural: float | None = None, hidden: bool = False
) -> tuple[Stage, ...]:
    """Return what a fit does, private or not: bounds where none are declared, then the weights.

    Parameters
    ----------
    hidden
        Whether released precisions are drawn towards their guess.
    """
    blocks, contribution = _released(task, chosen, natural)
    scaling, maps = _maps_of(task)

    def run(opened: Opened, values: Values, path: Path) -> Result:
        features, outcome = maps(values)
        settings = settings_of(task, features, outcome, chosen.warmup)
        if hidden:
            settings = settings._replace(parts=_parts(task))
        gate = opened(blocks, contribution)
        table = table_map(features, table_outcome(task.likelihood, outcome), intercept=task.intercept)
        if natural is None:
            watch = watch_stable(path, settings, table)
            return _result(task, settings, sep_newton.run(gate, settings, chosen.steps, REST, watch))
        assert isinstance(contribution, natural_update.NaturalContribution)
        watch = partial(path.estimate, table)
        moments = natural_update.run(gate, contribution, settings, natural, task.clip, chosen.steps, watch)
        return Result(*moments, features, outcome, chosen.steps)

    return (*scaling, Stage("fit", run))


def _released(task: Task, chosen: Plan, natural: float | None) -> tuple[list[Block], Contribution]:
    if natural is not None:
        return natural_update.parts(task.likelihood, task.dimension, task.intercept, task.clip)
    return blocks_of(task, chosen), contribution_of(task)


def columns_of(task: Task, records: Records) -> tuple[Columns, Columns]:
    """Maps of the columns for a fit without privacy: declared, or from the data itself."""
    return own_columns(*_maps_of(task), records)


def _maps_of(task: Task) -> tuple[tuple[Stage, ...], Maps]:
    return map_columns(
        task.feature_scaling,
        task.outcome_scaling,
        task.features,
        keep_zero=not task.intercept,
        scale_family=getattr(task.likelihood, "scale_family", False),
    )


def open_plan(task: Any) -> Plan:
    """Plan without privacy: clips of the default shape at the multiple asked for; infinite where none was.

    Parameters
    ----------
    task
        As `design_schedule` takes it.
    """
    size = (task.records, task.dimension, 1.0, 1e-5)
    chosen = weights_plan(*size, learned_noise=task.learned_noise, clip=task.clip)
    chosen = chosen._replace(steps=task.steps or MOST_OPEN, warmup=0)
    if task.clip is not None:
        return chosen
    return chosen._replace(mean_clip=math.inf, precision_clip=math.inf, noise_clip=math.inf)


def blocks_of(task: Task, chosen: Plan) -> list[Block]:
    """Return the parts of a release."""
    return weights_blocks(chosen, task.dimension, learned_noise=task.learned_noise)


def contribution_of(task: Task) -> GLMContribution | LinearContribution:
    """Return what a record adds to a release."""
    if task.learned_noise:
        return LinearContribution(task.likelihood, task.intercept)
    return GLMContribution(task.likelihood, task.intercept)


def settings_of(task: Task, features: Columns, outcome: Columns, warmup: int) -> sep_newton.Settings:
    """Prior, start and maps of the stable update; the prior serves the other methods too."""
    d = task.dimension
    second = np.full(task.features, 0.25)
    if task.intercept:
        second = np.concatenate([[1.0], second])
    prior = np.full(d, task.prior_scale**-2.0)
    if task.intercept:
        prior[0] = (10.0 * task.prior_scale) ** -2.0
    known = isinstance(task.likelihood, GaussianLikelihood)
    learned = task.learned_noise
    return sep_newton.Settings(
        prior_mean=np.zeros(d),
        prior_precision=np.diag(prior),
        features=features,
        outcome=outcome,
        start=task.records * (1.0 if learned else task.curvature) * second,
        noise=Gamma(np.asarray(0.0), np.asarray(1e-3)) if learned else None,  # pyright: ignore[reportArgumentType]
        noise_guess=task.curvature if learned else 1.0,
        warmup=warmup,
        cap=math.inf if known or learned else task.cap * math.sqrt(task.records * task.curvature),
    )


def _parts(task: Task) -> NDArray[np.int64]:
    """Parts of the weights whose guessed precisions are scaled apart: the intercept, and the others."""
    parts = np.zeros(task.dimension, np.int64)
    parts[int(task.intercept) :] = int(task.intercept)
    return parts


def _result(task: Task, settings: sep_newton.Settings, state: sep_newton.State) -> Result:
    q = sep_newton.posterior(settings, state)
    noise = (float(state.noise.shape), float(state.noise.rate)) if task.learned_noise else None
    extra = sep_newton.noise_covariance(state)
    covariance = np.linalg.inv(np.asarray(q.precision))
    covariance = (covariance + covariance.T) / 2
    return Result(state.mean, covariance, extra, noise, settings.features, settings.outcome, state.step)
