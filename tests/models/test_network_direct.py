"""Networks whose inputs also reach the output directly: outputs, gradients, bases, and the noise number."""

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dpsep.families import Gamma
from dpsep.models.concentrated_noise import ConcentratedNoise
from dpsep.models.glm import Columns
from dpsep.models.network_factors import (
    NetworkFactors,
    NetworkPublic,
    along,
    bases_of,
    layer_shapes,
    spread,
    through,
    turn,
)

INPUTS, ROWS = 3, 9
WIDTHS = [(INPUTS, 4, 1), (INPUTS, 4, 2, 1)]
ACTIVATED: dict[str, Any] = {"relu": lambda a: jnp.maximum(a, 0.0), "sine": jnp.sin}


@pytest.fixture(autouse=True)
def _doubles():
    with jax.enable_x64(True):
        yield


def problem(widths: tuple[int, ...], direct: bool = True) -> tuple[Any, Any]:
    rng = np.random.default_rng(0)
    weights = tuple(jnp.asarray(rng.normal(size=shape)) for shape in layer_shapes(widths, direct=direct))
    return weights, jnp.asarray(rng.normal(size=(ROWS, widths[0])))


def written_out(weights: Any, x: jax.Array, activation: str) -> jax.Array:
    """Output for one input: hidden units and bias over the root of their number, inputs as they are."""
    given = x
    for layer in weights[:-1]:
        given = ACTIVATED[activation](layer @ jnp.append(given, 1.0) / math.sqrt(len(given) + 1))
    last, width = weights[-1][0], len(given)
    hidden = (last[:width] @ given + last[-1]) / math.sqrt(width + 1)
    return hidden + last[width:-1] @ x


def test_the_last_layer_has_as_many_more_weights_as_there_are_inputs() -> None:
    assert layer_shapes((8, 1)) == [(1, 9)]
    assert layer_shapes((8, 5, 1)) == [(5, 9), (1, 6)]
    assert layer_shapes((8, 5, 1), direct=True) == [(5, 9), (1, 14)]
    assert layer_shapes((8, 5, 3, 1), direct=True) == [(5, 9), (3, 6), (1, 12)]


@pytest.mark.parametrize("activation", ACTIVATED)
@pytest.mark.parametrize("widths", WIDTHS)
def test_output_and_gradient_are_those_of_the_network_written_out(
    widths: tuple[int, ...], activation: Any
) -> None:
    weights, x = problem(widths)
    passed = through(weights, x, activation)
    outputs = jax.vmap(lambda row: written_out(weights, row, activation))(x)
    np.testing.assert_allclose(passed.output, outputs, rtol=1e-12)
    found = jax.vmap(jax.grad(written_out), in_axes=(None, 0, None))(weights, x, activation)
    for expected, d, given in zip(found, passed.derivatives, passed.inputs, strict=True):
        np.testing.assert_allclose(d[:, :, None] * given[:, None, :], expected, atol=1e-12)


@pytest.mark.parametrize("activation", ACTIVATED)
def test_without_weight_on_the_inputs_it_is_the_network_without_them(activation: Any) -> None:
    weights, x = problem((INPUTS, 4, 1))
    last = weights[-1].at[0, 4:-1].set(0.0)
    plain = jnp.concatenate([last[:, :4], last[:, -1:]], axis=1)
    found = through((weights[0], last), x, activation)
    expected = through((weights[0], plain), x, activation)
    np.testing.assert_allclose(found.output, expected.output, rtol=1e-14)
    np.testing.assert_allclose(found.derivatives[0], expected.derivatives[0], rtol=1e-14)
    np.testing.assert_array_equal(found.inputs[-1][:, 4:-1], x)


@pytest.mark.parametrize("widths", WIDTHS)
def test_the_last_layers_information_is_full_with_the_inputs_in_it(widths: tuple[int, ...]) -> None:
    weights, x = problem(widths)
    last = bases_of(weights, x, "sine")[-1]
    gradient = jax.vmap(jax.grad(written_out), in_axes=(None, 0, None))(weights, x, "sine")[-1][:, 0]
    matrix = last.right @ np.diag(last.information[0]) @ last.right.T
    np.testing.assert_allclose(matrix, gradient.T @ gradient / ROWS, atol=1e-12)


def public_of(weights: Any, x: Any, tau: float) -> NetworkPublic:
    """A public state with a wide cavity that is not at the mean."""
    rng = np.random.default_rng(1)
    cavity, unit = (
        tuple(jnp.asarray(rng.uniform(2.0, 9.0, part.shape)) for part in weights) for _ in range(2)
    )
    offset = tuple(jnp.asarray(0.1 * rng.normal(size=part.shape)) for part in weights)
    features, outcome = (Columns(-np.inf, np.inf, 0.0, 1.0) for _ in range(2))  # pyright: ignore
    noise = Gamma.from_shape_and_rate(jnp.asarray(500.0), jnp.asarray(500.0 / tau))
    return NetworkPublic(features, outcome, weights, bases_of(weights, x), cavity, offset, unit, noise)


@pytest.mark.parametrize("direct", [False, True])
def test_the_noise_number_averages_one_half_where_the_precision_is_right(direct: bool) -> None:
    """Over targets of the predictive density, by quadrature; more where they are wider, else less."""
    weights, x = problem((INPUTS, 4, 1), direct)
    tau = 4.0
    public = public_of(weights, x, tau)
    turned = turn(public.bases, through(weights, x, "sine"))
    mean = through(weights, x, "sine").output + along(turned, public.offset)
    variance = spread(turned, tuple(1.0 / part for part in public.cavity_precision))
    nodes, chances = np.polynomial.hermite_e.hermegauss(40)
    averages = {}
    for truth in (0.5, 1.0, 2.0):
        deviation = jnp.sqrt(variance + truth / tau)
        y = (mean[:, None] + deviation[:, None] * nodes).ravel()
        chunk = (jnp.repeat(x, len(nodes), axis=0), y)
        found = NetworkFactors(ConcentratedNoise(), "sine")(public, chunk)[1]
        assert found.shape == (ROWS * len(nodes), 1)
        averages[truth] = np.asarray(found).reshape(ROWS, -1) @ chances / chances.sum()
    np.testing.assert_allclose(averages[1.0], 0.5, rtol=1e-10)
    assert (averages[0.5] < 0.5).all()
    assert (averages[2.0] > 0.5).all()


def test_without_a_cavity_variance_the_noise_number_is_half_the_squared_standardised_residual() -> None:
    weights, x = problem((INPUTS, 4, 1))
    public = public_of(weights, x, 4.0)
    public = public._replace(
        offset=tuple(0.0 * part for part in weights),
        cavity_precision=tuple(jnp.full_like(part, 1e15) for part in weights),
    )
    y = jnp.asarray(np.random.default_rng(2).normal(size=ROWS))
    found = NetworkFactors(ConcentratedNoise(), "sine")(public, (x, y))[1]
    residual = y - through(weights, x, "sine").output
    np.testing.assert_allclose(found[:, 0], 0.5 * 4.0 * residual**2, rtol=1e-9)


@pytest.mark.parametrize("cell", [np.nan, np.inf, -np.inf])
def test_a_cell_that_is_not_finite_marks_the_whole_row(cell: float) -> None:
    """Direct inputs go straight into the gradient: what cannot be used must not reach it as a number."""
    weights, x = problem((INPUTS, 4, 1))
    public = public_of(weights, x, 4.0)
    y = jnp.linspace(-1.0, 1.0, ROWS)
    clean = NetworkFactors(ConcentratedNoise(), "sine")(public, (x, y))
    found = NetworkFactors(ConcentratedNoise(), "sine")(public, (x.at[4, 1].set(cell), y))
    others = np.arange(ROWS) != 4
    for part, expected in zip(found, clean, strict=True):
        assert bool(jnp.isnan(part[4]).all())
        np.testing.assert_array_equal(part[others], expected[others])
