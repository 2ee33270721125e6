"""The product of a prior and one Gaussian factor a site: the posterior of partitioned EP, at every moment."""

import threading
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpsep.federated.terms import Factor

Array = NDArray[np.float64]


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
            own = self._factors.get(name)
        mean: Any = np.linalg.solve(precision, eta)
        if own is not None:
            eta, precision = eta - own.eta, precision - own.precision
        precision = (precision + precision.T) / 2
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

    def _sum(self) -> tuple[Array, Array]:
        eta, precision = self._eta.copy(), self._precision.copy()
        for factor in self._factors.values():
            eta, precision = eta + factor.eta, precision + factor.precision
        return eta, precision
