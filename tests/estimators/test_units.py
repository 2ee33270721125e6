"""Regressions that protect all rows of a person: one row of the gate, and intervals that know of it."""

from typing import Any

import numpy as np
import pytest

from dpsep import (
    GammaRegression,
    Ledger,
    LinearRegression,
    LogisticRegression,
    NegativeBinomialRegression,
    PoissonRegression,
    ProbitRegression,
    StudentRegression,
)
from dpsep.estimators.store import load, save
from dpsep.privacy.ledger import LedgerError

pytestmark = [
    pytest.mark.filterwarnings("ignore:random_state fixes:dpsep.privacy.leaks.PrivacyLeakWarning"),
    pytest.mark.filterwarnings("ignore::dpsep.WeakBudgetWarning"),
]

PERSONS, MOST = 300, 6
WHOLE: dict[str, Any] = {"unit": "person", "groups": PERSONS, "rows_per_group": MOST}
BOUNDS: dict[str, Any] = {"bounds": (-1.0, 1.0), "delta": 1e-5, "random_state": 1}
WEIGHTS = np.array([0.5, -0.4])


def table(seed: int = 0, effect: float = 0.8) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """One column that is the person's and one that is not; errors of a person go together."""
    rng = np.random.default_rng(seed)
    person = np.repeat(np.arange(PERSONS), rng.integers(1, MOST + 1, PERSONS))
    own = rng.uniform(-1, 1, PERSONS)
    x = np.column_stack([own[person], rng.uniform(-1, 1, len(person))])
    errors = effect * rng.normal(size=PERSONS)[person] + 0.5 * rng.normal(size=len(person))
    order = rng.permutation(len(person))
    return x[order], (x @ WEIGHTS + errors)[order], person[order]


X, Y, PERSON = table()


def clustered(x: np.ndarray, y: np.ndarray, person: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Least squares and the covariance that is robust against errors of a person that go together."""
    x = np.column_stack([np.ones(len(x)), x])
    inverse = np.linalg.inv(x.T @ x)
    mean = inverse @ x.T @ y
    scores = np.zeros((PERSONS, 3))
    np.add.at(scores, person, x * (y - x @ mean)[:, None])
    return mean, inverse @ (scores.T @ scores) @ inverse


def test_without_privacy_it_is_least_squares_with_the_robust_covariance() -> None:
    model = LinearRegression(private=False, prior_scale=1e3, **WHOLE).fit(X, Y, groups=PERSON)
    mean, covariance = clustered(X, Y, PERSON)
    found = np.sqrt(np.diag(model.posterior_.covariance))
    np.testing.assert_allclose(model.posterior_.mean, mean, atol=0.02 * found.min())
    np.testing.assert_allclose(found, np.sqrt(np.diag(covariance)), rtol=0.02)
    alone = LinearRegression(private=False).fit(X, Y)
    widths = found / np.sqrt(np.diag(alone.posterior_.covariance))
    assert widths[1] > 1.3, "the column of persons"
    assert widths[2] < 1.2, "the column of rows"


def test_persons_of_one_row_are_records() -> None:
    y = (Y > 0).astype(int)
    one: dict[str, Any] = {"unit": "person", "groups": len(X), "rows_per_group": 1, "classes": [0, 1]}
    model = LogisticRegression(private=False, **one).fit(X, y, groups=np.arange(len(X)))
    alone = LogisticRegression(private=False, classes=[0, 1]).fit(X, y)
    deviation = np.sqrt(np.diag(alone.posterior_.covariance))
    assert (np.abs(model.posterior_.mean - alone.posterior_.mean) < 0.05 * deviation).all()
    np.testing.assert_allclose(np.sqrt(np.diag(model.posterior_.covariance)), deviation, rtol=0.1)


KINDS: dict[str, tuple[Any, np.ndarray]] = {
    "linear": (LinearRegression, Y),
    "student": (StudentRegression, Y),
    "logistic": (LogisticRegression, (Y > 0).astype(int)),
    "probit": (ProbitRegression, (Y > 0).astype(int)),
    "poisson": (PoissonRegression, np.round(np.exp(Y / 2))),
    "negative binomial": (NegativeBinomialRegression, np.round(np.exp(Y / 2))),
    "gamma": (GammaRegression, np.exp(Y)),
}


def private(kind: str, epsilon: float = 8.0, **more: Any) -> tuple[Any, np.ndarray]:
    estimator, y = KINDS[kind]
    settings = BOUNDS | WHOLE | more
    if kind in ("linear", "student"):
        settings = {"target_bounds": (-4.0, 4.0)} | settings
    if kind == "gamma":
        settings = {"target_bounds": (0.02, 40.0)} | settings
    if kind in ("logistic", "probit"):
        settings |= {"classes": [0, 1]}
    return estimator(epsilon=epsilon, **settings), y


@pytest.mark.parametrize("kind", KINDS)
def test_every_regression_protects_persons(kind: str) -> None:
    model, y = private(kind)
    model.fit(X, y, groups=PERSON)
    free, _ = private(kind, private=False, random_state=None)
    free.fit(X, y, groups=PERSON)
    off = (model.posterior_.mean - free.posterior_.mean) / np.sqrt(np.diag(model.posterior_.covariance))
    assert (np.abs(off) < 4).all()
    assert model.privacy_.unit == "person"
    assert "for each person" in model.privacy_.sentence()
    assert 0.999 * 8.0 <= model.privacy_.epsilon <= 8.0
    assert model.n_records_ == PERSONS
    assert abs(model.usable_rows_ - PERSONS) < 5 * model.usable_rows_sd_
    assert model.predict(X[:3]).shape == (3,)


def test_without_bounds_they_are_found_from_one_row_a_person() -> None:
    model, y = private("linear", epsilon=10.0, bounds=None, target_bounds=None)
    model.fit(X, y, groups=PERSON)
    free, _ = private("linear", private=False, random_state=None)
    free.fit(X, y, groups=PERSON)
    deviation = np.sqrt(np.diag(model.posterior_.covariance))
    assert (np.abs(model.posterior_.mean - free.posterior_.mean) < 4 * deviation).all()
    assert "private histograms" in model.privacy_.scaling


def fitted(x: np.ndarray, y: np.ndarray, person: np.ndarray, **more: Any) -> np.ndarray:
    model, _ = private("linear", **more)
    return model.fit(x, y, groups=person).posterior_.mean


def test_rows_beyond_the_cap_and_of_undeclared_persons_count_nowhere() -> None:
    more = np.repeat(np.arange(5), MOST)  # these have rows already: all of them are beyond the cap
    first = np.argsort(PERSON, kind="stable")
    x, y, person = X[first], Y[first], PERSON[first]
    full = np.flatnonzero(np.bincount(person, minlength=PERSONS) == MOST)[:5]
    base = fitted(x, y, person)
    beyond = fitted(
        np.concatenate([x, np.ones((len(more), 2))]),
        np.concatenate([y, np.full(len(more), 3.0)]),
        np.concatenate([person, np.repeat(full, MOST)]),
    )
    np.testing.assert_array_equal(base, beyond)
    strangers = fitted(
        np.concatenate([x, np.ones((3, 2))]),
        np.concatenate([y, np.full(3, 3.0)]),
        np.concatenate([person, [PERSONS, PERSONS + 7, -1]]),
    )
    np.testing.assert_array_equal(base, strangers)


def test_a_bad_row_is_left_out_and_the_persons_other_rows_stay() -> None:
    spoilt = X.copy()
    spoilt[np.flatnonzero(PERSON == 3)[0], 1] = np.nan
    without = np.arange(len(X)) != np.flatnonzero(PERSON == 3)[0]
    np.testing.assert_allclose(
        fitted(spoilt, Y, PERSON), fitted(X[without], Y[without], PERSON[without]), atol=1e-12
    )


def test_labels_may_be_words(tmp_path: Any) -> None:
    names = np.array([f"p{i}" for i in range(PERSONS)])
    model, y = private("linear", groups=list(names))
    model.fit(X, y, groups=names[PERSON])
    np.testing.assert_array_equal(model.posterior_.mean, fitted(X, Y, PERSON))
    save(model, tmp_path / "run")
    again: Any = load(tmp_path / "run")
    np.testing.assert_array_equal(again.predict(X[:4]), model.predict(X[:4]))
    assert again.privacy_.unit == "person"


def test_a_ledger_of_records_is_no_ledger_of_persons(tmp_path: Any) -> None:
    ledger = Ledger.create(tmp_path / "ledger", epsilon=10, delta=1e-2)
    model, y = private("linear", ledger=ledger, random_state=None)
    with pytest.raises(LedgerError, match="unit"):
        model.fit(X, y, groups=PERSON)
    assert ledger.spent().epsilon == 0
    persons = Ledger.create(tmp_path / "persons", epsilon=10, delta=1e-2, unit="person")
    model, y = private("linear", ledger=persons, random_state=None)
    model.fit(X, y, groups=PERSON)
    assert persons.spent().epsilon == pytest.approx(8.0, rel=1e-3)


def test_a_run_is_resumed_with_the_same_persons_only(tmp_path: Any) -> None:
    model, y = private("linear", checkpoint=tmp_path / "run", random_state=None)
    first = model.fit(X, y, groups=PERSON).posterior_.mean
    again, _ = private("linear", checkpoint=tmp_path / "run", random_state=None)
    np.testing.assert_array_equal(first, again.fit(X, y, groups=PERSON).posterior_.mean)
    other, _ = private("linear", checkpoint=tmp_path / "run", random_state=None, rows_per_group=2)
    with pytest.raises(Exception, match="settings"):
        other.fit(X, y, groups=PERSON)


@pytest.mark.parametrize(
    ("changes", "groups", "words"),
    [
        ({"unit": "record"}, PERSON, "unit='record' protects each row"),
        ({"rows_per_group": None}, PERSON, "rows_per_group"),
        ({"rows_per_group": 0}, PERSON, "whole number above 0"),
        ({"rows_per_group": 1.5}, PERSON, "whole number above 0"),
        ({"rows_per_group": np.inf}, PERSON, "whole number above 0"),
        ({"rows_per_group": "2"}, PERSON, "whole number above 0"),
        ({"rows_per_group": 10**400}, PERSON, "a computer counts with"),
        ({"rows_per_group": 10**8}, PERSON, "declare fewer"),
        ({"groups": None}, PERSON, "groups are not declared"),
        ({"unit": "two words"}, PERSON, "unit must be"),
        ({"unit": 3}, PERSON, "unit must be"),
        ({"update": "natural"}, PERSON, "update='stable'"),
        ({"sampling": 2.0}, PERSON, "sampling"),
        ({}, None, "which rows belong together"),
        ({}, PERSON[:-1], "differ in their number of rows"),
    ],
)
def test_what_is_missing_or_wrong_is_said(changes: dict[str, Any], groups: Any, words: str) -> None:
    model, y = private("linear", **changes)
    with pytest.raises(ValueError, match=words):
        model.fit(X, y, groups=groups)
