"""Neighbours of a small table under private mixtures: only the sums may see them, and those by little."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import lru_cache
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dpsep import GaussianMixture
from dpsep import fit as driver
from dpsep.audit import neighbours_of, replay
from dpsep.audit.replay import record
from dpsep.estimators import mixture_run
from dpsep.inference import sketch
from dpsep.privacy.grid import Block
from dpsep.privacy.ledger import Ledger
from dpsep.privacy.mechanism import Schedule

RECORDS, STEPS, EACH = 48, 2, 8
"""Eight neighbours of each of the 36 fits below: 288 in all, every kind of change once a fit."""
SCALINGS: dict[str, dict[str, Any]] = {
    "bounds": {"bounds": (-4.0, 4.0)},
    "private scaling": {},
    "prior": {"mean_scale": 2.0},
}
KNOWLEDGE: list[dict[str, Any]] = [
    {},
    {"noise_scale": 0.5, "weights": [0.4, 0.6]},
    {"covariance_type": "spherical"},
]
"""What is learned: weights and variances, nothing but means, weights and one variance a component."""
CASES = [
    (*choice, (number + number // 3) % 3)
    for number, choice in enumerate(
        product(["zero-out", "replace-one"], ["full", 0.25], SCALINGS, ["sep", "vi", "em"])
    )
]
SOME = {
    number
    for number, (relation, sampling, scaling, method) in enumerate(
        product(range(2), range(2), range(3), range(3))
    )
    if (relation + sampling + scaling + method) % 3 == 0
}
"""Twelve of them, in which each method meets each scaling: what `make test` runs; `make deep` runs all."""


@pytest.fixture(autouse=True, scope="module")
def _quick() -> Iterator[None]:
    """Account a schedule once, search once for a start, and leave threads alone: all of that is public."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Schedule, "epsilon", lru_cache(Schedule.epsilon))
        patch.setattr(sketch, "RESTARTS", 2)
        yield


def table() -> tuple[np.ndarray, np.ndarray]:
    """Two clusters, and a target that nothing depends on."""
    rng = np.random.default_rng(3)
    x = np.where(rng.random((RECORDS, 1)) < 0.4, -1.5, 1.5) * [1.0, 0.5] + 0.5 * rng.normal(size=(RECORDS, 2))
    return x, np.zeros(RECORDS)


def maker(**parameters: Any) -> Callable[[], Any]:
    known: dict[str, Any] = {"delta": 1e-3, "steps": STEPS, "random_state": 1}
    return lambda: GaussianMixture(2, **(known | parameters))


@pytest.mark.parametrize(
    ("relation", "sampling", "scaling", "method", "known"),
    [
        case if number in SOME else pytest.param(*case, marks=pytest.mark.deep)
        for number, case in enumerate(CASES)
    ],
)
def test_neighbours_change_sums_within_the_sensitivity_and_nothing_else(
    relation: str, sampling: Any, scaling: str, method: str, known: int, tmp_path: Path
) -> None:
    X, y = table()
    make = maker(relation=relation, sampling=sampling, method=method, **SCALINGS[scaling], **KNOWLEDGE[known])
    seed = sum(map(ord, f"{relation}{sampling}{scaling}{method}"))
    ledger = Ledger.create(tmp_path / "ledger", epsilon=1e6, delta=1.0 - 1e-9)
    report = replay(make, X, y, neighbours_of(X, y, EACH, seed), ledger=ledger)
    assert report.differences == ()
    assert report.neighbours == EACH
    assert report.releases == 1 + STEPS + (3 if scaling == "private scaling" else 0)
    assert len(report.trace.messages) == 1, "the seed is warned of, and nothing else"
    assert [row[0] for row in report.trace.rows] == ["charge", "finished"]
    assert 0 < report.farthest <= 1 + 1e-12


def test_all_ways_to_fit_are_among_the_cases() -> None:
    some = [CASES[number] for number in SOME]
    ways = {(method, known) for _, _, _, method, known in some}
    assert len(CASES) * EACH >= 256
    assert len(ways) == 9, "every method with everything that can be learned"
    for column, number in enumerate((2, 2, 3, 3)):
        assert len({case[column] for case in some}) == number


def test_a_blank_record_moves_the_sketch_by_almost_the_whole_sensitivity() -> None:
    X, y = table()
    report = replay(maker(bounds=(-4.0, 4.0)), X, y, neighbours_of(X, y, 1))
    assert 0.999 < report.farthest <= 1, "a sketch has the same norm for every record"


def test_two_records_of_one_fit_are_the_same() -> None:
    X, y = table()
    one, other = (record(maker(sampling=0.25), X, y) for _ in range(2))
    assert one.control_flow() == other.control_flow()
    for first, second in zip(one.releases, other.releases, strict=True):
        for name, value in first.released.items():
            assert value.tobytes() == second.released[name].tobytes()


def test_with_other_coins_and_the_same_releases_the_posterior_is_the_same() -> None:
    X, y = table()
    base = record(maker(sampling=0.25, bounds=(-4.0, 4.0)), X, y)
    other = record(maker(sampling=0.25, bounds=(-4.0, 4.0), random_state=2), X, y, script=base)
    assert [len(one.rows) for one in base.releases] != [len(one.rows) for one in other.releases]
    assert base.outcome.keys() == other.outcome.keys()
    assert any(name.startswith("posterior") for name in base.outcome)
    for name, value in base.outcome.items():
        assert value.tobytes() == other.outcome[name].tobytes()


def test_a_fit_whose_public_values_look_at_the_data_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    X, y = table()
    honest, fit, seen = mixture_run.settings_of, driver.fit_private, [X]

    def peeking(task: Any, scaling: Any) -> Any:
        settings = honest(task, scaling)
        return settings._replace(prior_mean=settings.prior_mean + np.nanmean(seen[-1]))

    def spying(recipe: Any, records: Any, **more: Any) -> Any:
        seen.append(records()[0])
        return fit(recipe, records, **more)

    monkeypatch.setattr("dpsep.estimators.private.fit_private", spying)
    monkeypatch.setattr(mixture_run, "settings_of", peeking)
    report = replay(maker(bounds=(-4.0, 4.0)), X, y, neighbours_of(X, y, 2))
    found = {difference.what for difference in report.differences}
    assert "the posterior, beside the releases" in found
    assert "public values of release 2" in found


def test_a_sketch_longer_than_its_block_is_clipped(monkeypatch: pytest.MonkeyPatch) -> None:
    X, y = table()
    block = sketch.block

    def short(frequencies: int) -> Block:
        honest = block(frequencies)
        return replace(honest, clip=honest.clip / 2)

    monkeypatch.setattr(sketch, "block", short)
    report = replay(maker(bounds=(-4.0, 4.0)), X, y, neighbours_of(X, y, 2))
    assert report.differences == ()
    assert report.farthest <= 1


def test_a_message_that_depends_on_a_record_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    X, y = table()
    fit = driver.fit_private

    def talkative(recipe: Any, records: Any, **more: Any) -> Any:
        if not np.isfinite(records()[0]).all():
            raise ValueError("a cell is not finite")
        return fit(recipe, records, **more)

    monkeypatch.setattr("dpsep.estimators.private.fit_private", talkative)
    report = replay(maker(bounds=(-4.0, 4.0)), X, y, neighbours_of(X, y, 1))
    assert "warnings and errors" in {difference.what for difference in report.differences}
