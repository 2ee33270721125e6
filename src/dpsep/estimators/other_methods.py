"""Fits without privacy by the other algorithms: EP, ADF, and the paper's own SEP update.

They are here to be compared with. All work on the same scaled columns and the same prior as the default fit.
"""

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from dpsep.estimators.run import Result, Task, columns_of, deviations, settings_of
from dpsep.families import Gamma, Gaussian
from dpsep.inference import adf, ep, sep
from dpsep.models import GLM, LearnedNoise
from dpsep.models.linear import WeightsAndNoise

Array = NDArray[np.float64]


def fit(
    task: Task, records: tuple[Array, Array], *, method: str, natural: float | None, seed: int | None
) -> Result:
    """Fit by `method`; `natural` is the paper's gamma where its update is asked for.

    Records are visited in order by EP and ADF, and in a fresh random order each pass by SEP.
    """
    features, outcome = columns_of(task, records)
    settings = settings_of(task, features, outcome, 0, deviations(features, records[0]))
    with jax.enable_x64(True):
        x = features.apply(jnp.asarray(records[0]))
        if task.intercept:
            x = jnp.concatenate([jnp.ones((len(x), 1)), x], axis=1)
        y = outcome.apply(jnp.asarray(records[1]))
        weights = Gaussian(jnp.zeros(task.dimension), jnp.asarray(settings.prior_precision))
        if task.learned_noise:
            model, prior = LearnedNoise(), WeightsAndNoise(weights, _noise_prior())
        else:
            model, prior = GLM(task.likelihood), weights
        if method == "adf":
            q, steps = adf.run(model, prior, (x, y))[0].posterior, 1
        elif method == "ep":
            state = ep.run(model, prior, (x, y), max_iter=task.steps or 100)
            q, steps = state.posterior, int(state.sweeps)
        else:
            q, steps = _natural_sep(task, model, prior, (x, y), natural, seed)
        noise = (float(q.noise.shape), float(q.noise.rate)) if task.learned_noise else None
        q = q.weights if task.learned_noise else q
        mean, covariance = np.asarray(q.mean), np.asarray(q.covariance)
    return Result(mean, covariance, np.zeros_like(covariance), noise, features, outcome, steps)


def _noise_prior() -> Gamma:
    return Gamma(jnp.asarray(0.0), jnp.asarray(1e-3))


def _natural_sep(task: Task, model, prior, records, gamma: float | None, seed: int | None):
    passes = task.steps or 20
    generator = np.random.default_rng(seed)
    order = np.concatenate([generator.permutation(task.records) for _ in range(passes)])
    clip = np.inf if task.clip is None else task.clip
    settings = sep.Settings(prior, task.records, gamma=1.0 if gamma is None else gamma, clip=clip)
    state = sep.run(model, settings, records, order)
    return sep.posterior(settings, state), passes
