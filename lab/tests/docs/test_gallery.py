"""The gallery: each picture has a script, a file, words for those who do not see it, measured captions."""

import importlib
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from dpsep_lab.data import DataError

pytest.importorskip("matplotlib")

ROOT = Path(__file__).resolve().parents[3]
SCRIPTS, FOLDER, PAGE = (
    ROOT / "lab" / "tools" / "gallery",
    ROOT / "docs" / "gallery",
    ROOT / "docs" / "gallery.md",
)
NAMES = tuple(re.findall(r"\[Script\]\(\.\./lab/tools/gallery/(\w+)\.py\)", PAGE.read_text(encoding="utf-8")))
MOST_BYTES = 3_000_000


@pytest.fixture(autouse=True)
def _tables_that_are_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take public tables from the data folder beside the repository; never from the network."""

    def refuse(*_: Any, **__: Any) -> None:
        raise OSError("no network in tests")

    data = ROOT.parent / "shared" / "data"
    if "DPSEP_DATA" not in os.environ and data.is_dir():
        monkeypatch.setenv("DPSEP_DATA", str(data))
    monkeypatch.setattr("pooch.retrieve", refuse)


@pytest.fixture
def load(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Import a module out of the scripts' folder, and forget it and what it imported there afterwards."""
    monkeypatch.syspath_prepend(str(SCRIPTS))
    before = set(sys.modules)

    def one(name: str) -> ModuleType:
        return importlib.import_module(name)

    yield one
    for name in set(sys.modules) - before:
        if str(SCRIPTS) in str(getattr(sys.modules[name], "__file__", "")):
            del sys.modules[name]


def test_the_page_links_every_file_that_is_kept_and_no_other() -> None:
    linked = set(re.findall(r"\(gallery/([\w.]+)\)", PAGE.read_text(encoding="utf-8")))
    assert len(NAMES) >= 8
    assert linked == {path.name for path in FOLDER.iterdir()}


def test_pictures_are_small_enough_to_keep() -> None:
    files = list(FOLDER.iterdir())
    assert sum(path.stat().st_size for path in files) < MOST_BYTES
    assert all(path.stat().st_size <= 800_000 for path in files)


def test_every_picture_has_words_for_those_who_do_not_see_it() -> None:
    words = re.findall(r"!\[([^\]]*)\]\(gallery/", PAGE.read_text(encoding="utf-8"))
    assert len(words) == len(NAMES)
    assert all(len(each) > 80 for each in words)


def test_the_page_is_what_the_numbers_beside_the_pictures_make_it(load: Any) -> None:
    page = load("page")
    assert page.NAMES == NAMES
    assert page.text() == PAGE.read_text(encoding="utf-8")


def test_no_published_picture_is_a_quick_one(load: Any) -> None:
    page = load("page")
    assert [name for name in page.NAMES if page.numbers(name, FOLDER)["quick"]] == []


def test_every_script_is_there_and_says_what_it_is() -> None:
    for name in NAMES:
        assert (SCRIPTS / f"{name}.py").read_text(encoding="utf-8").startswith('"""'), name


@pytest.mark.parametrize(
    "name", [name if name == "composition" else pytest.param(name, marks=pytest.mark.deep) for name in NAMES]
)
def test_a_quick_run_makes_the_picture(
    name: str, load: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    module, common, page = load(name), load("common"), load("page")
    try:
        common.make(module.PICTURE, module.measure, module.draw, tmp_path, quick=True)
    except DataError as error:
        pytest.skip(f"needs a public table: {error}")
    for file in module.PICTURE.files:
        assert (tmp_path / file).stat().st_size > 5_000
    assert name in capsys.readouterr().out
    section = page.section(module.PICTURE, tmp_path)
    assert "{" not in section
    assert not re.search(r"\b(nan|inf)\b", section)


def test_a_script_runs_alone_from_the_shell(tmp_path: Path) -> None:
    command = [sys.executable, str(SCRIPTS / "composition.py"), "--quick", "--out", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "composition.png").exists()
    assert (tmp_path / "composition.json").exists()


def test_quick_pictures_cannot_take_the_place_of_the_published_ones() -> None:
    command = [sys.executable, str(SCRIPTS / "all.py"), "--quick"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "--out" in done.stderr
