"""Whole groups as neighbours: nothing but the sums may see one, and those by no more than one clip."""

from typing import Any

import numpy as np
import pytest

from dpsep import LinearRegression, LogisticRegression, MixedClassifier, MixedRegressor, PoissonRegression
from dpsep.audit import group_neighbours_of, neighbours_of, replay
from dpsep.estimators import mixed_base, mixed_groups, units
from dpsep.privacy.ledger import Ledger, LedgerError

GROUPS, ROWS, CAP = 24, 5, 4


def table(family: str):
    generator = np.random.default_rng(3)
    groups = generator.permutation(np.repeat(np.arange(GROUPS), ROWS))
    X = generator.uniform(-1.0, 1.0, (len(groups), 2))
    u = X @ [1.0, -0.5] + 0.5 * generator.standard_normal(GROUPS)[groups]
    if family == "linear":
        return X, u + 0.3 * generator.standard_normal(len(u)), groups
    if family == "poisson":
        return X, generator.poisson(np.exp(u)).astype(float), groups
    return X, np.where(generator.logistic(size=len(u)) < u, 1.0, -1.0), groups


def maker(family: str, **more):
    settings = {"groups": GROUPS, "delta": 1e-3, "steps": 2, "random_state": 1, "bounds": (-1, 1)} | more
    if family == "linear":
        settings.setdefault("target_bounds", (-4, 4))
    kinds: dict[str, Any] = {"linear": MixedRegressor, "poisson": MixedRegressor}
    kind: Any = kinds.get(family, MixedClassifier)
    if family not in kinds:
        settings["classes"] = [-1.0, 1.0]
    return lambda: kind(family=family, **settings)


def by_group(**more):
    return {"unit": "group", "rows_per_group": CAP} | more


@pytest.mark.parametrize(
    ("family", "more"),
    [
        ("linear", by_group()),
        ("linear", by_group(relation="replace-one", sampling=0.5)),
        ("linear", by_group(bounds=None, target_bounds=None)),
        ("linear", by_group(slopes=[0], correlated=True)),
        ("logistic", by_group(sampling=0.5)),
        ("poisson", by_group(relation="replace-one")),
    ],
    ids=["linear", "sampled, replace-one", "private scaling", "slopes", "logistic", "poisson"],
)
def test_a_group_changes_sums_within_the_sensitivity_and_nothing_else(family, more, tmp_path):
    X, y, groups = table(family)
    ledger = Ledger.create(tmp_path / "ledger", epsilon=1e6, delta=1.0 - 1e-9, unit="group")
    neighbours = group_neighbours_of(X, y, groups, GROUPS, 8, seed=len(family))
    report = replay(maker(family, **more), X, y, neighbours, ledger=ledger, groups=groups)
    assert report.differences == ()
    assert report.neighbours == 8
    assert report.trace.statement["unit"] == "group"
    assert 0 < report.farthest <= 1 + 1e-9


PLAIN: dict[str, tuple[Any, dict[str, Any]]] = {
    "linear": (LinearRegression, {"target_bounds": (-4, 4)}),
    "logistic": (LogisticRegression, {"classes": [-1.0, 1.0]}),
    "poisson": (PoissonRegression, {}),
}


@pytest.mark.parametrize(
    ("family", "more"),
    [
        ("linear", {}),
        ("linear", {"relation": "replace-one", "sampling": 0.5}),
        ("linear", {"bounds": None, "target_bounds": None}),
        ("logistic", {"sampling": 0.5}),
        ("poisson", {"relation": "replace-one"}),
    ],
    ids=["linear", "sampled, replace-one", "private scaling", "logistic", "poisson"],
)
def test_a_person_changes_sums_of_a_regression_within_the_sensitivity_and_nothing_else(
    family, more, tmp_path
):
    X, y, groups = table(family)
    ledger = Ledger.create(tmp_path / "ledger", epsilon=1e6, delta=1.0 - 1e-9, unit="person")
    neighbours = group_neighbours_of(X, y, groups, GROUPS, 8, seed=len(family))
    kind, own = PLAIN[family]
    settings = {"groups": GROUPS, "rows_per_group": CAP, "unit": "person", "bounds": (-1, 1)}
    settings |= {"delta": 1e-3, "steps": 2, "random_state": 1} | own | more
    report = replay(lambda: kind(**settings), X, y, neighbours, ledger=ledger, groups=groups)
    assert report.differences == ()
    assert report.neighbours == 8
    assert report.trace.statement["unit"] == "person"
    assert 0 < report.farthest <= 1 + 1e-9


@pytest.mark.parametrize("family", ["linear", "probit"])
def test_a_record_changes_sums_within_the_sensitivity_and_nothing_else(family, tmp_path):
    X, y, groups = table(family)
    ledger = Ledger.create(tmp_path / "ledger", epsilon=1e6, delta=1.0 - 1e-9)
    neighbours = [one._replace(groups=groups) for one in neighbours_of(X, y, 8, seed=2)]
    # A record that changes its group, and one whose group was never declared.
    for label in (int(groups[1]), GROUPS + 3):
        moved = groups.copy()
        moved[0] = label
        neighbours.append(neighbours[1]._replace(X=X, y=y, groups=moved, kind="other group", row=0))
    report = replay(maker(family), X, y, neighbours, ledger=ledger, groups=groups)
    assert report.differences == ()
    assert report.neighbours == 10
    assert report.trace.statement["unit"] == "record"


def test_rows_of_a_group_counted_apart_are_caught(monkeypatch):
    """Without one clip for all rows of a group: each row in a slot of its own."""
    X, y, groups = table("linear")
    more = by_group(rows_per_group=1, clip=0.01)  # small, so that every contribution reaches it
    honest = units.slots

    def spread(X, y, codes, count, rows):
        # As many slots as groups, filled by rows in the order of the table: a group's rows fill several.
        return honest(X[:count], y[:count], np.arange(count, dtype=float), count, rows)

    monkeypatch.setattr(units, "slots", spread)
    neighbours = group_neighbours_of(X, y, groups, GROUPS, 8)
    report = replay(maker("linear", **more), X, y, neighbours, groups=groups)
    assert any("sums before noise" in one.what for one in report.differences)


def test_a_number_of_rows_that_reaches_a_result_is_caught(monkeypatch):
    X, y, groups = table("linear")
    honest = units.structure_of_groups

    def counting(X, y, **options):
        return honest(X, y, **options)._replace(names=tuple(f"{len(X)}-{i}" for i in range(X.shape[1])))

    monkeypatch.setattr(units, "structure_of_groups", counting)

    def peeking(result, effects):
        moments, components = split(result, effects)
        return (moments[0] + len(seen), *moments[1:]), components

    seen, split = [], mixed_groups.split
    monkeypatch.setattr(mixed_base, "split", peeking)
    slots = units.slots

    def remembering(X, *rest):
        seen[:] = list(range(len(X)))
        return slots(X, *rest)

    monkeypatch.setattr(units, "slots", remembering)
    neighbours = group_neighbours_of(X, y, groups, GROUPS, 1)
    report = replay(maker("linear", **by_group()), X, y, neighbours, groups=groups)
    assert any("posterior" in one.what for one in report.differences)


@pytest.mark.filterwarnings("ignore::dpsep.WeakBudgetWarning")
def test_a_ledger_of_records_is_no_ledger_of_groups(tmp_path):
    X, y, groups = table("linear")
    ledger = Ledger.create(tmp_path / "ledger", epsilon=10, delta=1e-2)
    model = maker("linear", **by_group(ledger=ledger, random_state=None))()
    with pytest.raises(LedgerError, match="unit"):
        model.fit(X, y, groups=groups)
