"""Factors of networks with correlated weights: gradients, bases, and local factors against other sources."""

import math
from itertools import pairwise
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import norm

from dpsep.families import Gamma
from dpsep.models import LearnedNoise, ProbitLikelihood
from dpsep.models.concentrated_noise import ConcentratedNoise
from dpsep.models.glm import Columns
from dpsep.models.network_factors import (
    NetworkFactors,
    NetworkPublic,
    along,
    back,
    bases_of,
    flatten,
    into,
    made_inputs,
    probit_information,
    spread,
    through,
    turn,
    unflatten,
)

WIDTHS = [(3, 1), (3, 4, 1), (3, 4, 2, 1)]
ROWS = 12
SLOPE = math.sqrt(math.pi / 8)


@pytest.fixture(autouse=True)
def _doubles():
    with jax.enable_x64(True):
        yield


def problem(widths: tuple[int, ...], seed: int = 0) -> tuple[Any, Any]:
    rng = np.random.default_rng(seed)
    layers = pairwise(widths)
    return tuple(rng.normal(size=(out, inputs + 1)) for inputs, out in layers), rng.normal(size=(ROWS, 3))


def activated(before: np.ndarray, activation: str) -> np.ndarray:
    if activation == "sine":
        return np.sin(before)
    return np.maximum(before, 0.0) if activation == "relu" else norm.cdf(SLOPE * before)


def output_of(weights: Any, x: np.ndarray, activation: str) -> np.ndarray:
    """A plain forward pass: each layer divides by the square root of its inputs, the bias among them."""
    for place, layer in enumerate(weights):
        before = np.column_stack([x, np.ones(len(x))]) @ np.asarray(layer).T / math.sqrt(layer.shape[1])
        x = activated(before, activation) if place < len(weights) - 1 else before
    return x[:, 0]


def gradients(weights: Any, x: np.ndarray, activation: Any) -> list[np.ndarray]:
    """Gradient of the output by each layer, (rows, outputs, inputs + 1), by automatic differentiation."""

    def one(parts: Any, row: jax.Array) -> jax.Array:
        return through(parts, row[None], activation).output[0]

    found = jax.vmap(jax.grad(one), in_axes=(None, 0))(tuple(map(jnp.asarray, weights)), jnp.asarray(x))
    return [np.asarray(part) for part in found]


@pytest.mark.parametrize("activation", ["relu", "sigmoid", "sine"])
@pytest.mark.parametrize("widths", WIDTHS)
def test_the_output_is_that_of_a_plain_forward_pass(widths: tuple[int, ...], activation: Any) -> None:
    weights, x = problem(widths)
    found = through(weights, x, activation).output
    np.testing.assert_allclose(found, output_of(weights, x, activation), rtol=1e-12)


@pytest.mark.parametrize("activation", ["relu", "sigmoid", "sine"])
@pytest.mark.parametrize("widths", WIDTHS)
def test_inputs_times_derivatives_are_the_gradient(widths: tuple[int, ...], activation: Any) -> None:
    weights, x = problem(widths)
    passed = through(weights, x, activation)
    for expected, d, given in zip(
        gradients(weights, x, activation), passed.derivatives, passed.inputs, strict=True
    ):
        np.testing.assert_allclose(d[:, :, None] * given[:, None, :], expected, atol=1e-12)


@pytest.mark.parametrize("outcome", ["regression", "classification"])
@pytest.mark.parametrize("widths", WIDTHS)
def test_the_information_of_a_basis_is_the_mean_of_squared_turned_gradients(
    widths: tuple[int, ...], outcome: Any
) -> None:
    weights, x = problem(widths)
    bases = bases_of(weights, x, "relu", outcome)
    u = output_of(weights, x, "relu")
    fisher = norm.pdf(u) ** 2 / (norm.cdf(u) * norm.sf(u)) if outcome == "classification" else np.ones(ROWS)
    for basis, gradient in zip(bases, gradients(weights, x, "relu"), strict=True):
        left, right = np.asarray(basis.left), np.asarray(basis.right)
        np.testing.assert_allclose(left.T @ left, np.eye(len(left)), atol=1e-12)
        np.testing.assert_allclose(right.T @ right, np.eye(len(right)), atol=1e-12)
        turned = np.einsum("io,nij,jk->nok", left, gradient, right)
        expected = np.mean(fisher[:, None, None] * turned**2, axis=0)
        np.testing.assert_allclose(basis.information, expected, atol=1e-12)


@pytest.mark.parametrize("widths", WIDTHS)
def test_the_last_layer_has_its_full_information_matrix(widths: tuple[int, ...]) -> None:
    weights, x = problem(widths)
    last = bases_of(weights, x)[-1]
    gradient = gradients(weights, x, "relu")[-1][:, 0]
    matrix = np.asarray(last.right) @ np.diag(np.asarray(last.information)[0]) @ np.asarray(last.right).T
    np.testing.assert_allclose(matrix, gradient.T @ gradient / ROWS, atol=1e-12)


def test_known_bases_are_kept_and_only_their_information_is_new() -> None:
    weights, x = problem((3, 4, 1))
    known = bases_of(weights, x)
    found = bases_of(weights, 2.0 * x, known=known)
    for old, new in zip(known, found, strict=True):
        np.testing.assert_array_equal(old.left, new.left)
        np.testing.assert_array_equal(old.right, new.right)
        assert not np.allclose(old.information, new.information)


@pytest.mark.parametrize("widths", WIDTHS)
def test_into_a_basis_and_back_leads_home(widths: tuple[int, ...]) -> None:
    weights, x = problem(widths)
    bases = bases_of(weights, x)
    for found, expected in zip(back(bases, into(bases, weights)), weights, strict=True):
        np.testing.assert_allclose(found, expected, atol=1e-12)
    flat = flatten(tuple(map(jnp.asarray, weights)))
    assert flat.shape == (sum(part.size for part in weights),)
    for found, expected in zip(unflatten(flat, weights), weights, strict=True):
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("widths", WIDTHS)
def test_spread_and_along_are_those_of_dense_linear_algebra(widths: tuple[int, ...]) -> None:
    weights, x = problem(widths)
    rng = np.random.default_rng(1)
    bases = bases_of(weights, x)
    turned = turn(bases, through(weights, x))
    variance = tuple(rng.uniform(0.1, 2.0, part.shape) for part in weights)
    vector = tuple(rng.normal(size=part.shape) for part in weights)
    dense, projected = np.zeros(ROWS), np.zeros(ROWS)
    for basis, gradient, own, part in zip(
        bases, gradients(weights, x, "relu"), variance, vector, strict=True
    ):
        kron = np.kron(np.asarray(basis.left), np.asarray(basis.right))
        jacobian = gradient.reshape(ROWS, -1)
        dense += np.einsum("ni,ij,nj->n", jacobian, kron @ np.diag(own.ravel()) @ kron.T, jacobian)
        projected += jacobian @ kron @ part.ravel()
    np.testing.assert_allclose(spread(turned, variance), dense, rtol=1e-10)  # pyright: ignore[reportArgumentType]
    np.testing.assert_allclose(along(turned, vector), projected, rtol=1e-9)  # pyright: ignore[reportArgumentType]


def test_made_inputs_have_the_law_that_they_are_made_from() -> None:
    half = np.array([[1.0, 0.0], [0.9, 0.1]])
    draws = np.random.default_rng(0).normal(size=(40000, 2))
    found = np.asarray(made_inputs(jnp.asarray(draws), jnp.asarray(half), jnp.array([1.0, -2.0])))
    np.testing.assert_allclose(found.mean(axis=0), [1.0, -2.0], atol=0.03)
    np.testing.assert_allclose(np.cov(found.T), half @ half.T, atol=0.03)


def test_probit_information_is_the_expected_curvature_and_does_not_underflow_to_nan() -> None:
    u = np.linspace(-6, 6, 13)
    # E over both labels of the squared score, phi(u)^2 / Phi(+-u)^2.
    score = sum(norm.cdf(s * u) * np.exp(norm.logpdf(u) - norm.logcdf(s * u)) ** 2 for s in (-1.0, 1.0))
    np.testing.assert_allclose(probit_information(jnp.asarray(u)), score, rtol=1e-9)
    far = np.asarray(probit_information(jnp.array([-1e3, -40.0, 40.0, 1e3])))
    assert np.isfinite(far).all()
    assert (far >= 0).all()


def public_of(weights: Any, x: Any, noise: Gamma, seed: int = 2) -> NetworkPublic:
    """A public state with a cavity, an offset and units that differ in every coordinate."""
    rng = np.random.default_rng(seed)
    bases = bases_of(weights, x)
    cavity, unit = (tuple(rng.uniform(1.0, 5.0, part.shape) for part in weights) for _ in range(2))
    offset = tuple(0.1 * rng.normal(size=part.shape) for part in weights)
    one = np.ones(x.shape[1])
    features = Columns(-np.inf * one, np.inf * one, 0.5 * one, 2.0 * one)  # pyright: ignore
    outcome = Columns(*(np.float64(part) for part in (-np.inf, np.inf, 1.0, 3.0)))  # pyright: ignore
    return NetworkPublic(features, outcome, weights, bases, cavity, offset, unit, noise)  # pyright: ignore


@pytest.mark.parametrize("likelihood", [LearnedNoise(), ProbitLikelihood()], ids=["noise", "probit"])
@pytest.mark.parametrize("widths", WIDTHS)
def test_contributions_are_local_factors_of_the_model_that_is_linear_about_the_mean(
    widths: tuple[int, ...], likelihood: Any
) -> None:
    """The site on the output, by its definition: tilted less cavity in natural parameters, counted from m."""
    weights, x = problem(widths)
    noise = Gamma.from_shape_and_rate(jnp.asarray(40.0), jnp.asarray(10.0))
    public = public_of(weights, x, noise)
    if isinstance(likelihood, ProbitLikelihood):
        public = public._replace(outcome=Columns(*map(np.float64, (-np.inf, np.inf, 0.0, 1.0))))  # pyright: ignore
    raw_x = 2.0 * x + 0.5
    scaled_y = np.where(np.arange(ROWS) % 2, 1.0, -1.0)
    raw_y = scaled_y if isinstance(likelihood, ProbitLikelihood) else 3.0 * scaled_y + 1.0
    parts = NetworkFactors(likelihood)(public, (jnp.asarray(raw_x), jnp.asarray(raw_y)))
    slopes, mean, variance = [], output_of(weights, x, "relu"), np.zeros(ROWS)
    centre = mean.copy()
    for place, gradient in enumerate(gradients(weights, x, "relu")):
        left, right = (np.asarray(side) for side in public.bases[place][:2])
        turned = np.einsum("io,nij,jk->nok", left, gradient, right)
        mean = mean + np.sum(turned * np.asarray(public.offset[place]), axis=(1, 2))
        variance = variance + np.sum(turned**2 / np.asarray(public.cavity_precision[place]), axis=(1, 2))
        slopes.append((turned * np.asarray(public.unit[place])).reshape(ROWS, -1))
    if isinstance(likelihood, ProbitLikelihood):
        tilted = likelihood.tilted(mean, variance, scaled_y)
    else:
        tilted, factor = likelihood.tilted(mean, variance, noise, scaled_y)
        surplus = np.asarray(factor.rate) * 4.0 - (np.asarray(factor.shape_minus_one) - 0.5)
        np.testing.assert_allclose(parts[1], surplus[:, None], rtol=1e-9)
    tilted_mean = mean + variance * np.asarray(tilted.gradient)
    tilted_variance = variance * (1.0 - variance * np.asarray(tilted.curvature))
    precision = 1.0 / tilted_variance - 1.0 / variance
    site = tilted_mean / tilted_variance - mean / variance - precision * centre
    np.testing.assert_allclose(parts[0], site[:, None] * np.concatenate(slopes, axis=1), rtol=1e-6, atol=1e-9)


def test_with_noise_that_is_nearly_known_a_linear_contribution_is_tau_times_residual_times_input() -> None:
    weights, x = problem((3, 1))
    tau, shape = 4.0, 1e7
    noise = Gamma.from_shape_and_rate(jnp.asarray(shape), jnp.asarray(shape / tau))
    public = public_of(weights, x, noise)
    y = np.random.default_rng(4).normal(size=ROWS)
    design = np.column_stack([x, np.ones(ROWS)]) / 2.0
    residual = y - design @ weights[0][0]
    expected = (
        tau * residual[:, None] * (design @ np.asarray(public.bases[0].right)) * np.asarray(public.unit[0])
    )
    for likelihood in (LearnedNoise(), ConcentratedNoise()):
        chunk = jnp.asarray(2.0 * x + 0.5), jnp.asarray(3.0 * y + 1.0)
        found = NetworkFactors(likelihood)(public, chunk)[0]
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("likelihood", [ConcentratedNoise(), ProbitLikelihood()], ids=["noise", "probit"])
def test_a_bad_record_yields_nan_and_leaves_the_others_as_they_were(likelihood: Any) -> None:
    weights, x = problem((3, 4, 1))
    public = public_of(weights, x, Gamma.from_shape_and_rate(jnp.asarray(40.0), jnp.asarray(10.0)))
    public = public._replace(outcome=Columns(*map(np.float64, (-np.inf, np.inf, 0.0, 1.0))))  # pyright: ignore
    y = np.where(np.arange(ROWS) % 2, 1.0, -1.0)
    clean = NetworkFactors(likelihood)(public, (jnp.asarray(x), jnp.asarray(y)))
    bad = [(np.nan, 1.0), (np.inf, 1.0), (0.0, np.nan)]
    bad += [(0.0, 0.5)] if isinstance(likelihood, ProbitLikelihood) else [(0.0, np.inf)]
    for cell, outcome in bad:
        spoiled, target = x.copy(), y.copy()
        spoiled[4, 1], target[4] = cell, outcome
        found = NetworkFactors(likelihood)(public, (jnp.asarray(spoiled), jnp.asarray(target)))
        assert not any(np.isfinite(np.asarray(part)[4]).all() for part in found)
        assert not np.isfinite(np.asarray(found[0])[4]).any()
        for part, expected in zip(found, clean, strict=True):
            others = np.arange(ROWS) != 4
            np.testing.assert_array_equal(np.asarray(part)[others], np.asarray(expected)[others])
