r"""Do intervals under privacy cover the truth as often as they say? Simulated tables, many of them.

A data set is drawn from the model itself: weights from a distribution no wider than the prior, features that
are standard normal and clamped to declared bounds, outcomes from the likelihood. Then a posterior is fitted
with privacy, and every coefficient's central interval either holds the true value or does not. With
`noise_aware` the interval knows the noise that privacy added; without, it is that of q alone, which stands
for a user who takes the private posterior at its word.

Coefficients of one data set are fitted together, so the standard error of a coverage is taken over data sets.

**Privacy.** Made data only; the noise is seeded, so nothing here is for release.
"""

import math
import warnings
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from dpsep.estimators import LinearRegression, LogisticRegression, PoissonRegression, ProbitRegression
from dpsep.privacy.leaks import PrivacyLeakWarning

Kind = Literal["linear", "logistic", "probit", "poisson"]
"""The regressions whose intervals are checked."""
REACH = 3.0
"""Features are clamped to plus and minus this many standard deviations, which are their declared bounds."""
TARGET = 5.0
"""Declared bound of the target of a linear regression."""
NOISE = 0.5
"""Noise standard deviation of a linear regression."""

Array = NDArray[np.float64]


def coverage(
    kind: Kind,
    epsilon: float = 1.0,
    datasets: int = 200,
    records: int = 5000,
    features: int = 5,
    *,
    delta: float = 1e-5,
    level: float = 0.9,
    seed: int = 0,
    **parameters: Any,
) -> list[dict[str, Any]]:
    """Share of true coefficients, the intercept among them, inside their intervals.

    Parameters
    ----------
    kind
        ``"linear"`` (noise learned), ``"logistic"``, ``"probit"`` or ``"poisson"``.
    epsilon, delta
        Budget of each fit.
    datasets
        Number of made data sets.
    records, features
        Shape of each.
    level
        Nominal level of the intervals.
    seed
        Of the data and of the noise.
    parameters
        Handed to the estimator.

    Returns
    -------
    Two rows, with `noise_aware` and without: the coverage, its standard error over data sets, the mean width
    of an interval over that of the same interval without noise of privacy, and the root mean square of the
    errors in posterior standard deviations (1 where the posterior is calibrated).

    Examples
    --------
    >>> rows = coverage("linear", datasets=2, records=400, features=2)
    >>> [row["noise_aware"] for row in rows], rows[0]["coefficients"]
    ([True, False], 6)
    """
    if kind not in get_args(Kind):
        raise ValueError(f"kind is {kind!r}; it must be one of {', '.join(get_args(Kind))}.")
    if datasets < 2:
        raise ValueError(f"datasets is {datasets}; a standard error needs at least 2.")
    errors, wide, narrow = [], [], []
    for number in range(datasets):
        x, y, truth = simulate(kind, records, features, seed=(seed, number))
        model = _estimator(kind, epsilon=epsilon, delta=delta, random_state=seed + number, **parameters)
        with warnings.catch_warnings():
            # The seed is meant: this is an experiment on made data.
            warnings.simplefilter("ignore", PrivacyLeakWarning)
            posterior = model.fit(x, y).posterior_
        errors.append(posterior.mean - truth)
        wide.append(np.diagonal(posterior.covariance))
        narrow.append(np.diagonal(posterior.covariance - posterior.noise_covariance))
    public = {"kind": kind, "epsilon": epsilon, "delta": delta, "records": records, "features": features}
    public |= {"datasets": datasets, "level": level, "coefficients": datasets * (features + 1)}
    base = np.sqrt(np.asarray(narrow))
    return [
        public | {"noise_aware": aware} | _row(np.asarray(errors), np.sqrt(np.asarray(variance)), base, level)
        for aware, variance in ((True, wide), (False, narrow))
    ]


def simulate(
    kind: Kind, records: int, features: int, *, seed: int | tuple[int, ...]
) -> tuple[Array, Array, Array]:
    """Draw a table: features, target, and the true coefficients with the intercept first.

    Per scaled unit (the reach of the bounds) a coefficient has standard deviation one, or less in a linear
    regression, whose target is scaled too; the intercept has one half. Neither exceeds the default prior's.
    """
    rng = np.random.default_rng(seed)
    x = np.clip(rng.standard_normal((records, features)), -REACH, REACH)
    truth = np.concatenate([0.5 * rng.standard_normal(1), rng.standard_normal(features) / REACH])
    u = truth[0] + x @ truth[1:]
    if kind == "linear":
        return x, u + NOISE * rng.standard_normal(records), truth
    if kind == "poisson":
        return x, rng.poisson(np.exp(u)).astype(np.float64), truth
    hidden = rng.logistic(size=records) if kind == "logistic" else rng.standard_normal(records)
    return x, np.where(hidden < u, 1.0, -1.0), truth


def _estimator(kind: Kind, **parameters: Any) -> Any:
    parameters.setdefault("bounds", (-REACH, REACH))
    if kind == "linear":
        parameters.setdefault("target_bounds", (-TARGET, TARGET))
        return LinearRegression(**parameters)
    if kind == "poisson":
        return PoissonRegression(**parameters)
    parameters.setdefault("classes", [-1.0, 1.0])
    return LogisticRegression(**parameters) if kind == "logistic" else ProbitRegression(**parameters)


def _row(errors: Array, sd: Array, base: Array, level: float) -> dict[str, float]:
    # Imported here: the command line must start without SciPy's distributions.
    from scipy.stats import norm

    inside = (np.abs(errors) <= norm.ppf(0.5 + level / 2) * sd).mean(axis=1)
    return {
        "coverage": float(inside.mean()),
        "standard_error": float(inside.std(ddof=1) / math.sqrt(len(inside))),
        "width_ratio": float((sd / base).mean()),
        "error_in_sds": float(np.sqrt(((errors / sd) ** 2).mean())),
    }
