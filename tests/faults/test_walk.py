"""Many runs with many lives, each ended by some fault: no charge is lost, missing or taken twice."""

import random
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import pytest

from dpsep.privacy import reader
from dpsep.privacy.checkpoint import Checkpoint, CheckpointError, WriteError
from dpsep.privacy.ledger import Ledger, LedgerError, Receipt

from .disk import Died, Disk
from .lives import STEPS, Books, fit, layer, new_ledger, scratch
from .power_loss import State, write_image

__all__ = ["layer", "scratch"]

FAULTS = ("none", "stopped", "out of memory", "full", "killed", "power loss")


class Stopped(BaseException):
    """What Ctrl-C raises, with a name of its own."""


class Walk:
    """One ledger, one run after another, and what its charges told their callers."""

    def __init__(self, root: Path, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder = root / "disk"
        self.folder.mkdir()
        self.chance = random.Random(seed)
        self.books = Books(monkeypatch)
        self.ledger = new_ledger(self.folder, 1e4)
        self.state = State(self.folder)
        self.asked: Counter[tuple[str, str]] = Counter()
        self.receipts: list[Receipt] = []
        self.struck: Counter[str] = Counter()
        self.run, self.finished, self.refused = 0, 0, 0
        charge, sums = Ledger.charge, reader.chunk_sums
        self.memory = 10**9

        def told(ledger: Ledger, run: str, **content: Any) -> Receipt:
            self.asked[run, content.get("kind", "charge")] += 1
            self.receipts.append(charge(ledger, run, **content))
            return self.receipts[-1]

        def short_of_memory(*arguments: Any) -> Any:
            self.memory -= 1
            if self.memory < 0:
                raise jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: Out of memory.")
            return sums(*arguments)

        monkeypatch.setattr(Ledger, "charge", told)
        monkeypatch.setattr(reader, "chunk_sums", short_of_memory)

    def live(self, fault: str) -> None:
        """Begin or resume the run of this time, let a fault strike it, and look at the books."""
        kind = "full" if fault == "full" else "dead"
        at = self.chance.randrange(130) if fault in ("full", "killed", "power loss") else None
        stop = self.chance.randrange(1, STEPS + 1) if fault == "stopped" else None
        self.memory = self.chance.randrange(STEPS) if fault == "out of memory" else 10**9

        def on_step(done: int, total: int) -> None:
            if done == stop:
                raise Stopped

        with Disk(self.folder, kind, at) as disk:
            try:
                fit(self.folder, on_step, run=f"run-{self.run}")
                self.run += 1
                self.finished += 1
            except CheckpointError as error:
                self.refused += "cannot be written" not in str(error)
                self.struck[fault] += 1
            except (Stopped, Died, LedgerError, WriteError, jax.errors.JaxRuntimeError):
                self.struck[fault] += 1
        for operation in disk.log:
            self.state.apply(operation)
        if fault == "power loss":
            image = self.chance.choice(list(self.state.images(self.chance, most=20)))
            shutil.rmtree(self.folder)
            self.folder.mkdir()
            write_image(image, self.folder)
            self.state = State(self.folder)

    def check(self) -> None:
        """Every confirmed charge is there, every row was asked for once, every release was charged."""
        with Disk(self.folder) as disk:  # reading may roll a dead charge back
            self.ledger.verify(*self.receipts)
            rows = self.ledger.rows()
            self.books.check(self.ledger)
        for operation in disk.log:
            self.state.apply(operation)
        there = Counter((row.run, row.kind) for row in rows if row.kind in ("charge", "extra-step"))
        told = Counter((receipt.run, receipt.kind) for receipt in self.receipts)
        assert told <= there <= self.asked


@pytest.mark.usefixtures("layer")
@pytest.mark.parametrize(
    ("seed", "lives"),
    [(1, 80), (2, 80), *(pytest.param(s, 200, marks=pytest.mark.deep) for s in range(3, 23))],
)
def test_faults_at_random_points_of_many_runs_leave_the_books_in_order(
    scratch: Path,
    monkeypatch: pytest.MonkeyPatch,
    seed: int,
    lives: int,
    record_property: Callable[[str, object], None],
) -> None:
    walk = Walk(scratch, seed, monkeypatch)
    for _ in range(lives):
        walk.live(walk.chance.choice(FAULTS))
        walk.check()
    assert all(walk.struck[fault] > 2 for fault in FAULTS if fault != "none")
    assert walk.finished > 5
    assert walk.refused == 0
    record_property("lives ended by a fault", walk.struck.total())
    for number in range(walk.run):
        saved = Checkpoint(walk.folder / f"run-{number}").load()
        assert saved is None or saved.step == STEPS
