"""Models of our own: against the built-in ones, closed forms and NUTS; their face; what they refuse."""

import pickle
import warnings
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from sklearn.base import clone as sklearn_clone
from sklearn.base import is_classifier, is_regressor
from sklearn.model_selection import cross_val_predict
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

from dpsep import (
    BayesianModel,
    Linear,
    LogisticRegression,
    Normal,
    PoissonRegression,
    PrivacyLeakError,
    PrivacyLeakWarning,
)
from dpsep.inference import nuts
from dpsep.privacy.checkpoint import CheckpointError

from . import custom_made as made
from .custom_made import apart, location_density, logistic, logistic_density, normal, poisson, table

RECORDS = 400

# Tables of forty rows are for control flow: what their intervals are worth is not asked.
pytestmark = pytest.mark.filterwarnings("ignore::dpsep.theory.glm_defaults.WeakBudgetWarning")


def clone(model: Any) -> Any:
    return sklearn_clone(model)


@pytest.fixture(scope="module")
def binary() -> Any:
    """A logistic model fitted without privacy, the built-in one, and their table."""
    X, y = table(RECORDS)
    built_in = LogisticRegression(private=False, prior_scale=1e5, **made.BINARY).fit(X, y)
    return logistic(prior={"u": Normal(0.0, 1e5)}, private=False).fit(X, y), built_in, X, y


@pytest.fixture(scope="module")
def counts() -> Any:
    X, y = table(RECORDS, "poisson")
    with mock.patch("dpsep.estimators.run.Task.dispersed", False):  # the model of our own learns none
        built_in = PoissonRegression(private=False, prior_scale=1e5, bounds=made.BOUNDS).fit(X, y)
    return poisson(prior={"u": Normal(0.0, 1e5)}, private=False).fit(X, y), built_in, X, y


def test_a_logistic_regression_of_our_own_is_the_built_in_one(binary: Any) -> None:
    model, built_in, _, _ = binary
    assert apart(model, built_in) < 1e-6
    assert model.posterior_.names == built_in.posterior_.names


def test_a_poisson_regression_of_our_own_is_the_built_in_one(counts: Any) -> None:
    assert apart(counts[0], counts[1]) < 1e-6


def test_a_private_fit_is_near_that_without_privacy_by_what_it_says_of_its_noise() -> None:
    X, y = table(4000)
    free = logistic(private=False).fit(X, y).posterior_
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PrivacyLeakWarning)
        model = logistic(random_state=0).fit(X, y)
    noise = np.sqrt(np.diagonal(model.posterior_.noise_covariance))
    assert np.all(noise > 0)
    assert np.all(np.abs(model.posterior_.mean - free.mean) < 4 * noise)
    assert model.privacy_ is not None
    assert model.privacy_.epsilon == pytest.approx(1.0, rel=1e-6)


def test_all_methods_run_on_one_object(monkeypatch: pytest.MonkeyPatch) -> None:
    X, y = table(RECORDS)
    model = logistic(private=False).fit(X, y)
    other = clone(model)
    other.set_params(method="ep").fit(X, y)
    assert apart(other, model) < 0.05, "EP and SEP differ by one part in N"
    other.set_params(method="adf").fit(X, y)
    assert apart(other, model) < 1.0
    few = partial(nuts.run_joint, draws=1000, warmup=200, chains=1)
    monkeypatch.setattr(nuts, "run_joint", few)
    other.set_params(method="nuts", random_state=1).fit(X, y)
    assert apart(other, model) < 0.2
    assert other.draws_.shape == (1000, 3)
    assert other.to_arviz(draws=10).posterior["x0"].shape == (1, 10)
    other.set_params(method="sep").fit(X, y)
    assert not hasattr(other, "draws_")
    assert apart(other, model) == 0.0, "a second fit does not remember the first"


def test_a_model_of_the_features_alone_needs_no_target() -> None:
    X = np.random.default_rng(0).normal([1.0, -2.0], 1.0, (300, 2))
    model = BayesianModel(location_density, {"mu": Normal(0.0, 10.0, (2,))}, private=False).fit(X)
    variance = 1.0 / (300 + 0.01)
    np.testing.assert_allclose(model.posterior_.mean, variance * X.sum(0), rtol=1e-8)
    np.testing.assert_allclose(model.posterior_.covariance, variance * np.eye(2), atol=1e-10)
    assert model.posterior_.names == ("mu[0]", "mu[1]")
    exact = -np.log(2 * np.pi * (1 + variance)) - 0.5 * ((X - variance * X.sum(0)) ** 2).sum(1) / (
        1 + variance
    )
    np.testing.assert_allclose(model.log_predictive_density(X), exact, rtol=1e-6)
    assert model.score(X) == pytest.approx(exact.mean(), rel=1e-6)
    assert not hasattr(model, "predict")


def test_weights_may_all_be_shared() -> None:
    def density(params: Any, record: Any) -> Any:
        inner = params["b"] + record.x @ params["w"]
        return logistic_density({"u": inner}, record)

    X, y = table(RECORDS)
    model = logistic(private=False).fit(X, y)
    prior = {"b": Normal(0.0, 20.0), "w": Normal(0.0, 2.0, (2,))}
    shared = BayesianModel(density, prior, private=False, **made.BINARY).fit(X, y)
    assert shared.factors_ == "qmc"
    assert apart(shared, model) < 1e-3


@pytest.mark.parametrize("bounds", [None, (10.0, 20.0)])
def test_a_link_without_an_intercept_goes_through_zero(bounds: Any) -> None:
    rng = np.random.default_rng(0)
    X = rng.uniform(10.0, 20.0, (200, 1))
    y = 2.0 * X[:, 0] + rng.normal(size=200)
    model = normal(Linear(intercept=False), private=False, bounds=bounds).fit(X, y)
    size = 20.0 if bounds else np.sqrt(np.mean(X**2))
    exact = (X[:, 0] @ y) / (X[:, 0] @ X[:, 0] + (size / 2.0) ** 2)
    assert model.posterior_.mean[0] == pytest.approx(exact, rel=1e-8)
    np.testing.assert_allclose(model.predict(X), exact * X[:, 0], rtol=1e-8)
    with warnings.catch_warnings(action="ignore"):  # of the seed, and of so large an epsilon
        private = normal(Linear(intercept=False), epsilon=100.0, bounds=bounds, random_state=0).fit(X, y)
    inside = np.array([[12.0], [18.0]])
    np.testing.assert_allclose(private.predict(inside) / inside[:, 0], private.posterior_.mean[0], rtol=1e-8)


def test_probabilities_are_those_of_the_built_in_model(binary: Any) -> None:
    model, built_in, X, y = binary
    np.testing.assert_allclose(model.predict_proba(X), built_in.predict_proba(X), atol=1e-8)
    np.testing.assert_array_equal(model.predict(X), built_in.predict(X))
    ours, theirs = (one.log_predictive_density(X, y) for one in (model, built_in))
    np.testing.assert_allclose(ours, theirs, atol=1e-8)
    assert model.score(X, y) == built_in.score(X, y)
    drawn = model.posterior_predictive(X[:5], 4000, 0)
    assert set(np.unique(drawn)) == {-1.0, 1.0}
    np.testing.assert_allclose((drawn > 0).mean(0), model.predict_proba(X[:5])[:, 1], atol=0.04)


def test_means_deviations_and_densities_are_those_of_the_built_in_model(counts: Any) -> None:
    model, built_in, X, y = counts
    mean, deviation = model.predict(X[:50], return_std=True)
    exact_mean, exact_deviation = built_in.predict(X[:50], return_std=True)
    np.testing.assert_allclose(mean, exact_mean, rtol=1e-8)
    np.testing.assert_allclose(deviation, exact_deviation, rtol=0.12)
    ours, theirs = (one.log_predictive_density(X, y) for one in (model, built_in))
    np.testing.assert_allclose(ours, theirs, atol=1e-8)
    expected = model.posterior_expected(X[:3], 4000, 0)
    np.testing.assert_allclose(expected.mean(0), mean[:3], rtol=0.02)
    data = model.to_arviz(X[:7], y[:7], draws=20)
    assert data.posterior_predictive["y"].shape == (1, 20, 7)
    assert data.log_likelihood["y"].shape == (1, 20, 7)


def test_predictions_do_not_depend_on_how_many_rows_there_are(counts: Any) -> None:
    model, _, X, _ = counts
    many = np.tile(X, (3, 1))
    np.testing.assert_allclose(model.predict(many)[-5:], model.predict(X[-5:]), rtol=1e-12)


def test_what_cannot_be_predicted_is_refused_with_a_way_out(binary: Any, counts: Any) -> None:
    model, _, X, y = binary
    with pytest.raises(ValueError, match="labels have no standard deviation"):
        model.predict(X, return_std=True)
    with pytest.raises(ValueError, match="give y, one label a row"):
        model.log_predictive_density(X)
    with pytest.raises(ValueError, match="X has 400 rows and y has 3"):
        model.log_predictive_density(X, y[:3])
    with pytest.raises(ValueError, match="X has 1 features, but BayesianModel is expecting 2"):
        model.predict(X[:, :1])
    blind = clone(counts[0]).set_params(sample=None)
    blind.__dict__ |= {name: value for name, value in vars(counts[0]).items() if name.endswith("_")}
    with pytest.raises(ValueError, match="return_std=True needs `sample`"):
        blind.predict(X, return_std=True)
    assert not hasattr(blind, "posterior_predictive")


def test_without_privacy_bad_records_are_errors() -> None:
    X, y = table(40, "poisson")
    spoiled = X.copy()
    spoiled[3, 0] = np.nan
    with pytest.raises(ValueError, match="Input X contains NaN"):
        poisson(private=False).fit(spoiled, y)
    with pytest.raises(ValueError, match="not finite for 2 of 40 records"):
        poisson(private=False).fit(X, np.where(np.arange(40) < 2, -1.0, y))
    with pytest.raises(ValueError, match="Input y contains NaN, infinity or an undeclared label"):
        logistic(private=False).fit(X, np.where(np.arange(40) < 1, 7.0, 1.0))
    with pytest.raises(ValueError, match="requires y"):
        logistic(private=False).fit(X)
    with pytest.raises(ValueError, match="log_likelihood is missing"):
        BayesianModel().fit(X, y)


def test_a_function_whose_derivative_calls_back_is_refused_before_anything_is_charged() -> None:
    @jax.custom_jvp
    def steep(u: Any) -> Any:
        return -(u**2)

    @steep.defjvp
    def _(primals: Any, tangents: Any) -> Any:
        jax.debug.print("{}", primals[0])
        return steep(primals[0]), -2.0 * primals[0] * tangents[0]

    X, y = table(40)
    model = BayesianModel(lambda params, record: steep(params["u"] - record.y), links={"u": Linear()})
    with pytest.raises(ValueError, match="printing"):
        model.fit(X, y)


def test_a_function_that_says_what_it_does_with_many_records_is_refused() -> None:
    @jax.custom_batching.custom_vmap
    def alone(y: Any) -> Any:
        return y

    @alone.def_vmap
    def _(size: int, batched: Any, y: Any) -> Any:
        return jnp.full(size, jnp.sum(y)), True

    X, y = table(40)
    model = BayesianModel(lambda params, record: alone(record.y) * params["u"], links={"u": Linear()})
    with pytest.raises(ValueError, match="a batching rule of its own"):
        model.fit(X, y)


def test_leaks_are_warned_of_from_structure() -> None:
    X, y = table(40)
    few = logistic(delta=1e-3, steps=2)
    with pytest.warns(PrivacyLeakWarning, match="random_state"):
        assert clone(few).set_params(random_state=0).fit(X, y).privacy_.leaks
    with pytest.raises(PrivacyLeakError, match="delta"):
        clone(few).set_params(delta=0.1, strict=True).fit(X, y)
    with pytest.raises(ValueError, match="method='nuts' cannot be made private"):
        clone(few).set_params(method="nuts").fit(X, y)


def test_it_has_the_face_of_an_estimator(binary: Any, counts: Any) -> None:
    model, _, X, y = binary
    assert is_classifier(model)
    assert is_regressor(counts[0])
    assert not is_regressor(BayesianModel(location_density, {"mu": 1.0}))
    copy = clone(model)
    assert copy.get_params()["links"] == {"u": Linear()}
    assert not hasattr(copy, "posterior_")
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(again.predict_proba(X), model.predict_proba(X))
    chain = make_pipeline(FunctionTransformer(), clone(model))
    found = cross_val_predict(chain, X, y, cv=2)
    assert np.mean(found == y) > 0.6


def test_columns_keep_their_names() -> None:
    pandas = pytest.importorskip("pandas")
    X, y = table(RECORDS)
    frame = pandas.DataFrame(X, columns=["age", "dose"])
    model = BayesianModel(logistic_density, links={"u": Linear(["dose"])}, private=False, **made.BINARY).fit(
        frame, y
    )
    assert model.posterior_.names == ("intercept", "dose")
    assert [row["name"] for row in model.summary()] == ["intercept", "dose"]
    with pytest.raises(ValueError, match="feature names should match"):
        model.predict(frame.rename(columns={"age": "size"}))


def test_a_run_that_died_is_resumed_with_the_same_function_only(tmp_path: Path) -> None:
    def die(done: int, total: int) -> None:
        if done == 2:
            raise KeyboardInterrupt

    def another(params: Any, record: Any) -> Any:
        return 2.0 * logistic_density(params, record)

    X, y = table(40)
    settings: dict[str, Any] = {"delta": 1e-3, "steps": 3, "checkpoint": tmp_path / "run"}
    with pytest.raises(KeyboardInterrupt):
        logistic(**settings).fit(X, y, on_step=die)
    with pytest.raises(CheckpointError):
        logistic(**settings).set_params(log_likelihood=another).fit(X, y)
    resumed = logistic(**settings).fit(X, y)
    assert resumed.privacy_ is not None
    assert resumed.privacy_.steps == 4, "the release that may have been lost is charged once more"
