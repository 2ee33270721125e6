"""The product of a prior and one Gaussian factor a site: the posterior of partitioned EP, at every moment.

Factors come from sites, and one of a faulty site must not spoil the cavities of the others: `check_factor`
refuses what no rows can have said, so that the site that sent it is the one that is put out.
"""

import threading
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpsep.federated.codec import WireError
from dpsep.federated.terms import Factor

Array = NDArray[np.float64]
MOST_TIMES = 1e6
"""How often the precision that all rows are expected to add one factor may hold. Noise makes it some hundred
times too large at worst; at a million times a sum in doubles still keeps ten digits of the others."""
MOST_MEAN = 1e6
"""Largest weight that a factor may stand for, where scaled columns are about one."""

MOST_RATIO = 1e12
"""Largest ratio of two precisions of the prior with one factor. Sites refuse cavities beyond 1e14, where
doubles end: a hundred such factors stay below, so that no other site refuses for what one has sent."""


def check_factor(factor: Any, prior_precision: Array, expected: float) -> Factor:
    """Return a factor that rows can have; raise `WireError` for any other.

    Parameters
    ----------
    factor
        As it arrived.
    prior_precision
        Of p_0.
    expected
        Largest entry of the precision that all rows together are expected to add.
    """
    d = len(prior_precision)
    arrays = isinstance(factor, Factor) and all(
        isinstance(part, np.ndarray) and part.dtype == np.float64 for part in factor
    )
    if not arrays or [part.shape for part in factor] != [(d,), (d, d), (d, d)]:
        raise WireError("its factor is none.")
    most = MOST_TIMES * max(expected, float(np.abs(prior_precision).max()))
    if not all(np.array_equal(part, part.T) for part in factor[1:]):
        raise WireError("its factor is not symmetric.")
    if not np.abs(factor.precision).max() <= most or not np.abs(factor.eta).max() <= most * MOST_MEAN * d:
        raise WireError("its factor is larger than any that rows can have.")
    if not np.abs(factor.noise).max() <= (most * MOST_MEAN * d) ** 2 or not _positive(factor):
        raise WireError("its factor has a precision or a noise that is none.")
    whole = prior_precision + factor.precision
    spread = np.linalg.eigvalsh(whole)
    if not spread[-1] <= MOST_RATIO * spread[0]:
        raise WireError("its factor has a precision that is nearly singular.")
    if not np.abs(np.linalg.solve(whole, factor.eta)).max() <= MOST_MEAN:
        raise WireError("its factor stands for weights larger than any that rows can have.")
    return factor


def _positive(factor: Factor) -> bool:
    try:
        np.linalg.cholesky(factor.precision)
    except np.linalg.LinAlgError:
        return False
    noise = np.linalg.eigvalsh(factor.noise)
    return bool(noise[0] >= -1e-6 * abs(noise[-1]))


class Product:
    """q = p_0 prod_k t_k, safe for several threads; q is the product at every moment.

    Parameters
    ----------
    prior_mean, prior_precision
        Of p_0.

    Examples
    --------
    >>> q = Product(np.zeros(1), np.eye(1))
    >>> q.put("a", Factor(np.array([2.0]), np.array([[1.0]]), np.zeros((1, 1))))
    >>> q.moments()[0], q.cavity("a")[0]
    (array([1.]), array([0.]))
    """

    def __init__(self, prior_mean: Array, prior_precision: Array) -> None:
        self._eta, self._precision = prior_precision @ prior_mean, prior_precision
        self._factors: dict[str, Factor] = {}
        self._lock = threading.Lock()

    def put(self, name: str, factor: Factor, damping: float = 1.0) -> None:
        """Move a site's factor to a new one, by a share of the way."""
        with self._lock:
            old = self._factors.get(name)
            if old is not None and damping < 1.0:
                factor = Factor(
                    *(damping * new + (1 - damping) * was for new, was in zip(factor, old, strict=True))
                )
            self._factors[name] = factor

    def drop(self, name: str) -> None:
        """Take a site's factor away."""
        with self._lock:
            self._factors.pop(name, None)

    def cavity(self, name: str) -> tuple[Array, Array, Array]:
        """Return mean and precision of q / t_k, and the mean of q."""
        with self._lock:
            eta, precision = self._sum()
            # Summed anew and not subtracted: what a large factor has rounded away would not come back.
            others, precision_of_others = self._sum(without=name)
        mean: Any = np.linalg.solve(precision, eta)
        eta, precision = others, (precision_of_others + precision_of_others.T) / 2
        cavity_mean: Any = np.linalg.solve(precision, eta)
        return cavity_mean, precision, mean

    def moments(self) -> tuple[Array, Array, Array]:
        """Return mean and covariance of q, and the covariance that noise gives to the mean."""
        with self._lock:
            eta, precision = self._sum()
            noise = sum((factor.noise for factor in self._factors.values()), np.zeros_like(precision))
        covariance = np.linalg.inv(precision)
        covariance = (covariance + covariance.T) / 2
        return covariance @ eta, covariance, covariance @ noise @ covariance

    def _sum(self, without: str | None = None) -> tuple[Array, Array]:
        eta, precision = self._eta.copy(), self._precision.copy()
        for factor in (one for name, one in self._factors.items() if name != without):
            eta, precision = eta + factor.eta, precision + factor.precision
        return eta, precision
