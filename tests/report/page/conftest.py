"""Real runs for the tests of the report."""

from collections.abc import Callable
from pathlib import Path

import pytest

from .runs import copied, run_folder


@pytest.fixture(scope="session")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Return the folder of a run that is not to be changed."""
    return lambda kind: run_folder(kind, tmp_path_factory.mktemp)


@pytest.fixture
def copy(whole: Callable[[str], Path], tmp_path: Path) -> Callable[[str], Path]:
    """Return a copy of a run's folder, to damage."""
    return lambda kind: copied(whole(kind), tmp_path)
