"""Calls of the command line in this process."""

from typing import Any

from click.testing import Result
from typer.testing import CliRunner

from dpsep.cli.commands import app


def call(*arguments: Any) -> Result:
    """Run a command; standard output and error are kept apart."""
    return CliRunner().invoke(app, [str(part) for part in arguments])


def assert_refused(done: Result, *words: str) -> None:
    """One line of error that says what was wrong, and nothing else."""
    assert done.exit_code == 2, done.output
    assert done.stdout == ""
    last = done.stderr.strip().splitlines()[-1]
    assert last.startswith("dpsep: error: ")
    for word in words:
        assert word in last
