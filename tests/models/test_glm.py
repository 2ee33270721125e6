from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dpsep.families import Gamma, Gaussian
from dpsep.models import (
    GLM,
    LearnedNoise,
    LogisticLikelihood,
    PoissonLikelihood,
    ProbitLikelihood,
    WeightsAndNoise,
)
from dpsep.models.concentrated_noise import ConcentratedNoise
from dpsep.models.glm import Columns, GLMContribution, LinearContribution, Public


def public(seed: int = 0, d: int = 4) -> tuple[Public, np.ndarray, Gaussian]:
    """Public values with a random cavity and centre; also its Cholesky factor and the cavity itself."""
    rng = np.random.default_rng(seed)
    matrix = rng.normal(size=(d, d))
    precision = matrix @ matrix.T + 5.0 * np.eye(d)
    factor = np.linalg.cholesky(precision)
    mean, centre = 0.3 * rng.normal(size=d), 0.3 * rng.normal(size=d)
    columns = d - 1
    features = Columns(*(jnp.full(columns, part) for part in (-2.0, 3.0, 0.5, 2.5)))
    outcome = Columns(*(jnp.asarray(part) for part in (-jnp.inf, jnp.inf, 0.0, 1.0)))
    noise = Gamma(jnp.asarray(19.0), jnp.asarray(12.0))
    values: Any = (features, outcome, np.linalg.inv(factor), mean, centre, noise)
    return Public(*values), factor, Gaussian(jnp.asarray(precision @ mean), jnp.asarray(precision))


def features_of(x: np.ndarray) -> np.ndarray:
    """Clamp to [-2, 3], shift by 0.5, scale by 2.5, intercept first."""
    return np.column_stack([np.ones(len(x)), (np.clip(x, -2, 3) - 0.5) / 2.5])


OUTCOMES = [
    (ProbitLikelihood(), [1.0, -1.0, 1.0, -1.0]),
    (LogisticLikelihood(), [1.0, -1.0, 1.0, -1.0]),
    (PoissonLikelihood(), [0.0, 3.0, 1.0, 12.0]),
]


@pytest.mark.parametrize(("likelihood", "y"), OUTCOMES)
def test_whitened_contributions_are_the_local_factors_counted_from_the_centre(likelihood, y):
    x = 2.0 * np.random.default_rng(1).normal(size=(4, 3))
    with jax.enable_x64(True):
        values, factor, cavity = public()
        mean, root = GLMContribution(likelihood)(values, (jnp.asarray(x), jnp.asarray(y)))
        for i, row in enumerate(features_of(x)):
            local = GLM(likelihood).local_factor(cavity, (row, y[i]))
            centred = local.eta - local.precision @ values.centre
            np.testing.assert_allclose(factor @ mean[i], centred, rtol=1e-10, atol=1e-12)
            outer = factor @ np.outer(root[i], root[i]) @ factor.T
            np.testing.assert_allclose(outer, local.precision, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("model", [LearnedNoise(), ConcentratedNoise()])
def test_the_noise_part_is_the_gamma_factor_less_one_half_in_units_of_the_noise(model):
    rng = np.random.default_rng(2)
    x, y = rng.normal(size=(4, 3)), rng.normal(size=4)
    with jax.enable_x64(True):
        values, factor, weights = public()
        mean, root, noise = LinearContribution(model)(values, (jnp.asarray(x), jnp.asarray(y)))
        cavity = WeightsAndNoise(weights, Gamma(jnp.asarray(19.0), jnp.asarray(12.0)))
        for i, row in enumerate(features_of(x)):
            local = model.local_factor(cavity, (jnp.asarray(row), jnp.asarray(y[i])))
            part = local.noise.shape_minus_one - 0.5, local.noise.rate * 20.0 / 12.0
            np.testing.assert_allclose(noise[i], part, rtol=1e-9, atol=1e-11)
            centred = local.weights.eta - local.weights.precision @ values.centre
            np.testing.assert_allclose(factor @ mean[i], centred, rtol=1e-9, atol=1e-11)
            outer = factor @ np.outer(root[i], root[i]) @ factor.T
            np.testing.assert_allclose(outer, local.weights.precision, rtol=1e-9, atol=1e-11)


def test_an_outlier_whose_exact_factor_is_negative_keeps_its_mean_part_and_drops_the_other():
    with jax.enable_x64(True):
        values, _, _ = public()
        chunk = jnp.zeros((1, 3)), jnp.array([300.0])
        mean, root, _ = LinearContribution(LearnedNoise())(values, chunk)
        assert not np.any(root)
        assert np.all(np.isfinite(mean))
        assert np.any(mean)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_a_bad_cell_spoils_its_own_record_and_no_other(bad):
    x = np.random.default_rng(3).normal(size=(3, 3))
    spoiled = x.copy()
    spoiled[1, 2] = bad
    y = jnp.ones(3)
    with jax.enable_x64(True):
        values, _, _ = public()
        for contribution in (GLMContribution(ProbitLikelihood()), LinearContribution(ConcentratedNoise())):
            clean, parts = (contribution(values, (jnp.asarray(cells), y)) for cells in (x, spoiled))
            # A record is unusable if any of its numbers is not finite.
            usable = np.all([np.isfinite(part).all(axis=1) for part in parts], axis=0)
            np.testing.assert_array_equal(usable, [True, False, True])
            for part, good in zip(parts, clean, strict=True):
                np.testing.assert_array_equal(np.asarray(part)[[0, 2]], np.asarray(good)[[0, 2]])


@pytest.mark.parametrize(
    ("likelihood", "y"),
    [
        (LogisticLikelihood(), 0.0),
        (ProbitLikelihood(), 2.0),
        (PoissonLikelihood(), -1.0),
    ],
)
def test_an_outcome_outside_the_support_marks_the_record(likelihood, y):
    with jax.enable_x64(True):
        values, _, _ = public()
        mean, _ = GLMContribution(likelihood)(values, (jnp.zeros((1, 3)), jnp.array([y])))
        assert np.isnan(mean).all()


def test_without_an_intercept_no_column_is_added():
    with jax.enable_x64(True):
        values, _, _ = public(d=4)
        wide = Columns(*(jnp.concatenate([part, part[:1]]) for part in values.features))
        mean, root = GLMContribution(ProbitLikelihood(), intercept=False)(
            values._replace(features=wide), (jnp.zeros((2, 4)), jnp.ones(2))
        )
        assert mean.shape == root.shape == (2, 4)


def test_cells_are_clamped_but_infinities_are_not():
    columns = Columns(*(jnp.asarray(part) for part in (-1.0, 1.0, 0.0, 0.5)))
    np.testing.assert_array_equal(columns.apply(jnp.array([-5.0, 0.25, 7.0])), [-2.0, 0.5, 2.0])
    assert np.isnan(columns.apply(jnp.array([np.inf, -np.inf, np.nan]))).all()
