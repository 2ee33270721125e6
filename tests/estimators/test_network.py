"""The face of the network estimators, and their fits without privacy."""

from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
from scipy.integrate import simpson
from scipy.stats import norm
from sklearn.base import clone, is_classifier, is_regressor
from sklearn.exceptions import DataConversionWarning, NotFittedError
from sklearn.model_selection import cross_val_score

from dpsep import LinearRegression, NetworkClassifier, NetworkRegressor, ProbitRegression
from dpsep.estimators import store
from dpsep.estimators.network_posterior import FittedNetwork
from dpsep.privacy.leaks import PrivacyLeakError, PrivacyLeakWarning
from dpsep.theory.networks import default_hidden

from .network_made import (
    BINARY,
    BOUNDS,
    HIDDEN,
    KIND,
    OPEN_WAYS,
    PRIVATE_WAYS,
    ROWS,
    STANDARD,
    WEIGHTS,
    assert_proper,
    bits,
    classifier,
    labels,
    quietly,
    regressor,
    seeded,
    seeded_classes,
    table,
)

X, Y = table()
LABELS = labels(X)
CLASSES: list[Any] = [(NetworkRegressor, BOUNDS, Y), (NetworkClassifier, BINARY, LABELS)]
IDS = ["regressor", "classifier"]


def open_fit(way: str, x: Any = X, y: Any = Y, **parameters: Any) -> Any:
    return regressor(**({"private": False, "steps": 3} | OPEN_WAYS[way] | parameters)).fit(x, y)


def error(model: Any) -> float:
    return float(np.sqrt(np.mean((model.predict(X) - Y) ** 2)))


@pytest.mark.parametrize(("maker", "declared", "target"), CLASSES, ids=IDS)
def test_parameters_are_kept_cloned_and_set(maker: Any, declared: dict[str, Any], target: Any) -> None:
    model = maker(epsilon=3.0, hidden=(4, 2), steps=4, covariance="diagonal", **declared)
    parameters = model.get_params()
    assert (parameters["epsilon"], parameters["hidden"]) == (3.0, (4, 2))
    twin: Any = clone(model)
    assert twin.get_params() == parameters
    assert model.set_params(epsilon=0.5).epsilon == 0.5
    assert is_classifier(model) == (maker is NetworkClassifier)
    assert is_regressor(model) == (maker is NetworkRegressor)
    for ask in (model.predict, model.summary, model.to_arviz):
        with pytest.raises(NotFittedError):
            ask(X) if ask == model.predict else ask()


@pytest.mark.parametrize("private", [True, False])
def test_arrays_and_frames_give_the_same_result(private: bool) -> None:
    columns = {"age": X[:, 0], "income": X[:, 1]}
    frames: dict[str, Any] = {"pandas": pd.DataFrame(columns), "polars": pl.DataFrame(columns)}
    if not private:
        frames["list"] = X.tolist()
    targets = {"list": Y.tolist(), "pandas": pd.Series(Y), "polars": pl.Series(Y)}
    plain = seeded(private=private, **BOUNDS)
    assert not hasattr(plain, "feature_names_in_")
    for kind, cells in frames.items():
        model = seeded(cells, targets[kind], private=private, **BOUNDS)
        assert bits(model) == bits(plain)
        assert model.n_features_in_ == 2
        if kind != "list":
            assert list(model.feature_names_in_) == ["age", "income"]
        np.testing.assert_array_equal(model.predict(cells), plain.predict(X))


def test_names_and_widths_are_checked_in_prediction() -> None:
    model = open_fit("diagonal", pd.DataFrame(X, columns=["age", "income"]))
    with pytest.raises(ValueError, match="feature names should match"):
        model.predict(pd.DataFrame(X, columns=["income", "age"]))
    with pytest.raises(ValueError, match="expecting 2 features"):
        model.predict(X[:, :1])
    with pytest.raises(ValueError, match="NaN"):
        model.predict([[np.nan, 0.0]])
    assert not hasattr(model.fit(X, Y), "feature_names_in_")


@pytest.mark.parametrize(("maker", "declared", "target"), CLASSES, ids=IDS)
@pytest.mark.parametrize("private", [True, False])
def test_weights_of_records_are_refused(maker: Any, declared: Any, target: Any, private: bool) -> None:
    with pytest.raises(TypeError, match="sample_weight"):
        maker(private=private, **declared).fit(X, target, sample_weight=np.ones(ROWS))


def test_a_column_vector_is_taken_as_a_target_with_a_warning() -> None:
    with pytest.warns(DataConversionWarning, match="column-vector"):
        model = open_fit("diagonal", y=Y[:, None])
    assert bits(model) == bits(open_fit("diagonal"))


@pytest.mark.parametrize("way", OPEN_WAYS)
def test_every_method_fits_without_privacy_and_says_nothing_of_it(way: str) -> None:
    model = open_fit(way)
    assert model.privacy_ is None
    assert model.hidden_ == (HIDDEN,)
    direct = 2 if way == "kronecker" else 0  # its inputs reach the output, too
    assert model.n_weights_ == WEIGHTS + direct == model.posterior_.mean.size
    assert model.posterior_.kind == KIND.get(way, "diagonal")
    assert (model.posterior_.noise_variance == 0).all()
    assert_proper(model)
    if way != "ep":  # compiled anew for every fit
        found = quietly(classifier(private=False, steps=3, **OPEN_WAYS[way]), X, LABELS)
        assert_proper(found)
        assert list(found.classes_) == ["no", "yes"]
        assert set(found.predict(X)) <= {"no", "yes"}


@pytest.mark.parametrize(
    ("way", "steps"), [("kronecker", None), ("diagonal", None), ("adf", 40), ("vi", 300), ("point", 300)]
)
def test_without_privacy_a_curve_is_learned_that_no_line_can_follow(way: str, steps: int | None) -> None:
    """Three hidden units have local optima: the best of three starts counts."""
    line = LinearRegression(private=False).fit(X, Y)
    model = min((open_fit(way, steps=steps, random_state=seed) for seed in range(3)), key=error)
    assert error(model) < 0.9 * error(line)
    _, deviation = model.predict(X, return_std=True)
    standard = (Y - model.predict(X)) / deviation
    assert 0.5 < standard.std() < 1.5


@pytest.mark.parametrize("way", [way for way in OPEN_WAYS if way != "ep"])
def test_without_privacy_a_seed_repeats_the_result_and_another_does_not(way: str) -> None:
    first = open_fit(way, random_state=3, steps=2)
    assert bits(first) == bits(open_fit(way, random_state=3, steps=2))
    assert bits(first) != bits(open_fit(way, random_state=4, steps=2))
    assert bits(open_fit(way, steps=2)) == bits(open_fit(way, random_state=0, steps=2))


def test_left_alone_a_fit_chooses_hidden_units_from_the_number_of_records() -> None:
    assert default_hidden(ROWS, private=False) == (50,)
    assert default_hidden(40_000, private=False) == (100,)
    assert default_hidden(10**9, private=True) == (100,)
    assert default_hidden(10_000, private=True) == (25,)
    assert regressor(private=False, hidden=None, steps=1).fit(X, Y).hidden_ == (50,)


@pytest.mark.parametrize("covariance", ["kronecker", "diagonal"])
def test_without_hidden_units_it_is_linear_regression(covariance: str) -> None:
    model = regressor(private=False, hidden=(), covariance=covariance).fit(X, Y)
    line = LinearRegression(private=False).fit(X, Y)
    assert (model.hidden_, model.n_weights_) == ((), 3)
    mean, deviation = model.predict(X, return_std=True)
    expected, width = line.predict(X, return_std=True)
    np.testing.assert_allclose(mean, expected, atol=0.02)
    np.testing.assert_allclose(deviation, width, rtol=0.02)


def test_without_hidden_units_the_classifier_is_probit_regression() -> None:
    y = np.where(X @ [1.0, -0.8] + 0.5 * np.random.default_rng(1).normal(size=ROWS) > 0, "yes", "no")
    model = classifier(private=False, hidden=(), covariance="kronecker").fit(X, y)
    line = ProbitRegression(private=False, classes=["no", "yes"]).fit(X, y)
    np.testing.assert_allclose(model.predict_proba(X), line.predict_proba(X), atol=0.03)


def test_labels_of_any_kind_come_back_and_the_order_declared_only_turns_the_signs() -> None:
    model = classifier(private=False).fit(X, LABELS)
    flags = classifier(private=False, classes=[False, True]).fit(X, LABELS == "yes")
    assert flags.predict(X).dtype == bool
    np.testing.assert_array_equal(flags.predict(X), model.predict(X) == "yes")
    np.testing.assert_array_equal(flags.predict_proba(X), model.predict_proba(X))
    undeclared = classifier(private=False, classes=None).fit(X, LABELS)
    assert bits(undeclared) == bits(model)
    turned = classifier(private=False, classes=["yes", "no"]).fit(X, LABELS)
    assert list(turned.classes_) == ["yes", "no"]
    assert np.mean(np.asarray(turned.predict(X)) == LABELS) > 0.9


def test_classes_that_no_line_parts_are_learned_without_privacy() -> None:
    model = classifier(private=False, method="adf", steps=40).fit(X, LABELS)
    assert model.score(X, LABELS) > 0.88
    assert ProbitRegression(private=False, classes=["no", "yes"]).fit(X, LABELS).score(X, LABELS) < 0.7
    proba = model.predict_proba(X)
    np.testing.assert_allclose(proba.sum(axis=1), 1.0, rtol=1e-12)
    np.testing.assert_array_equal(model.predict(X), model.classes_[(proba[:, 1] > 0.5).astype(int)])
    density = model.log_predictive_density(X, LABELS)
    np.testing.assert_allclose(np.exp(density), np.where(LABELS == "yes", proba[:, 1], proba[:, 0]))


def test_classes_that_are_not_declared_are_a_leak_under_privacy() -> None:
    with pytest.warns(PrivacyLeakWarning, match="classes are not declared"):
        model = classifier(classes=None, steps=1).fit(X, LABELS)
    assert model.privacy_ is not None
    assert any("classes" in leak for leak in model.privacy_.leaks)
    with pytest.raises(PrivacyLeakError, match="classes are not declared"):
        classifier(classes=None, steps=1, strict=True).fit(X, LABELS)


def test_three_classes_are_refused() -> None:
    with pytest.raises(ValueError, match="exactly two classes"):
        classifier(private=False, classes=None).fit(X, np.arange(ROWS) % 3)


def test_the_predictive_density_is_a_density_with_the_deviation_that_is_reported() -> None:
    model = open_fit("kronecker", steps=None)
    mean, deviation = (part[0] for part in model.predict(X[:1], return_std=True))
    offsets = np.linspace(-12 * deviation, 12 * deviation, 801)
    density = np.exp(model.log_predictive_density(np.repeat(X[:1], 801, axis=0), mean + offsets))
    assert simpson(density, x=offsets) == pytest.approx(1.0, abs=1e-6)
    assert simpson(density * offsets**2, x=offsets) == pytest.approx(deviation**2, rel=1e-3)


def test_draws_of_the_weights_have_the_moments_that_predictions_are_made_from() -> None:
    """Without hidden units the output is linear in the weights, so that both can be compared exactly."""
    rng = np.random.default_rng(0)
    right = np.linalg.qr(rng.normal(size=(3, 3)))[0]
    common: dict[str, Any] = {"widths": (2, 1), "activation": "relu", "mean": np.array([0.5, -1.0, 2.0])}
    common |= {"variance": np.array([0.5, 0.1, 0.02]), "noise_variance": np.array([0.2, 0.0, 0.1])}
    common |= {"turn": np.eye(2), "low": np.full(2, -np.inf), "high": np.full(2, np.inf)}
    common |= {"centre": np.array([1.0, 0.0]), "scale": np.array([2.0, 1.0])}
    common |= {"target_centre": 0.0, "target_scale": 1.0, "noise_shape": 10.0, "noise_rate": 1.0}
    rows = rng.normal(size=(5, 2))
    design = np.column_stack([(rows - [1.0, 0.0]) / [2.0, 1.0], np.ones(5)]) / np.sqrt(3)
    for aware, total in ((True, [0.7, 0.1, 0.12]), (False, [0.5, 0.1, 0.02])):
        bases = {"kronecker": right, "diagonal": np.eye(3)}
        for kind, basis in bases.items():
            sides: dict[str, Any] = {"left": (), "right": ()}
            if kind == "kronecker":
                sides = {"left": (np.eye(1),), "right": (basis,)}
            found = FittedNetwork(kind=kind, **sides, **common, noise_aware=aware)
            mean, variance = found.predictor(rows)
            np.testing.assert_allclose(mean, design @ common["mean"], rtol=1e-12)
            covariance = basis @ np.diag(total) @ basis.T
            np.testing.assert_allclose(variance, ((design @ covariance) * design).sum(1), rtol=1e-12)
            (draws,) = found.draw(40000, np.random.default_rng(1))
            np.testing.assert_allclose(np.cov(draws[:, 0].T), covariance, atol=0.03)
            np.testing.assert_allclose(draws[:, 0].mean(axis=0), common["mean"], atol=0.03)


def test_a_summary_and_arviz_have_one_entry_a_layer() -> None:
    model = open_fit("diagonal")
    rows = model.summary()
    assert [(row["layer"], row["weights"]) for row in rows] == [(1, HIDDEN * 3), (2, HIDDEN + 1)]
    first = model.posterior_.mean[: HIDDEN * 3]
    assert rows[0]["size"] == pytest.approx(np.sqrt(np.mean(first**2)))
    assert rows[0]["sd"] == pytest.approx(np.sqrt(np.mean(model.posterior_.variance[: HIDDEN * 3])))
    assert all(row["noise_share"] == 0 for row in rows)
    data = model.to_arviz(draws=500)
    assert data.posterior["layer_1"].shape == (1, 500, HIDDEN, 3)
    assert data.posterior["layer_2"].shape == (1, 500, 1, HIDDEN + 1)


@pytest.mark.parametrize("way", PRIVATE_WAYS)
@pytest.mark.parametrize("private", [True, False])
def test_an_estimator_comes_back_from_its_folder_bit_for_bit(way: str, private: bool, tmp_path: Any) -> None:
    rows = np.random.default_rng(5).normal(size=(50, 2))
    fits = (seeded(private=private, **PRIVATE_WAYS[way], **BOUNDS),)
    fits += (seeded_classes(private=private, **PRIVATE_WAYS[way]),)
    for number, model in enumerate(fits):
        store.save(model, tmp_path / str(number))
        back: Any = store.load(tmp_path / str(number))
        assert type(back) is type(model)
        assert bits(back) == bits(model)
        assert back.posterior_.kind == KIND.get(way, "diagonal")
        np.testing.assert_array_equal(back.predict(rows), model.predict(rows))
        assert back.privacy_ == model.privacy_
        assert back.random_state is None
        if number:
            np.testing.assert_array_equal(back.predict_proba(rows), model.predict_proba(rows))
        else:
            np.testing.assert_array_equal(back.predict(rows, True)[1], model.predict(rows, True)[1])
            density = model.log_predictive_density(rows, rows[:, 0])
            np.testing.assert_array_equal(back.log_predictive_density(rows, rows[:, 0]), density)


def test_scikit_learn_can_cross_validate_without_privacy() -> None:
    scores = cross_val_score(regressor(private=False, covariance="kronecker"), X, Y, cv=2)
    assert scores.shape == (2,)
    assert scores.min() > 0.6


def test_declared_bounds_clamp_and_a_declared_standardisation_does_not() -> None:
    bounded, standard = (open_fit("kronecker", steps=None, **way) for way in (BOUNDS, STANDARD))
    far, edge = [[7.0, -9.0]], [[1.0, -1.0]]
    np.testing.assert_array_equal(bounded.predict(far), bounded.predict(edge))
    assert abs(standard.predict(far)[0] - standard.predict(edge)[0]) > 0.5
    found = standard.posterior_
    assert (found.centre.tolist(), found.scale.tolist()) == ([0.0, 0.0], [0.6, 0.6])
    assert (found.target_centre, found.target_scale) == (0.0, 0.8)


def test_a_declared_standardisation_only_changes_the_units() -> None:
    model = open_fit("kronecker", **STANDARD)
    moved = open_fit("kronecker", 10.0 * X + 3.0, 100.0 * Y - 5.0, public_scaling=((3.0, 6.0), (-5.0, 80.0)))
    np.testing.assert_allclose(moved.predict(10.0 * X + 3.0), 100.0 * model.predict(X) - 5.0, rtol=1e-6)


def test_nine_tenths_of_new_targets_lie_within_their_interval() -> None:
    model = open_fit("kronecker", steps=None)
    fresh, target = table(seed=9)
    mean, deviation = model.predict(fresh, return_std=True)
    inside = np.mean(np.abs(target - mean) < norm.ppf(0.95) * deviation)
    assert 0.8 < inside < 0.98
