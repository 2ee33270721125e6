"""Gradients of networks, against finite differences of a bound written anew, Monte Carlo and closed forms."""

import math
from typing import Any

import jax
import jax.numpy as jnp
import mpmath
import numpy as np
import pytest
from scipy.special import log_ndtr, ndtr, roots_hermitenorm

from dpsep.models.glm import Columns
from dpsep.models.network_gradients import GradientPublic, PointGradient, VariationalGradient
from dpsep.privacy.grid import Block
from dpsep.privacy.open_gate import OpenGate

NETWORKS = [((2, 1), "relu"), ((2, 3, 1), "relu"), ((2, 3, 1), "sigmoid"), ((2, 3, 2, 1), "sigmoid")]
TASKS = ["regression", "classification"]
TAU = 2.5


def columns(width: int | None) -> Columns:
    shape = () if width is None else (width,)
    parts: Any = (np.full(shape, -np.inf), np.full(shape, np.inf), np.zeros(shape), np.ones(shape))
    return Columns(*parts)


def public(model: Any, seed: int, draws: int = 4, unit: float = 1.0, spread: float = -1.0) -> GradientPublic:
    rng = np.random.default_rng(seed)
    parts: Any = (
        rng.normal(size=model.size),
        spread + 0.3 * rng.normal(size=model.size),
        rng.normal(size=(draws, model.size)),
        np.float64(TAU if model.task == "regression" else 1.0),
        np.float64(unit),
    )
    return GradientPublic(columns(model.widths[0]), columns(None), *parts)


def records(model: Any, count: int, seed: int = 9) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    x, y = rng.normal(size=(count, model.widths[0])), rng.normal(size=count)
    return x, y if model.task == "regression" else (y > 0).astype(float)


def contribution(model: Any, given: GradientPublic, chunk: tuple[np.ndarray, np.ndarray]) -> list[np.ndarray]:
    with jax.enable_x64(True):
        return [np.asarray(part) for part in jax.jit(model)(given, chunk)]


def layers(model: Any, flat: np.ndarray) -> list[np.ndarray]:
    parts, used = [], 0
    for inputs, outputs in zip(model.widths[:-1], model.widths[1:], strict=True):
        size = outputs * (inputs + 1)
        parts.append(flat[used : used + size].reshape(outputs, inputs + 1))
        used += size
    return parts


def last_inputs(model: Any, weights: list[np.ndarray], x: np.ndarray) -> np.ndarray:
    z = np.append(x, 1.0)
    for layer in weights[:-1]:
        a = layer @ z / math.sqrt(len(z))
        a = np.maximum(a, 0.0) if model.activation == "relu" else ndtr(math.sqrt(math.pi / 8) * a)
        z = np.append(a, 1.0)
    return z / math.sqrt(len(z))


def log_likelihood(model: Any, f: Any, y: float) -> Any:
    return -0.5 * TAU * (y - f) ** 2 if model.task == "regression" else log_ndtr((2 * y - 1) * f)


def bound(model: Any, given: GradientPublic, x: np.ndarray, y: float, at: np.ndarray) -> float:
    """Average over draws of the expected log-likelihood given the hidden weights, by 60-point quadrature."""
    mean, deviation = at[: model.size], np.exp(at[model.size :])
    nodes, weights = roots_hermitenorm(60)
    weights = weights / weights.sum()
    last, spread = layers(model, mean)[-1][0], layers(model, deviation)[-1][0]
    found = []
    for draw in np.asarray(given.samples):
        z = last_inputs(model, layers(model, mean + deviation * draw), x)
        f = z @ last + math.sqrt(z**2 @ spread**2) * nodes
        found.append(weights @ log_likelihood(model, f, y))
    return float(np.mean(found))


def differences(function: Any, at: np.ndarray, step: float = 1e-5) -> np.ndarray:
    moves = step * np.eye(len(at))
    return np.array([(function(at + move) - function(at - move)) / (2 * step) for move in moves])


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize(("widths", "activation"), NETWORKS)
def test_variational_gradients_are_those_of_the_bound_at_the_same_draws(widths, activation, task):
    model = VariationalGradient(widths, activation, task)
    given = public(model, 1)
    x, y = records(model, 3)
    found = contribution(model, given, (x, y))[0]
    at = np.concatenate([given.mean, given.log_deviation])
    expected = [differences(lambda v, n=n: bound(model, given, x[n], y[n], v), at) for n in range(3)]
    np.testing.assert_allclose(found, expected, atol=1e-6 if task == "regression" else 1e-5)


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize(("widths", "activation"), NETWORKS)
def test_point_gradients_are_those_of_the_log_likelihood(widths, activation, task):
    model = PointGradient(widths, activation, task)
    given = public(model, 2)
    x, y = records(model, 3)

    def value(mean: np.ndarray, n: int) -> float:
        weights = layers(model, mean)
        return log_likelihood(model, last_inputs(model, weights, x[n]) @ weights[-1][0], y[n])

    found = contribution(model, given, (x, y))
    mean = np.asarray(given.mean)
    expected = [differences(lambda m, n=n: value(m, n), mean) for n in range(3)]
    np.testing.assert_allclose(found[0], expected, atol=1e-7)
    if task == "regression":
        squares = [-2.0 * value(mean, n) for n in range(3)]
        np.testing.assert_allclose(found[1][:, 0], squares, rtol=1e-12)


def drawn_outputs(model: Any, given: GradientPublic, x: np.ndarray, draws: Any) -> jax.Array:
    """Outputs for one record under weights drawn from q, last layer included, one hidden layer."""
    count = len(draws)
    flat = given.mean + jnp.exp(given.log_deviation) * draws
    inputs, hidden, _ = model.widths
    first = flat[:, : hidden * (inputs + 1)].reshape(count, hidden, inputs + 1)
    a = jnp.maximum(first @ np.append(x, 1.0) / math.sqrt(inputs + 1), 0.0)
    last = flat[:, hidden * (inputs + 1) :]
    return (jnp.sum(a * last[:, :-1], 1) + last[:, -1]) / math.sqrt(hidden + 1)


def test_expected_squared_residual_is_that_of_a_hundred_thousand_drawn_networks():
    model = VariationalGradient((2, 3, 1))
    given = public(model, 3, draws=4_000)
    x, y = records(model, 1)
    found = contribution(model, given, (x, y))[1].item()
    draws = np.random.default_rng(5).normal(size=(100_000, model.size))
    with jax.enable_x64(True):
        squares = TAU * (y[0] - drawn_outputs(model, given, x[0], draws)) ** 2
        error = float(jnp.std(squares)) * math.sqrt(1 / 100_000 + 1 / 4_000)
        assert abs(found - float(jnp.mean(squares))) < 4 * error


def test_gradients_of_the_expected_log_likelihood_of_a_label_are_those_of_drawn_networks():
    model = VariationalGradient((2, 3, 1), task="classification")
    given = public(model, 4, draws=4_000)
    x, y = records(model, 1)
    found = contribution(model, given, (x, y))[0][0]
    draws = np.random.default_rng(5).normal(size=(20, 5_000, model.size))
    with jax.enable_x64(True):

        def average(mean: jax.Array, log_deviation: jax.Array, shard: jax.Array) -> jax.Array:
            moved = given._replace(mean=mean, log_deviation=log_deviation)
            f = drawn_outputs(model, moved, x[0], shard)
            return jnp.mean(jax.scipy.special.log_ndtr((2 * y[0] - 1) * f))

        slopes = jax.jit(jax.vmap(jax.grad(average, (0, 1)), (None, None, 0)))
        each = slopes(given.mean, given.log_deviation, draws)
        shards = np.concatenate(each, axis=1)
    error = shards.std(0, ddof=1) / math.sqrt(20) * math.sqrt(1 + 100_000 / 4_000)
    assert (np.abs(found - shards.mean(0)) < 5 * error + 1e-6).all()


@pytest.mark.parametrize("kind", [VariationalGradient, PointGradient])
@pytest.mark.parametrize("f", [40.0, -40.0])
def test_labels_far_on_either_side_have_exact_gradients(kind, f):
    model = kind((1, 1), task="classification")
    # One input of zero and a bias: f is the bias over sqrt(2).
    given = public(model, 0, spread=-40.0)._replace(mean=np.array([0.3, f * math.sqrt(2)]))  # pyright: ignore
    found = contribution(model, given, (np.zeros((2, 1)), np.array([0.0, 1.0])))[0]
    with mpmath.workdps(700):
        slopes = [s * mpmath.npdf(f) / mpmath.ncdf(s * mpmath.mpf(f)) for s in (-1, 1)]
        np.testing.assert_allclose(found[:, 1] * math.sqrt(2), [float(s) for s in slopes], rtol=1e-10)


@pytest.mark.parametrize("kind", [VariationalGradient, PointGradient])
def test_gradients_are_divided_by_the_unit_and_the_noise_statistic_is_not(kind):
    model = kind((2, 3, 1))
    chunk = records(model, 5)
    plain = contribution(model, public(model, 6), chunk)
    scaled = contribution(model, public(model, 6, unit=4.0), chunk)
    np.testing.assert_allclose(4.0 * scaled[0], plain[0], rtol=1e-13)
    np.testing.assert_array_equal(scaled[1], plain[1])


def blocks(model: Any, clip: float) -> list[Block]:
    share = 1.0 / len(model.sizes)
    return [Block(name, size, clip, share) for name, size in model.sizes.items()]


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("kind", [VariationalGradient, PointGradient])
def test_a_bad_record_contributes_nothing(kind, task):
    model = kind((2, 3, 1), "relu", task)
    x, y = records(model, 12)
    bad_x, bad_y = np.concatenate([x, x[:3]]), np.concatenate([y, y[:3]])
    bad_x[12, 0], bad_x[13, 1] = np.nan, np.inf
    bad_y[14] = np.nan if task == "regression" else 2.0
    given = public(model, 7)
    clean = OpenGate((x, y), blocks(model, 1.0), model).release(given)
    found = OpenGate((bad_x, bad_y), blocks(model, 1.0), model).release(given)
    assert all((clean[name] == found[name]).all() for name in clean)


@pytest.mark.parametrize("kind", [VariationalGradient, PointGradient])
def test_an_outlier_moves_a_clipped_sum_by_no_more_than_the_clip_and_an_open_one_by_more(kind):
    model = kind((2, 3, 1))
    x, y = records(model, 12)
    given = public(model, 8)
    with_it = (np.concatenate([x, x[:1]]), np.append(y, 1e4))

    def moved(clip: float) -> list[float]:
        before = OpenGate((x, y), blocks(model, clip), model).release(given)
        after = OpenGate(with_it, blocks(model, clip), model).release(given)
        return [float(np.linalg.norm(after[name] - before[name])) for name in before]

    clipped = moved(0.7)
    assert max(clipped) <= 0.7 * (1 + 1e-12)
    assert min(clipped) > 0.69
    assert min(moved(math.inf)) > 100.0


def test_a_known_noise_has_no_block():
    assert VariationalGradient((4, 5, 1), noise=False).sizes == {"gradient": 2 * 31}
    model = PointGradient((2, 1), noise=False)
    assert len(contribution(model, public(model, 0), records(model, 2))) == 1


@pytest.mark.parametrize("kind", [VariationalGradient, PointGradient])
def test_what_is_no_network_is_refused(kind):
    with pytest.raises(ValueError, match="one output"):
        kind((3, 2))
    with pytest.raises(ValueError, match="relu"):
        kind((3, 1), "tanh")
    with pytest.raises(ValueError, match="classification"):
        kind((3, 1), "relu", "ranking")
