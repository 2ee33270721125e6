"""Assumed density filtering: one pass over the records, each multiplied in and projected back at once.

The simplest relative of expectation propagation (Minka 2001, section 3 of his thesis; section 2 of the
paper names it as the starting point): the cavity of a record is the whole posterior so far, and its local
factor is multiplied in and never revisited. The result depends on the order of the records, except in
conjugate models, where it is exact. Nothing here is private: records are read without a gate.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from dpsep.families import multiply
from dpsep.models import Model


class State(NamedTuple):
    """What is carried from record to record.

    Attributes
    ----------
    posterior
        Natural parameters of the approximation so far.
    """

    posterior: Any


class Info(NamedTuple):
    """What one step reports.

    Attributes
    ----------
    accepted
        Whether the factor was multiplied in; one that would leave no proper density is passed over.
    """

    accepted: jax.Array


def init(prior: Any) -> State:
    """Start from the prior."""
    return State(prior)


def step(model: Model, state: State, record: Any) -> tuple[State, Info]:
    """Multiply the local factor of one record into the posterior."""
    proposal = multiply(state.posterior, model.local_factor(state.posterior, record))
    accepted = proposal.is_proper
    posterior = jax.tree.map(lambda new, old: jnp.where(accepted, new, old), proposal, state.posterior)
    return State(posterior), Info(accepted)


def run(model: Model, prior: Any, records: Any) -> tuple[State, Info]:
    """Filter the records in their order.

    Parameters
    ----------
    model
        Anything with `local_factor(cavity, record)`.
    prior
        Proper density of the model's family.
    records
        Pytree of arrays with the records along the first axis, for instance `(X, y)`.

    Returns
    -------
    The last state, and the info of every step.

    Examples
    --------
    >>> from dpsep.families import Gaussian
    >>> from dpsep.models import GaussianMean
    >>> state, _ = run(GaussianMean(1.0), Gaussian.isotropic(1), jnp.array([[1.0], [3.0]]))
    >>> state.posterior.eta, state.posterior.precision
    (Array([4.], dtype=float32), Array([[3.]], dtype=float32))
    """
    records = jax.tree.map(jnp.asarray, records)
    return jax.lax.scan(lambda state, record: step(model, state, record), init(prior), records)
