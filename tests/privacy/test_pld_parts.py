"""The pieces of the numerical composition against closed forms, direct convolution and exact tails."""

import math
from functools import reduce

import dp_accounting as dpa
import numpy as np
import pytest
from scipy import stats

from dpsep.privacy import pld
from dpsep.privacy.pld import AccountingRefused, Part, pld_delta, pld_epsilon

GAUSSIAN = dpa.GaussianDpEvent(2.0)
SAMPLED = dpa.PoissonSampledDpEvent(0.1, dpa.GaussianDpEvent(3.0))
PARTS = [Part(0.1, 0.8, 3), Part(1.0, 2.0, 1), Part(1e-4, 0.3, 5), Part(0.999, 5.0, 2)]


def law(infinite: float = 0.0) -> pld._Law:
    """Losses -0.5, 0, 0.5, 1 in one direction; 0.5 and 1 in the other."""
    return pld._Law(0.5, (-1, 1), (np.array([0.1, 0.2, 0.3, 0.4]), np.array([0.9, 0.1])), infinite)


def test_the_limits_are_what_the_module_promises() -> None:
    assert pld.TOLERANCE == 2e-4  # a fifth of the 0.1 % that calibration comes within
    assert (pld._MAX_STEP_BINS, pld._MAX_BINS) == (2**20, 2**22)  # 64 MB a complex array
    assert 2 * stats.norm.sf(pld._TAIL) * 1e6 < 1e-15  # a million steps lose less than the cut
    assert pld._TAIL <= 12  # further out the losses of the least noise would leave the range of doubles
    for sigma in (1 / 25.0009, 0.04):
        assert pld_epsilon(dpa.PoissonSampledDpEvent(1e-3, dpa.GaussianDpEvent(sigma)), 1e-5) > 0
    with pytest.raises(AccountingRefused, match=r"multiplier of at least 0\.03"):
        pld_epsilon(dpa.GaussianDpEvent(1 / 25.002), 1e-5)


@pytest.mark.parametrize(
    "part", [Part(0.0, 1.0, 1), Part(1.1, 1.0, 1), Part(math.nan, 1.0, 1), Part(0.5, 1.0, 0)]
)
def test_parts_that_make_no_sense_are_refused(part: Part) -> None:
    with pytest.raises(AccountingRefused, match="outside what can be computed"):
        pld._refined((Part(0.5, 1.0, 1), part), lambda law: 1.0, 1e-3)


def test_events_are_taken_apart_with_their_counts() -> None:
    twice = dpa.SelfComposedDpEvent(dpa.ComposedDpEvent([GAUSSIAN, dpa.SelfComposedDpEvent(SAMPLED, 3)]), 2)
    assert pld.parts_of(twice) == (Part(1.0, 2.0, 2), Part(0.1, 3.0, 6))
    assert pld.parts_of(twice, 5) == (Part(1.0, 2.0, 10), Part(0.1, 3.0, 30))
    assert pld.parts_of(GAUSSIAN) == (Part(1.0, 2.0, 1),)
    with pytest.raises(AccountingRefused, match="no privacy loss distribution"):
        pld.parts_of(dpa.PoissonSampledDpEvent(0.1, SAMPLED))


def test_arguments_out_of_range_raise() -> None:
    for delta in (0.0, 1.0, 2.0, math.nan):
        with pytest.raises(ValueError, match="strictly between"):
            pld_epsilon(GAUSSIAN, delta)
    for epsilon in (-1e-9, math.nan):
        with pytest.raises(ValueError, match="negative"):
            pld_delta(GAUSSIAN, epsilon)
    assert 0 < pld_delta(GAUSSIAN, 0.0) < 1


def test_delta_is_the_hockey_stick_of_the_worse_direction() -> None:
    for epsilon in (0.0, 0.2, 0.5, 0.75, 1.0, 7.0):
        one, other = (
            sum(mass * max(0.0, 1 - math.exp(epsilon - loss)) for loss, mass in losses)
            for losses in (((0.5, 0.3), (1.0, 0.4)), ((0.5, 0.9), (1.0, 0.1)))
        )
        assert law().delta(epsilon) == pytest.approx(max(one, other), rel=1e-12, abs=1e-15)
        assert law(0.01).delta(epsilon) == pytest.approx(max(one, other) + 0.01, rel=1e-12)
    assert law(0.9).delta(0.0) == 1.0


@pytest.mark.parametrize("delta", [1e-3, 0.05, 0.2])
def test_epsilon_inverts_delta_from_the_safe_side(delta: float) -> None:
    for scale in (1.0, 300.0):
        stretched = law(1e-5)._replace(interval=0.5 * scale)
        epsilon = stretched.epsilon(delta)
        assert stretched.delta(epsilon) <= delta < stretched.delta(epsilon - 1e-6)
    assert law().epsilon(0.99) == 0.0
    assert law().epsilon(law().delta(0.0)) == 0.0


def test_a_delta_near_the_allowance_is_refused() -> None:
    law(0.0125).epsilon(0.125)
    with pytest.raises(AccountingRefused, match="rounding error"):
        law(0.0125).epsilon(0.1249)


def test_two_hops_are_the_least_epsilon_that_the_group_bound_allows() -> None:
    for delta in (0.01, 0.1, 0.5):
        half = law(1e-6).two_hop_epsilon(delta) / 2
        assert (1 + math.exp(half)) * law(1e-6).delta(half) <= delta
        assert (1 + math.exp(half - 1e-4)) * law(1e-6).delta(half - 1e-4) > delta
    event = dpa.SelfComposedDpEvent(SAMPLED, 10)
    one = pld_delta(event, 0.25)
    assert pld_delta(event, 0.5, hops=2) == pytest.approx((1 + math.exp(0.25)) * one, rel=1e-9)
    assert pld_delta(dpa.GaussianDpEvent(0.05), 1.0, hops=2) == 1.0
    for epsilon in (1400.0, 1401.0, 1e6):
        assert 0 < pld_delta(event, epsilon, hops=2) <= 1.0
    assert pld_delta(event, 1e6, hops=2) == 1.0


def test_the_grid_is_halved_until_the_value_settles_and_the_larger_of_two_is_returned(monkeypatch) -> None:
    intervals: list[float] = []
    values: list[float | None] = []

    def compose(parts: tuple[Part, ...], interval: float) -> float | None:
        intervals.append(interval)
        return values[len(intervals) - 1]

    def refined(*given: float | None, tolerance: float = 1e-2) -> float:
        intervals.clear()
        values[:] = given
        return pld._refined((Part(1.0, 1.0, 1),), lambda law: law, tolerance)  # pyright: ignore[reportArgumentType]

    monkeypatch.setattr(pld, "_compose", compose)
    assert refined(2.0, 1.0, 0.995, 0.5) == 1.0
    assert intervals[0] / intervals[1] == intervals[1] / intervals[2] == 2.0
    assert len(intervals) == 3
    low, high = pld._loss_range(Part(1.0, 1.0, 1))
    assert intervals[0] == (high - low) / 2**12
    assert refined(2.0, 0.995, 1.0) == 1.0
    assert refined(1.0, 1.0, tolerance=0.0) == 1.0
    assert refined(2.0, 1.5, None) == 1.5
    assert refined(2.0, None) == 2.0
    for lost in ((None,), (math.inf, None)):
        with pytest.raises(AccountingRefused, match="memory"):
            refined(*lost)


@pytest.mark.parametrize("part", PARTS)
def test_losses_and_outcomes_are_inverse_to_each_other(part: Part) -> None:
    def loss(x: np.ndarray) -> np.ndarray:
        return np.log1p(part.rate * np.expm1((x - 0.5) / part.sigma**2))

    low, high = pld._loss_range(part)
    ends = np.array([-10.5 * part.sigma, 1 + 10.5 * part.sigma])
    assert high == pytest.approx(
        np.logaddexp(
            np.log1p(-part.rate) if part.rate < 1 else -np.inf,
            np.log(part.rate) + (ends[1] - 0.5) / part.sigma**2,
        ),
        rel=1e-12,
    )
    np.testing.assert_allclose([low], loss(ends[:1]), rtol=1e-9)
    x = np.linspace(-3 * part.sigma, 1 + 8 * part.sigma, 50)
    x = x[loss(x) > low / 2]
    np.testing.assert_allclose(pld._outcome_of_loss(loss(x), part), x, rtol=1e-5, atol=1e-5)
    if part.rate < 1:  # no outcome has a loss below log(1 - rate)
        assert pld._outcome_of_loss(np.array([math.log1p(-part.rate) - 1e-3]), part).tolist() == [-np.inf]


def test_normal_masses_between_points_come_from_the_nearer_tail() -> None:
    x = np.array([-np.inf, -9.0, -1.0, 0.0, 0.5, 8.0, 8.5, 20.0])
    found = pld._between(x)
    assert found[0] == 0.0
    assert found.sum() == pytest.approx(1.0, abs=1e-15)
    assert found[-1] == pytest.approx(stats.norm.sf(20.0), rel=1e-12)
    np.testing.assert_allclose(found[6], stats.norm.sf(8.0) - stats.norm.sf(8.5), rtol=1e-9)
    np.testing.assert_allclose(found[1:6], np.diff(stats.norm.cdf(x[:6])), rtol=1e-9)


@pytest.mark.parametrize("count", [1, 2, 3, 7, 8, 1000])
def test_powers_are_powers_and_what_vanishes_is_zero(count: int) -> None:
    angles = np.linspace(0, 3, 40)
    values = np.exp(1j * angles - angles / count)
    np.testing.assert_allclose(pld._power(values.copy(), count), values**count, rtol=1e-10)
    edge = np.exp(np.array([-79.9, -80.1]) / count).astype(np.complex128)
    kept = pld._power(edge, count)
    assert kept[0] == pytest.approx(math.exp(-79.9), rel=1e-9)
    assert kept[1] == 0


def steps_of(*pairs: tuple[int, list[float]]) -> list[pld._Step]:
    return [pld._Step(lowest, np.array(masses), 0.0) for lowest, masses in pairs]


def test_sums_of_losses_are_their_convolution() -> None:
    steps = steps_of((-2, [0.1, 0.2, 0.4, 0.3]), (1, [0.75, 0.25]))
    counts = [5, 9]
    each = [[step.masses] * count for step, count in zip(steps, counts, strict=True)]
    exact = reduce(np.convolve, [mass for some in each for mass in some])
    found = pld._sum_of_losses(steps, counts)
    assert found is not None
    low, masses = found
    first = 5 * -2 + 9 * 1
    assert low >= first
    np.testing.assert_allclose(masses, exact[low - first : low - first + masses.size], atol=1e-15)
    assert exact[: low - first].sum() <= 1e-15
    assert exact[low - first + masses.size :].sum() <= 1e-15


@pytest.mark.parametrize("share", [0.5, 0.01])
@pytest.mark.parametrize("count", [10, 1000, 100_000])
def test_the_range_kept_holds_all_but_a_cut_and_is_not_much_wider(share: float, count: int) -> None:
    low, high = pld._chernoff_range(steps_of((-1, [1 - share, share])), [count])
    heads = stats.binom(count, share)  # the sum is heads - count
    assert heads.sf(high + count) <= 1e-15
    assert heads.cdf(low + count - 1) <= 1e-15
    deviation = heads.std()
    assert high + count <= min(count, math.ceil(heads.mean() + 11 * deviation + 40))
    assert low + count >= max(0, math.floor(heads.mean() - 11 * deviation - 20))


def test_the_range_of_unlike_steps_is_that_of_their_sum() -> None:
    steps, counts = steps_of((0, [0.5, 0.5]), (3, [0.5, 0.0, 0.5])), [400, 300]
    low, high = pld._chernoff_range(steps, counts)
    mean, deviation = 200 + 4 * 300, math.sqrt(400 / 4 + 300)
    assert mean - 9.5 * deviation < low < mean - 7.5 * deviation
    assert mean + 7.5 * deviation < high < mean + 9.5 * deviation


def test_what_is_lost_and_rounded_is_added_to_delta() -> None:
    assert pld._rounding([3, 4]) == pytest.approx(1e-13 + 7e-15, rel=1e-12)
    parts = (Part(0.1, 0.8, 3), Part(1.0, 2.0, 4))
    composed = pld._compose(parts, 1e-2)
    assert composed is not None
    steps = [pld._one_step(part, 1e-2) for part in parts]
    escaped = [3 * steps[0][way].infinite + 4 * steps[1][way].infinite for way in (0, 1)]
    assert composed.infinite == pytest.approx(max(escaped) + 2e-15 + 1e-13 + 7e-15, rel=1e-12)
    # The least of outcomes has infinite loss one way, the greatest the other: a tail of the normal each.
    tail = stats.norm.sf(10.5)
    assert 0 < steps[1][0].infinite <= tail
    assert 0 < steps[1][1].infinite <= tail


def test_a_grid_that_would_not_fit_is_not_made(monkeypatch) -> None:
    parts = (Part(1.0, 2.0, 1), Part(0.5, 2.0, 1))
    width = sum(high - low for low, high in map(pld._loss_range, parts))
    monkeypatch.setattr(pld, "_MAX_STEP_BINS", 1000)
    pld._compose.cache_clear()
    assert pld._compose(parts, width / 1000) is not None
    assert pld._compose(parts, width / 1001) is None
    pld._compose.cache_clear()
