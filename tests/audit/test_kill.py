"""A private fit killed at random moments: the ledger stays whole and the run goes on."""

import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import pytest

from dpsep.privacy.checkpoint import Checkpoint
from dpsep.privacy.ledger import Ledger
from dpsep.privacy.mechanism import Mechanism, Schedule
from dpsep.privacy.sampling import FullBatch

STEPS, RECORDS, DELTA, KILLS = 60, 48, 1e-3, 4
SCRIPT = """
import sys
import numpy as np
from dpsep import ProbitRegression
folder = sys.argv[1]
generator = np.random.default_rng(0)
X = generator.uniform(-1, 1, (48, 2))
y = np.where(X[:, 0] + 0.3 * generator.standard_normal(48) > 0, 1, -1)
model = ProbitRegression(epsilon=1.0, delta=1e-3, bounds=(-1, 1), classes=[-1, 1], steps=60,
                         ledger=folder + "/ledger", checkpoint=folder + "/run")
print("ready", flush=True)
model.fit(X, y, on_step=lambda done, total: print(done, flush=True))
print("epsilon", repr(model.privacy_.epsilon), model.privacy_.steps, repr(model.privacy_.sigma),
      model.privacy_.secure, flush=True)
"""


class Life(NamedTuple):
    """One process: the last step it told of, the line it ended with, and whether it was killed."""

    step: int
    last: str
    killed: bool


def live(folder: Path, chance: random.Random | None) -> Life:
    """Run the fit; kill it at a random moment if there is chance."""
    # Kept steps are handed out at once when a run goes on, so a life gets some steps beyond them.
    kept = _kept(folder)
    target = None if chance is None else kept + chance.randint(0, 5)
    command = [sys.executable, "-c", SCRIPT, str(folder)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        step, last = 0, ""
        for line in process.stdout:
            last = line.strip()
            step = int(last) if last.isdigit() else step
            if target is not None and chance is not None and (step >= target or target == 0):
                # Before the first step there is the charge and the compilation; between steps, a write.
                time.sleep(chance.uniform(0.0, 0.02 if step else 1.5))
                os.kill(process.pid, signal.SIGKILL)
                break
    killed = process.returncode == -signal.SIGKILL
    assert killed or process.returncode == 0
    return Life(step, last, killed)


def _kept(folder: Path) -> int:
    saved = Checkpoint(folder / "run").load()
    return 0 if saved is None else saved.step


def chain(folder: Path, seed: int) -> None:
    """Kill a fit and its resumes again and again, look at what is left each time, and let it end."""
    chance = random.Random(seed)
    folder.mkdir()
    Ledger.create(folder / "ledger", epsilon=20.0, delta=1e-2)
    for _ in range(KILLS):
        before = Counter(row.kind for row in Ledger(folder / "ledger").rows())
        life = live(folder, chance)
        assert life.killed
        ledger = Ledger(folder / "ledger")
        rows = ledger.rows()
        assert ledger.verify() == len(rows)
        kinds = Counter(row.kind for row in rows)
        assert set(kinds) <= {"create", "charge", "extra-step", "release"}
        assert kinds["charge"] <= before["charge"] + 1
        assert kinds["extra-step"] <= before["extra-step"] + 1
        kept = _kept(folder)
        assert kept >= life.step, "what was told of was kept first"
        if kept:
            assert ledger.spent().epsilon > 0.99, "nothing is read before it is charged"
    before = Counter(row.kind for row in Ledger(folder / "ledger").rows())
    finish(folder, before)


def finish(folder: Path, before: Counter[str]) -> None:
    """The last resume ends, is charged one release more, and says what all of it cost."""
    resumed = _kept(folder) > 0
    life = live(folder, None)
    ledger = Ledger(folder / "ledger")
    rows = ledger.rows()
    kinds = Counter(row.kind for row in rows)
    assert ledger.verify() == len(rows)
    assert rows[-1].kind == "finished"
    if resumed:
        assert kinds["charge"] == before["charge"]
        assert kinds["extra-step"] == before["extra-step"] + 1
    run = [row for row in rows if row.run == rows[-1].run]
    extra = sum(row.kind == "extra-step" for row in run)
    _, epsilon, _, _, secure = life.last.split()
    assert secure == "True"
    charges = [row.event["parts"] for row in run if row.kind in ("charge", "extra-step")]
    first, last = (sum(part["steps"] for part in parts) for parts in (charges[0], charges[-1]))
    assert last == first + extra
    parts = [
        Mechanism(FullBatch(), "zero-out", part["steps"], part["sigma"], RECORDS) for part in charges[-1]
    ]
    composed = Schedule(tuple(parts)).epsilon(DELTA)
    assert float(epsilon) == pytest.approx(composed, rel=1e-9)
    assert sum(row.epsilon for row in run) == pytest.approx(composed, rel=1e-9)


def chains(folder: Path, seeds: Sequence[int]) -> None:
    """Let several fits be killed, two at a time."""
    with ThreadPoolExecutor(2) as pool:
        for done in [pool.submit(chain, folder / str(seed), seed) for seed in seeds]:
            done.result()


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="needs a process that can be killed")
def test_a_fit_killed_at_random_moments_keeps_its_ledger_and_goes_on(tmp_path: Path) -> None:
    chains(tmp_path, (1, 2))


@pytest.mark.deep
@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="needs a process that can be killed")
def test_fits_killed_at_two_hundred_random_moments_keep_their_ledgers_and_go_on(
    tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    seeds = range(3, 53)
    chains(tmp_path, seeds)
    record_property("kills of a fit", KILLS * len(seeds))


def test_a_second_process_in_the_same_folder_is_refused_and_charges_nothing(tmp_path: Path) -> None:
    Ledger.create(tmp_path / "ledger", epsilon=20.0, delta=1e-2)
    fcntl = pytest.importorskip("fcntl")
    (tmp_path / "run").mkdir()
    with open(tmp_path / "run" / "lock", "a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        command = [sys.executable, "-c", SCRIPT, str(tmp_path)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode != 0
    assert "in use by another run" in done.stderr
    assert [row.kind for row in Ledger(tmp_path / "ledger").rows()] == ["create"]
