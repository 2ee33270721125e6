r"""Signal and noise of a whole run: one record a step against batches, at the same epsilon and passes.

A step of DP-SEP on B records and one of DP-SGD release the same noisy sum in other units
(`dpsep_lab.paper.claims_noise`), so one figure stands for both. The K = T N / B steps of a run of T passes
together tell the mean contribution :math:`\bar g` with a signal over noise of

.. math:: \sqrt K \, B \, |\bar g| / (C \sigma),

with sigma the noise over the clip norm, calibrated for Poisson sampling at rate B / N and the zero-out
relation. Where sigma is well above 1 it grows as the root of B, and the figure does not depend on B. One
record a step asks for a sigma below 1 once N is large, where the privacy loss grows much faster than 1 /
sigma: the run then tells less, and the more so the larger N is. `per_budget` computes this; `averaged_error`
draws whole runs of releases and measures the error of the mean contribution estimated from them.

**Privacy**: none. Data are made, noise is seeded, and nothing is released.
"""

import math
from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpsep.privacy.accounting import calibrate
from dpsep.privacy.sampling import FullBatch, PoissonSampling
from dpsep_lab.paper.claims_noise import BATCHES, CLIP, SIZES, made

__all__ = ["averaged_error", "per_budget"]

Array = NDArray[np.float64]
Row = dict[str, Any]

EPSILON, DELTA, PASSES = 1.0, 1e-5, 10
CLAIM = "1/N beats 1/B, whole run"


def per_budget(
    sizes: Iterable[int] = SIZES, batches: Iterable[int] = BATCHES, passes: int = PASSES
) -> list[Row]:
    """Return the ratio that a whole run holds, at epsilon 1 and the same passes, for every N and B.

    Parameters
    ----------
    sizes, batches
        Values of N and B; B = N (full batches) is always added.
    passes
        T: every run takes T N / B steps.
    """
    table: list[Row] = []
    values = tuple(batches)
    for records in sizes:
        length = float(np.linalg.norm(made(records).factors.mean(axis=0)))
        full = math.sqrt(passes) * records * length / (CLIP * _sigma(records, records, passes))
        for batch in (*(value for value in values if value < records), records):
            sigma = _sigma(records, batch, passes)
            ratio = math.sqrt(passes * records / batch) * batch * length / (CLIP * sigma)
            base = {"case": "linear", "method": "DP-SEP or DP-SGD", "records": records, "batch": batch}
            table += [
                _row(base, "sigma", sigma, None, 1),
                _row(base, "signal over noise of the whole run", ratio, None, 1),
                _row(base, "signal over noise, as a share of full batches'", ratio / full, None, 1),
            ]
    return table


def averaged_error(
    records: int = 1_000,
    batches: Iterable[int] = BATCHES,
    repeats: int = 40,
    passes: int = PASSES,
    seed: int = 0,
) -> list[Row]:
    """Return the error of the mean contribution estimated from all releases of a run, drawn in full.

    Parameters
    ----------
    records, batches, passes
        N, values of B and T; batches larger than N are left out.
    repeats
        Runs drawn for each B, at least 2.
    seed
        Of all random numbers.
    """
    factors = made(records, seed=seed).factors
    table: list[Row] = []
    for batch in (value for value in batches if value <= records):
        sigma = _sigma(records, batch, passes)
        errors = [_one_run(factors, batch, passes, sigma, [seed, batch, run]) for run in range(repeats)]
        base = {"case": "linear", "method": "DP-SEP or DP-SGD", "records": records, "batch": batch}
        mean, error = float(np.mean(errors)), float(np.std(errors, ddof=1) / math.sqrt(repeats))
        table.append(_row(base, "relative error of the mean contribution", mean, error, repeats))
    return table


def _sigma(records: int, batch: int, passes: int) -> float:
    if passes * records % batch:
        raise ValueError(
            f"{passes} passes over {records} records are not a whole number of steps of {batch}; "
            "use a batch that divides them."
        )
    sampling = FullBatch() if batch == records else PoissonSampling(batch / records)
    return calibrate(EPSILON, DELTA, sampling, "zero-out", passes * records // batch, records)


def _one_run(factors: Array, batch: int, passes: int, sigma: float, seed: list[int]) -> float:
    """Return the relative error of the mean of a run's releases, each a Poisson sum with noise."""
    generator = np.random.default_rng(seed)
    records, size = factors.shape
    steps = passes * records // batch
    # The sum of all releases depends on the batches only by how many of them a record joined.
    joined = generator.binomial(steps, batch / records, size=records)
    noise = sigma * CLIP * math.sqrt(steps) * generator.standard_normal(size)
    mean = factors.mean(axis=0)
    estimate = (joined @ factors + noise) / (steps * batch)
    return float(np.linalg.norm(estimate - mean) / np.linalg.norm(mean))


def _row(base: Row, quantity: str, value: float, error: float | None, count: int) -> Row:
    return {"claim": CLAIM, **base, "quantity": quantity, "value": value, "standard_error": error, "n": count}
