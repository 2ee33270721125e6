"""Local factors of several numbers, against closed forms and against integrals over a grid."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dpsep.models import sites
from dpsep.models.sites import Site, choose, log_normaliser, nodes, positive

ALL = ("quadrature", "qmc", "laplace")


@pytest.fixture(autouse=True)
def _doubles():
    with jax.enable_x64(True):
        yield


def local_site(log_likelihood: Any, mean: Any, root: Any, offset: Any, factors: Any) -> Site:
    """The function under test, compiled: its pieces one by one would take longer."""
    found = jax.jit(lambda m, r, o: sites.local_site(log_likelihood, m, r, o, factors))
    return found(jnp.asarray(mean), jnp.asarray(root), jnp.asarray(offset))


def student(z: jax.Array) -> jax.Array:
    """A target of 0.7 with a location and the logarithm of a scale: not log-concave."""
    return jax.scipy.stats.t.logpdf(0.7, 4.0, z[0], jnp.exp(z[1]))


def softmax(z: jax.Array) -> jax.Array:
    return jax.nn.log_softmax(jnp.append(0.0, z))[1]


def brute(log_likelihood: Callable[..., Any], mean: Any, root: Any, half: float = 9.0) -> Site:
    """Tilted moments by the trapezoid rule on a fine grid over all of the cavity, and the factor of them."""
    size = len(mean)
    line = np.linspace(-half, half, {1: 20001, 2: 501, 3: 121}[size])
    t = np.stack(np.meshgrid(*[line] * size, indexing="ij"), -1).reshape(-1, size)
    logs = np.asarray(jax.jit(jax.vmap(log_likelihood))(mean + t @ root.T)) - 0.5 * np.sum(t**2, 1)
    mass = np.exp(logs - logs.max())
    step = (line[1] - line[0]) ** size
    log_z = np.log(mass.sum() * step) + logs.max() - 0.5 * size * np.log(2 * np.pi)
    weight = mass / mass.sum()
    centre = weight @ t
    covariance = (t - centre).T @ ((t - centre) * weight[:, None])
    precision = np.linalg.inv(covariance) - np.eye(size)
    return Site(*(jnp.asarray(part) for part in (precision, np.linalg.inv(covariance) @ centre, log_z)))


def close(found: Site, truth: Site, tolerance: float) -> None:
    scale = 1.0 + float(jnp.max(jnp.abs(truth.precision)))
    for part in ("precision", "slope", "log_z"):
        difference = float(jnp.max(jnp.abs(getattr(found, part) - getattr(truth, part))))
        assert difference <= tolerance * scale, part


@pytest.mark.parametrize(
    ("size", "factors"), [(1, "quadrature"), (3, "quadrature"), (2, "laplace"), (5, "qmc")]
)
def test_a_gaussian_likelihood_is_its_own_factor(size: int, factors: Any) -> None:
    rng = np.random.default_rng(size)
    matrix, root = rng.normal(size=(2, size, size))
    shift, mean, offset = rng.normal(size=(3, size))
    exact = matrix @ matrix.T
    site = local_site(lambda z: -0.5 * (z - shift) @ exact @ (z - shift), mean, root, offset, factors)
    precision = root.T @ exact @ root
    np.testing.assert_allclose(site.precision, precision, rtol=1e-6, atol=1e-9)
    slope = root.T @ exact @ (shift - mean) - precision @ offset
    np.testing.assert_allclose(site.slope, slope, rtol=1e-6, atol=1e-7)
    inner = np.eye(size) + precision
    pull = root.T @ exact @ (shift - mean)
    log_z = -0.5 * (shift - mean) @ exact @ (shift - mean) + 0.5 * pull @ np.linalg.solve(inner, pull)
    assert float(site.log_z) == pytest.approx(log_z - 0.5 * np.linalg.slogdet(inner)[1], rel=1e-8)


@pytest.mark.parametrize(("width", "tolerance"), [(0.02, 1e-7), (0.3, 1e-5), (1.0, 2e-2)])
def test_quadrature_agrees_with_an_integral_over_a_grid_in_two_dimensions(
    width: float, tolerance: float
) -> None:
    mean, root = jnp.array([0.2, -0.3]), width * jnp.array([[1.0, 0.0], [0.4, 0.8]])
    found = local_site(student, mean, root, jnp.zeros(2), "quadrature")
    close(found, brute(student, mean, root), tolerance)


@pytest.mark.parametrize(("width", "tolerance"), [(0.05, 1e-6), (2.0, 2e-2)])
def test_quadrature_agrees_with_an_integral_over_a_grid_in_three_dimensions(
    width: float, tolerance: float
) -> None:
    mean = jnp.array([0.2, -0.3, 0.5])
    root = width * jnp.array([[1.0, 0.0, 0.0], [0.4, 0.8, 0.0], [-0.2, 0.1, 0.7]])
    found = local_site(softmax, mean, root, jnp.zeros(3), "quadrature")
    close(found, brute(softmax, mean, root, 7.0), tolerance)


@pytest.mark.parametrize("width", [0.01, 8.0])
def test_one_number_is_exact_for_narrow_and_for_wide_cavities(width: float) -> None:
    def logistic(z: jax.Array) -> jax.Array:
        return jax.nn.log_sigmoid(z[0])

    mean, root = jnp.array([-1.0]), jnp.array([[width]])
    found = local_site(logistic, mean, root, jnp.zeros(1), "quadrature")
    close(found, brute(logistic, mean, root), 1e-7)


@pytest.mark.parametrize("factors", ["qmc", "laplace"])
def test_rules_without_a_grid_agree_where_the_cavity_is_narrow(factors: Any) -> None:
    mean, root = jnp.array([0.2, -0.3]), 0.05 * jnp.array([[1.0, 0.0], [0.4, 0.8]])
    found = local_site(student, mean, root, jnp.zeros(2), factors)
    close(found, brute(student, mean, root), 1e-3)


def test_quasi_random_points_in_six_dimensions_agree_with_draws() -> None:
    """A softmax of six predictors; the moments of the tilted density from a million draws of the cavity."""
    mean, root = jnp.linspace(-0.5, 0.5, 6), 0.5 * jnp.eye(6)
    site = local_site(softmax, mean, root, jnp.zeros(6), "qmc")
    t = np.random.default_rng(0).normal(size=(500_000, 6))
    t = np.concatenate([t, -t])
    weight = np.exp(np.asarray(jax.jit(jax.vmap(softmax))(mean + t @ root.T)))
    assert float(site.log_z) == pytest.approx(np.log(weight.mean()), abs=2e-3)
    weight /= weight.sum()
    centre = weight @ t
    covariance = (t - centre).T @ ((t - centre) * weight[:, None])
    left = np.eye(6) + np.asarray(site.precision)
    np.testing.assert_allclose(np.linalg.solve(left, site.slope), centre, atol=5e-3)
    np.testing.assert_allclose(np.linalg.inv(left), covariance, atol=5e-3)


def test_a_closed_form_with_quasi_random_points_in_six_dimensions() -> None:
    """log p = a . z - exp-free: a linear log-likelihood tilts the mean and leaves the width."""
    slope = jnp.linspace(-1.0, 1.0, 6)
    site = local_site(lambda z: slope @ z, jnp.zeros(6), jnp.eye(6), jnp.zeros(6), "qmc")
    np.testing.assert_allclose(site.precision, np.zeros((6, 6)), atol=1e-10)
    np.testing.assert_allclose(site.slope, slope, atol=1e-10)
    assert float(site.log_z) == pytest.approx(0.5 * float(slope @ slope), rel=1e-2)


def test_an_outlier_of_a_heavy_tail_has_a_negative_precision() -> None:
    def outlier(z: jax.Array) -> jax.Array:
        return jax.scipy.stats.t.logpdf(10.0, 4.0, z[0], 1.0)

    zero, one = np.zeros(1), np.eye(1)
    site = local_site(outlier, zero, one, zero, "quadrature")
    assert float(site.precision[0, 0]) < -0.01
    close(site, brute(outlier, zero, one), 1e-6)
    kept = positive(site)
    assert float(kept.precision[0, 0]) == 0.0
    assert float(kept.slope[0]) == float(site.slope[0]), "its pull stays"


def test_the_positive_part_keeps_what_is_positive() -> None:
    vectors = np.linalg.qr(np.random.default_rng(0).normal(size=(3, 3)))[0]
    whole = jnp.asarray((vectors * [2.0, -1.0, 0.5]) @ vectors.T)
    part = positive(Site(whole, jnp.ones(3), jnp.zeros(()))).precision
    np.testing.assert_allclose(part, (vectors * [2.0, 0.0, 0.5]) @ vectors.T, atol=1e-12)


@pytest.mark.parametrize("factors", ALL)
def test_a_root_without_full_rank_gives_nothing_in_the_direction_it_lacks(factors: Any) -> None:
    root = jnp.array([[1.0, 0.0], [0.5, 0.0]])
    site = local_site(student, jnp.zeros(2), root, jnp.zeros(2), factors)
    few = 0.03 if factors == "qmc" else 1e-12  # its points have no product structure
    np.testing.assert_allclose(site.precision[1], 0.0, atol=few)
    assert float(site.slope[1]) == pytest.approx(0.0, abs=few)
    line = local_site(lambda t: student(root[:, 0] * t[0]), jnp.zeros(1), jnp.eye(1), jnp.zeros(1), factors)
    assert float(site.precision[0, 0]) == pytest.approx(float(line.precision[0, 0]), abs=0.1)


def test_mean_parts_are_counted_from_the_offset() -> None:
    mean, root, offset = jnp.array([0.2, -0.3]), 0.3 * jnp.eye(2), jnp.array([0.5, -1.0])
    plain = local_site(student, mean, root, jnp.zeros(2), "quadrature")
    moved = local_site(student, mean, root, offset, "quadrature")
    np.testing.assert_allclose(moved.slope, plain.slope - plain.precision @ offset, rtol=1e-10)


def test_a_log_normaliser_is_the_averaged_likelihood() -> None:
    mean, root = jnp.array([0.4]), jnp.array([[0.7]])
    found = log_normaliser(lambda z: -0.5 * (z[0] - 1.0) ** 2, mean, root, "quadrature")
    variance = 1.0 + 0.49
    assert float(found) == pytest.approx(-0.5 * 0.36 / variance - 0.5 * np.log(variance), rel=1e-10)


@pytest.mark.parametrize(
    ("size", "factors"), [(2, "quadrature"), (3, "quadrature"), (4, "qmc"), (7, "qmc"), (40, "qmc")]
)
def test_nodes_have_the_moments_of_a_standard_normal(size: int, factors: Any) -> None:
    points, logs = nodes(size, factors)
    weights = np.exp(logs)
    assert weights.sum() == pytest.approx(1.0)
    np.testing.assert_allclose(weights @ points, 0.0, atol=1e-12)
    np.testing.assert_allclose((points * weights[:, None]).T @ points, np.eye(size), atol=1e-10)


def test_the_rule_is_chosen_by_how_many_numbers_there_are() -> None:
    assert [choose("auto", k) for k in (1, 3, 4)] == ["quadrature", "quadrature", "qmc"]
    assert choose("laplace", 1) == "laplace"
    with pytest.raises(ValueError, match="at most 3 numbers a record; this model has 4"):
        choose("quadrature", 4)
    with pytest.raises(ValueError, match="'auto', 'quadrature', 'qmc', 'laplace', not 'exact'"):
        choose("exact", 1)
