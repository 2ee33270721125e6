"""Labels without order: one linear predictor a label, the first label's being zero (softmax regression)."""

import jax
import jax.numpy as jnp
import numpy as np

from dpsep import BayesianModel, Linear

KINDS = ("bus", "car", "train")


def log_likelihood(params, record):
    """Log probability of a label: the softmax of all predictors."""
    scores = jnp.stack([jnp.zeros(()), *params.values()])  # in the order of the links
    return jax.nn.log_softmax(scores)[record.y.astype(int)]


def model(classes=KINDS, **settings):
    """Return the model for these labels; weights tell a label from the first."""
    links = {str(label): Linear() for label in classes[1:]}
    return BayesianModel(log_likelihood, links=links, classes=classes, **settings)


def main():
    """Fit made choices."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-1.0, 1.0, (5000, 2))
    scores = np.stack([np.zeros(5000), 0.5 + X @ [1.0, -1.0], X @ [-2.0, 1.0]], axis=1)
    y = np.array(KINDS)[np.argmax(scores + rng.gumbel(size=scores.shape), axis=1)]
    fitted = model(epsilon=1.0, bounds=(-1.0, 1.0)).fit(X, y)
    print(fitted.summary(), fitted.privacy_.sentence(), sep="\n")


if __name__ == "__main__":
    main()
