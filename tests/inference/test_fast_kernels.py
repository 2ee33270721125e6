"""The compiled rectifier, in both tails and both precisions, and where weights lie."""

from itertools import pairwise
from typing import Any

import mpmath
import numpy as np
import pytest

from dpsep.inference.compiled.layout import layout, numbers, room, spread

kernels: Any = pytest.importorskip(
    "dpsep.inference.compiled.kernels", reason="needs the extra 'fast'", exc_type=ImportError
)

ALPHAS = np.array([-30.0, -12.0, -8.0, -5.0, -3.0, -1.0, -0.01, 0.0, 0.01, 1.0, 3.0, 8.0, 30.0])


def exact(alpha: float) -> tuple[float, ...]:
    """Mean, variance and the four slopes of max(a, 0), a ~ N(alpha, 1), with a hundred digits."""
    with mpmath.workdps(300):
        a = mpmath.mpf(float(alpha))
        density, chance = mpmath.npdf(a), mpmath.ncdf(a)
        first = a * chance + density
        variance = (1 + a * a) * chance + a * density - first**2
        slopes = chance, 2 * first * (1 - chance), density / 2, chance - first * density
        return tuple(float(each) for each in (first, variance, *slopes))


@pytest.mark.parametrize(("real", "tolerance"), [(np.float64, 2e-13), (np.float32, 2e-5)])
def test_the_rectifier_keeps_its_digits_far_below_zero(real: Any, tolerance: float) -> None:
    shown = ALPHAS.astype(real)
    lines = np.stack([shown, np.ones_like(shown)])
    units = np.zeros((1, 8, len(shown)), real)
    units[0, 6] = 1.0
    kernels.activate(lines, len(shown), numbers(real), units, 0)
    expected = np.array([exact(alpha) for alpha in shown]).T
    # Below the smallest normal number a result is zero, or rounded more coarsely.
    least = float(np.finfo(real).tiny) * 1e7
    for found, wanted in zip(units[0, :6], expected, strict=True):
        np.testing.assert_allclose(found, wanted, rtol=tolerance, atol=least)


def test_a_filled_place_is_zero_and_the_bias_is_one() -> None:
    lines = np.ones((2, 3))
    units = np.zeros((1, 8, 3))
    units[0, 6, 0], units[0, 7, 1] = 1.0, 1.0
    kernels.activate(lines, 3, numbers(np.float64), units, 0)
    np.testing.assert_array_equal(units[0, 0, 1:], [1.0, 0.0])
    np.testing.assert_array_equal(units[0, 1, 1:], [0.0, 0.0])


@pytest.mark.parametrize("widths", [(3, 1), (3, 4, 1), (2, 9, 17, 1)])
def test_every_weight_has_a_place_of_its_own(widths: tuple[int, ...]) -> None:
    places = layout(widths, np.float32)
    size = sum((inputs + 1) * outputs for inputs, outputs in pairwise(widths))
    assert len(set(places.place.tolist())) == len(places.place) == size
    assert places.place.max() < places.size
    flat = np.arange(size, dtype=np.float32)
    np.testing.assert_array_equal(spread(places, flat, -1.0, np.float32)[places.place], flat)
    assert room(places, np.float32).gradient.shape == (places.size,)
