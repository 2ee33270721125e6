r"""A fit of linear weights: what every estimator of them shares.

Private: `recipe_of` calibrates the noise from public numbers and says what is run, which `dpsep.fit` does:
scale the columns (declared bounds, or released histograms), release their second moments, and fit by weighted
scores (`dpsep.inference.weighted`). Not private: SEP behind an open gate, whose fixed point is that of the
private fit without noise, under the same prior; likelihoods without local factors in closed form (negative
binomial, Student's t) are fitted by the private fit's stages behind an open gate.

**Privacy.** A recipe is public; records go to gates and nowhere else.
The proof is in docs/proofs/weighted.md.
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
    own_scaling,
    table_outcome,
)
from dpsep.estimators.posterior import table_map
from dpsep.estimators.units import first_rows
from dpsep.families import Gamma
from dpsep.inference import leverage, sep_newton, weighted
from dpsep.inference.gate_protocol import Opened
from dpsep.inference.release_trace import Path, watch_stable
from dpsep.models.base import At, Unit
from dpsep.models.glm import Columns, GLMContribution, LinearContribution
from dpsep.models.linear import GaussianLikelihood, LearnedNoise
from dpsep.models.poisson import Dispersed
from dpsep.privacy.gate import Records
from dpsep.privacy.grid import Block, Contribution
from dpsep.privacy.mechanism import Relation, Schedule
from dpsep.privacy.sampling import Sampling
from dpsep.recipe import Recipe, Stage, Values, public_of, source_of
from dpsep.theory.glm_defaults import Plan, weights_blocks, weights_plan, weights_schedule
from dpsep.theory.weighted_defaults import (
    APPROACH,
    FIT,
    LOOKS,
    MOMENTS,
    WeightedPlan,
    open_weighted_plan,
    weighted_schedule,
)

Array = NDArray[np.float64]
SPREAD = "spread"
"""Without privacy: the stage that finds the columns' standard deviations, for the prior."""
DISPERSION = "dispersion"
"""Without privacy: the stage that learns the dispersion of counts after SEP."""
KNOWN = 1e-4
"""Prior standard deviation of a coefficient that is known to be one."""
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
        Prior standard deviation of a coefficient, times the standard deviation of its column.
    cut
        Least cut of a score that nothing bounds, in standard deviations.
    offset
        Place of a column whose coefficient is known to be one; None for none.
    unit, places
        Whose privacy is counted; for how many rows of a unit there are places, none where records are units.
        Then `records` is the number of units.
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
    cut: float = 3.0
    offset: int | None = None
    unit: str = "record"
    places: int = 0

    @property
    def dimension(self) -> int:
        """Number of weights."""
        return self.features + self.intercept

    @property
    def learned_noise(self) -> bool:
        """Whether the noise precision is learned."""
        return isinstance(self.likelihood, LearnedNoise)

    @property
    def dispersed(self) -> bool:
        """Whether the dispersion of counts is learned."""
        return isinstance(self.likelihood, Dispersed)

    @property
    def by_scores(self) -> bool:
        """Whether the fit without privacy is one by weighted scores, too."""
        return bool(self.places) or getattr(self.likelihood, "by_scores", False)

    @property
    def shapes(self) -> tuple[tuple[int, ...], ...]:
        """Of the arrays."""
        rows = (self.records, self.places) if self.places else (self.records,)
        return (*rows, self.features), rows


class Result(NamedTuple):
    """A fit, in scaled units.

    Attributes
    ----------
    mean, covariance, noise_covariance
        Posterior moments of the weights, and which part of them is noise of privacy.
    noise
        Shape and rate of the noise precision, where it is learned.
    features, outcome
        Maps of the columns.
    steps
        Number of releases.
    prior_deviation
        Prior standard deviation of each weight.
    dispersion
        Of counts, and its standard deviation, where it is learned.
    usable
        Released number of usable records, its standard deviation, and of how many; None without privacy.
    """

    mean: Array
    covariance: Array
    noise_covariance: Array
    noise: tuple[float, float] | None
    features: Columns
    outcome: Columns
    steps: int
    prior_deviation: Array | None = None
    dispersion: tuple[float, float] | None = None
    usable: tuple[float, float, int] | None = None


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
    if natural is None:
        schedule, plan = weighted_schedule(
            task.records,
            task.dimension,
            epsilon,
            delta,
            relation,
            sampling,
            scaled=task.feature_scaling is None or task.outcome_scaling is None,
            more=task.learned_noise or task.dispersed,
            together=bool(task.places),
            cut=task.cut,
            steps=task.steps,
        )
        plan = plan._replace(hidden=(task.excess * plan.hidden[0], task.excess * plan.hidden[1]))
        stages = weighted_stages(task, plan)
        public = public_of(task, plan=plan)
        return Recipe(schedule, delta, stages, task.shapes, public, source_of(stages), task.unit)
    if task.steps is None:
        task = task._replace(steps=natural_update.STEPS)
    schedule, chosen = design_schedule(task, epsilon, delta, relation, sampling)
    stages = stages_of(task, chosen, natural=natural)
    public = public_of(task, natural=natural, blocks=_released(task, chosen, natural)[0])
    return Recipe(schedule, delta, stages, task.shapes, public, source_of(stages))


def weighted_stages(task: Task, plan: WeightedPlan) -> tuple[Stage, ...]:
    """Return what a private fit does: bounds where none are declared, second moments, steps, scores."""
    scaling, maps = _maps_of(task)

    def settings(values: Values) -> weighted.Settings:
        return _weighted_settings(task, plan, *_open_ended(task, maps(values)), values[MOMENTS])

    def approach(opened: Opened, values: Values, path: Path) -> weighted.State:
        del path
        return weighted.approach(opened, settings(values), task.records, plan.approach)

    def run(opened: Opened, values: Values, path: Path) -> Result:
        chosen = settings(values)
        table = table_map(
            chosen.features, table_outcome(task.likelihood, chosen.outcome), intercept=task.intercept
        )
        watch = partial(path.estimate, table)
        found = weighted.fit(opened, chosen, values[APPROACH], plan.fit, watch)
        return Result(
            found.mean,
            found.covariance,
            found.noise_covariance,
            (float(found.noise.shape), float(found.noise.rate)) if task.learned_noise else None,
            chosen.features,
            chosen.outcome,
            plan.fit,
            np.diag(chosen.prior_precision) ** -0.5,
            found.dispersion if task.dispersed else None,
            _told(found.usable) if any(plan.hidden) else None,
        )

    return (
        *scaling,
        _moments_stage(task, maps),
        Stage(APPROACH, approach, releases=plan.approach + LOOKS),
        Stage(FIT, run, releases=plan.fit),
    )


def _told(usable: weighted.Usable) -> tuple[float, float, int]:
    return usable.number, math.sqrt(usable.variance), usable.records


def _moments_stage(task: Task, maps: Maps) -> Stage:
    """Return the stage that releases the columns' second moments."""

    def run(opened: Opened, values: Values, path: Path) -> leverage.Geometry:
        del path
        columns = _open_ended(task, maps(values))
        bounded = task.feature_scaling is not None
        kind = {"intercept": task.intercept, "bounded": bounded, "places": task.places}
        return leverage.run(opened, *columns, task.dimension, **kind)

    return Stage(MOMENTS, run, releases=leverage.RELEASES)


def _open_ended(task: Task, columns: tuple[Columns, Columns]) -> tuple[Columns, Columns]:
    """Maps of the columns; cells beyond bounds that were found are not moved: their records weigh less."""
    features, outcome = columns
    return (
        features if task.feature_scaling is not None else _unclamped(features),
        outcome if task.outcome_scaling is not None else _unclamped(outcome),
    )


def _unclamped(columns: Columns) -> Columns:
    low, high = np.full_like(columns.low, -np.inf), np.full_like(columns.high, np.inf)
    return columns._replace(low=low, high=high)


def _weighted_settings(
    task: Task, plan: WeightedPlan, features: Columns, outcome: Columns, geometry: leverage.Geometry
) -> weighted.Settings:
    likelihood = task.likelihood

    def unit(predictor: float, dispersion: float) -> Unit:
        return likelihood.unit(predictor, At(0.0, plan.cut, max(dispersion, 0.0)))

    return weighted.Settings(
        likelihood=likelihood,
        intercept=task.intercept,
        features=features,
        outcome=outcome,
        prior_mean=_prior_mean(task, features),
        prior_precision=_prior(task, geometry.deviation[int(task.intercept) :], features),
        geometry=geometry,
        unit=unit,
        shares=plan.shares,
        cut=plan.cut,
        hidden=plan.hidden,
        steepest=likelihood.steepest(plan.cut),
        guess=task.curvature,
        clip=task.clip,
        noise=_noise_prior() if task.learned_noise else None,
        couple=partial(likelihood.couple, cut=plan.cut) if task.dispersed else None,
        places=task.places,
    )


def stages_of(task: Task, chosen: Plan, *, natural: float | None = None) -> tuple[Stage, ...]:
    """Return what SEP does without privacy, or by the paper's own update: bounds, then the weights."""
    blocks, contribution = _released(task, chosen, natural)
    scaling, maps = _maps_of(task)

    def run(opened: Opened, values: Values, path: Path) -> Result:
        features, outcome = maps(values)
        settings = settings_of(task, features, outcome, chosen.warmup, values.get(SPREAD, 1.0))
        gate = opened(blocks, contribution)
        table = table_map(features, table_outcome(task.likelihood, outcome), intercept=task.intercept)
        if natural is None:
            watch = watch_stable(path, settings, table)
            return _result(task, settings, sep_newton.run(gate, settings, chosen.steps, REST, watch))
        assert isinstance(contribution, natural_update.NaturalContribution)
        watch = partial(path.estimate, table)
        moments = natural_update.run(gate, contribution, settings, natural, task.clip, chosen.steps, watch)
        return Result(*moments, features, outcome, chosen.steps)

    return (*scaling, Stage(FIT, run))


def open_stages(task: Task) -> tuple[Stage, ...]:
    """Return the fit of a task without privacy: SEP, or clipped SEP where a clip is given."""
    if task.by_scores:
        together = bool(task.places)
        return weighted_stages(task, open_weighted_plan(task.steps, more=True, together=together))
    *before, last = stages_of(task, open_plan(task))
    maps = _maps_of(task)[1]

    def never(opened: Opened, values: Values, path: Path) -> Any:
        raise NotImplementedError  # without privacy `own` is what runs

    def spread(arrays: Records, values: Values) -> Array:
        return deviations(maps(values)[0], arrays[0])

    stages = (*before, Stage(SPREAD, never, own=spread), last)
    return (*stages, *_dispersion_stages(task, maps)) if task.dispersed and task.clip is None else stages


def _dispersion_stages(task: Task, maps: Maps) -> tuple[Stage, ...]:
    """Return what learns the dispersion of counts after SEP without privacy, and widens by it."""
    plan = open_weighted_plan(more=True)

    def run(opened: Opened, values: Values, path: Path) -> Result:
        del path
        found: Result = values[FIT]
        settings = _weighted_settings(task, plan, *_open_ended(task, maps(values)), values[MOMENTS])
        extra, dispersion = weighted.dispersed(opened, settings, task.records, found.mean)
        return found._replace(covariance=found.covariance + extra, dispersion=dispersion)

    return _moments_stage(task, maps), Stage(DISPERSION, run)


def deviations(features: Columns, table: Any) -> Array:
    """Standard deviations of scaled columns; one of a column that does not vary."""
    return np.asarray(own_scaling(table).scale / features.scale)


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
        first_rows if task.places else (lambda arrays: arrays[:2]),
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


def settings_of(
    task: Task, features: Columns, outcome: Columns, warmup: int, deviation: Array | float = 1.0
) -> sep_newton.Settings:
    """Prior, start and maps of the stable update; the prior serves the other methods too.

    Parameters
    ----------
    deviation
        Standard deviations of the scaled columns, which the prior is in units of.
    """
    second = np.full(task.features, 0.25)
    if task.intercept:
        second = np.concatenate([[1.0], second])
    known = isinstance(task.likelihood, GaussianLikelihood)
    learned = task.learned_noise
    return sep_newton.Settings(
        prior_mean=_prior_mean(task, features),
        prior_precision=_prior(task, np.broadcast_to(deviation, task.features), features),
        features=features,
        outcome=outcome,
        start=task.records * (1.0 if learned else task.curvature) * second,
        noise=_noise_prior() if learned else None,
        noise_guess=task.curvature if learned else 1.0,
        warmup=warmup,
        cap=math.inf if known or learned else task.cap * math.sqrt(task.records * task.curvature),
    )


def _prior_mean(task: Task, features: Columns) -> Array:
    """Prior mean of scaled weights: zero, but for a coefficient that is known to be one."""
    mean = np.zeros(task.dimension)
    if task.offset is not None:
        mean[int(task.intercept) + task.offset] = np.asarray(features.scale)[task.offset]
        if task.intercept:
            mean[0] = np.asarray(features.centre)[task.offset]
    return mean


def _prior(task: Task, deviation: Array, features: Columns | None = None) -> Array:
    """Prior precision of scaled weights: `prior_scale` a standard deviation of the column."""
    precision = (deviation / task.prior_scale) ** 2
    if task.offset is not None:
        assert features is not None
        precision = precision.copy()
        precision[task.offset] = (KNOWN * float(np.asarray(features.scale)[task.offset])) ** -2
    if task.intercept:
        precision = np.concatenate([[(10.0 * task.prior_scale) ** -2.0], precision])
    return np.diag(precision)


def _noise_prior() -> Gamma:
    return Gamma(np.asarray(0.0), np.asarray(1e-3))  # pyright: ignore[reportArgumentType]


def _result(task: Task, settings: sep_newton.Settings, state: sep_newton.State) -> Result:
    q = sep_newton.posterior(settings, state)
    noise = (float(state.noise.shape), float(state.noise.rate)) if task.learned_noise else None
    extra = sep_newton.noise_covariance(state)
    covariance = np.linalg.inv(np.asarray(q.precision))
    covariance = (covariance + covariance.T) / 2
    prior = np.diag(settings.prior_precision) ** -0.5
    maps = settings.features, settings.outcome
    return Result(state.mean, covariance, extra, noise, *maps, state.step, prior)
