"""A new user's morning: a table, a budget, an answer, a prediction, and what it cost."""

import json
import re
from pathlib import Path

import pytest

from dpsep.data import Schema

from .help import assert_refused, call

README = Path(__file__).resolve().parents[2] / "README.md"


def commands() -> list[list[str]]:
    """The commands that the README's section on the shell tells a new user to type."""
    section = README.read_text(encoding="utf-8").split("## In the shell")[1].split("\n## ")[0]
    block = section.split("```console\n")[1].split("```")[0]
    lines = [line.split("#")[0].strip() for line in block.replace("\\\n", " ").splitlines()]
    return [line.removeprefix("$ ").split()[1:] for line in lines if line.startswith("$ dpsep ")]


def test_the_readmes_commands_work_as_printed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    said = {}
    for command in commands():
        done = call(*command)
        assert done.exit_code == 0, done.output
        said[command[0]] = done.stdout
    assert {"demo", "schema", "ledger", "fit", "predict"} == set(said)
    statement = json.loads((tmp_path / "run" / "privacy.json").read_text())
    assert statement["leaks"] == []
    assert Schema.read(tmp_path / "schema.toml").target == "visits"
    assert (tmp_path / "predicted.csv").read_text().startswith("row,mean,sd,low,high\n1,")
    assert re.search(r"spent +epsilon 1\.5", said["ledger"])


def test_the_survey_does_not_replace_a_file(tmp_path: Path) -> None:
    (tmp_path / "visits.csv").write_text("mine")
    assert_refused(call("demo", "--table", tmp_path / "visits.csv"), "exists already")
    assert (tmp_path / "visits.csv").read_text() == "mine"
