"""Robust regression: noise with the tails of a Student t, so that an outlier says little."""

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.stats import t

from dpsep import BayesianModel, Linear, Normal

FREEDOM = 4.0  # of the t; a parameter of its own would need far more records


def log_likelihood(params, record):
    """Log density of a target around its predictor."""
    return t.logpdf(record.y, FREEDOM, params["u"], jnp.exp(params["log_scale"]))


def sample(key, params, record):
    """Draw a target."""
    return params["u"] + jnp.exp(params["log_scale"]) * jax.random.t(key, FREEDOM)


def model(**settings):
    """Return the model: a linear predictor, and the logarithm of a scale that all records share."""
    tools = {"links": {"u": Linear()}, "mean": lambda params, record: params["u"], "sample": sample}
    return BayesianModel(log_likelihood, {"log_scale": Normal(0.0, 1.0)}, **tools, **settings)


def main():
    """Fit made data with ten percent of gross errors."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-1.0, 1.0, (5000, 3))
    y = 0.5 + X @ [1.0, -2.0, 0.0] + 0.3 * rng.standard_t(FREEDOM, 5000) + 20.0 * (rng.random(5000) < 0.1)
    fitted = model(epsilon=1.0, bounds=(-1.0, 1.0)).fit(X, y)
    print(fitted.summary(), fitted.privacy_.sentence(), sep="\n")


if __name__ == "__main__":
    main()
