from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import statsmodels.datasets.fair

from dpsep.families import DiagonalGaussian, Gamma, Gaussian
from dpsep.inference import ep, nuts
from dpsep.models import (
    GLM,
    GaussianLikelihood,
    GaussianMean,
    LearnedNoise,
    LogisticLikelihood,
    PoissonLikelihood,
    ProbitLikelihood,
    WeightsAndNoise,
)

MODES = ["sequential", "parallel"]


class Plain:
    """The same model without the type that selects the rank-one path."""

    def __init__(self, likelihood):
        self.local_factor = GLM(likelihood).local_factor


def regression(seed: int, rows: int, columns: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(rows, columns))
    return x, x @ rng.normal(size=columns) + rng.normal(size=rows)


def fair() -> tuple[np.ndarray, np.ndarray]:
    """2000 women of the survey of Fair (1978): affairs or none, on standardised columns and a constant."""
    data: Any = statsmodels.datasets.fair.load_pandas()
    rows = np.random.default_rng(0).permutation(len(data.endog))[:2000]
    x = data.exog.to_numpy()[rows]
    x = np.column_stack([np.ones(len(x)), (x - x.mean(0)) / x.std(0)])
    return x, np.where(data.endog.to_numpy()[rows] > 0, 1.0, -1.0)


@pytest.mark.parametrize("mode", MODES)
def test_the_mean_of_gaussian_records_ends_at_the_conjugate_posterior(mode):
    records, noise = np.random.default_rng(0).normal(size=(40, 2)), np.array([[2.0, 0.5], [0.5, 1.0]])
    with jax.enable_x64(True):
        model = GaussianMean(tuple(map(tuple, noise.tolist())))
        state = ep.run(model, Gaussian.isotropic(2, 0.5), records, mode=mode)
        np.testing.assert_allclose(state.posterior.precision, 0.5 * np.eye(2) + 40 * noise, rtol=1e-10)
        np.testing.assert_allclose(state.posterior.eta, noise @ records.sum(0), rtol=1e-10, atol=1e-10)
        assert int(state.sweeps) == 2


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("wrap", [GLM, Plain])
def test_linear_regression_with_known_noise_ends_at_the_conjugate_posterior(mode, wrap):
    x, y = regression(1, 120, 4)
    with jax.enable_x64(True):
        state = ep.run(wrap(GaussianLikelihood(2.5)), Gaussian.isotropic(4, 0.3), (x, y), mode=mode)
        np.testing.assert_allclose(
            state.posterior.precision, 0.3 * np.eye(4) + 2.5 * x.T @ x, rtol=1e-8, atol=1e-8
        )
        np.testing.assert_allclose(state.posterior.eta, 2.5 * x.T @ y, rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("likelihood", [ProbitLikelihood(), LogisticLikelihood("fast")])
def test_every_path_ends_at_one_fixed_point(likelihood):
    x, u = regression(2, 60, 3)
    y = np.where(u > 0, 1.0, -1.0)
    with jax.enable_x64(True):
        prior = Gaussian.isotropic(3, 0.5)
        ends = [
            ep.run(wrap(likelihood), prior, (x, y), mode=mode, damping=damping, max_iter=200, tol=1e-12)
            for wrap, mode, damping in [
                (GLM, "sequential", 0.0),
                (GLM, "parallel", 0.3),
                (Plain, "sequential", 0.2),
                (Plain, "parallel", 0.3),
            ]
        ]
        assert all(float(end.change) <= 1e-12 for end in ends)
        for end in ends[1:]:
            np.testing.assert_allclose(end.posterior.eta, ends[0].posterior.eta, rtol=1e-8, atol=1e-8)
            np.testing.assert_allclose(
                end.posterior.precision, ends[0].posterior.precision, rtol=1e-8, atol=1e-8
            )


def test_counts_converge_from_a_wide_prior_under_damping():
    rng = np.random.default_rng(3)
    x = np.column_stack([np.ones(150), rng.normal(size=150)])
    y = rng.poisson(np.exp(x @ [1.0, 0.8])).astype(float)
    with jax.enable_x64(True):
        prior = Gaussian.isotropic(2, 0.01)
        one = ep.run(GLM(PoissonLikelihood()), prior, (x, y))
        two = ep.run(GLM(PoissonLikelihood()), prior, (x, y), mode="parallel", damping=0.5)
        np.testing.assert_allclose(one.posterior.mean, two.posterior.mean, rtol=1e-5)
        np.testing.assert_allclose(one.posterior.mean, [1.0, 0.8], atol=0.2)


@pytest.mark.parametrize(
    "likelihood", [pytest.param(ProbitLikelihood(), marks=pytest.mark.deep), LogisticLikelihood("fast")]
)
def test_expectation_propagation_agrees_with_hamiltonian_monte_carlo_on_the_affairs_survey(likelihood):
    x, y = fair()
    with jax.enable_x64(True):
        prior = Gaussian.isotropic(x.shape[1])
        state = jax.jit(ep.run, static_argnums=0)(GLM(likelihood), prior, (x, y))
        draws = nuts.run(likelihood, prior, (x, y), jax.random.key(0), draws=5000, warmup=300, chains=2)
        assert int(draws.diverging) == 0
        deviation = np.sqrt(np.diag(draws.covariance))
        np.testing.assert_array_less(np.abs(state.posterior.mean - draws.mean), 0.05 * deviation)
        np.testing.assert_allclose(np.sqrt(state.posterior.variance), deviation, rtol=0.05)


@pytest.mark.parametrize("mode", MODES)
def test_learned_noise_agrees_with_the_posterior_on_a_grid(mode):
    rng = np.random.default_rng(4)
    x = rng.normal(size=(100, 1))
    y = 0.7 * x[:, 0] + 0.5 * rng.normal(size=100)
    w, log_tau = np.meshgrid(np.linspace(0.2, 1.2, 801), np.linspace(0.2, 2.8, 801), indexing="ij")
    square = y @ y - 2 * w * (x[:, 0] @ y) + w**2 * (x[:, 0] @ x[:, 0])
    # Prior N(0, 1) on w, Gamma(2, 1) on tau; the Jacobian of log tau turns the shape's a - 1 into a.
    log_density = -0.5 * w**2 + (2.0 + 50.0) * log_tau - np.exp(log_tau) * (1.0 + 0.5 * square)
    weight = np.exp(log_density - log_density.max())
    weight /= weight.sum()
    mean = (weight * w).sum()
    deviation = np.sqrt((weight * (w - mean) ** 2).sum())
    tau = (weight * np.exp(log_tau)).sum()
    with jax.enable_x64(True):
        prior = WeightsAndNoise(Gaussian.isotropic(1), Gamma.from_shape_and_rate(2.0, 1.0))
        state = ep.run(LearnedNoise(), prior, (x, y), mode=mode, damping=0.2, tol=1e-9)
        assert float(state.change) <= 1e-9
        assert abs(float(state.posterior.weights.mean[0]) - mean) < 0.02 * deviation
        assert float(state.posterior.weights.variance[0]) ** 0.5 == pytest.approx(deviation, rel=0.02)
        assert float(state.posterior.noise.mean) == pytest.approx(tau, rel=0.01)


def test_a_diagonal_family_stores_whole_factors_and_float32_works_under_jit():
    x, u = regression(5, 50, 3)
    y = np.where(u > 0, 1.0, -1.0)
    records = (jnp.asarray(x, jnp.float32), jnp.asarray(y, jnp.float32))
    state = jax.jit(lambda r: ep.run(GLM(ProbitLikelihood()), DiagonalGaussian.isotropic(3), r, tol=1e-5))(
        records
    )
    assert state.sites.precision.shape == (50, 3)
    assert state.posterior.precision.dtype == jnp.float32
    assert float(state.change) <= 1e-5


def test_a_record_that_is_not_finite_is_skipped_and_counted():
    x, y = jnp.array([[1.0], [jnp.nan], [2.0]]), jnp.ones(3)
    for model in (GLM(GaussianLikelihood(1.0)), Plain(GaussianLikelihood(1.0))):
        prior = Gaussian.isotropic(1)
        for mode in ("sequential", "parallel"):
            _, info = ep.step(model, prior, ep.init(model, prior, (x, y)), (x, y), mode)
            assert int(info.skipped) == 1


def test_wrong_settings_are_refused_with_what_is_allowed():
    model, prior, records = GaussianMean(1.0), Gaussian.isotropic(1), jnp.zeros((2, 1))
    with pytest.raises(ValueError, match="'sequential' or 'parallel'"):
        ep.run(model, prior, records, mode="serial")  # pyright: ignore
    with pytest.raises(ValueError, match="at least 0"):
        ep.run(model, prior, records, damping=1.0)
