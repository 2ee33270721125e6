"""Kinds of targets: numbers, positive numbers, counts, two labels.

A kind knows how cells become numbers, which numbers it allows, how new targets lie about their mean, and what
scikit-learn is told. A regression names its kind (`target`) and its likelihood; the rest follows.

**Privacy.** `convert` works cell by cell: what becomes of one depends on no other. `check` looks at all
values and belongs to fits without privacy.
"""

from typing import Any, cast

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from dpsep.estimators.input_checks import declared_scaling, no_scaling, numbers, signs
from dpsep.estimators.large import pieces
from dpsep.estimators.outcomes import averaged
from dpsep.estimators.private import mark_score
from dpsep.families.columns import Columns

__all__ = ["Binary", "Count", "Positive", "Real", "Target", "TargetTags"]

Array = NDArray[np.float64]


class Target:
    """What all kinds share."""

    name: str
    """As `dpsep.registry` has it."""
    is_label = False
    log_link = False
    """Whether the expected target is the exponential of the predictor."""

    def convert(self, y: Any, estimator: Any) -> Array:
        """Return targets as a likelihood takes them; NaN for a cell that makes no sense."""
        return numbers(y)

    def allowed(self, y: Array) -> NDArray[np.bool_]:
        """Say of each finite number whether it can be a target."""
        return np.ones(np.shape(y), bool)

    def check(self, y: Any) -> None:
        """Raise ValueError where a target is out of range; without privacy only."""
        if any(not self.allowed(piece).all() for piece in pieces(y)):
            raise ValueError(f"Input y holds {self._refused}")

    _refused = ""

    def scaling(self, estimator: Any) -> Columns | None:
        """Return how targets are scaled before the fit; None where the fit finds it."""
        return no_scaling(1)

    def mark(self, tags: Any) -> None:
        """Tell scikit-learn what such targets are."""

    def expected(self, u: Array) -> Array:
        """Return the expected target at each predictor."""
        return np.exp(u) if self.log_link else u

    def below(self, likelihood: Any, mean: Array, variance: Array, y: Array) -> tuple[Array, Array]:
        """Probability of a target below y, and of one up to y, where predictors have these moments."""
        raise NotImplementedError

    def interval(self, mean: Array, deviation: Array, level: float) -> tuple[Array, Array]:
        """Central interval of new targets with these moments."""
        reach = stats.norm.ppf(0.5 + level / 2)
        return mean - reach * deviation, mean + reach * deviation


class Real(Target):
    """Numbers, scaled by their declared bounds or by the fit."""

    name = "number"

    def scaling(self, estimator: Any) -> Columns | None:
        """Return the scaling of the declared bounds, if any."""
        if estimator.target_bounds is not None:
            return declared_scaling(estimator.target_bounds, 1, "the target")
        return None


class Binary(Target):
    """Two labels, -1 and +1 by their place among the classes."""

    name = "label"
    is_label = True

    def convert(self, y: Any, estimator: Any) -> Array:
        """Return the sign of each label."""
        return signs(y, estimator.classes_)

    def mark(self, tags: Any) -> None:
        """Tell scikit-learn that there are two classes."""
        tags.classifier_tags.multi_class = False


class Count(Target):
    """Numbers that are not negative, whole ones as a rule, with the exponential of the predictor as mean."""

    name = "count"
    log_link = True
    _refused = "negative values; Poisson targets are counts, 0 or more."

    def allowed(self, y: Array) -> NDArray[np.bool_]:
        """Numbers of at least zero."""
        return ~(np.asarray(y) < 0)

    def mark(self, tags: Any) -> None:
        """Tell scikit-learn that targets are not negative."""
        tags.target_tags.positive_only = True

    def below(self, likelihood: Any, mean: Array, variance: Array, y: Array) -> tuple[Array, Array]:
        """Probabilities by quadrature over the predictor."""
        low, high = (
            averaged(lambda u, edge=edge: np.asarray(likelihood.cdf(u, edge[:, None])), mean, variance)
            for edge in (np.ceil(y) - 1.0, np.floor(y))
        )
        return low, high

    def interval(self, mean: Array, deviation: Array, level: float) -> tuple[Array, Array]:
        """Quantiles of the negative binomial; near a Poisson's where mean and variance are nearly equal."""
        extra = np.maximum(deviation**2 - mean, 1e-9 * mean)
        size, chance = mean**2 / extra, mean / (mean + extra)
        low, high = 0.5 - level / 2, 0.5 + level / 2
        return stats.nbinom.ppf(low, size, chance), stats.nbinom.ppf(high, size, chance)


class Positive(Target):
    """Numbers above zero, with the exponential of the predictor as mean; their likelihood has a `cdf`."""

    name = "positive"
    log_link = True
    _refused = "values that are not positive; targets of this regression are above 0."

    def scaling(self, estimator: Any) -> Columns | None:
        """Return the unit that targets are given in: the middle of the bounds, on a logarithmic scale.

        Only an intercept can take a unit up; without one there is none.
        """
        if not estimator.fit_intercept:
            return no_scaling(1)
        if estimator.target_bounds is None:
            return None
        bounds = declared_scaling(estimator.target_bounds, 1, "the target")
        if not bounds.low[0] > 0:
            raise ValueError(f"bounds of the target must be positive, not {estimator.target_bounds!r}.")
        return no_scaling(1)._replace(scale=np.sqrt(bounds.low * bounds.high))

    def allowed(self, y: Array) -> NDArray[np.bool_]:
        """Numbers above zero."""
        return ~(np.asarray(y) <= 0)

    def mark(self, tags: Any) -> None:
        """Tell scikit-learn that targets are positive."""
        tags.target_tags.positive_only = True

    def below(self, likelihood: Any, mean: Array, variance: Array, y: Array) -> tuple[Array, Array]:
        """Probabilities by quadrature over the predictor; the two are equal."""
        found = averaged(lambda u: np.asarray(likelihood.cdf(u, y[:, None])), mean, variance)
        return found, found

    def interval(self, mean: Array, deviation: Array, level: float) -> tuple[Array, Array]:
        """Quantiles of the Gamma distribution with these moments."""
        shape, scale = (mean / deviation) ** 2, deviation**2 / mean
        low, high = 0.5 - level / 2, 0.5 + level / 2
        return stats.gamma.ppf(low, shape, scale=scale), stats.gamma.ppf(high, shape, scale=scale)


class TargetTags:
    """Tells scikit-learn what an estimator's targets are; before its mixins among the bases."""

    def __sklearn_tags__(self) -> Any:
        """Tell scikit-learn what to expect."""
        estimator, tags = cast(Any, self), cast(Any, super()).__sklearn_tags__()
        estimator.target.mark(tags)
        return mark_score(tags, private=estimator.private)
