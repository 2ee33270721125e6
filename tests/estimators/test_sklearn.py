"""scikit-learn's own checks of an estimator, over all of them, with privacy and without.

Without privacy none may fail. With it only those may that demand an error because of a record's value: in a
private fit such a record contributes nothing, since an error would tell on it. The checks do not declare
classes and seed what they fit, and the private fits warn of both.

The fits are made cheap by their parameters.
"""

from collections.abc import Iterator
from typing import Any

import pytest
from sklearn.base import is_classifier, is_regressor
from sklearn.utils.estimator_checks import parametrize_with_checks

from dpsep import Linear
from dpsep.inference import sketch
from dpsep.registry import ENTRIES


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
OPEN: dict[str, dict[str, Any]] = {
    "linear": {},
    "mixture": {"steps": 5, "method": "em"},
    "network": NETWORK | {"steps": 60, "method": "point"},
    "network-classifier": NETWORK | {"steps": 60, "method": "point"},
    "own": OWN | {"steps": 8, "factors": "laplace"},
    "mixed-classifier": {"family": "probit", "steps": 8},
}
"""What makes an estimator cheap without privacy; few steps do for others."""
PRIVATE: dict[str, dict[str, Any]] = {
    "linear": {"steps": 2},  # scales privately, the others by declared bounds
    "network": BOUNDS | NETWORK | {"covariance": "diagonal", "target_bounds": (-5, 5)},
    "network-classifier": BOUNDS | NETWORK | {"method": "vi"},
    "own": BOUNDS | OWN | {"steps": 2, "factors": "laplace"},
    "mixed-regressor": BOUNDS | {"steps": 2, "target_bounds": (-5, 5)},
    "mixed-classifier": BOUNDS | {"steps": 2, "family": "probit"},
}
"""The same with privacy; bounds and two steps do for others."""
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


@pytest.fixture(autouse=True, scope="module")
def _quick() -> Iterator[None]:
    """Search twice for the start of a mixture: whatever it is, the checks hold."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sketch, "RESTARTS", 2)
        yield


def expected(estimator: Any) -> dict[str, str]:
    """The checks that demand what would tell on a record, each with the reason why it fails."""
    return (
        INPUTS | (TARGETS if is_regressor(estimator) else {}) | (LABELS if is_classifier(estimator) else {})
    )


@parametrize_with_checks(
    [entry.load()(private=False, **OPEN.get(entry.name, {"steps": 8})) for entry in ENTRIES]
)
def test_scikit_learn_accepts_it_without_privacy(estimator, check):
    check(estimator)


@pytest.mark.filterwarnings("ignore::dpsep.PrivacyLeakWarning")  # of seeds and of classes not declared
@pytest.mark.filterwarnings("ignore::dpsep.WeakBudgetWarning")  # of tables of a few rows
@parametrize_with_checks(
    [entry.load()(**PRIVATE.get(entry.name, BOUNDS | {"steps": 2})) for entry in ENTRIES],
    expected_failed_checks=expected,
)
def test_scikit_learn_accepts_it_with_privacy(estimator, check):
    check(estimator)
