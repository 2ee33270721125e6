"""The benchmark where there are few packages: what only reads tables may be absent, and nothing else."""

import importlib
import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

PATH = Path(__file__).resolve().parents[2] / "tools" / "frontier_remote.py"


@pytest.fixture
def remote(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    spec = importlib.util.spec_from_file_location("frontier_remote", PATH)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setattr(module, "MAY_BE_ABSENT", ("no_such_reader",))
    before = list(sys.meta_path)
    yield module
    sys.meta_path[:] = before
    for name in [name for name in sys.modules if name.startswith("no_such_reader")]:
        del sys.modules[name]


def test_a_package_that_may_be_absent_is_imported_with_any_name_in_it(remote: Any) -> None:
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("no_such_reader")
    remote.allow_absent()
    found: Any = importlib.import_module("no_such_reader.parts")

    assert found.Frame | None  # as in an annotation
    assert found.Kind[int] is not None
    assert not isinstance(found.col("a").cast(found.Int64), int)
    assert not isinstance(None, found.Frame)
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("no_such_package")


def test_absent_packages_are_allowed_once(remote: Any) -> None:
    length = len(sys.meta_path)
    remote.allow_absent()
    remote.allow_absent()
    assert len(sys.meta_path) == length + 1


def test_single_lines_are_joined_into_one_file(remote: Any, tmp_path: Path) -> None:
    for name in ("b", "a"):
        (tmp_path / f"{name}.json").write_text(f'{{"name": "{name}"}}\n')
    remote._join(tmp_path, tmp_path / "fits.jsonl")
    assert (tmp_path / "fits.jsonl").read_text() == '{"name": "a"}\n{"name": "b"}\n'


def test_the_wheels_that_are_fetched_are_the_pinned_ones(
    remote: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    commands: list[list[str]] = []
    monkeypatch.setattr(remote.subprocess, "run", lambda command, check: commands.append(command))
    remote.prepare(Path("nowhere"), "3.12", "uci")
    fetch, export = commands
    assert any(part.startswith("scikit-learn==") for part in fetch)
    assert any(part.startswith("dp-accounting==") for part in fetch)
    assert fetch[fetch.index("--python-version") + 1] == "3.12"
    assert export[-2:] == ["--export", str(Path("nowhere") / "tables")]
