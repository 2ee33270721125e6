import math
import warnings

import pytest
from scipy.special import log_ndtr

from dpsep_lab.paper.authors_noise import MEAN_SHARE, PASSES, RECORDS, SIGMAS, noise, real_epsilon


@pytest.mark.deep
@pytest.mark.parametrize("epsilon", SIGMAS)
def test_the_sigmas_on_record_are_what_autodp_calibrates_for_each_share(epsilon):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        # In this order: the second of these modules cannot be imported before the first.
        from autodp import rdp_acct  # noqa: F401  # pyright: ignore[reportMissingImports]
        from autodp.privacy_calibrator import gaussian_mech  # pyright: ignore[reportMissingImports]

        for share, sigma in zip((MEAN_SHARE, 1 - MEAN_SHARE), SIGMAS[epsilon], strict=True):
            found = gaussian_mech(share * epsilon, share * 1e-5, prob=1 / RECORDS, k=RECORDS * PASSES)
            assert sigma == pytest.approx(found["sigma"], rel=1e-3)


@pytest.mark.parametrize("epsilon", SIGMAS)
@pytest.mark.parametrize("passes", [1, 100])
def test_the_real_epsilon_solves_the_gaussian_mechanisms_equation(epsilon, passes):
    # One release a pass and part, sigma in units of the sensitivity.
    mean, precision = SIGMAS[epsilon]
    mu = math.sqrt(passes * (mean**-2 + precision**-2))
    real = real_epsilon(epsilon, passes=passes)
    delta = math.exp(log_ndtr(mu / 2 - real / mu)) - math.exp(real + log_ndtr(-mu / 2 - real / mu))
    assert delta == pytest.approx(1e-5, rel=1e-6)


def test_the_real_epsilon_is_about_ten_times_the_printed_one_or_more():
    assert real_epsilon(1.0) == pytest.approx(12.7, abs=0.1)
    assert all(real_epsilon(epsilon) > 9 * epsilon for epsilon in SIGMAS)


def test_the_noise_in_theta_is_sigma_times_the_sensitivity_of_a_part():
    mean, precision = noise(1.0, clip=3.0, gamma=2.0)
    sensitivity = 2 * 3.0 * 2.0 / 1000
    assert mean == pytest.approx(4.13329 * sensitivity)
    assert precision == pytest.approx(8130.86 * sensitivity)


def test_an_epsilon_that_the_paper_does_not_have_is_refused():
    with pytest.raises(ValueError, match="there is for 1, 5, 50"):
        real_epsilon(2.0)
