"""Sine and cosine from one range reduction, against the library's and many digits."""

from typing import Any

import jax
import jax.numpy as jnp
import mpmath
import numpy as np
import pytest

from dpsep.models.sine import wave

RNG = np.random.default_rng(0)
QUARTERS = np.arange(-40, 41) * np.pi / 4
POINTS = np.concatenate(
    [
        RNG.uniform(-10, 10, 4000),
        RNG.choice([-1.0, 1.0], 4000) * 10.0 ** RNG.uniform(-300, 6, 4000),
        QUARTERS,
        np.nextafter(QUARTERS, np.inf),
        np.nextafter(QUARTERS, -np.inf),
        [0.0, -0.0, 1e6, -1e6],
    ]
)


@pytest.fixture(autouse=True)
def _doubles():
    with jax.enable_x64(True):
        yield


def test_up_to_a_million_both_are_right_to_the_last_digits() -> None:
    found = jax.jit(wave)(jnp.asarray(POINTS))
    with mpmath.workdps(40):
        both: list[list[Any]] = [[mpmath.sin(x), mpmath.cos(x)] for x in POINTS]
        sine, cosine = np.array(both, float).T
    np.testing.assert_allclose(found.sine, sine, rtol=0, atol=4e-16)
    np.testing.assert_allclose(found.cosine, cosine, rtol=0, atol=4e-16)
    small = np.abs(POINTS) < 0.7
    np.testing.assert_allclose(np.asarray(found.sine)[small], sine[small], rtol=4e-16, atol=1e-300)


def test_beyond_they_stay_on_the_circle_and_come_close() -> None:
    far = RNG.choice([-1.0, 1.0], 2000) * 10.0 ** RNG.uniform(6, 9, 2000)
    found = wave(jnp.asarray(far))
    np.testing.assert_allclose(found.sine, np.sin(far), atol=1e-6)
    np.testing.assert_allclose(np.asarray(found.sine) ** 2 + np.asarray(found.cosine) ** 2, 1.0, rtol=1e-12)
    huge = wave(jnp.array([1e9, 1e300, np.inf, -np.inf]))
    assert bool(jnp.all(jnp.isfinite(huge.sine) & jnp.isfinite(huge.cosine)))
    np.testing.assert_array_equal(huge.sine[1:], np.array([1.0, 1.0, -1.0]) * float(huge.sine[0]))


def test_nan_stays_nan() -> None:
    found = wave(jnp.array([np.nan, 1.0]))
    assert np.isnan(found.sine[0])
    assert np.isnan(found.cosine[0])
    assert float(found.sine[1]) == pytest.approx(np.sin(1.0), rel=1e-15)


def test_each_is_the_derivative_of_the_other() -> None:
    """Draws of a network differentiate through it."""
    x = jnp.asarray(RNG.uniform(-30, 30, 500))
    np.testing.assert_allclose(jax.vmap(jax.grad(lambda a: wave(a).sine))(x), np.cos(x), atol=1e-14)
    np.testing.assert_allclose(jax.vmap(jax.grad(lambda a: wave(a).cosine))(x), -np.sin(x), atol=1e-14)


def test_singles_have_their_own_digits() -> None:
    x = np.linspace(-20, 20, 2001, dtype=np.float32)
    found = wave(jnp.asarray(x))
    assert found.sine.dtype == jnp.float32
    np.testing.assert_allclose(found.sine, np.sin(x.astype(float)), atol=3e-6)
    np.testing.assert_allclose(found.cosine, np.cos(x.astype(float)), atol=3e-6)
