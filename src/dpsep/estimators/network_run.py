r"""A fit of a network, from charge to posterior.

Private SEP: find bounds where none are declared (charged), look at the columns' mean and covariance a few
times (`dpsep.inference.moments`), then releases of summed local factors, each followed by an update
(`dpsep.inference.network`, or `dpsep.inference.network_diagonal` for independent weights). The precision is
not released in the first: it follows from the means and from inputs made up with the released covariance.
Private VI and point estimates release gradients (`dpsep.inference.descent`). Columns that are not declared to
be standardised already are standardised by the released moments.

**Privacy.** A recipe is public; records go to gates and nowhere else. A run has up to three stages: scaling,
moments, fit; the schedule is calibrated as one.
The proof is in docs/proofs/network-factors.md.
"""

import math
from typing import Any, NamedTuple

import jax
import numpy as np
from numpy.typing import NDArray

from dpsep.estimators.columns import map_columns
from dpsep.estimators.network_posterior import FittedNetwork
from dpsep.estimators.network_releases import (
    gradient_method,
    model_of,
    moment_plan,
    release_of,
)
from dpsep.estimators.network_task import Task
from dpsep.inference import descent, moments, network, network_diagonal
from dpsep.inference.gate_protocol import Summed
from dpsep.inference.release_trace import Path
from dpsep.models.glm import Columns
from dpsep.models.network_factors import flatten
from dpsep.privacy.mechanism import Relation
from dpsep.privacy.sampling import Sampling
from dpsep.recipe import Opened, Recipe, Stage, Values, public_of, source_of
from dpsep.theory.networks import diagonal_plan, network_schedule, sep_plan

Array = NDArray[np.float64]
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
    linear, left
        Weights of a linear model of the scaled outcome, and the variance that it leaves.
    """

    features: Columns
    outcome: Columns
    mean: Array
    half: Array
    linear: Any = 0.0
    left: float = 1.0

    @property
    def turn(self) -> Array:
        """Principal axes of the scaled features."""
        return np.linalg.eigh(self.half @ self.half.T)[1]


def recipe_of(
    task: Task,
    *,
    epsilon: float,
    delta: float,
    relation: Relation,
    sampling: Sampling,
    noise_aware: bool = True,
) -> Recipe:
    """Return the private fit of a task: bounds where none are declared, moments, the weights."""
    release = release_of(task)
    schedule = network_schedule(
        task.records,
        epsilon,
        delta,
        relation,
        sampling,
        scaled=task.feature_scaling is None or task.outcome_scaling is None,
        moments=moment_plan(task),
        steps=release.steps,
    )
    scaling, maps = map_columns(task.feature_scaling, task.outcome_scaling, task.features)
    looks = moment_plan(task)[1]

    def moments_of(opened: Opened, values: Values, path: Path) -> Inputs:
        del path
        features, outcome = maps(values)
        target = task.outcome == "regression"
        found = moments.run(opened, features, outcome, task.columns, looks, target=target)
        return inputs_of(task, features, outcome, found, moments.ridge_of(found.edge, looks))

    def run(opened: Opened, values: Values, path: Path) -> FittedNetwork:
        del path
        inputs = values.get("moments")
        if inputs is None:
            inputs = Inputs(*maps(values), np.zeros(task.features), np.eye(task.features))
        gate = opened(release.blocks, release.contribution)
        return fit_through(gate, task, inputs, release.steps, noise_aware)

    stages = (*scaling, *([Stage("moments", moments_of)] if looks else []), Stage("fit", run))
    source = "declared standardisation" if task.standard else source_of(stages)
    shapes = ((task.records, task.features), (task.records,))
    public = public_of(task, blocks=release.blocks, looks=looks, plan=repr(sep_plan(task)))
    return Recipe(schedule, delta, stages, shapes, public, source)


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
    shape = network.Shape(task.widths, task.activation, task.outcome, task.direct, learn_prior=True)
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
        linear=inputs.linear,
        first_noise=plan.first_noise(inputs.left) if task.direct else 1.0,
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
        direct=task.direct,
    )


def inputs_of(
    task: Task, features: Columns, outcome: Columns, found: moments.Moments, ridge: float
) -> Inputs:
    """Standardise columns by their moments, unless they are declared to be so already."""
    d = task.features
    deviation = np.maximum(np.sqrt(np.sum(found.half**2, axis=1)), LEAST_SCALE)
    if task.standard:
        deviation = np.ones_like(deviation)
        mean = found.mean[:d]
    else:
        features = _shifted(features, found.mean[:d], deviation[:d])
        mean = np.zeros(d)
    half = found.half / deviation[:, None]
    if task.outcome == "classification":
        return Inputs(features, outcome, mean, half[:d, :d])
    if not task.standard:
        outcome = _shifted(outcome, found.mean[d], deviation[d])
    linear, left = moments.regression(half, ridge)
    return Inputs(features, outcome, mean, half[:d, :d], linear, left)


def _shifted(columns: Columns, mean: Any, deviation: Any) -> Columns:
    centre = np.asarray(columns.centre) + np.asarray(columns.scale) * mean
    return columns._replace(centre=centre, scale=np.asarray(columns.scale) * deviation)  # pyright: ignore
