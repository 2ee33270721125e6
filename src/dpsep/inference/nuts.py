"""The posterior by Hamiltonian Monte Carlo, as ground truth to measure approximations against.

A thin wrapper of the no-U-turn sampler of NumPyro (Hoffman and Gelman 2014) for the models of this package:
Gaussian prior on the weights and a likelihood of the linear predictor, or Gaussian priors on the means of a
mixture's components. The sampler moves in coordinates in which the Laplace approximation of the posterior is
standard normal, so that few leapfrog steps are needed. Nothing here is private.
"""

from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.scipy.linalg import solve_triangular
from jax.scipy.special import logsumexp
from jax.typing import ArrayLike

from dpsep.families import Gaussian, GaussianSet

if TYPE_CHECKING:
    from dpsep.models import KnownMixture, Likelihood


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


class MixtureDraws(NamedTuple):
    """Draws of the component means of a mixture, and how the sampler fared.

    Attributes
    ----------
    means
        Draws of all chains one after the other, shape (chains * draws, components, d).
    diverging
        Number of divergent transitions; should be 0.
    acceptance
        Mean acceptance probability.
    """

    means: jax.Array
    diverging: jax.Array
    acceptance: jax.Array

    @property
    def mean(self) -> jax.Array:
        """Posterior mean of each component's mean, shape (components, d)."""
        return jnp.mean(self.means, 0)

    @property
    def covariance(self) -> jax.Array:
        """Posterior covariance of each component's mean, shape (components, d, d)."""
        centred = self.means - self.mean
        return jnp.einsum("nji,njk->jik", centred, centred) / (len(self.means) - 1)


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
    x, y = (jnp.asarray(part) for part in records)

    def log_likelihood(w: jax.Array) -> jax.Array:
        return jnp.sum(likelihood.log_likelihood(x @ w, y))

    return run_joint(log_likelihood, prior, key, draws, warmup, chains)


def run_joint(
    log_likelihood: Any,
    prior: Gaussian,
    key: jax.Array,
    draws: int = 2000,
    warmup: int = 500,
    chains: int = 2,
    start: ArrayLike | None = None,
) -> Draws:
    """Sample the posterior of weights with a Gaussian prior and any log-likelihood.

    Parameters
    ----------
    log_likelihood
        Of all records, as a function of the weights.
    prior, key, draws, warmup, chains
        As for `run`.
    start
        Where the search for the mode starts; the prior's mean if left out. A log-likelihood that is not
        concave needs a start near the mode.
    """
    centre = prior.mean

    def energy(w: jax.Array) -> jax.Array:
        shift = w - centre
        return 0.5 * shift @ prior.precision @ shift - log_likelihood(w)

    first = centre if start is None else jnp.asarray(start, centre.dtype)
    return Draws(*_sample(energy, first, key, draws, warmup, chains))


def run_mixture(
    model: "KnownMixture",
    prior: GaussianSet,
    x: ArrayLike,
    key: jax.Array,
    start: ArrayLike,
    labels: ArrayLike | None = None,
    draws: int = 2000,
    warmup: int = 500,
    chains: int = 2,
) -> MixtureDraws:
    """Sample the posterior of the component means of a mixture with known weights and noise.

    Without labels the posterior has many modes, at least one for each order of the components. The sampler
    starts at the mode next to `start` and, where components are well apart, stays there.

    Parameters
    ----------
    model
        Weights and noise variance.
    prior
        Gaussian prior of the component means.
    x
        Records, shape (n, d).
    key
        JAX random key.
    start
        Component means to start from, shape (components, d).
    labels
        Component of each record, shape (n,), where they are known; without them each record's component is
        summed out.
    draws, warmup
        Number of draws kept and of warm-up steps, in each chain.
    chains
        Number of chains, run side by side.
    """
    records = jnp.asarray(x, prior.eta.dtype)
    first, centre = jnp.asarray(start, prior.eta.dtype), prior.mean
    if first.shape != prior.eta.shape:
        raise ValueError(
            f"start has shape {first.shape}; it must hold one mean for each component, {prior.eta.shape}"
        )
    log_weights = jnp.log(jnp.asarray(model.weights, prior.eta.dtype))
    member = None if labels is None else jnp.asarray(labels)[:, None]

    def energy(flat: jax.Array) -> jax.Array:
        means = flat.reshape(first.shape)
        shift = means - centre
        quadratic = 0.5 * jnp.einsum("ji,jik,jk->", shift, prior.precision, shift)
        squares = jnp.sum((records[:, None, :] - means) ** 2, -1)
        logs = log_weights - squares / (2.0 * model.variance)
        if member is None:
            return quadratic - jnp.sum(logsumexp(logs, axis=-1))
        return quadratic - jnp.sum(jnp.take_along_axis(logs, member, -1))

    flat, diverging, acceptance = _sample(energy, first.ravel(), key, draws, warmup, chains)
    return MixtureDraws(flat.reshape(-1, *first.shape), diverging, acceptance)


def _sample(
    energy: Any, start: jax.Array, key: jax.Array, draws: int, warmup: int, chains: int
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Draws (chains * draws, d) of `exp(-energy)`, the number that diverged, and the mean acceptance."""
    kernel, runner = _numpyro()
    mode, factor = _laplace(energy, start)

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
    shape = (chains, len(mode)) if chains > 1 else (len(mode),)
    around = jax.random.normal(first, shape, mode.dtype)
    sampler.run(second, init_params=around, extra_fields=("diverging", "accept_prob"))
    extra = sampler.get_extra_fields()
    weights = jax.vmap(place)(sampler.get_samples())
    return weights, jnp.sum(extra["diverging"]), jnp.mean(extra["accept_prob"])


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
