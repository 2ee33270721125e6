"""Whitened factors of independent weights: those of the model, record by record."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dpsep.families import DiagonalGaussian, Gamma
from dpsep.models.concentrated_noise import ConcentratedNoise
from dpsep.models.glm import Columns
from dpsep.models.network_diagonal import DiagonalFactors, DiagonalPublic
from dpsep.models.network_model import NetworkClassification, NetworkRegression

ROWS, INPUTS = 7, 2
RNG = np.random.default_rng(0)
X = RNG.normal(size=(ROWS, INPUTS))
SIGNS = np.where(np.arange(ROWS) % 2, 1.0, -1.0)
TURN = np.linalg.qr(RNG.normal(size=(INPUTS, INPUTS)))[0]
NOISE = (30.0, 10.0)
MODELS = [
    NetworkRegression((INPUTS, 3, 1), noise_model=ConcentratedNoise()),
    NetworkRegression((INPUTS, 1), noise_model=ConcentratedNoise()),
    NetworkRegression((INPUTS, 3, 2, 1), "sigmoid", ConcentratedNoise()),
    NetworkRegression((INPUTS, 3, 2, 1), "sine", ConcentratedNoise()),
    NetworkClassification((INPUTS, 3, 1)),
]


@pytest.fixture(autouse=True)
def _doubles():
    with jax.enable_x64(True):
        yield


def columns(size: int | None, centre: float, scale: float) -> Any:
    one: Any = np.float64(1.0) if size is None else np.ones(size)
    return Columns(-np.inf * one, np.inf * one, centre * one, scale * one)


def public_of(model: Any) -> tuple[DiagonalPublic, Any]:
    rng = np.random.default_rng(1)
    centre, precision = rng.normal(size=model.size), rng.uniform(2.0, 20.0, model.size)
    weights = DiagonalGaussian(jnp.asarray(0.9 * centre * precision), jnp.asarray(0.95 * precision))
    cavity = model.joined(weights, Gamma.from_shape_and_rate(*map(jnp.asarray, NOISE)))
    outcome = columns(None, 0.0, 1.0) if isinstance(model, NetworkClassification) else columns(None, 1.0, 3.0)
    unit = 1.0 / np.sqrt(precision)
    features, rest = columns(INPUTS, 0.5, 2.0), map(jnp.asarray, (centre, unit))
    return DiagonalPublic(features, outcome, jnp.asarray(TURN), cavity, *rest), cavity


@pytest.mark.parametrize("model", MODELS, ids=str)
def test_contributions_are_the_models_local_factors_in_whitened_coordinates(model: Any) -> None:
    public, cavity = public_of(model)
    regression = isinstance(model, NetworkRegression)
    y = 3.0 * SIGNS + 1.0 if regression else SIGNS
    found = jax.jit(DiagonalFactors(model))(public, (jnp.asarray(2.0 * X + 0.5), jnp.asarray(y)))
    local_factor = jax.jit(model.local_factor)
    assert len(found) == (3 if regression else 2)
    for row in range(ROWS):
        weights, noise = model.parts(local_factor(cavity, (X[row] @ TURN, SIGNS[row])))
        eta, precision = np.asarray(weights.eta), np.asarray(weights.precision)
        mean = (eta - precision * np.asarray(public.centre)) * np.asarray(public.unit)
        np.testing.assert_allclose(found[0][row], mean, rtol=1e-9, atol=1e-11)
        np.testing.assert_allclose(
            found[1][row], precision * np.asarray(public.unit) ** 2, rtol=1e-9, atol=1e-12
        )
        if regression:
            expected = [float(noise.shape_minus_one) - 0.5, float(noise.rate) * NOISE[0] / NOISE[1]]
            np.testing.assert_allclose(found[2][row], expected, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("model", [MODELS[0], MODELS[3]], ids=str)
def test_a_bad_record_yields_nan_and_leaves_the_others_as_they_were(model: Any) -> None:
    public, _ = public_of(model)
    contribution = jax.jit(DiagonalFactors(model))
    clean = contribution(public, (jnp.asarray(X), jnp.asarray(SIGNS)))
    bad = [(np.nan, 1.0), (-np.inf, 1.0), (0.0, np.nan)]
    bad += [(0.0, 0.5), (0.0, 2.0)] if isinstance(model, NetworkClassification) else [(0.0, np.inf)]
    for cell, outcome in bad:
        x, y = X.copy(), SIGNS.copy()
        x[3, 0], y[3] = cell, outcome
        for part, expected in zip(contribution(public, (jnp.asarray(x), jnp.asarray(y))), clean, strict=True):
            assert not np.isfinite(np.asarray(part)[3]).any()
            others = np.arange(ROWS) != 3
            np.testing.assert_array_equal(np.asarray(part)[others], np.asarray(expected)[others])
