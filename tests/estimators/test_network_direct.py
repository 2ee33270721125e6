"""Inputs that reach the output directly, and the linear model that their weights start from."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone

from dpsep import NetworkClassifier, NetworkRegressor
from dpsep.estimators import network_open, network_run, store
from dpsep.estimators.input_checks import no_scaling
from dpsep.estimators.network_releases import moment_plan, release_of
from dpsep.estimators.network_task import Task
from dpsep.inference import moments
from dpsep.privacy.gate import Gate
from dpsep.theory.networks import SepPlan, noise_clip

from .network_made import (
    BOUNDS,
    HIDDEN,
    PRIVATE_WAYS,
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


def line(seed: int, rows: int = 1500) -> tuple[np.ndarray, np.ndarray]:
    """A linear table of ten columns with noise of deviation 0.3."""
    rng = np.random.default_rng(seed)
    x = rng.uniform(-1, 1, (rows, 10))
    return x, x @ np.linspace(-0.6, 0.6, 10) + 0.3 * rng.normal(size=rows)


def task(**others: Any) -> Task:
    known: dict[str, Any] = {"records": 400, "features": 2, "hidden": (3,), "activation": "sine"}
    known |= {"outcome": "regression", "method": "sep", "covariance": "kronecker", "standard": False}
    known |= {"feature_scaling": no_scaling(2), "outcome_scaling": no_scaling(1)}
    return Task(**(known | {"clip": None, "steps": None, "direct": True} | others))


@pytest.mark.parametrize("private", [True, False])
@pytest.mark.parametrize("way", PRIVATE_WAYS)
def test_left_alone_regression_in_the_kronecker_basis_has_direct_inputs_and_sine_units(
    way: str, private: bool
) -> None:
    model, other = (
        fit(private=private, **PRIVATE_WAYS[way], **more)
        for fit, more in ((seeded, BOUNDS), (seeded_classes, {}))
    )
    found, labelled = model.posterior_, other.posterior_
    basis = way == "kronecker"
    assert (found.direct, found.activation) == ((True, "sine") if basis else (False, "relu"))
    assert (labelled.direct, labelled.activation) == (False, "relu")
    assert model.n_weights_ == found.mean.size == WEIGHTS + (2 if basis else 0)
    assert other.n_weights_ == WEIGHTS


def test_without_privacy_the_default_is_still_the_papers_network() -> None:
    found = regressor(private=False, steps=1).fit(X, Y).posterior_
    assert (found.kind, found.direct, found.activation) == ("diagonal", False, "relu")


def test_a_linear_model_has_no_direct_inputs_beside_it() -> None:
    model = seeded(hidden=(), steps=1, **BOUNDS)
    assert not model.posterior_.direct
    assert model.n_weights_ == 3


@pytest.mark.parametrize("hidden", [HIDDEN, (HIDDEN, 2)])
def test_layers_summary_and_draws_have_the_direct_weights_in_the_last_layer(hidden: Any) -> None:
    model = seeded(hidden=hidden, **BOUNDS)
    last = (hidden if isinstance(hidden, int) else hidden[-1]) + 2 + 1
    assert model.posterior_.shapes[-1] == (1, last)
    assert model.summary()[-1]["weights"] == last
    drawn = model.posterior_.draw(7, np.random.default_rng(0))
    assert drawn[-1].shape == (7, 1, last)
    assert_proper(model)


def test_draws_of_outputs_have_the_moments_that_predictions_are_made_from() -> None:
    found = seeded(**BOUNDS).posterior_
    mean, variance = found.predictor(X[:6])
    outputs = found.outputs(found.draw(20_000, np.random.default_rng(0)), X[:6])
    np.testing.assert_allclose(outputs.mean(axis=0), mean, atol=5 * np.sqrt(variance.max() / 20_000))
    np.testing.assert_allclose(outputs.var(axis=0), variance, rtol=0.05)


@pytest.mark.parametrize("maker", [NetworkRegressor, NetworkClassifier])
def test_the_new_parameters_are_kept_cloned_and_set(maker: Any) -> None:
    model = maker()
    assert (model.get_params()["direct"], model.get_params()["activation"]) == (None, "auto")
    twin: Any = clone(maker(direct=False, activation="sine"))
    assert (twin.direct, twin.activation) == (False, "sine")
    assert twin.set_params(direct=True).get_params()["direct"] is True


@pytest.mark.parametrize("direct", [True, False])
def test_an_estimator_comes_back_from_its_folder_bit_for_bit(direct: Any, tmp_path: Path) -> None:
    for number, model in enumerate((seeded(direct=direct, **BOUNDS), seeded_classes(direct=direct))):
        store.save(model, tmp_path / str(number))
        back: Any = store.load(tmp_path / str(number))
        assert back.direct is direct
        assert back.posterior_.direct is model.posterior_.direct
        assert bits(back) == bits(model)
        np.testing.assert_array_equal(back.predict(X), model.predict(X))


def test_a_posterior_that_says_nothing_of_direct_inputs_has_none() -> None:
    """As those that were stored before there were any."""
    found = seeded(direct=False, **BOUNDS).posterior_
    fields = {name: value for name, value in found._asdict().items() if name != "direct"}
    again = type(found)(**fields)
    assert again.shapes == found.shapes
    np.testing.assert_array_equal(again.predictor(X)[0], found.predictor(X)[0])


def test_direct_inputs_may_be_asked_for_with_labels_and_with_other_units() -> None:
    model = seeded_classes(direct=True)
    assert model.n_weights_ == WEIGHTS + 2
    assert_proper(model)
    free = quietly(classifier(private=False, covariance="kronecker", direct=True, steps=3), X, labels(X))
    assert free.posterior_.direct
    assert seeded(activation="sigmoid", steps=1, **BOUNDS).posterior_.direct


def test_with_direct_inputs_a_private_fit_of_a_linear_table_is_better() -> None:
    """What is linear is known from the moments: the hidden units need not find it."""
    errors = {True: [], False: []}
    for seed in range(2):
        x, y = line(seed)
        for direct, found in errors.items():
            bounds: dict[str, Any] = {"bounds": (-1.0, 1.0), "target_bounds": (-3.0, 3.0)}
            model = seeded(x, y, seed=seed, direct=direct, activation="relu", hidden=8, steps=30, **bounds)
            found.append(np.sqrt(np.mean((model.predict(x) - x @ np.linspace(-0.6, 0.6, 10)) ** 2)))
    assert np.mean(errors[True]) < 0.8 * np.mean(errors[False])
    assert all(one < other for one, other in zip(*errors.values(), strict=True))


@pytest.mark.parametrize("scaling", [BOUNDS, STANDARD], ids=["bounds", "standard"])
def test_a_private_start_is_a_function_of_the_released_moments(
    scaling: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the fit is given equals what released moments and public numbers give, and nothing else."""
    kept: list[moments.Moments] = []
    starts: list[Any] = []
    run, fit = moments.run, network_run.network.run

    def released(*arguments: Any, **more: Any) -> moments.Moments:
        kept.append(run(*arguments, **more))
        return kept[-1]

    def started(gate: Any, shape: Any, settings: Any, *more: Any) -> Any:
        starts.append(settings)
        return fit(gate, shape, settings, *more)

    monkeypatch.setattr(moments, "run", released)
    monkeypatch.setattr(network_run.network, "run", started)
    monkeypatch.setattr(network_open, "own_inputs", lambda *_: pytest.fail("records outside a gate"))
    seeded(steps=1, **scaling)
    # The first of each are the rehearsal's, before the charge.
    (_, found), (_, settings) = kept, starts
    unit = np.ones(3) if scaling is STANDARD else np.sqrt(np.diag(found.covariance))
    covariance = found.covariance / np.outer(unit, unit)
    # 400 records at epsilon 1: the ridge is large, and whatever it is, the weights are those that it gives.
    own, cross = covariance[:2, :2], covariance[:2, 2]
    linear = np.asarray(settings.linear)
    ridge = (cross - own @ linear) / linear
    assert ridge[0] == pytest.approx(ridge[1], rel=1e-6)
    assert ridge[0] > moments.LEAST_RIDGE
    left = covariance[2, 2] - 2 * linear @ cross + linear @ own @ linear
    assert settings.first_noise == pytest.approx(min(1.2 * max(left, 1e-3) + 0.05, 1.0), rel=1e-9)


def test_the_ridge_knows_the_noise_that_the_gate_adds(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[float] = []
    release, ridge_of = Gate.release, moments.ridge_of

    def noted(self: Gate, public: Any) -> dict[str, np.ndarray]:
        if "second" in self.deviations:
            seen.append(self.deviations["second"])
        return release(self, public)

    def asked(edge: float, looks: int) -> float:
        if seen:  # after the rehearsal, which comes before the charge
            # Of 400 records: two features, the target and the one.
            assert edge == pytest.approx(np.sqrt(2 * 4) * seen[-1] / 400, rel=1e-9)
            assert looks == len(seen)
        return ridge_of(edge, looks)

    monkeypatch.setattr(Gate, "release", noted)
    monkeypatch.setattr(moments, "ridge_of", asked)
    seeded(steps=1, **BOUNDS)
    assert len(seen) == moment_plan(task())[1]


def test_blocks_of_a_release_are_one_vector_and_one_number_within_the_share() -> None:
    mean, noise = release_of(task()).blocks
    assert (mean.size, mean.clip) == (HIDDEN * 3 + HIDDEN + 1 + 2, 1.0)
    assert (noise.name, noise.size, noise.clip) == ("noise", 1, noise_clip(400))
    assert mean.share + noise.share == pytest.approx(1.0, abs=1e-15)
    diagonal = release_of(task(covariance="diagonal", direct=False)).blocks
    assert (diagonal[-1].size, diagonal[-1].clip) == (2, 4.0)


def test_the_clip_of_the_noise_number_follows_from_the_number_of_records() -> None:
    assert [noise_clip(records) for records in (1, 8000, 12_000, 10**9)] == [8.0, 8.0, 12.0, 16.0]


def test_the_first_noise_variance_is_above_what_the_line_leaves_and_at_most_one() -> None:
    plan = SepPlan(50, 0.5)
    for left in (0.0, 1e-9, 0.1, 0.5, 0.79):
        assert left < plan.first_noise(left) <= 1.0
    assert plan.first_noise(0.9) == plan.first_noise(50.0) == 1.0


def test_one_record_moves_an_open_fit_only() -> None:
    """Without privacy the linear start is the table's own, exactly least squares up to a small ridge."""
    inputs = network_open.own_inputs(task(), (X, Y))
    x, y = ((part - part.mean(axis=0)) / part.std(axis=0) for part in (X, Y))
    expected = np.linalg.solve(x.T @ x / len(x) + moments.LEAST_RIDGE * np.eye(2), x.T @ y / len(x))
    np.testing.assert_allclose(inputs.linear, expected, rtol=1e-6)
    assert inputs.left == pytest.approx(float(np.mean((y - x @ expected) ** 2)), rel=1e-6)
