import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dpsep.families import Gaussian
from dpsep_lab.theorem import check_corrected, corrected_bound, expected_kl, good_part, random_cases
from dpsep_lab.theorem.corrected_bound import _growth, _outside
from dpsep_lab.theorem.expected_kl import _Case, divergence, read_setting
from dpsep_lab.theorem.noise_matrix import noise_draws

SCALES = 10.0 ** np.arange(-5, 0)


def case(rho_share: float = 0.5) -> tuple[Gaussian, float]:
    cases = random_cases(4, 1, seed=11)
    least = float(np.linalg.eigvalsh(cases.precision[0])[0])
    return Gaussian(cases.eta[0] / np.sqrt(least), cases.precision[0] / least), rho_share  # type: ignore[arg-type]


@pytest.mark.parametrize(("dimension", "count"), [(1, 1_000), (2, 900), (4, 300), (9, 20)])
def test_the_corrected_bound_holds_in_random_cases(dimension, count):
    seen: list[tuple[int, int]] = []
    found = check_corrected(
        random_cases(dimension, count, seed=1), draws=300, on_step=lambda *step: seen.append(step)
    )
    assert found.size == count
    assert seen[-1] == (count, count)
    assert len(found.violations) == 0
    assert sum(bucket.size for bucket in found.buckets) == count
    assert np.median(found.tightness) < 1.1


def test_a_bound_smaller_by_a_twentieth_is_caught():
    found = check_corrected(random_cases(2, 200, seed=1), draws=600, factor=0.95)
    assert len(found.violations) > 40
    assert sum(bucket.violations for bucket in found.buckets) == len(found.violations)


def test_the_bound_approaches_the_truth_and_falls_as_the_square_of_the_noise():
    q, rho = case()
    totals = np.array([corrected_bound(q, s, s, rho=rho).total for s in SCALES])
    np.testing.assert_allclose(np.diff(np.log10(totals))[:2], 2.0, atol=1e-3)
    truth = expected_kl(q, SCALES[0], SCALES[0], rho=rho, draws=40_000)
    assert totals[0] == pytest.approx(float(truth.mean), abs=5 * float(truth.standard_error))


def test_with_rho_at_the_smallest_eigenvalue_it_still_falls_as_the_square():
    q, _ = case()
    bounds = [corrected_bound(q, s, s, rho=1.0) for s in SCALES[:3]]
    assert {bound.inside for bound in bounds} == {"raised"}
    np.testing.assert_allclose(np.diff(np.log10([bound.total for bound in bounds])), 2.0, atol=0.05)


def test_with_rho_above_it_does_not_vanish_because_the_truth_does_not():
    q, _ = case()
    bound, truth = corrected_bound(q, 1e-6, 1e-6, rho=3.0), expected_kl(q, 1e-6, 1e-6, rho=3.0, draws=10)
    assert 0.1 < float(truth.mean) <= bound.total


def test_the_parts_add_up_and_the_threshold_leaves_room_for_rho():
    q, rho = case(0.3)
    bound = corrected_bound(q, 0.01, 0.02, rho=rho)
    assert bound.total == bound.good + bound.bad
    assert bound.inside == "clear"
    assert (1.0 - bound.threshold) >= rho
    part = good_part(q, 0.01, 0.02, threshold=bound.threshold)
    assert part.value == pytest.approx(bound.good)
    assert part.probability == pytest.approx(bound.probability)


def test_without_noise_on_the_precision_the_bound_is_exact():
    q, rho = case()
    exact = 0.5 * 0.3**2 * np.sum(1.0 / np.linalg.eigvalsh(q.precision))
    assert corrected_bound(q, 0.3, 0.0, rho=rho).total == pytest.approx(exact, rel=1e-9)
    assert corrected_bound(q, 0.0, 0.0, rho=rho).total == 0.0


def test_the_good_part_bounds_the_literal_rule_inside_the_threshold():
    q, _ = case()
    setting = read_setting(q, 0.1, 0.1)
    noise = noise_draws(4, 0.1, 20_000).reshape(-1, 4, 4)
    white = setting.vectors / np.sqrt(setting.values)
    x = np.linalg.eigvalsh(white.T @ noise @ white)
    inside = np.abs(x).max(1) <= 0.6
    new = np.linalg.inv(setting.precision + noise)
    shift = noise @ setting.mean
    kl = np.sum(x - np.log1p(np.maximum(x, -0.999)), 1) + 0.01 * np.trace(new, axis1=1, axis2=2)
    kl = 0.5 * (kl + np.einsum("ni,nij,nj->n", shift, new, shift)) * inside
    part = good_part(q, 0.1, 0.1, threshold=0.6)
    assert kl.mean() - 4 * kl.std() / np.sqrt(len(kl)) <= part.value
    assert 0.5 * part.value < kl.mean()
    assert inside.mean() >= part.probability > 0.3


def test_outside_the_growth_bounds_every_pair_of_draws():
    """phi holds for E and -E together, its odd terms having cancelled; at a quarter of the norm it fails."""
    q, rho = case()
    setting = read_setting(q, 0.2, 0.5)
    with jax.enable_x64(True):
        noise = jnp.asarray(noise_draws(4, 0.5, 2_000))
        arrays = (setting.eta, setting.precision, setting.values, setting.vectors, 0.2, 0.5, rho)
        fixed = _Case._make(jnp.asarray(part) for part in arrays)
        kl = jax.jit(jax.vmap(lambda e: divergence(e, fixed, rule="floor")))(noise.reshape(-1, 4, 4))
        pairs = 2.0 * np.asarray(kl).reshape(-1, 2).mean(1)
        norms = np.abs(np.linalg.eigvalsh(noise[:, 0])).max(1)
    order = np.argsort(norms)
    assert (pairs[order] <= _growth(setting, rho, norms[order]) * (1 + 1e-9)).all()
    assert (np.diff(_growth(setting, rho, norms[order])) >= 0.0).all()
    assert (pairs[order] > _growth(setting, rho, 0.25 * norms[order])).any()


def test_the_outside_shrinks_with_its_probability_and_is_zero_without_one():
    q, rho = case()
    found = _outside(read_setting(q, 0.1, 0.1), rho, np.array([1.0, 0.5, 1e-3, 1e-9, 0.0]))
    assert (np.diff(found) < 0.0).all()
    assert found[-1] == 0.0


@pytest.mark.parametrize("rho", [0.0, -1.0, np.inf, np.nan])
def test_an_impossible_rho_is_refused_by_name(rho):
    with pytest.raises(ValueError, match="rho is"):
        corrected_bound(Gaussian.isotropic(2), 0.1, 0.1, rho=rho)


@pytest.mark.parametrize("threshold", [-0.1, 1.0])
def test_an_impossible_threshold_is_refused_by_name(threshold):
    with pytest.raises(ValueError, match="threshold is"):
        good_part(Gaussian.isotropic(2), 0.1, 0.1, threshold=threshold)
