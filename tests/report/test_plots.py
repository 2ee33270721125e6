"""Pictures hold what they say: checked on what was drawn, number by number."""

import sys
from typing import Any

import matplotlib as mpl
import numpy as np
import pandas as pd
import pytest

mpl.use("Agg")
from matplotlib import pyplot

from dpsep import GaussianMixture, LinearRegression, LogisticRegression, NetworkRegressor, PrivacyLeakWarning
from dpsep.report import plots
from dpsep.report.calibration import Calibration, Reliability

NAMES = ["age", "income"]


@pytest.fixture(autouse=True)
def _closed():
    yield
    pyplot.close("all")


def rows(number: int = 300) -> tuple[pd.DataFrame, np.ndarray]:
    rng = np.random.default_rng(0)
    x = rng.uniform(-1, 1, (number, 2))
    return pd.DataFrame(x, columns=NAMES), 0.3 + x @ np.array([1.0, -0.8]) + 0.3 * rng.standard_normal(number)


def linear(noise: float = 0.75) -> Any:
    """Fit without privacy, and then a posterior whose variances are known: one, of which a share is noise."""
    model = LinearRegression(private=False, bounds=(-1, 1)).fit(*rows())
    parts = {"covariance": np.eye(3), "noise_covariance": noise * np.eye(3)}
    model.posterior_ = model.posterior_._replace(mean=np.array([0.0, 2.0, -1.0]), **parts)
    return model


def labels_of(ax: Any) -> list[str]:
    return [text.get_text() for text in ax.get_legend().get_texts()]


def made(pit: Any, reliability: Reliability | None = None) -> Calibration:
    return Calibration(np.array([0.5]), np.array([0.5]), np.asarray(pit), reliability)


def test_a_forest_draws_the_interval_and_inside_it_the_one_without_noise():
    ax = plots.plot_forest(linear())
    outer, inner = (np.asarray(part.get_segments()) for part in ax.collections[:2])
    np.testing.assert_allclose(np.ptp(outer[:, :, 0], axis=1), 2 * 1.6448536)
    np.testing.assert_allclose(np.ptp(inner[:, :, 0], axis=1), 1.6448536)  # a quarter of the variance
    np.testing.assert_allclose(outer[:, :, 0].mean(axis=1), [0.0, 2.0, -1.0], atol=1e-12)
    assert [text.get_text() for text in ax.get_yticklabels()] == ["intercept", *NAMES]
    assert labels_of(ax) == ["90% interval", "without the noise of privacy", "mean"]
    bottom, top = ax.get_ylim()
    assert bottom > top  # the first row is the highest


def test_without_noise_a_forest_and_densities_have_one_colour_and_no_word_of_it():
    assert labels_of(plots.plot_forest(linear(0.0), 0.5)) == ["50% interval", "mean"]
    assert labels_of(plots.plot_posterior(linear(0.0))) == ["posterior"]


def test_rows_can_be_chosen_by_name_and_unknown_ones_are_refused():
    ax = plots.plot_forest(linear(), names=["income", "age"])
    assert [text.get_text() for text in ax.get_yticklabels()] == ["income", "age"]
    with pytest.raises(ValueError, match="intercept, age, income"):
        plots.plot_posterior(linear(), names=["wealth"])


def test_densities_with_and_without_noise_hold_the_same_area():
    ax = plots.plot_posterior(linear())
    for place, (shape, line) in enumerate(zip(ax.collections, ax.lines[1:], strict=True)):
        edge = shape.get_paths()[0].vertices
        upper = edge[edge[:, 1] < place - 1e-12]
        x, y = line.get_data()
        with_noise = abs(np.trapezoid(place - upper[:, 1], upper[:, 0]))
        assert np.trapezoid(place - y, x) == pytest.approx(with_noise, rel=0.01)
        assert np.ptp(upper[:, 0]) == pytest.approx(2 * np.ptp(x), rel=0.02)


def test_mixtures_and_networks_have_forests_too():
    x, y = rows()
    mixture = GaussianMixture(2, private=False).fit(x)
    ax = plots.plot_forest(mixture)
    assert [text.get_text() for text in ax.get_yticklabels()] == [f"{j}: {n}" for j in (0, 1) for n in NAMES]
    network = NetworkRegressor(private=False, hidden=2, steps=2, bounds=(-1, 1)).fit(x, y)
    ax = plots.plot_forest(network)
    assert [text.get_text() for text in ax.get_yticklabels()] == [
        "layer 1 (6 weights)",
        "layer 2 (3 weights)",
    ]
    point = NetworkRegressor(private=False, hidden=2, steps=2, bounds=(-1, 1), method="point").fit(x, y)
    with pytest.raises(ValueError, match="no posterior"):
        plots.plot_posterior(point)


def test_pit_bars_are_densities():
    ax = plots.plot_pit(made([0.05] * 30 + [0.95] * 10), bins=2)
    assert [bar.get_height() for bar in ax.patches[:2]] == [1.5, 0.5]
    assert ax.get_ylim()[1] > 1.5


def test_the_curve_of_coverage_is_the_share_of_targets_inside():
    pit = np.array([0.5, 0.4, 0.1, 0.99])  # inside from the levels 0, 0.2, 0.8 and 0.98 on
    ax = plots.plot_coverage(made(pit))
    levels, share = next(line for line in ax.lines if len(line.get_xdata()) > 2).get_data()
    for level, inside in ((0.1, 0.25), (0.5, 0.5), (0.9, 0.75), (1.0, 1.0)):
        assert share[np.argmin(np.abs(levels - level))] == inside


def test_reliability_draws_a_mark_a_bin_and_refuses_what_is_no_classifier():
    bins = Reliability(np.array([0.2, 0.7]), np.array([0.3, 0.6]), np.array([10, 30]))
    ax = plots.plot_reliability(made([0.5], bins))
    np.testing.assert_allclose(ax.collections[-1].get_offsets(), [[0.2, 0.3], [0.7, 0.6]])
    assert "error 0.100" in ax.texts[0].get_text()
    with pytest.raises(ValueError, match="classifiers"):
        plots.plot_reliability(made([0.5]))


def test_predictions_against_a_feature_lie_where_the_rows_do():
    x, y = rows(50)
    model = LinearRegression(private=False, bounds=(-1, 1)).fit(x, y)
    for feature in ("income", 1):
        ax = plots.plot_predictive(model, x, y, feature=feature)
        bars = np.asarray(ax.collections[0].get_segments())
        np.testing.assert_allclose(bars[:, 0, 0], x["income"])
        mean, deviation = model.predict(x, return_std=True)
        np.testing.assert_allclose(np.ptp(bars[:, :, 1], axis=1), 2 * 1.645 * deviation, rtol=0.2)
        np.testing.assert_allclose(bars[:, :, 1].mean(axis=1), mean, atol=0.3 * deviation.max())
        assert ax.get_xlabel() == "income"
    with pytest.raises(ValueError, match="age, income"):
        plots.plot_predictive(model, x, feature="wealth")
    with pytest.raises(ValueError, match="feature names should match"):
        plots.plot_predictive(model, x[["income", "age"]], feature="age")


def test_predictions_against_the_observed_show_at_most_so_many_rows():
    x, y = rows(300)
    model = LinearRegression(private=False, bounds=(-1, 1)).fit(x, y)
    ax = plots.plot_predictive(model, x, y)
    bars = np.asarray(ax.collections[0].get_segments())
    assert len(bars) == plots.MOST
    assert set(bars[:, 0, 0]) <= set(y)
    with pytest.raises(ValueError, match="name a feature"):
        plots.plot_predictive(model, x)


def test_predictions_of_labels_are_probabilities():
    x, y = rows(60)
    model = LogisticRegression(private=False, bounds=(-1, 1), classes=["no", "yes"])
    model.fit(x, np.where(y > 0, "yes", "no"))
    ax = plots.plot_predictive(model, x, np.where(y > 0, "yes", "no"), feature="age")
    bars = np.asarray(ax.collections[0].get_segments())[:, :, 1]
    assert bars.min() >= 0
    assert bars.max() <= 1
    probability = model.predict_proba(x)[:, 1]
    assert ((bars[:, 0] < probability) & (probability < bars[:, 1])).all()
    assert ax.get_ylabel() == "probability of yes"
    with pytest.raises(ValueError, match="plot_reliability"):
        plots.plot_predictive(model, x, y)


def test_targets_of_a_private_fit_are_drawn_with_a_warning_unless_they_are_public():
    x, y = rows(60)
    model = LinearRegression(private=False, bounds=(-1, 1)).fit(x, y)
    model.private = True
    with pytest.warns(PrivacyLeakWarning, match="public=True"):
        plots.plot_predictive(model, x, y)
    plots.plot_predictive(model, x, y, public=True)
    plots.plot_predictive(model, x, feature="age")


def test_axes_that_are_given_are_drawn_into_and_returned():
    figure, axes = pyplot.subplots(1, 3)
    assert plots.plot_forest(linear(), ax=axes[0]) is axes[0]
    assert plots.plot_pit(made([0.5]), ax=axes[1]) is axes[1]
    assert plots.plot_coverage(made([0.5]), ax=axes[2]) is axes[2]
    assert pyplot.get_fignums() == [figure.number]


def test_without_matplotlib_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)
    monkeypatch.delattr(mpl, "pyplot", raising=False)
    with pytest.raises(ImportError, match=r"pip install 'dpsep\[demo\]'"):
        plots.plot_forest(linear())
