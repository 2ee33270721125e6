"""The numerical composition bounds, and nearly equals, what quadrature and the reference accountant give."""

import math
from itertools import pairwise

import dp_accounting as dpa
import numpy as np
import pytest
from dp_accounting import pld as reference
from scipy.integrate import quad

from dpsep.privacy import pld
from dpsep.privacy.gaussian import gaussian_delta, gaussian_epsilon
from dpsep.privacy.pld import AccountingRefused, Part, pld_delta, pld_epsilon

ZEROED = dpa.NeighboringRelation.REPLACE_SPECIAL


def run(rate: float, sigma: float, steps: int) -> dpa.DpEvent:
    return dpa.SelfComposedDpEvent(dpa.PoissonSampledDpEvent(rate, dpa.GaussianDpEvent(sigma)), steps)


def hockey_stick(rate: float, sigma: float, epsilon: float, forward: bool) -> float:
    """Quadrature of [P - e^epsilon Q]_+ for one step, either direction."""

    def integrand(x: float) -> float:
        zero = math.exp(-(x**2) / (2 * sigma**2))
        both = (1 - rate) * zero + rate * math.exp(-((x - 1) ** 2) / (2 * sigma**2))
        p, q = (both, zero) if forward else (zero, both)
        return max(0.0, p - math.exp(epsilon) * q) / (sigma * math.sqrt(2 * math.pi))

    edges = np.linspace(-12 * sigma, 1 + 12 * sigma, 400)
    return sum(quad(integrand, a, b, epsabs=1e-14)[0] for a, b in pairwise(edges))


@pytest.mark.parametrize(("rate", "sigma"), [(0.01, 0.7), (0.3, 2.0), (0.9, 1.0)])
def test_one_step_matches_quadrature_in_each_direction(rate, sigma):
    part = Part(rate, sigma, 1)
    law = pld._compose((part,), 1e-4)
    assert law is not None
    for direction, forward in ((0, True), (1, False)):
        alone = law._replace(lowest=(law.lowest[direction],) * 2, masses=(law.masses[direction],) * 2)
        for epsilon in (0.0, 0.05, 0.5):
            exact = hockey_stick(rate, sigma, epsilon, forward)
            assert alone.delta(epsilon) >= exact - 1e-12
            assert alone.delta(epsilon) == pytest.approx(exact, rel=1e-4, abs=1e-7)
    worst = max(hockey_stick(rate, sigma, 0.2, forward) for forward in (True, False))
    assert pld_delta(run(rate, sigma, 1), 0.2) == pytest.approx(worst, rel=1e-3)


@pytest.mark.parametrize("direction", [0, 1])
def test_both_laws_keep_their_mass(direction):
    for part in (Part(0.02, 1.0, 50), Part(1.0, 3.0, 7), Part(1e-6, 0.5, 1000)):
        step = pld._one_step(part, 1e-3)[direction]
        assert step.masses.sum() + step.infinite == pytest.approx(1, abs=1e-13)
        losses = (step.lowest + np.arange(step.masses.size)) * 1e-3
        # Under the other law everything has mass one too: E exp(-loss) = 1, tails apart.
        assert np.dot(step.masses, np.exp(-losses)) == pytest.approx(1, abs=1e-10)


@pytest.mark.parametrize(
    ("rate", "sigma", "steps", "delta"),
    [
        (0.05, 2.14, 100, 1e-5),
        (0.25, 9.48, 100, 1e-6),
        (0.01, 0.8, 500, 1e-5),
        (0.5, 1.0, 10, 1e-8),
        (0.001, 0.6, 10_000, 1e-5),
    ],
)
def test_composition_agrees_with_the_reference_accountant(rate, sigma, steps, delta):
    accountant = reference.PLDAccountant(ZEROED, 1e-4).compose(run(rate, sigma, steps))
    epsilon = pld_epsilon(run(rate, sigma, steps), delta)
    assert epsilon == pytest.approx(accountant.get_epsilon(delta), rel=1e-3)
    assert pld_delta(run(rate, sigma, steps), epsilon) == pytest.approx(delta, rel=5e-3)


@pytest.mark.parametrize("steps", [1, 100, 10_000, 1_000_000])
def test_many_gaussians_are_never_below_their_closed_form(steps):
    event = dpa.SelfComposedDpEvent(dpa.GaussianDpEvent(math.sqrt(steps)), steps)
    for delta in (1e-3, 1e-5, 1e-7):
        exact = gaussian_epsilon(1.0, delta)
        assert exact * (1 - 1e-9) <= pld_epsilon(event, delta) <= exact * (1 + 1e-3)
    # Without the allowance the transforms alone are this accurate: it covers their error.
    law = pld._compose(pld.parts_of(event), 10 / math.sqrt(steps) / 2048)
    if law is not None and steps > 1:
        bare = law._replace(infinite=0.0)
        for epsilon in (5.0, 6.5, 8.0):
            assert bare.delta(epsilon) > gaussian_delta(epsilon, 1.0) * (1 - 1e-8) - law.infinite / 2


@pytest.mark.parametrize("part", [Part(1e-7, 0.3, 10**6), Part(1e-5, 0.5, 10**5), Part(0.2, 4.0, 100)])
def test_rounding_of_the_transforms_stays_far_inside_its_allowance(part):
    low, high = pld._loss_range(part)
    law = pld._compose((part,), (high - low) / 2**17)
    assert law is not None
    for masses in law.masses:
        # Exact tail sums lie between 0 and 1: what sticks out is rounding.
        tails = np.cumsum(masses[::-1])
        assert -law.infinite / 4 < tails.min()
        assert tails.max() < 1 + law.infinite / 2


def test_unlike_parts_compose_and_order_does_not_matter():
    gaussian, sampled = dpa.GaussianDpEvent(3.0), run(0.02, 1.2, 300)
    one = pld_epsilon(dpa.ComposedDpEvent([gaussian, sampled]), 1e-5)
    accountant = reference.PLDAccountant(ZEROED, 1e-4).compose(gaussian).compose(sampled)
    assert one == pytest.approx(accountant.get_epsilon(1e-5), rel=1e-3)
    assert pld_epsilon(dpa.ComposedDpEvent([sampled, gaussian]), 1e-5) == pytest.approx(one, rel=1e-6)


def test_extreme_rates_and_step_counts_answer():
    epsilon = pld_epsilon(run(1e-7, 0.11, 10**6), 1e-5)
    accountant = reference.PLDAccountant(ZEROED, 1e-2).compose(run(1e-7, 0.11, 10**6))
    assert 50 < epsilon <= accountant.get_epsilon(1e-5) * 1.001
    assert (
        pld_epsilon(run(1e-9, 1.0, 1000), 1e-5) == 0.0
    )  # a record joins with probability 1e-6 < delta at all


def test_a_small_memory_gives_a_looser_bound_or_a_refusal(monkeypatch):
    event = run(0.001, 0.9, 20_000)
    fine = pld_epsilon(event, 1e-5)
    pld._compose.cache_clear()
    monkeypatch.setattr(pld, "_MAX_BINS", 1 << 14)
    assert pld_epsilon(event, 1e-5) > fine * (1 + 1e-3)
    pld._compose.cache_clear()
    monkeypatch.setattr(pld, "_MAX_BINS", 1 << 10)
    with pytest.raises(AccountingRefused, match="memory"):
        pld_epsilon(event, 1e-5)
    pld._compose.cache_clear()


def test_what_cannot_be_computed_is_refused_by_name():
    with pytest.raises(AccountingRefused, match="rounding error"):
        pld_epsilon(run(0.01, 1.0, 100_000), 1e-11)
    with pytest.raises(AccountingRefused, match="more noise"):
        pld_epsilon(run(0.01, 0.01, 10), 1e-5)
    with pytest.raises(AccountingRefused, match="LaplaceDpEvent"):
        pld_epsilon(dpa.LaplaceDpEvent(1.0), 1e-5)
    with pytest.raises(ValueError, match="delta"):
        pld_epsilon(run(0.1, 1.0, 1), 0.0)


def test_two_hops_satisfy_the_group_bound_with_the_reference():
    event = run(0.05, 3.0, 100)
    epsilon = pld_epsilon(event, 1e-5, hops=2)
    accountant = reference.PLDAccountant(ZEROED, 1e-4).compose(event)
    one = accountant.get_delta(epsilon / 2)
    assert (1 + math.exp(epsilon / 2)) * one == pytest.approx(1e-5, rel=1e-2)
    assert pld_delta(event, epsilon, hops=2) == pytest.approx(1e-5, rel=1e-2)
    # The direct analysis of replacing one record, tight or not, must lie below the conversion.
    direct = reference.PLDAccountant(dpa.NeighboringRelation.REPLACE_ONE, 1e-4).compose(event)
    assert direct.get_epsilon(1e-5) <= epsilon
