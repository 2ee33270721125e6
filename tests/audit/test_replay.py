"""Hundreds of neighbours of small tables: nothing but the sums may see them, and those by little."""

from collections.abc import Iterator
from fractions import Fraction
from functools import lru_cache
from pathlib import Path

import numpy as np
import pytest

from dpsep import fit as driver
from dpsep.audit import neighbours_of, replay
from dpsep.audit.replay import Release, distance, record
from dpsep.estimators import run
from dpsep.privacy.grid import Block
from dpsep.privacy.ledger import Ledger
from dpsep.privacy.mechanism import Schedule

from .help import KINDS, maker, table

EACH = 8
"""Neighbours of each of the 64 fits below: 512 in all, every kind of change once a fit."""


@pytest.fixture(autouse=True, scope="module")
def _accounted_once() -> Iterator[None]:
    """Account a schedule once: it depends on public numbers, and these fits share theirs."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Schedule, "epsilon", lru_cache(Schedule.epsilon))
        yield


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return Ledger.create(tmp_path / "ledger", epsilon=1e6, delta=1.0 - 1e-9)


@pytest.mark.parametrize("relation", ["zero-out", "replace-one"])
@pytest.mark.parametrize("update", ["stable", "natural"])
@pytest.mark.parametrize("sampling", ["full", 0.25])
@pytest.mark.parametrize("bounded", [True, False], ids=["bounds", "private scaling"])
@pytest.mark.parametrize("kind", KINDS)
def test_neighbours_change_sums_within_the_sensitivity_and_nothing_else(
    kind: str, bounded: bool, sampling: object, update: str, relation: str, ledger: Ledger
) -> None:
    X, y = table(kind)
    make = maker(kind, bounded=bounded, sampling=sampling, update=update, relation=relation)
    seed = sum(map(ord, f"{kind}{bounded}{sampling}{update}{relation}"))
    report = replay(make, X, y, neighbours_of(X, y, EACH, seed), ledger=ledger)
    assert report.differences == ()
    assert report.neighbours == EACH
    stable = 4 + (4 + 2) + 3  # second moments, the way with two looks, and the fit
    assert report.releases == (3 if update == "natural" else stable) + (0 if bounded else 3)
    kinds = [message.split(":")[0] for message in report.trace.messages]
    assert kinds[0] == "PrivacyLeakWarning", "the seed is warned of"
    assert kinds[1:] in ([], ["WeakBudgetWarning"]), "and few records, and nothing else"
    assert [row[0] for row in report.trace.rows] == ["charge", "finished"]
    # A sampled step of the paper's own update moves hardly more than a unit of the grid here.
    assert report.farthest > 0 or (update == "natural" and sampling != "full")


def test_a_zeroed_record_is_a_neighbour_at_distance_one_and_a_replaced_one_at_two() -> None:
    X, y = table("probit")
    hops = {neighbour.kind: neighbour.hops for neighbour in neighbours_of(X, y, 8)}
    assert hops.pop("zeroed") == 1
    assert set(hops.values()) == {2}


def test_neighbours_differ_in_one_record() -> None:
    X, y = table("linear")
    for neighbour in neighbours_of(X, y, 64, seed=5):
        others = np.arange(len(X)) != neighbour.row
        assert (neighbour.X[others] == X[others]).all()
        assert (neighbour.y[others] == y[others]).all()


def test_distance_weighs_blocks_by_share_and_counts_entries_off_the_diagonal_twice() -> None:
    blocks = (
        Block("flat", 2, 3.0, 0.25),
        Block("outer", 2, 5.0, 0.5, "outer"),
        Block("counts", 4, 2.0, 0.25, "count", 3),
    )
    none = np.zeros(0)
    zeros = tuple(np.zeros(block.coordinates, np.int64) for block in blocks)
    moved = (np.array([2**20, 0]), np.array([2**29, 2**29, 2**29]), np.array([1] * 4 + [0] * 8))
    one, other = (Release(blocks, (), none, 1, sums, {}) for sums in (zeros, moved))
    # (clip / clip)^2 / 4, then (1 + 2 + 1) / 4 of the clip squared, halved, then 4 of 4 counts.
    assert distance(one, other) == Fraction(1, 4) + Fraction(1, 2) + Fraction(1, 4)


def test_a_fit_whose_public_values_look_at_the_data_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    X, y = table("probit")
    honest = run._prior_mean

    def peeking(task, features):
        return honest(task, features) + np.nanmean(seen[-1])

    seen = [X]
    fit = driver.fit_private

    def spying(recipe, records, **more):
        seen.append(records()[0])
        return fit(recipe, records, **more)

    monkeypatch.setattr("dpsep.estimators.private.fit_private", spying)
    monkeypatch.setattr(run, "_prior_mean", peeking)
    report = replay(maker("probit"), X, y, neighbours_of(X, y, 4))
    found = {difference.what for difference in report.differences}
    assert any(what.startswith("public values of release") for what in found)
    assert "the posterior, beside the releases" in found


def test_a_message_that_depends_on_a_record_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    X, y = table("linear")
    fit = driver.fit_private

    def talkative(recipe, records, **more):
        if not np.isfinite(records()[0]).all():
            raise ValueError("a cell is not finite")
        return fit(recipe, records, **more)

    monkeypatch.setattr("dpsep.estimators.private.fit_private", talkative)
    report = replay(maker("linear"), X, y, neighbours_of(X, y, 1))
    assert "warnings and errors" in {difference.what for difference in report.differences}


def test_noise_must_be_frozen() -> None:
    X, y = table("probit")
    with pytest.raises(ValueError, match="frozen noise"):
        replay(maker("probit", random_state=None), X, y, [])


def test_two_records_of_one_fit_are_the_same() -> None:
    X, y = table("poisson")
    one, other = (record(maker("poisson", sampling=0.25), X, y) for _ in range(2))
    assert one.control_flow() == other.control_flow()
    assert all(distance(a, b) == 0 for a, b in zip(one.releases, other.releases, strict=True))
