"""The estimators in scikit-learn's company: pipelines, columns, folds, searches, metadata routing, frames."""

# scikit-learn has no types; what is inferred from its defaults and loops is narrower than what it takes.
# pyright: reportArgumentType=false, reportAttributeAccessIssue=false, reportCallIssue=false

import warnings
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
from sklearn import config_context
from sklearn.base import clone, is_classifier, is_regressor
from sklearn.compose import ColumnTransformer
from sklearn.ensemble import StackingClassifier, VotingClassifier
from sklearn.model_selection import GridSearchCV, KFold, cross_val_predict, cross_val_score
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import FunctionTransformer, OneHotEncoder, StandardScaler
from sklearn.utils.estimator_checks import check_dataframe_column_names_consistency

from dpsep import (
    GaussianMixture,
    LinearRegression,
    LogisticRegression,
    NetworkClassifier,
    NetworkRegressor,
    PoissonRegression,
    ProbitRegression,
)

from .made import BINARY, BOUNDS, LINEAR, table

NETWORK: dict[str, Any] = {"hidden": 2, "steps": 2, "method": "point"}
REGRESSORS: list[Any] = [
    LinearRegression(private=False, **LINEAR),
    PoissonRegression(private=False, **BOUNDS),
    NetworkRegressor(private=False, **(LINEAR | NETWORK)),
]
CLASSIFIERS: list[Any] = [
    LogisticRegression(private=False, **BINARY),
    ProbitRegression(private=False, **BINARY),
    NetworkClassifier(private=False, **(BINARY | NETWORK)),
]
MIXTURE = GaussianMixture(2, private=False, steps=3)
ALL = [*REGRESSORS, *CLASSIFIERS, MIXTURE]


def name(model: Any) -> str:
    return type(model).__name__


def fresh(model: Any) -> Any:
    return clone(model)


def target(model: Any) -> np.ndarray:
    return table(type(model) if isinstance(model, PoissonRegression | LinearRegression) else None)[1]


X = table(None)[0]


@pytest.mark.parametrize("model", ALL, ids=name)
def test_a_clone_has_the_parameters_and_nothing_that_was_learned(model):
    copy = fresh(model).set_params(epsilon=0.25, ledger="budget", strict=True)
    assert copy.get_params() == model.get_params() | {"epsilon": 0.25, "ledger": "budget", "strict": True}
    assert not hasattr(fresh(fresh(model).fit(X, target(model))), "posterior_")
    with pytest.raises(ValueError, match="Invalid parameter 'budget'"):
        copy.set_params(budget=1.0)


@pytest.mark.parametrize("frame", [pd.DataFrame, pl.DataFrame], ids=["pandas", "polars"])
@pytest.mark.parametrize("model", ALL, ids=name)
def test_names_of_columns_are_kept_through_a_pipeline(model, frame):
    cells = frame({"age": X[:, 0], "income": X[:, 1]})
    pipe = make_pipeline(FunctionTransformer(), fresh(model)).fit(cells, target(model))
    assert list(pipe[-1].feature_names_in_) == ["age", "income"]
    assert list(pipe.feature_names_in_) == ["age", "income"]
    np.testing.assert_array_equal(pipe.predict(cells), fresh(model).fit(X, target(model)).predict(X))
    with pytest.raises(ValueError, match=r"same order as they were in fit"):
        pipe.predict(cells[["income", "age"]])
    with pytest.raises(ValueError, match=r"unseen at fit time:\n- wealth\n.*now missing:\n- income\n"):
        pipe.predict(frame({"age": X[:, 0], "wealth": X[:, 1]}))


@pytest.mark.parametrize("model", [REGRESSORS[0], CLASSIFIERS[1], MIXTURE], ids=name)
def test_scikit_learn_s_own_check_of_names_passes(model):
    other = fresh(model).set_params(bounds=None)
    if is_classifier(model):
        other.set_params(classes=None)
    check_dataframe_column_names_consistency(name(model), other)


@pytest.mark.parametrize("container", ["pandas", "polars"])
def test_columns_encoded_by_a_column_transformer_keep_their_names(container):
    frame = pd.DataFrame if container == "pandas" else pl.DataFrame
    city = np.where(X[:, 0] > 0, "north", "south")
    cells = frame({"city": city, "income": X[:, 1]})
    encode = OneHotEncoder(categories=[["north", "south"]], sparse_output=False)
    columns = ColumnTransformer(
        [("c", encode, ["city"])], remainder="passthrough", verbose_feature_names_out=False
    ).set_output(transform=container)
    # Declared categories and declared bounds: nothing is learned outside the gate, so strict is content.
    pipe = make_pipeline(columns, LinearRegression(strict=True, **LINEAR)).fit(cells, target(REGRESSORS[0]))
    assert list(pipe[-1].feature_names_in_) == ["city_north", "city_south", "income"]
    assert pipe[-1].posterior_.names == ("intercept", "city_north", "city_south", "income")
    assert pipe.predict(cells).shape == (len(X),)


@pytest.mark.parametrize("frame", [np.asarray, pd.DataFrame, pl.DataFrame], ids=["numpy", "pandas", "polars"])
@pytest.mark.parametrize("model", [*REGRESSORS, *CLASSIFIERS], ids=name)
def test_cross_validation_is_what_fits_of_the_folds_by_hand_give(model, frame):
    y = target(model)
    cells = frame(X) if frame is np.asarray else frame({"a": X[:, 0], "b": X[:, 1]})
    folds = KFold(2)
    found = cross_val_predict(model, cells, y, cv=folds)
    scores = cross_val_score(model, cells, y, cv=folds)
    for place, (train, test) in enumerate(folds.split(X)):
        fitted = fresh(model).fit(X[train], y[train])
        np.testing.assert_allclose(found[test], fitted.predict(X[test]), rtol=1e-9)
        assert scores[place] == pytest.approx(fitted.score(X[test], y[test]))


@pytest.mark.parametrize("model", CLASSIFIERS, ids=name)
def test_probabilities_scores_and_classes_agree(model):
    fitted = fresh(model).fit(X, target(model))
    probability, odds = fitted.predict_proba(X), fitted.decision_function(X)
    np.testing.assert_allclose(probability[:, 1], 1 / (1 + np.exp(-odds)), atol=1e-12)
    np.testing.assert_array_equal(fitted.predict(X), fitted.classes_[(odds > 0).astype(int)])
    assert is_classifier(model)


def coded(kind: str, model: Any, y: Any) -> Any:
    if kind == "cross_val_predict":
        return cross_val_predict(model, X, y, cv=KFold(2), method="predict_proba")
    maker = {"VotingClassifier": VotingClassifier, "StackingClassifier": StackingClassifier}[kind]
    return maker([("only", model)], **({} if maker is VotingClassifier else {"cv": 2})).fit(X, y)


@pytest.mark.parametrize("private", [True, False])
@pytest.mark.parametrize("kind", ["cross_val_predict", "VotingClassifier", "StackingClassifier"])
@pytest.mark.filterwarnings("ignore::dpsep.PrivacyLeakWarning")  # of what stands around the fit
def test_classes_that_scikit_learn_would_code_anew_are_refused_instead_of_missed(kind, private):
    """It codes labels as 0 and 1 there, so that a private fit would take every record for a bad one."""
    model = ProbitRegression(private=private, steps=2, **BOUNDS)
    y = target(model)
    with pytest.raises(ValueError, match=f"{kind} codes labels as 0 and 1"):
        coded(kind, fresh(model).set_params(classes=[-1.0, 1.0]), y)
    coded(kind, model.set_params(classes=[0, 1]), (y > 0).astype(int))


@pytest.mark.parametrize("model", REGRESSORS, ids=name)
def test_return_std_is_routed_through_pipelines_and_searches(model):
    assert is_regressor(model)
    y = target(model)
    with config_context(enable_metadata_routing=True):
        asked = fresh(model).set_predict_request(return_std=True)
        pipe = make_pipeline(StandardScaler(), asked).fit(X, y)
        mean, deviation = pipe.predict(X, return_std=True)
        np.testing.assert_array_equal(mean, pipe.predict(X))
        np.testing.assert_array_equal(deviation, pipe[-1].predict(pipe[0].transform(X), return_std=True)[1])
        assert (deviation > 0).all()
        with pytest.raises(ValueError, match="return_std"):
            make_pipeline(fresh(model)).fit(X, y).predict(X, return_std=True)
        steps: list[int] = []
        watched = fresh(REGRESSORS[0]).set_params(private=True).set_fit_request(on_step=True)
        make_pipeline(watched).fit(X, target(watched), on_step=lambda done, total: steps.append(done))
        assert steps


def test_weights_of_records_are_nothing_that_can_be_asked_for():
    for model in ALL:
        # Labels of units, and no weights.
        assert set(model.get_metadata_routing().fit.requests) - {"groups"} == {"on_step"}
        with pytest.raises(TypeError, match="sample_weight"):
            fresh(model).fit(X, target(model), sample_weight=np.ones(len(X)))


@pytest.mark.parametrize("model", [REGRESSORS[0], CLASSIFIERS[0]], ids=name)
def test_a_search_over_a_pipeline_sets_nested_parameters_and_finds_the_better(model):
    pipe = Pipeline([("scale", StandardScaler()), ("fit", fresh(model).set_params(bounds=None))])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        search = GridSearchCV(pipe, {"fit__prior_scale": [1e-6, 1.0]}, cv=KFold(2)).fit(X, target(model))
    assert search.best_params_ == {"fit__prior_scale": 1.0}
    assert search.best_estimator_.named_steps["fit"].prior_scale == 1.0
    assert search.predict(X).shape == (len(X),)
