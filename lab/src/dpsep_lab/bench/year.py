"""A private network on a made table of YearPredictionMSD's shape: how long it takes, and in how much memory.

463,715 records of 90 features and 100 hidden units, the largest set of the paper, with default settings
(a release reads a sample of the records there). The values are made: time and memory do not depend on them.
"""

import time
import warnings

import jax
import numpy as np

from dpsep.estimators import NetworkRegressor
from dpsep.privacy.leaks import PrivacyLeakWarning
from dpsep_lab.bench.cost import peak_memory
from dpsep_lab.bench.table import Row, row

SHAPE, HIDDEN = (463_715, 90), 100
QUICK_SHAPE, QUICK_HIDDEN, QUICK_STEPS = (20_000, 20), 20, 5


def year(quick: bool = False) -> list[Row]:
    """Fit once; return seconds, seconds a release, test error and the process's peak memory."""
    shape, hidden = (QUICK_SHAPE, QUICK_HIDDEN) if quick else (SHAPE, HIDDEN)
    x, y = made(*shape)
    held = len(y) // 10
    model = NetworkRegressor(
        hidden=(hidden,),
        public_scaling=((0.0, 1.0), (0.0, 1.0)),
        steps=QUICK_STEPS if quick else None,
        random_state=0,
    )
    start = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PrivacyLeakWarning)  # seeded: an experiment, not a release
        model.fit(x[held:], y[held:])
    seconds = time.perf_counter() - start
    statement = model.privacy_
    assert statement is not None
    error = float(np.sqrt(np.mean((model.predict(x[:held]) - y[:held]) ** 2)))
    case = f"year/{len(y) - held} x {shape[1]}, {hidden} hidden, made, {jax.default_backend()}"
    more = {"epsilon": statement.epsilon, "steps": statement.steps, "sampling": statement.sampling}
    return [
        row(case, "dpsep private", "time", seconds, "s", **more),
        row(case, "dpsep private", "time a release", seconds / statement.steps, "s", **more),
        row(case, "dpsep private", "RMSE over noise", error / NOISE, "", **more),
        row(case, "dpsep private", "peak memory", peak_memory() / 2**30, "GiB", **more),
    ]


NOISE = 0.5
"""Standard deviation of the made target's noise; the target has about unit variance."""


def made(records: int, features: int) -> tuple[np.ndarray, np.ndarray]:
    """Make a nonlinear table with correlated columns, a tenth more records than are asked for."""
    generator = np.random.default_rng(0)
    count = records + records // 9 + 1
    x = generator.standard_normal((count, features))
    x[:, 1::2] = 0.6 * x[:, ::2][:, : x[:, 1::2].shape[1]] + 0.8 * x[:, 1::2]
    u = x @ generator.standard_normal((features, 4)) / np.sqrt(features)
    y = np.tanh(u[:, 0] * u[:, 1]) + 0.7 * np.sin(u[:, 2]) + 0.3 * u[:, 3]
    return x, y + NOISE * generator.standard_normal(count)
