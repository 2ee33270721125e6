"""What the commands print: quiet calls, JSON on standard output, bars on a terminal only."""

import json
import os
import pty
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
import typer.main

from dpsep.cli.commands import app
from dpsep.cli.screen import hush, is_quiet, print_table, progress, remark, say, warn

from .help import BOUNDED, call, some, write_csv

ALWAYS_PRINTS = {"ledger show"}
"""Commands whose only work is to print."""
NO_JSON = {"schema", "federate init", "federate key", "federate site"}
"""Commands that write a TOML draft, files, or run until they are stopped."""
PLAN = ("plan", "--model", "linear", "--records", 10_000, "--features", 3, "--epsilon", 1)


def commands() -> Iterator[tuple[str, click.Command]]:
    top = typer.main.get_command(app)
    assert isinstance(top, click.Group)
    for name, command in top.commands.items():
        if isinstance(command, click.Group):
            yield from ((f"{name} {inner}", one) for inner, one in command.commands.items())
        else:
            yield name, command


def options(command: click.Command) -> set[str]:
    return {name for one in command.params for name in one.opts}


@pytest.fixture(autouse=True)
def _loud_again() -> Iterator[None]:
    yield
    hush(False)


@pytest.mark.parametrize(("name", "command"), list(commands()), ids=[name for name, _ in commands()])
def test_every_command_can_be_quiet_and_speak_json(name: str, command: click.Command) -> None:
    assert ("--quiet" in options(command)) != (name in ALWAYS_PRINTS)
    assert ("--json" in options(command)) != (name in NO_JSON)


def test_a_quiet_call_leaves_out_all_but_warnings(capsys: pytest.CaptureFixture[str]) -> None:
    hush(True)
    say("text")
    remark("remark")
    print_table("title", ("a",), [("1",)])
    warn("heed this")
    found = capsys.readouterr()
    assert found.out == ""
    assert found.err == "dpsep: warning: heed this\n"


def test_json_on_standard_output_hushes_the_rest() -> None:
    hush(False, Path("-"))
    assert is_quiet()
    hush(False, Path("rows.json"))
    assert not is_quiet()


def test_a_plan_goes_to_standard_output_alone(tmp_path: Path) -> None:
    done = call(*PLAN, "--json", "-")
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["request"]["records"] == 10_000
    assert done.stderr == ""
    assert call(*PLAN, "--quiet").output == ""
    assert call(*PLAN, "--quiet", "--json", tmp_path / "plan.json").output == ""
    assert json.loads((tmp_path / "plan.json").read_text())["request"]["records"] == 10_000


def test_a_quiet_call_does_not_hush_the_next_one(tmp_path: Path) -> None:
    budget = ("--epsilon", 1, "--delta", 1e-5)
    assert call("ledger", "create", tmp_path / "a.db", *budget, "--quiet").output == ""
    assert "Made the ledger" in call("ledger", "create", tmp_path / "b.db", *budget).output


def test_a_bar_is_not_shown_where_there_is_no_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    asked = []
    with progress("fitting", note=lambda done: str(asked.append(done))) as report:
        report(1, 2)
    assert capsys.readouterr().err == ""
    assert asked == []  # nobody works for words that nobody sees


@pytest.mark.skipif(sys.platform == "win32", reason="there are no pseudo-terminals")
def test_a_fit_shows_its_bar_its_time_and_its_epsilon_on_a_terminal(tmp_path: Path) -> None:
    write_csv(tmp_path / "t.csv", some("a b y"))
    call_line = ["fit", "t.csv", "--target", "y", "--epsilon", "1", "--out", "run", *map(str, BOUNDED)]
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "dpsep.cli", *call_line]
    environment = os.environ | {"TERM": "xterm", "COLUMNS": "140", "LINES": "30"}
    with subprocess.Popen(
        command, cwd=tmp_path, stderr=theirs, stdout=subprocess.PIPE, env=environment
    ) as work:
        os.close(theirs)
        seen = b""
        while True:
            try:
                part = os.read(ours, 4096)
            except OSError:  # the other end is closed
                break
            if not part:
                break
            seen += part
        result = work.communicate()[0].decode()
    os.close(ours)
    assert work.returncode == 0, seen
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", seen.decode(errors="replace"))
    assert re.search(r"fitting .*\d+/\d+", text)
    assert "of epsilon 1 released" in text
    assert "fitting" not in result
