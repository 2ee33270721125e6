"""Functions of rows to predict, compiled for few shapes.

Every number of rows would be a shape of its own to compile for. Rows are therefore padded: to a power of two,
and above a thousand to the next thousand (in binary). What is computed of a row depends on no other.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import numpy as np
from numpy.typing import NDArray

from dpsep.families import Gamma
from dpsep.models import LearnedNoise

Array = NDArray[np.float64]

_LARGE = 1024


def padded(function: Callable[..., Any], *parts: Array) -> tuple[Array, ...]:
    """Call a function on padded rows, in double precision, and return what it finds without the padding.

    Parameters
    ----------
    function
        Takes arrays with one row each, and returns as many or more such arrays in a tuple.
    parts
        The arrays, of one length.

    Examples
    --------
    >>> padded(lambda x, y: (x + y,), np.arange(3.0), np.ones(3))
    (array([1., 2., 3.]),)
    """
    count = len(parts[0])
    lengths = [len(part) for part in parts]
    if len(set(lengths)) > 1:
        raise ValueError(f"there are {lengths[0]} rows and {lengths[-1]} targets; give one target a row.")
    more = -count % _LARGE if count > _LARGE else (1 << max(count - 1, 0).bit_length()) - count
    # The last row once more, because made-up ones may overflow and warn.
    filled = [np.concatenate([part, np.repeat(part[-1:], more, axis=0)]) for part in parts]
    with jax.enable_x64(True):
        return tuple(np.asarray(found)[:count] for found in function(*filled))


def log_predictive(likelihood: Any, mean: Array, variance: Array, y: Array) -> Array:
    """Log predictive density of targets whose predictors have these moments.

    Parameters
    ----------
    likelihood
        A likelihood of `dpsep.models`: hashable, one predictor a row.
    """
    return padded(partial(_log_predictive, likelihood), mean, variance, y)[0]


def log_predictive_learned(shape: float, rate: float, mean: Array, variance: Array, y: Array) -> Array:
    """Return the same of targets with normal noise whose precision is Gamma of this shape and rate."""
    return padded(partial(_log_predictive_learned, shape, rate), mean, variance, y)[0]


@partial(jax.jit, static_argnums=0)
def _log_predictive(likelihood: Any, mean: jax.Array, variance: jax.Array, y: jax.Array) -> tuple[jax.Array]:
    return (likelihood.log_predictive(mean, variance, y),)


@jax.jit
def _log_predictive_learned(
    shape: jax.Array, rate: jax.Array, mean: jax.Array, variance: jax.Array, y: jax.Array
) -> tuple[jax.Array]:
    return (LearnedNoise().log_predictive(mean, variance, Gamma.from_shape_and_rate(shape, rate), y),)
