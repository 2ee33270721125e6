"""Ordered labels: a linear predictor falls between cut points (the proportional odds model)."""

import jax
import jax.numpy as jnp
import numpy as np

from dpsep import BayesianModel, Linear, Normal

LEVELS = ("poor", "fair", "good", "excellent")


def log_likelihood(params, record):
    """Log probability that u plus logistic noise falls between the label's two cut points."""
    inner = jnp.append(0.0, jnp.cumsum(jnp.exp(params["log_gaps"])))  # the first is 0: u has an intercept
    cuts = jnp.pad(inner, 1, constant_values=(-1e3, 1e3))
    place = record.y.astype(int)
    low, high = cuts[place] - params["u"], cuts[place + 1] - params["u"]
    return jax.nn.log_sigmoid(high) + jax.nn.log_sigmoid(-low) + jnp.log1p(-jnp.exp(low - high))


def model(classes=LEVELS, **settings):
    """Return the model for these labels, the lowest first."""
    prior = {"u": 2.0, "log_gaps": Normal(0.0, 1.0, shape=(len(classes) - 2,))}
    return BayesianModel(log_likelihood, prior, {"u": Linear()}, classes=classes, **settings)


def main():
    """Fit made ratings."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-1.0, 1.0, (5000, 2))
    u = 1.0 + X @ [2.0, -1.0] + rng.logistic(size=5000)
    fitted = model(epsilon=1.0, bounds=(-1.0, 1.0)).fit(X, np.array(LEVELS)[np.digitize(u, [0.0, 1.0, 3.0])])
    print(fitted.summary(), fitted.privacy_.sentence(), sep="\n")


if __name__ == "__main__":
    main()
