"""Counts that vary more than a Poisson model says: negative binomial regression, log link."""

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import gammaln

from dpsep import BayesianModel, Linear, Normal


def log_likelihood(params, record):
    """Log probability of a count with mean exp(u) and variance exp(u) + exp(2 u) / size."""
    y, log_odds = record.y, params["u"] - params["log_size"]
    size = jnp.exp(params["log_size"])
    ways = gammaln(y + size) - gammaln(size) - gammaln(y + 1.0)
    chance = ways - size * jax.nn.softplus(log_odds) - y * jax.nn.softplus(-log_odds)
    return jnp.where(y >= 0, chance, jnp.nan)  # no such count: the record contributes nothing


def model(**settings):
    """Return the model: the log of the mean is linear, the log of the size is shared."""
    tools = {"links": {"u": Linear()}, "mean": lambda params, record: jnp.exp(params["u"])}
    return BayesianModel(log_likelihood, {"log_size": Normal(0.0, 1.0)}, **tools, **settings)


def main():
    """Fit made counts whose variance is far above their mean."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-1.0, 1.0, (5000, 2))
    y = rng.poisson(np.exp(0.7 + X @ [0.8, -0.5]) * rng.gamma(1.5, 1.0 / 1.5, 5000))
    fitted = model(epsilon=1.0, bounds=(-1.0, 1.0)).fit(X, y)
    print(fitted.summary(), fitted.privacy_.sentence(), sep="\n")


if __name__ == "__main__":
    main()
