"""Sites that take turns by a public timetable: balanced, charged for their own rounds, no amplification."""

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dpsep.federated import Federation, InProcess, fit
from dpsep.federated.federation import timetable
from dpsep.privacy.mechanism import Mechanism, Schedule
from dpsep.privacy.sampling import FullBatch, PoissonSampling

from .made import WEIGHTS, logistic, make_sites, table, watched_releases


@pytest.mark.parametrize(("sites", "each", "rounds"), [(3, 2, 16), (5, 1, 16), (7, 3, 10), (4, 4, 3)])
def test_it_is_balanced_and_drawn_from_the_seed(sites: int, each: int, rounds: int) -> None:
    names = tuple("abcdefg"[:sites])
    drawn = timetable(names, each, rounds, 1)
    assert [len(set(members)) for members in drawn] == [each] * rounds
    counts = Counter(name for members in drawn for name in members)
    assert max(counts.values()) - min(counts[name] for name in names) <= 1
    assert drawn == timetable(names, each, rounds, 1)
    if 1 < each < sites:
        assert drawn != timetable(names, each, rounds, 2)


def test_rounds_that_leave_a_site_out_are_refused() -> None:
    with pytest.raises(ValueError, match="leave some of 5 sites without a round"):
        timetable(tuple("abcde"), 1, 4, 0)


@pytest.mark.parametrize("rules", [{}, {"mode": "own"}, {"mode": "sites", "honest": 2}])
def test_a_site_is_charged_for_its_own_rounds(tmp_path: Path, rules: dict[str, Any]) -> None:
    sites = make_sites(tmp_path, cuts=(0, 150, 300, 450, 600), epsilon=20.0, hidden=3)
    federation = Federation(InProcess(sites), sites_per_round=2, **rules)
    model = fit(logistic(steps=6), federation)
    assert model.privacy_ is not None
    assert 0.99 < model.privacy_.epsilon <= 1.0
    for site in sites.values():
        (row,) = [row for row in site.ledger.rows() if row.kind == "charge"]
        parts = row.event["parts"]
        assert parts[-1]["steps"] == 3, "before the last part all sites answer"
        # What the ledger holds is what these releases cost; no less for the timetable's chance.
        found = [Mechanism(FullBatch(), "zero-out", each["steps"], each["sigma"], 150) for each in parts]
        assert row.epsilon == pytest.approx(Schedule(tuple(found)).epsilon(1e-4), rel=1e-6)
        assert row.epsilon <= 1.0
    assert "no amplification is claimed" in model.privacy_.sentence()


def test_a_timetable_of_one_record_a_site_hides_nothing() -> None:
    """The counterexample of the proof: with the timetable known, sums without noise tell every record."""
    names, records = tuple("abcd"), {"a": 1, "b": 0, "c": 1, "d": 1}
    drawn = timetable(names, 1, 4, 0)
    assert {members[0]: sum(records[name] for name in members) for members in drawn} == records
    # A rate of a quarter that nobody sees would be worth a lot, and is not what is charged.
    hidden = Mechanism(PoissonSampling(0.25), "zero-out", 4, 3.0, 4).epsilon(1e-4)
    assert hidden < 0.9 * Mechanism(FullBatch(), "zero-out", 1, 3.0, 4).epsilon(1e-4)


def test_sums_are_scaled_by_the_rows_that_took_part(tmp_path: Path) -> None:
    sites = make_sites(tmp_path)  # 100, 140 and 360 rows
    with watched_releases() as seen:
        fit(logistic(steps=6), Federation(InProcess(sites), sites_per_round=1, seed=3))
    rows = {"a": 100.0, "b": 140.0, "c": 360.0}
    want = [(600, rows[members[0]]) for members in timetable(tuple("abc"), 1, 6, 3)]
    assert seen[-6:] == want
    assert set(seen[:-6]) == {(600, 600.0)}, "before the last part all sites answer"


def test_a_fit_in_turns_finds_the_weights(tmp_path: Path) -> None:
    X, y = table(9000)
    sites = make_sites(tmp_path, (X, y), cuts=(0, 3000, 6000, 9000), epsilon=50.0)
    model = fit(logistic(epsilon=8.0, steps=12), Federation(InProcess(sites), sites_per_round=2))
    spread = np.sqrt(np.diag(model.posterior_.covariance))[1:]
    assert (np.abs(model.coef_[0] - WEIGHTS) < 5 * spread).all()
    assert (spread < 0.3).all()


def test_sites_that_refuse_leave_more_turns_and_no_more_epsilon_to_the_others(tmp_path: Path) -> None:
    cuts = (0, 150, 300, 450, 600)
    sites = make_sites(tmp_path, cuts=cuts)
    sites["d"] = make_sites(tmp_path / "poor", cuts=cuts, epsilon=0.1)["d"]
    model = fit(logistic(steps=6), Federation(InProcess(sites), sites_per_round=2))
    assert model.privacy_ is not None
    assert model.privacy_.epsilon <= 1.0
    for name in "abc":
        (row,) = [row for row in sites[name].ledger.rows() if row.kind == "charge"]
        assert row.event["parts"][0]["steps"] == 4
        assert row.epsilon <= 1.0
    assert sites["d"].ledger.spent().epsilon == 0.0


def test_a_servers_ledger_is_refused_where_sites_take_turns(tmp_path: Path) -> None:
    from dpsep import Ledger

    ledger = Ledger.create(tmp_path / "ledger", epsilon=3.0, delta=1e-2)
    federation = Federation(InProcess(make_sites(tmp_path / "sites")), sites_per_round=2)
    with pytest.raises(ValueError, match="each site is charged for its own rounds"):
        fit(logistic(ledger=ledger), federation)
