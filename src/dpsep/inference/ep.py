"""Expectation propagation with one site a record (Minka 2001; section 2 of the paper).

The posterior is `prior times product of sites`. A sweep visits every record: cavity = posterior over site,
the local factor under that cavity becomes the new site, damped in natural parameters. `sequential` moves
the posterior after each record (Minka's original), `parallel` computes all sites under one posterior and
then moves once. Both have the same fixed points. A generalised linear model with a full Gaussian stores its
sites as two scalars a record, because its factors have rank one, and a sequential sweep updates the
covariance by Sherman-Morrison, O(d^2) a record; every other model takes the general path, which stores
whole factors, up to `MOST_BYTES` of them.

A model with symmetries, such as a network, needs a start that breaks them: with all means zero, hidden units
would never differ. `start` is such a posterior; every site begins as the N-th root of `start / prior`. The
sites are replaced one by one, so that a fixed point is one of the given prior, whatever the start was. (A
prior with random means would break the symmetry too, but it would remain in the result.) On a network the
sites of a weight that the records hardly tell of may leave a cavity with almost no precision, and single
updates then jump or are skipped; on the table kin8nm a damping of 0.5 prevented both, at half the speed.

Nothing here is private, and nothing like it can be: the sites hold the records (which is why
the paper turns to stochastic expectation propagation).
"""

from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp

from dpsep.families import Gaussian, divide, multiply, power
from dpsep.models import GLM, Model, Site, site

Mode = Literal["sequential", "parallel"]
MOST_BYTES = 512 * 2**20
"""Largest size of whole sites; a sweep holds them twice."""


class State(NamedTuple):
    """What is carried from sweep to sweep.

    Attributes
    ----------
    posterior
        Natural parameters of the approximation, the prior times all sites.
    sites
        One factor a record along the first axis: `Site` scalars for a GLM with full Gaussian, else whole
        factors.
    change
        Largest change of a natural parameter of the posterior in the last sweep, over the largest parameter
        plus 1.
    sweeps
        Number of sweeps done.
    """

    posterior: Any
    sites: Any
    change: jax.Array
    sweeps: jax.Array


class Info(NamedTuple):
    """What one sweep reports.

    Attributes
    ----------
    change
        As in the state after the sweep.
    skipped
        Number of sites left as they were, because their cavity or their update was not a proper density.
    """

    change: jax.Array
    skipped: jax.Array


def init(model: Model, prior: Any, records: Any, start: Any = None) -> State:
    """Start with every site constant 1, so that the posterior is the prior, or from a posterior `start`."""
    count = jax.tree.leaves(records)[0].shape[0]
    dtype = jax.tree.leaves(prior)[0].dtype
    far = jnp.asarray(jnp.inf, dtype)
    if _is_rank_one(model, prior):
        if start is not None:
            raise ValueError(
                "a generalised linear model with a full Gaussian keeps two numbers a record, which cannot "
                "hold any start; leave `start` out: there is one fixed point to find."
            )
        zero = jnp.zeros(count, prior.eta.dtype)
        return State(prior, Site(zero, zero), far, jnp.asarray(0))
    _check_size(prior, count)
    start = prior if start is None else start
    share = power(divide(start, prior), 1.0 / count)
    sites = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (count, *jnp.shape(leaf))), share)
    return State(start, sites, far, jnp.asarray(0))


def step(
    model: Model, prior: Any, state: State, records: Any, mode: Mode = "sequential", damping: float = 0.0
) -> tuple[State, Info]:
    """One sweep over all records; `damping` is the share of the old site that is kept."""
    if mode not in ("sequential", "parallel"):
        raise ValueError(f"mode {mode!r} is unknown; use 'sequential' or 'parallel'")
    keep = 1.0 - damping
    if _is_rank_one(model, prior):
        records = _mask(records)
        sweep = _glm_sequential if mode == "sequential" else _glm_parallel
        sites, skipped = sweep(model.likelihood, state, records, keep)  # pyright: ignore
        posterior = _assemble(prior, sites, records[0])
    else:
        sweep = _sequential if mode == "sequential" else _parallel
        sites, skipped = sweep(model, state, records, keep)
        posterior = multiply(prior, jax.tree.map(lambda leaf: jnp.sum(leaf, 0), sites))
    change = _change(posterior, state.posterior)
    return State(posterior, sites, change, state.sweeps + 1), Info(change, skipped)


def run(
    model: Model,
    prior: Any,
    records: Any,
    mode: Mode = "sequential",
    damping: float = 0.0,
    max_iter: int = 100,
    tol: float = 1e-8,
    start: Any = None,
) -> State:
    """Sweep until the posterior stands still, or `max_iter` sweeps.

    Parameters
    ----------
    model
        Anything with `local_factor(cavity, record)`.
    prior
        Proper density of the model's family.
    records
        Pytree of arrays with the records along the first axis, for instance `(X, y)`.
    mode
        `"sequential"` or `"parallel"`.
    damping
        Share of the old site kept at each update, from 0 (none) to below 1.
    max_iter
        Most sweeps.
    tol
        Stop once `state.change` is at most this. About 1e-6 is the least that float32 can reach.
    start
        Proper density of the model's family to start from; the prior if left out.

    Returns
    -------
    The last state; it has converged if `state.change <= tol`.

    Examples
    --------
    >>> from dpsep.models import GaussianMean
    >>> state = run(GaussianMean(1.0), Gaussian.isotropic(1), jnp.array([[1.0], [3.0]]))
    >>> state.posterior.eta, int(state.sweeps)
    (Array([4.], dtype=float32), 2)
    """
    if not 0.0 <= damping < 1.0:
        raise ValueError(f"damping is {damping}; it must be at least 0 (no damping) and below 1")
    if mode not in ("sequential", "parallel"):
        raise ValueError(f"mode {mode!r} is unknown; use 'sequential' or 'parallel'")
    records = jax.tree.map(jnp.asarray, records)

    def unfinished(state: State) -> jax.Array:
        return (state.change > tol) & (state.sweeps < max_iter)

    def sweep(state: State) -> State:
        return step(model, prior, state, records, mode, damping)[0]

    return jax.lax.while_loop(unfinished, sweep, init(model, prior, records, start))


def _is_rank_one(model: Model, prior: Any) -> bool:
    return isinstance(model, GLM) and isinstance(prior, Gaussian)


def _check_size(prior: Any, count: int) -> None:
    needed = count * sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(prior))
    if needed > MOST_BYTES:
        raise ValueError(
            f"the sites of {count} records need {needed / 2**20:.0f} MiB; at most {MOST_BYTES / 2**20:.0f} "
            "are allowed. Give prior and records in float32, which needs half of it, or use stochastic "
            "expectation propagation (`dpsep.inference.sep`), which keeps one factor for all records."
        )


def _change(new: Any, old: Any) -> jax.Array:
    def largest(tree: Any) -> jax.Array:
        return jnp.max(jnp.stack([jnp.max(jnp.abs(leaf)) for leaf in jax.tree.leaves(tree)]))

    return largest(divide(new, old)) / (1.0 + largest(new))


def _update_site(model: Model, posterior: Any, old: Any, record: Any, keep: float) -> tuple[Any, jax.Array]:
    """Damped new site of one record, or the old one where the cavity or the moved posterior is improper."""
    cavity = divide(posterior, old)
    factor = model.local_factor(cavity, record)
    new = jax.tree.map(lambda fresh, stale: stale + keep * (fresh - stale), factor, old)
    good = cavity.is_proper & multiply(cavity, new).is_proper
    return jax.tree.map(lambda fresh, stale: jnp.where(good, fresh, stale), new, old), good


def _sequential(model: Model, state: State, records: Any, keep: float) -> tuple[Any, jax.Array]:
    def visit(posterior: Any, inputs: tuple[Any, Any]) -> tuple[Any, tuple[Any, jax.Array]]:
        old, record = inputs
        new, good = _update_site(model, posterior, old, record, keep)
        return multiply(posterior, divide(new, old)), (new, good)

    _, (sites, good) = jax.lax.scan(visit, state.posterior, (state.sites, records))
    return sites, jnp.sum(~good)


def _parallel(model: Model, state: State, records: Any, keep: float) -> tuple[Any, jax.Array]:
    def visit(old: Any, record: Any) -> tuple[Any, jax.Array]:
        return _update_site(model, state.posterior, old, record, keep)

    sites, good = jax.vmap(visit)(state.sites, records)
    return sites, jnp.sum(~good)


def _glm_site(
    likelihood: Any, mean: jax.Array, variance: jax.Array, old: Site, y: jax.Array, keep: float
) -> tuple[Site, jax.Array]:
    """Damped new scalars of sites, from the posterior moments of their predictors."""
    room = 1.0 - variance * old.precision  # posterior variance over cavity variance
    proper = room > 0
    room = jnp.where(proper, room, 1.0)
    cavity_variance = variance / room
    cavity_mean = (mean - variance * old.mean_part) / room
    fresh = site(likelihood.tilted(cavity_mean, cavity_variance, y), cavity_mean, cavity_variance)
    new = jax.tree.map(lambda f, o: o + keep * (f - o), fresh, old)
    good = proper & (1.0 + cavity_variance * new.precision > 0)
    good = good & jnp.isfinite(new.precision) & jnp.isfinite(new.mean_part)
    return jax.tree.map(lambda f, o: jnp.where(good, f, o), new, old), good


def _glm_parallel(likelihood: Any, state: State, records: Any, keep: float) -> tuple[Site, jax.Array]:
    x, y = records
    factor = jnp.linalg.cholesky(state.posterior.precision)
    half = jax.scipy.linalg.solve_triangular(factor, x.T, lower=True)
    mean, variance = x @ state.posterior.mean, jnp.sum(half**2, 0)
    sites, good = _glm_site(likelihood, mean, variance, state.sites, y, keep)
    return sites, jnp.sum(~good)


def _glm_sequential(likelihood: Any, state: State, records: Any, keep: float) -> tuple[Site, jax.Array]:
    """Rank-one updates of mean and covariance; rounding does not build up, each sweep starts from the
    sites."""

    def visit(carry: tuple[jax.Array, jax.Array], inputs: Any) -> tuple[Any, Any]:
        weights, covariance = carry
        old, (x, y) = inputs
        direction = covariance @ x
        mean, variance = x @ weights, x @ direction
        new, good = _glm_site(likelihood, mean, variance, old, y, keep)
        more, pull = new.precision - old.precision, new.mean_part - old.mean_part
        scale = 1.0 + more * variance
        weights = weights + direction * ((pull - more * mean) / scale)
        covariance = covariance - (more / scale) * direction[:, None] * direction[None, :]
        return (weights, covariance), (new, good)

    start = (state.posterior.mean, state.posterior.covariance)
    _, (sites, good) = jax.lax.scan(visit, start, (state.sites, records))
    return sites, jnp.sum(~good)


def _mask(records: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
    """Empty the rows that are not finite and mark their outcome, so that their sites are skipped."""
    x, y = records
    usable = jnp.all(jnp.isfinite(x), -1)
    return jnp.where(usable[:, None], x, 0.0), jnp.where(usable, y, jnp.nan)


def _assemble(prior: Gaussian, sites: Site, x: jax.Array) -> Gaussian:
    return Gaussian(prior.eta + x.T @ sites.mean_part, prior.precision + (x.T * sites.precision) @ x)
