"""A small private fit that faults can strike, and its books: what was charged against what was released."""

import shutil
import tempfile
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dpsep import Ledger, ProbitRegression
from dpsep.privacy.ledger import Row
from dpsep.privacy.mechanism import Mechanism
from dpsep.privacy.permit import Permit
from dpsep.privacy.sampling import FullBatch

from .disk import Disk, Unreachable

RECORDS, STEPS, DELTA = 24, 3, 1e-3
X = np.linspace(-1.0, 1.0, 2 * RECORDS).reshape(RECORDS, 2)
y = np.where(np.arange(RECORDS) % 3, 1, -1)
MEMORY = Path("/dev/shm")


@pytest.fixture
def scratch(tmp_path: Path) -> Iterator[Path]:
    """A folder in memory where there is such a place: thousands of files are synced in these tests."""
    if not MEMORY.is_dir():
        yield tmp_path
        return
    folder = Path(tempfile.mkdtemp(dir=MEMORY))
    yield folder
    shutil.rmtree(folder)


@pytest.fixture
def layer(tmp_path: Path) -> None:
    """Skip where SQLite's files cannot be watched."""
    try:
        with Disk(tmp_path):
            pass
    except Unreachable as error:
        pytest.skip(str(error))


class Books:
    """Counts the releases that are truly granted, by run, and holds them against a ledger."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.made: Counter[str] = Counter()
        self.on_release: Callable[[], None] = lambda: None
        take = Permit.take

        def counted(permit: Permit, *rest: Any) -> None:
            take(permit, *rest)
            self.made[permit.run] += 1
            self.on_release()

        monkeypatch.setattr(Permit, "take", counted)

    def check(self, ledger: Ledger) -> None:
        """No run has made a release that was not noted and charged, nor cost more than its rows say."""
        rows = ledger.rows()
        assert ledger.verify() == len(rows)
        for run, made in self.made.items():
            own = [row for row in rows if row.run == run]
            kinds = Counter(row.kind for row in own)
            assert kinds["charge"] == 1, "a run is charged once"
            assert made <= STEPS + kinds["extra-step"], "no release without a charge"
            assert made <= kinds["release"], "no release that was not noted"
            assert len({row.event["number"] for row in own if row.kind == "release"}) == kinds["release"]
            assert sum(row.epsilon for row in own) >= epsilon_of(own, made) * (1 - 1e-9)


def epsilon_of(rows: list[Row], releases: int) -> float:
    """What so many releases of the mechanism that a run was charged for cost."""
    sigma = next(row for row in rows if row.kind == "charge").event["parts"][-1]["sigma"]
    return Mechanism(FullBatch(), "zero-out", releases, sigma, RECORDS).epsilon(DELTA)


def new_ledger(folder: Path, epsilon: float = 100.0) -> Ledger:
    """A ledger with room for many runs."""
    return Ledger.create(folder / "ledger", epsilon=epsilon, delta=0.5)


def fit(folder: Path, on_step: Callable[[int, int], None] | None = None, run: str = "run") -> Any:
    """Fit, or go on with a fit, on the ledger and the checkpoint of a folder."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = ProbitRegression(
            delta=DELTA,
            bounds=(-1, 1),
            classes=[-1, 1],
            update="natural",  # one stage: each point in its life can be tried
            clip=1.0,
            steps=STEPS,
            ledger=folder / "ledger",
            checkpoint=folder / run,
        )
        return model.fit(X, y, on_step=on_step)


def kinds_of(ledger: Ledger) -> list[str]:
    """Kinds of the rows of a ledger, without its creation and the notes of releases."""
    return [row.kind for row in ledger.rows() if row.kind not in ("create", "release")]
