"""The posterior by Hamiltonian Monte Carlo, as ground truth to measure approximations against.

A thin wrapper of the no-U-turn sampler of NumPyro (Hoffman and Gelman 2014) for the models of this package:
Gaussian prior on the weights, likelihood of the linear predictor. The sampler moves in coordinates in which
the Laplace approximation of the posterior is standard normal, so that few leapfrog steps are needed.
Nothing here is private.
"""

from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.scipy.linalg import solve_triangular

from dpsep.families import Gaussian

if TYPE_CHECKING:
    from dpsep.models import Likelihood


class Draws(NamedTuple):
    """Draws from the posterior, and how the sampler fared.

    Attributes
    ----------
    weights
        Draws of all chains one after the other, shape (chains * draws, d).
    diverging
        Number of divergent transitions; should be 0.
    acceptance
        Mean acceptance probability.
    """

    weights: jax.Array
    diverging: jax.Array
    acceptance: jax.Array

    @property
    def mean(self) -> jax.Array:
        """Posterior mean of the weights, shape (d,)."""
        return jnp.mean(self.weights, 0)

    @property
    def covariance(self) -> jax.Array:
        """Posterior covariance of the weights, shape (d, d)."""
        return jnp.cov(self.weights, rowvar=False)


def run(
    likelihood: "Likelihood",
    prior: Gaussian,
    records: tuple[Any, Any],
    key: jax.Array,
    draws: int = 2000,
    warmup: int = 500,
    chains: int = 2,
) -> Draws:
    """Sample the posterior of the weights of a generalised linear model.

    Parameters
    ----------
    likelihood
        Likelihood of the predictor, with `log_likelihood(u, y)`.
    prior
        Gaussian prior of the weights.
    records
        Features (n, d) and outcomes (n,).
    key
        JAX random key.
    draws, warmup
        Number of draws kept and of warm-up steps, in each chain.
    chains
        Number of chains, run side by side.
    """
    kernel, runner = _numpyro()
    x, y = (jnp.asarray(part) for part in records)

    def energy(w: jax.Array) -> jax.Array:
        shift = w - centre
        quadratic = 0.5 * shift @ prior.precision @ shift
        return quadratic - jnp.sum(likelihood.log_likelihood(x @ w, y))

    centre = prior.mean
    mode, factor = _laplace(energy, centre)

    def place(z: jax.Array) -> jax.Array:
        return mode + solve_triangular(factor, z, lower=True, trans=1)

    sampler = runner(
        kernel(potential_fn=lambda z: energy(place(z)), dense_mass=False),
        num_warmup=warmup,
        num_samples=draws,
        num_chains=chains,
        chain_method="vectorized",
        progress_bar=False,
    )
    first, second = jax.random.split(key)
    shape = (chains, x.shape[1]) if chains > 1 else (x.shape[1],)
    start = jax.random.normal(first, shape, mode.dtype)
    sampler.run(second, init_params=start, extra_fields=("diverging", "accept_prob"))
    extra = sampler.get_extra_fields()
    weights = jax.vmap(place)(sampler.get_samples())
    return Draws(weights, jnp.sum(extra["diverging"]), jnp.mean(extra["accept_prob"]))


def _laplace(energy: Any, start: jax.Array, steps: int = 30) -> tuple[jax.Array, jax.Array]:
    """Mode and Cholesky factor of the curvature there, by Newton's method with halved steps where energy
    rises."""

    def newton(_: int, w: jax.Array) -> jax.Array:
        move = -jnp.linalg.solve(jax.hessian(energy)(w), jax.grad(energy)(w))
        lengths = 0.5 ** jnp.arange(12, dtype=w.dtype)
        energies = jax.vmap(lambda length: energy(w + length * move))(lengths)
        return w + lengths[jnp.nanargmin(energies)] * move

    mode = jax.lax.fori_loop(0, steps, newton, start)
    return mode, jnp.linalg.cholesky(jax.hessian(energy)(mode))


def _numpyro() -> tuple[Any, Any]:
    try:
        from numpyro.infer import MCMC, NUTS
    except ImportError as error:
        raise ImportError(
            "sampling the posterior needs NumPyro, which is not installed; "
            "install the extra that brings it: pip install 'dpsep[truth]'"
        ) from error
    return NUTS, MCMC
