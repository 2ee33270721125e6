"""What a target is given the predictor u of its row: how it is drawn, weighed, expected and accumulated.

Likelihoods (`dpsep.models`) draw and weigh targets given u. Here stands what they lack: normal targets whose
noise precision differs from draw to draw, and the distribution function of a new target where u is Gaussian,
P(y' <= y), by quadrature over u (counts) or over the noise precision (normal targets).
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr
from scipy.stats import gamma, poisson

Array = NDArray[np.float64]
LARGEST_LOG_COUNT = 40.0
"""A count with a mean beyond exp(40) has no place in 64 bits; predictors of counts end here."""
_NODES = 96


class Normal(NamedTuple):
    """Normal targets about u.

    Attributes
    ----------
    precision
        Inverse noise variance of each draw, (draws, 1).
    """

    precision: Array

    def sample(self, key: jax.Array, u: Any) -> jax.Array:
        """Draw targets."""
        return u + jax.random.normal(key, jnp.shape(u)) / jnp.sqrt(self.precision)

    def log_likelihood(self, u: Any, y: Any) -> jax.Array:
        """Log density of targets."""
        square = self.precision * (jnp.asarray(y) - u) ** 2
        return 0.5 * (jnp.log(self.precision) - square - np.log(2 * np.pi))


def normal_below(mean: Array, variance: Array, y: Array, shape: float | None, rate: float) -> Array:
    """P(y' <= y) for a normal target whose noise precision is Gamma, or known where the shape is None.

    Parameters
    ----------
    mean, variance
        Of the predictor of each row.
    y
        Targets.
    shape, rate
        Of the Gamma posterior of the noise precision; with a shape of None the rate is the noise variance.

    Examples
    --------
    >>> float(normal_below(np.zeros(1), np.full(1, 3.0), np.zeros(1), None, 1.0)[0])
    0.5
    """
    if shape is None:
        return ndtr((y - mean) / np.sqrt(variance + rate))
    # Equally likely precisions, each at the middle of its share.
    precision = gamma.ppf((np.arange(_NODES) + 0.5) / _NODES, shape, scale=1.0 / rate)
    width = np.sqrt(variance[:, None] + 1.0 / precision)
    return ndtr((y - mean)[:, None] / width).mean(axis=1)


def counts_below(mean: Array, variance: Array, y: Array) -> Array:
    """P(y' <= y) for a count whose log rate is Gaussian, by Gauss-Hermite quadrature.

    Examples
    --------
    >>> found = counts_below(np.zeros(1), np.zeros(1), np.zeros(1))
    >>> bool(np.isclose(found[0], np.exp(-1)))
    True
    """
    return averaged(lambda log_rate: poisson.cdf(y[:, None], np.exp(log_rate)), mean, variance)


def averaged(function: Callable[[Array], Array], mean: Array, variance: Array) -> Array:
    """Average of a function of a Gaussian log mean, of each row, by Gauss-Hermite quadrature.

    Parameters
    ----------
    function
        Takes predictors, (rows, nodes), and returns as many values.

    Examples
    --------
    >>> averaged(np.exp, np.zeros(1), np.ones(1)).round(6)          # e to one half
    array([1.648721])
    """
    nodes, weights = np.polynomial.hermite_e.hermegauss(_NODES)
    u = np.minimum(mean[:, None] + np.sqrt(variance)[:, None] * nodes, LARGEST_LOG_COUNT)
    return function(u) @ (weights / weights.sum())
