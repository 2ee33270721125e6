"""Metrics of a run that dies are released once, or counted as often as they may have been."""

import json
import math
from pathlib import Path
from typing import Any

import pytest
from scipy import stats

from dpsep.cli import fit as shell_fit
from dpsep.privacy.ledger import CHARGES, Ledger
from dpsep.privacy.release_log import ReleaseLog

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
        return [row.epsilon for row in self.ledger.rows() if row.kind in CHARGES]

    def read(self, name: str) -> Any:
        return json.loads((self.folder / name).read_text())


@pytest.fixture
def study(tmp_path: Path) -> Study:
    return Study(tmp_path)


def test_metrics_that_were_kept_are_not_released_again(study: Study, monkeypatch: pytest.MonkeyPatch) -> None:
    kept: list[Any] = []

    def full(estimator: Any, place: Path, extra: dict[str, str], *_: Any) -> None:
        kept.append(json.loads(extra["metrics.json"]))
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(shell_fit, "save", full)
        failed = study.fit()
    assert failed.exit_code != 0
    assert "nothing more is charged" in failed.stderr
    done = study.fit("--resume")
    assert done.exit_code == 0, done.output
    assert [study.read("run/metrics.json")] == kept
    assert study.charges() == pytest.approx([3.0, 2.0], rel=1e-3)
    assert "releases" not in study.read("run/privacy.json")["metrics"]


@pytest.mark.parametrize("moment", ["scored", "kept"])
def test_a_release_that_may_have_been_made_and_was_not_kept_is_counted(
    study: Study, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    keep = ReleaseLog.keep

    def killed(*_: Any) -> None:
        raise KeyboardInterrupt

    def lost(log: ReleaseLog, stage: str, released: Any) -> None:
        killed() if stage == "metrics" else keep(log, stage, released)

    with monkeypatch.context() as patch:  # before the rows are read, or after the release is made
        if moment == "scored":
            patch.setattr("dpsep.cli.metrics.row_scores", killed)
        else:
            patch.setattr(ReleaseLog, "keep", lost)
        stopped = study.fit()
    assert stopped.exit_code == 1
    assert "--resume goes on" in stopped.stderr
    done = study.fit("--resume")
    assert done.exit_code == 0, done.output
    stated = study.read("run/privacy.json")["metrics"]
    assert stated == study.read("run/metrics.json")["privacy"]
    assert stated["releases"] == 2
    # Two releases of full batches are one Gaussian mechanism; its epsilon from the closed form.
    mu, epsilon = math.sqrt(2) / stated["sigma"], stated["epsilon"]
    delta = stats.norm.cdf(mu / 2 - epsilon / mu) - math.exp(epsilon) * stats.norm.cdf(-mu / 2 - epsilon / mu)
    assert delta == pytest.approx(stated["delta"], rel=1e-3)
    assert stated["delta"] == 1e-3
    assert study.charges() == pytest.approx([3.0, 2.0, epsilon - 2.0], rel=1e-3)
    words = " ".join((study.folder / "run" / "privacy.txt").read_text().split())
    assert "2 such sums are counted" in words


def test_metrics_that_were_begun_go_on_with_their_own_budget(
    study: Study, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("dpsep.cli.metrics.row_scores", killed)
        study.fit()
    assert_refused(study.fit("--resume", metrics=1.0), "other settings", "--overwrite")
    assert study.charges() == pytest.approx([3.0, 2.0], rel=1e-3)


@pytest.mark.parametrize("begun", [True, False])
def test_a_fit_whose_metrics_do_not_fit_any_more_is_stored_without_them(
    study: Study, monkeypatch: pytest.MonkeyPatch, begun: bool
) -> None:
    def killed(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("dpsep.cli.metrics.row_scores" if begun else "dpsep.cli.fit.private_metrics", killed)
        study.fit()
    left = study.ledger.remaining()
    study.ledger.charge("other", epsilon=left.epsilon - 0.1, delta=0.0, relation="zero-out", event={})
    done = study.fit("--resume")
    assert done.exit_code == 0, done.output
    assert "warning: no metrics" in done.stderr
    if not begun:
        assert "metrics" not in study.read("run/privacy.json")
        return
    stated = study.read("run/privacy.json")["metrics"]
    assert (stated["releases"], stated["rows"]) == (1, 0)
    assert stated["epsilon"] == pytest.approx(2.0, rel=1e-3)
    assert study.read("run/metrics.json")["metrics"] == {}
