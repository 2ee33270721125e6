"""A fit that is killed, at several moments, and goes on."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from dpsep.estimators.store import load
from dpsep.privacy.ledger import Ledger

from .help import BOUNDED, call, some, write_csv

KILLED = """
import os, signal, sys
from dpsep.privacy.release_log import ReleaseLog
from dpsep.cli.folder import RunFolder
moment, number = sys.argv[1], int(sys.argv[2])
die = lambda: os.kill(os.getpid(), signal.SIGKILL)
keep, finish, rename, discard = ReleaseLog.keep, RunFolder.finish, os.rename, RunFolder._discard
def killed_keep(self, stage, released):
    if moment == "before" and self.kept[stage] == number:
        die()
    keep(self, stage, released)
    if moment == "after" and self.kept[stage] == number:
        die()
ReleaseLog.keep = killed_keep
if moment == "moving":
    os.rename = lambda *names: die()
if moment == "cleaning":
    RunFolder._discard = lambda self: die()
from dpsep.cli.commands import app
app(sys.argv[3:])
"""


class Study:
    """A table, a ledger and the calls on them."""

    def __init__(self, place: Path) -> None:
        self.run = place / "run"
        self.ledger = Ledger.create(place / "study.db", epsilon=3.0, delta=1e-4)
        table = write_csv(place / "t.csv", some("a b y"))
        self.arguments = [
            *("fit", str(table), "--target", "y", "--epsilon", "1", "--out", str(self.run), "--quiet"),
            *("--ledger", str(self.ledger.path), *BOUNDED),
        ]

    def kill(self, moment: str, number: int, *more: str) -> None:
        command = [sys.executable, "-c", KILLED, moment, str(number), *self.arguments, *more]
        done = subprocess.run(command, capture_output=True, text=True)
        assert done.returncode == -9, done.stderr
        self.ledger.verify()

    def kinds(self) -> list[str]:
        return [row.kind for row in self.ledger.rows() if row.kind not in ("create", "release")]


@pytest.fixture
def study(tmp_path: Path) -> Study:
    return Study(tmp_path)


def test_a_run_killed_twice_goes_on_and_its_spend_is_on_the_ledger(study: Study) -> None:
    study.kill("before", 3)
    assert not study.run.exists()
    assert study.kinds() == ["charge"]
    first = study.ledger.spent().epsilon
    assert 0.9 < first <= 1.0
    refused = call(*study.arguments)
    assert refused.exit_code == 2
    assert "--resume" in refused.stderr
    study.kill("after", 9, "--resume")
    assert not study.run.exists()
    assert study.kinds() == ["charge", "extra-step"]
    done = call(*study.arguments, "--resume")
    assert done.exit_code == 0, done.output
    assert study.kinds() == ["charge", "extra-step", "extra-step", "finished"]
    # Two releases more than the 16 of the plan: epsilon grows by about sqrt(18/16).
    assert first * 1.03 < study.ledger.spent().epsilon < first * 1.1
    statement = json.loads((study.run / "privacy.json").read_text())
    assert statement["epsilon"] == pytest.approx(study.ledger.spent().epsilon, rel=1e-6)
    assert load(study.run)
    assert not study.run.with_name("run.partial").exists()


def test_a_run_killed_before_its_folder_is_in_place_costs_nothing_more(study: Study) -> None:
    study.kill("moving", 0)
    assert not study.run.exists()
    spent = study.ledger.spent()
    done = call(*study.arguments, "--resume")
    assert done.exit_code == 0, done.output
    assert study.ledger.spent() == spent
    assert load(study.run)


def test_a_run_killed_when_its_folder_is_in_place_is_finished(study: Study) -> None:
    study.kill("cleaning", 0)
    whole = (study.run / "manifest.json").read_text()
    done = call(*study.arguments, "--resume")
    assert done.exit_code == 0, done.output
    assert "nothing to resume" in done.stderr
    assert (study.run / "manifest.json").read_text() == whole
    assert study.kinds() == ["charge", "finished"]
    assert not study.run.with_name("run.partial").exists()
