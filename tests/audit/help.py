"""What the tests of this room share: a small table, and private estimators of all kinds with frozen noise."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpsep.registry import named, regressions

Array = NDArray[np.float64]

RECORDS, FEATURES = 48, 3
_BOUNDS: dict[str, dict[str, Any]] = {
    "number": {"target_bounds": (-4.0, 4.0)},
    "positive": {"target_bounds": (0.1, 20.0)},
}
KINDS: dict[str, tuple[Any, dict[str, Any], dict[str, Any]]] = {
    entry.name: (
        entry.load(),
        {"classes": [-1.0, 1.0]} if entry.target == "label" else {},
        _BOUNDS.get(entry.target, {}),
    )
    for entry in regressions()
}
"""Estimator, its parameters, and those beside `bounds` where nothing is scaled privately."""


def table(kind: str) -> tuple[Array, Array]:
    """A made-up table whose last column is constant."""
    generator = np.random.default_rng(3)
    X = generator.uniform(-1.0, 1.0, (RECORDS, FEATURES))
    X[:, -1] = 0.5
    predictor = X @ [1.0, -2.0, 0.5]
    target = named(kind).target
    if target == "number":
        return X, predictor + 0.1 * generator.standard_normal(RECORDS)
    if target == "positive":
        return X, generator.gamma(2.0, np.exp(predictor) / 2.0)
    if target == "count":
        return X, generator.poisson(np.exp(predictor)).astype(np.float64)
    return X, np.where(predictor + generator.logistic(size=RECORDS) > 0, 1.0, -1.0)


def maker(kind: str, *, bounded: bool = True, **more: Any) -> Callable[[], Any]:
    """A function that makes a private estimator of this kind; its noise is frozen."""
    estimator, always, bounds = KINDS[kind]
    parameters = {"delta": 1e-3, "steps": 3, "random_state": 1} | always | more
    if bounded:
        parameters |= {"bounds": (-1.0, 1.0)} | bounds
    return lambda: estimator(**parameters)


@dataclass(frozen=True)
class Parts:
    """Each array of a record is its contribution to one block, times a public number."""

    def __call__(self, public: Any, chunk: tuple[Any, ...]) -> tuple[Any, ...]:
        return tuple(part * public for part in chunk)
