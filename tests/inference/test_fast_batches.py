"""Compiled batches: sums of the gate's own arithmetic, and the steps of the JAX form."""

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dpsep.inference import compiled, fast_batches, network_diagonal
from dpsep.models.concentrated_noise import ConcentratedNoise
from dpsep.models.glm import Columns
from dpsep.models.network_diagonal import DiagonalFactors
from dpsep.models.network_model import NetworkClassification, NetworkRegression
from dpsep.privacy.grid import Block, chunk_sums, rows_on_grid
from dpsep.privacy.noise import SeededStream

pytestmark = pytest.mark.skipif(not compiled.available(), reason="needs the extra 'fast'")
ROWS, INPUTS = 60, 4
RNG = np.random.default_rng(0)
X = RNG.normal(size=(ROWS, INPUTS))
Y = np.tanh(X[:, 0] * X[:, 1]) + 0.1 * RNG.normal(size=ROWS)
TURN = np.linalg.qr(RNG.normal(size=(INPUTS, INPUTS)))[0]
MODEL = NetworkRegression((INPUTS, 6, 1), noise_model=ConcentratedNoise())
CLIPS = (0.02, 0.01, 0.3)


@pytest.fixture(autouse=True)
def _doubles():
    with jax.enable_x64(True):
        yield


def columns(size: int | None) -> Any:
    one: Any = np.float64(1.0) if size is None else np.ones(size)
    return Columns(-2.0 * one, 2.0 * one, 0.1 * one, 1.5 * one)


def settings(**others: Any) -> network_diagonal.Settings:
    return network_diagonal.Settings(columns(INPUTS), columns(None), TURN, float(ROWS), 12.0, **others)


def gate_sums(x: np.ndarray, clips: tuple[float, ...], state: Any = None) -> list[np.ndarray]:
    traced = jax.tree.map(jnp.asarray, settings())
    state = network_diagonal.init(MODEL, traced) if state is None else state
    public = network_diagonal.publish(MODEL, traced, state)
    sizes = (MODEL.size, MODEL.size, 2)
    blocks = tuple(Block(str(place), size, clips[place]) for place, size in enumerate(sizes))
    rows = rows_on_grid(blocks, DiagonalFactors(MODEL)(public, (jnp.asarray(x), jnp.asarray(Y))))
    return [np.asarray(part) for part in chunk_sums(blocks, rows)]


@pytest.mark.parametrize("dtype", [np.float64, pytest.param(np.float32, marks=pytest.mark.deep)])
def test_sums_on_the_grid_are_those_of_a_gate(dtype: Any) -> None:
    work = fast_batches.Batches(MODEL, settings(), (X, Y), CLIPS, dtype=dtype)
    # A number that lies between two units may be rounded to either.
    loose = 1.0 if dtype is np.float64 else ROWS * 2.0**20 * 1e-5
    for found, wanted in zip(work.sums(np.arange(ROWS), grid=True), gate_sums(X, CLIPS), strict=True):
        assert np.array_equal(found, np.rint(found))
        assert np.abs(found - wanted).max() <= loose
        assert np.abs(wanted).max() > 2.0**12


@pytest.mark.parametrize("clips", [CLIPS, (math.inf, math.inf, math.inf)])
def test_sums_without_a_grid_are_the_clipped_factors(clips: tuple[float, float, float]) -> None:
    work = fast_batches.Batches(MODEL, settings(), (X, Y), clips)
    infinite = math.isinf(clips[0])
    units = 1.0 if infinite else 2.0**-20
    for found, wanted, clip in zip(work.sums(np.arange(ROWS)), gate_sums(X, clips), clips, strict=True):
        size = 1.0 if infinite else units * clip
        rounding = 1e-10 * np.abs(wanted).max() if infinite else ROWS * size * 1.1 * math.sqrt(MODEL.size)
        np.testing.assert_allclose(found, wanted * size, rtol=0, atol=rounding)


def test_bad_records_add_nothing() -> None:
    bad = X.copy()
    bad[2, 0], bad[7, 1] = np.nan, np.inf
    work = fast_batches.Batches(MODEL, settings(), (bad, Y), CLIPS)
    good = np.delete(np.arange(ROWS), [2, 7])
    for one, two in zip(work.sums(np.arange(ROWS), grid=True), work.sums(good, grid=True), strict=True):
        np.testing.assert_array_equal(one, two)
        assert np.isfinite(one).all()


@pytest.mark.parametrize("clip", [math.inf, 0.5])
def test_a_long_open_run_is_compiled_and_the_same(clip: float, monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = network_diagonal.run_open(MODEL, settings(clip=clip), (X, Y), 16, seed=3)
    monkeypatch.setattr(compiled, "WORTH", 0.0)
    monkeypatch.setattr(network_diagonal, "ROWS_AHEAD", 5)
    monkeypatch.setattr(network_diagonal, "_run_open", None)
    found = network_diagonal.run_open(MODEL, settings(clip=clip), (X, Y), 16, seed=3)
    for one, two in zip(jax.tree.leaves(found), jax.tree.leaves(wanted), strict=True):
        np.testing.assert_allclose(one, two, rtol=1e-10, atol=1e-13)


def test_a_step_with_noise_is_the_update_from_noisy_sums() -> None:
    noisy = fast_batches.Batches(MODEL, settings(), (X, Y), CLIPS)
    rows = np.arange(0, ROWS, 2)
    noisy.step(rows, sigma=0.5, stream=SeededStream(1))
    quiet = fast_batches.Batches(MODEL, settings(), (X, Y), CLIPS)
    quiet.step(rows, sigma=0.0, stream=SeededStream(1))
    plain = fast_batches.Batches(MODEL, settings(), (X, Y), CLIPS)
    plain.step(rows)
    rounding = np.abs(np.asarray(quiet.state().mean - plain.state().mean)).max()
    assert np.abs(np.asarray(noisy.state().mean - plain.state().mean)).max() > 1e3 * rounding > 0
    assert np.asarray(noisy.state().blur).min() > 0
    again = fast_batches.Batches(MODEL, settings(), (X, Y), CLIPS)
    again.step(rows, sigma=0.5, stream=SeededStream(1))
    np.testing.assert_array_equal(noisy.state().mean, again.state().mean)


def test_a_model_without_compiled_form_is_refused() -> None:
    with pytest.raises(ValueError, match="no compiled form"):
        fast_batches.Batches(NetworkClassification((INPUTS, 3, 1)), settings(), (X, Y))
