"""Models of our own for the tests, at the top of a module, so that they can be pickled."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import gammaln

from dpsep import BayesianModel, Linear

BOUNDS = (-1.0, 1.0)
BINARY: dict[str, Any] = {"classes": [-1.0, 1.0], "bounds": BOUNDS}


def logistic_density(params: Any, record: Any) -> Any:
    return jax.nn.log_sigmoid(jnp.where(record.y > 0, 1.0, -1.0) * params["u"])


def poisson_density(params: Any, record: Any) -> Any:
    chance = record.y * params["u"] - jnp.exp(params["u"]) - gammaln(record.y + 1.0)
    return jnp.where(record.y >= 0, chance, jnp.nan)


def poisson_mean(params: Any, record: Any) -> Any:
    return jnp.exp(params["u"])


def poisson_sample(key: Any, params: Any, record: Any) -> Any:
    return jax.random.poisson(key, jnp.exp(params["u"])).astype(float)


def normal_density(params: Any, record: Any) -> Any:
    return -0.5 * (record.y - params["u"]) ** 2 - 0.5 * jnp.log(2 * jnp.pi)


def normal_mean(params: Any, record: Any) -> Any:
    return params["u"]


def location_density(params: Any, record: Any) -> Any:
    return jnp.sum(-0.5 * (record.x - params["mu"]) ** 2 - 0.5 * jnp.log(2 * jnp.pi))


def logistic(**settings: Any) -> BayesianModel:
    return BayesianModel(logistic_density, links={"u": Linear()}, **(BINARY | settings))


def poisson(**settings: Any) -> BayesianModel:
    tools: dict[str, Any] = {"mean": poisson_mean, "sample": poisson_sample, "bounds": BOUNDS}
    return BayesianModel(poisson_density, links={"u": Linear()}, **(tools | settings))


def normal(link: Linear | None = None, **settings: Any) -> BayesianModel:
    """A regression with noise of deviation one."""
    return BayesianModel(normal_density, links={"u": link or Linear()}, mean=normal_mean, **settings)


def table(records: int, kind: str = "logistic", seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Two columns in [-1, 1] and labels -1 and +1, counts or numbers."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1.0, 1.0, (records, 2))
    u = 0.3 + X @ [1.0, -0.8]
    if kind == "poisson":
        return X, rng.poisson(np.exp(u)).astype(float)
    if kind == "normal":
        return X, u + rng.normal(size=records)
    return X, np.where(rng.logistic(size=records) < u, 1.0, -1.0)


def apart(one: Any, other: Any) -> float:
    """How far two posteriors are apart, means and covariances, in units of the second's deviations."""
    sd = other.posterior_.sd
    mean = np.abs(one.posterior_.mean - other.posterior_.mean) / sd
    covariance = np.abs(one.posterior_.covariance - other.posterior_.covariance) / np.outer(sd, sd)
    return float(max(mean.max(), covariance.max()))
