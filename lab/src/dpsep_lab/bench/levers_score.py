"""Scores of simulated private fits (`dpsep_lab.bench.levers_fit`): finish, predict, compare with a test part.

**Privacy.** For measurement only, on made and public tables.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from dpsep.inference import network
from dpsep.inference.network import State
from dpsep.models.network import Activation
from dpsep.models.network_factors import Weights, spread, through, turn
from dpsep_lab.bench.levers_data import Data
from dpsep_lab.bench.levers_fit import Form, Numbers, lifted, prepared, start_seed

__all__ = ["Score", "score"]


class Score(NamedTuple):
    """On the test part: root mean squared error, mean log-likelihood, and that without the known blur."""

    rmse: float
    log_likelihood: float
    without_blur: float


def score(
    form: Form,
    members: Sequence[Numbers],
    data: Data,
    test: tuple[Any, Any],
    states: Sequence[State],
    seed: int,
    steps: int,
) -> Score:
    """Finish the networks of one fit and score the mixture of their predictions.

    Parameters
    ----------
    form, data, steps, seed
        Of the fit.
    members
        Numbers of each network.
    test
        Inputs and outcomes.
    states
        The networks' last states.
    """
    outputs, variances, blurs = [], [], []
    for numbers, state in zip(members, states, strict=True):
        own = start_seed(numbers, seed)
        shape, settings, _ = prepared(form, numbers, data, own, float(steps))
        found = network.finish(shape, settings, state)
        assert found.noise is not None
        x = lifted(form, jnp.asarray(test[0]), own) if form.fixed_features else test[0]
        law = found.weights, found.bases, found.precision, found.blur
        mean, variance, blur = _predicted(form.activation, *law, x)
        outputs.append(mean)
        variances.append(variance + found.noise[1] / found.noise[0])
        blurs.append(blur)
    mean, variance, blur = (np.stack([np.asarray(p) for p in parts]) for parts in (outputs, variances, blurs))
    rmse = float(np.sqrt(np.mean((np.asarray(test[1]) - mean.mean(axis=0)) ** 2)))
    return Score(rmse, _mixture(test[1], mean, variance + blur), _mixture(test[1], mean, variance))


@partial(jax.jit, static_argnums=0)
def _predicted(
    activation: Activation, weights: Weights, bases: Any, precision: Weights, blur: Weights, x: Any
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Output, its posterior variance, and the variance that the noise of releases adds."""
    passed = through(weights, x, activation)
    turned = turn(bases, passed)
    return passed.output, spread(turned, tuple(1.0 / part for part in precision)), spread(turned, blur)


def _mixture(y: Any, mean: Any, variance: Any) -> float:
    """Mean log density of an equal mixture of normal laws, (networks, records)."""
    logs = -0.5 * (np.log(2.0 * np.pi * variance) + (np.asarray(y) - mean) ** 2 / variance)
    return float(np.mean(np.logaddexp.reduce(logs, axis=0) - np.log(len(logs))))
