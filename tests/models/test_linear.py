from typing import Any

import jax
import jax.numpy as jnp
import mpmath
import numpy as np
import pytest
import scipy.stats

from dpsep.families import Gamma, Gaussian
from dpsep.models import GaussianLikelihood, LearnedNoise, WeightsAndNoise, site

# Cavity mean, variance, shape, rate, outcome.
CASES = [
    (0.3, 0.5, 3.0, 2.0, 1.1),
    (0.0, 1e-6, 2.0, 2.0, 0.7),
    (0.0, 0.02, 1e5, 4e4, 1.3),
    (1.0, 2.0, 1e5, 1e5, -0.4),
    (0.0, 1e-4, 1e5, 1e5, 2.5),
    (0.0, 3.0, 0.8, 0.5, 12.0),
    (0.0, 1.5, 1e3, 150.0, 9.0),
]


def exact_tilted(m, v, a, b, y) -> list[float]:
    """log Z, g, s, 1 - v s and the Gamma factor, by dense panels in log tau with 50 digits."""
    with mpmath.workdps(50):
        m, v, a, b, y = (mpmath.mpf(part) for part in (m, v, a, b, y))
        square = (y - m) ** 2

        def log_density(s):
            total = v + mpmath.exp(-s)
            return a * s - b * mpmath.exp(s) - mpmath.log(total) / 2 - square / (2 * total)

        centres = [mpmath.log(a / b), mpmath.log((a + 0.5) / (b + square / 2))]
        width = 1 / mpmath.sqrt(a)
        low = min(centres) - 60 / a - 14 * width
        high = max(centres) + mpmath.log1p(60 / a + 14 * width)
        count = 60
        ends = [low + (high - low) * k / count for k in range(count + 1)]
        top = max(log_density(s) for s in ends)

        def integral(value) -> Any:
            return mpmath.quad(lambda s: value(s) * mpmath.exp(log_density(s) - top), ends, maxdegree=3)

        z = integral(lambda s: 1)
        mean, mean_log = integral(mpmath.exp) / z, integral(lambda s: s) / z
        k = integral(lambda s: 1 / (v + mpmath.exp(-s))) / z
        k2 = integral(lambda s: (v + mpmath.exp(-s)) ** -2) / z
        log_z = mpmath.log(z) + top + a * mpmath.log(b) - mpmath.loggamma(a) - mpmath.log(2 * mpmath.pi) / 2
        gap = mpmath.log(mean) - mean_log
        shape = mpmath.findroot(
            lambda t: mpmath.log(t) - mpmath.digamma(t) - gap,
            (1 + mpmath.sqrt(1 + 4 * gap / 3)) / (4 * gap),
            verify=False,
        )
        curvature = k - square * (k2 - k * k)
        values = (log_z, (y - m) * k, curvature, 1 - v * curvature, shape - a, shape / mean - b)
        return [float(value) for value in values]


@pytest.mark.parametrize("case", CASES)
def test_learned_noise_matches_the_integrals_in_fifty_digits(case):
    m, v, a, b, y = case
    with jax.enable_x64(True):
        tilted, factor = jax.jit(LearnedNoise().tilted)(m, v, Gamma.from_shape_and_rate(a, b), y)
    exact = exact_tilted(*case)
    np.testing.assert_allclose(np.array(tilted), exact[:4], rtol=1e-8)
    np.testing.assert_allclose(np.array(factor), exact[4:], rtol=1e-6)


@pytest.mark.parametrize("shape", [0.7, 40.0, 1e5, 1e8])
def test_without_spread_the_noise_factor_is_a_half_and_half_the_squared_residual(shape):
    with jax.enable_x64(True):
        tilted, factor = jax.jit(LearnedNoise().tilted)(
            0.5, 0.0, Gamma.from_shape_and_rate(shape, shape / 3), 2.0
        )
        assert [float(part) for part in factor] == [0.5, 1.125]
        # The normaliser is Student's t with 2 a degrees of freedom and scale sqrt(b / a).
        expected = scipy.stats.t.logpdf(1.5, 2 * shape, scale=np.sqrt(1 / 3)) if shape < 1e7 else None
        if expected is not None:
            assert float(tilted.log_z) == pytest.approx(expected, rel=1e-9)
        assert float(tilted.shrinkage) == pytest.approx(1.0, rel=1e-14)


def test_a_sharp_noise_precision_is_a_known_one():
    with jax.enable_x64(True):
        known = GaussianLikelihood(2.0).tilted(0.2, 0.7, 1.0)
        learned, _ = jax.jit(LearnedNoise().tilted)(0.2, 0.7, Gamma.from_shape_and_rate(2e12, 1e12), 1.0)
        np.testing.assert_allclose(np.array(learned), np.array(known), rtol=1e-9)


def test_learned_noise_predicts_and_works_in_float32_under_vmap():
    noise = Gamma.from_shape_and_rate(3.0, 4.0)
    mean, variance = LearnedNoise().predictive(1.0, 0.5, noise)
    assert (float(mean), float(variance)) == (1.0, 2.5)
    assert float(LearnedNoise().predictive(1.0, 0.5, Gamma.from_shape_and_rate(1.0, 4.0)).variance) == np.inf
    cavity = WeightsAndNoise(Gaussian.isotropic(2), noise)
    x, y = jnp.array([[1.0, 2.0], [0.0, 0.0]]), jnp.array([1.0, jnp.nan])
    factors = jax.jit(jax.vmap(LearnedNoise().local_factor, (None, 0)))(cavity, (x, y.at[1].set(0.5)))
    assert factors.weights.precision.dtype == jnp.float32
    assert all(np.all(np.isfinite(leaf)) for leaf in jax.tree.leaves(factors))
    np.testing.assert_array_equal(factors.weights.precision[1], 0.0)
    np.testing.assert_array_equal(LearnedNoise().valid(y), [True, False])
    exact = exact_tilted(0.0, 5.0, 3.0, 4.0, 1.0)
    tilted, factor = jax.jit(LearnedNoise().tilted)(
        jnp.float32(0.0), jnp.float32(5.0), noise, jnp.float32(1.0)
    )
    np.testing.assert_allclose(np.array([*tilted, *factor]), exact, rtol=1e-3, atol=1e-3)


def test_known_noise_gives_back_the_likelihood_as_its_own_factor():
    with jax.enable_x64(True):
        rng = np.random.default_rng(0)
        mean, variance, y = rng.normal(size=20), 10 ** rng.uniform(-12, 3, 20), rng.normal(size=20)
        likelihood = GaussianLikelihood(3.0)
        tilted = likelihood.tilted(mean, variance, y)
        factor = site(tilted, mean, variance)
        np.testing.assert_allclose(factor.precision, 3.0, rtol=1e-12)
        np.testing.assert_allclose(factor.mean_part, 3.0 * y, rtol=1e-9, atol=1e-11)
        centred = site(tilted, mean, variance, origin=mean)
        np.testing.assert_allclose(centred.mean_part, 3.0 * (y - mean), rtol=1e-11)
        exact = scipy.stats.norm.logpdf(y, mean, np.sqrt(variance + 1 / 3))
        np.testing.assert_allclose(tilted.log_z, exact, rtol=1e-12)
        np.testing.assert_allclose(
            likelihood.log_likelihood(mean, y), scipy.stats.norm.logpdf(y, mean, 3**-0.5)
        )


def test_known_noise_predicts_draws_and_checks_its_outcomes():
    likelihood = GaussianLikelihood(4.0)
    assert [float(part) for part in likelihood.predictive(1.0, 0.5)] == [1.0, 0.75]
    draws = np.asarray(likelihood.sample(jax.random.key(0), jnp.zeros(50_000)))
    assert draws.std() == pytest.approx(0.5, rel=0.02)
    np.testing.assert_array_equal(likelihood.valid(jnp.array([0.0, jnp.nan, jnp.inf])), [True, False, False])
    assert likelihood.curvature_guess == 4.0


@pytest.mark.parametrize("bad", [0.0, -1.0, np.nan, np.inf])
def test_a_noise_precision_that_is_not_positive_is_refused(bad):
    with pytest.raises(ValueError, match="positive finite number"):
        GaussianLikelihood(bad)
