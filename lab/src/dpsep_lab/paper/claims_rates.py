r"""How the noise of section 4 goes with N: :math:`\sigma_1 = \sigma_2 = 2 C \sigma / N`, and sigma itself.

Section 4 reads the noise of a step as :math:`2 C \sigma / N` and lets N grow with sigma fixed. At a fixed
epsilon and a fixed number T of passes, with one record a step, sigma is not fixed: there are T N steps, each
at a sampling rate of 1/N. Under *Poisson sampling* the central limit of the privacy losses puts sigma near
:math:`\log(1 + \mu^2 N / T)^{-1/2}`, with mu that of a Gaussian release at this epsilon and delta: it falls,
but only as the root of a logarithm. For *a permutation a pass*, what Algorithm 3 does, it is :math:`\sqrt T /
\mu` (twice that under replace-one) whatever N is. *A fresh record a step* is what the text accounts for, by
Rényi curves.

The noise of one step is not that of the result. With gamma = 1 a run adds up T N of them, so that theta ends
with noise of :math:`C \sigma \sqrt{T / N}`, up to the small share that is forgotten, having moved by T times
the mean local factor: with sigma fixed a rate of :math:`N^{-1/2}`, not 1/N.

Sigma here is the noise over the clip norm C, as everywhere in this package, so the noise of a step is
:math:`C \sigma / N`. The paper's sigma is over 2C, under replace-one half of ours: the same noise.
"""

import math
from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpsep.privacy.accounting import Relation, calibrate
from dpsep.privacy.sampling import FixedSizeSampling, PoissonSampling, Sampling, ShuffledEpochs

__all__ = ["SIZES", "rates"]

Array = NDArray[np.float64]
Row = dict[str, Any]

EPSILON, DELTA, PASSES, CLIP = 1.0, 1e-5, 10, 1.0
SIZES = (100, 1_000, 10_000, 100_000, 1_000_000)
CLAIM = "sigma_1 = sigma_2 = 2 C sigma / N"


_SCHEMES: tuple[tuple[str, Relation], ...] = (
    ("Poisson sampling at rate 1/N", "zero-out"),
    ("a permutation a pass, as written", "zero-out"),
    ("a permutation a pass, as written", "replace-one"),
    ("a fresh record a step, as accounted", "replace-one"),
)


def rates(sizes: Iterable[int] = SIZES, passes: int = PASSES) -> list[Row]:
    """Return sigma and C sigma / N against N at epsilon 1, and the exponents fitted to them.

    Parameters
    ----------
    sizes
        Values of N, at least two.
    passes
        T: every run takes T N steps of one record.
    """
    values = np.array(tuple(sizes), np.int64)
    if len(values) < 2:
        raise ValueError(f"an exponent needs at least two sizes, not {len(values)}.")
    table: list[Row] = []
    for name, relation in _SCHEMES:
        sigmas = np.array([_sigma(name, relation, int(n), passes) for n in values])
        series = {
            "sigma": sigmas,
            "C sigma / N, noise of one step": CLIP * sigmas / values,
            # gamma = 1: the run adds up T N of them, while theta moves by T times the mean factor.
            "C sigma sqrt(T / N), noise of a run": CLIP * sigmas * np.sqrt(passes / values),
        }
        for quantity, numbers in series.items():
            base = {"case": name, "method": relation, "batch": 1}
            for n, number in zip(values, numbers, strict=True):
                table.append(_row(base | {"records": int(n)}, quantity, float(number), None, 1))
            slope, error = _exponent(values, numbers)
            base |= {"records": None}
            table.append(_row(base, f"exponent in N of {quantity}", slope, error, len(values)))
    return table


def _sigma(name: str, relation: Relation, records: int, passes: int) -> float:
    sampling: Sampling = FixedSizeSampling(1)
    if name.startswith("Poisson"):
        sampling = PoissonSampling(1 / records)
    elif name.startswith("a permutation"):
        sampling = ShuffledEpochs(1)
    return calibrate(EPSILON, DELTA, sampling, relation, passes * records, records)


def _exponent(sizes: NDArray[np.int64], numbers: Array) -> tuple[float, float | None]:
    """Return the slope of log against log, and its standard error where there are points to spare."""
    x, y = np.log(sizes), np.log(numbers)
    centred = x - x.mean()
    slope = float(centred @ y / (centred @ centred))
    if len(x) < 3:
        return slope, None
    rest = y - y.mean() - slope * centred
    return slope, float(math.sqrt(rest @ rest / (len(x) - 2) / (centred @ centred)))


def _row(base: Row, quantity: str, value: float, error: float | None, count: int) -> Row:
    return {"claim": CLAIM, **base, "quantity": quantity, "value": value, "standard_error": error, "n": count}
