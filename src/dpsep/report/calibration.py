"""Does a fitted model predict as it says? Coverage of its intervals, PIT values and reliability of labels.

The probability integral transform (PIT) of a target is the predictive probability of one up to it. Where
the model is right, PIT values are uniform on (0, 1), and a central interval of level L holds the target where
its PIT value lies within L / 2 of one half. Counts and labels jump over a range of probabilities; their PIT
value is drawn uniformly from that range (randomised PIT: Czado, Gneiting and Held 2009), which is uniform
again where the model is right.

**Privacy.** Everything here is computed from the targets it is given, row by row and without noise. For
private records the result is outside the guarantee of any fit: give rows that are public, and say so.
"""

from collections.abc import Sequence
from numbers import Real
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dpsep.estimators.predictive import PosteriorDraws
from dpsep.privacy.leaks import warn_leak

Array = NDArray[np.float64]
LEVELS = (0.5, 0.8, 0.9, 0.95)

__all__ = ["Calibration", "Reliability", "calibration"]


class Reliability(NamedTuple):
    """Predicted probabilities of the second class against how often it came.

    Attributes
    ----------
    predicted
        Mean predicted probability in each bin that holds rows.
    observed
        Share of the second class in it.
    rows
        Number of rows in it.

    Examples
    --------
    >>> from dpsep import LogisticRegression
    >>> X = np.linspace(-3, 3, 400)[:, None]
    >>> y = (X[:, 0] + np.sin(np.arange(400.0)) > 0).astype(int)
    >>> found = calibration(LogisticRegression(private=False).fit(X, y), X, y, public=True).reliability
    >>> int(found.rows.sum()), bool((np.diff(found.predicted) > 0).all())
    (400, True)
    """

    predicted: Array
    observed: Array
    rows: NDArray[np.int64]

    @property
    def expected_error(self) -> float:
        """Expected calibration error: mean distance of predicted and observed, weighted by rows."""
        return float(np.average(np.abs(self.predicted - self.observed), weights=self.rows))


class Calibration(NamedTuple):
    """How well predictions hold on some rows.

    Attributes
    ----------
    levels, coverage
        Nominal levels of central predictive intervals, and the share of targets inside them.
    pit
        PIT value of each row, randomised for counts and labels.
    reliability
        For classifiers; None for others.

    Examples
    --------
    >>> from dpsep import LinearRegression
    >>> X = np.linspace(-1, 1, 400)[:, None]
    >>> y = X[:, 0] + 0.1 * np.sin(np.arange(400.0))
    >>> found = calibration(LinearRegression(private=False).fit(X, y), X, y, levels=[0.5, 0.9], public=True)
    >>> found.levels, found.pit.shape, found.reliability is None
    (array([0.5, 0.9]), (400,), True)
    """

    levels: Array
    coverage: Array
    pit: Array
    reliability: Reliability | None

    @property
    def rows(self) -> int:
        """Number of rows that were looked at."""
        return len(self.pit)

    def standard_error(self) -> Array:
        """Binomial standard error of each coverage where the model is right."""
        return np.sqrt(self.levels * (1 - self.levels) / self.rows)

    def __repr__(self) -> str:
        lines = ["level  coverage  standard error"]
        for level, share, error in zip(self.levels, self.coverage, self.standard_error(), strict=True):
            lines.append(f"{level:5.2f}  {share:8.3f}  {error:14.3f}")
        lines.append(f"{self.rows} rows, mean PIT {self.pit.mean():.3f} (0.5 where the model is right)")
        if self.reliability is not None:
            lines.append(f"expected calibration error {self.reliability.expected_error:.3f}")
        return "\n".join(lines)


def calibration(
    estimator: Any,
    X: Any,
    y: Any,
    levels: float | Sequence[float] = LEVELS,
    *,
    public: bool = False,
    bins: int = 10,
    random_state: int | np.random.Generator | None = 0,
) -> Calibration:
    """Compare what a fitted regression, classifier or network predicts with targets that are known.

    The result is computed from each row's target without noise. It is not private unless the rows are public.

    Parameters
    ----------
    estimator
        Fitted, with a target.
    X, y
        Rows and their targets, best ones that the fit did not see.
    levels
        Nominal levels of the predictive intervals.
    public
        Say True where X and y are public. Otherwise a private estimator raises a `PrivacyLeakWarning`, and an
        error where it is strict.
    bins
        Number of equal bins of probability for classifiers.
    random_state
        Of the randomised PIT values.

    Examples
    --------
    >>> from dpsep import LinearRegression
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-1, 1, (4000, 2)); y = X @ [1.0, -2.0] + 0.1 * rng.standard_normal(4000)
    >>> model = LinearRegression(epsilon=1.0, bounds=(-1, 1), target_bounds=(-4, 4)).fit(X[:3000], y[:3000])
    >>> found = calibration(model, X[3000:], y[3000:], levels=0.9, public=True)
    >>> bool(abs(found.coverage[0] - 0.9) < 0.05)
    True
    """
    if not issubclass(type(estimator), PosteriorDraws):
        raise TypeError(
            f"a {type(estimator).__name__} has no target to be calibrated on; use a regression, a classifier "
            "or a network, and log_predictive_density for a mixture."
        )
    nominal = _levels(levels)
    if int(bins) != bins or bins < 1:
        raise ValueError(f"bins must be a whole number of at least 1, not {bins!r}.")
    warn_of_rows(estimator, "calibration", public=public)
    below, upto = estimator.predictive_cdf(X, y)
    if not len(below):
        raise ValueError("calibration needs at least one row.")
    if not (np.isfinite(below).all() and np.isfinite(upto).all()):
        raise ValueError("y holds missing or infinite targets; leave those rows out.")
    pit = below + np.random.default_rng(random_state).uniform(size=len(below)) * (upto - below)
    coverage = (np.abs(pit - 0.5)[None, :] <= nominal[:, None] / 2).mean(axis=1)
    reliability = None
    if hasattr(estimator, "classes_"):
        second = np.asarray(y).reshape(-1) == estimator.classes_[1]
        reliability = _reliability(estimator.predict_proba(X)[:, 1], second, int(bins))
    return Calibration(nominal, coverage, pit, reliability)


def warn_of_rows(estimator: Any, what: str, *, public: bool) -> None:
    """Warn that rows and targets are shown without noise, where the fit was private and they may be too."""
    if estimator.private and not public:
        warn_leak(
            f"{what} reads targets without noise: for private records its result is outside the guarantee. "
            "Use rows that are public and say public=True.",
            strict=bool(estimator.strict),
        )


def _levels(levels: float | Sequence[float]) -> Array:
    nominal = np.array([levels] if isinstance(levels, Real) else levels, dtype=np.float64)
    if nominal.ndim != 1 or not len(nominal) or not ((nominal > 0) & (nominal < 1)).all():
        raise ValueError(f"levels must be numbers between 0 and 1, such as {LEVELS}, not {levels!r}.")
    return nominal


def _reliability(probability: Array, second: NDArray[np.bool_], bins: int) -> Reliability:
    place = np.minimum((probability * bins).astype(int), bins - 1)
    rows = np.bincount(place, minlength=bins)
    held = rows > 0
    predicted = np.bincount(place, probability, bins)[held] / rows[held]
    observed = np.bincount(place, second.astype(np.float64), bins)[held] / rows[held]
    return Reliability(predicted, observed, rows[held])
