"""The posterior a user gets: of the coefficients in the table's own units, with the noise of privacy in it.

The algorithms work with scaled columns; a posterior of linear weights maps to the original columns by a
linear map, exactly. Under privacy the mean of q carries noise of a known law: `covariance` has it added
(`noise_aware`), so that intervals are honest about both sources; `noise_covariance` is the noise's part
alone.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dpsep.estimators.summary import LEFT_OUT, Summary, interval_row, spans
from dpsep.inference.release_trace import Table
from dpsep.models.glm import Columns

Array = NDArray[np.float64]

SURE = 1e-3
"""Prior standard deviation below which a coefficient was known beforehand."""
MOSTLY = 0.5
"""Posterior over prior standard deviation above which a coefficient is mostly its prior."""


class Posterior(NamedTuple):
    """Gaussian posterior of the coefficients, the intercept first where there is one.

    Attributes
    ----------
    names
        Of the coefficients.
    mean, covariance
        Moments, in the units of the table; the covariance includes the noise of privacy if `noise_aware`.
    noise_covariance
        Part of the covariance that the noise of privacy causes.
    noise_shape, noise_rate
        Gamma posterior of the noise precision, in the units of the target; None where there is none.
    noise_aware
        Whether the covariance includes the noise of privacy.
    prior_sd
        Prior standard deviations of the coefficients; None in posteriors of earlier versions, and of models
        that have other priors.

    Examples
    --------
    >>> from dpsep import LinearRegression
    >>> X = np.linspace(-1, 1, 60)[:, None]
    >>> posterior = LinearRegression(private=False).fit(X, 1 + 2 * X[:, 0]).posterior_
    >>> posterior.names, posterior.mean.round(2)
    (('intercept', 'x0'), array([1., 2.]))
    """

    names: tuple[str, ...]
    mean: Array
    covariance: Array
    noise_covariance: Array
    noise_shape: float | None = None
    noise_rate: float | None = None
    noise_aware: bool = True
    prior_sd: Array | None = None

    @property
    def sd(self) -> Array:
        """Posterior standard deviations."""
        return np.sqrt(np.diagonal(self.covariance))

    def interval(self, level: float = 0.9) -> Array:
        """Central intervals, shape (coefficients, 2).

        Examples
        --------
        >>> Posterior(("a",), np.zeros(1), np.eye(1), np.zeros((1, 1))).interval(0.9).round(3)
        array([[-1.645,  1.645]])
        """
        reach = spans(level) * self.sd
        return np.stack([self.mean - reach, self.mean + reach], axis=1)

    def sample(self, draws: int, random_state: int | np.random.Generator | None = None) -> Array:
        """Draw coefficients, shape (draws, coefficients)."""
        generator = np.random.default_rng(random_state)
        factor = np.linalg.cholesky(self.covariance)
        return self.mean + generator.standard_normal((draws, len(self.mean))) @ factor.T

    def summary(self, level: float = 0.9) -> Summary:
        """Return one row a coefficient: mean, sd, interval, and how much of it is noise of privacy."""
        noise = np.diagonal(self.noise_covariance)
        rows = [
            {"name": name} | interval_row(mean, variance, part if self.noise_aware else 0.0, level)
            for name, mean, variance, part in zip(
                self.names, self.mean, np.diagonal(self.covariance), noise, strict=True
            )
        ]
        noisy = bool(np.any(noise > 0))
        notes = [LEFT_OUT] if noisy and not self.noise_aware else []
        unreached = [name for name, one in zip(self.names, self.unreached, strict=True) if one]
        if unreached:
            notes.append(f"prior: the data say little or nothing of {', '.join(unreached)}.")
        return Summary(rows, level=level, noise=noisy, note=" ".join(notes))

    @property
    def unreached(self) -> NDArray[np.bool_]:
        """Which coefficients are mostly their prior: more than half as unsure as before the fit."""
        if self.prior_sd is None:
            return np.zeros(len(self.mean), np.bool_)
        return (self.sd > MOSTLY * self.prior_sd) & (self.prior_sd > SURE)


def to_original(
    names: tuple[str, ...],
    mean: Array,
    covariance: Array,
    noise_covariance: Array,
    features: Columns,
    outcome: Columns,
    noise: tuple[float, float] | None,
    *,
    intercept: bool,
    prior: Array | None = None,
) -> Posterior:
    """Map a posterior of scaled weights, and their prior deviations, to the units of the table."""
    matrix, shift = table_map(features, outcome, intercept=intercept)
    moved = matrix @ mean + shift
    shape, rate = (None, None) if noise is None else (noise[0], noise[1] * float(outcome.scale) ** 2)
    before = None if prior is None else np.sqrt(np.diagonal(matrix @ np.diag(prior**2) @ matrix.T))
    both = matrix @ covariance @ matrix.T, matrix @ noise_covariance @ matrix.T
    return Posterior(names, moved, *both, shape, rate, prior_sd=before)


def table_map(features: Columns, outcome: Columns, *, intercept: bool) -> Table:
    """Return the map of scaled weights to the units of the table.

    With x' = (x - c) / s and y' = (y - a) / b: coefficient b w / s, intercept a + b (w_0 - sum_j w_j c_j /
    s_j).
    """
    scale, centre = np.asarray(features.scale), np.asarray(features.centre)
    size = float(outcome.scale)
    matrix = np.diag(size / scale)
    shift = np.zeros(len(scale) + intercept)
    if intercept:
        matrix = np.block(
            [[np.full((1, 1), size), -size * (centre / scale)[None, :]], [np.zeros((len(scale), 1)), matrix]]
        )
        shift[0] = float(outcome.centre)
    return Table(matrix, shift)
