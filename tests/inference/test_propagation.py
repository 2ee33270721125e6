"""The covariance that noise gives to a result, against what many runs show."""

import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from dpsep import GaussianMixture
from dpsep.inference import propagation, sketch
from dpsep.inference.mixture_update import Settings
from dpsep.models.glm import Columns

RECORDS = 1000
FITS = 20


@pytest.fixture(autouse=True, scope="module")
def _quick() -> Iterator[None]:
    """Search twice for a start: a single column of records leaves little to miss."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sketch, "RESTARTS", 2)
        yield


def overlapping(apart: float) -> np.ndarray:
    generator = np.random.default_rng(7)
    labels = generator.integers(2, size=RECORDS)
    return ((labels - 0.5) * apart + generator.standard_normal(RECORDS))[:, None]


def scores(apart: float, **settings: Any) -> np.ndarray:
    """Errors of the means about the fit without privacy, in stated deviations of their noise."""
    x = overlapping(apart)
    base = np.sort(GaussianMixture(2, private=False, bounds=(-8, 8), **settings).fit(x).means_[:, 0])
    found = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for seed in range(FITS):
            model = GaussianMixture(2, epsilon=2.0, bounds=(-8, 8), random_state=seed, **settings).fit(x)
            order = np.argsort(model.means_[:, 0])
            deviation = np.sqrt(model.posterior_.noise_covariances[order, 0, 0])
            found.append((model.means_[order, 0] - base) / deviation)
    return np.asarray(found)


@pytest.mark.parametrize("method", ["sep", "vi", "em"])
def test_overlapping_components_err_as_much_as_is_stated(method: str) -> None:
    known = {"noise_scale": 1.0, "weights": "uniform", "method": method}
    assert np.sqrt(np.mean(scores(2.5, **known) ** 2)) == pytest.approx(1.0, abs=0.35)


def test_sampled_rows_are_part_of_what_is_stated() -> None:
    known = {"noise_scale": 1.0, "weights": "uniform", "sampling": 0.3}
    assert np.sqrt(np.mean(scores(4.0, **known) ** 2)) == pytest.approx(1.0, abs=0.35)


def test_learned_variances_and_weights_widen_what_is_stated_of_the_means(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    spread = np.sqrt(np.mean(scores(4.0) ** 2))
    assert 0.5 < spread < 1.6
    monkeypatch.setattr(propagation, "MOST_PARAMETERS", 0)
    assert np.sqrt(np.mean(scores(4.0) ** 2)) > spread


def test_unknown_numbers_are_counted() -> None:
    columns = Columns(*np.zeros((4, 3)))  # pyright: ignore
    settings = Settings(columns, np.zeros((2, 3)), 1.0, None, 1.0, "diag", True)
    assert propagation.parameters(settings, 2, 3) == 2 * (3 + 3 + 1)
    assert propagation.parameters(settings._replace(variances="spherical"), 2, 3) == 2 * (3 + 1 + 1)
    known = settings._replace(variances="known", weights=np.full(2, 0.5))
    assert propagation.parameters(known, 2, 3) == 6


def test_few_records_are_left_to_the_simple_recursion() -> None:
    x = overlapping(6.0)[: propagation.FEWEST - 1]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = GaussianMixture(2, epsilon=5.0, bounds=(-8, 8), random_state=0).fit(x)
    assert (model.posterior_.noise_covariances[:, 0, 0] > 0).all()
