import json
import sys
from pathlib import Path
from typing import Any

import pytest

from dpsep.cli import demo
from dpsep.privacy.ledger import Ledger

from .help import call

PNG = b"\x89PNG\r\n\x1a\n"


@pytest.fixture
def survey(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The first rows of the survey, so that the demonstration is quick."""
    rows = demo.load().iloc[:600]
    monkeypatch.setattr(demo, "load", lambda: rows)
    return rows


def test_the_survey_lies_within_the_declared_bounds() -> None:
    data = demo.load()
    assert len(data) == 20190
    for name, (low, high) in demo.BOUNDS.items():
        assert low <= data[name].min()
        assert data[name].max() <= high


@pytest.mark.usefixtures("survey")
def test_the_demo_writes_a_picture_and_a_ledger_each_time_anew_and_tells_what_was_spent(
    tmp_path: Path,
) -> None:
    done = call("demo", "--out", tmp_path / "out", "--json")
    assert done.exit_code == 0, done.output
    document = json.loads(done.stdout)
    ledger = Ledger(tmp_path / "out" / "study.db")
    assert document["ledger"]["spent"]["epsilon"] == ledger.spent().epsilon <= 2.0
    for model in document["models"]:
        assert len(model["private"]) == len(model["not_private"]) == 10
        assert all(0 < row["noise_share"] < 1 for row in model["private"])
        assert model["privacy"]["secure"] is True
        assert model["privacy"]["leaks"] == []

    done = call("demo", "--out", tmp_path / "out", "--epsilon", 2)
    assert done.exit_code == 0, done.output
    assert done.stdout.count("differentially private for each record") == 2
    assert "private (epsilon 2, zero-out)" in done.stdout
    assert "one person-year" in done.stdout
    again = Ledger(tmp_path / "out" / "study.db")
    assert again.id != ledger.id
    assert [row.kind for row in again.rows()][1:] == ["charge", "finished"] * 2
    assert sorted(item.name for item in (tmp_path / "out").iterdir()) == ["demo.png", "study.db"]
    assert (tmp_path / "out" / "demo.png").read_bytes().startswith(PNG)


def test_a_missing_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "statsmodels.datasets", None)
    done = call("demo", "--out", tmp_path / "out")
    assert done.exit_code == 2
    assert "pip install 'dpsep[demo]'" in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_budget_that_makes_no_sense_is_refused(tmp_path: Path) -> None:
    assert call("demo", "--out", tmp_path / "out", "--epsilon", 0).exit_code == 2
