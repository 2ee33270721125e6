"""A made table and networks to fit it with, of one shape so that they compile once."""

import warnings
from typing import Any

import numpy as np

from dpsep import NetworkClassifier, NetworkRegressor, PrivacyLeakWarning

ROWS, HIDDEN, STEPS = 400, 3, 3
WEIGHTS = HIDDEN * 3 + HIDDEN + 1
BOUNDS: dict[str, Any] = {"bounds": (-1.0, 1.0), "target_bounds": (-2.0, 2.0)}
BINARY: dict[str, Any] = {"bounds": (-1.0, 1.0), "classes": ["no", "yes"]}
STANDARD: dict[str, Any] = {"public_scaling": ((0.0, 0.6), (0.0, 0.8))}
PRIVATE_WAYS: dict[str, dict[str, Any]] = {
    "kronecker": {"method": "sep", "covariance": "kronecker"},
    "diagonal": {"method": "sep", "covariance": "diagonal"},
    "vi": {"method": "vi"},
    "point": {"method": "point"},
}
"""Every way to fit under privacy."""
OPEN_WAYS: dict[str, dict[str, Any]] = PRIVATE_WAYS | {"ep": {"method": "ep"}, "adf": {"method": "adf"}}
"""Every way to fit without."""
KIND = {"kronecker": "kronecker", "point": "point"}
"""Kind of the posterior where it is not diagonal."""


class Watched:
    """An array whose shape is known and whose cells cannot be read unnoticed."""

    def __init__(self, array: np.ndarray, on_read: Any = lambda: None) -> None:
        self._array, self._on_read = array, on_read
        self.shape = array.shape
        self.dtype = array.dtype
        self.reads = 0

    def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray:
        self.reads += 1
        self._on_read()
        return np.asarray(self._array, dtype)


def table(seed: int = 0, rows: int = ROWS) -> tuple[np.ndarray, np.ndarray]:
    """Two features in [-1, 1], and a curve of them with noise of deviation 0.1."""
    rng = np.random.default_rng(seed)
    x = rng.uniform(-1, 1, (rows, 2))
    return x, np.sin(3 * x[:, 0]) + 0.5 * x[:, 1] + 0.1 * rng.standard_normal(rows)


def labels(x: np.ndarray) -> np.ndarray:
    """Whether the features have the same sign: no line parts these classes."""
    return np.where(x[:, 0] * x[:, 1] > 0, "yes", "no")


def regressor(**parameters: Any) -> NetworkRegressor:
    return NetworkRegressor(**({"hidden": HIDDEN, "delta": 1e-4} | parameters))


def classifier(**parameters: Any) -> NetworkClassifier:
    return NetworkClassifier(**({"hidden": HIDDEN, "delta": 1e-4} | BINARY | parameters))


def quietly(model: Any, X: Any, y: Any) -> Any:
    """Fit without the warning of a seed."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PrivacyLeakWarning)
        return model.fit(X, y)


def seeded(X: Any = None, y: Any = None, seed: int = 0, **parameters: Any) -> Any:
    """Fit the regressor privately with seeded noise, on the made table where none is given."""
    x, target = table()
    model = regressor(**({"random_state": seed, "steps": STEPS} | parameters))
    return quietly(model, x if X is None else X, target if y is None else y)


def seeded_classes(X: Any = None, y: Any = None, seed: int = 0, **parameters: Any) -> Any:
    """Fit the classifier privately with seeded noise, on the made table where none is given."""
    x, _ = table()
    model = classifier(**({"random_state": seed, "steps": STEPS} | parameters))
    return quietly(model, x if X is None else X, labels(x) if y is None else y)


def bits(model: Any) -> list[bytes]:
    """Everything that the posterior is made of."""
    parts: list[Any] = []
    for part in model.posterior_:
        parts += part if isinstance(part, tuple) else [part]
    return [np.asarray(part).tobytes() for part in parts if part is not None]


def assert_proper(model: Any, X: Any = None) -> None:
    """No NaN, no infinity, no variance below zero, wherever one asks."""
    rows = np.asarray(table()[0][:20] if X is None else X, float)
    rows = rows[np.isfinite(rows).all(axis=1)]
    assert np.isfinite(model.posterior_.mean).all()
    assert (model.posterior_.variance >= 0).all()
    assert (model.posterior_.noise_variance >= 0).all()
    if hasattr(model, "classes_"):
        found = model.predict_proba(rows)
        np.testing.assert_allclose(found.sum(axis=1), 1.0)
        assert ((found >= 0) & (found <= 1)).all()
        assert np.isfinite(model.decision_function(rows)).all()
        return
    mean, deviation = model.predict(rows, return_std=True)
    assert np.isfinite(mean).all()
    assert np.isfinite(deviation).all()
    assert (deviation > 0).all()
    assert np.isfinite(model.log_predictive_density(rows, mean)).all()
