"""scikit-learn's own checks of an estimator, over all of them, with privacy and without.

Without privacy none may fail. With it only those may that demand an error because of a record's value: in a
private fit such a record contributes nothing, since an error would tell on it. The checks do not declare
classes and seed what they fit, and the private fits warn of both.

The fits are made cheap by their parameters.
"""

from typing import Any

import pytest
from sklearn.base import is_classifier, is_regressor
from sklearn.utils.estimator_checks import parametrize_with_checks

from dpsep import (
    BayesianModel,
    GaussianMixture,
    Linear,
    LinearRegression,
    LogisticRegression,
    MixedClassifier,
    MixedRegressor,
    NetworkClassifier,
    NetworkRegressor,
    PoissonRegression,
    ProbitRegression,
)


class Quadratic:
    """Linear regression with known noise, as a model of one's own; its name holds no address, as ids need."""

    def __call__(self, params: Any, record: Any) -> Any:
        return -0.5 * (record.y - params["u"]) ** 2

    def __repr__(self) -> str:
        return "quadratic"


class Predictor:
    def __call__(self, params: Any, record: Any) -> Any:
        return params["u"]

    def __repr__(self) -> str:
        return "predictor"


OWN: dict[str, Any] = {"log_likelihood": Quadratic(), "links": {"u": Linear()}, "mean": Predictor()}
BOUNDS: dict[str, Any] = {"bounds": (-5.0, 5.0)}
NETWORK: dict[str, Any] = {"hidden": 3, "steps": 2}
OPEN: list[tuple[Any, dict[str, Any]]] = [
    (LinearRegression, {}),
    (LogisticRegression, {"steps": 30}),
    (ProbitRegression, {"steps": 30}),
    (PoissonRegression, {"steps": 30}),
    (GaussianMixture, {"steps": 5, "method": "em"}),
    (NetworkRegressor, NETWORK | {"steps": 200, "method": "point"}),
    (NetworkClassifier, NETWORK | {"steps": 200, "method": "point"}),
    (BayesianModel, OWN | {"steps": 30, "factors": "laplace"}),
    (MixedRegressor, {"steps": 30}),
    (MixedClassifier, {"family": "probit", "steps": 30}),
]
"""Every estimator, and what makes it cheap without privacy."""
PRIVATE: list[tuple[Any, dict[str, Any]]] = [
    (LinearRegression, {"steps": 2}),  # scales privately, the others by declared bounds
    (LogisticRegression, BOUNDS | {"steps": 2}),
    (ProbitRegression, BOUNDS | {"steps": 2}),
    (PoissonRegression, BOUNDS | {"steps": 2}),
    (GaussianMixture, BOUNDS | {"steps": 2}),
    (NetworkRegressor, BOUNDS | NETWORK | {"covariance": "diagonal", "target_bounds": (-5, 5)}),
    (NetworkClassifier, BOUNDS | NETWORK | {"method": "vi"}),
    (BayesianModel, BOUNDS | OWN | {"steps": 2, "factors": "laplace"}),
    (MixedRegressor, BOUNDS | {"steps": 2, "target_bounds": (-5, 5)}),
    (MixedClassifier, BOUNDS | {"steps": 2, "family": "probit"}),
]
"""Every estimator, and what makes it cheap with privacy."""
INPUTS = {
    "check_dtype_object": "a cell that is no number makes its record contribute nothing; no error",
    "check_estimators_nan_inf": "a NaN or an infinity makes its record contribute nothing; no error",
}
_LISTS = "a list of rows is no table under privacy: its first record would say how many columns there are"
TARGETS = {
    "check_supervised_y_no_nan": "an infinite target makes its record contribute nothing; no error",
    "check_regressors_train": _LISTS,
}
LABELS = {"check_classifiers_train": _LISTS}


def expected(estimator: Any) -> dict[str, str]:
    """The checks that demand what would tell on a record, each with the reason why it fails."""
    return (
        INPUTS | (TARGETS if is_regressor(estimator) else {}) | (LABELS if is_classifier(estimator) else {})
    )


@parametrize_with_checks([maker(private=False, **cheap) for maker, cheap in OPEN])
def test_scikit_learn_accepts_it_without_privacy(estimator, check):
    check(estimator)


@pytest.mark.filterwarnings("ignore::dpsep.PrivacyLeakWarning")  # of seeds and of classes not declared
@pytest.mark.filterwarnings("ignore::dpsep.WeakBudgetWarning")  # of tables of a few rows
@parametrize_with_checks([maker(**cheap) for maker, cheap in PRIVATE], expected_failed_checks=expected)
def test_scikit_learn_accepts_it_with_privacy(estimator, check):
    check(estimator)
