"""Real tables over real processes: parts of Adult and of a UCI set at three sites, against one table."""

import warnings
from pathlib import Path

import pytest

pytest.importorskip("flwr", reason="Flower is not installed: pip install 'dpsep[federated]'")

from dpsep.cli import federate_demo
from dpsep.privacy.leaks import PrivacyLeakWarning

SHARED = Path(__file__).resolve().parents[2].parent / "shared" / "data"


@pytest.mark.deep
@pytest.mark.skipif(not SHARED.is_dir(), reason=f"the data folder {SHARED} is not there")
@pytest.mark.parametrize(("data", "weights", "most"), [("adult", 44, 2.0), ("power", 5, 3.0)])
def test_the_posterior_is_that_of_one_table_with_the_same_noise(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, data: str, weights: int, most: float
) -> None:
    monkeypatch.setenv("DPSEP_DATA", str(SHARED))
    table, schema = federate_demo._survey(data, 6000)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PrivacyLeakWarning)  # the seed
        told = federate_demo._work(tmp_path / "run", table, schema, "server", 1.0, 3, faults=False)
    assert told.features + 1 == weights
    assert told.difference <= 1e-6
    assert [site["charges"] for site in told.sites] == [1, 1, 1]
    assert sum(site["rows"] for site in told.sites) == 6000
    assert len({site["rows"] for site in told.sites}) == 3
    assert (told.question_bytes + told.answer_bytes) / told.natural_bytes <= most
