"""Lower bounds hold as often as they say, and are as large as they can be."""

import math

import numpy as np
import pytest
from scipy.stats import binom, norm

from dpsep.audit.bounds import (
    Counts,
    at_least,
    counts_at,
    gaussian_power,
    lower_bound,
    one_run_bound,
)
from dpsep.privacy.gaussian import gaussian_epsilon, gaussian_mu


def test_a_success_rate_is_above_its_bound_as_often_as_promised() -> None:
    for rate in (0.1, 0.5, 0.9):
        wrong = sum(
            binom.pmf(k, 60, rate) for k in range(61) if at_least(k, 60, 0.01) > rate
        )  # exact, over all outcomes
        assert 0 < wrong <= 0.01
    assert at_least(60, 60, 0.01) == pytest.approx(0.01 ** (1 / 60))


@pytest.mark.parametrize("epsilon", [0.5, 2.0])
def test_bounds_of_a_gaussian_mechanism_are_below_its_epsilon_and_near_it(epsilon: float) -> None:
    delta, mu = 1e-2, gaussian_mu(epsilon, 1e-2)
    generator = np.random.default_rng(0)
    found = []
    for _ in range(300):
        inside, outside = generator.standard_normal((2, 4000)) + np.array([[mu / 2], [-mu / 2]])
        found.append(lower_bound(counts_at(inside, outside, 0.0), delta, 0.95))
    assert np.mean([bound.gaussian > epsilon for bound in found]) <= 0.05
    assert np.mean([bound.mu > mu for bound in found]) <= 0.05
    assert np.median([bound.gaussian for bound in found]) > 0.6 * epsilon
    assert all(bound.epsilon <= bound.gaussian + 1e-9 for bound in found)


def test_randomised_response_is_bounded_by_its_epsilon() -> None:
    # Keeps a bit with probability e/(1 + e): epsilon 1, and no attack is better than taking the answer.
    rate = math.e / (1 + math.e)
    n = 200_000
    bound = lower_bound(Counts(round(rate * n), n, round((1 - rate) * n), n), 1e-9)
    assert 0.96 < bound.epsilon < 1.0


def test_a_worthless_attack_proves_nothing_and_a_perfect_one_much() -> None:
    assert lower_bound(Counts(50, 100, 50, 100), 1e-5)[:3] == (0.0, 0.0, 0.0)
    perfect = lower_bound(Counts(1000, 1000, 0, 1000), 1e-5)
    assert perfect.epsilon > 4
    assert perfect.gaussian == pytest.approx(gaussian_epsilon(perfect.mu, 1e-5))


def test_one_run_is_bounded_for_pure_privacy_by_the_binomial_tail() -> None:
    for correct, guesses in ((70, 100), (90, 100)):
        epsilon = one_run_bound(correct, guesses, guesses, 0.0, 0.95)
        rate = 1 / (1 + math.exp(-epsilon))
        assert binom.sf(correct - 1, guesses, rate) == pytest.approx(0.05, rel=1e-6)
    assert one_run_bound(90, 100, 1000, 1e-3) < one_run_bound(90, 100, 1000, 1e-6)
    with pytest.raises(ValueError, match="must not exceed"):
        one_run_bound(5, 4, 10, 0.0)


def test_one_run_bound_holds_for_randomised_response() -> None:
    # m bits, each kept with probability e/(1 + e): epsilon 1 exactly.
    rate, generator = math.e / (1 + math.e), np.random.default_rng(1)
    found = [one_run_bound(int(generator.binomial(400, rate)), 400, 400, 0.0, 0.95) for _ in range(200)]
    assert np.mean(np.array(found) > 1.0) <= 0.05 + 3 * math.sqrt(0.05 * 0.95 / 200)
    assert np.median(found) > 0.7


def test_power_is_that_of_simulated_audits() -> None:
    claimed, trials, delta = 0.5, 600, 1e-2
    generator = np.random.default_rng(2)
    for mu in (0.6, 0.8, 1.0):
        caught = 0
        for _ in range(300):
            hits = int(generator.binomial(trials, norm.cdf(mu / 2)))
            alarms = int(generator.binomial(trials, norm.cdf(-mu / 2)))
            caught += lower_bound(Counts(hits, trials, alarms, trials), delta).mu > claimed
        assert gaussian_power(mu, claimed, trials) == pytest.approx(caught / 300, abs=0.15)
