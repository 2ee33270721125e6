import jax
import jax.numpy as jnp
import mpmath
import numpy as np
import pytest

from dpsep.models import ProbitLikelihood
from dpsep.models.probit import log_ndtr, mills

POINTS = [
    -1e8,
    -1e4,
    -300.0,
    -40.0,
    -12.0,
    -5.0,
    -4.001,
    -3.99,
    -2.01,
    -1.99,
    -1.0,
    -1e-3,
    0.0,
    0.5,
    2.0,
    6.0,
    20.0,
]


def exact_mills(point: float) -> tuple[float, float, float, float]:
    """Inverse Mills ratio r, r + z, 1 - r (r + z) and log Phi, in enough digits that nothing cancels."""
    with mpmath.workdps(80):
        z = mpmath.mpf(point)
        # erfc far out by its own expansion: phi(z) / Phi(z) without underflow.
        if z < -1000:
            x, d = -z, -z
            for level in range(60, 2, -1):
                d = x + level / d
            ratio = x + 1 / (x + 2 / d)
            log_phi = -z * z / 2 - mpmath.log(2 * mpmath.pi) / 2 - mpmath.log(ratio)
        else:
            log_phi = mpmath.log(mpmath.erfc(-z / mpmath.sqrt(2)) / 2)
            ratio = mpmath.exp(-z * z / 2 - log_phi) / mpmath.sqrt(2 * mpmath.pi)
        return float(ratio), float(ratio + z), float(1 - ratio * (ratio + z)), float(log_phi)


@pytest.mark.parametrize("z", POINTS)
def test_the_mills_ratio_and_what_cancels_in_it_keep_their_digits(z):
    ratio, excess, spread, log_phi = exact_mills(z)
    with jax.enable_x64(True):
        result = mills(z)
        np.testing.assert_allclose(np.array(result), [ratio, excess, spread], rtol=1e-12)
        assert float(log_ndtr(z)) == pytest.approx(log_phi, rel=1e-13)
        assert float(jax.grad(log_ndtr)(z)) == pytest.approx(ratio, rel=1e-13)


@pytest.mark.parametrize("z", [z for z in POINTS if abs(z) < 1e5])
def test_float32_keeps_its_own_digits(z):
    ratio, excess, spread, log_phi = exact_mills(z)
    result = mills(jnp.float32(z))
    assert result[0].dtype == jnp.float32
    np.testing.assert_allclose(np.array(result), [ratio, excess, spread], rtol=1e-4, atol=1e-30)
    assert float(log_ndtr(jnp.float32(z))) == pytest.approx(log_phi, rel=1e-5, abs=1e-30)


@pytest.mark.parametrize(("m", "v", "y"), [(0.3, 1.0, 1), (-2.0, 1e-6, 1), (3.0, 50.0, -1), (-400.0, 9.0, 1)])
def test_tilted_moments_are_the_derivatives_of_the_normaliser(m, v, y):
    with mpmath.workdps(60):
        root = mpmath.sqrt(1 + mpmath.mpf(v))

        def log_z(mean):
            return mpmath.log(mpmath.erfc(-y * mean / root / mpmath.sqrt(2)) / 2)

        first = mpmath.diff(log_z, mpmath.mpf(m))
        second = mpmath.diff(log_z, mpmath.mpf(m), 2)
        exact = [float(t) for t in (log_z(mpmath.mpf(m)), first, -second, 1 + v * second)]
    with jax.enable_x64(True):
        np.testing.assert_allclose(np.array(ProbitLikelihood().tilted(m, v, float(y))), exact, rtol=1e-11)


def test_tilted_moments_stay_finite_and_positive_however_far_out():
    with jax.enable_x64(True):
        mean = jnp.array([-1e8, -1e3, 0.0, 1e3, 1e8])
        for variance in (0.0, 1e-12, 1.0, 1e8):
            t = ProbitLikelihood().tilted(mean, variance, 1.0)
            assert all(np.all(np.isfinite(part)) for part in t)
            assert np.all(np.asarray(t.curvature) >= 0)
            assert np.all((np.asarray(t.shrinkage) > 0) & (np.asarray(t.shrinkage) <= 1))


def test_swapping_the_label_mirrors_the_predictor():
    up = ProbitLikelihood().tilted(0.7, 2.0, 1.0)
    down = ProbitLikelihood().tilted(-0.7, 2.0, -1.0)
    np.testing.assert_allclose(np.array(up._replace(gradient=-up.gradient)), np.array(down), rtol=1e-6)


def test_predictions_labels_and_draws_agree():
    model, u = ProbitLikelihood(), jnp.full(100_000, 0.4)
    probability = float(model.probability(0.4, 0.0))
    assert probability == pytest.approx(0.6554217, abs=1e-6)
    draws = np.asarray(model.sample(jax.random.key(0), u))
    assert set(np.unique(draws)) == {-1.0, 1.0}
    assert (draws > 0).mean() == pytest.approx(probability, abs=0.01)
    mean, variance = model.predictive(0.4, 0.0)
    assert float(mean) == pytest.approx(2 * probability - 1, abs=1e-6)
    assert float(variance) == pytest.approx(4 * probability * (1 - probability), abs=1e-6)
    assert float(model.log_predictive(0.4, 0.0, 1.0)) == pytest.approx(float(model.log_likelihood(0.4, 1.0)))
    np.testing.assert_array_equal(model.valid(jnp.array([1.0, -1.0, 0.0, jnp.nan, jnp.inf])), [1, 1, 0, 0, 0])
