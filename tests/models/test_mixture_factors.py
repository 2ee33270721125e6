"""Contributions to the components of a mixture, against moments computed the long way."""

import math
from typing import Any

import jax
import numpy as np
import pytest
from scipy.special import logsumexp, softmax
from scipy.stats import multivariate_normal, norm

from dpsep.models.glm import Columns
from dpsep.models.mixture_factors import (
    ExpectedStatistics,
    LocalFactors,
    LogDensity,
    Public,
    VariationalFactors,
)

ALL = (LocalFactors, VariationalFactors, ExpectedStatistics)


class Setting:
    """A mixture with a cavity and a posterior of its own for each component, and a few records."""

    def __init__(
        self, components: int = 3, dimension: int = 2, records: int = 6, seed: int = 0, width: float = 0.3
    ) -> None:
        rng = np.random.default_rng(seed)
        roots = rng.normal(size=(components, dimension, dimension))
        self.weight = rng.dirichlet(np.full(components, 3.0))
        self.deviation = rng.uniform(0.3, 1.5, (components, dimension))
        self.centre = rng.normal(size=(components, dimension))
        self.mean = self.centre + 0.2 * rng.normal(size=(components, dimension))
        self.covariance = width * (roots @ roots.transpose(0, 2, 1) / dimension + 0.2 * np.eye(dimension))
        self.x = rng.normal(size=(records, dimension))

    def public(self, columns: Columns | None = None) -> Public:
        scales = self.deviation[:, :, None] * self.deviation[:, None, :]
        information, rotation = np.linalg.eigh(np.linalg.inv(self.covariance) * scales)
        dimension = self.mean.shape[1]
        edge = np.full(dimension, np.inf)
        plain: Any = (-edge, edge, np.zeros(dimension), np.ones(dimension))
        parts: Any = (self.mean, self.centre, self.deviation, np.log(self.weight), rotation, information)
        return Public(columns or Columns(*plain), *parts)

    def blocks(self, contribution: Any, columns: Columns | None = None) -> list[np.ndarray]:
        chunk: Any = (self.x,)
        with jax.enable_x64(True):
            return [np.asarray(part) for part in contribution(self.public(columns), chunk)]


def matrices(triangles: np.ndarray, dimension: int) -> np.ndarray:
    """Symmetric matrices (n, J, D, D) from rows of upper triangles with sqrt(2) off the diagonal."""
    rows, columns = np.triu_indices(dimension)
    parts = triangles.reshape(len(triangles), -1, len(rows)) / np.where(rows == columns, 1, math.sqrt(2))
    full = np.zeros((*parts.shape[:2], dimension, dimension))
    full[..., rows, columns] = parts
    full[..., columns, rows] = parts
    return full


def log_joint(setting: Setting) -> np.ndarray:
    """Log of weight times density, with the means' uncertainty, for each record and component."""
    columns = [
        math.log(weight) + multivariate_normal(centre, covariance + np.diag(deviation**2)).logpdf(setting.x)
        for weight, centre, covariance, deviation in zip(
            setting.weight, setting.centre, setting.covariance, setting.deviation, strict=True
        )
    ]
    return np.stack(columns, 1)


def brute_force(setting: Setting) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Shares, mean parts and precisions: tilted minus cavity, from the mean, in units of the deviations."""
    shares = np.asarray(softmax(log_joint(setting), axis=1))
    means = np.zeros((*shares.shape, setting.x.shape[1]))
    precisions = np.zeros((*means.shape, setting.x.shape[1]))
    for j, (centre, covariance, deviation, mean) in enumerate(
        zip(setting.centre, setting.covariance, setting.deviation, setting.mean, strict=True)
    ):
        gain = covariance @ np.linalg.inv(covariance + np.diag(deviation**2))
        cavity = np.linalg.inv(covariance)
        for n, (x, r) in enumerate(zip(setting.x, shares[:, j], strict=True)):
            move = gain @ (x - centre)
            tilted_mean = centre + r * move
            spread = covariance - r * gain @ covariance + r * (1 - r) * np.outer(move, move)
            tilted = np.linalg.inv(spread)
            precision = tilted - cavity
            eta = tilted @ tilted_mean - cavity @ centre
            means[n, j] = deviation * (eta - precision @ mean)
            precisions[n, j] = deviation[:, None] * precision * deviation
    return shares, means, precisions


@pytest.mark.parametrize("dimension", [1, 2, 4])
@pytest.mark.parametrize("width", [0.02, 0.3, 3.0])
def test_local_factors_are_tilted_minus_cavity_in_natural_parameters(dimension: int, width: float) -> None:
    setting = Setting(3, dimension, seed=dimension, width=width)
    count, mean, missing = setting.blocks(LocalFactors())
    shares, means, precisions = brute_force(setting)
    np.testing.assert_allclose(count, shares, rtol=0, atol=1e-12)
    np.testing.assert_allclose(mean.reshape(means.shape), means, rtol=1e-10, atol=1e-10)
    summed = shares[..., None, None] * np.eye(dimension) - matrices(missing, dimension)
    np.testing.assert_allclose(summed, precisions, rtol=1e-10, atol=1e-10)


def test_a_triangle_has_the_norm_of_its_matrix() -> None:
    setting = Setting(2, 3)
    missing = setting.blocks(LocalFactors())[2]
    full = matrices(missing, 3)
    np.testing.assert_allclose(np.sum(missing**2, 1), np.sum(full**2, (1, 2, 3)), rtol=1e-12)


def test_one_component_has_the_conjugate_update() -> None:
    setting = Setting(1, 3)
    count, mean, missing = setting.blocks(LocalFactors())
    np.testing.assert_array_equal(count, 1.0)
    np.testing.assert_allclose(mean, (setting.x - setting.mean) / setting.deviation, atol=1e-13)
    np.testing.assert_array_equal(missing, 0.0)


@pytest.mark.parametrize("width", [1e-6, 1e-3, 1.0, 1e3])
def test_missing_information_is_positive_semidefinite_and_below_the_whole(width: float) -> None:
    setting = Setting(3, 3, records=200, seed=4, width=width)
    setting.x = 3 * setting.x
    count, _, missing = setting.blocks(LocalFactors())
    full = matrices(missing, 3)
    values = np.linalg.eigvalsh(full)
    assert values.min() >= -1e-13 * max(1.0, np.abs(full).max())
    # Without the part of what the distance tells (rank one), no more is missing than there is.
    assert (values[..., :-1] <= count[..., None] * (1 + 1e-12)).all()


@pytest.mark.parametrize("variances", ["spherical", "diag"])
@pytest.mark.parametrize("kind", ALL)
def test_scatter_is_the_share_times_the_excess_over_one_deviation(kind: Any, variances: Any) -> None:
    setting = Setting(3, 2)
    if kind is not LocalFactors:
        setting.centre = setting.mean
    *rest, scatter = setting.blocks(kind(variances))
    plain = setting.blocks(kind())
    for one, other in zip(rest, plain, strict=True):
        np.testing.assert_array_equal(one, other)
    z = (setting.x[:, None] - setting.mean) / setting.deviation
    excess = rest[0][..., None] * (z**2 - 1)
    wanted = excess.sum(-1) / math.sqrt(2) if variances == "spherical" else excess
    np.testing.assert_allclose(scatter, wanted.reshape(len(z), -1), rtol=1e-12, atol=1e-13)


def test_variational_shares_follow_from_expected_log_densities() -> None:
    setting = Setting(3, 2)
    setting.centre = setting.mean
    count, mean = setting.blocks(VariationalFactors())
    # E log N(x; mu, v) over mu ~ N(m, V), by Gauss-Hermite quadrature along each column.
    nodes, weights = np.polynomial.hermite_e.hermegauss(20)
    weights = weights / weights.sum()
    logits = np.tile(np.log(setting.weight), (len(setting.x), 1))
    for j in range(3):
        for d in range(2):
            mu = setting.mean[j, d] + nodes * math.sqrt(setting.covariance[j, d, d])
            logits[:, j] += norm.logpdf(setting.x[:, [d]], mu, setting.deviation[j, d]) @ weights
    shares = softmax(logits, axis=1)
    np.testing.assert_allclose(count, shares, rtol=0, atol=1e-12)
    z = (setting.x[:, None] - setting.mean) / setting.deviation
    np.testing.assert_allclose(mean.reshape(z.shape), shares[..., None] * z, rtol=1e-11, atol=1e-12)


def test_expected_statistics_weigh_by_the_density_at_the_means() -> None:
    setting = Setting(3, 2)
    setting.centre = setting.mean
    count, mean = setting.blocks(ExpectedStatistics())
    joint = norm.pdf(setting.x[:, None], setting.mean, setting.deviation).prod(-1) * setting.weight
    shares = joint / joint.sum(1, keepdims=True)
    np.testing.assert_allclose(count, shares, rtol=0, atol=1e-12)
    z = (setting.x[:, None] - setting.mean) / setting.deviation
    np.testing.assert_allclose(mean.reshape(z.shape), shares[..., None] * z, rtol=1e-11, atol=1e-12)


def test_under_a_narrow_cavity_factors_are_those_of_em_less_louis_s_missing_information() -> None:
    setting = Setting(2, 2, width=1e-9)
    setting.centre = setting.mean
    local, certain = setting.blocks(LocalFactors("diag")), setting.blocks(ExpectedStatistics("diag"))
    for one, other in zip((local[0], local[1], local[3]), certain, strict=True):
        np.testing.assert_allclose(one, other, rtol=0, atol=1e-6)
    z = (setting.x[:, None] - setting.mean) / setting.deviation
    doubt = certain[0] * (1 - certain[0])
    wanted = doubt[..., None, None] * z[..., :, None] * z[..., None, :]
    np.testing.assert_allclose(matrices(local[2], 2), wanted, rtol=0, atol=1e-6)


@pytest.mark.parametrize("dimension", [1, 3])
def test_the_score_is_the_log_density_up_to_a_constant(dimension: int) -> None:
    setting = Setting(3, dimension)
    (score,) = setting.blocks(LogDensity())
    expected = np.asarray(logsumexp(log_joint(setting), axis=1)) + 0.5 * dimension * math.log(2 * math.pi)
    np.testing.assert_allclose(score[:, 0], expected, rtol=1e-12)


@pytest.mark.parametrize("kind", ALL)
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_a_bad_cell_spoils_its_own_record_whole_and_no_other(kind: Any, bad: float) -> None:
    setting = Setting(3, 2)
    good = setting.blocks(kind("diag"))
    setting.x[2, 1] = bad
    spoiled = setting.blocks(kind("diag"))
    others = np.arange(len(setting.x)) != 2
    for one, other in zip(good, spoiled, strict=True):
        assert np.isnan(other[2]).all()
        np.testing.assert_array_equal(one[others], other[others])


@pytest.mark.parametrize("kind", ALL)
def test_cells_are_clamped_shifted_and_scaled_first(kind: Any) -> None:
    setting = Setting(3, 2)
    plain = setting.blocks(kind("spherical"))
    columns: Any = (np.array([-9.0, -7.0]), np.array([8.0, 9.0]), np.array([1.0, 2.0]), np.array([3.0, 0.5]))
    setting.x = setting.x * columns[3] + columns[2]
    assert ((columns[0] <= setting.x) & (setting.x <= columns[1])).all()
    for one, other in zip(plain, setting.blocks(kind("spherical"), Columns(*columns)), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-10, atol=1e-12)
    setting.x[0] = [1e300, -1e300]
    far = setting.blocks(kind("spherical"), Columns(*columns))
    setting.x[0] = [8.0, -7.0]
    for one, other in zip(far, setting.blocks(kind("spherical"), Columns(*columns)), strict=True):
        assert np.isfinite(one).all()
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("kind", ALL)
def test_a_record_far_out_has_finite_parts(kind: Any) -> None:
    setting = Setting(3, 2)
    setting.x = np.array([[1e140, -1e120], [0.0, 0.0]])
    for part in setting.blocks(kind("diag")):
        assert np.isfinite(part).all()
