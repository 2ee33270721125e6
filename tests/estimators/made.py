"""Made tables and the estimators to fit them with, small and of one shape so that they compile once."""

import warnings
from typing import Any

import numpy as np

from dpsep import (
    GammaRegression,
    LinearRegression,
    LogisticRegression,
    PoissonRegression,
    PrivacyLeakWarning,
    ProbitRegression,
)

ROWS, COLUMNS = 400, 2
BOUNDS: dict[str, Any] = {"bounds": (-1.0, 1.0)}
BINARY: dict[str, Any] = BOUNDS | {"classes": [-1.0, 1.0]}
LINEAR: dict[str, Any] = BOUNDS | {"target_bounds": (-4.0, 4.0)}
ALL: list[tuple[Any, dict[str, Any]]] = [
    (LinearRegression, LINEAR),
    (LogisticRegression, BINARY),
    (ProbitRegression, BINARY),
    (PoissonRegression, BOUNDS),
    (GammaRegression, BOUNDS | {"target_bounds": (0.1, 10.0), "shape": 4.0}),
]
"""Every estimator, with public declarations that leave nothing to be found."""
IDS = [maker.__name__ for maker, _ in ALL]


def table(maker: Any, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Features in [-1, 1] and a target of the estimator's kind."""
    rng = np.random.default_rng(seed)
    x = rng.uniform(-1, 1, (ROWS, COLUMNS))
    u = 0.3 + x @ np.array([1.0, -0.8])
    if maker is LinearRegression:
        return x, u + 0.4 * rng.normal(size=ROWS)
    if maker is PoissonRegression:
        return x, rng.poisson(np.exp(u)).astype(float)
    if maker is GammaRegression:
        return x, rng.gamma(4.0, np.exp(u) / 4.0)
    return x, np.where(rng.logistic(size=ROWS) < u, 1.0, -1.0)


def seeded(maker: Any, seed: int = 0, **parameters: Any) -> Any:
    """Fit a private estimator on its made table with seeded noise, without the warning of that."""
    x, y = parameters.pop("table", None) or table(maker)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PrivacyLeakWarning)
        return maker(random_state=seed, **parameters).fit(x, y)
