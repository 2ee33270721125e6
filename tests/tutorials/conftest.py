"""Where tutorials and their tools are, and the data sets that this machine has."""

import os
from pathlib import Path

import platformdirs
import pytest

ROOT = Path(__file__).resolve().parents[2]
FILES = {"adult": "adult/adult.data.gz", "power": "uci/power/data.txt", "kin8nm": "uci/kin8nm/data.txt"}
FILES |= {name: f"uci/{name}/data.txt" for name in ("naval", "protein", "wine")}


@pytest.fixture
def root() -> Path:
    """Return the folder of the repository."""
    return ROOT


def have(name: str) -> bool:
    """Whether a data set is on this machine, so that a page can be run without a network."""
    own = os.environ.get("DPSEP_DATA")
    folders = [Path(own)] if own else [ROOT.parent / "shared" / "data"]
    folders.append(Path(platformdirs.user_cache_dir("dpsep")))
    return any((folder / FILES[name]).is_file() for folder in folders)
