"""The mixture's benchmark: rows with the usual keys, and made data that are what they say."""

import math
from typing import Any

import numpy as np
import pytest

from dpsep.estimators import GaussianMixture
from dpsep.privacy.leaks import PrivacyLeakWarning
from dpsep_lab.bench import mixture, table

KEYS = {"case", "who", "metric", "value", "unit", "ratio_to", "ratio"}


class Known:
    """A model that knows some means, with one deviation."""

    def __init__(self, means: np.ndarray, deviation: float, score: float = 0.0) -> None:
        self.means_ = means
        self.mean_covariances_ = np.stack([deviation**2 * np.eye(means.shape[1])] * len(means))
        self._score = score

    def score(self, X: Any) -> float:
        return self._score


def check(rows: list[dict[str, Any]]) -> None:
    assert rows
    for row in rows:
        assert set(row) >= KEYS
        assert row["case"].startswith("mixture/")
        assert math.isfinite(row["value"])
        assert (row["ratio"] is None) == (row["ratio_to"] is None)


def test_growth_times_a_second_fit_of_every_size(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[int, ...]] = []

    def note(x: np.ndarray, components: int, *_: Any, bounds: Any) -> None:
        assert (np.abs(x) <= bounds[1]).all()
        seen.append((*x.shape, components))

    monkeypatch.setattr(mixture, "_fit", note)
    rows = mixture.growth(quick=True)
    check(rows)
    sizes = [(1000, 4, 4), (10_000, 4, 4), (4000, 8, 4), (4000, 4, 8)]
    assert seen == [size for size in sizes for _ in range(2)]  # the first of each is there to compile
    times = {row["case"]: row for row in rows if row["metric"] == "fit, compiled"}
    assert len(times) == 4
    assert times["mixture/growth, 10000 records"]["ratio"] == 1.0
    each = [row for row in rows if row["unit"] == "us"]
    assert each[0]["value"] == pytest.approx(1e6 * times["mixture/growth, 1000 records"]["value"] / 1000)


def test_sequential_sep_is_compared_with_the_public_codes_time() -> None:
    rows = mixture.sequential(quick=True)
    check(rows)
    (row,) = rows
    assert row["n"] == 3
    assert row["ratio"] == pytest.approx(row["value"] / 630.0)


def test_accuracy_is_held_out_and_compared_with_scikit_learn(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[Any, ...]] = []

    def note(x: np.ndarray, components: int, epsilon: Any, seed: int, **settings: Any) -> Known:
        seen.append((*x.shape, components, epsilon, settings["covariance_type"]))
        return Known(np.zeros((5, 4)), 1.0, score=-20.0)

    monkeypatch.setattr(mixture, "_fit", note)
    rows = mixture.accuracy(quick=True)
    check(rows)
    kinds = ("diag", "spherical")
    assert seen == [(5000, 4, 5, epsilon, kind) for kind in kinds for epsilon in (None, 8.0, 3.0, 1.0)]
    assert len(rows) == 2 * 5
    for kind in kinds:
        by_name = {row["who"]: row for row in rows if row["case"].endswith(kind)}
        peer, ours = by_name["scikit-learn"], by_name["dpsep, epsilon 1"]
        # Five clusters 3 apart in four columns: the entropy lies near that of one cluster plus the label's.
        assert -10 < peer["value"] < -5
        assert peer["ratio"] is None
        assert ours["ratio"] == pytest.approx(-20.0 / peer["value"])
        assert ours["worst_relative_difference"] == pytest.approx((-20.0 - peer["value"]) / -peer["value"])


@pytest.mark.deep
def test_coverage_lies_between_nothing_and_everything_and_noise_aware_intervals_cover_more() -> None:
    rows = mixture.coverage(quick=True)
    check(rows)
    assert len(rows) == 4
    for aware, alone in (rows[:2], rows[2:]):
        assert aware["case"] == alone["case"]
        assert "not noise-aware" in alone["who"]
        assert 0.0 <= alone["value"] <= aware["value"] <= 1.0
        assert aware["n"] == 3
    assert rows[0]["value"] > 0.6  # 48 intervals of 90 %


def test_an_interval_is_counted_by_its_own_deviation_and_component() -> None:
    means = np.array([[0.0, 0.0], [9.0, 0.0], [0.0, 9.0]])
    found = means + 0.1 * np.array([[1.6, 0.0], [0.0, -1.7], [0.0, 1.6]])
    other = found[[2, 0, 1]]
    # One of six means is 1.7 deviations off, beyond the 1.645 of a 90 % interval.
    assert mixture._inside(Known(other, 0.1), means) == pytest.approx(5 / 6)  # pyright: ignore[reportArgumentType]
    assert mixture._inside(Known(other, 0.2), means) == 1.0  # pyright: ignore[reportArgumentType]


@pytest.mark.filterwarnings("error")
def test_fits_of_the_benchmark_are_seeded_without_a_warning_and_private_where_asked() -> None:
    x, _ = mixture.clusters(0, 300, 2, 2)
    private = mixture._fit(x, 2, 1.0, 0, bounds=(-20, 20))
    assert isinstance(private, GaussianMixture)
    assert private.privacy_ is not None
    assert not private.privacy_.secure
    np.testing.assert_array_equal(private.means_, mixture._fit(x, 2, 1.0, 0, bounds=(-20, 20)).means_)
    with pytest.warns(PrivacyLeakWarning):
        GaussianMixture(2, bounds=(-20, 20), random_state=0).fit(x)
    assert mixture._fit(x, 2, None, 0).privacy_ is None


def test_everything_together_is_one_list_that_can_be_printed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("growth", "sequential", "accuracy", "coverage"):
        rows = [table.row(f"mixture/{name}", "dpsep", "made", 1.0)]
        monkeypatch.setattr(mixture, name, lambda quick, rows=rows: rows if quick else [])
    rows = mixture.mixture(quick=True)
    assert [row["case"] for row in rows] == [
        *("mixture/growth", "mixture/sequential", "mixture/accuracy", "mixture/coverage")
    ]
    table.render(rows)
    assert "mixture/coverage" in capsys.readouterr().out


def test_true_means_have_deviation_three() -> None:
    means = mixture.clusters(0, 1, 20_000, 2)[1]
    assert means.var() == pytest.approx(9.0, rel=5 * math.sqrt(2 / means.size))
    assert abs(means.mean()) < 5 * 3 / math.sqrt(means.size)


def test_deviations_are_log_normal_and_shared_by_the_records_of_a_component() -> None:
    x, means = mixture.clusters(1, 2, 1, 200_000)
    squares = (x - means) ** 2
    # log s ~ N(0, 0.4^2): E s^2 = exp(0.32), and two records of one component have E s^4 = exp(1.28).
    assert squares.mean() == pytest.approx(math.exp(0.32), rel=0.02)
    assert (squares[0] * squares[1]).mean() == pytest.approx(math.exp(1.28), rel=0.1)


def test_weights_are_dirichlet() -> None:
    shares = []
    for seed in range(300):
        x, means = mixture.clusters(seed, 200, 2, 40)
        apart = ((x[:, None] - means[None]) ** 2).sum(-1)  # in 40 columns the nearest mean is the record's
        shares.append(np.mean(apart[:, 0] < apart[:, 1]))
    # Dirichlet(3, 3) is Beta(3, 3): mean 1/2, variance 1/28; counting 200 records adds (9/42) / 200.
    variance = 1 / 28 + 9 / 42 / 200
    assert np.mean(shares) == pytest.approx(0.5, abs=5 * math.sqrt(variance / 300))
    assert np.var(shares) == pytest.approx(variance, rel=0.4)


def test_the_same_seed_gives_the_same_clusters() -> None:
    for one, two in zip(mixture.clusters(5, 10, 3, 2), mixture.clusters(5, 10, 3, 2), strict=True):
        np.testing.assert_array_equal(one, two)
    assert not np.array_equal(mixture.clusters(5, 10, 3, 2)[0], mixture.clusters(6, 10, 3, 2)[0])
