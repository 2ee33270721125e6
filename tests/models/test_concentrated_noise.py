import jax
import jax.numpy as jnp
import mpmath
import numpy as np
import pytest

from dpsep.families import Gamma
from dpsep.models import LearnedNoise
from dpsep.models.concentrated_noise import ConcentratedNoise

MEAN = jnp.array([0.3, -1.0, 0.0, 2.0])
VARIANCE = jnp.array([0.02, 0.5, 0.1, 0.001])
Y = jnp.array([0.5, 0.4, -2.0, 2.1])


def cavity(shape: float) -> Gamma:
    return Gamma(jnp.asarray(shape - 1.0), jnp.asarray(shape / 1.7))


def test_the_noise_factor_has_the_first_two_derivatives_of_the_predictive_density_in_tau():
    m, v, y, tau = 0.3, 0.5, 1.9, 1.7

    def log_density(t):
        return -(mpmath.log(v + 1 / t) + (y - m) ** 2 / (v + 1 / t)) / 2

    with jax.enable_x64(True):
        _, factor = ConcentratedNoise().tilted(m, v, cavity(1e6), y)
        alpha, beta = float(factor.shape_minus_one), float(factor.rate)
    with mpmath.workdps(40):
        first, second = mpmath.diff(log_density, tau), mpmath.diff(log_density, tau, 2)
    # The log of a Gamma factor, alpha log tau - beta tau, has these derivatives.
    assert alpha / tau - beta == pytest.approx(float(first), rel=1e-10)
    assert -alpha / tau**2 == pytest.approx(float(second), rel=1e-10)


def test_without_spread_of_the_predictor_both_forms_are_the_same_gamma_factor():
    with jax.enable_x64(True):
        for model in (ConcentratedNoise(), LearnedNoise()):
            tilted, factor = model.tilted(0.25, 0.0, cavity(5.0), 1.5)
            assert float(factor.shape_minus_one) == pytest.approx(0.5, abs=1e-14)
            assert float(factor.rate) == pytest.approx(1.25**2 / 2, rel=1e-14)
            assert float(tilted.shrinkage) == pytest.approx(1.0, abs=1e-14)


def test_it_approaches_the_exact_moments_at_the_rate_one_over_the_shape():
    with jax.enable_x64(True):
        distances = []
        for shape in (1e2, 1e3, 1e4):
            exact, approximate = (
                jnp.concatenate([jnp.ravel(leaf) for leaf in jax.tree.leaves(model.tilted(*arguments))])
                for model, arguments in (
                    (LearnedNoise(), (MEAN, VARIANCE, cavity(shape), Y)),
                    (ConcentratedNoise(), (MEAN, VARIANCE, cavity(shape), Y)),
                )
            )
            distances.append(float(jnp.max(jnp.abs(exact - approximate))))
        # Ten times the shape, a tenth of the distance.
        ratios = np.divide(distances[:-1], distances[1:])
        np.testing.assert_allclose(ratios, 10.0, rtol=0.2)
        assert distances[-1] < 1e-2


def test_the_curvature_is_positive_and_single_precision_works():
    far = jnp.asarray([100.0], jnp.float32)
    noise = Gamma(jnp.asarray(50.0, jnp.float32), jnp.asarray(30.0, jnp.float32))
    tilted, factor = jax.jit(ConcentratedNoise().tilted)(jnp.zeros(1, jnp.float32), jnp.ones(1), noise, far)
    assert float(tilted.curvature[0]) > 0
    assert tilted.gradient.dtype == factor.rate.dtype == jnp.float32
