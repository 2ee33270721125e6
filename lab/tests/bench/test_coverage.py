import numpy as np
import pytest
from scipy.special import expit

from dpsep_lab import bench
from dpsep_lab.bench.coverage import EPSILONS, cases, coverage, grid, simulate
from dpsep_lab.bench.coverage_kinds import KINDS, NOISE, REACH, Kind, Made


@pytest.mark.parametrize("kind", ["linear", pytest.param("logistic", marks=pytest.mark.deep)])
def test_intervals_that_know_the_noise_cover_and_those_that_do_not_fall_short(kind):
    aware, alone = coverage(kind, 0.3, datasets=40, records=5000, features=3)
    assert aware["coefficients"] == 160
    # 160 coefficients at 90 %: the binomial standard error is 0.024; the limits are wide.
    assert 0.80 <= aware["coverage"] <= 0.98
    assert alone["coverage"] < aware["coverage"]
    assert 0.8 < aware["error_in_sds"] < 1.25 < alone["error_in_sds"]
    assert aware["width_ratio"] > 1.0 == alone["width_ratio"]


def test_made_outcomes_follow_their_models():
    made = simulate("linear", 20000, 3, seed=0)
    x, y = made.records["X"], made.records["y"]
    assert np.abs(x).max() <= REACH
    assert np.std(y - made.truth[0] - x @ made.truth[1:]) == pytest.approx(NOISE, rel=0.03)
    for kind in ("logistic", "probit", "poisson"):
        made = simulate(kind, 20000, 3, seed=1)
        x, y, truth = made.records["X"], made.records["y"], made.truth
        u = truth[0] + x @ truth[1:]
        assert set(np.unique(y)) == {-1.0, 1.0} if kind != "poisson" else (y >= 0).all()
        expected = np.exp(u) if kind == "poisson" else 2 * expit(u if kind == "logistic" else 1.702 * u) - 1
        # A standard error is about 0.007 for labels; the probit is within 0.01 of the scaled logistic.
        assert np.mean(y) == pytest.approx(np.mean(expected), abs=0.05)


def test_the_grid_crosses_kinds_and_budgets_with_and_without_knowledge_of_the_noise():
    rows = grid(("linear", "poisson"), (1.0, 3.0), datasets=2, records=400, features=1)
    cells = [(row["kind"], row["epsilon"], row["noise_aware"]) for row in rows]
    assert cells == [(k, e, a) for k in ("linear", "poisson") for e in (1.0, 3.0) for a in (True, False)]


class Fixed:
    """A stand-in for an estimator whose posterior is known: mean 0 and 1, sd 1, half of it noise."""

    def __init__(self, **_):
        self.posterior_ = self
        self.mean = np.array([0.0, 1.0])
        self.covariance, self.noise_covariance = np.eye(2), 0.75 * np.eye(2)

    def fit(self, X):
        return self


def test_a_kind_that_is_registered_is_covered_like_the_others(monkeypatch):
    # Errors of 0 and 1 posterior sds: both lie inside 1.645 sds, one outside half of that.
    truth = np.array([0.0, 2.0])
    monkeypatch.setitem(KINDS, "mine", Kind(lambda n, d, rng: Made({"X": np.zeros((n, d))}, truth), Fixed))
    aware, alone = coverage("mine", datasets=3)
    assert (aware["coverage"], alone["coverage"]) == (1.0, 0.5)
    assert aware["error_in_sds"] == pytest.approx(0.5**0.5)
    assert aware["pull_in_sds"] == pytest.approx(-0.5)  # one coefficient a whole sd too near zero
    assert aware["width_ratio"] == pytest.approx(2.0)


def test_the_benchmark_has_a_row_a_cell(monkeypatch, tmp_path):
    for kind in ("linear", "logistic"):
        stand_in = Kind(lambda n, d, rng: Made({"X": np.zeros((n, d))}, np.zeros(2)), Fixed)
        monkeypatch.setitem(KINDS, kind, stand_in)
    rows = cases(quick=True)
    assert len(rows) == 2 * len(EPSILONS) * 2
    assert {row["ratio_to"] for row in rows} == {"nominal"}
    assert bench.run(["coverage"], True, tmp_path / "rows.json") == 0
    assert "epsilon 0.5" in (tmp_path / "rows.json").read_text()


def test_wrong_arguments_are_refused():
    with pytest.raises(ValueError, match="linear, logistic, probit, poisson"):
        coverage("ridge")
    with pytest.raises(ValueError, match="linear, logistic, probit, poisson"):
        grid(("linear", "ridge"))
    with pytest.raises(ValueError, match="at least 2"):
        coverage("linear", datasets=1)
