"""Neighbours of a small table under models of our own: only the sums may see them, and those by little."""

from collections.abc import Callable, Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dpsep import BayesianModel, Ledger, Linear, Normal, OverBudget, PrivacyLeakWarning
from dpsep import fit as driver
from dpsep.audit import neighbours_of, replay
from dpsep.estimators import custom, multi_predictor_run
from dpsep.models.frozen import FrozenContribution
from dpsep.privacy.isolation import IsolationError, Program
from dpsep.privacy.mechanism import Schedule

RECORDS, STEPS, EACH = 48, 3, 8
pytestmark = pytest.mark.filterwarnings("ignore::dpsep.theory.glm_defaults.WeakBudgetWarning")


def student(params: Any, record: Any) -> Any:
    """Not log-concave, with a parameter that all records share."""
    return jax.scipy.stats.t.logpdf(record.y, 4.0, params["u"], jnp.exp(params["log_scale"]))


def logistic(params: Any, record: Any) -> Any:
    return jax.nn.log_sigmoid(jnp.where(record.y > 0, 1.0, -1.0) * params["u"])


def location(params: Any, record: Any) -> Any:
    return -0.5 * jnp.sum((record.x - params["mu"]) ** 2)


MODELS: dict[str, dict[str, Any]] = {
    "student": {"log_likelihood": student, "prior": {"log_scale": Normal()}, "links": {"u": Linear()}},
    "labels": {"log_likelihood": logistic, "links": {"u": Linear()}, "classes": [-1.0, 1.0]},
    "no links": {"log_likelihood": location, "prior": {"mu": Normal(0.0, 1.0, (2,))}, "factors": "laplace"},
}


@pytest.fixture(autouse=True, scope="module")
def _accounted_once() -> Iterator[None]:
    """Account a schedule once: it depends on public numbers, and these fits share theirs."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Schedule, "epsilon", lru_cache(Schedule.epsilon))
        yield


def table() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(3)
    X = rng.uniform(-1.0, 1.0, (RECORDS, 2))
    return X, np.where(X @ [1.0, -2.0] + rng.logistic(size=RECORDS) > 0, 1.0, -1.0)


def maker(kind: str, **more: Any) -> Callable[[], Any]:
    settings: dict[str, Any] = {"delta": 1e-3, "steps": STEPS, "random_state": 1, "bounds": (-1.0, 1.0)}
    return lambda: BayesianModel(**(MODELS[kind] | settings | more))


@pytest.mark.parametrize(
    ("kind", "more"),
    [
        ("student", {}),
        ("student", {"bounds": None, "sampling": 0.25, "relation": "replace-one"}),
        ("labels", {"relation": "replace-one"}),
        ("labels", {"sampling": 0.25}),
        ("no links", {"bounds": None}),
    ],
)
def test_neighbours_change_sums_within_the_sensitivity_and_nothing_else(
    kind: str, more: dict[str, Any], tmp_path: Path
) -> None:
    X, y = table()
    ledger = Ledger.create(tmp_path / "ledger", epsilon=1e6, delta=1.0 - 1e-9)
    report = replay(maker(kind, **more), X, y, neighbours_of(X, y, EACH, len(kind)), ledger=ledger)
    assert report.differences == ()
    assert report.neighbours == EACH
    scaled = more.get("bounds", 1) is None and kind != "no links"
    assert report.releases == STEPS + (3 if scaled else 0)
    kinds = {message.split(":")[0] for message in report.trace.messages}
    assert "PrivacyLeakWarning" in kinds, "the seed is warned of"
    assert kinds <= {"PrivacyLeakWarning", "WeakBudgetWarning"}, "and few rows, and nothing else"
    assert [row[0] for row in report.trace.rows] == ["charge", "finished"]
    assert 0 < report.farthest <= 1 + 1e-12


def test_a_fit_whose_public_values_look_at_the_data_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    X, y = table()
    honest, fit, seen = multi_predictor_run._settings, driver.fit_private, [X]

    def peeking(*public: Any) -> Any:
        settings = honest(*public)
        return settings._replace(prior_mean=settings.prior_mean + np.nanmean(seen[-1]))

    def spying(recipe: Any, records: Any, **more: Any) -> Any:
        seen.append(records()[0])
        return fit(recipe, records, **more)

    monkeypatch.setattr("dpsep.estimators.private.fit_private", spying)
    monkeypatch.setattr(multi_predictor_run, "_settings", peeking)
    found = {one.what for one in replay(maker("labels"), X, y, neighbours_of(X, y, 2)).differences}
    assert "public values of release 0" in found
    assert "the posterior, beside the releases" in found


def test_a_contribution_that_sees_other_records_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    X, y = table()
    honest = FrozenContribution.__call__

    def mixing(self: Any, public: Any, chunk: Any) -> Any:
        mean, precision = honest(self, public, chunk)
        return mean + jnp.nansum(mean, axis=0), precision

    monkeypatch.setattr(FrozenContribution, "__call__", mixing)
    # A function of its own, so that nothing compiled before or after has to do with the broken class.
    broken = maker("labels", log_likelihood=lambda params, record: 1.5 * logistic(params, record))
    with pytest.warns(PrivacyLeakWarning), pytest.raises(IsolationError, match="axis of the records"):
        broken().fit(X, y)
    # Without the proof, the record/replay harness sees it.
    monkeypatch.setattr(Program, "prove", lambda *_, **__: None)
    report = replay(broken, X, y, neighbours_of(X, y, 2))
    assert any("times as far" in one.what for one in report.differences)


def test_a_message_that_depends_on_a_record_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    X, y = table()
    fit = driver.fit_private

    def talkative(recipe: Any, records: Any, **more: Any) -> Any:
        if not np.isfinite(records()[0]).all():
            raise ValueError("a cell is not finite")
        return fit(recipe, records, **more)

    monkeypatch.setattr("dpsep.estimators.private.fit_private", talkative)
    report = replay(maker("labels"), X, y, neighbours_of(X, y, 1))
    assert "warnings and errors" in {one.what for one in report.differences}


def test_over_budget_nothing_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def read(*_: Any) -> None:
        raise AssertionError("a record was read")

    X, y = table()
    monkeypatch.setattr(custom, "records_of", read)
    monkeypatch.setattr("dpsep.privacy.gate.Reader.sums", read)
    ledger = Ledger.create(tmp_path / "ledger", epsilon=0.5, delta=1e-2)
    with pytest.raises(OverBudget):
        maker("labels", random_state=None, ledger=ledger)().fit(X, y)
    with pytest.raises(AssertionError, match="a record was read"):
        maker("labels", random_state=None, epsilon=0.4, ledger=ledger)().fit(X, y)
    assert [row.kind for row in ledger.rows()][-2:] == ["charge", "failed"], "charged before it was read"


def test_bad_cells_and_undeclared_labels_do_not_raise() -> None:
    X, y = table()
    X[0, 0], X[1, 1], y[2], y[3] = np.nan, np.inf, 7.0, np.nan
    model = maker("labels", random_state=None)().fit(X, y)
    assert np.isfinite(model.posterior_.mean).all()
