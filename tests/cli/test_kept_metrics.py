"""Metrics of a run that dies are released once, or counted as often as they may have been."""

import json
from pathlib import Path
from typing import Any

import pytest

from dpsep.cli import fit as shell_fit
from dpsep.privacy.ledger import Ledger

from .help import BOUNDED, assert_refused, call, some, write_csv


class Study:
    """A table, a ledger and a call that can be made to die."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.table = write_csv(folder / "t.csv", some("a b y"))
        self.ledger = Ledger.create(folder / "study.db", epsilon=20.0, delta=1e-2)

    def fit(self, *more: Any, metrics: float = 2.0) -> Any:
        call_line = ("fit", self.table, "--target", "y", "--epsilon", 3, "--out", self.folder / "run")
        paid = ("--metrics-epsilon", metrics, "--ledger", self.ledger.path, "--delta", 1e-3)
        return call(*call_line, *paid, "--quiet", *BOUNDED, *more)

    def charges(self) -> list[float]:
        return [float(row.epsilon) for row in self.ledger.rows() if row.kind == "charge"]

    def read(self, name: str) -> Any:
        return json.loads((self.folder / name).read_text())


@pytest.fixture
def study(tmp_path: Path) -> Study:
    return Study(tmp_path)


def test_metrics_that_were_kept_are_not_released_again(study: Study, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any, **__: Any) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(shell_fit, "save", full)
        failed = study.fit()
    assert failed.exit_code != 0
    assert "nothing more is charged" in failed.stderr
    kept = study.read("run.partial/held-out.json")["kept"]
    done = study.fit("--resume")
    assert done.exit_code == 0, done.output
    assert study.read("run/metrics.json") == kept
    assert study.charges() == pytest.approx([3.0, 2.0], rel=1e-3)
    assert "releases" not in study.read("run/privacy.json")["metrics"]


def test_a_release_that_may_have_been_made_and_was_not_kept_is_counted(
    study: Study, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:  # after the release, before it is kept
        patch.setattr("dpsep.cli.metrics.calibration_of_counts", killed)
        assert study.fit().exit_code == 1
    done = study.fit("--resume")
    assert done.exit_code == 0, done.output
    assert study.charges() == pytest.approx([3.0, 2.0, 2.0], rel=1e-3)
    stated = study.read("run/privacy.json")["metrics"]
    assert stated["releases"] == 2
    assert stated["epsilon"] == pytest.approx(4.0, rel=1e-3)
    assert stated["delta"] == pytest.approx(2e-3)
    assert stated == study.read("run/metrics.json")["privacy"]
    words = " ".join((study.folder / "run" / "privacy.txt").read_text().split())
    assert "2 such sums are counted" in words
    assert "counts as (7, 0.003)" in words


def test_metrics_that_were_begun_go_on_with_their_own_budget(
    study: Study, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("dpsep.cli.metrics.row_scores", killed)
        study.fit()
    assert_refused(study.fit("--resume", metrics=1.0), "begun with --metrics-epsilon 2")
