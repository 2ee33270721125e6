"""Fits without privacy: clipped SEP is the same algorithm, and the other methods agree with it."""

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.integrate import quad
from scipy.stats import nbinom, norm, poisson
from scipy.stats import t as student

from dpsep import LinearRegression, LogisticRegression, PoissonRegression, ProbitRegression
from dpsep.estimators.columns import own_scaling
from dpsep.families import Gaussian
from dpsep.inference import sep, sep_newton
from dpsep.models import GLM, ProbitLikelihood
from dpsep.models.glm import Columns, GLMContribution
from dpsep.privacy.grid import Block
from dpsep.privacy.open_gate import OpenGate

from .made import ALL, BINARY, BOUNDS, COLUMNS, IDS, LINEAR, ROWS, table

D = COLUMNS + 1


def direct(x: np.ndarray, y: np.ndarray, clip: float, prior_scale: float) -> sep_newton.State:
    """Clipped SEP for probit regression by hand; bounds (-1, 1) leave the columns as they are."""
    sizes = clip * math.sqrt(D / ROWS), clip * D / ROWS
    blocks = [Block("mean", D, sizes[0], 0.5), Block("precision", D, sizes[1], 0.5, "outer")]
    one: Any = np.ones(COLUMNS)
    whole: Any = np.float64(1.0)
    likelihood = ProbitLikelihood()
    guess = likelihood.curvature_guess
    settings = sep_newton.Settings(
        prior_mean=np.zeros(D),
        prior_precision=np.diag([(10 * prior_scale) ** -2.0, *(own_scaling(x).scale / prior_scale) ** 2]),
        features=Columns(-one, one, 0.0 * one, one),
        outcome=Columns(-np.inf * whole, np.inf * whole, 0.0 * whole, whole),
        start=ROWS * guess * np.array([1.0, 0.25, 0.25]),
        cap=2.0 * math.sqrt(ROWS * guess),
    )
    gate = OpenGate((x, y), blocks, GLMContribution(likelihood))
    return sep_newton.run(gate, settings, 200, 1e-9)


def test_a_fit_with_a_clip_is_clipped_sep_bit_for_bit():
    x, y = table(ProbitRegression)
    model: Any = ProbitRegression(private=False, clip=1.2, prior_scale=1.5, **BINARY).fit(x, y)
    state = direct(x, y, 1.2, 1.5)
    np.testing.assert_array_equal(model.coef_[0], state.mean[1:])
    np.testing.assert_array_equal(model.intercept_[0], state.mean[0])
    assert model.n_iter_ == state.step
    free = ProbitRegression(private=False, prior_scale=1.5, **BINARY).fit(x, y)
    assert np.abs(free.coef_ - model.coef_).max() > 1e-3


def test_the_paper_s_update_with_a_clip_is_its_own_run_bit_for_bit():
    x, y = table(ProbitRegression)
    parameters: dict[str, Any] = {"update": "natural", "clip": 0.4, "gamma": float(ROWS), "steps": 3}
    model = ProbitRegression(private=False, prior_scale=1.0, random_state=5, **parameters, **BINARY).fit(x, y)
    generator = np.random.default_rng(5)
    order = np.concatenate([generator.permutation(ROWS) for _ in range(3)])
    with jax.enable_x64(True):
        prior = Gaussian(jnp.zeros(D), jnp.diag(jnp.array([0.01, *own_scaling(x).scale ** 2])))
        settings = sep.Settings(prior, ROWS, gamma=float(ROWS), clip=0.4)
        records = np.column_stack([np.ones(ROWS), x]), y
        q = sep.posterior(settings, sep.run(GLM(ProbitLikelihood()), settings, records, order))
        np.testing.assert_array_equal(model.coef_[0], q.mean[1:])


@pytest.mark.parametrize(("maker", "declared"), ALL, ids=IDS)
def test_a_clip_of_zero_returns_the_prior(maker, declared):
    model = maker(private=False, clip=0, prior_scale=1.5, **declared).fit(*table(maker))
    np.testing.assert_array_equal(np.ravel(model.coef_), 0.0)
    scale = 4.0 if maker is LinearRegression else 1.0  # the reach of the target's bounds
    prior = np.array([15.0, *1.5 / own_scaling(table(maker)[0]).scale])
    np.testing.assert_allclose(model.posterior_.sd, scale * prior, rtol=1e-9)


@pytest.mark.parametrize(("maker", "declared"), ALL, ids=IDS)
def test_an_infinite_clip_is_no_clip_and_a_wide_one_differs_by_rounding(maker, declared):
    x, y = table(maker)
    free, infinite, wide = (
        maker(private=False, clip=clip, **declared).fit(x, y) for clip in (None, math.inf, 60.0)
    )
    np.testing.assert_array_equal(free.posterior_.mean, infinite.posterior_.mean)
    np.testing.assert_array_equal(free.posterior_.covariance, infinite.posterior_.covariance)
    distance = np.abs(wide.posterior_.mean - free.posterior_.mean) / free.posterior_.sd
    # Half a unit of the grid a record, in posterior standard deviations, in D directions.
    assert distance.max() < ROWS * math.sqrt(D) * 60.0 * math.sqrt(D / ROWS) / 2**21
    # Counts' dispersion is learned where nothing is clipped.
    rtol = 0.1 if maker is PoissonRegression else 1e-3
    np.testing.assert_allclose(wide.posterior_.sd, free.posterior_.sd, rtol=rtol)


@pytest.mark.parametrize("method", ["ep", "adf"])
@pytest.mark.parametrize("maker", [LinearRegression, ProbitRegression])
def test_other_methods_come_close_to_the_default(maker, method):
    declared = LINEAR if maker is LinearRegression else BINARY
    x, y = table(maker)
    default, other = (maker(private=False, method=m, **declared).fit(x, y) for m in ("sep", method))
    limit = 0.05 if method == "ep" else 1.0  # ADF depends on the order of the records
    assert (np.abs(other.posterior_.mean - default.posterior_.mean) / default.posterior_.sd).max() < limit
    np.testing.assert_allclose(
        other.posterior_.sd, default.posterior_.sd, rtol=0.05 if method == "ep" else 0.2
    )


def test_linear_regression_with_known_noise_is_conjugate():
    x, y = table(LinearRegression)
    model = LinearRegression(private=False, noise_precision=6.25, prior_scale=2.0, **BOUNDS).fit(x, y)
    design = np.column_stack([np.ones(ROWS), x])
    precision = np.diag([1 / 400, *(own_scaling(x).scale / 2.0) ** 2]) + 6.25 * design.T @ design
    np.testing.assert_allclose(
        model.posterior_.mean, np.linalg.solve(precision, 6.25 * design.T @ y), rtol=1e-9
    )
    np.testing.assert_allclose(model.posterior_.covariance, np.linalg.inv(precision), rtol=1e-9, atol=1e-15)
    mean, sd = model.predict(x, return_std=True)
    variance = np.einsum("ij,jk,ik->i", design, np.linalg.inv(precision), design) + 1 / 6.25
    np.testing.assert_allclose(sd, np.sqrt(variance), rtol=1e-9)
    np.testing.assert_allclose(model.log_predictive_density(x, y), norm.logpdf(y, mean, sd), rtol=1e-9)


def test_learned_noise_finds_the_residual_variance_and_predicts_by_integrating_over_it():
    x, y = table(LinearRegression)
    model = LinearRegression(private=False, **LINEAR).fit(x, y)
    design = np.column_stack([np.ones(ROWS), x])
    residual = y - design @ np.linalg.lstsq(design, y)[0]
    shape, rate = model.posterior_.noise_shape, model.posterior_.noise_rate
    assert shape is not None
    assert rate is not None
    assert rate / shape == pytest.approx(residual @ residual / ROWS, rel=0.02)
    mean, sd = model.predict(x[:3], return_std=True)
    v = sd**2 - rate / (shape - 1)

    def density(log_tau: float, i: int) -> float:
        # Gamma density of tau times tau (the Jacobian), times the normal density of y.
        log_gamma = shape * math.log(rate) + shape * log_tau - rate * math.exp(log_tau) - math.lgamma(shape)
        return math.exp(log_gamma) * float(norm.pdf(y[i], mean[i], math.sqrt(v[i] + math.exp(-log_tau))))

    centre = math.log(shape / rate)
    for i, value in enumerate(model.log_predictive_density(x[:3], y[:3])):
        total = quad(density, centre - 1, centre + 1, args=(i,), epsabs=1e-13)[0]
        assert value == pytest.approx(math.log(total), abs=1e-7)
    # With hardly any spread of the predictor the predictive is Student's t.
    t = student.logpdf(y[:3], 2 * shape, mean, np.sqrt(rate / shape))
    np.testing.assert_allclose(model.log_predictive_density(x[:3], y[:3]), t, atol=0.05)


@pytest.mark.parametrize("maker", [LogisticRegression, ProbitRegression])
def test_class_probabilities_integrate_over_the_posterior(maker):
    x, y = table(maker)
    model = maker(private=False, **BINARY).fit(x, y)
    probability = model.predict_proba(x[:4])
    assert probability.shape == (4, 2)
    np.testing.assert_allclose(probability.sum(axis=1), 1.0, rtol=1e-12)
    design = np.column_stack([np.ones(4), x[:4]])
    mean = design @ model.posterior_.mean
    sd = np.sqrt(np.einsum("ij,jk,ik->i", design, model.posterior_.covariance, design))
    link = norm.cdf if maker is ProbitRegression else lambda u: 1 / (1 + np.exp(-u))
    for i in range(4):
        up = quad(
            lambda u, i=i: link(u) * norm.pdf(u, mean[i], sd[i]), mean[i] - 9 * sd[i], mean[i] + 9 * sd[i]
        )[0]
        assert probability[i, 1] == pytest.approx(up, abs=1e-7)
    odds = np.log(probability[:, 1] / probability[:, 0])
    np.testing.assert_allclose(model.decision_function(x[:4]), odds, rtol=1e-12)
    np.testing.assert_array_equal(model.predict(x[:4]), np.where(mean > 0, 1.0, -1.0))
    chosen = np.where(y[:4] > 0, probability[:, 1], probability[:, 0])
    np.testing.assert_allclose(model.log_predictive_density(x[:4], y[:4]), np.log(chosen), atol=1e-8)


@pytest.mark.parametrize("alpha", [0.0, 0.5])
def test_counts_are_predicted_by_integrating_over_the_posterior(alpha: float):
    x, y = table(PoissonRegression)
    model = PoissonRegression(private=False, **BOUNDS).fit(x, y)
    assert 0 <= model.dispersion_ < 0.2
    model.dispersion_ = alpha
    design = np.column_stack([np.ones(3), x[:3]])
    mean = design @ model.posterior_.mean
    sd = np.sqrt(np.einsum("ij,jk,ik->i", design, model.posterior_.covariance, design))
    count, spread = model.predict(x[:3], return_std=True)
    np.testing.assert_array_equal(count, model.predict(x[:3]))
    density = model.log_predictive_density(x[:3], y[:3])

    def law(rate: Any) -> Any:
        return nbinom(1 / alpha, 1 / (1 + alpha * rate)) if alpha else poisson(rate)

    for i in range(3):

        def expect(f, i=i):
            return quad(
                lambda u: f(u) * norm.pdf(u, mean[i], sd[i]), mean[i] - 9 * sd[i], mean[i] + 9 * sd[i]
            )[0]

        first = expect(np.exp)
        second = expect(lambda u: np.exp(u) + (1 + alpha) * np.exp(2 * u))
        assert count[i] == pytest.approx(first, rel=1e-8)
        assert spread[i] == pytest.approx(math.sqrt(second - first**2), rel=1e-6)
        assert density[i] == pytest.approx(
            math.log(expect(lambda u, i=i: law(np.exp(u)).pmf(y[i]))), abs=1e-8
        )


def test_columns_off_centre_are_mapped_and_the_posterior_is_mapped_back():
    x, y = table(LinearRegression)
    plain = LinearRegression(private=False, noise_precision=6.25, bounds=(-1, 1), prior_scale=100).fit(x, y)
    moved = LinearRegression(private=False, noise_precision=6.25, bounds=(9, 11), prior_scale=100).fit(
        x + 10, y
    )
    np.testing.assert_allclose(moved.coef_, plain.coef_, rtol=1e-5)
    assert moved.intercept_ == pytest.approx(plain.intercept_ - 10 * plain.coef_.sum(), rel=1e-5)
    np.testing.assert_allclose(moved.predict(x + 10), plain.predict(x), rtol=1e-5, atol=1e-6)


def test_without_privacy_bad_cells_are_errors():
    x, y = table(LinearRegression)
    spoiled = x.copy()
    spoiled[3, 1] = np.nan
    with pytest.raises(ValueError, match="NaN"):
        LinearRegression(private=False).fit(spoiled, y)
    with pytest.raises(ValueError, match="counts"):
        PoissonRegression(private=False).fit(x, np.full(ROWS, -0.5))
    with pytest.raises(ValueError, match="undeclared label"):
        LogisticRegression(private=False, classes=[0, 1]).fit(x, np.full(ROWS, 2))


@pytest.mark.parametrize("more", [{}, {"bounds": (10, 20)}, {"bounds": (0, 20), "target_bounds": (0, 30)}])
def test_without_an_intercept_zero_stays_where_it_is(more: dict[str, Any]) -> None:
    rng = np.random.default_rng(0)
    X = rng.uniform(10, 20, (500, 2))
    y = 7 + X @ [1.0, -0.5] + 0.1 * rng.standard_normal(500)
    model = LinearRegression(private=False, fit_intercept=False, **more).fit(X, y)
    assert model.coef_ == pytest.approx(np.linalg.lstsq(X, y, rcond=None)[0], rel=1e-3)
