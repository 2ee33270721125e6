"""Calibration reproduces known noise and never overspends; fixed-schedule accounting stays inside a run."""

import math
import warnings

import numpy as np
import pytest
from scipy.stats import norm

from dpsep.privacy import accounting
from dpsep.privacy.accounting import (
    MIN_SIGMA,
    AccountingRefused,
    Mechanism,
    Relation,
    Schedule,
    calibrate,
    calibrate_schedule,
    compose,
    gaussian_delta,
    gaussian_epsilon,
)
from dpsep.privacy.sampling import FixedSizeSampling, FullBatch, PoissonSampling, Sampling, ShuffledEpochs

KIN8NM = 7372

# Noise over each scheme's own sensitivity at delta = 1e-5, known beforehand to the digits shown.
KNOWN = [
    (PoissonSampling(1 / 1000), "zero-out", 100_000, 1000, 1, 1.37),
    (PoissonSampling(1 / 1000), "zero-out", 100_000, 1000, 5, 0.64),
    (PoissonSampling(1 / 1000), "zero-out", 100_000, 1000, 50, 0.38),
    (PoissonSampling(1 / KIN8NM), "zero-out", 80 * KIN8NM, KIN8NM, 1, 0.71),
    (PoissonSampling(0.05), "zero-out", 100, 1000, 1, 2.14),
    (PoissonSampling(0.05), "zero-out", 1000, 1000, 1, 5.99),
    (PoissonSampling(0.05), "zero-out", 3000, 1000, 1, 10.27),
    (PoissonSampling(0.25), "zero-out", 100, 1000, 1, 9.48),
    (PoissonSampling(0.25), "zero-out", 300, 1000, 1, 16.24),
    (PoissonSampling(0.25), "zero-out", 1000, 1000, 1, 29.54),
    (FixedSizeSampling(1), "replace-one", 100_000, 1000, 1, 2.66),
    (FixedSizeSampling(1), "replace-one", 100_000, 1000, 5, 0.77),
    (FixedSizeSampling(1), "replace-one", 100_000, 1000, 50, 0.44),
    (FixedSizeSampling(1), "replace-one", 80 * KIN8NM, KIN8NM, 1, 0.99),
    (ShuffledEpochs(1), "replace-one", 100_000, 1000, 1, 37.3),
    (ShuffledEpochs(1), "replace-one", 100_000, 1000, 5, 8.9),
    (ShuffledEpochs(1), "replace-one", 100_000, 1000, 50, 1.5),
    (ShuffledEpochs(1), "replace-one", 40 * KIN8NM, KIN8NM, 1, 23.6),
    (ShuffledEpochs(1), "replace-one", 80 * KIN8NM, KIN8NM, 1, 33.4),
    (FullBatch(), "zero-out", 1, 1000, 1, 3.73),
    (FullBatch(), "replace-one", 100, 1000, 1, 37.3),
]


@pytest.mark.parametrize(("sampling", "relation", "steps", "records", "epsilon", "known"), KNOWN)
def test_calibration_reproduces_known_noise_within_a_tenth_of_a_percent(
    sampling: Sampling, relation: Relation, steps, records, epsilon, known
):
    sigma = calibrate(epsilon, 1e-5, sampling, relation, steps, records)
    run = Mechanism(sampling, relation, steps, sigma, records)
    assert 0.999 * epsilon <= run.epsilon(1e-5) <= epsilon
    one_digit = 0.1 if known in (37.3, 8.9, 1.5, 23.6, 33.4) else 0.01
    assert abs(sigma / run.sensitivity - known) < one_digit


@pytest.mark.parametrize(
    ("rate", "steps", "epsilon", "sigma"),
    [
        (1 / 1000, 100_000, 1, 3.25),
        (1 / 1000, 100_000, 5, 0.82),
        (1 / 1000, 100_000, 50, 0.44),
        (1 / KIN8NM, 80 * KIN8NM, 1, 1.22),
    ],
)
def test_the_accountant_of_the_paper_asks_for_the_noise_known_for_it_and_ours_for_less(
    rate, steps, epsilon, sigma
):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from autodp import rdp_acct, rdp_bank  # pyright: ignore[reportMissingImports]

        def spent(noise: float) -> float:
            accountant = rdp_acct.anaRDPacct()
            accountant.compose_subsampled_mechanism(
                lambda order: rdp_bank.RDP_gaussian({"sigma": noise}, order), rate, coeff=steps
            )
            return accountant.get_eps(1e-5)

        assert spent(sigma + 0.01) <= epsilon < spent(sigma - 0.01)
    records = round(1 / rate)
    # autodp's general bound is valid for this scheme and looser: ours, at its noise, spends no more.
    ours = Mechanism(FixedSizeSampling(1), "replace-one", steps, 2 * sigma, records)
    assert ours.epsilon(1e-5) <= spent(sigma) * (1 + 1e-6)


@pytest.mark.parametrize("epsilon", [1e-2, 0.3, 1.0, 8.0])
@pytest.mark.parametrize("delta", [1e-7, 1e-4])
@pytest.mark.parametrize(
    ("sampling", "relation"),
    [
        (PoissonSampling(0.02), "zero-out"),
        (PoissonSampling(0.02), "replace-one"),
        (FullBatch(), "zero-out"),
        (FullBatch(), "replace-one"),
        (ShuffledEpochs(50), "zero-out"),
        (ShuffledEpochs(50), "replace-one"),
    ],
)
def test_calibration_never_exceeds_its_target_and_comes_within_a_tenth_of_a_percent(
    sampling: Sampling, relation: Relation, epsilon, delta
):
    sigma = calibrate(epsilon, delta, sampling, relation, 100, 1000)
    run = Mechanism(sampling, relation, 100, sigma, 1000)
    assert epsilon * 0.999 <= run.epsilon(delta) <= epsilon
    assert run.delta(epsilon) <= delta * (1 + 1e-6) or not run.is_gaussian


def test_a_schedule_is_calibrated_with_its_ratios_kept():
    parts = (
        Mechanism(FullBatch(), "zero-out", 1, 4.0, 1000),
        Mechanism(PoissonSampling(0.05), "zero-out", 200, 1.0, 1000),
    )
    found = calibrate_schedule(1.0, 1e-5, parts)
    assert found.parts[0].sigma / found.parts[1].sigma == pytest.approx(4.0, rel=1e-12)
    assert 0.999 <= found.epsilon(1e-5) <= 1.0
    assert compose(found.parts, 1e-5) == found.epsilon(1e-5)
    # Each part alone spends less, and the whole less than the sum of the parts.
    alone = [part.epsilon(5e-6) for part in found.parts]
    assert max(alone) < 1.1
    assert found.epsilon(1e-5) < sum(alone)


def test_a_schedule_of_full_batches_is_calibrated_in_closed_form():
    parts = (
        Mechanism(FullBatch(), "replace-one", 1, 2.0, 10),
        Mechanism(FullBatch(), "replace-one", 9, 1.0, 10),
    )
    found = calibrate_schedule(2.0, 1e-6, parts)
    mu = 2 * math.sqrt(1 / found.parts[0].sigma ** 2 + 9 / found.parts[1].sigma ** 2)
    assert gaussian_epsilon(mu, 1e-6) == pytest.approx(2.0, rel=1e-8)


def test_where_sampling_alone_meets_the_target_the_least_noise_is_returned():
    assert calibrate(1.0, 1e-5, PoissonSampling(1e-8), "zero-out", 10, 10**8) == MIN_SIGMA


def test_what_no_noise_can_reach_is_refused():
    with pytest.raises(AccountingRefused):
        calibrate(1.0, 1e-13, PoissonSampling(0.01), "zero-out", 1000, 1000)
    for epsilon, delta in ((0.0, 1e-5), (1.0, 0.0), (math.inf, 1e-5), (math.nan, 1e-5)):
        with pytest.raises(ValueError, match="target"):
            calibrate(epsilon, delta, FullBatch(), "zero-out", 1, 10)


def _sampled_delta(epsilon: np.ndarray, rate: float, sigma: float) -> np.ndarray:
    """Hockey stick of one Poisson-sampled Gaussian step, a present record against a zeroed one."""
    ratio = np.maximum((np.exp(epsilon) - (1 - rate)) / rate, 1e-300)
    cut = np.where(np.exp(epsilon) > 1 - rate, sigma**2 * np.log(ratio) + 0.5, -np.inf)
    zeroed = norm.sf(cut / sigma)
    return (1 - rate) * zeroed + rate * norm.sf((cut - 1) / sigma) - np.exp(epsilon) * zeroed


def _gaussian_delta(epsilon: np.ndarray, mu: float) -> np.ndarray:
    return norm.cdf(-epsilon / mu + mu / 2) - np.exp(epsilon) * norm.cdf(-epsilon / mu - mu / 2)


def test_fixed_schedule_accounting_is_not_valid_when_the_second_mechanism_is_chosen_by_the_first_result():
    """Loss distributions stay inside one run: each branch costs 1e-5 at epsilon 1, choosing costs 1.8e-5."""
    first, second, rate, sigma = 0.22, 0.153, 0.01, 0.698
    x = np.linspace(-12, 13, 100_001)  # the first release, record present: N(first, 1)
    left = 1 - (first * x - first**2 / 2)  # epsilon that its loss leaves over
    density = norm.pdf(x - first)
    gaussian, sampled = _gaussian_delta(left, second), _sampled_delta(left, rate, sigma)
    branches = [np.trapezoid(density * branch, x) for branch in (gaussian, sampled)]
    adaptive = np.trapezoid(density * np.maximum(gaussian, sampled), x)
    np.testing.assert_allclose(branches, 1e-5, rtol=0.01)
    assert adaptive == pytest.approx(1.83e-5, rel=0.01)

    start = Mechanism(FullBatch(), "zero-out", 1, 1 / first, 1000)
    fixed = (
        Schedule((start, Mechanism(FullBatch(), "zero-out", 1, 1 / second, 1000))),
        Schedule((start, Mechanism(PoissonSampling(rate), "zero-out", 1, sigma, 1000))),
    )
    for schedule, exact in zip(fixed, branches, strict=True):
        assert schedule.delta(1.0) == pytest.approx(exact, rel=1e-3)
        assert schedule.delta(1.0) < 0.6 * adaptive
    assert gaussian_delta(1.0, math.hypot(first, second)) == pytest.approx(branches[0], rel=1e-6)
    # What a ledger does instead is valid: the points of the two runs add to more than the adaptive delta.
    points = start.delta(0.5) + max(schedule.parts[1].delta(0.5) for schedule in fixed)
    assert points > adaptive


def test_the_accounting_room_exports_what_a_ledger_needs():
    assert all(hasattr(accounting, name) for name in accounting.__all__)
