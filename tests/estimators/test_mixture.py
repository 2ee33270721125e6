"""Mixtures without privacy: against scikit-learn, plain loops, quadrature by draws, and on bad tables."""

import math
from functools import lru_cache
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from scipy.optimize import linear_sum_assignment
from scipy.special import softmax
from scipy.stats import multivariate_normal, norm
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.mixture import GaussianMixture as Reference
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from dpsep import GaussianMixture

WEIGHTS = np.array([0.15, 0.55, 0.3])
MEANS = np.array([[-4.0, 30.0], [2.0, 50.0], [4.0, 10.0]])
DEVIATIONS = np.array([[0.6, 8.0], [1.2, 3.0], [0.8, 6.0]])
KNOWN: dict[str, Any] = {"noise_scale": 1.0, "weights": [0.3, 0.7], "mean_scale": 3.0}


def clusters(seed: int, rows: int) -> np.ndarray:
    """Clusters of unequal sizes and shapes, in columns of different units."""
    rng = np.random.default_rng(seed)
    labels = rng.choice(3, rows, p=WEIGHTS)
    return MEANS[labels] + DEVIATIONS[labels] * rng.normal(size=(rows, 2))


def pair(seed: int = 0, rows: int = 150) -> np.ndarray:
    """Two clusters of deviation one that overlap a little."""
    rng = np.random.default_rng(seed)
    return np.where(rng.random((rows, 1)) < 0.3, -1.5, 1.5) + rng.normal(size=(rows, 2))


@lru_cache
def fitted(**parameters: Any) -> Any:
    """A fit of 1200 rows, made once for each choice of parameters."""
    return GaussianMixture(3, private=False, **parameters).fit(clusters(0, 1200))


def matched(truth: np.ndarray, means: np.ndarray) -> np.ndarray:
    return linear_sum_assignment(((truth[:, None] - means) ** 2).sum(-1))[1]


def assert_proper(model: Any, rows: np.ndarray) -> None:
    """Everything is finite, covariances are positive definite, weights and probabilities sum to one."""
    for part in model.posterior_:
        assert part is None or np.isfinite(np.asarray(part, float)).all()
    assert np.linalg.eigvalsh(model.mean_covariances_).min() > 0
    assert (model.posterior_.variances > 0).all()
    assert (model.weights_ > 0).all()
    assert model.weights_.sum() == pytest.approx(1.0)
    np.testing.assert_allclose(model.predict_proba(rows).sum(1), 1.0)
    assert np.isfinite(model.score_samples(rows)).all()


@pytest.mark.parametrize("method", ["sep", "vi", "em"])
@pytest.mark.parametrize("kind", ["diag", "spherical"])
def test_held_out_rows_are_as_likely_as_under_scikit_learn(kind: Any, method: str) -> None:
    table, new = clusters(0, 1200), clusters(1, 3000)
    if kind == "spherical":
        table, new = table * [6.0, 1.0], new * [6.0, 1.0]
        model = GaussianMixture(3, private=False, covariance_type=kind, method=method).fit(table)  # pyright: ignore
    else:
        model = fitted(method=method)
    reference: Any = Reference(3, covariance_type=kind, n_init=4, random_state=0).fit(table)
    assert model.converged_
    assert model.score(new) == pytest.approx(reference.score(new), rel=0.01)
    order = matched(reference.means_ / table.std(0), model.means_ / table.std(0))
    labels = np.argsort(order)[model.predict(new)]
    assert np.mean(labels == reference.predict(new)) > 0.99
    np.testing.assert_allclose(model.weights_[order], reference.weights_, atol=0.01)
    np.testing.assert_allclose(model.covariances_[order], reference.covariances_, rtol=0.06)
    np.testing.assert_allclose(model.precisions_, 1.0 / model.covariances_, rtol=1e-12)
    assert model.covariances_.shape == ((3, 2) if kind == "diag" else (3,))


def sep_fixed_point(x: np.ndarray, weights: np.ndarray, prior: float) -> tuple[np.ndarray, np.ndarray]:
    """SEP with unit noise in NumPy: tilted moments, natural parameters, damped until nothing moves."""
    size, dimension = len(weights), x.shape[1]
    unit = np.eye(dimension)
    precision = np.stack([(prior + len(x) * weight) * unit for weight in weights])
    eta = len(x) * weights[:, None] * np.array([[-1.5, -1.5], [1.5, 1.5]])
    for _ in range(400):
        cavity = precision - (precision - prior * unit) / len(x)
        cavity_eta = eta * (1 - 1 / len(x))
        covariance = np.linalg.inv(cavity)
        centre = np.einsum("jde,je->jd", covariance, cavity_eta)
        joint = [
            math.log(weights[j]) + multivariate_normal(centre[j], covariance[j] + unit).logpdf(x)
            for j in range(size)
        ]
        shares = softmax(np.stack(joint, 1), axis=1)
        new_precision, new_eta = np.tile(prior * unit, (size, 1, 1)), np.zeros_like(eta)
        for j in range(size):
            gain = covariance[j] @ np.linalg.inv(covariance[j] + unit)
            move = (x - centre[j]) @ gain.T
            r = shares[:, j, None]
            mean = centre[j] + r * move
            spread = covariance[j] - r[..., None] * (gain @ covariance[j])
            spread = spread + (r * (1 - r))[..., None] * move[:, :, None] * move[:, None]
            tilted = np.linalg.inv(spread)
            new_precision[j] += (tilted - cavity[j]).sum(0)
            new_eta[j] += (np.einsum("nde,ne->nd", tilted, mean) - cavity_eta[j]).sum(0)
        precision = precision + 0.3 * (new_precision - precision)
        eta = eta + 0.3 * (new_eta - eta)
    return np.linalg.solve(precision, eta[..., None])[..., 0], np.linalg.inv(precision)


def test_with_known_weights_and_noise_the_fit_is_the_fixed_point_of_sep() -> None:
    x = pair()
    mean, covariance = sep_fixed_point(x, np.array([0.3, 0.7]), 1 / 9)
    model = GaussianMixture(2, private=False, **KNOWN).fit(x)
    np.testing.assert_allclose(model.means_, mean, atol=1e-6)
    np.testing.assert_allclose(model.mean_covariances_, covariance, rtol=1e-5, atol=1e-9)
    np.testing.assert_array_equal(model.weights_, [0.3, 0.7])
    np.testing.assert_allclose(model.posterior_.variances, 1.0, rtol=1e-12)
    assert not model.posterior_.noise_covariances.any()


def test_ep_is_near_stochastic_ep_and_adf_near_both() -> None:
    x = pair(rows=200)
    sep = GaussianMixture(2, private=False, **KNOWN).fit(x)
    prior = np.array([[-1.0, -1.0], [1.0, 1.0]])
    for method, mean_prior, tolerance in (("ep", 0.0, 0.1), ("adf", prior, 1.0)):
        model: Any = GaussianMixture(2, private=False, method=method, mean_prior=mean_prior, **KNOWN)  # pyright: ignore
        model.fit(x)
        assert_proper(model, x)
        sd = np.sqrt(np.diagonal(sep.mean_covariances_, axis1=1, axis2=2))
        assert (np.abs(model.means_ - sep.means_) < tolerance * sd).all()
        own = np.sqrt(np.diagonal(model.mean_covariances_, axis1=1, axis2=2))
        np.testing.assert_allclose(own, sd, rtol=0.2)
    with pytest.raises(ValueError, match="needs a mean_prior of its own for each component"):
        GaussianMixture(2, private=False, method="adf", **KNOWN).fit(x)
    for method in ("ep", "adf"):
        with pytest.raises(ValueError, match="needs known weights"):
            GaussianMixture(2, private=False, method=method).fit(x)


def test_probabilities_sum_to_one_and_the_largest_is_predicted() -> None:
    model, rows = fitted(), clusters(2, 50)
    shares = model.predict_proba(rows)
    assert shares.shape == (50, 3)
    np.testing.assert_allclose(shares.sum(1), 1.0, rtol=1e-12)
    np.testing.assert_array_equal(model.predict(rows), shares.argmax(1))
    joint = np.log(model.weights_) + np.stack(
        [
            norm.logpdf(rows, m, np.sqrt(v)).sum(1)
            for m, v in zip(model.means_, model.covariances_, strict=True)
        ],
        1,
    )
    np.testing.assert_allclose(shares, softmax(joint, axis=1), atol=0.03)
    twin = GaussianMixture(3, private=False)
    np.testing.assert_array_equal(twin.fit_predict(clusters(0, 1200)), model.predict(clusters(0, 1200)))


@pytest.mark.parametrize(
    "parameters", [{}, {"covariance_type": "spherical"}, KNOWN], ids=["diag", "spherical", "known"]
)
def test_scores_are_predictive_densities_over_the_posterior(parameters: Any) -> None:
    x = pair(3, 40)
    model = GaussianMixture(2, private=False, **parameters).fit(x)
    posterior, rows = model.posterior_, pair(4, 12)
    rng, draws = np.random.default_rng(0), 20_000
    density = np.zeros((draws, len(rows)))
    for j in range(2):
        means = rng.multivariate_normal(posterior.means[j], posterior.mean_covariances[j], draws)
        variances = np.broadcast_to(posterior.variances[j], (draws, 2))
        if posterior.variance_shape is not None:
            shape = posterior.variance_shape[j]
            size = (draws, 1) if posterior.spherical else (draws, 2)
            variances = variances * shape / rng.gamma(shape, size=size)
        parts = norm.pdf(rows, means[:, None], np.sqrt(variances)[:, None]).prod(-1)
        density += posterior.weights[j] * parts
    np.testing.assert_allclose(np.exp(model.score_samples(rows)), density.mean(0), rtol=0.08)
    np.testing.assert_array_equal(model.log_predictive_density(rows), model.score_samples(rows))
    assert model.score(rows) == pytest.approx(model.score_samples(rows).mean())


def test_the_predictive_density_integrates_to_one() -> None:
    x = pair(3, 30)[:, :1]
    model = GaussianMixture(2, private=False).fit(x)
    grid = np.linspace(-60.0, 60.0, 200_001)
    total = np.exp(model.score_samples(grid[:, None])).sum() * (grid[1] - grid[0])
    assert total == pytest.approx(1.0, abs=2e-3)


def test_samples_have_the_moments_of_the_mixture() -> None:
    model = fitted()
    rows, labels = model.sample(60_000, random_state=0)
    np.testing.assert_allclose(np.bincount(labels) / 60_000, model.weights_, atol=0.01)
    mean = model.weights_ @ model.means_
    apart = model.means_ - mean
    covariance = np.einsum("j,jd,je->de", model.weights_, apart, apart)
    covariance += np.diag(model.weights_ @ model.covariances_)
    np.testing.assert_allclose(rows.mean(0), mean, atol=5 * rows.std(0).max() / math.sqrt(60_000))
    np.testing.assert_allclose(np.cov(rows, rowvar=False), covariance, rtol=0.05)
    np.testing.assert_array_equal(model.sample(5, random_state=1)[0], model.sample(5, random_state=1)[0])
    assert model.sample()[0].shape == (1, 2)
    with pytest.raises(ValueError, match="n_samples must be a whole number"):
        model.sample(0)


def test_the_order_of_rows_does_not_matter() -> None:
    table = clusters(0, 1200)
    other = GaussianMixture(3, private=False).fit(table[np.random.default_rng(1).permutation(1200)])
    one = fitted()
    order = matched(one.means_, other.means_)
    np.testing.assert_allclose(other.means_[order], one.means_, rtol=1e-4)
    np.testing.assert_allclose(other.covariances_[order], one.covariances_, rtol=1e-4)
    np.testing.assert_allclose(other.weights_[order], one.weights_, rtol=1e-4)


def test_units_do_not_matter() -> None:
    scale, shift = np.array([1e-3, 50.0]), np.array([7.0, -300.0])
    one, other = fitted(), GaussianMixture(3, private=False).fit(clusters(0, 1200) * scale + shift)
    order = matched(one.means_, (other.means_ - shift) / scale)
    np.testing.assert_allclose(other.means_[order], one.means_ * scale + shift, rtol=1e-3)
    np.testing.assert_allclose(other.covariances_[order], one.covariances_ * scale**2, rtol=1e-3)


def test_means_lie_between_bounds_and_cells_beyond_are_clamped() -> None:
    table = clusters(0, 1200)
    wide = GaussianMixture(3, private=False, bounds=([-20, -40], [20, 100])).fit(table)
    order = matched(fitted().means_, wide.means_)
    np.testing.assert_allclose(wide.means_[order], fitted().means_, rtol=0.02)
    np.testing.assert_array_equal(wide.feature_bounds_, [[-20, -40], [20, 100]])
    table[0] = [1e300, -1e300]
    spoiled = GaussianMixture(3, private=False, bounds=([-20, -40], [20, 100])).fit(table)
    table[0] = [20, -40]
    clamped = GaussianMixture(3, private=False, bounds=([-20, -40], [20, 100])).fit(table)
    np.testing.assert_array_equal(spoiled.means_, clamped.means_)


def test_priors_of_their_own_name_the_components() -> None:
    prior = MEANS[[2, 0, 1]]
    model = GaussianMixture(3, private=False, mean_prior=prior, mean_scale=[3.0, 20.0]).fit(clusters(0, 1200))
    np.testing.assert_allclose(model.means_, prior, atol=1.5)
    np.testing.assert_allclose(model.weights_, WEIGHTS[[2, 0, 1]], atol=0.05)


def test_a_tiny_clip_leaves_a_proper_posterior() -> None:
    table = clusters(0, 1200)
    for clip in (1e-9, 0.0):
        model = GaussianMixture(3, private=False, clip=clip, steps=30).fit(table)
        assert_proper(model, table)
        np.testing.assert_allclose(model.weights_, 1 / 3, atol=1e-6)
    assert model.n_iter_ <= 30


def test_one_component_in_one_dimension_is_the_conjugate_posterior() -> None:
    x = np.random.default_rng(0).normal(3.0, 0.5, (60, 1))
    model = GaussianMixture(1, private=False, noise_scale=0.5, mean_prior=1.0, mean_scale=2.0).fit(x)
    precision = 0.25 + 60 / 0.25
    np.testing.assert_allclose(model.mean_covariances_, [[[1 / precision]]], rtol=1e-9)
    np.testing.assert_allclose(model.means_, [[(0.25 + x.sum() / 0.25) / precision]], rtol=1e-9)
    np.testing.assert_array_equal(model.weights_, [1.0])
    spread = 1 / precision + 0.25
    np.testing.assert_allclose(
        model.score_samples(x), norm.logpdf(x, model.means_[0], math.sqrt(spread))[:, 0]
    )


def test_criteria_count_what_is_free() -> None:
    rows = clusters(2, 100)
    total = fitted().score_samples(rows).sum()
    free = 3 * 2 + 2 + 3 * 2
    assert fitted().aic(rows) == pytest.approx(-2 * total + 2 * free)
    assert fitted().bic(rows) == pytest.approx(-2 * total + free * math.log(100))
    model = GaussianMixture(2, private=False, **KNOWN).fit(pair())
    assert model.aic(pair()) == pytest.approx(-2 * model.score_samples(pair()).sum() + 2 * 4)


def test_scikit_learn_clones_it_and_puts_it_in_pipelines() -> None:
    model = GaussianMixture(3, 0.5, private=False, covariance_type="spherical")
    twin: Any = clone(model)
    assert twin.get_params() == model.get_params()
    assert twin.set_params(n_components=2).n_components == 2
    with pytest.raises(NotFittedError):
        model.predict(clusters(0, 5))
    table = clusters(0, 1200)
    pipeline: Any = make_pipeline(StandardScaler(), GaussianMixture(3, private=False)).fit(table)
    shares = pipeline.predict_proba(table)
    order = matched(fitted().means_, pipeline[0].inverse_transform(pipeline[1].means_))
    np.testing.assert_allclose(shares[:, order], fitted().predict_proba(table), atol=1e-3)


def test_frames_keep_their_names() -> None:
    table = clusters(0, 1200)
    columns = {"age": table[:, 0], "income": table[:, 1]}
    for frame in (pd.DataFrame(columns), pl.DataFrame(columns), pa.table(columns)):
        model: Any = GaussianMixture(3, private=False).fit(frame)
        assert list(model.feature_names_in_) == ["age", "income"]
        np.testing.assert_array_equal(model.means_, fitted().means_)
        np.testing.assert_array_equal(model.predict(frame), fitted().predict(table))
        assert [row["column"] for row in model.summary()] == ["age", "income"] * 3
    with pytest.raises(ValueError, match="feature names should match"):
        model.predict(pl.DataFrame(columns).select("income", "age"))
    with pytest.raises(ValueError, match="expecting 2 features"):
        model.predict(table[:, :1])
    with pytest.raises(ValueError, match="NaN or infinity"):
        model.predict(np.full((1, 2), np.nan))
    model.fit(table)
    assert not hasattr(model, "feature_names_in_")


def test_a_summary_has_one_row_a_component_and_column() -> None:
    model = fitted()
    rows = model.summary(level=0.5)
    assert [(row["component"], row["column"]) for row in rows] == [
        (j, f"x{d}") for j in range(3) for d in range(2)
    ]
    for row, mean, covariance in zip(
        rows,
        model.means_.ravel(),
        np.diagonal(model.mean_covariances_, axis1=1, axis2=2).ravel(),
        strict=True,
    ):
        assert row["mean"] == pytest.approx(mean)
        assert row["sd"] == pytest.approx(math.sqrt(covariance))
        assert row["high"] - row["low"] == pytest.approx(2 * norm.ppf(0.75) * math.sqrt(covariance))
        assert row["noise_share"] == pytest.approx(0.0, abs=1e-9)


def test_the_summary_s_level_must_be_a_probability() -> None:
    with pytest.raises(ValueError, match="level"):
        fitted().summary(level=1.0)


def test_arviz_gets_draws_of_the_means() -> None:
    model = fitted()
    data = model.to_arviz(draws=4000)
    draws = np.asarray(data.posterior["means"])
    assert draws.shape == (1, 4000, 3, 2)
    np.testing.assert_allclose(draws[0].mean(0), model.means_, rtol=0.01)
    for j in range(3):
        np.testing.assert_allclose(np.cov(draws[0, :, j].T), model.mean_covariances_[j], rtol=0.15, atol=5e-4)


BAD: list[tuple[dict[str, Any], str]] = [
    ({"n_components": 0}, "n_components must be a whole number"),
    ({"n_components": 1.5}, "n_components must be a whole number"),
    ({"n_components": 151}, "more than the table's 150 rows"),
    ({"covariance_type": "full"}, "covariance_type must be 'diag' or 'spherical'"),
    ({"weights": "even"}, "weights must be None, 'uniform' or 2 numbers"),
    ({"weights": [0.5, 0.4]}, "2 positive numbers that sum to one"),
    ({"weights": [1.5, -0.5]}, "2 positive numbers that sum to one"),
    ({"weights": [0.2, 0.3, 0.5]}, "2 positive numbers that sum to one"),
    ({"weights": [np.nan, 0.5]}, "2 positive numbers that sum to one"),
    ({"noise_scale": 0.0}, "noise_scale must be positive"),
    ({"noise_scale": [1.0, -1.0]}, "noise_scale must be positive"),
    ({"noise_scale": [1.0, 1.0, 1.0]}, "noise_scale must be a number, or 2 numbers"),
    ({"noise_scale": np.nan}, "noise_scale must be finite"),
    ({"weight_concentration": 0.0}, "weight_concentration must be positive"),
    ({"bounds": (1, -1)}, "low <= high"),
    ({"bounds": (0, np.inf)}, "finite"),
    ({"bounds": 3}, "pair"),
    ({"bounds": (-1, 1), "mean_scale": 1.0}, "either bounds or mean_scale"),
    ({"mean_scale": 0.0}, "mean_scale must be positive"),
    ({"mean_scale": [1.0, 2.0, 3.0]}, "mean_scale must be a number, or 2 numbers"),
    ({"mean_prior": 1.0}, "needs mean_scale"),
    ({"mean_prior": np.zeros((3, 2)), "mean_scale": 1.0}, r"mean_prior has shape \(3, 2\)"),
    ({"mean_prior": np.nan, "mean_scale": 1.0}, "mean_prior must be finite"),
    ({"clip": -1.0}, "clip must be positive"),
    ({"steps": 0}, "steps must be a whole number"),
    ({"method": "gibbs"}, "method must be one of sep, vi, em, ep, adf"),
    ({"sampling": "poison"}, "sampling must be"),
]


@pytest.mark.parametrize(("parameters", "message"), BAD, ids=[str(bad) for bad, _ in BAD])
@pytest.mark.parametrize("private", [True, False])
def test_wrong_parameters_are_named(parameters: dict[str, Any], message: str, private: bool) -> None:
    with pytest.raises(ValueError, match=message):
        GaussianMixture(**({"n_components": 2, "private": private} | parameters)).fit(pair())


def test_tables_that_are_none_are_refused() -> None:
    model = GaussianMixture(2, private=False)
    for table, message in (
        (np.zeros(5), "Expected 2D array"),
        (np.zeros((1, 2)), "minimum of 2"),
        (np.zeros((5, 0)), "minimum of 1"),
        (np.zeros((5, 2)) * 1j, "Complex"),
    ):
        with pytest.raises(ValueError, match=message):
            model.fit(table)
    for bad in (np.nan, np.inf):
        spoiled = pair()
        spoiled[3, 1] = bad
        with pytest.raises(ValueError, match="needs finite cells"):
            model.fit(spoiled)


TABLES: dict[str, np.ndarray] = {
    "all rows equal": np.full((40, 2), 3.0),
    "two distinct rows": np.repeat([[1.0, 2.0], [5.0, -1.0]], 20, axis=0),
    "as many components as rows": np.array([[1.0, 2.0], [5.0, -1.0]]),
    "three rows": np.array([[1.0, 2.0], [5.0, -1.0], [4.0, 4.0]]),
    "a constant column": np.column_stack([pair()[:, 0], np.ones(150)]),
    "large numbers": 1e60 * pair(),
    "small numbers": 1e-60 * pair(),
}


@pytest.mark.parametrize("name", TABLES)
@pytest.mark.parametrize(
    "parameters",
    [{}, {"covariance_type": "spherical"}, {"method": "em"}, {"weights": "uniform", "noise_scale": 0.5}],
    ids=["diag", "spherical", "em", "known"],
)
def test_odd_tables_have_proper_posteriors(name: str, parameters: dict[str, Any]) -> None:
    table = TABLES[name]
    if "noise_scale" in parameters and "numbers" in name:
        parameters = parameters | {"noise_scale": 0.5 * np.abs(table).max()}
    assert_proper(GaussianMixture(2, private=False, steps=60, **parameters).fit(table), table)


@pytest.mark.parametrize("size", [1e160, 1e300, 1.7e308 / 5])
@pytest.mark.parametrize(
    "parameters", [{}, {"weights": "uniform", "noise_scale": 0.5}], ids=["learned", "known"]
)
def test_numbers_whose_squares_overflow_give_a_proper_posterior_or_an_error_that_says_so(
    size: float, parameters: dict[str, Any]
) -> None:
    table = size * pair()
    try:
        model = GaussianMixture(2, private=False, **parameters).fit(table)
    except ValueError as error:
        assert "X" in str(error)  # noqa: PT017
        return
    assert_proper(model, table)


def test_a_row_far_away_is_predicted_without_a_warning() -> None:
    rows = np.array([[1e200, 0.0], [-1e300, 1e300], [3.0, 1e155]])
    for parameters in ({}, {"covariance_type": "spherical"}):
        model = fitted(**parameters)
        np.testing.assert_allclose(model.predict_proba(rows).sum(1), 1.0)
        assert not np.isnan(model.score_samples(rows)).any()
