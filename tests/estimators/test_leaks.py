"""Leaks are told from structure: each is a warning that says what to do, an error under strict, and listed.

What a call's own parameters give away is tested for every kind of estimator; what stands around a fit in a
pipeline or a search, for one of each kind of target.
"""

# scikit-learn has no types; what is inferred from its defaults and loops is narrower than what it takes.
# pyright: reportArgumentType=false, reportAttributeAccessIssue=false, reportCallIssue=false

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.calibration import CalibratedClassifierCV
from sklearn.compose import ColumnTransformer, TransformedTargetRegressor
from sklearn.decomposition import PCA
from sklearn.ensemble import BaggingRegressor, VotingRegressor
from sklearn.frozen import FrozenEstimator
from sklearn.impute import SimpleImputer
from sklearn.model_selection import GridSearchCV, KFold, cross_val_predict, cross_val_score
from sklearn.pipeline import FeatureUnion, Pipeline, make_pipeline
from sklearn.preprocessing import (
    FunctionTransformer,
    MinMaxScaler,
    Normalizer,
    OneHotEncoder,
    OrdinalEncoder,
    PolynomialFeatures,
    SplineTransformer,
    StandardScaler,
)

from dpsep import GaussianMixture, LinearRegression, LogisticRegression, NetworkRegressor, OverBudget
from dpsep.estimators.pipeline_leaks import upstream
from dpsep.privacy.leaks import PrivacyLeakError, PrivacyLeakWarning
from dpsep.privacy.ledger import Ledger

from .made import BINARY, LINEAR, table

X, Y = table(LinearRegression)
LABELS = table(LogisticRegression)[1]
PUBLIC = np.random.default_rng(5).uniform(-1, 1, (20, 2))
KFOLD = KFold(2)


def linear(**more: Any) -> LinearRegression:
    return LinearRegression(**(LINEAR | {"steps": 2} | more))


def logistic(**more: Any) -> LogisticRegression:
    return LogisticRegression(**(BINARY | {"steps": 2} | more))


def told(work: Any) -> list[str]:
    """The leaks that were warned of in a piece of work, each once."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", PrivacyLeakWarning)
        work()
    leaks = [str(item.message) for item in caught if issubclass(item.category, PrivacyLeakWarning)]
    return list(dict.fromkeys(leaks))


def last(model: Any) -> Any:
    return model[-1] if isinstance(model, Pipeline) else model


# What the parameters of a call give away.

ESTIMATORS: list[tuple[Any, dict[str, Any], Any]] = [
    (LinearRegression, LINEAR | {"steps": 2}, Y),
    (LogisticRegression, BINARY | {"steps": 2}, LABELS),
    (GaussianMixture, {"bounds": (-1, 1), "steps": 2}, None),
    (NetworkRegressor, LINEAR | {"steps": 2, "hidden": 2, "method": "point"}, Y),
]
IDS = [maker.__name__ for maker, _, _ in ESTIMATORS]
SETTINGS: list[tuple[dict[str, Any], str, str]] = [
    ({"epsilon": 12.0}, "epsilon=12 is above 10", "Choose a smaller epsilon"),
    ({"delta": 0.01}, "above 1/N = 0.0025", "Choose a smaller delta"),
    ({"random_state": 0}, "random_state fixes the noise", "Leave it out"),
]


@pytest.mark.parametrize(("maker", "clean", "y"), ESTIMATORS, ids=IDS)
def test_a_call_that_declares_everything_is_silent_and_lists_no_leak(maker, clean, y):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = maker(epsilon=10.0, delta=1 / 400, strict=True, **clean).fit(X, y)
    assert model.privacy_.leaks == ()


@pytest.mark.parametrize(
    ("setting", "what", "instead"), SETTINGS, ids=[next(iter(s)) for s, _, _ in SETTINGS]
)
@pytest.mark.parametrize(("maker", "clean", "y"), ESTIMATORS, ids=IDS)
def test_settings_that_weaken_the_promise_are_told(maker, clean, y, setting, what, instead):
    with pytest.warns(PrivacyLeakWarning, match=what) as caught:
        model = maker(**(clean | setting)).fit(X, y)
    assert [str(item.message) for item in caught] == list(model.privacy_.leaks)
    assert instead in model.privacy_.leaks[0]
    with pytest.raises(PrivacyLeakError, match=what):
        maker(strict=True, **(clean | setting)).fit(X, y)


def test_classes_that_are_not_declared_are_told():
    leaks = told(lambda: logistic(classes=None).fit(X, LABELS))
    assert len(leaks) == 1
    assert "classes=[negative, positive]" in leaks[0]
    with pytest.raises(PrivacyLeakError, match="classes are not declared"):
        logistic(classes=None, strict=True).fit(X, LABELS)


def test_without_privacy_there_is_nothing_to_leak():
    model = make_pipeline(StandardScaler(), linear(private=False, random_state=0, delta=0.5, epsilon=50))
    assert not told(lambda: cross_val_score(model, X, Y, cv=2))


# What stands before the fit in a pipeline.


class Halves(TransformerMixin, BaseEstimator):
    """A user's own transformer, which learns a mean."""

    def fit(self, X: Any, y: Any = None) -> "Halves":
        self.mean_ = np.mean(X)
        return self

    def transform(self, X: Any) -> Any:
        return np.asarray(X) / 2


LEARNED: dict[str, tuple[Any, str]] = {
    "scaler": (make_pipeline(StandardScaler(), linear()), "standardscaler (StandardScaler) learned"),
    "two": (
        make_pipeline(SimpleImputer(), PCA(2), linear()),
        "simpleimputer (SimpleImputer), pca (PCA) learned",
    ),
    "inner pipeline": (
        make_pipeline(make_pipeline(FunctionTransformer(), MinMaxScaler()), linear()),
        "pipeline.minmaxscaler (MinMaxScaler) learned",
    ),
    "outer pipeline": (
        make_pipeline(StandardScaler(), make_pipeline(FunctionTransformer(), linear())),
        "standardscaler (StandardScaler) learned",
    ),
    "columns": (
        make_pipeline(ColumnTransformer([("a", StandardScaler(), [0]), ("b", "passthrough", [1])]), linear()),
        "columntransformer.a (StandardScaler) learned",
    ),
    "union": (
        make_pipeline(FeatureUnion([("a", PCA(1)), ("b", FunctionTransformer())]), linear()),
        "featureunion.a (PCA) learned",
    ),
    "own": (make_pipeline(Halves(), linear()), "halves (Halves) learned"),
    "knots": (make_pipeline(SplineTransformer(), linear()), "splinetransformer (SplineTransformer) learned"),
    "categories": (make_pipeline(OneHotEncoder(sparse_output=False), linear()), "read categories off"),
    "rare categories": (
        make_pipeline(OrdinalEncoder(categories=[[-1, 0, 1]] * 2, min_frequency=2), linear()),
        "ordinalencoder (OrdinalEncoder) read categories off",
    ),
    "target": (
        TransformedTargetRegressor(linear(), transformer=StandardScaler()),
        "the target's transformer (StandardScaler) learned",
    ),
}


@pytest.mark.parametrize(("model", "what"), LEARNED.values(), ids=LEARNED)
def test_a_step_that_learned_from_the_records_is_told_by_name(model, what):
    cells = np.sign(X).round() if "categories" in what else X
    leaks = told(lambda: model.fit(cells, Y))
    assert len(leaks) == 1
    assert what in leaks[0]
    assert "categories=[[...], ...]" in leaks[0] if "categories" in what else "declare bounds=" in leaks[0]


LEARNS_NOTHING: dict[str, list[Any]] = {
    "function": [FunctionTransformer(np.tanh)],
    "rows alone": [Normalizer()],
    "passthrough": ["passthrough", None],
    "shape alone": [PolynomialFeatures(2)],
    "declared one-hot": [OneHotEncoder(categories=[[-1.0, 1.0]] * 2, sparse_output=False)],
    "declared ordinal": [OrdinalEncoder(categories=[[-1.0, 1.0]] * 2)],
    "declared knots": [SplineTransformer(knots=np.linspace(-1, 1, 6).reshape(3, 2))],
    "constant": [SimpleImputer(strategy="constant", fill_value=0.0, keep_empty_features=True)],
    "frozen": [FrozenEstimator(StandardScaler().fit(PUBLIC))],
    "declared columns": [
        ColumnTransformer(
            [("a", OneHotEncoder(categories=[[-1.0, 1.0]], sparse_output=False), [0])],
            remainder="passthrough",
        )
    ],
}


@pytest.mark.parametrize("steps", LEARNS_NOTHING.values(), ids=LEARNS_NOTHING)
def test_a_step_that_learns_nothing_is_silent_even_under_strict(steps):
    cells = np.where(X > 0, 1.0, -1.0)
    model = Pipeline(
        [*((str(place), step) for place, step in enumerate(steps)), ("fit", linear(strict=True))]
    )
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.fit(cells, Y)
    assert model[-1].privacy_.leaks == ()


def test_a_step_that_learned_is_listed_in_the_statement_and_refused_under_strict_before_a_charge(tmp_path):
    model = make_pipeline(StandardScaler(), linear())
    leaks = told(lambda: model.fit(X, Y))
    assert list(model[-1].privacy_.leaks) == leaks
    ledger = Ledger.create(tmp_path / "budget", epsilon=5.0, delta=1e-3)
    with pytest.raises(PrivacyLeakError, match="standardscaler"):
        make_pipeline(StandardScaler(), linear(strict=True, ledger=ledger)).fit(X, Y)
    assert ledger.spent().epsilon == 0


def test_what_is_told_does_not_depend_on_the_records():
    other = np.full_like(X, 777.25)
    other[3] = [np.nan, np.inf]
    one, two = (
        told(lambda cells=cells: make_pipeline(Halves(), linear(random_state=0)).fit(cells, Y))
        for cells in (X, other)
    )
    assert len(one) == 2
    assert one == two


# What repeats the fit.

SCORED = "held-out records without noise"


def test_a_search_without_a_ledger_says_what_its_fits_cost_and_that_scores_are_not_private():
    search = GridSearchCV(linear(epsilon=0.5), {"prior_scale": [1.0, 2.0]}, cv=KFOLD)
    leaks = told(lambda: search.fit(X, Y))
    assert len(leaks) == 2
    assert "GridSearchCV fits again and again" in leaks[0]
    assert "each fit spends epsilon=0.5 and delta=1e-05, and k of them spend up to k times both" in leaks[0]
    assert SCORED in leaks[1]
    assert list(search.best_estimator_.privacy_.leaks) == leaks


def test_with_a_ledger_every_fit_of_a_search_is_charged_and_scores_are_still_told(tmp_path):
    ledger = Ledger.create(tmp_path / "budget", epsilon=5.0, delta=1e-3)
    search = GridSearchCV(linear(epsilon=0.5, ledger=ledger), {"prior_scale": [1.0, 2.0]}, cv=KFOLD)
    leaks = told(lambda: search.fit(X, Y))
    assert len(leaks) == 1
    assert SCORED in leaks[0]
    # Two settings on two folds, and the best once more on all records.
    assert ledger.spent().epsilon == pytest.approx(5 * 0.5, rel=1e-3)


def test_a_search_beyond_the_ledger_s_budget_is_refused(tmp_path):
    ledger = Ledger.create(tmp_path / "budget", epsilon=1.2, delta=1e-3)
    search = GridSearchCV(
        linear(epsilon=0.5, ledger=ledger), {"clip": [1.0, 2.0]}, cv=KFOLD, error_score="raise"
    )
    with pytest.raises(OverBudget), pytest.warns(PrivacyLeakWarning, match=SCORED):
        search.fit(X, Y)
    assert ledger.spent().epsilon == pytest.approx(1.0, rel=1e-3)


def test_a_search_is_refused_under_strict():
    search = GridSearchCV(linear(strict=True), {"clip": [1.0]}, cv=KFOLD, error_score="raise")
    with pytest.raises(PrivacyLeakError, match="GridSearchCV fits again"):
        search.fit(X, Y)


@pytest.mark.parametrize("jobs", [None, 2])
@pytest.mark.parametrize("work", [cross_val_score, cross_val_predict], ids=["score", "predict"])
def test_cross_validation_is_told_in_other_threads_too(work, jobs):
    import joblib

    with joblib.parallel_config("threading"):
        leaks = told(lambda: work(linear(), X, Y, cv=KFOLD, n_jobs=jobs))
    assert [SCORED in leak for leak in leaks] == [False, True]
    if jobs is None:
        assert leaks[0].startswith(work.__name__)


def test_classifiers_are_told_of_stratified_folds_and_regressors_are_not():
    (_, classes), (_, values) = (
        told(lambda model=model, y=y: cross_val_score(model, X, y, cv=KFOLD))
        for model, y in ((logistic(), LABELS), (linear(), Y))
    )
    assert "cv=KFold(...)" in classes
    assert "KFold" not in values


def test_ensembles_repeat_fits_and_bootstraps_repeat_records():
    (votes,) = told(lambda: VotingRegressor([("a", linear()), ("b", linear())]).fit(X, Y))
    assert votes.startswith("VotingRegressor fits again and again")
    # Bagging also seeds what it fits.
    seeded, repeated, drawn = told(lambda: BaggingRegressor(linear(), n_estimators=2).fit(X, Y))
    assert seeded.startswith("random_state")
    assert repeated.startswith("BaggingRegressor fits again and again")
    assert "the guarantee is for one row. Set bootstrap=False" in drawn
    assert len(told(lambda: BaggingRegressor(linear(), n_estimators=2, bootstrap=False).fit(X, Y))) == 2


def test_calibration_holds_records_out():
    leaks = told(lambda: CalibratedClassifierCV(logistic(), cv=KFOLD).fit(X, LABELS))
    assert any("CalibratedClassifierCV" in leak and SCORED in leak for leak in leaks)


def test_a_pipeline_in_a_search_is_told_of_both():
    model = make_pipeline(StandardScaler(), linear())
    leaks = told(lambda: cross_val_score(model, X, Y, cv=KFOLD))
    assert ["standardscaler" in leak for leak in leaks] == [True, False, False]


def test_frames_of_scikit_learn_that_neither_learn_nor_repeat_are_nothing_to_tell():
    seen = []
    FunctionTransformer(lambda cells: seen.append(upstream()), check_inverse=False).fit(X).transform(X)
    assert seen == [((), (), None, None, None)]


def test_classes_of_another_type_than_the_target_are_refused_before_the_charge(tmp_path: Path) -> None:
    ledger = Ledger.create(tmp_path / "study.db", epsilon=1, delta=1e-2)
    model = LogisticRegression(1.0, 1e-3, bounds=(-1, 1), classes=["no", "yes"], ledger=ledger)
    with pytest.raises(ValueError, match="the target holds numbers and the declared classes are texts"):
        model.fit(np.zeros((50, 2)), np.arange(50) % 2)
    assert ledger.spent().epsilon == 0
