"""From a sketch to a mixture: exact sketches are characteristic functions in closed form."""

import math
from typing import Any

import numpy as np
import pytest
from scipy.optimize import linear_sum_assignment

from dpsep.inference.sketch import Found, Shape, block, decode
from dpsep.models.sketch import draw_frequencies

MEANS = np.array([[0.0, 0.8], [-0.7, -0.4], [0.6, -0.5]])
VARIANCES: dict[str, np.ndarray] = {
    "known": np.tile([0.01, 0.04], (3, 1)),
    "spherical": np.array([[0.01, 0.01], [0.04, 0.04], [0.09, 0.09]]),
    "diag": np.array([[0.01, 0.05], [0.04, 0.02], [0.09, 0.01]]),
}
EXACT = 1e-3
"""Deviation of the error of a sketch that has none: so small that weak priors say nothing beside it."""
EVEN, FALLING, MIXED = np.full(3, 1 / 3), np.array([0.5, 0.3, 0.2]), np.array([0.2, 0.5, 0.3])


def characteristic(
    frequencies: np.ndarray, weights: np.ndarray, means: np.ndarray, variances: np.ndarray
) -> np.ndarray:
    """E exp(i omega . x) of a mixture of Gaussians: cosines, then sines."""
    values = np.zeros(len(frequencies), complex)
    for weight, mean, variance in zip(weights, means, variances, strict=True):
        values += weight * np.exp(1j * frequencies @ mean - 0.5 * frequencies**2 @ variance)
    return np.concatenate([np.real(values), np.imag(values)])


def frequencies_for(variances: str, dimension: int = 2) -> np.ndarray:
    if variances == "known":
        return draw_frequencies(200, np.sqrt(VARIANCES["known"][0, :dimension]), 0.3, 2.0, even=True)
    return draw_frequencies(200, np.ones(dimension), 0.7, 20.0, even=False)


def found(variances: Any, weights: np.ndarray, *, known: bool, noise: Any = 0.0, **more: Any) -> Found:
    """Decode the exact sketch of the mixture above, or one with noise added to it."""
    frequencies = frequencies_for(variances)
    sketch = characteristic(frequencies, weights, MEANS, VARIANCES[variances]) + noise
    offset = np.log(VARIANCES["known"][0]) if variances == "known" else np.zeros(2)
    start = np.log(weights if known else EVEN)
    deviation = more.pop("deviation", EXACT)
    return decode(sketch, frequencies, deviation, Shape(3, variances, known), start, offset, **more)[0]


def in_order(found: Found, *, known: bool) -> Found:
    """Components in the order of the truth; known weights say which component is which."""
    if known and found.weight.std() > 1e-9:
        return found
    order = linear_sum_assignment(((MEANS[:, None] - found.mean) ** 2).sum(-1))[1]
    parts = (found.weight[order], found.mean[order], found.variance[order], found.spread[order])
    return Found(*parts, None)


@pytest.mark.parametrize("weights", [EVEN, FALLING, MIXED], ids=["even", "falling", "mixed"])
@pytest.mark.parametrize("known", [True, False], ids=["known weights", "learned weights"])
@pytest.mark.parametrize("variances", ["known", "spherical", "diag"])
def test_the_mixture_of_an_exact_sketch_is_found(variances: str, known: bool, weights: np.ndarray) -> None:
    result = in_order(found(variances, weights, known=known), known=known)
    np.testing.assert_allclose(result.mean, MEANS, atol=1e-3)
    np.testing.assert_allclose(result.weight, weights, atol=1e-3)
    np.testing.assert_allclose(result.variance, VARIANCES[variances], rtol=1e-2)


def test_the_same_sketch_gives_the_same_mixture() -> None:
    one, two = (found("known", EVEN, known=True) for _ in range(2))
    for first, second in zip(one, two, strict=True):
        np.testing.assert_array_equal(first, second)


def test_one_component_is_found_where_it_is() -> None:
    frequencies = frequencies_for("diag")
    mean, variance = np.array([[0.3, -0.6]]), np.array([[0.02, 0.3]])
    sketch = characteristic(frequencies, np.ones(1), mean, variance)
    (result,) = decode(sketch, frequencies, EXACT, Shape(1, "diag", False), np.zeros(1), np.zeros(2))
    np.testing.assert_allclose(result.mean, mean, atol=1e-4)
    np.testing.assert_allclose(result.variance, variance, rtol=1e-2)
    np.testing.assert_array_equal(result.weight, 1.0)


def test_several_searches_find_what_one_may_miss_also_in_one_dimension(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    frequencies = draw_frequencies(200, np.full(1, 0.1), 0.3, 2.0, even=True)
    shape, weights, variances = Shape(4, "known", True), np.full(4, 0.25), np.full((4, 1), 0.01)
    losses = {1: 0.0, 8: 0.0}
    for seed in (0, 6, 7):
        means = np.random.default_rng(seed).uniform(-1, 1, (4, 1))
        sketch = characteristic(frequencies, weights, means, variances)
        for restarts in losses:
            monkeypatch.setattr("dpsep.inference.sketch.RESTARTS", restarts)
            (result,) = decode(sketch, frequencies, EXACT, shape, np.log(weights), np.log(variances[0]))
            again = characteristic(frequencies, weights, result.mean, variances)
            losses[restarts] += float(np.sum((sketch - again) ** 2))
    assert losses[8] < 1e-3
    assert losses[8] <= losses[1] + 1e-3


def linearised(variances: str, deviation: float) -> np.ndarray:
    """Covariance of all unknowns due to noise, by differences of the characteristic function."""
    frequencies = frequencies_for(variances)
    levels = np.log(VARIANCES[variances])
    if variances == "spherical":
        levels = levels[:, :1]
    sizes = [MEANS.size] if variances == "known" else [MEANS.size, 3, levels.size]

    def expected(unknown: np.ndarray) -> np.ndarray:
        parts = np.split(unknown, np.cumsum(sizes)[:-1])
        if variances == "known":
            return characteristic(frequencies, FALLING, parts[0].reshape(3, 2), VARIANCES["known"])
        weights = np.exp(parts[1]) / np.exp(parts[1]).sum()
        spread = np.broadcast_to(np.exp(parts[2].reshape(3, -1)), (3, 2))
        return characteristic(frequencies, weights, parts[0].reshape(3, 2), spread)

    at = MEANS.ravel()
    if variances != "known":
        at = np.concatenate([at, np.log(FALLING), levels.ravel()])
    step = 1e-5 * np.eye(len(at))
    columns = [(expected(at + move) - expected(at - move)) / 2e-5 for move in step]
    jacobian = np.stack(columns, 1)
    return np.linalg.inv(jacobian.T @ jacobian / deviation**2 + np.eye(len(at)))


@pytest.mark.parametrize("variances", ["known", "spherical"])
def test_spread_is_the_linearised_covariance_of_the_means(variances: str) -> None:
    known = variances == "known"
    result = in_order(found(variances, FALLING, known=known, deviation=0.01), known=known)
    whole = linearised(variances, 0.01)[:6, :6].reshape(3, 2, 3, 2)
    blocks = np.stack([whole[j, :, j] for j in range(3)])
    np.testing.assert_allclose(result.spread, blocks, rtol=1e-2, atol=1e-7)


def test_spread_grows_with_the_variance_of_the_noise_up_to_the_prior() -> None:
    small, double, all_ = (
        found("known", FALLING, known=True, deviation=deviation).spread for deviation in (1e-3, 2e-3, 1e6)
    )
    np.testing.assert_allclose(double, 4 * small, rtol=1e-2)
    np.testing.assert_allclose(all_, np.broadcast_to(np.eye(2), all_.shape), atol=1e-6)


def test_spread_is_what_noise_does_to_the_means() -> None:
    rng, deviation = np.random.default_rng(0), 0.02
    errors, spread = [], np.zeros(())
    for _ in range(20):
        noise = deviation * rng.standard_normal(400)
        result = found("known", FALLING, known=True, noise=noise, deviation=deviation)
        errors.append(result.mean - MEANS)
        spread = np.diagonal(result.spread, axis1=1, axis2=2)
    # The mean of 120 squares has a relative error of about sqrt(2 / 120).
    assert np.mean(np.square(errors) / spread) == pytest.approx(1.0, abs=0.4)


def test_a_sketch_of_noise_alone_gives_a_finite_mixture() -> None:
    noise = np.random.default_rng(1).standard_normal(400)
    for variances in ("known", "diag"):
        frequencies = frequencies_for(variances)
        shape = Shape(3, "known" if variances == "known" else "diag", False)
        (result,) = decode(30 * noise, frequencies, 30.0, shape, np.log(EVEN), np.zeros(2))
        assert all(np.isfinite(part).all() for part in result if part is not None)
        assert (result.variance > 0).all()
        assert result.weight.sum() == pytest.approx(1.0)
        assert np.linalg.eigvalsh(result.spread).min() > 0


def test_several_mixtures_are_returned_the_nearest_first() -> None:
    frequencies = frequencies_for("known")
    noise = 0.2 * np.random.default_rng(1).standard_normal(400)
    sketch = characteristic(frequencies, EVEN, MEANS, VARIANCES["known"]) + noise
    offset, shape = np.log(VARIANCES["known"][0]), Shape(3, "known", True)
    results = decode(sketch, frequencies, 0.2, shape, np.log(EVEN), offset, keep=4)
    assert len(results) == 4
    losses = [
        np.sum((sketch - characteristic(frequencies, EVEN, one.mean, one.variance)) ** 2) / 0.2**2
        + np.sum(one.mean**2)
        for one in results
    ]
    assert (np.diff(losses) > -1e-2).all(), "misfit in units of the error, and the prior of the means"
    alone = decode(sketch, frequencies, 0.2, shape, np.log(EVEN), offset)
    assert len(alone) == 1
    np.testing.assert_array_equal(alone[0].mean, results[0].mean)


def test_a_record_s_sketch_fits_its_block_unclipped() -> None:
    made = block(150)
    assert (made.name, made.size, made.share) == ("sketch", 300, 1.0)
    assert math.sqrt(150) * (1 + 5e-5) < made.clip < math.sqrt(150) * (1 + 1e-3)
    assert made.norm_units * (math.sqrt(150) / made.clip) + math.sqrt(made.size) / 2 < made.norm_units
