"""Mixed models: against statsmodels, against each other, with privacy, and what they refuse."""

import warnings
from functools import cache
from typing import Any

import numpy as np
import polars as pl
import pytest
from sklearn.base import clone

from dpsep import Ledger, MixedClassifier, MixedRegressor, OverBudget, PrivacyLeakWarning, WeakBudgetWarning
from dpsep.estimators.units import slots
from dpsep.privacy.checkpoint import CheckpointError

GROUPS, ROWS = 60, 10
TRUTH = np.array([0.3, 1.0, -0.5])


@cache
def table(family: str, groups: int = GROUPS, rows: int = ROWS, seed: int = 0):
    rng = np.random.default_rng(seed)
    member = rng.permutation(np.repeat(np.arange(groups), rows))
    X = rng.uniform(-1, 1, (len(member), 2))
    u = TRUTH[0] + X @ TRUTH[1:] + 0.7 * rng.standard_normal(groups)[member]
    if family == "linear":
        return X, u + 0.5 * rng.standard_normal(len(u)), member
    if family == "poisson":
        return X, rng.poisson(np.exp(u)).astype(float), member
    return X, np.where(rng.logistic(size=len(u)) < u, "yes", "no"), member


def make(family: str, **more: Any) -> Any:
    settings: dict[str, Any] = {"groups": GROUPS, "bounds": (-1, 1), "private": False} | more
    if settings.get("unit") == "group":
        settings.setdefault("rows_per_group", ROWS)
    if family in ("logistic", "probit"):
        return MixedClassifier(family, classes=["no", "yes"], **settings)  # pyright: ignore[reportArgumentType]
    if family == "linear":
        settings.setdefault("target_bounds", (-5, 5))
    return MixedRegressor(family, **settings)  # pyright: ignore[reportArgumentType]


@cache
def fitted(family: str, unit: str):
    X, y, member = table(family)
    return make(family, unit=unit).fit(X, y, groups=member)


@pytest.mark.parametrize("unit", ["record", "group"])
def test_a_linear_mixed_model_is_that_of_statsmodels(unit):
    import statsmodels.api as sm

    X, y, member = table("linear")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        peer: Any = sm.MixedLM(y, sm.add_constant(X), groups=member).fit()
    model = fitted("linear", unit)
    assert np.abs(model.posterior_.mean - peer.fe_params).max() < 0.1 * np.asarray(peer.bse_fe).min()
    assert model.posterior_.sd == pytest.approx(np.asarray(peer.bse_fe), rel=0.06)
    log_sd = 0.5 * np.log(np.asarray(peer.cov_re)[0, 0])
    assert abs(model.components_.mean[0] - log_sd) < 0.3 * model.components_.sd[0]
    shape, rate = model.posterior_.noise_shape, model.posterior_.noise_rate
    assert rate / shape == pytest.approx(peer.scale, rel=0.03)


@pytest.mark.parametrize("family", ["logistic", "poisson"])
def test_both_units_give_one_posterior(family):
    by_record, by_group = fitted(family, "record"), fitted(family, "group")
    sd = by_group.posterior_.sd
    assert np.abs(by_record.posterior_.mean - by_group.posterior_.mean).max() < 0.15 * sd.min()
    assert by_record.posterior_.sd == pytest.approx(sd, rel=0.06)
    away = by_record.components_.mean[0] - by_group.components_.mean[0]
    assert abs(away) < 0.3 * by_group.components_.sd[0]


def test_random_slopes_are_found():
    rng = np.random.default_rng(1)
    X, _, member = table("linear")
    y = (
        X @ [1.0, -0.5]
        + 0.8 * rng.standard_normal(GROUPS)[member] * X[:, 0]
        + 0.3 * rng.standard_normal(len(X))
    )
    for unit in ("record", "group"):
        model = make("linear", unit=unit, slopes=[0]).fit(X, y, groups=member)
        assert model.components_.names[:2] == ("sd(intercept)", "sd(x0)")
        intercept, slope = np.exp(model.components_.mean[:2])
        assert slope == pytest.approx(0.8, rel=0.3)
        assert intercept < 0.2


def test_known_groups_are_predicted_by_their_own_effects():
    X, y, member = table("linear")
    model = fitted("linear", "record")
    own, own_sd = model.predict(X, groups=member, return_std=True)
    new, new_sd = model.predict(X, return_std=True)
    assert np.sqrt(np.mean((y - own) ** 2)) < 0.55
    assert np.sqrt(np.mean((y - new) ** 2)) > 0.8
    assert (own_sd < new_sd).all()
    assert np.mean(np.abs(y - new) < 1.645 * new_sd) == pytest.approx(0.9, abs=0.05)
    undeclared = model.predict(X[:3], groups=np.array([GROUPS + 7, -1, 0]))
    assert undeclared[:2] == pytest.approx(new[:2])
    assert undeclared[2] != pytest.approx(new[2])
    assert model.random_effects_.shape == (GROUPS, 1, 2)


def test_groups_as_units_release_no_random_effects():
    X, _, member = table("linear")
    model = fitted("linear", "group")
    assert not hasattr(model, "random_effects_")
    assert len(model.weights_mean_) == 3
    assert model.predict(X, groups=member) == pytest.approx(model.predict(X))


def test_classifiers_predict_labels_and_probabilities():
    X, y, member = table("logistic")
    model = fitted("logistic", "record")
    chances = model.predict_proba(X, groups=member)
    assert chances.sum(1) == pytest.approx(1.0)
    assert ((chances[:, 1] > 0.5) == (model.predict(X, groups=member) == "yes")).all()
    assert np.mean(model.predict(X, groups=member) == y) > np.mean(model.predict(X) == y)
    density = model.log_predictive_density(X, y, groups=member)
    assert density == pytest.approx(np.log(np.where(y == "yes", chances[:, 1], chances[:, 0])))


def test_draws_of_new_rows_have_the_predicted_moments():
    X, _, _ = table("linear")
    model = fitted("linear", "group")
    mean, sd = model.predict(X[:4], return_std=True)
    draws = model.posterior_predictive(X[:4], 20000, random_state=0)
    assert draws.mean(0) == pytest.approx(mean, abs=0.04)
    assert draws.std(0) == pytest.approx(sd, rel=0.04)


def test_a_summary_has_a_row_for_every_standard_deviation():
    rows = {row["name"]: row for row in fitted("linear", "group").summary()}
    assert list(rows) == ["intercept", "x0", "x1", "sd(intercept)", "sd(noise)"]
    assert rows["sd(noise)"]["low"] < 0.5 < rows["sd(noise)"]["high"]
    assert rows["sd(intercept)"]["low"] > 0


def test_groups_are_coded_by_declared_labels_of_any_kind():
    X, y, member = table("linear")
    names = np.array([f"clinic {g}" for g in range(GROUPS)])
    plain = fitted("linear", "record")
    for labels in (names[member], pl.Series(names[member]), names[member].tolist()):
        model = make("linear", groups=names.tolist()).fit(X, y, groups=labels)
        assert model.posterior_.mean == pytest.approx(plain.posterior_.mean)
    undeclared = make("linear", groups=None).fit(X, y, groups=member)
    assert undeclared.posterior_.mean == pytest.approx(plain.posterior_.mean)


def test_slots_hold_the_first_rows_of_each_group_and_nothing_of_others():
    X, y = np.arange(6.0)[:, None], np.arange(6.0)
    cells, outcomes = slots(X, y, np.array([2.0, 0.0, 2.0, np.nan, 2.0, 0.0]), 4, 2)
    assert outcomes[0].tolist() == [1, 5]
    assert outcomes[2].tolist() == [0, 2], "the third row of the group is dropped"
    assert np.isnan(outcomes[[1, 3]]).all()
    assert (cells[..., 0] == outcomes)[np.isfinite(outcomes)].all()


@pytest.mark.parametrize(
    ("family", "unit"), [("linear", "group"), ("linear", "record"), ("logistic", "record")]
)
def test_a_private_posterior_is_near_the_truth_and_knows_its_noise(family, unit):
    groups, rows = (500, 5) if unit == "group" else (15, 300)
    X, y, member = table(family, groups, rows, seed=3)
    more = {"rows_per_group": rows} if unit == "group" else {}
    model = make(family, private=True, epsilon=2.0, groups=groups, unit=unit, random_state=0, **more)
    with pytest.warns(PrivacyLeakWarning, match="random_state"):
        model.fit(X, y, groups=member)
    assert model.privacy_.unit == unit
    assert model.privacy_.epsilon <= 2.0
    away = (model.posterior_.mean - TRUTH) / model.posterior_.sd
    assert np.abs(away).max() < 4
    assert all(0 < row["noise_share"] < 1 for row in model.posterior_.summary())


def test_a_posterior_without_the_noise_says_so_in_its_summary():
    X, y, member = table("linear", 15, 100, seed=3)
    model = make(
        "linear", private=True, epsilon=2.0, groups=15, unit="record", random_state=0, noise_aware=False
    )
    with pytest.warns(PrivacyLeakWarning, match="random_state"):
        model.fit(X, y, groups=member)
    assert not model.posterior_.noise_aware
    assert all(row.get("noise_share", 0.0) == 0.0 for row in model.posterior_.summary())


@pytest.mark.parametrize("unit", ["record", "group"])
def test_without_a_fixed_intercept_columns_and_target_keep_their_zero(unit):
    X, _, member = table("linear")
    X = X + 10.0
    y = X @ [1.0, -0.5] + 0.1 * np.random.default_rng(0).standard_normal(len(X))
    settings: dict[str, Any] = {"bounds": (9, 11), "target_bounds": (0, 12), "fit_intercept": False}
    model = make("linear", unit=unit, **settings).fit(X, y, groups=member)
    assert model.posterior_.mean == pytest.approx([1.0, -0.5], abs=0.01)
    new = np.array([[9.0, 9.0], [9.0, 11.0], [11.0, 9.0]])
    assert model.predict(new) == pytest.approx([4.5, 3.5, 6.5], abs=0.05)


def test_many_columns_can_be_fitted_by_group():
    X, y, member = table("linear")
    wide = np.concatenate([X, np.random.default_rng(1).uniform(-1, 1, (len(X), 18))], axis=1)
    model = make("linear", unit="group").fit(wide, y, groups=member)
    assert model.posterior_.mean[:3] == pytest.approx(TRUTH, abs=0.5)


def test_too_little_budget_is_warned_of_from_public_numbers():
    X, y, member = table("linear")
    with pytest.warns(WeakBudgetWarning, match="60 groups say of 5 weights"):
        make("linear", private=True, epsilon=0.5, unit="group", steps=2).fit(X, y, groups=member)


@pytest.mark.filterwarnings("ignore::dpsep.WeakBudgetWarning")
def test_a_fit_is_charged_before_a_row_is_read(tmp_path):
    X, y, member = table("linear")
    ledger = Ledger.create(tmp_path / "ledger", epsilon=1.0, delta=1e-4, unit="group")
    model = make("linear", private=True, epsilon=2.0, unit="group", ledger=ledger)
    broken = np.full_like(X, np.nan)
    with pytest.raises(OverBudget):
        model.fit(broken, y, groups=member)
    assert ledger.remaining().epsilon == pytest.approx(1.0)


@pytest.mark.filterwarnings("ignore::dpsep.WeakBudgetWarning")
def test_a_resumed_run_must_have_the_same_groups(tmp_path):
    X, y, member = table("linear")
    settings = {"private": True, "unit": "group", "steps": 2, "checkpoint": tmp_path / "kept"}
    first = make("linear", **settings).fit(X, y, groups=member)
    again = make("linear", **settings).fit(X, y, groups=member)
    assert (first.posterior_.mean == again.posterior_.mean).all(), "releases are used again"
    for other in ({"groups": GROUPS + 1}, {"rows_per_group": 3}, {"slopes": [0]}, {"prior_scale": 3.0}):
        with pytest.raises(CheckpointError):
            make("linear", **settings | other).fit(X, y, groups=member)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"family": "gamma"}, "family must be one of"),
        ({"unit": "two words"}, "unit must be"),
        ({"unit": "group"}, "rows_per_group"),
        ({"correlated": True}, "correlated"),
        ({"slopes": ["dose"]}, "no column"),
        ({"slopes": [0, 0]}, "twice"),
        ({"random_intercept": False}, "random intercept or a random slope"),
        ({"groups": None}, "not declared"),
        ({"groups": 0}, "positive number"),
        ({"groups": ["a", "a"]}, "twice"),
        ({"groups": 1000}, "at most"),
        ({"rows_per_group": 0, "unit": "group"}, "whole number"),
    ],
)
def test_what_cannot_be_fitted_is_refused_before_the_charge(settings, message, tmp_path):
    X, y, member = table("linear")
    ledger = Ledger.create(tmp_path / "ledger", epsilon=1.0, delta=1e-4)
    model = MixedRegressor(**({"groups": GROUPS, "bounds": (-1, 1), "ledger": ledger} | settings))
    with pytest.raises(ValueError, match=message):
        model.fit(X, y, groups=member)
    assert len(ledger.rows()) == 1, "only the ledger's own first row"


def test_groups_must_be_one_label_a_row():
    X, y, member = table("linear")
    with pytest.raises(ValueError, match="one label a row"):
        make("linear").fit(X, y, groups=member[:-1])
    with pytest.raises(ValueError, match="one for each"):
        fitted("linear", "record").predict(X, groups=member[:-1])


def test_without_groups_all_rows_are_of_one():
    X, y, _ = table("linear")
    model = make("linear").fit(X, y)
    assert model.predict(X).shape == y.shape
    copied: Any = clone(model)
    assert copied.get_params()["groups"] == GROUPS
