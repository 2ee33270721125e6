r"""Scores of a predictive distribution: error, log-likelihood, coverage and calibration.

With F_i the predictive distribution function of test record i and u_i = F_i(y_i), the central interval of
level a holds y_i where |2 u_i - 1| <= a. *Coverage* is the share of records that the interval of level 0.9
holds. *Calibration error* is the mean over the levels 0.1, 0.2, ..., 0.9 of | observed share - level |.
Error and log-likelihood are in the target's own units.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.stats import norm

__all__ = ["LEVELS", "METRICS", "Prediction", "Scores", "gaussian", "score"]

Array = NDArray[np.float64]

LEVELS = tuple(round(0.1 * k, 1) for k in range(1, 10))
"""Levels of the central intervals of the calibration error."""
COVERED = 0.9
"""Level of the coverage."""
WORST = -1e6
"""What a log density counts at least: a mean of a peer that diverged stays a number."""


class Prediction(NamedTuple):
    """What a fit says of the test part: means, log densities and distribution functions at the targets."""

    mean: Array
    log_density: Array
    below: Array


class Scores(NamedTuple):
    """RMSE, mean log-likelihood, coverage of 90 % intervals, calibration error."""

    rmse: float
    log_likelihood: float
    coverage: float
    calibration: float


METRICS = Scores._fields


def gaussian(mean: Array, sd: float | Array, y: Array) -> Prediction:
    """Return the prediction of normal distributions.

    Parameters
    ----------
    mean, sd
        Of each record, in the target's own units.
    y
        The targets.

    Examples
    --------
    >>> found = gaussian(np.zeros(2), 1.0, np.array([0.0, 1.0]))
    >>> found.below.round(3)
    array([0.5  , 0.841])
    """
    spread = np.maximum(sd, 1e-300)
    return Prediction(mean, np.asarray(norm.logpdf(y, mean, spread)), np.asarray(norm.cdf(y, mean, spread)))


def score(found: Prediction, y: Array) -> Scores:
    """Return the scores of a prediction.

    Parameters
    ----------
    found
        Of the test part.
    y
        Its targets.

    Examples
    --------
    >>> y = norm.ppf((np.arange(1000) + 0.5) / 1000)
    >>> scores = score(gaussian(np.zeros(1000), 1.0, y), y)
    >>> round(scores.coverage, 3), round(scores.calibration, 3)
    (0.9, 0.0)
    """
    central = np.abs(2 * found.below - 1)
    observed = np.array([np.mean(central <= level) for level in LEVELS])
    return Scores(
        float(np.sqrt(np.mean((found.mean - y) ** 2))),
        float(np.mean(np.maximum(np.nan_to_num(found.log_density, nan=WORST), WORST))),
        float(np.mean(central <= COVERED)),
        float(np.mean(np.abs(observed - LEVELS))),
    )
