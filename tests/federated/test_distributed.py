"""The law of a sum of rounded Gaussians, against its definition and against the bound that is charged."""

import math
import tracemalloc
from typing import Any

import mpmath
import pytest
from mpmath import mp

from dpsep.federated.distributed import (
    LEAST_DEVIATION,
    MOST_HONEST,
    check_deviation,
    extra_delta,
    less,
    log_gap,
    log_variation,
    log_variation_of_equal,
)
from dpsep.federated.packing import TAIL
from dpsep.federated.site_policy import MOST_COORDINATES

CASES = [
    (0.3, 0.3),
    (0.4, 0.7),
    (1.0, 1.0),
    (1.0, 2.0),
    (3.0, 3.0),
    (0.5, 0.5, 0.5),
    (0.6, 0.9, 1.3, 0.5),
    (0.8, 0.8, 0.8, 0.8, 0.8),
]


def rounded(deviation: float, reach: int) -> list[mpmath.mpf]:
    """Law of a rounded Gaussian on -reach..reach, from its definition."""

    def below(x: float) -> mpmath.mpf:
        return mpmath.erfc(-mpmath.mpf(x) / (mpmath.mpf(deviation) * mpmath.sqrt(2))) / 2

    return [below(k + 0.5) - below(k - 0.5) for k in range(-reach, reach + 1)]


def summed(deviations: tuple[float, ...], reach: int) -> list[mpmath.mpf]:
    """Law of the sum of rounded Gaussians, by convolution."""
    total = [mpmath.mpf(1)]
    for deviation in deviations:
        one = rounded(deviation, reach)
        wide = [mpmath.mpf(0)] * (len(total) + len(one) - 1)
        for i, a in enumerate(total):
            for j, b in enumerate(one):
                wide[i + j] += a * b
        total = wide
    middle = len(total) // 2
    return total[middle - reach : middle + reach + 1]


def ideal(deviations: tuple[float, ...], reach: int) -> list[mpmath.mpf]:
    """Law of round(Y + I): the density of Y plus n uniforms at integers, by n-fold differences.

    The n-fold integral of the normal density, differenced n times with step one, is the density of the normal
    plus n uniforms. With H_0 the density and H_1 its integral, H_{m+1} = (x H_m + S H_{m-1}) / m.
    """
    n, variance = len(deviations), mpmath.fsum(mpmath.mpf(s) ** 2 for s in deviations)

    def integral(x: Any) -> Any:
        before = mpmath.exp(-x * x / (2 * variance)) / mpmath.sqrt(2 * mp.pi * variance)
        at = mpmath.erfc(-x / mpmath.sqrt(2 * variance)) / 2
        for m in range(1, n):
            before, at = at, (x * at + variance * before) / m
        return at

    law = []
    for k in range(-reach, reach + 1):
        terms = [
            (-1) ** j * math.comb(n, j) * integral(mpmath.mpf(k) + mpmath.mpf(n) / 2 - j)
            for j in range(n + 1)
        ]
        law.append(mpmath.fsum(terms))
    return law


@pytest.mark.parametrize("deviations", CASES, ids=str)
def test_the_sum_is_a_rounded_gaussian_with_uniforms_up_to_the_bound(deviations: tuple[float, ...]) -> None:
    with mp.workdps(60):
        reach = 12 + math.ceil(9 * math.hypot(*deviations))
        exact, other = summed(deviations, reach), ideal(deviations, reach)
        assert abs(mpmath.fsum(other) - 1) < 1e-15
        assert min(other) >= 0
        gaps = [abs(a - b) for a, b in zip(exact, other, strict=True)]
        assert 0 < max(gaps) <= math.exp(log_gap(deviations))
        assert mpmath.fsum(gaps) / 2 <= math.exp(log_variation(deviations))


def test_it_is_not_a_rounded_gaussian() -> None:
    with mp.workdps(60):
        one = rounded(math.sqrt(2.0), 20)
        two = summed((1.0, 1.0), 20)
        # Uniforms widen it: the difference is no small cross term.
        assert max(abs(a - b) for a, b in zip(one, two, strict=True)) > 0.005


def test_the_bound_has_the_rate_of_the_largest_cross_term() -> None:
    """One site shifted by 2 pi: twice the exponent that the bound keeps, so the bound is not far off."""
    with mp.workdps(60):
        for s in (1.0, 1.5, 2.0):
            exact, other = summed((s, s), 30), ideal((s, s), 30)
            gap = float(max(abs(a - b) for a, b in zip(exact, other, strict=True)))
            assert 1.5 < math.log(gap) / log_gap([s, s]) < 3.0


def test_one_rounded_gaussian_is_one() -> None:
    assert log_gap([5.0]) == -math.inf
    assert extra_delta(1, 1.0, 100, 100, 1.0) == 0.0


def test_the_bound_falls_as_noise_grows() -> None:
    found = [log_variation([s] * 3) for s in (1.0, 2.0, 4.0, 8.0, 16.0, 1e3, 1e6)]
    assert found == sorted(found, reverse=True)
    more = [log_variation([LEAST_DEVIATION] * n) for n in (2, 3, 5, 50)]
    assert more == sorted(more, reverse=True)


def test_what_is_charged_for_rounding_is_negligible_and_not_nothing() -> None:
    assert log_variation([16.0] * 2) / math.log(10) < -200
    assert 0 < extra_delta(2, LEAST_DEVIATION, 100_000, 1000, 5.0) < 1e-20
    assert 0 < extra_delta(2, 2 * LEAST_DEVIATION, 1 << 24, 1 << 24, 50.0) < 1e-90
    # At one grid unit it would not be.
    assert extra_delta(2, 1.0, 100, 16, 1.0) == 1.0
    assert extra_delta(2, 2.0, 100, 16, 1.0) > 1e-5


@pytest.mark.parametrize("deviation", [0.3, 1.0, 4.0, 50.0])
@pytest.mark.parametrize("count", [1, 2, 3, 1000])
def test_equal_deviations_have_a_closed_form(deviation: float, count: int) -> None:
    found = log_variation_of_equal(deviation, count)
    assert found == pytest.approx(log_variation([deviation] * count), rel=1e-12)


def test_the_most_honest_sites_cost_no_room() -> None:
    tracemalloc.start()
    assert 0 < extra_delta(MOST_HONEST, LEAST_DEVIATION, 1000, 1000, 1.0) < 1e-40
    assert tracemalloc.get_traced_memory()[1] < 100_000
    tracemalloc.stop()


def test_large_epsilons_are_charged_in_full() -> None:
    one, other = (extra_delta(2, 20.0, 1, 1, epsilon) for epsilon in (1600.0, 1700.0))
    assert math.log(other / one) == pytest.approx(100.0)
    assert extra_delta(2, LEAST_DEVIATION, 1, 1, 1e6) == 1.0


def test_moving_answers_to_their_bounds_costs_less_than_the_last_digit_of_delta() -> None:
    """At the most sites, numbers, releases and epsilon that leave any delta, and the least delta there is."""
    releases, epsilon = 16 << 20, -log_variation_of_equal(LEAST_DEVIATION, MOST_HONEST)
    with mp.workdps(60):
        beyond = mpmath.erfc(mpmath.mpf(TAIL) / mpmath.sqrt(2))
        cost = (1 + mpmath.exp(epsilon)) * MOST_HONEST * MOST_COORDINATES * releases * beyond
        assert cost < mpmath.mpf(math.ulp(0.0))


def test_delta_is_always_rounded_down() -> None:
    assert less(1e-5, 0.0) < 1e-5
    assert less(1e-5, 1e-300) < 1e-5
    assert less(1e-5, 4e-6) <= 6e-6
    with pytest.raises(ValueError, match="leaves nothing"):
        less(1e-5, 2e-5)


def test_too_little_noise_is_refused_with_its_numbers() -> None:
    check_deviation(LEAST_DEVIATION, "mean")
    with pytest.raises(ValueError, match=r"block 'counts' is 3 grid units.*at least 4"):
        check_deviation(3.0, "counts")
