import jax.numpy as jnp
import numpy as np
import pytest

from dpsep.families import Gaussian
from dpsep_lab.theorem import best_M, expected_kl, limits, printed_bound, random_cases, search_printed
from dpsep_lab.theorem.printed_bound import READINGS, PrintedBound

Q = Gaussian(jnp.array([0.0, 1.0]), jnp.diag(jnp.array([100.0, 1.0])))


def summed(bound: PrintedBound) -> float:
    one, two, three, four, five, six = bound.terms
    return (one + two + three - four + five + six) / 2


def test_the_terms_are_those_of_the_page_and_add_up():
    """Written out again, one eigenvalue at a time, for a diagonal precision."""
    values, eta, sigma_1, sigma_2, rho = np.array([2.0, 3.0, 7.0]), np.array([1.0, -2.0, 0.5]), 0.1, 0.02, 1.5
    M, s = 0.3, np.sqrt(2 * 3 * sigma_2**2 * np.log(3))
    terms = np.zeros(6)
    for value, natural in zip(values, eta, strict=True):
        h = 1 + (-2 * M - 2.0 + rho) / value
        H = 1 + (2 * M - 2.0 + rho) / value
        K = (h + H - 1 + (2.0 + s - rho) / value) / (h * H)
        terms += [
            (-2.0 + s + rho) / value,
            sigma_1**2 / 2.0 * K,
            natural**2 / value * K,
            natural**2 / value,
            (natural / value) ** 2 * (-2.0 + s + rho),
            np.log(K),
        ]
    q = Gaussian(eta, np.diag(values))  # type: ignore[arg-type]
    for reading in ("eigenbasis", "ascending"):
        bound = printed_bound(q, sigma_1, sigma_2, rho=rho, M=M, reading=reading)
        np.testing.assert_allclose(bound.terms, terms, rtol=1e-12)
        assert bound.total == pytest.approx(summed(bound))
        assert bound.probability == pytest.approx(1 - 3 * np.exp(-(M**2) / (2 * 3 * sigma_2**2)))


def test_it_is_undefined_exactly_where_twice_m_reaches_rho():
    assert printed_bound(Q, 0.1, 0.1, rho=0.5, M=0.2499).defined
    bound = printed_bound(Q, 0.1, 0.1, rho=0.5, M=0.25)
    assert not bound.defined
    assert np.isnan(bound.total)
    assert bound.h.min() <= 0.0
    assert "2 M = 0.5 is not below rho = 0.5" in bound.reason


def test_the_best_m_has_the_probability_asked_for():
    for confidence in (0.0, 0.5, 0.99):
        M = best_M(4, 0.1, confidence)
        assert printed_bound(Gaussian.isotropic(4), 0.1, 0.1, rho=1.0, M=M).probability == pytest.approx(
            confidence
        )
    assert best_M(4, 0.1) == pytest.approx(0.1 * np.sqrt(8 * np.log(4)))


@pytest.mark.parametrize("reading", READINGS)
def test_limits_are_where_the_terms_go(reading):
    q = random_cases(3, 1, seed=4).posterior(0)
    least = float(np.linalg.eigvalsh(q.precision)[0])
    for share in (0.2, 1.0, 2.0):
        near = printed_bound(
            q, 1e-9, 1e-9 * least, rho=share * least, M=best_M(3, 1e-9 * least), reading=reading
        )
        np.testing.assert_allclose(
            limits(q, rho=share * least, reading=reading).terms, near.terms, rtol=1e-6, atol=1e-6
        )


def test_it_vanishes_without_noise_only_if_rho_is_the_smallest_eigenvalue():
    q = Gaussian(jnp.array([1.0, 2.0, 3.0]), jnp.diag(jnp.array([1.0, 2.0, 4.0])))
    assert limits(q, rho=1.0).total == pytest.approx(0.0, abs=1e-12)
    for rho in (0.01, 0.5, 0.9, 1.1, 3.0):
        total = limits(q, rho=rho).total
        assert total > 1e-3
        moved = Gaussian(q.eta, q.precision + (rho - 1.0) * jnp.eye(3))
        assert total == pytest.approx(float(q.kl(moved)), rel=1e-4)


def test_at_the_best_rho_it_falls_as_the_noise_and_the_truth_as_its_square():
    q = Gaussian.isotropic(4, 2.0)
    scales = (1e-4, 1e-5)
    printed = [printed_bound(q, s, s, rho=2.0, M=best_M(4, s)).total for s in scales]
    truth = [float(expected_kl(q, s, s, rho=2.0, rule="shift", draws=400).mean) for s in scales]
    assert np.log10(printed[0] / printed[1]) == pytest.approx(1.0, abs=0.01)
    assert np.log10(truth[0] / truth[1]) == pytest.approx(2.0, abs=0.01)


def test_in_one_dimension_it_is_an_equality():
    q = Gaussian(jnp.array([0.7]), jnp.array([[1.3]]))
    bound = printed_bound(q, 0.2, 0.4, rho=0.3, M=best_M(1, 0.4))
    truth = expected_kl(q, 0.2, 0.4, rho=0.3, rule="shift", draws=10)
    assert bound.total == pytest.approx(float(truth.mean), rel=1e-6)


def test_read_by_coordinates_it_lies_below_the_truth():
    """Two dimensions, nearly no noise: b is paired with the wrong eigenvalue."""
    truth = expected_kl(Q, 1e-3, 1e-3, rho=0.1, rule="shift", draws=400)
    M = best_M(2, 1e-3)
    totals = {
        reading: printed_bound(Q, 1e-3, 1e-3, rho=0.1, M=M, reading=reading).total for reading in READINGS
    }
    assert float(truth.mean) == pytest.approx(4.7513, abs=1e-3)
    assert totals["ascending"] == pytest.approx(0.2664, abs=1e-3)
    assert totals["eigenbasis"] > float(truth.mean)


def test_the_search_finds_failures_by_coordinates_and_none_in_the_eigenbasis():
    by_coordinates = search_printed(3, 120, reading="ascending", draws=100)
    assert by_coordinates.fails > 10
    found = search_printed(3, 120, draws=100, climbs=1)
    assert found.fails == 0
    assert found.undefined > 10
    assert found.mean - 4 * found.standard_error <= found.bound


def test_bad_input_is_refused_by_name():
    with pytest.raises(ValueError, match="reading 'best' is unknown"):
        limits(Q, rho=1.0, reading="best")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="M is -1"):
        printed_bound(Q, 0.1, 0.1, rho=1.0, M=-1.0)
    with pytest.raises(ValueError, match="confidence is 1"):
        best_M(2, 0.1, 1.0)
