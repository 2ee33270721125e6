"""Neighbours of a small table under private networks: only the sums may see them, and those by little."""

from collections.abc import Callable, Iterator
from functools import lru_cache
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dpsep import NetworkClassifier, NetworkRegressor
from dpsep import fit as driver
from dpsep.audit import neighbours_of, replay
from dpsep.audit.neighbours import Neighbour
from dpsep.audit.replay import record
from dpsep.estimators import network_run
from dpsep.inference import moments
from dpsep.privacy.ledger import Ledger
from dpsep.privacy.mechanism import Schedule
from dpsep.theory.networks import moment_looks

RECORDS, STEPS, EACH = 48, 2, 8
"""Eight neighbours of each of the 16 fits below: 128 in all, every kind of change once a fit."""
SCALINGS: dict[str, dict[str, Any]] = {
    "bounds": {"bounds": (-1.0, 1.0), "target_bounds": (-2.0, 2.0)},
    "private scaling": {},
    "standard": {"public_scaling": ((0.0, 0.6), (0.0, 0.8))},
}
BOUNDED = SCALINGS["bounds"]
WAYS: dict[str, dict[str, Any]] = {
    "kronecker": {"method": "sep", "covariance": "kronecker"},
    "diagonal": {"method": "sep", "covariance": "diagonal"},
    "vi": {"method": "vi"},
    "point": {"method": "point"},
}
CASES = [
    (way, scaling, ("zero-out", "replace-one")[number % 2], ("full", 0.25)[number // 2 % 2])
    for number, (way, scaling) in enumerate(product(WAYS, SCALINGS))
]


@pytest.fixture(autouse=True, scope="module")
def _accounted_once() -> Iterator[None]:
    """Account a schedule once: it depends on public numbers, and these fits share theirs."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Schedule, "epsilon", lru_cache(Schedule.epsilon))
        yield


def table() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(3)
    x = rng.uniform(-1.0, 1.0, (RECORDS, 2))
    return x, np.sin(3 * x[:, 0]) + 0.5 * x[:, 1] + 0.1 * rng.normal(size=RECORDS)


def maker(way: str = "kronecker", **parameters: Any) -> Callable[[], Any]:
    known: dict[str, Any] = {"delta": 1e-3, "steps": STEPS, "random_state": 1, "hidden": 2}
    return lambda: NetworkRegressor(**(known | WAYS[way] | parameters))


def releases(way: str, scaling: str) -> int:
    """Those of private scaling, of moments (none for gradients of standard columns) and of the fit."""
    found = STEPS + (3 if scaling == "private scaling" else 0)
    if way in ("kronecker", "diagonal"):
        return found + 2 * moment_looks(RECORDS)
    return found + (0 if scaling == "standard" else 4)


@pytest.mark.parametrize(("way", "scaling", "relation", "sampling"), CASES)
def test_neighbours_change_sums_within_the_sensitivity_and_nothing_else(
    way: str, scaling: str, relation: str, sampling: Any, tmp_path: Path
) -> None:
    X, y = table()
    make = maker(way, relation=relation, sampling=sampling, **SCALINGS[scaling])
    ledger = Ledger.create(tmp_path / "ledger", epsilon=1e6, delta=1.0 - 1e-9)
    seed = sum(map(ord, f"{way}{scaling}"))
    report = replay(make, X, y, neighbours_of(X, y, EACH, seed), ledger=ledger)
    assert report.differences == ()
    assert report.neighbours == EACH
    assert report.releases == releases(way, scaling)
    assert len(report.trace.messages) == 1, "the seed is warned of, and nothing else"
    assert [row[0] for row in report.trace.rows] == ["charge", "finished"]
    assert 0 < report.farthest <= 1 + 1e-12
    assert any(name.startswith("posterior.mean") for name in report.trace.outcome)


@pytest.mark.parametrize("way", WAYS)
def test_labels_are_as_private(way: str) -> None:
    X, y = table()
    known: dict[str, Any] = {"delta": 1e-3, "steps": STEPS, "random_state": 1, "hidden": 2, "bounds": (-1, 1)}
    make = lambda: NetworkClassifier(**known, classes=[-1.0, 1.0], **WAYS[way])  # noqa: E731
    signs = np.where(y > 0, 1.0, -1.0)
    report = replay(make, X, signs, neighbours_of(X, signs, EACH, 5))
    assert report.differences == ()
    assert 0 < report.farthest <= 1 + 1e-12


CHOICES: list[dict[str, Any]] = [
    {"direct": True, "activation": "sine"},
    {"direct": True, "activation": "relu", "hidden": (2, 2)},
    {"direct": False, "activation": "sine"},
]


@pytest.mark.parametrize("choice", CHOICES, ids=lambda one: " ".join(map(str, one.values())))
def test_with_inputs_that_reach_the_output_unscaled_neighbours_are_as_private(choice: Any) -> None:
    """Columns that are declared standard have no bounds: a record's gradient may be as long as it likes."""
    X, y = table()
    X[5], y[5] = [1e6, -1e6], -1e6
    known = {"random_state": 1, "delta": 1e-3, "steps": STEPS, "hidden": 2} | SCALINGS["standard"]
    rows = [neighbour for neighbour in neighbours_of(X, y, EACH, 11)]
    zeroed = X.copy(), y.copy()
    zeroed[0][5], zeroed[1][5] = np.nan, np.nan
    rows.append(Neighbour("zeroed", 5, *zeroed, True))
    report = replay(lambda: NetworkRegressor(**(known | choice)), X, y, rows)
    assert report.differences == ()
    assert 0.9 < report.farthest <= 1 + 1e-12, "the long record is clipped, and takes all that is allowed"
    last = report.trace.releases[-1]
    assert [block.name for block in last.blocks] == ["mean", "noise"]
    assert last.blocks[0].clip == 1.0


def test_labels_with_direct_inputs_are_as_private() -> None:
    X, y = table()
    known: dict[str, Any] = {"delta": 1e-3, "steps": STEPS, "random_state": 1, "hidden": 2, "bounds": (-1, 1)}
    make = lambda: NetworkClassifier(**known, classes=[-1.0, 1.0], direct=True, activation="sine")  # noqa: E731
    signs = np.where(y > 0, 1.0, -1.0)
    report = replay(make, X, signs, neighbours_of(X, signs, EACH, 6))
    assert report.differences == ()
    assert 0 < report.farthest <= 1 + 1e-12


def test_all_ways_to_fit_are_among_the_cases() -> None:
    assert len(CASES) == 12
    for column, number in enumerate((4, 3, 2, 2)):
        assert len({case[column] for case in CASES}) == number


def test_all_layers_of_the_posterior_are_compared() -> None:
    trace = record(maker(**BOUNDED), *table())
    assert {"posterior.left.0", "posterior.left.1", "posterior.right.1"} <= set(trace.outcome)


def test_with_other_coins_and_the_same_releases_the_posterior_is_the_same() -> None:
    X, y = table()
    base = record(maker(sampling=0.25, **BOUNDED), X, y)
    other = record(maker(sampling=0.25, random_state=2, **BOUNDED), X, y, script=base)
    assert [len(one.rows) for one in base.releases] != [len(one.rows) for one in other.releases]
    for name, value in base.outcome.items():
        assert value.tobytes() == other.outcome[name].tobytes()


def test_a_fit_that_takes_the_moments_from_the_table_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    X, y = table()
    honest, fit, seen = network_run.inputs_of, driver.fit_private, [X]

    def peeking(task: Any, features: Any, outcome: Any, found: moments.Moments, ridge: float) -> Any:
        del found
        cells = np.nan_to_num(seen[-1])
        own = moments.Moments(np.append(cells.mean(axis=0), 0.0), np.eye(3))
        return honest(task, features, outcome, own, ridge)

    def spying(recipe: Any, records: Any, **more: Any) -> Any:
        seen.append(records()[0])
        return fit(recipe, records, **more)

    monkeypatch.setattr("dpsep.estimators.private.fit_private", spying)
    monkeypatch.setattr(network_run, "inputs_of", peeking)
    report = replay(maker(**BOUNDED), X, y, neighbours_of(X, y, 2))
    found = {difference.what for difference in report.differences}
    assert f"public values of release {2 * moment_looks(RECORDS)}" in found, "the first of the fit"
    assert "the posterior, beside the releases" in found


def test_a_fit_that_takes_its_linear_start_from_the_table_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    X, y = table()
    honest, fit, seen = network_run.inputs_of, driver.fit_private, [(X, y)]

    def peeking(*arguments: Any) -> Any:
        cells, target = (np.nan_to_num(np.clip(part, -2.0, 2.0)) for part in seen[-1])
        return honest(*arguments)._replace(linear=np.linalg.lstsq(cells, target, rcond=None)[0])

    def spying(recipe: Any, records: Any, **more: Any) -> Any:
        seen.append(records())
        return fit(recipe, records, **more)

    monkeypatch.setattr("dpsep.estimators.private.fit_private", spying)
    monkeypatch.setattr(network_run, "inputs_of", peeking)
    report = replay(maker(**BOUNDED), X, y, neighbours_of(X, y, 2))
    found = {difference.what for difference in report.differences}
    assert f"public values of release {2 * moment_looks(RECORDS)}" in found, "the first of the fit"
    assert "the posterior, beside the releases" in found


def test_a_message_that_depends_on_a_record_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    X, y = table()
    fit = driver.fit_private

    def talkative(recipe: Any, records: Any, **more: Any) -> Any:
        if not np.isfinite(records()[0]).all():
            raise ValueError("a cell is not finite")
        return fit(recipe, records, **more)

    monkeypatch.setattr("dpsep.estimators.private.fit_private", talkative)
    report = replay(maker(**BOUNDED), X, y, neighbours_of(X, y, 1))
    assert "warnings and errors" in {difference.what for difference in report.differences}
