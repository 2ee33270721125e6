"""Privacy curves: against closed forms, against the accountants, and against data that no run wrote."""

import contextlib
import json
import math
import time
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import norm

from dpsep.privacy import curve, schedule_json
from dpsep.privacy.accounting import Mechanism, Schedule
from dpsep.privacy.curve import (
    SAMPLED_POINTS,
    description_of,
    epsilon_curve,
    first,
    over_releases,
    schedule_of,
    spent_so_far,
)
from dpsep.privacy.sampling import FixedSizeSampling, FullBatch, PoissonSampling, Sampling, ShuffledEpochs

DELTA = 1e-5


def part(sampling: Sampling, steps: int, sigma: float, relation: Any = "zero-out") -> Mechanism:
    return Mechanism(sampling, relation, steps, sigma, 1000)


GAUSSIAN = Schedule((part(FullBatch(), 3, 20.0), part(FullBatch(), 97, 40.0)))
SAMPLED = Schedule((part(FullBatch(), 2, 20.0), part(PoissonSampling(0.05), 200, 3.0)))
TWO_HOPS = Schedule((part(PoissonSampling(0.1), 60, 8.0, "replace-one"),))
RENYI = Schedule(
    (part(FullBatch(), 2, 30.0, "replace-one"), part(FixedSizeSampling(20), 50, 4.0, "replace-one"))
)
EPOCHS = Schedule((part(ShuffledEpochs(300), 10, 9.0),))
ALL = {"gaussian": GAUSSIAN, "sampled": SAMPLED, "hops": TWO_HOPS, "renyi": RENYI, "epochs": EPOCHS}
each = pytest.mark.parametrize("schedule", ALL.values(), ids=list(ALL))


def closed_form(epsilon: float, mu: float) -> float:
    """Delta of a mu-GDP release (Balle and Wang, 2018)."""
    return float(norm.cdf(mu / 2 - epsilon / mu) - math.exp(epsilon) * norm.cdf(-mu / 2 - epsilon / mu))


def test_full_batches_meet_the_closed_form_at_every_delta() -> None:
    deltas = np.logspace(-9, -1, 15)
    mu = math.sqrt(3 / 20.0**2 + 97 / 40.0**2)
    for delta, epsilon in zip(deltas, epsilon_curve(GAUSSIAN, deltas), strict=True):
        assert closed_form(float(epsilon), mu) == pytest.approx(delta, rel=1e-6) or epsilon == 0


def test_full_batches_meet_the_closed_form_after_every_release() -> None:
    for done, epsilon in over_releases(GAUSSIAN, DELTA, points=100):
        mu = math.sqrt(min(done, 3) / 20.0**2 + max(done - 3, 0) / 40.0**2)
        assert closed_form(epsilon, mu) == pytest.approx(DELTA, rel=1e-6)


@each
def test_the_curve_is_what_the_schedule_says_and_falls_with_delta(schedule: Schedule) -> None:
    deltas = [1e-3, 1e-7, 1e-5]
    found = epsilon_curve(schedule, deltas)
    assert found == pytest.approx([schedule.epsilon(delta) for delta in deltas], rel=1e-12)
    assert found[0] < found[2] < found[1]


@each
@pytest.mark.parametrize("points", [1, 2, 7, 1000])
def test_points_rise_end_with_the_whole_and_are_what_their_prefix_costs(
    schedule: Schedule, points: int
) -> None:
    found = over_releases(schedule, DELTA, points)
    total = sum(one.steps for one in schedule.parts)
    releases, epsilons = zip(*found, strict=True)
    assert 1 <= len(found) <= points
    assert list(releases) == sorted(set(releases))
    assert list(epsilons) == sorted(epsilons)
    assert found[-1] == (total, schedule.epsilon(DELTA))
    for done, epsilon in (found[0], found[len(found) // 2]):
        # Each figure is a bound computed to a tolerance of 2e-4.
        assert epsilon == pytest.approx(first(schedule, done).epsilon(DELTA), rel=1e-3)


def test_few_releases_have_a_point_each_and_many_one_at_the_end_of_each_part() -> None:
    assert [done for done, _ in over_releases(EPOCHS, DELTA)] == list(range(1, 11))
    assert {3, 100} <= {done for done, _ in over_releases(GAUSSIAN, DELTA, points=5)}
    assert len(over_releases(SAMPLED, DELTA)) <= SAMPLED_POINTS
    assert {2, 202} <= {done for done, _ in over_releases(SAMPLED, DELTA)}


def test_shuffled_epochs_count_a_pass_when_it_begins() -> None:
    found = dict(over_releases(EPOCHS, DELTA))  # four steps a pass
    assert found[1] == found[4] < found[5] == found[8] < found[9]


@each
def test_a_prefix_has_the_first_releases_and_no_others(schedule: Schedule) -> None:
    total = sum(one.steps for one in schedule.parts)
    assert first(schedule, total) == schedule
    for releases in (1, total - 1):
        cut = first(schedule, releases)
        assert sum(one.steps for one in cut.parts) == releases
        assert [one.sigma for one in cut.parts] == [one.sigma for one in schedule.parts[: len(cut.parts)]]
    for releases in (0, total + 1):
        with pytest.raises(ValueError, match=f"ask for 1 to {total}"):
            first(schedule, releases)


@each
def test_a_live_view_never_shows_less_than_the_truth_nor_more_than_the_whole(
    schedule: Schedule, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(curve, "_LIVE_PATIENCE", 60.0)  # a busy machine gets looser figures, not wrong ones
    spent, last = spent_so_far(schedule, DELTA), schedule.parts[-1].steps
    before = sum(one.steps for one in schedule.parts) - last
    whole = schedule.epsilon(DELTA)
    shown = [spent(done) for done in range(last + 1)]
    assert shown == sorted(shown)
    assert shown[-1] == pytest.approx(whole, rel=1e-12)
    assert spent(last + 5) == shown[-1]
    assert shown[0] == pytest.approx(first(schedule, before).epsilon(DELTA), rel=0.05) if before else True
    assert shown[0] > 0 or not before
    for done in (1, 2, last // 3, last // 2):
        # The truth is at least a bound less its tolerance.
        assert shown[done] >= first(schedule, before + done).epsilon(DELTA) * (1 - 5e-4)
        assert shown[done] <= whole * (1 + 1e-12)


def test_a_live_view_composes_once_and_at_its_first_call(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[int] = []
    real = curve._rising
    monkeypatch.setattr(curve, "_rising", lambda *given, **more: calls.append(1) or real(*given, **more))
    spent = spent_so_far(SAMPLED, DELTA)
    assert calls == []
    for done in range(200):
        spent(done)
    assert calls == [1]


def test_a_schedule_that_is_slow_gets_fewer_points_and_an_upper_bound(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(curve, "_PATIENCE", -1.0)
    assert over_releases(SAMPLED, DELTA) == [(202, SAMPLED.epsilon(DELTA))]
    found = epsilon_curve(SAMPLED, [1e-4, 1e-6])
    assert found.tolist() == [SAMPLED.epsilon(1e-6)] * 2


def test_a_delta_that_loss_distributions_do_not_reach_has_an_infinite_epsilon() -> None:
    found = epsilon_curve(SAMPLED, [1e-15, 1e-6])
    assert found[0] == math.inf
    assert found[1] == SAMPLED.epsilon(1e-6)


@pytest.mark.parametrize("deltas", [[0.0], [1.0], [math.nan], [[1e-5]], [-1e-5, 1e-5]])
def test_a_delta_that_is_none_is_refused(deltas: Any) -> None:
    with pytest.raises(ValueError, match="strictly between 0 and 1"):
        epsilon_curve(GAUSSIAN, deltas)


@each
def test_a_description_is_json_and_reads_back_as_the_schedule(schedule: Schedule) -> None:
    made = description_of(schedule)
    assert made["parts"][-1]["name"] == "fit"
    assert schedule_of(json.loads(json.dumps(made))) == schedule


def test_names_of_parts_are_those_given() -> None:
    made = description_of(GAUSSIAN, ["scaling", "fit"])
    assert [one["name"] for one in made["parts"]] == ["scaling", "fit"]
    with pytest.raises(ValueError, match="zip"):
        description_of(GAUSSIAN, ["fit"])


def changed(place: tuple[Any, ...], value: Any) -> Any:
    made: Any = json.loads(json.dumps(description_of(SAMPLED, ["scaling", "fit"])))
    if not place:
        return value
    inner = made
    for key in place[:-1]:
        inner = inner[key]
    inner[place[-1]] = value
    return made


HOSTILE: list[tuple[tuple[Any, ...], Any]] = [
    ((), None),
    ((), []),
    ((), "zero-out"),
    (("relation",), "add-remove"),
    (("relation",), ["zero-out"]),
    (("more",), 1),
    (("parts",), []),
    (("parts",), {}),
    (("parts",), "fit"),
    (("parts",), [1]),
    (("parts",), description_of(SAMPLED)["parts"] * 5),
    (("parts", 1, "steps"), 10**12),
    (("parts", 1, "steps"), 10**400),
    (("parts", 1, "steps"), 0),
    (("parts", 1, "steps"), 2.0),
    (("parts", 1, "steps"), True),
    (("parts", 1, "sigma"), 1e-300),
    (("parts", 1, "sigma"), 1e300),
    (("parts", 1, "sigma"), math.nan),
    (("parts", 1, "sigma"), "3"),
    (("parts", 1, "sigma"), -3.0),
    (("parts", 1, "records"), 10**20),
    (("parts", 1, "records"), 999),
    (("parts", 1, "name"), ""),
    (("parts", 1, "name"), "x" * 10**6),
    (("parts", 1, "name"), None),
    (("parts", 1, "sampling"), "PoissonSampling"),
    (("parts", 1, "sampling"), {"kind": "Sampling"}),
    (("parts", 1, "sampling"), {"kind": ["FullBatch"]}),
    (("parts", 1, "sampling"), {"kind": "FullBatch", "rate": 0.1}),
    (("parts", 1, "sampling", "rate"), 0.0),
    (("parts", 1, "sampling", "rate"), 1e-30),
    (("parts", 1, "sampling", "rate"), 1.5),
    (("parts", 1, "sampling", "rate"), None),
    (("parts", 1, "sampling"), {"kind": "FixedSizeSampling", "size": 10}),
    (("parts", 1, "sampling"), {"kind": "ShuffledEpochs", "size": 1001}),
    (("parts", 1, "sampling"), {"kind": "ShuffledEpochs", "size": 1.5}),
]


@pytest.mark.parametrize(("place", "value"), HOSTILE, ids=lambda value: str(value)[:30])
def test_what_no_run_of_ours_wrote_is_refused_at_once(place: tuple[Any, ...], value: Any) -> None:
    started = time.monotonic()
    with pytest.raises(ValueError, match=r"not the schedule|share a relation|exceeds|accounted") as refused:
        schedule_of(changed(place, value))
    assert time.monotonic() - started < 0.5
    assert "xxxx" not in str(refused.value)
    assert len(str(refused.value)) < 300


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
)
PLACES = sorted({place for place, _ in HOSTILE if place and place != ("more",)}, key=str)


@settings(max_examples=200, deadline=None)
@given(place=st.sampled_from([*PLACES, ()]), value=JSON)
def test_any_value_in_any_place_gives_a_schedule_or_a_value_error(place: tuple[Any, ...], value: Any) -> None:
    try:
        found = schedule_of(changed(place, value))
    except ValueError:
        return
    assert all(1 <= one.steps <= schedule_json.MOST_STEPS for one in found.parts)
    assert all(schedule_json.SIGMAS[0] <= one.sigma <= schedule_json.SIGMAS[1] for one in found.parts)


def test_the_largest_schedule_that_can_be_read_is_drawn_in_bounded_time() -> None:
    most = {"name": "fit", "steps": schedule_json.MOST_STEPS, "sigma": 50.0, "records": 10**6}
    rates = (1e-5, 1e-3, 1e-4, 0.3)
    parts = [most | {"sampling": {"kind": "PoissonSampling", "rate": rate}} for rate in rates]
    schedule = schedule_of({"relation": "replace-one", "parts": parts})
    started = time.monotonic()
    with contextlib.suppress(ValueError):
        over_releases(schedule, DELTA)
    # One evaluation may take some seconds; after ten no other is begun.
    assert time.monotonic() - started < 60
