"""Splits, scores and fits of the network tables, on small made tables."""

import math
from typing import Any

import jax
import numpy as np
import pytest
from scipy.stats import norm

import dpsep.estimators
from dpsep.inference import sep
from dpsep.privacy.gaussian import gaussian_mu
from dpsep_lab.paper import network_written, networks, noise
from dpsep_lab.paper.networks import Refused, Split, ours, score, split_of


def made(dataset: str = "kin8nm", factor: float = 1.0, shift: float = 0.0, records: int = 60) -> Split:
    """A bent line of three features, the last of them constant, with its target in any units."""
    generator = np.random.default_rng(3)
    X = generator.normal(5.0, 2.0, (records + 20, 3))
    X[:, 2] = 7.0
    y = np.maximum(X[:, 0] - 5.0, 0.0) - X[:, 1] + 0.1 * generator.standard_normal(len(X))
    y = shift + factor * y
    return split_of(dataset, 1, (X[:records], y[:records]), (X[records:], y[records:]))


def test_a_split_is_standardised_by_its_training_part_and_a_constant_column_stays() -> None:
    split = made()
    X, y = split.standardised
    np.testing.assert_allclose(X.mean(axis=0), 0.0, atol=1e-12)
    np.testing.assert_allclose(X[:, :2].std(axis=0), 1.0)
    np.testing.assert_array_equal(X[:, 2], 0.0)
    assert (y.mean(), y.std()) == (pytest.approx(0.0, abs=1e-12), pytest.approx(1.0))
    expected = (split.X_test[:, 0] - split.X[:, 0].mean()) / split.X[:, 0].std()
    np.testing.assert_allclose(split.standard(split.X_test)[:, 0], expected)


def test_fewer_records_are_a_split_of_their_own() -> None:
    split = made(records=60)
    few = split.fewer(10)
    assert few.X.shape == (10, 3)
    assert len(np.unique(few.X[:, 0])) == 10
    np.testing.assert_array_equal(few.centre, few.X.mean(axis=0))
    np.testing.assert_array_equal(few.y_test, split.y_test)
    assert split.fewer(60) is split


@pytest.mark.parametrize(("name", "hidden"), [("kin8nm", 50), ("protein", 100), ("year", 100)])
def test_hidden_units_are_the_papers(name: str, hidden: int) -> None:
    assert made(name).hidden == hidden


def test_scores_of_a_known_predictor_are_in_the_targets_units() -> None:
    split = made(factor=30.0, shift=-4.0)
    mean = split.y_test + np.where(np.arange(20) % 2, 6.0, -8.0)
    found = score(split, mean, norm.logpdf(split.y_test, mean, 5.0), 1.5)
    assert found.rmse == pytest.approx(math.sqrt((36 + 64) / 2))
    expected = -0.5 * math.log(2 * math.pi * 25.0) - 0.5 * (36 + 64) / 2 / 25.0
    assert found.log_likelihood == pytest.approx(expected)
    assert found.seconds == 1.5


@pytest.mark.parametrize("settings", [{}, {"gamma": "N", "clip": 2.0}, {"clip": 1.0, "epsilon": 1.0}])
def test_a_target_in_other_units_changes_the_scores_by_its_unit_alone(settings: dict[str, Any]) -> None:
    fit = network_written.written(2, **settings)
    plain, scaled = fit(made()), fit(made(factor=10.0, shift=300.0))
    assert scaled.rmse == pytest.approx(10.0 * plain.rmse, rel=1e-6)
    assert scaled.log_likelihood == pytest.approx(plain.log_likelihood - math.log(10.0), abs=1e-6)


def test_sep_with_gamma_of_n_learns_the_line_and_gamma_of_one_is_far_behind() -> None:
    split = made(records=300)
    fast, slow = (network_written.written(10, gamma=gamma)(split) for gamma in ("N", 1.0))
    assert fast.rmse < 0.35 * split.target_scale
    assert slow.rmse > 2.0 * fast.rmse  # 1 - exp(-10 / 300): it has taken in three records of a hundred


def test_a_run_is_that_of_its_split_and_its_passes() -> None:
    fit = network_written.written(1, clip=1.0, epsilon=1.0)
    first, again = fit(made()), fit(made())
    assert first[:2] == again[:2]
    assert fit(made()._replace(number=2)).rmse != first.rmse


class Spied(Exception):
    """Carries what Algorithm 3 was called with."""


def called(monkeypatch: pytest.MonkeyPatch, split: Split, **settings: Any) -> tuple[Any, ...]:
    def spy(*arguments: Any) -> None:
        raise Spied(*arguments)

    monkeypatch.setattr(sep, "simulate", spy)
    with pytest.raises(Spied) as caught:
        network_written.written(40, epsilon=1.0, **settings)(split)
    return caught.value.args


@pytest.mark.parametrize(("relation", "moved"), [("zero-out", 1.0), ("replace-one", 2.0)])
def test_as_written_forty_passes_are_one_gaussian_release_of_epsilon_one(
    relation: Any, moved: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, settings, _, order, _, deviations = called(monkeypatch, made(), clip=3.0, relation=relation)
    assert (settings.clip, settings.gamma, settings.records) == ((3.0,) * 4, 1.0, 60)
    assert sorted(np.asarray(order)[:60]) == list(range(60))  # a permutation a pass
    assert len(order) == 40 * 60
    # The family's leaves, each at its clip: one record moves theta by this much.
    leaves = len(jax.tree.leaves(settings.prior))
    assert len(set(deviations)) == 1
    assert len(deviations) == leaves
    sensitivity = moved * math.sqrt(leaves) * 3.0 / 60
    assert math.sqrt(40) * sensitivity / deviations[0] == pytest.approx(gaussian_mu(1.0, 1e-5), rel=1e-6)


def test_as_accounted_draws_afresh_and_takes_the_noise_for_that(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []

    def as_accounted(*arguments: Any, **public: Any) -> float:
        asked.append((arguments, public))
        return 0.25

    monkeypatch.setattr(noise, "as_accounted", as_accounted)
    *_, order, _, deviations = called(monkeypatch, made(), clip=2.0, order="fresh")
    assert asked == [((1.0, 2.0, 1.0), {"records": 60, "passes": 40, "leaves": 4})]
    assert deviations == (0.25,) * 4
    assert len(order) == 40 * 60
    assert sorted(np.asarray(order)[:60]) != list(range(60))


def test_the_prior_does_not_depend_on_the_data_and_tells_hidden_units_apart(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    priors = [
        called(monkeypatch, split, clip=1.0)[1].prior for split in (made(), made(factor=9.0, records=70))
    ]
    for one, other in zip(*map(jax.tree.leaves, priors), strict=True):
        np.testing.assert_array_equal(one, other)
    means = np.asarray(priors[0].weights.eta)[: 50 * 4].reshape(50, 4)
    assert len(np.unique(means[:, 0])) == 50


class Recorder:
    """Stands in for our estimator: predicts the training mean and keeps what it was given."""

    given: Any = None

    def __init__(self, **parameters: Any) -> None:
        type(self).given = parameters

    def fit(self, X: np.ndarray, y: np.ndarray) -> "Recorder":
        self.mean, self.sd = y.mean(), y.std()
        return self

    def predict(self, X: np.ndarray) -> np.ndarray:
        return np.full(len(X), self.mean)

    def log_predictive_density(self, X: np.ndarray, y: np.ndarray) -> np.ndarray:
        return norm.logpdf(y, self.mean, self.sd)


def test_ours_declares_the_training_scaling_as_public_or_leaves_it_to_the_estimator(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(dpsep.estimators, "NetworkRegressor", Recorder, raising=False)
    split = made()
    found = ours(method="vi", epsilon=1.0, relation="zero-out")(split)
    (centre, scale), target = Recorder.given.pop("public_scaling")
    np.testing.assert_allclose(centre, split.X.mean(axis=0))
    np.testing.assert_allclose(scale[:2], split.X[:, :2].std(axis=0))
    assert target == (split.y.mean(), split.y.std())
    assert Recorder.given == {
        **{"method": "vi", "epsilon": 1.0, "delta": 1e-5, "relation": "zero-out"},
        **{"hidden": (50,), "random_state": 1},
    }
    assert found.rmse == pytest.approx(np.sqrt(np.mean((split.y_test - split.y.mean()) ** 2)))
    ours(scaling="private", epsilon=1.0)(split)
    assert "public_scaling" not in Recorder.given
    assert "scaling" not in Recorder.given
    ours(hidden=None, epsilon=1.0)(split)
    assert Recorder.given["hidden"] is None


@pytest.mark.parametrize(
    ("method", "error", "seen"),
    [("ep", MemoryError, Refused), ("ep", ValueError, Refused), ("sep", ValueError, ValueError)],
)
def test_a_set_too_large_for_ep_is_refused_with_its_words_and_other_errors_are_errors(
    method: str, error: type[Exception], seen: type[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fit(*_: Any) -> None:
        raise error("sites would take 70 GB")

    monkeypatch.setattr(dpsep.estimators, "NetworkRegressor", Recorder, raising=False)
    monkeypatch.setattr(Recorder, "fit", fit)
    with pytest.raises(seen, match="sites would take 70 GB"):
        networks.ours(method=method, private=False)(made())


@pytest.mark.deep
@pytest.mark.skipif(
    not hasattr(dpsep.estimators, "NetworkRegressor"), reason="the network estimator is not in this package"
)
@pytest.mark.parametrize(
    "parameters",
    [
        {"method": "sep", "private": False, "steps": 3},
        {"method": "sep", "epsilon": 1.0, "relation": "replace-one", "steps": 3},
    ],
)
def test_our_estimator_gives_finite_scores(parameters: dict[str, Any]) -> None:
    found = ours(**parameters)(made(records=200))
    assert all(map(math.isfinite, found))
