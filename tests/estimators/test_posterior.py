"""The posterior as statisticians ask for it: summaries, predictive draws, distribution functions, ArviZ."""

import json
import os
import pickle
import subprocess
import sys
import types
import warnings
from typing import Any

import numpy as np
import pytest
from scipy.stats import norm
from scipy.stats import t as student
from sklearn.exceptions import NotFittedError

from dpsep import GaussianMixture, LinearRegression, LogisticRegression, PoissonRegression
from dpsep.estimators.outcomes import counts_below, normal_below
from dpsep.estimators.posterior import Posterior
from dpsep.estimators.store import load, save
from dpsep.estimators.summary import Summary

from . import network_made
from .made import ALL, BINARY, BOUNDS, IDS, LINEAR, seeded, table


def wide(maker: Any, declared: dict[str, Any], **parameters: Any) -> Any:
    """Fit without privacy, and then a posterior that is known and wide enough to be seen."""
    x, y = table(maker)
    model = maker(private=False, **(declared | parameters)).fit(x, y)
    covariance = np.array([[0.20, 0.05, 0.0], [0.05, 0.10, -0.02], [0.0, -0.02, 0.15]])
    model.posterior_ = model.posterior_._replace(covariance=covariance)
    return model


# Summaries.


def test_an_interval_s_noise_share_and_its_width_without_noise_follow_from_the_variances():
    covariance, noise = np.diag([4.0, 1.0]), np.diag([3.0, 0.0])
    rows = Posterior(("a", "b"), np.array([1.0, 2.0]), covariance, noise).summary(0.5)
    reach = norm.ppf(0.75)
    assert [row["noise_share"] for row in rows] == [0.75, 0.0]
    assert rows[0]["high"] - rows[0]["low"] == pytest.approx(2 * reach * 2.0)
    assert rows[0]["width_without_noise"] == pytest.approx(2 * reach * 1.0)
    assert rows[1]["width_without_noise"] == pytest.approx(rows[1]["high"] - rows[1]["low"])


def test_without_noise_awareness_no_noise_is_in_the_interval_and_the_summary_says_so():
    aware = seeded(LinearRegression, **LINEAR)
    alone = seeded(LinearRegression, noise_aware=False, **LINEAR)
    for one, other in zip(aware.summary(), alone.summary(), strict=True):
        assert other["noise_share"] == 0
        assert other["width_without_noise"] == pytest.approx(other["high"] - other["low"])
        assert one["width_without_noise"] == pytest.approx(other["width_without_noise"])
    assert "too narrow" in repr(alone.summary())
    assert "too narrow" not in repr(aware.summary())


def test_a_summary_prints_as_a_table_whose_columns_line_up():
    rows = [
        {"name": "age", "mean": 0.5, "noise_share": 0.25, "width_without_noise": 1.0},
        {"name": "distance", "mean": -12.25, "noise_share": 1.0, "width_without_noise": 0.0},
    ]
    lines = repr(Summary(rows, noise=True)).splitlines()
    assert lines[1].split() == ["age", "0.5", "25", "%", "1"]
    assert {line.index("%") for line in lines[1:3]} == {lines[0].index("share") + len("share") - 1}
    assert lines[-1].startswith("90 % intervals")
    plain = repr(Summary(rows))
    assert "noise" not in plain
    assert repr(Summary()) == "a summary without rows"


def test_a_summary_is_a_list_for_json_pickle_and_comparison_and_a_frame_for_those_who_ask():
    rows = [{"name": "<b>", "mean": 0.5}, {"name": "c", "mean": 1.0}]
    found = Summary(rows, level=0.8)
    assert found == rows
    assert json.loads(json.dumps(found)) == rows
    copy = pickle.loads(pickle.dumps(found))
    assert (copy, copy.level) == (rows, 0.8)
    assert found.to_pandas()["mean"].tolist() == [0.5, 1.0]
    assert found.to_polars()["name"].to_list() == ["<b>", "c"]
    assert "<td>&lt;b&gt;</td><td>0.5</td>" in found._repr_html_()


@pytest.mark.parametrize("private", [True, False])
def test_every_estimator_summarises_and_shows_noise_only_where_there_is_some(private):
    x = np.concatenate([table(LinearRegression)[0] - 2, table(LinearRegression)[0] + 2])
    fits = [seeded(maker, private=private, **declared) for maker, declared in ALL]
    fits += [network_made.seeded(private=private, **network_made.BOUNDS)]
    fits += [network_made.seeded_classes(private=private)]
    mixture = GaussianMixture(2, private=private, bounds=(-4, 4), random_state=0, delta=1e-4)
    fits.append(network_made.quietly(mixture, x, None))
    for model in fits:
        rows = model.summary(0.5)
        assert all(0 <= row["noise_share"] <= 1 for row in rows)
        assert any(row["noise_share"] > 0 for row in rows) == private
        assert ("noise share" in repr(rows)) == private
        with pytest.raises(ValueError, match="level"):
            model.summary(level=1.0)


def test_the_summary_of_a_network_has_the_width_of_a_typical_weight():
    rows = network_made.seeded(**network_made.BOUNDS).summary(0.9)
    for row in rows:
        assert row["width"] == pytest.approx(2 * norm.ppf(0.95) * row["sd"])
        left = (row["width_without_noise"] / row["width"]) ** 2
        assert left + row["noise_share"] == pytest.approx(1.0)


def test_noise_awareness_survives_a_folder(tmp_path):
    model = seeded(LinearRegression, noise_aware=False, **LINEAR)
    save(model, tmp_path / "run")
    assert load(tmp_path / "run").summary() == model.summary()


# Predictive draws.


def test_draws_of_normal_targets_have_the_predictive_moments():
    model = wide(LinearRegression, LINEAR, noise_precision=4.0)
    x = np.array([[0.5, -0.5], [1.0, 1.0]])
    mean, deviation = model.predict(x, return_std=True)
    draws = model.posterior_predictive(x, 40_000, 0)
    assert draws.shape == (40_000, 2)
    np.testing.assert_allclose(draws.mean(axis=0), mean, atol=5 * deviation.max() / 200)
    np.testing.assert_allclose(draws.std(axis=0), deviation, rtol=0.02)
    expected = model.posterior_expected(x, 40_000, 0)
    np.testing.assert_allclose(expected.var(axis=0), deviation**2 - 0.25, rtol=0.03)


def test_learned_noise_is_drawn_too():
    model = wide(LinearRegression, LINEAR)
    model.posterior_ = model.posterior_._replace(
        covariance=1e-12 * np.eye(3), noise_shape=3.0, noise_rate=6.0
    )
    draws = model.posterior_predictive(np.zeros((1, 2)), 200_000, 0)[:, 0] - model.predict(np.zeros((1, 2)))
    # Student's t with 2 a degrees of freedom and scale (b / a)^1/2.
    np.testing.assert_allclose(
        np.quantile(draws, [0.1, 0.75, 0.99]), student.ppf([0.1, 0.75, 0.99], 6) * 2**0.5, rtol=0.03
    )


@pytest.mark.parametrize(("maker", "declared"), ALL[1:3], ids=IDS[1:3])
def test_draws_of_labels_come_as_often_as_their_probability(maker, declared):
    model = wide(maker, declared)
    x = np.array([[1.0, -1.0], [-1.0, 1.0], [0.0, 0.0]])
    draws = model.posterior_predictive(x, 40_000, 0)
    assert set(np.unique(draws)) == {-1.0, 1.0}
    np.testing.assert_allclose((draws == 1).mean(axis=0), model.predict_proba(x)[:, 1], atol=0.0125)
    expected = model.posterior_expected(x, 40_000, 1)
    np.testing.assert_allclose(expected.mean(axis=0), model.predict_proba(x)[:, 1], atol=0.0125)


def test_draws_of_labels_are_the_declared_ones():
    x, y = table(LogisticRegression)
    model = LogisticRegression(private=False, classes=["yes", "no"], **BOUNDS).fit(
        x, np.where(y > 0, "yes", "no")
    )
    assert set(np.unique(model.posterior_predictive(x, 5, 0))) == {"yes", "no"}


def test_draws_of_counts_have_the_predictive_moments_and_end_where_64_bits_do():
    model = wide(PoissonRegression, BOUNDS)
    x = np.array([[0.5, -0.5]])
    mean, deviation = model.predict(x, return_std=True)
    draws = model.posterior_predictive(x, 100_000, 0)
    assert (draws == np.floor(draws)).all()
    np.testing.assert_allclose(draws.mean(axis=0), mean, rtol=0.02)
    np.testing.assert_allclose(draws.std(axis=0), deviation, rtol=0.04)
    np.testing.assert_allclose(model.posterior_expected(x, 100_000, 0).mean(axis=0), mean, rtol=0.02)
    model.posterior_ = model.posterior_._replace(mean=np.array([1e3, 0.0, 0.0]))
    assert (model.posterior_predictive(x, 3, 0) > 1e17).all()


def test_draws_include_the_noise_of_privacy_where_the_posterior_does():
    x = np.array([[1.0, -1.0]])
    aware = seeded(PoissonRegression, **BOUNDS).posterior_expected(x, 4000, 0)
    alone = seeded(PoissonRegression, noise_aware=False, **BOUNDS).posterior_expected(x, 4000, 0)
    assert aware.std() > 1.5 * alone.std()


@pytest.mark.parametrize("way", ["kronecker", "diagonal", "point"])
def test_draws_of_a_network_without_hidden_units_have_its_predictive_moments(way):
    # Without hidden units the output is linear in the weights and every approximation is exact.
    ways = network_made.PRIVATE_WAYS[way]
    model = network_made.seeded(private=False, hidden=(), **ways, **network_made.BOUNDS)
    x = network_made.table()[0][:3]
    mean, deviation = model.predict(x, return_std=True)
    draws = model.posterior_predictive(x, 40_000, 0)
    np.testing.assert_allclose(draws.mean(axis=0), mean, atol=5 * deviation.max() / 200)
    np.testing.assert_allclose(draws.std(axis=0), deviation, rtol=0.03)


@pytest.mark.parametrize("way", ["kronecker", "diagonal"])
def test_draws_of_a_network_spread_as_its_predictor_does(way):
    model = network_made.seeded_classes(**network_made.PRIVATE_WAYS[way])
    x = network_made.table()[0][:5]
    draws = model.posterior_.outputs(model.posterior_.draw(20_000, np.random.default_rng(0)), x)
    mean, variance = model.posterior_.predictor(x)
    np.testing.assert_allclose(draws.mean(axis=0), mean, atol=0.1 * np.sqrt(variance.max()))
    np.testing.assert_allclose(draws.std(axis=0), np.sqrt(variance), rtol=0.1)
    shares = (model.posterior_predictive(x, 20_000, 0) == "yes").mean(axis=0)
    np.testing.assert_allclose(shares, model.predict_proba(x)[:, 1], atol=0.05)


def test_a_seed_repeats_the_draws():
    model, x = wide(LinearRegression, LINEAR), table(LinearRegression)[0][:4]
    np.testing.assert_array_equal(model.posterior_predictive(x, 3, 7), model.posterior_predictive(x, 3, 7))
    assert (model.posterior_predictive(x, 3, 7) != model.posterior_predictive(x, 3, 8)).all()


def test_wrong_calls_are_refused_with_what_to_do():
    x, y = table(LinearRegression)
    with pytest.raises(NotFittedError):
        LinearRegression().posterior_predictive(x)
    model = wide(LinearRegression, LINEAR)
    with pytest.raises(ValueError, match="whole number of at least 1"):
        model.posterior_predictive(x, 0)
    with pytest.raises(ValueError, match="expecting 2 features"):
        model.posterior_predictive(x[:, :1])
    with pytest.raises(ValueError, match="one target a row"):
        model.predictive_cdf(x, y[:-1])
    with pytest.raises(ValueError, match="give X too"):
        model.to_arviz(y=y)
    with pytest.raises(ValueError, match="one target a row"):
        model.to_arviz(x, y[:-1])
    labels = wide(LogisticRegression, BINARY)
    with pytest.raises(ValueError, match="labels other than"):
        labels.predictive_cdf(x, np.full(len(x), 3.0))
    assert not hasattr(model, "predict_proba")


# Distribution functions.


def test_distribution_functions_are_those_of_known_laws():
    y = np.array([-2.0, 0.3, 4.0])
    known = normal_below(np.full(3, 1.0), np.full(3, 3.0), y, None, 1.0)
    np.testing.assert_allclose(known, norm.cdf(y, 1.0, 2.0), rtol=1e-12)
    learned = normal_below(np.zeros(3), np.zeros(3), y, 5.0, 10.0)
    np.testing.assert_allclose(learned, student.cdf(y / 2**0.5, 10), atol=2e-3)


def test_the_distribution_function_of_counts_sums_their_probabilities():
    model = wide(PoissonRegression, BOUNDS)
    x = np.tile([[0.5, -0.5]], (8, 1))
    counts = np.arange(8.0)
    below, upto = model.predictive_cdf(x, counts)
    summed = np.cumsum(np.exp(model.log_predictive_density(x, counts)))
    # One integrates over the posterior at fixed nodes, the other around each count.
    np.testing.assert_allclose(upto, summed, rtol=2e-5)
    np.testing.assert_allclose(below, np.concatenate([[0.0], summed[:-1]]), atol=2e-5)
    mean, variance = np.array([0.2]), np.array([0.5])
    np.testing.assert_allclose(counts_below(mean, variance, np.array([1e6])), 1.0, rtol=1e-12)


def test_the_distribution_function_of_targets_has_their_density_as_its_slope():
    step = 1e-4
    for model in (wide(LinearRegression, LINEAR), network_made.seeded(**network_made.BOUNDS)):
        x, y = table(LinearRegression)[0][:5], np.linspace(-0.5, 1.0, 5)
        slope = (model.predictive_cdf(x, y + step)[0] - model.predictive_cdf(x, y - step)[0]) / (2 * step)
        np.testing.assert_allclose(slope, np.exp(model.log_predictive_density(x, y)), rtol=0.01)


# ArviZ.


@pytest.mark.parametrize(("maker", "declared"), ALL, ids=IDS)
def test_arviz_can_leave_one_out_on_rows_that_are_given(maker, declared):
    x, y = table(maker)
    model = maker(private=False, **declared).fit(x, y)
    data = model.to_arviz(x, y, draws=800)
    assert data.posterior_predictive["y"].shape == (1, 800, len(y))
    np.testing.assert_array_equal(data.observed_data["y"], (y > 0).astype(int) if maker in _LABELS else y)
    # The average over draws of a row's likelihood is its predictive density; rows far out take more draws.
    density = np.log(np.exp(np.asarray(data.log_likelihood["y"])[0]).mean(axis=0))
    np.testing.assert_allclose(density, model.log_predictive_density(x, y), atol=0.1)
    assert density.mean() == pytest.approx(model.log_predictive_density(x, y).mean(), abs=0.01)
    arviz = sys.modules["arviz"]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = arviz.loo(data)
    left_out = float(found.elpd if hasattr(found, "elpd") else found.elpd_loo)
    # Rows of the fit are predicted worse when left out, by about one a parameter; there are three or four.
    assert 1 < model.log_predictive_density(x, y).sum() - left_out < 8


_LABELS = {maker for maker, declared in ALL if "classes" in declared}


def test_without_targets_arviz_gets_draws_only():
    model = network_made.seeded_classes()
    x = network_made.table()[0][:6]
    data = model.to_arviz(x, draws=20)
    assert set(np.unique(data.posterior_predictive["y"])) <= {0, 1}
    assert not hasattr(data, "log_likelihood")
    assert not hasattr(data, "observed_data")


def test_the_log_likelihood_of_a_network_is_in_the_target_s_units():
    model = network_made.seeded(private=False, method="point", **network_made.BOUNDS)
    x, y = network_made.table()
    data = model.to_arviz(x, y, draws=400)
    density = np.log(np.exp(np.asarray(data.log_likelihood["y"])[0]).mean(axis=0))
    np.testing.assert_allclose(density, model.log_predictive_density(x, y), atol=0.05)


def test_a_mixture_gives_arviz_everything_that_is_learned():
    rng = np.random.default_rng(0)
    x = np.concatenate([rng.normal(-2, 0.5, (300, 2)), rng.normal(2, 0.5, (300, 2))])
    model = GaussianMixture(2, private=False).fit(x)
    data = model.to_arviz(x[:50], draws=500)
    assert data.posterior["means"].shape == (1, 500, 2, 2)
    np.testing.assert_allclose(np.asarray(data.posterior["weights"])[0].sum(axis=1), 1.0)
    np.testing.assert_allclose(
        np.asarray(data.posterior["variances"])[0].mean(axis=0), model.posterior_.variances, rtol=0.05
    )
    density = np.log(np.exp(np.asarray(data.log_likelihood["x"])[0]).mean(axis=0))
    np.testing.assert_allclose(density, model.score_samples(x[:50]), atol=0.05)
    assert data.posterior_predictive["x"].shape == (1, 500, 50, 2)
    known = GaussianMixture(2, private=False, weights="uniform", noise_scale=0.5).fit(x)
    assert set(known.to_arviz(draws=5).posterior.data_vars) == {"means"}


def test_a_first_import_of_arviz_says_nothing_of_its_next_version(tmp_path):
    asked = "from dpsep.estimators.inference_data import inference_data as made\n"
    asked += "import numpy; made({'posterior': {'a': numpy.zeros((1, 3))}})"
    environment = os.environ | {"XDG_CACHE_HOME": str(tmp_path)}  # where ArviZ notes the day of its last word
    done = subprocess.run([sys.executable, "-W", "error::FutureWarning", "-c", asked], env=environment)
    assert done.returncode == 0


def test_arviz_1_gets_its_groups_as_one_dictionary(monkeypatch):
    def from_dict(data: Any, *, dims: Any = None) -> Any:
        return data, dims

    monkeypatch.setitem(sys.modules, "arviz", types.SimpleNamespace(from_dict=from_dict))
    x, y = table(LinearRegression)
    groups, dims = wide(LinearRegression, LINEAR).to_arviz(x, y, draws=3)
    assert list(groups) == ["posterior", "posterior_predictive", "log_likelihood", "observed_data"]
    assert groups["posterior"]["x0"].shape == (1, 3)
    assert dims == {"y": ["row"]}


def test_without_arviz_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "arviz", None)
    with pytest.raises(ImportError, match=r"pip install 'dpsep\[truth\]'"):
        wide(LinearRegression, LINEAR).to_arviz()
