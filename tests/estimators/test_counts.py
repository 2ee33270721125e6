"""Regressions of counts and of heavy-tailed numbers: dispersion, exposure, outliers."""

from functools import cache
from typing import Any

import numpy as np
import pytest
from scipy import optimize
from scipy import stats as scipy_stats

from dpsep import LinearRegression, NegativeBinomialRegression, PoissonRegression, StudentRegression

stats: Any = scipy_stats
pytestmark = pytest.mark.filterwarnings("ignore::dpsep.PrivacyLeakWarning")
TRUTH, ALPHA, ROWS = np.array([1.0, 0.5, -0.5]), 0.6, 4000
BOX: dict[str, Any] = {"bounds": (-1, 1)}
COUNTS = (PoissonRegression, NegativeBinomialRegression)


@cache
def table(alpha: float = ALPHA, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    x = rng.uniform(-1, 1, (ROWS, 2))
    mean = np.exp(TRUTH[0] + x @ TRUTH[1:])
    return x, rng.poisson(mean * (rng.gamma(1 / alpha, alpha, ROWS) if alpha else 1.0)).astype(float)


def likeliest(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Maximum likelihood of a negative binomial regression: coefficients, then the dispersion."""
    design = np.column_stack([np.ones(len(y)), x])

    def loss(theta: np.ndarray) -> float:
        size = np.exp(-theta[-1])
        mean = np.exp(design @ theta[:-1])
        return -float(np.sum(stats.nbinom.logpmf(y, size, size / (size + mean))))

    found = optimize.minimize(loss, np.append(TRUTH, np.log(ALPHA)), method="BFGS").x
    return np.append(found[:-1], np.exp(found[-1]))


def test_without_privacy_it_is_the_negative_binomial_maximum_likelihood() -> None:
    x, y = table()
    model = NegativeBinomialRegression(private=False, **BOX).fit(x, y)
    exact = likeliest(x, y)
    assert np.abs((model.posterior_.mean - exact[:3]) / model.posterior_.sd).max() < 0.1
    assert model.dispersion_ == pytest.approx(exact[3], abs=2 * model.dispersion_sd_)
    assert 0.01 < model.dispersion_sd_ < 0.1
    design = np.column_stack([np.ones(ROWS), x])
    mean = np.exp(design @ exact[:3])
    fisher = (design.T * (mean / (1 + exact[3] * mean))) @ design
    np.testing.assert_allclose(model.posterior_.sd, np.sqrt(np.diag(np.linalg.inv(fisher))), rtol=0.1)


def test_a_poisson_regression_widens_by_the_overdispersion_that_it_finds() -> None:
    x, y = table()
    model = PoissonRegression(private=False, **BOX).fit(x, y)
    design = np.column_stack([np.ones(ROWS), x])
    mean = np.exp(design @ model.posterior_.mean)
    bread = np.linalg.inv((design.T * mean) @ design)
    robust = bread @ ((design.T * (mean + ALPHA * mean**2)) @ design) @ bread
    np.testing.assert_allclose(model.posterior_.sd, np.sqrt(np.diag(robust)), rtol=0.1)
    assert "overdispersed" in model.summary().note
    plain = PoissonRegression(private=False, **BOX).fit(*table(0.0))
    assert plain.dispersion_ < 0.05
    assert "overdispersed" not in plain.summary().note


@pytest.mark.parametrize("maker", COUNTS)
@pytest.mark.parametrize("alpha", [0.0, ALPHA])
def test_private_fits_of_counts_find_both_coefficients_and_dispersion(maker: Any, alpha: float) -> None:
    scores, dispersion = [], []
    for seed in range(4):
        model = maker(epsilon=3.0, random_state=seed, **BOX).fit(*table(alpha, seed))
        scores += list((model.posterior_.mean - TRUTH) / model.posterior_.sd)
        dispersion.append(model.dispersion_)
    assert 0.4 < np.sqrt(np.mean(np.square(scores))) < 1.8
    assert np.mean(dispersion) == pytest.approx(alpha, abs=0.15)


@pytest.mark.parametrize("private", [False, True])
@pytest.mark.parametrize("maker", COUNTS)
def test_an_offset_is_the_logarithm_of_an_exposure(maker: Any, private: bool) -> None:
    rng = np.random.default_rng(3)
    time, x = rng.uniform(0.1, 10.0, ROWS), rng.uniform(-1, 1, ROWS)
    y = rng.poisson(time * np.exp(-1 + 0.5 * x)).astype(float)
    bounds = ([-1.0, -3.0], [1.0, 3.0])
    model = maker(private=private, epsilon=2.0, bounds=bounds, offset=1, random_state=0)
    model.fit(np.column_stack([x, np.log(time)]), y)
    found = model.posterior_
    assert found.mean[2] == pytest.approx(1.0, abs=1e-3)
    assert not found.unreached.any()
    assert (np.abs(found.mean[:2] - [-1.0, 0.5]) < 4 * found.sd[:2]).all()
    twice = model.predict([[0.3, np.log(2.0)]]) / model.predict([[0.3, 0.0]])
    assert twice == pytest.approx(2.0, rel=1e-3)


@pytest.mark.parametrize("offset", ["time", 2, -1, 0.5])
def test_an_offset_that_is_no_column_is_refused_by_name(offset: Any) -> None:
    with pytest.raises(ValueError, match=r"offset"):
        PoissonRegression(offset=offset, **BOX).fit(*table())


def test_an_offset_is_not_for_the_papers_update() -> None:
    with pytest.raises(ValueError, match="leave offset out"):
        PoissonRegression(offset=0, update="natural", clip=1.0, **BOX).fit(*table())


@pytest.mark.parametrize("private", [False, True])
def test_outliers_pull_a_students_regression_little(private: bool) -> None:
    rng = np.random.default_rng(4)
    x = rng.uniform(-1, 1, (ROWS, 2))
    y = x @ [1.0, -0.5] + 0.2 * rng.standard_t(3, ROWS)
    y[: ROWS // 50] = 5.0 * np.sign(x[: ROWS // 50, 0])  # two in a hundred are far off, with the first column
    how: dict[str, Any] = {"private": private, "epsilon": 3.0, "bounds": (-1, 1), "target_bounds": (-6, 6)}
    student = StudentRegression(degrees=3.0, random_state=0, **how).fit(x, y)
    normal = LinearRegression(random_state=0, **how).fit(x, y)
    assert abs(student.coef_[0] - 1.0) < 0.06
    # With privacy residuals of a normal model are cut, too.
    assert private or abs(normal.coef_[0] - 1.0) > 0.06
    assert student.posterior_.noise_shape is not None
    assert student.posterior_.noise_rate is not None
    scale = np.sqrt(student.posterior_.noise_rate / student.posterior_.noise_shape)
    assert scale == pytest.approx(0.2, rel=0.25)
    mean, deviation = student.predict(x[:3], return_std=True)
    np.testing.assert_allclose(deviation, np.sqrt(3.0) * scale, rtol=0.05)
    below, upto = student.predictive_cdf(x[:3], mean)
    np.testing.assert_allclose(upto, 0.5, atol=1e-6)
    np.testing.assert_allclose(below, upto)
