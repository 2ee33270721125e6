"""Local factors along rows of features, as contributions to a release and as whole factors."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dpsep.families import Gaussian
from dpsep.models.glm import Columns, GLMContribution, Public
from dpsep.models.logistic import LogisticLikelihood
from dpsep.models.multi_predictor import (
    LinkedModel,
    LinkedPublic,
    View,
    from_triangle,
    log_joint,
    log_predictive,
    predictor_moments,
    triangle,
    unit_contribution,
)

DIMENSION = 3


@pytest.fixture(autouse=True)
def _doubles():
    with jax.enable_x64(True):
        yield


@dataclass(frozen=True)
class Units:
    """Units (x, y) that see the weights through rows of this function of x."""

    rows: Callable[[jax.Array], Any]
    likelihood: Callable[[jax.Array, jax.Array], jax.Array]
    factors: Any = "quadrature"
    rule: Any = "robust"
    dimension: int = DIMENSION

    def view(self, features: Any, outcome: Any, unit: Any) -> View:
        del features, outcome
        x, y = unit
        usable = jnp.all(jnp.isfinite(x)) & jnp.isfinite(y)
        x = jnp.where(usable, x, 0.0)
        return View(self.rows(x), lambda z: self.likelihood(z, y), usable)


def contribution_of(model: Units) -> Any:
    """The contribution under test, compiled."""
    return jax.jit(lambda public, chunk: jax.vmap(lambda unit: unit_contribution(model, public, unit))(chunk))


def logistic(z: jax.Array, y: jax.Array) -> jax.Array:
    return jax.nn.log_sigmoid(y * z[0])


def gaussian(z: jax.Array, y: jax.Array) -> jax.Array:
    return -0.5 * jnp.sum((z - y) ** 2)


def one_row(x: jax.Array) -> jax.Array:
    return x[None, :]


def twice(x: jax.Array) -> jax.Array:
    return jnp.stack([x, x])


def nothing(x: jax.Array) -> None:
    del x


def flat(columns: int) -> Columns:
    low = jnp.full(columns, -jnp.inf)
    return Columns(low, -low, jnp.zeros(columns), jnp.ones(columns))


def public(positive: bool = False) -> LinkedPublic:
    rng = np.random.default_rng(1)
    half = np.linalg.inv(np.linalg.cholesky(np.diag([3.0, 5.0, 2.0]) + 0.5))
    base = Public(
        flat(DIMENSION),
        flat(1),
        jnp.asarray(half),
        jnp.asarray(rng.normal(size=3)),
        jnp.asarray(rng.normal(size=3)),
        cast(Any, None),
    )
    return LinkedPublic(base, jnp.asarray(positive))


def units(count: int = 6) -> tuple[jax.Array, jax.Array]:
    rng = np.random.default_rng(0)
    return jnp.asarray(rng.normal(size=(count, 3))), jnp.asarray(np.where(rng.random(count) < 0.5, -1.0, 1.0))


def test_one_row_of_features_gives_the_factor_of_a_generalised_linear_model() -> None:
    mean, precision = contribution_of(Units(one_row, logistic))(public(), units())
    known, root = GLMContribution(LogisticLikelihood(), intercept=False)(public().base, units())
    np.testing.assert_allclose(mean, known, atol=1e-9)
    outer = jax.vmap(lambda u: triangle(jnp.outer(u, u)))(root)
    np.testing.assert_allclose(precision, outer, atol=1e-9)


@pytest.mark.parametrize(
    "model", [Units(one_row, logistic), Units(twice, gaussian), Units(nothing, gaussian)]
)
def test_a_unit_is_not_moved_by_those_beside_it(model: Units) -> None:
    order = np.array([3, 0, 5, 1, 4, 2])
    whole = contribution_of(model)(public(), units())
    moved = contribution_of(model)(public(), tuple(part[order] for part in units()))
    for one, other in zip(whole, moved, strict=True):
        np.testing.assert_allclose(np.asarray(one)[order], other, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_unit_that_cannot_be_used_is_nan_in_every_block_and_alone(bad: float) -> None:
    x, y = units()
    contribution = contribution_of(Units(one_row, logistic))
    good = contribution(public(), (x, y))
    for chunk in ((x.at[2, 1].set(bad), y), (x, y.at[2].set(bad))):
        for one, other in zip(good, contribution(public(), chunk), strict=True):
            assert np.isnan(np.asarray(other)[2]).all()
            np.testing.assert_array_equal(np.delete(one, 2, 0), np.delete(other, 2, 0))


def test_a_unit_that_the_likelihood_cannot_have_is_not_finite() -> None:
    def support(z: jax.Array, y: jax.Array) -> jax.Array:
        return jnp.where(y > 0, gaussian(z, y), jnp.nan)

    _, precision = contribution_of(Units(one_row, support))(public(), units())
    bad = np.asarray(units()[1]) < 0
    assert bad.any()
    assert (~np.isfinite(np.asarray(precision)).all(1) == bad).all()


def test_rows_that_repeat_or_vanish_do_no_harm() -> None:
    """Two copies of one Gaussian observation are one of twice the precision; without x it says nothing."""
    repeated = contribution_of(Units(twice, gaussian))(public(), units())

    def double(z: jax.Array, y: jax.Array) -> jax.Array:
        return 2.0 * gaussian(z, y)

    single = contribution_of(Units(one_row, double))(public(), units())
    for one, other in zip(repeated, single, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-8)
    for part in contribution_of(Units(twice, gaussian))(public(), (jnp.zeros((1, 3)), jnp.ones(1))):
        np.testing.assert_allclose(part, 0.0, atol=1e-12)


def test_the_norm_of_a_triangle_is_that_of_its_matrix_and_it_can_be_undone() -> None:
    matrix = np.random.default_rng(0).normal(size=(5, 5))
    matrix = matrix + matrix.T
    coordinates = np.asarray(triangle(jnp.asarray(matrix)))
    assert np.linalg.norm(coordinates) == pytest.approx(np.linalg.norm(matrix), rel=1e-14)
    np.testing.assert_allclose(from_triangle(coordinates, 5), matrix, rtol=1e-14)


def test_negative_parts_are_dropped_on_the_way_only() -> None:
    def heavy(z: jax.Array, y: jax.Array) -> jax.Array:
        return jax.scipy.stats.t.logpdf(12.0 * y, 4.0, z[0], 1.0)

    contribution = contribution_of(Units(one_row, heavy))
    (pull, dropped), (same, kept) = contribution(public(True), units()), contribution(public(False), units())
    lowest = [np.linalg.eigvalsh(from_triangle(np.asarray(row), 3)).min() for row in kept]
    assert min(lowest) < -1e-4
    assert min(np.linalg.eigvalsh(from_triangle(np.asarray(row), 3)).min() for row in dropped) > -1e-12
    np.testing.assert_array_equal(pull, same)


@pytest.mark.parametrize("rows", [one_row, nothing], ids=["rows", "all weights"])
def test_whole_factors_of_gaussian_units_are_exact(rows: Any) -> None:
    model = LinkedModel(Units(rows, gaussian), flat(3), flat(1))
    cavity = Gaussian.from_moments(jnp.array([0.3, -0.2, 0.1]), jnp.diag(jnp.array([0.5, 2.0, 1.0])))
    x, y = jnp.array([1.0, -2.0, 0.5]), jnp.asarray(1.5)
    found = model.local_factor(cavity, (x, y))
    matrix = np.eye(3) if rows is nothing else np.asarray(x)[None, :]
    np.testing.assert_allclose(found.precision, matrix.T @ matrix, atol=1e-8)
    np.testing.assert_allclose(found.eta, matrix.T @ np.full(len(matrix), 1.5), atol=1e-8)


def test_a_predictor_has_the_moments_of_its_rows() -> None:
    rng = np.random.default_rng(0)
    rows, root = rng.normal(size=(2, 3)), np.linalg.cholesky(np.diag([1.0, 2.0, 3.0]) + 0.3)
    mean, inner = predictor_moments(jnp.asarray(rows), jnp.array([1.0, 2.0, 3.0]), jnp.asarray(root))
    np.testing.assert_allclose(mean, rows @ [1.0, 2.0, 3.0])
    np.testing.assert_allclose(inner @ inner.T, rows @ root @ root.T @ rows.T, rtol=1e-12)


def test_densities_of_gaussian_units_have_a_closed_form_and_bad_units_none() -> None:
    model = Units(one_row, gaussian)
    mean, covariance = np.array([0.3, -0.2, 0.1]), np.diag([0.5, 2.0, 1.0])
    x, y = units()
    found = log_predictive(model, flat(3), flat(1), mean, covariance, (x, y.at[0].set(jnp.nan)))
    variance = 1.0 + np.einsum("ni,ij,nj->n", x, covariance, x)
    exact = -0.5 * (np.asarray(y) - x @ mean) ** 2 / variance - 0.5 * np.log(variance)
    assert np.isnan(found[0])
    np.testing.assert_allclose(found[1:], exact[1:], rtol=1e-9)


def test_the_joint_log_likelihood_is_a_sum_over_usable_units() -> None:
    model, w = Units(one_row, gaussian), jnp.array([1.0, 0.0, -1.0])
    x, y = units()
    found = log_joint(model, flat(3), flat(1), w, (x.at[1, 0].set(jnp.inf), y))
    each = -0.5 * (np.asarray(x @ w) - np.asarray(y)) ** 2
    assert float(found) == pytest.approx(np.delete(each, 1).sum(), rel=1e-12)
