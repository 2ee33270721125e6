import numpy as np
import pytest
from scipy.special import expit

from dpsep.bench.coverage import NOISE, REACH, coverage, simulate


@pytest.mark.parametrize("kind", ["linear", "logistic"])
def test_intervals_that_know_the_noise_cover_and_those_that_do_not_fall_short(kind):
    aware, alone = coverage(kind, 1.0, datasets=40, records=5000, features=3)
    assert aware["coefficients"] == 160
    # 160 coefficients at 90 %: the binomial standard error is 0.024; the limits are wide.
    assert 0.80 <= aware["coverage"] <= 0.98
    assert alone["coverage"] < aware["coverage"]
    assert 0.8 < aware["error_in_sds"] < 1.25 < alone["error_in_sds"]
    assert aware["width_ratio"] > 1.0 == alone["width_ratio"]


def test_made_outcomes_follow_their_models():
    x, y, truth = simulate("linear", 20000, 3, seed=0)
    assert np.abs(x).max() <= REACH
    assert np.std(y - truth[0] - x @ truth[1:]) == pytest.approx(NOISE, rel=0.03)
    for kind in ("logistic", "probit", "poisson"):
        x, y, truth = simulate(kind, 20000, 3, seed=1)
        u = truth[0] + x @ truth[1:]
        assert set(np.unique(y)) == {-1.0, 1.0} if kind != "poisson" else (y >= 0).all()
        expected = np.exp(u) if kind == "poisson" else 2 * expit(u if kind == "logistic" else 1.702 * u) - 1
        # A standard error is about 0.007 for labels; the probit is within 0.01 of the scaled logistic.
        assert np.mean(y) == pytest.approx(np.mean(expected), abs=0.05)


def test_wrong_arguments_are_refused():
    with pytest.raises(ValueError, match="linear, logistic, probit, poisson"):
        coverage("ridge")  # pyright: ignore[reportArgumentType]
    with pytest.raises(ValueError, match="at least 2"):
        coverage("linear", datasets=1)
