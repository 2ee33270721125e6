r"""A fit of a network, from charge to posterior.

Private SEP: find bounds where none are declared (charged), release the columns' mean and covariance a few
times (`dpsep.inference.moments`), then releases of summed local factors, each followed by an update
(`dpsep.inference.network`, or `dpsep.inference.network_diagonal` for independent weights). The precision is
not released in the first: it follows from the means and from inputs made up with the released covariance.
Private VI and point estimates release gradients (`dpsep.inference.descent`). Columns that are not declared to
be standardised already are standardised by the released moments.

**Privacy.** Everything here but `records()` is public; records go to gates and nowhere else. A run has up to
three parts: scaling, moments, fit; the schedule is calibrated as one.
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np
from numpy.typing import NDArray

from dpsep.estimators.charged import Run, Spend, charged_run, fingerprint_of, private_scaling_of
from dpsep.estimators.network_plan import (
    FIRST_SHARE,
    MOMENT_SHARE,
    NOISE_CLIP,
    STANDARD_SHARE,
    STANDARD_STEPS,
    diagonal_plan,
    gradient_clip,
    moment_steps,
    noise_share,
    sep_plan,
)
from dpsep.estimators.network_posterior import FittedNetwork
from dpsep.estimators.network_task import Task
from dpsep.estimators.plan import SCALING_SHARE
from dpsep.estimators.resume import KeptGate
from dpsep.inference import descent, moments, network, network_diagonal
from dpsep.inference.summed import Summed
from dpsep.models.concentrated_noise import ConcentratedNoise
from dpsep.models.glm import Columns
from dpsep.models.network_diagonal import DiagonalFactors
from dpsep.models.network_factors import NetworkFactors, flatten
from dpsep.models.network_gradients import PointGradient, VariationalGradient
from dpsep.models.network_model import Network, NetworkClassification, NetworkRegression
from dpsep.models.probit import ProbitLikelihood
from dpsep.privacy import scaling as private_scaling
from dpsep.privacy.accounting import calibrate_schedule
from dpsep.privacy.checkpoint import Checkpoint
from dpsep.privacy.gate import Gate, Records, check_blocks
from dpsep.privacy.grid import Block, Contribution
from dpsep.privacy.ledger import Ledger
from dpsep.privacy.mechanism import Mechanism, Relation, Schedule
from dpsep.privacy.sampling import FullBatch, PoissonSampling, Sampling
from dpsep.privacy.scaling import Scaling

Array = NDArray[np.float64]
MOST_NUMBERS, LEAST_RATE = 2e8, 0.01
"""Records times weights that a release reads by default; larger tables are sampled, at this rate at least."""
LEAST_SCALE = 1e-4
"""Smallest standard deviation that a column is divided by, in units of its bounds: less is a constant."""


class Inputs(NamedTuple):
    """How columns are scaled, and the law of the scaled features.

    Attributes
    ----------
    features, outcome
        Maps of the columns.
    mean, half
        Mean of the scaled features, and a square root of their covariance.
    """

    features: Columns
    outcome: Columns
    mean: Array
    half: Array

    @property
    def turn(self) -> Array:
        """Principal axes of the scaled features."""
        return np.linalg.eigh(self.half @ self.half.T)[1]


class Release(NamedTuple):
    """The releases of a fit: how many, their blocks, what each record adds."""

    steps: int
    blocks: list[Block]
    contribution: Contribution


def sampling_of(task: Task, wanted: Sampling | None, relation: Relation) -> Sampling:
    """Sampling of the fit's releases: gradients read a few records, factors as many as is feasible."""
    if wanted is not None:
        return wanted
    if task.method == "sep":
        rate = MOST_NUMBERS / (task.records * task.size)
        # Replace-one has no tight accountant of sampled batches: what sampling saves, it would cost.
        if rate >= 1.0 or relation == "replace-one":
            return FullBatch()
        return PoissonSampling(max(rate, LEAST_RATE))
    rate = descent.PRIVATE_DEFAULTS[gradient_method(task)].rate
    assert rate is not None
    return PoissonSampling(rate)


def gradient_method(task: Task) -> descent.Method:
    """Name of the method among the gradients'."""
    return "variational" if task.method == "vi" else "point"


def release_of(task: Task) -> Release:
    """Blocks and contribution of a private fit."""
    regression = task.outcome == "regression"
    if task.method != "sep":
        return _gradient_release(task, descent.PRIVATE_DEFAULTS[gradient_method(task)])
    share = noise_share(task.records) if regression else 0.0
    noise = [Block("noise", 2, NOISE_CLIP, share)] if regression else []
    rest = 1.0 - share
    if task.covariance == "kronecker":
        likelihood = ConcentratedNoise() if regression else ProbitLikelihood()
        factors = NetworkFactors(likelihood, task.activation)
        return Release(sep_plan(task).steps, [Block("mean", task.size, 1.0, rest), *noise], factors)
    plan = diagonal_plan(task)
    part = plan.mean_share / (plan.mean_share + plan.precision_share)
    blocks = [
        Block("mean", task.size, plan.mean_clip, rest * part),
        Block("precision", task.size, plan.precision_clip, rest * (1.0 - part)),
    ]
    return Release(plan.steps, [*blocks, *noise], DiagonalFactors(model_of(task)))


def model_of(task: Task) -> Network:
    """The network as a model for records."""
    if task.outcome == "regression":
        return NetworkRegression(task.widths, task.activation, ConcentratedNoise())
    return NetworkClassification(task.widths, task.activation)


def design_schedule(
    task: Task, epsilon: float, delta: float, relation: Relation, sampling: Sampling
) -> Schedule:
    """Calibrate the releases: scaling where bounds are missing, moments, the fit."""
    left = 1.0
    parts: list[Mechanism] = []

    # Only ratios matter here. A release of a sampled batch counts by the square of its rate, about.
    def part(kind: Sampling, releases: int, share: float) -> Mechanism:
        rate = kind.expected_batch(task.records) / task.records
        return Mechanism(kind, relation, releases, rate * math.sqrt(releases / share), task.records)

    if task.feature_scaling is None or task.outcome_scaling is None:
        parts.append(part(FullBatch(), private_scaling.RELEASES, SCALING_SHARE))
        left -= SCALING_SHARE
    share, releases = moment_plan(task)
    if releases:
        parts.append(part(FullBatch(), releases, left * share))
        left *= 1.0 - share
    parts.append(part(sampling, release_of(task).steps, left))
    return calibrate_schedule(epsilon, delta, parts)


def moment_plan(task: Task) -> tuple[float, int]:
    """Share of the budget and number of the releases of moments; none where nothing needs them."""
    if task.method == "sep":
        return MOMENT_SHARE, moment_steps(task.records)
    return (0.0, 0) if task.standard else (STANDARD_SHARE, STANDARD_STEPS)


def moment_blocks(task: Task) -> list[Block]:
    """Blocks of a release of moments."""
    first, second = moments.clips(task.columns)
    return [
        Block("first", task.columns, first, FIRST_SHARE),
        Block("second", task.columns, second, 1.0 - FIRST_SHARE, "outer"),
    ]


def fit_private(
    task: Task,
    records: Callable[[], Records],
    *,
    epsilon: float,
    delta: float,
    relation: Relation,
    sampling: Sampling,
    ledger: Ledger | None,
    checkpoint: Checkpoint | None,
    seed: int | None = None,
    noise_aware: bool = True,
    on_step: Callable[[int, int], None] | None = None,
) -> tuple[FittedNetwork, Spend]:
    """Charge, then fit; nothing is read before the charge is durable."""
    schedule = design_schedule(task, epsilon, delta, relation, sampling)
    release = release_of(task)
    check_blocks(schedule.parts[-1], release.blocks)
    if moment_plan(task)[1]:
        check_blocks(schedule.parts[-2], moment_blocks(task))

    def work(run: Run) -> tuple[FittedNetwork, str]:
        arrays = records()
        features, outcome, source = _scalings(task, arrays, run)
        inputs = _moments(task, arrays, run, features, outcome)
        gate = Gate(
            arrays,
            run.schedule.parts[-1],
            release.blocks,
            release.contribution,
            run.permit,
            stream=run.stream,
        )
        kept = KeptGate(gate, run.saved, on_step)
        return fit_through(kept, task, inputs, release.steps, noise_aware), source

    early = ["scaling"] if task.feature_scaling is None or task.outcome_scaling is None else []
    early += ["moments"] if moment_plan(task)[1] else []
    return charged_run(
        work,
        schedule,
        delta,
        _fingerprint(task, schedule, delta),
        ledger=ledger,
        checkpoint=checkpoint,
        seed=seed,
        early=early,
    )


def fit_through(
    gate: Summed, task: Task, inputs: Inputs, steps: int, noise_aware: bool, seed: int = 0
) -> FittedNetwork:
    """Fit from sums that a gate gives, private or open. The seed is of the first means, which are public."""
    if task.method != "sep":
        defaults = descent.PRIVATE_DEFAULTS[gradient_method(task)]
        return fit_gradients(gate, task, inputs, defaults, steps, seed)
    if task.covariance == "diagonal":
        return _fit_diagonal(gate, task, inputs, steps, noise_aware, seed)
    plan = sep_plan(task)
    shape = network.Shape(task.widths, task.activation, task.outcome, learn_prior=True)
    settings = network.Settings(
        inputs.features,
        inputs.outcome,
        inputs.mean,
        inputs.half,
        float(task.records),
        float(steps),
        damping=plan.damping,
        rate=plan.rate,
        last=plan.last,
        cap=plan.cap if gate.deviations["mean"] > 0 else 1.0,  # short steps are for few and noisy records
        tail=plan.tail,
        start=plan.start,
        clip=plan.clip if task.clip is None or math.isfinite(task.clip) else math.inf,
    )
    found = network.run(gate, shape, settings, steps, seed)
    with jax.enable_x64(True):
        return fitted(
            task,
            inputs,
            "kronecker",
            np.asarray(flatten(found.weights)),
            1.0 / np.asarray(flatten(found.precision)),
            noise_variance=np.asarray(flatten(found.blur)),
            left=tuple(np.asarray(basis.left) for basis in found.bases),
            right=tuple(np.asarray(basis.right) for basis in found.bases),
            noise=found.noise,
            noise_aware=noise_aware,
        )


def fit_gradients(
    gate: Summed, task: Task, inputs: Inputs, defaults: descent.Defaults, steps: int, seed: int
) -> FittedNetwork:
    """VI, or a point estimate, from sums of gradients."""
    method = gradient_method(task)
    outcome = inputs.outcome
    if task.outcome == "classification":
        # Labels -1 and +1 are 0 and 1 to the gradients.
        outcome = outcome._replace(centre=np.float64(-1.0), scale=np.float64(2.0))  # pyright: ignore
    settings = descent.Settings(
        inputs.features,
        outcome,
        method,
        steps,
        defaults.learning_rate,
        beta=defaults.beta,
        samples=defaults.samples,
        learn_noise=task.outcome == "regression",
        seed=seed,
    )
    first = np.random.default_rng(seed).standard_normal(task.size) * defaults.mean_scale
    state = descent.run(gate, settings, descent.init(settings, first, defaults.log_deviation))
    found = descent.estimate(gate, settings, state)
    noise = (found.shape, found.rate) if task.outcome == "regression" else None
    kind = "diagonal" if method == "variational" else "point"
    return fitted(task, inputs, kind, found.mean, found.deviation**2, noise=noise)


def _gradient_release(task: Task, defaults: descent.Defaults) -> Release:
    kind = VariationalGradient if task.method == "vi" else PointGradient
    contribution = kind(task.widths, task.activation, task.outcome)
    clip = gradient_clip(task, defaults.clip)
    blocks = descent.blocks_of(contribution.sizes, clip, defaults.noise_clip, defaults.noise_share)
    return Release(task.steps or defaults.steps, blocks, contribution)


def _fit_diagonal(
    gate: Summed, task: Task, inputs: Inputs, steps: int, noise_aware: bool, seed: int
) -> FittedNetwork:
    settings = network_diagonal.Settings(
        inputs.features,
        inputs.outcome,
        inputs.turn,
        float(task.records),
        float(steps),
        rate=diagonal_plan(task).rate,
        tail=0.2,
    )
    state = network_diagonal.run(gate, model_of(task), settings, steps, seed)
    found = network_diagonal.finish(settings, state, learned_noise=task.outcome == "regression")
    return fitted(
        task,
        inputs,
        "diagonal",
        found.mean,
        found.variance,
        noise_variance=found.blur,
        turn=inputs.turn,
        noise=found.noise,
        noise_aware=noise_aware,
    )


def fitted(
    task: Task,
    inputs: Inputs,
    kind: str,
    mean: Array,
    variance: Array,
    *,
    noise_variance: Array | None = None,
    left: tuple[Array, ...] = (),
    right: tuple[Array, ...] = (),
    turn: Array | None = None,
    noise: tuple[float, float] | None = None,
    noise_aware: bool = True,
) -> FittedNetwork:
    """Put together what was fitted, by `FittedNetwork`'s names; what is left out is absent."""
    features, outcome = inputs.features, inputs.outcome
    return FittedNetwork(
        kind=kind,
        widths=task.widths,
        activation=task.activation,
        mean=mean,
        left=left,
        right=right,
        variance=variance,
        noise_variance=np.zeros_like(mean) if noise_variance is None else noise_variance,
        turn=np.eye(task.features) if turn is None else turn,
        low=np.asarray(features.low),
        high=np.asarray(features.high),
        centre=np.asarray(features.centre),
        scale=np.asarray(features.scale),
        target_centre=float(outcome.centre),
        target_scale=float(outcome.scale),
        noise_shape=None if noise is None else noise[0],
        noise_rate=None if noise is None else noise[1],
        noise_aware=noise_aware,
    )


def _scalings(task: Task, records: Records, run: Run) -> tuple[Columns, Columns, str]:
    """Maps of the columns by declared or released bounds."""
    features, outcome = task.feature_scaling, task.outcome_scaling
    if features is not None and outcome is not None:
        source = "declared standardisation" if task.standard else "declared bounds"
        return columns_of(features), column_of(outcome), source
    wanted = [part for part, known in zip(records, (features, outcome), strict=True) if known is None]
    found = private_scaling_of(tuple(wanted), run)
    if features is None:
        features = Scaling(*(part[: task.features] for part in found))
    if outcome is None:
        outcome = Scaling(*(part[-1:] for part in found))
    return columns_of(features), column_of(outcome), "private histograms, inside epsilon"


def _moments(task: Task, records: Records, run: Run, features: Columns, outcome: Columns) -> Inputs:
    """Release the moments of the columns, or take those kept, and standardise by them."""
    if not moment_plan(task)[1]:
        return Inputs(features, outcome, np.zeros(task.features), np.eye(task.features))
    kept = run.saved.early("moments")
    if kept is None:
        contribution = moments.MomentContribution(task.outcome == "regression")
        gate = Gate(
            records, run.schedule.parts[-2], moment_blocks(task), contribution, run.permit, stream=run.stream
        )
        found = moments.run(gate, features, outcome, task.columns, moment_plan(task)[1])
        kept = np.concatenate([found.mean[None], found.half])
        run.saved.keep_early("moments", kept)
    return inputs_of(task, features, outcome, moments.Moments(kept[0], kept[1:]))


def inputs_of(task: Task, features: Columns, outcome: Columns, found: moments.Moments) -> Inputs:
    """Standardise columns by their moments, unless they are declared to be so already."""
    d = task.features
    if task.standard:
        return Inputs(features, outcome, found.mean[:d], found.half[:d, :d])
    deviation = np.maximum(np.sqrt(np.sum(found.half**2, axis=1)), LEAST_SCALE)
    features = _shifted(features, found.mean[:d], deviation[:d])
    if task.outcome == "regression":
        outcome = _shifted(outcome, found.mean[d], deviation[d])
    return Inputs(features, outcome, np.zeros(d), found.half[:d, :d] / deviation[:d, None])


def _shifted(columns: Columns, mean: Any, deviation: Any) -> Columns:
    centre = np.asarray(columns.centre) + np.asarray(columns.scale) * mean
    return columns._replace(centre=centre, scale=np.asarray(columns.scale) * deviation)  # pyright: ignore


def columns_of(scaling: Scaling) -> Columns:
    """Map of several columns."""
    return Columns(scaling.low, scaling.high, scaling.centre, scaling.scale)  # pyright: ignore[reportArgumentType]


def column_of(scaling: Scaling) -> Columns:
    """Map of one column."""
    low, high, centre, scale = (
        np.float64(part[0]) for part in (scaling.low, scaling.high, scaling.centre, scaling.scale)
    )
    return Columns(low, high, centre, scale)  # pyright: ignore[reportArgumentType]


def _fingerprint(task: Task, schedule: Schedule, delta: float) -> str:
    scalings = (task.feature_scaling, task.outcome_scaling)
    settings = {
        "scalings": [None if one is None else [part.tolist() for part in one] for one in scalings],
        "task": [repr(part) for part in task._replace(feature_scaling=None, outcome_scaling=None)],
        "blocks": [repr(block) for block in (*release_of(task).blocks, *moment_blocks(task))],
        "plan": repr(sep_plan(task)),
    }
    return fingerprint_of(schedule, delta, settings)
