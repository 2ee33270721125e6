"""Private fits through the gate, on the tables of the ablation: what simulated fits are held against.

**Privacy.** Public and made tables; the fits are private, their scores on public test parts are not.
"""

import warnings
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from dpsep.estimators import NetworkRegressor
from dpsep_lab.bench.levers import DELTA, EPSILON, Measured
from dpsep_lab.bench.levers_data import split
from dpsep_lab.bench.levers_results import REAL

__all__ = ["measure"]

STANDARD = ((0.0, 1.0), (0.0, 1.0))
"""Public scaling of tables that are standardised already."""


def measure(table: str, seeds: Sequence[int], folder: Path | None = None) -> Measured:
    """Fit with defaults and score on the test part, seed by seed.

    Parameters
    ----------
    table
        Its name.
    seeds
        Of the table; the noise is secure and has none.
    folder
        Where tables that are not made lie.
    """
    rmse, log_likelihood = [], []
    for seed in seeds:
        parts = split(table, seed, folder)
        model = NetworkRegressor(epsilon=EPSILON, delta=DELTA, public_scaling=STANDARD)
        with warnings.catch_warnings():
            warnings.simplefilter(
                "ignore"
            )  # advice on delta and on small tables, which is not asked for here
            model.fit(parts.X, parts.y)
        miss = parts.y_test - model.predict(parts.X_test)
        rmse.append(float(np.sqrt(np.mean(miss**2))))
        log_likelihood.append(float(np.mean(model.log_predictive_density(parts.X_test, parts.y_test))))
    return Measured(REAL, table, rmse, log_likelihood)
