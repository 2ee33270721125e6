"""A private boosted tree: DP-EBM, interpret-core's `DPExplainableBoostingRegressor`, with its own defaults.

A sum of one-dimensional functions, each boosted from noisy histograms (Nori et al., 2021).

**Privacy.** Its own claim: (epsilon, delta) with Gaussian noise composed by Gaussian differential privacy,
add or remove one record, given public bounds of the columns and of the target. Its noise is its own.
"""

import warnings
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

__all__ = ["dp_ebm"]

Array = NDArray[np.float64]


def dp_ebm(
    X: Array,
    y: Array,
    *,
    bounds: tuple[Array, Array],
    target_bounds: tuple[float, float],
    epsilon: float,
    delta: float,
    seed: int,
) -> Callable[[Array], Array]:
    """Fit DP-EBM and return its predictions as a function.

    Parameters
    ----------
    X, y
        Records within the bounds.
    bounds, target_bounds
        Public extremes of the columns and of the target.
    epsilon, delta
        The budget.
    seed
        Of its noise.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of its dependencies, and that columns with two values are numbers
        from interpret.privacy import DPExplainableBoostingRegressor  # pyright: ignore[reportMissingImports]

        model = DPExplainableBoostingRegressor(
            feature_types=["continuous"] * X.shape[1],
            n_jobs=1,
            random_state=seed,
            epsilon=epsilon,
            delta=delta,
            composition="gdp",
            privacy_bounds=np.stack(bounds, axis=1),
            privacy_target_min=target_bounds[0],
            privacy_target_max=target_bounds[1],
        ).fit(X, y)

    def predict(rows: Array) -> Array:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return np.asarray(model.predict(rows), np.float64)

    return predict
