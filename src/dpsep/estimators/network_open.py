"""Fits of networks without privacy: SEP and clipped SEP, EP, ADF, VI, point estimates.

Nothing here is private: records are read as they are, columns are standardised by themselves, and what these
functions return must never be reported beside an epsilon.
"""

import math
from typing import Any

import jax
import numpy as np
from numpy.typing import NDArray

from dpsep.estimators.columns import own_scaling, single
from dpsep.estimators.network_posterior import FittedNetwork
from dpsep.estimators.network_releases import gradient_method, gradient_release, model_of
from dpsep.estimators.network_run import Inputs, fit_gradients, fit_through, fitted
from dpsep.estimators.network_task import Task
from dpsep.families import DiagonalGaussian
from dpsep.families.columns import Columns
from dpsep.inference import descent, ep, moments, network_diagonal, pbp
from dpsep.models.concentrated_noise import ConcentratedNoise
from dpsep.models.network_factors import NetworkFactors
from dpsep.models.network_model import Network, NetworkRegression
from dpsep.models.probit import ProbitLikelihood
from dpsep.privacy.grid import Block
from dpsep.privacy.open_batches import OpenBatches
from dpsep.privacy.open_gate import OpenGate
from dpsep.theory.networks import default_steps, gradient_clip, open_plan

Array = NDArray[np.float64]
PASSES = 40
"""Passes of filtering and sweeps of EP: as many as the paper has."""


def fit_open(task: Task, records: tuple[Array, Array], seed: int) -> FittedNetwork:
    """Fit without privacy; clipped where a clip is given."""
    # Not the stages of a private fit: moments are the columns' own, and all methods but one read rows apart.
    inputs = own_inputs(task, records)
    if task.method == "adf":
        return _fit_adf(task, inputs, records, seed)
    if task.method == "ep":
        return _fit_ep(task, inputs, records, seed)
    if task.method in ("vi", "point"):
        return _fit_gradients(task, inputs, records, seed)
    if task.covariance == "kronecker":
        return _fit_kronecker(task, inputs, records, seed)
    return _fit_diagonal(task, inputs, records, seed)


def own_inputs(task: Task, records: tuple[Array, Array]) -> Inputs:
    """Maps of the columns, declared or the data's own, and the features' moments."""
    x, y = records
    features = task.feature_scaling if task.feature_scaling is not None else own_scaling(x)
    outcome = task.outcome_scaling if task.outcome_scaling is not None else own_scaling(y)
    if not task.standard:
        # Bounds scale to [-1, 1]; standardise what they leave.
        features = _standard(features, x)
        if task.outcome == "regression":
            outcome = _standard(outcome, y[:, None])
    scaled = (np.clip(x, features.low, features.high) - features.centre) / features.scale
    mean = scaled.mean(axis=0)
    values, vectors = np.linalg.eigh(np.cov(scaled.T, bias=True).reshape(task.features, task.features))
    half = vectors * np.sqrt(np.maximum(values, 1e-12))
    if not task.direct or task.outcome == "classification":
        return Inputs(features, single(outcome), mean, half)
    target = (np.clip(y, outcome.low[0], outcome.high[0]) - outcome.centre[0]) / outcome.scale[0]
    values, vectors = np.linalg.eigh(np.cov(np.column_stack([scaled, target]).T, bias=True))
    linear, left = moments.regression(vectors * np.sqrt(np.maximum(values, 0.0)), moments.LEAST_RIDGE)
    return Inputs(features, single(outcome), mean, half, linear, left)


def _fit_diagonal(task: Task, inputs: Inputs, records: tuple[Array, Array], seed: int) -> FittedNetwork:
    plan = open_plan(task)
    model = model_of(task)
    with jax.enable_x64(True):
        settings = network_diagonal.Settings(
            inputs.features,
            inputs.outcome,
            inputs.turn,
            float(task.records),
            float(plan.steps(task.records)),
            rate=plan.rate,
            clip=math.inf if task.clip is None else task.clip,
        )
        state = network_diagonal.run_open(model, settings, records, plan.batch, seed)
    found = network_diagonal.finish(settings, state, learned_noise=task.outcome == "regression")
    return fitted(task, inputs, "diagonal", found.mean, found.variance, turn=inputs.turn, noise=found.noise)


def _fit_kronecker(task: Task, inputs: Inputs, records: tuple[Array, Array], seed: int) -> FittedNetwork:
    regression = task.outcome == "regression"
    likelihood = ConcentratedNoise() if regression else ProbitLikelihood()
    clip = math.inf if task.clip is None else 1.0
    blocks = [Block("mean", task.size, clip)] + ([Block("noise", 1, math.inf)] if regression else [])
    gate = OpenGate(records, blocks, NetworkFactors(likelihood, task.activation))
    wanted = task if task.clip is not None else task._replace(clip=math.inf)
    steps = task.steps or default_steps(task.records)
    return fit_through(gate, wanted, inputs, steps, noise_aware=False, seed=seed)


def _fit_gradients(task: Task, inputs: Inputs, records: tuple[Array, Array], seed: int) -> FittedNetwork:
    defaults = descent.OPEN_DEFAULTS[gradient_method(task)]
    clip = math.inf
    if task.clip is not None:
        clip = gradient_clip(task, descent.PRIVATE_DEFAULTS[gradient_method(task)].clip)
    release = gradient_release(task, defaults, clip)
    assert defaults.batch is not None
    gate = OpenBatches(records, release.blocks, release.contribution, defaults.batch, seed)
    return fit_gradients(gate, task, inputs, defaults, release.steps * gate.steps_per_pass, seed)


def _fit_adf(task: Task, inputs: Inputs, records: tuple[Array, Array], seed: int) -> FittedNetwork:
    model = model_of(task)
    with jax.enable_x64(True):
        state, _ = pbp.run(model, _scaled(inputs, records), task.steps or PASSES, seed)
        return _from_posterior(task, inputs, model, state.posterior)


def _fit_ep(task: Task, inputs: Inputs, records: tuple[Array, Array], seed: int) -> FittedNetwork:
    model = model_of(task)
    with jax.enable_x64(True):
        prior, means = model.start(seed)  # pyright: ignore[reportAttributeAccessIssue]
        weights, rest = model.parts(prior)
        start = model.joined(DiagonalGaussian(means * weights.precision, weights.precision), rest)
        state = ep.run(
            model,
            model.layered(prior),
            _scaled(inputs, records),
            max_iter=task.steps or PASSES,
            start=model.layered(start),
        )
        return _from_posterior(task, inputs, model, model.flat(state.posterior))


def _from_posterior(task: Task, inputs: Inputs, model: Network, posterior: Any) -> FittedNetwork:
    weights, rest = model.parts(posterior)
    noise = None
    if isinstance(model, NetworkRegression):
        noise = (float(rest.shape), float(rest.rate))
    return fitted(
        task,
        inputs,
        "diagonal",
        np.asarray(weights.mean, np.float64),
        np.asarray(weights.variance, np.float64),
        noise=noise,
    )


def _scaled(inputs: Inputs, records: tuple[Array, Array]) -> tuple[Any, Any]:
    return inputs.features.apply(records[0]), inputs.outcome.apply(records[1])  # pyright: ignore


def _standard(scaling: Columns, values: Array) -> Columns:
    clamped = np.clip(values, scaling.low, scaling.high)
    own = own_scaling(clamped)
    return own._replace(low=scaling.low, high=scaling.high)
