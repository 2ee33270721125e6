"""How much groups differ, learned from Gaussian likelihoods whose answer is known."""

import numpy as np
import pytest
from scipy import stats

from dpsep.inference.variances import PRIOR_MEAN, PRIOR_SD, Known, Prior, effects, learn

GROUPS = 400


def made(sd: float, noise: float = 0.0, seed: int = 0):
    """Group means known with precision 25 each, and with the noise of a gate."""
    rng = np.random.default_rng(seed)
    truth = 1.0 + sd * rng.standard_normal(GROUPS)
    seen = truth + 0.2 * rng.standard_normal(GROUPS)
    precision = 25.0 * np.eye(GROUPS)
    mean_part = 25.0 * seen + noise * rng.standard_normal(GROUPS)
    sums = np.concatenate([np.ones((GROUPS, 1)), np.eye(GROUPS)], 1)
    prior = Prior(np.array([100.0]), GROUPS, sums)
    return Known(precision, mean_part, noise**2 * np.eye(GROUPS)), prior, truth


@pytest.mark.parametrize("sd", [0.1, 0.5, 2.0])
def test_the_spread_of_groups_is_found(sd):
    known, prior, _ = made(sd)
    spread = learn(known, prior, np.array([PRIOR_MEAN]))
    away = (spread.mean[0] - np.log(sd)) / np.sqrt(spread.covariance[0, 0])
    assert abs(away) < 2.5


def test_noise_of_privacy_is_not_taken_for_differences():
    known, prior, _ = made(0.3, noise=20.0)
    aware = learn(known, prior, np.array([PRIOR_MEAN])).mean[0]
    fooled = learn(known._replace(noise=0.0 * known.noise), prior, np.array([PRIOR_MEAN])).mean[0]
    assert abs(aware - np.log(0.3)) < 0.5
    assert fooled > np.log(0.3) + 0.7


def test_the_mode_is_that_of_the_exact_evidence():
    """With a likelihood of group means the evidence is a product of normals, once the mean is known."""
    known, prior, _ = made(0.5)
    known_mean = prior._replace(fixed=np.array([1e-12]))
    spread = learn(known, known_mean, np.array([0.0]))
    seen = known.mean_part / 25.0
    grid = np.linspace(-2, 1, 3001)
    values = [
        stats.norm.logpdf(seen, 0, np.sqrt(0.04 + np.exp(2 * log_sd))).sum()
        + stats.norm.logpdf(log_sd, PRIOR_MEAN, PRIOR_SD)
        for log_sd in grid
    ]
    assert spread.mean[0] == pytest.approx(grid[np.argmax(values)], abs=2e-3)


def test_fixed_and_random_effects_are_taken_apart():
    known, prior, truth = made(0.5)
    spread = learn(known, prior, np.array([PRIOR_MEAN]))
    mean, covariance, noise = effects(known, prior, spread)
    assert mean[0] == pytest.approx(truth.mean(), abs=0.05)
    assert np.sqrt(covariance[0, 0]) == pytest.approx(np.sqrt((0.25 + 0.04) / GROUPS), rel=0.15)
    assert np.corrcoef(mean[1:], truth - truth.mean())[0, 1] > 0.9
    assert not noise.any()


def test_known_noise_widens_the_effects():
    known, prior, _ = made(0.5, noise=20.0)
    spread = learn(known, prior, np.array([PRIOR_MEAN]))
    _, covariance, noise = effects(known, prior, spread)
    assert (np.diagonal(noise) > 0).all()
    assert np.diagonal(noise)[1:].mean() > np.diagonal(covariance)[1:].mean() * 0.5
