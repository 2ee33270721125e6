import subprocess
import sys
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

import dpsep
from dpsep.cli import laboratory
from dpsep.cli.commands import _Guarded

from .help import assert_refused, call

HEAVY = ("jax", "sklearn", "polars", "pyarrow", "scipy", "numpy")


def test_help_imports_nothing_heavy() -> None:
    script = (
        "import sys, dpsep.cli.commands\n"
        "from typer.testing import CliRunner\n"
        "assert CliRunner().invoke(dpsep.cli.commands.app, ['fit', '--help']).exit_code == 0\n"
        f"print([name for name in {HEAVY} if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_the_version_is_the_packages() -> None:
    assert call("--version").output == f"dpsep {dpsep.__version__}\n"


@pytest.mark.parametrize(
    "command", ["demo", "fit", "predict", "check", "schema", "bench", "ledger", "federate"]
)
def test_every_command_has_help(command: str) -> None:
    assert call(command, "--help").exit_code == 0


def test_an_unknown_command_is_a_wrong_call() -> None:
    assert call("fitt").exit_code == 2


def test_an_error_that_is_nobodys_mistake_shows_no_message_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        float("a secret cell")

    (tmp_path / "t.csv").write_text("a,b\n1,2\n")
    monkeypatch.setattr("dpsep.data.check.read_lines", fail)
    done = call("check", tmp_path / "t.csv")
    assert done.exit_code == 1
    assert "ValueError" in done.stderr
    assert "secret" not in done.stderr
    assert "secret" in call("--debug", "check", tmp_path / "t.csv").stderr
    monkeypatch.setenv("DPSEP_DEBUG", "1")
    assert "Traceback" in call("check", tmp_path / "t.csv").stderr


@pytest.mark.parametrize("command", [("bench", "--quick"), ("paper", "table1", "--json", "rows.json")])
def test_without_the_laboratory_its_commands_say_how_to_install_it(
    command: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(laboratory, "entry_points", lambda **_: ())
    bare = typer.Typer(cls=_Guarded)
    laboratory.add_commands(bare)
    done = CliRunner().invoke(bare, list(command))
    assert_refused(done, f"'dpsep {command[0]}'", "pip install dpsep-lab")


def test_without_the_laboratory_controls_are_refused_before_any_attack(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(laboratory, "entry_points", lambda **_: ())
    assert_refused(call("audit", "linear", "--controls"), "--controls", "pip install dpsep-lab")
    assert_refused(call("audit", "linear", "--matrix", "pairs"), "--matrix", "pip install dpsep-lab")
