import jax
import jax.numpy as jnp
import mpmath
import numpy as np
import pytest

from dpsep.models import LogisticLikelihood, PoissonLikelihood

from . import reference

MODELS = {
    "logistic": (LogisticLikelihood, reference.logistic_terms),
    "poisson": (PoissonLikelihood, reference.poisson_terms),
}


def random_cavities(name: str, count: int, largest: float, seed: int = 0):
    """Variances from 1e-8 to `largest`, means up to 30 deviations out, counts up to 1000."""
    rng = np.random.default_rng(seed)
    variance = 10 ** rng.uniform(-8, np.log10(largest), count)
    mean = rng.uniform(-30, 30, count) * rng.choice([1.0, 0.3, 0.05], count) * np.sqrt(variance)
    if name == "logistic":
        return mean, variance, rng.choice([-1.0, 1.0], count)
    y = np.floor(10 ** rng.uniform(-0.5, 3.0, count))
    near = np.log(y + 0.5) + mean / 6
    return np.where(rng.uniform(size=count) < 0.5, mean, near), variance, y


def compare(result, exact, rtol):
    np.testing.assert_allclose(result.log_z, exact.log_z.astype(float), rtol=rtol, atol=1e-11)
    for name in ("gradient", "curvature", "shrinkage"):
        expected = getattr(exact, name).astype(float)
        # The variance of l' has a floor where l' itself rounds: 1e-32 of its square.
        known = np.abs(expected) > 1e-22
        np.testing.assert_allclose(getattr(result, name)[known], expected[known], rtol=rtol, err_msg=name)


@pytest.mark.parametrize("name", MODELS)
def test_the_robust_rule_is_exact_to_eight_digits_over_a_thousand_cavities(name):
    likelihood, terms = MODELS[name]
    mean, variance, y = random_cavities(name, 1000, 1e2)
    exact = reference.tilted(terms, mean, variance, y)
    with jax.enable_x64(True):
        result = jax.tree.map(np.asarray, jax.jit(likelihood().tilted)(mean, variance, y))
    compare(result, exact, 1e-8)
    # Tilted mean and variance, as the posterior sees them.
    np.testing.assert_allclose(
        mean + variance * result.gradient,
        (mean + variance * exact.gradient).astype(float),
        rtol=1e-8,
        atol=1e-9,
    )


@pytest.mark.parametrize("name", MODELS)
def test_the_robust_rule_holds_at_variances_of_a_trillionth_and_a_thousand(name):
    likelihood, terms = MODELS[name]
    for size in (1e-12, 1e3):
        mean, _, y = random_cavities(name, 40, 1.0, seed=3)
        variance = np.full(40, size)
        exact = reference.tilted(terms, mean, variance, y)
        with jax.enable_x64(True):
            result = jax.tree.map(np.asarray, jax.jit(likelihood().tilted)(mean, variance, y))
        compare(result, exact, 1e-8)


@pytest.mark.parametrize("name", MODELS)
def test_the_fast_rule_is_exact_to_eight_digits_for_variances_up_to_one(name):
    likelihood, terms = MODELS[name]
    mean, variance, y = random_cavities(name, 300, 1.0, seed=1)
    exact = reference.tilted(terms, mean, variance, y)
    with jax.enable_x64(True):
        result = jax.tree.map(np.asarray, jax.jit(likelihood(rule="fast").tilted)(mean, variance, y))
    compare(result, exact, 1e-8)


@pytest.mark.parametrize(
    ("m", "v", "y"), [(0.3, 1.0, 1), (-2.0, 1e-4, -1), (4.0, 30.0, -1), (40.0, 80.0, 1), (-9.0, 9.0, 1)]
)
def test_logistic_moments_are_the_derivatives_of_the_normaliser_in_fifty_digits(m, v, y):
    with mpmath.workdps(50):
        around = mpmath.mpf(m)
        exact = reference.mp_derivatives(
            lambda mean: reference.mp_log_z(
                lambda u: -mpmath.log1p(mpmath.exp(-y * u)), mean, mpmath.mpf(v), around
            ),
            mpmath.mpf(m),
        )
    with jax.enable_x64(True):
        result = jax.jit(LogisticLikelihood().tilted)(m, v, float(y))
    np.testing.assert_allclose(np.array(result[:3]), exact, rtol=1e-9)
    assert float(result.shrinkage) == pytest.approx(1 - v * exact[2], rel=1e-9)


@pytest.mark.parametrize(("m", "v", "y"), [(0.3, 1.0, 0), (2.0, 1e-4, 9), (1.0, 4.0, 3), (-3.0, 2.0, 0)])
def test_poisson_moments_are_the_derivatives_of_the_normaliser_in_fifty_digits(m, v, y):
    with mpmath.workdps(50):
        constant = mpmath.loggamma(y + 1)
        exact = reference.mp_derivatives(
            lambda mean: reference.mp_log_z(
                lambda u: y * u - mpmath.exp(u) - constant, mean, mpmath.mpf(v), mpmath.mpf(m)
            ),
            mpmath.mpf(m),
        )
    with jax.enable_x64(True):
        result = jax.jit(PoissonLikelihood().tilted)(m, v, float(y))
    np.testing.assert_allclose(np.array(result[:3]), exact, rtol=1e-9)


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("rule", ["robust", "fast"])
def test_a_cavity_without_width_sees_the_likelihood_itself(name, rule):
    likelihood, terms = MODELS[name]
    mean, y = np.array([-1.0, 0.0, 2.0]), np.array([1.0, 1.0, 1.0])
    value, first, second = terms(mean, y)
    with jax.enable_x64(True):
        result = jax.jit(likelihood(rule=rule).tilted)(mean, np.zeros(3), y)
    np.testing.assert_allclose(result.log_z, value, rtol=1e-10)
    np.testing.assert_allclose(result.gradient, first, rtol=1e-10)
    np.testing.assert_allclose(result.curvature, -second, rtol=1e-10)
    np.testing.assert_array_equal(result.shrinkage, 1.0)


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("rule", ["robust", "fast"])
def test_float32_keeps_its_own_digits_and_its_type(name, rule):
    likelihood, terms = MODELS[name]
    rng = np.random.default_rng(2)
    mean, variance = rng.normal(size=50), 10 ** rng.uniform(-3, 0, 50)
    y = np.where(rng.uniform(size=50) < 0.5, 1.0, -1.0 if name == "logistic" else 4.0)
    exact = reference.tilted(terms, mean, variance, y)
    single = [np.asarray(part, np.float32) for part in (mean, variance, y)]
    result = jax.vmap(jax.jit(likelihood(rule=rule).tilted))(*single)
    assert all(part.dtype == jnp.float32 for part in result)
    np.testing.assert_allclose(result.gradient, exact.gradient.astype(float), rtol=1e-3, atol=1e-4)
    np.testing.assert_allclose(result.curvature, exact.curvature.astype(float), rtol=1e-3, atol=1e-4)
    np.testing.assert_allclose(result.shrinkage, exact.shrinkage.astype(float), rtol=1e-4)


def test_an_unknown_rule_is_refused_by_name():
    with pytest.raises(ValueError, match="'exact' is unknown; use one of 'robust', 'fast'"):
        LogisticLikelihood(rule="exact").tilted(0.0, 1.0, 1.0)  # pyright: ignore
