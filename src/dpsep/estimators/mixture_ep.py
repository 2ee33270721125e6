"""Mixtures by EP and ADF, without privacy, for known weights and deviations: here to be compared with.

Columns are divided by the known deviations, so that components have variance one. EP starts from the local
factors at stochastic EP's solution: from equal priors its sites could never tell components apart.
"""

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from dpsep.estimators.mixture_run import Result, Task, settings_of
from dpsep.families import GaussianSet
from dpsep.inference import adf, ep
from dpsep.models.glm import Columns
from dpsep.models.mixture import KnownMixture

Array = NDArray[np.float64]
TOLERANCE = 1e-9
_sweep = jax.jit(ep.step, static_argnums=0)


def fit_ep(task: Task, x: Array, start: Result) -> Result:
    """Sweep EP over the records from stochastic EP's solution until it stands still."""
    with jax.enable_x64(True):
        model, prior, records, unit = _setting(task, x, start.columns)
        q = GaussianSet.from_moments(
            jnp.asarray(start.mean / unit), jnp.asarray(start.covariance / unit[:, None] / unit)
        )
        factor = jax.tree.map(lambda new, old: (new - old) / task.records, q, prior)
        cavity = jax.tree.map(jnp.subtract, q, factor)
        sites = jax.vmap(lambda record: model.local_factor(cavity, record))(records)
        posterior = jax.tree.map(lambda old, parts: old + jnp.sum(parts, 0), prior, sites)
        state = ep.State(posterior, sites, jnp.asarray(jnp.inf), jnp.asarray(0))
        for _ in range(task.steps or 100):
            state, _ = _sweep(model, prior, state, records)
            if float(state.change) <= TOLERANCE:
                break
        return _result(task, state.posterior, start.columns, unit, int(state.sweeps))


def fit_adf(task: Task, x: Array) -> Result:
    """Filter the records once, in their order, from priors that tell the components apart."""
    scaling = task.scaling
    if scaling is None:
        far = np.full(x.shape[1], np.inf)
        scaling = Columns(-far, far, x.mean(axis=0), np.maximum(x.std(axis=0), 1e-12))
    columns = settings_of(task, scaling).columns
    with jax.enable_x64(True):
        model, prior, records, unit = _setting(task, x, columns)
        return _result(task, adf.run(model, prior, records)[0].posterior, columns, unit, 1)


def _setting(task: Task, x: Array, columns: Columns) -> tuple[KnownMixture, GaussianSet, jax.Array, Array]:
    """Model, prior and records with unit noise, and the unit, in scaled units, that they are counted in."""
    assert task.noise is not None
    assert task.weights is not None
    settings = settings_of(task, columns)
    unit = task.noise / columns.scale
    precision = np.diag(settings.prior_precision * unit**2)
    eta = settings.prior_mean / unit * np.diagonal(precision)
    prior = GaussianSet(jnp.asarray(eta), jnp.broadcast_to(precision, (task.components, *precision.shape)))
    model = KnownMixture(tuple(float(weight) for weight in task.weights), 1.0)
    return model, prior, columns.apply(jnp.asarray(x)) / unit, unit


def _result(task: Task, q: GaussianSet, columns: Columns, unit: Array, steps: int) -> Result:
    assert task.noise is not None
    assert task.weights is not None
    covariance = np.asarray(q.covariance) * unit[:, None] * unit
    variance = np.broadcast_to(unit**2, (task.components, task.features)).copy()
    counts = task.records * task.weights
    mean = np.asarray(q.mean) * unit
    zero = np.zeros_like(covariance)
    none = np.zeros(task.components)
    return Result(mean, covariance, zero, variance, task.weights, counts, 0.0, none, columns, steps, 0.0)
