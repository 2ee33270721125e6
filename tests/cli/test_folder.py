from pathlib import Path

import pytest

from dpsep.cli.errors import CallError
from dpsep.cli.folder import RunFolder


def write(place: Path) -> None:
    place.mkdir()
    (place / "manifest.json").write_text("{}")
    (place / "privacy.json").write_text("{}")


def test_a_result_appears_whole_and_the_scaffold_goes(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "deep" / "run")
    with folder.work(resume=False, overwrite=False) as needed:
        assert needed
        assert not folder.path.exists()
        folder.finish(write)
    assert [item.name for item in (tmp_path / "deep").iterdir()] == ["run"]


def test_work_that_fails_before_it_cost_anything_leaves_nothing(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "run")
    with pytest.raises(ValueError, match="no such column"), folder.work(resume=False, overwrite=False):
        raise ValueError("no such column")
    assert list(tmp_path.iterdir()) == []


def test_two_processes_do_not_work_on_one_run(tmp_path: Path) -> None:
    first, second = RunFolder(tmp_path / "run"), RunFolder(tmp_path / "run")
    with first.work(resume=False, overwrite=False):
        for resume, overwrite in ((True, False), (False, True)):
            with (
                pytest.raises(CallError, match="another process"),
                second.work(resume=resume, overwrite=overwrite),
            ):
                pytest.fail("the lock was not respected")
        first.finish(write)
    with second.work(resume=True, overwrite=False) as needed:
        assert not needed
