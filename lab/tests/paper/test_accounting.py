import pytest

from dpsep.privacy.accounting import gaussian_epsilon
from dpsep_lab.paper.accounting import DELTA, rows


@pytest.fixture(scope="module")
def mixture():
    return {
        (row["epsilon"], row["source"], row["relation"], row["metric"]): row["mean"]
        for row in rows(("mixture",))
    }


@pytest.mark.deep
def test_the_accounted_noise_is_that_of_the_findings_in_units_of_the_sensitivity(mixture):
    for epsilon, sigma in ((1.0, 2.66), (5.0, 0.77), (50.0, 0.44)):
        assert mixture[epsilon, "as accounted", "replace-one", "sigma"] / 2 == pytest.approx(sigma, abs=0.006)


@pytest.mark.deep
def test_a_permutation_a_pass_needs_the_noise_of_one_full_batch_a_pass(mixture):
    for epsilon, sigma in ((1.0, 37.3), (5.0, 8.9), (50.0, 1.5)):
        assert mixture[epsilon, "as written", "replace-one", "sigma"] / 2 == pytest.approx(sigma, rel=0.02)
        assert mixture[epsilon, "ours", "zero-out", "sigma"] == pytest.approx(sigma, rel=0.02)


@pytest.mark.deep
def test_the_accounted_noise_in_the_written_order_really_costs_more_than_ten_times_epsilon(mixture):
    sigma = mixture[1.0, "as accounted", "replace-one", "sigma"]
    real = mixture[1.0, "as written", "replace-one", "epsilon"]
    assert real == pytest.approx(gaussian_epsilon(10 * 2 / sigma, DELTA), rel=1e-6)  # sqrt(100 passes)
    assert real > 10
