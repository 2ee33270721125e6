"""scikit-learn's own checks of an estimator, on fits without privacy.

Private fits are not put through them: they need seeds or declared classes that the checks do not give, and
the checks compare results on thirty rows, where privacy leaves little to compare.
"""

from typing import Any

import numpy as np
from sklearn.utils.estimator_checks import parametrize_with_checks

from dpsep import LinearRegression, PoissonRegression, ProbitRegression
from dpsep.models import PoissonLikelihood

WEIGHTS = "a weight would multiply a record's influence; sample_weight is refused"
EXPECTED = {
    "check_sample_weights_pandas_series": WEIGHTS,
    "check_sample_weights_not_an_array": WEIGHTS,
    "check_sample_weights_list": WEIGHTS,
    "check_all_zero_sample_weights_error": WEIGHTS,
    "check_sample_weights_shape": WEIGHTS,
    "check_sample_weights_not_overwritten": WEIGHTS,
    "check_sample_weight_equivalence_on_dense_data": WEIGHTS,
    "check_dtype_object": "a cell that is no number counts as missing: a ValueError, not a TypeError",
}


BINARY = {
    "check_classifiers_one_label_sample_weights": WEIGHTS,
    "check_decision_proba_consistency": "probabilities average over the posterior, scores are its mean",
}


class Counts(PoissonRegression):
    """The checks' targets are not whole numbers; this rounds them down. The short rule compiles faster."""

    def _target(self, y: Any) -> np.ndarray:
        return np.floor(super()._target(y))

    def _likelihood(self, *, narrow: bool) -> Any:
        del narrow
        return PoissonLikelihood("fast")


# Logistic and probit regression share everything that is checked here; the second compiles faster.
ESTIMATORS = [LinearRegression(private=False), ProbitRegression(private=False), Counts(private=False)]


def expected(estimator: Any) -> dict[str, str]:
    return EXPECTED | (BINARY if isinstance(estimator, ProbitRegression) else {})


@parametrize_with_checks(ESTIMATORS, expected_failed_checks=expected)
def test_scikit_learn_accepts_it(estimator, check):
    check(estimator)
