"""Mixed models with groups as units: their arrays, and the run in which random effects are integrated out.

**Privacy.** As `dpsep.estimators.units`. The proof is in docs/proofs/groups.md.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from dpsep.estimators.multi_predictor_run import LinkedResult, LinkedTask
from dpsep.estimators.posterior import table_map
from dpsep.estimators.units import first_rows
from dpsep.inference.release_trace import Table
from dpsep.inference.variances import PRIOR_MEAN, PRIOR_SD
from dpsep.models.base import Likelihood
from dpsep.models.glm import Columns
from dpsep.models.mixed import Effects, GroupModel

Array = NDArray[np.float64]

_TYPICAL_ROWS = 5
_STEP = 0.7


class Components(NamedTuple):
    """Posterior of logarithms of standard deviations, in scaled units: random effects, then noise.

    Attributes
    ----------
    mean, covariance, noise_covariance
        Gaussian moments; the covariance without the noise of privacy.
    correlation
        Of the random effects of one group, at the posterior mean.
    """

    mean: Array
    covariance: Array
    noise_covariance: Array
    correlation: Array


def group_task(
    effects: Effects,
    likelihood: Likelihood | None,
    *,
    groups: int,
    rows: int,
    features: Columns | None,
    outcome: Columns | None,
    prior_scale: float,
    clip: float | None,
    steps: int | None,
    reach: float,
    coding: str,
    unit: str = "group",
) -> LinkedTask:
    """Describe a fit with groups as units."""
    model = GroupModel(effects, likelihood)
    column = np.full(effects.features, 0.25)
    second = np.concatenate([[1.0], column]) if effects.intercept else column
    prior = np.full(effects.fixed, prior_scale)
    if effects.intercept:
        prior[0] *= 10.0
    ratios = effects.components - effects.random
    noise = int(likelihood is None)
    curvature = 4.0 if likelihood is None else likelihood.curvature_guess
    typical = min(rows, _TYPICAL_ROWS)
    return LinkedTask(
        model=model,
        records=groups,
        prior_mean=np.concatenate(
            [
                np.zeros(effects.fixed),
                np.full(effects.random, PRIOR_MEAN),
                np.zeros(ratios),
                [PRIOR_MEAN] * noise,
            ]
        ),
        prior_sd=np.concatenate([prior, np.full(effects.components + noise, PRIOR_SD)]),
        information=np.concatenate(
            [typical * curvature * second, np.full(effects.components, 0.5), [float(typical)] * noise]
        ),
        feature_scaling=features,
        outcome_scaling=outcome,
        clip=clip,
        steps=steps,
        coding=coding,
        shapes=((rows, effects.features), (rows,)),
        unit=unit,
        scaling_records=first_rows,
        reach=reach,
        parts=np.concatenate(
            [
                np.full(effects.fixed - effects.features, 1),
                np.zeros(effects.features, np.int64),
                np.full(effects.components + noise, 1 + int(effects.intercept)),
            ]
        ),
        hindsight=True,
        keep_zero=not effects.intercept,
        step=np.concatenate([np.full(effects.fixed, np.inf), np.full(effects.components + noise, _STEP)]),
        table=lambda features, outcome: _fixed_effects(effects, noise, features, outcome),
    )


def _fixed_effects(effects: Effects, noise: int, features: Columns, outcome: Columns) -> Table:
    """Map all weights to the fixed effects in the units of the table."""
    matrix, shift = table_map(features, outcome, intercept=effects.intercept)
    return Table(np.pad(matrix, ((0, 0), (0, effects.components + noise))), shift)


def split(result: LinkedResult, effects: Effects) -> tuple[tuple[Array, Array, Array], Components]:
    """Return moments of the fixed effects, and the components of variance."""
    fixed, end = effects.fixed, effects.fixed + effects.random
    own = [*range(fixed, end), *range(fixed + effects.components, len(result.mean))]
    chosen = np.ix_(own, own)
    with jax.enable_x64(True):
        root = np.asarray(effects.root(jnp.asarray(result.mean[fixed : fixed + effects.components])))
    total = root @ root.T
    sd = np.sqrt(np.diagonal(total))
    components = Components(
        result.mean[own],
        result.covariance[chosen],
        result.noise_covariance[chosen],
        total / np.outer(sd, sd) if len(sd) else total,
    )
    weights = slice(0, fixed)
    moments = (
        result.mean[weights],
        result.covariance[weights, weights],
        result.noise_covariance[weights, weights],
    )
    return moments, components


def noise_gamma(log_sd: float, variance: float) -> tuple[float, float]:
    """Shape and rate of the Gamma with the moments of sigma^-2, where log sigma is N(log_sd, variance).

    Examples
    --------
    >>> shape, rate = noise_gamma(0.0, 0.01)
    >>> round(shape / rate, 3), round(shape**-0.5, 3)        # mean and relative sd
    (1.02, 0.202)
    """
    shape = 1.0 / np.expm1(4.0 * variance)
    return float(shape), float(shape / np.exp(-2.0 * log_sd + 2.0 * variance))
