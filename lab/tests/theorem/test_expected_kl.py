from functools import partial
from itertools import pairwise

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from mpmath import log1p, mp
from scipy.integrate import quad

from dpsep.families import Gaussian
from dpsep_lab.theorem import expected_kl, expected_kl_batch, noise_draws
from dpsep_lab.theorem.expected_kl import RULES, _Case, _less_log, divergence


def gaussian(dimension: int, seed: int = 0, least: float = 1.0) -> Gaussian:
    rng = np.random.default_rng(seed)
    root = rng.normal(size=(dimension, dimension))
    precision = root @ root.T + least * np.eye(dimension)
    with jax.enable_x64(True):
        return Gaussian(jnp.asarray(rng.normal(size=dimension)), jnp.asarray(precision))


def normal(x: float, mean: float, sigma: float) -> float:
    return float(np.exp(-0.5 * ((x - mean) / sigma) ** 2) / (sigma * np.sqrt(2.0 * np.pi)))


def scalar_kl(new: float, eta: float, precision: float, sigma_1: float) -> float:
    x, mean = new / precision - 1.0, eta / precision
    return 0.5 * (x - np.log1p(x) + (sigma_1**2 + ((new - precision) * mean) ** 2) / new)


@pytest.mark.parametrize("sigma_2", [0.05, 0.4, 3.0])
def test_one_dimension_agrees_with_quadrature(sigma_2):
    eta, precision, sigma_1, rho = 0.7, 1.3, 0.2, 0.3

    def integrand(w: float) -> float:
        return scalar_kl(max(w, rho), eta, precision, sigma_1) * normal(w, precision, sigma_2)

    ends = (precision - 12 * sigma_2, precision + 12 * sigma_2)
    exact = quad(integrand, *ends, points=[rho], limit=200, epsabs=1e-13)[0]
    q = Gaussian(jnp.array([eta]), jnp.array([[precision]]))
    found = expected_kl(q, sigma_1, sigma_2, rho=rho, draws=40_000)
    assert found.mean == pytest.approx(exact, abs=4 * float(found.standard_error))
    shifted = expected_kl(q, sigma_1, sigma_2, rho=rho, rule="shift", draws=10)
    # In one dimension the shift undoes the noise: the private precision is rho, whatever E is.
    assert shifted.mean == pytest.approx(scalar_kl(rho, eta, precision, sigma_1), rel=1e-6)


@pytest.mark.parametrize("rule", RULES)
def test_the_exact_mean_over_e_agrees_with_sampling_it_from_the_definition(rule):
    q, sigma_1, sigma_2, rho = gaussian(3), 0.3, 0.2, 0.4
    noise = noise_draws(3, sigma_2, 10_000, seed=1).reshape(-1, 3, 3)
    values, vectors = np.linalg.eigh(np.asarray(q.precision) + noise)
    new = {
        "shift": values - values[:, :1] + rho,
        "floor": np.maximum(values, rho),
        "literal": np.where(values <= 0.0, rho, values),
    }[rule]
    errors = sigma_1 * np.random.default_rng(2).normal(size=(len(noise), 3))
    with jax.enable_x64(True):
        precision = np.einsum("nik,nk,njk->nij", vectors, new, vectors)
        private = Gaussian(jnp.asarray(q.eta + errors), jnp.asarray(precision))
        sampled = np.asarray(q.kl(private))
    found = expected_kl(q, sigma_1, sigma_2, rho=rho, rule=rule, draws=10_000)
    error = np.hypot(float(found.standard_error), sampled.std() / np.sqrt(len(sampled) / 2))
    assert found.mean == pytest.approx(sampled.mean(), abs=5 * error)


def test_the_floor_rule_is_the_projection_of_the_gaussian_family():
    q, rho = gaussian(3, least=0.1), 0.5
    with jax.enable_x64(True):
        noise = jnp.asarray(noise_draws(3, 0.5, 40)[:, 0])
        noisy = Gaussian(jnp.broadcast_to(q.eta, (40, 3)), q.precision + noise)
        values, vectors = jnp.linalg.eigh(q.precision)
        case = _Case(*q, values, vectors, *(jnp.asarray(number) for number in (0.0, 0.5, rho)))
        found = jax.jit(jax.vmap(partial(divergence, case=case, rule="floor")))(noise)
        np.testing.assert_allclose(found, q.kl(noisy.project(rho)), rtol=1e-9)
        assert np.any(np.linalg.eigvalsh(noisy.precision) < rho)


def test_a_divergence_of_1e_minus_12_keeps_its_digits():
    q = gaussian(4)
    large, small = (float(expected_kl(q, s, s, rho=0.1, draws=2_000).mean) for s in (1e-3, 1e-7))
    assert small < 1e-12
    assert small == pytest.approx(1e-8 * large, rel=1e-3)


def test_x_minus_log_is_right_on_both_sides_of_its_series():
    with jax.enable_x64(True):
        x = jnp.array([-0.4, -0.1001, -0.0999, -1e-9, 0.0, 1e-9, 0.0999, 0.1001, 5.0])
        with mp.workdps(50):
            exact = [float(mp.mpf(float(v)) - log1p(mp.mpf(float(v)))) for v in x]
        np.testing.assert_allclose(_less_log(x), exact, rtol=1e-13)


def test_literal_projection_has_no_finite_mean_and_its_sample_mean_grows():
    """In one dimension the mean over eigenvalues above c grows as log(1/c), so no sample mean settles."""
    sigma_1 = 1.0

    def part(c: float) -> float:
        pieces = pairwise([c, *sorted(10.0**-k for k in range(1, 9) if 10.0**-k > c), 8.0])
        return sum(
            quad(lambda w: scalar_kl(w, 0.0, 1.0, sigma_1) * normal(w, 1.0, 0.5), *p)[0] for p in pieces
        )

    grown = np.diff([part(10.0**-k) for k in (4, 6, 8)])
    np.testing.assert_allclose(grown, 0.5 * normal(0.0, 1.0, 0.5) * np.log(100.0), rtol=1e-2)
    q = Gaussian.isotropic(1)
    assert not expected_kl(q, sigma_1, 0.5, rho=0.1, rule="literal", draws=10).finite
    assert expected_kl(q, sigma_1, 0.5, rho=0.1, rule="floor", draws=10).finite
    assert expected_kl(q, 0.0, 0.5, rho=0.1, rule="literal", draws=10).finite
    assert expected_kl(q, sigma_1, 0.0, rho=0.1, rule="literal", draws=10).finite


def test_a_batch_gives_what_its_cases_give_alone_and_reports_progress():
    cases = [gaussian(3, seed) for seed in range(3)]
    eta, precision = (np.stack([np.asarray(q[part]) for q in cases]) for part in (0, 1))
    seen: list[tuple[int, int]] = []
    found = expected_kl_batch(
        eta, precision, [0.1] * 3, [0.2] * 3, [0.5] * 3, draws=4_000, on_step=lambda *step: seen.append(step)
    )
    assert seen[-1] == (3, 3)
    for q, mean, error in zip(cases, found.mean, found.standard_error, strict=True):
        alone = expected_kl(q, 0.1, 0.2, rho=0.5, draws=4_000, seed=9)
        assert mean == pytest.approx(float(alone.mean), abs=5 * np.hypot(error, float(alone.standard_error)))


def test_results_are_double_whatever_the_flag_and_repeat_with_the_seed():
    q = gaussian(2)
    one, two, other = (expected_kl(q, 0.1, 0.1, rho=0.5, draws=100, seed=seed).mean for seed in (0, 0, 1))
    assert one.dtype == np.float64
    assert one == two != other


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"rule": "round"}, "rule 'round' is unknown"),
        ({"rho": 0.0}, "rho must be above zero"),
        ({"draws": 2}, "draws is 2"),
        ({"sigma_1": -1.0}, "sigma_1 is -1.0"),
        ({"q": Gaussian(jnp.zeros(2), -jnp.eye(2))}, "eigenvalue -1"),
        ({"q": Gaussian(jnp.zeros(2), jnp.eye(3))}, "one Gaussian"),
        ({"q": Gaussian(jnp.full(2, jnp.nan), jnp.eye(2))}, "not finite"),
    ],
    ids=["rule", "rho", "draws", "sigma", "indefinite", "shape", "nan"],
)
def test_bad_input_is_refused_by_name(change, words):
    given = {"q": Gaussian.isotropic(2), "sigma_1": 0.1, "sigma_2": 0.1, "rho": 0.5} | change
    with pytest.raises(ValueError, match=words):
        expected_kl(given.pop("q"), given.pop("sigma_1"), given.pop("sigma_2"), **given)
