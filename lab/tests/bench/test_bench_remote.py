"""The survey where there are few packages: which wheels are fetched, and what may stand after the dashes."""

import importlib.util
import sys
from pathlib import Path
from typing import Any

import pytest

PATH = Path(__file__).resolve().parents[2] / "tools" / "bench_remote.py"


@pytest.fixture
def remote(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(sys, "path", list(sys.path))
    spec = importlib.util.spec_from_file_location("bench_remote", PATH)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_wheels_are_pinned_and_hold_the_peers_of_the_survey(
    remote: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    commands: list[list[str]] = []
    monkeypatch.setattr(remote.subprocess, "run", lambda command, check: commands.append(command))
    assert remote.main(["prepare", str(tmp_path)]) == 0
    (fetch,) = commands
    assert any(part.startswith("scikit-learn==") for part in fetch)
    assert any(part.startswith("diffprivlib") for part in fetch)
    assert fetch[fetch.index("--python-version") + 1] == "3.12"


def test_only_the_survey_is_run(remote: Any, tmp_path: Path, capsys: Any) -> None:
    assert remote.main(["run", str(tmp_path), "--", "bench", "speed"]) == 2
    assert "bench honesty" in capsys.readouterr().err
