import math

import dp_accounting as dpa
import numpy as np
import pytest
from dp_accounting.rdp import RdpAccountant
from scipy.optimize import brentq
from scipy.special import ndtr

from dpsep_lab.paper.noise import accounted, as_accounted, as_written, noise_in_theta, written

RECORDS, PASSES, DELTA = 1000, 100, 1e-5


def clip_to(norm, leaf):
    return leaf * min(1.0, norm / np.linalg.norm(leaf))


def largest_move(relation, clip, gamma):
    """How far one record can move theta in one step: both leaves at their clip norms, turned over."""
    generator = np.random.default_rng(0)
    factor = [clip_to(clip, 1e6 * generator.standard_normal(size)) for size in (16, 40)]
    other = [-leaf if relation == "replace-one" else 0 * leaf for leaf in factor]
    change = [gamma / RECORDS * (one - two) for one, two in zip(factor, other, strict=True)]
    return float(np.linalg.norm(np.concatenate(change)))


def gaussian_mu(epsilon):
    def excess(mu):
        return ndtr(mu / 2 - epsilon / mu) - math.exp(epsilon) * ndtr(-mu / 2 - epsilon / mu) - DELTA

    return brentq(excess, 1e-2, 30.0, xtol=1e-12)


@pytest.mark.parametrize("epsilon", [1.0, 5.0, 50.0])
@pytest.mark.parametrize("relation", ["zero-out", "replace-one"])
@pytest.mark.parametrize(("clip", "gamma"), [(1.0, 1.0), (8.0, 20.0)])
def test_as_written_the_passes_together_are_one_gaussian_release_of_the_target(
    epsilon, relation, clip, gamma
):
    noise = as_written(epsilon, relation, clip, gamma)
    mu = math.sqrt(PASSES) * largest_move(relation, clip, gamma) / noise
    assert mu == pytest.approx(gaussian_mu(epsilon), rel=1e-6)


@pytest.mark.parametrize("epsilon", [1.0, 50.0])
def test_as_accounted_the_steps_together_spend_the_target_by_the_reference_accountant(epsilon):
    multiplier = as_accounted(epsilon, clip=3.0, gamma=5.0) / largest_move("replace-one", 3.0, 5.0)
    accountant = RdpAccountant(
        orders=[*np.linspace(1.05, 4, 60), *np.linspace(4, 40, 73)],
        neighboring_relation=dpa.NeighboringRelation.REPLACE_ONE,
    )
    step = dpa.SampledWithoutReplacementDpEvent(RECORDS, 1, dpa.GaussianDpEvent(multiplier))
    accountant.compose(dpa.SelfComposedDpEvent(step, RECORDS * PASSES))
    assert accountant.get_epsilon(DELTA) == pytest.approx(epsilon, rel=0.003)


def test_the_noise_for_fresh_sampling_is_less_than_a_tenth_of_what_permutations_need():
    assert as_accounted(1.0) < as_written(1.0, "replace-one") / 10


def test_a_calibration_is_made_once():
    assert written(1.0, "zero-out") is written(1.0, "zero-out")
    assert accounted(1.0) is accounted(1.0)


@pytest.mark.parametrize(("clip", "gamma"), [(0.0, 1.0), (1.0, 0.0), (math.inf, 1.0), (1.0, math.nan)])
def test_a_clip_or_damping_that_is_not_positive_and_finite_is_refused(clip, gamma):
    with pytest.raises(ValueError, match="clip and gamma must be positive and finite"):
        noise_in_theta(written(1.0, "zero-out"), clip, gamma)


@pytest.mark.parametrize("relation", ["zero-out", "replace-one"])
def test_more_leaves_records_and_passes_are_paid_for(relation):
    records, passes, leaves, clip = 7373, 40, 4, 3.0
    moved = (1.0 if relation == "zero-out" else 2.0) * math.sqrt(leaves) * clip / records
    noise = as_written(1.0, relation, clip, records=records, passes=passes, leaves=leaves)
    assert math.sqrt(passes) * moved / noise == pytest.approx(gaussian_mu(1.0), rel=1e-6)


@pytest.mark.deep
def test_fresh_sampling_of_other_numbers_of_records_is_calibrated_for_them():
    run = accounted(1.0, 200, 5)
    assert (run.records, run.steps) == (200, 1000)
    noise = as_accounted(1.0, 2.0, records=200, passes=5, leaves=4)
    assert noise == pytest.approx(run.sigma * 2.0 * 2.0 / 200)


def test_a_family_without_leaves_is_refused():
    with pytest.raises(ValueError, match="leaves must be at least 1"):
        noise_in_theta(written(1.0, "zero-out"), 1.0, 1.0, 0)
