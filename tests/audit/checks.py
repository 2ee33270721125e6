"""Named checks of the guarantee: each fails if the part that it is named after is taken out."""

import contextlib
import math
import tempfile
import warnings
from pathlib import Path
from typing import Any

import jax
import numpy as np

from dpsep.audit import neighbours_of, replay
from dpsep.audit.replay import record
from dpsep.privacy import charged_run, grid
from dpsep.privacy.gate import Gate, NotCharged, Reader, authorise
from dpsep.privacy.grid import Block
from dpsep.privacy.ledger import Ledger, LedgerError
from dpsep.privacy.mechanism import Mechanism, Schedule
from dpsep.privacy.noise import SeededStream
from dpsep.privacy.sampling import FullBatch, PoissonSampling, Sampling

from .help import Parts, maker, table

FLAT = Block("flat", 3, 2.0)
ONE = np.float64(1.0)


def check_clip() -> None:
    """A record far out contributes the clip, in its own direction, and never more, in integers."""
    generator = np.random.default_rng(0)
    directions = generator.standard_normal((64, 3))
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    for direction in directions:
        for length in (2.0, 50.0, 1e30):
            (total,) = Reader(((length * direction)[None],)).sums(Parts(), (FLAT,), ONE, np.arange(1))
            assert sum(int(value) ** 2 for value in total) <= grid.FLAT_UNITS**2
            assert np.allclose(total / grid.FLAT_UNITS, direction, atol=1e-5)
    with jax.enable_x64(True):
        beyond = np.array([[grid.FLAT_UNITS, 1.0, 0.0]])
        (total,) = grid.chunk_sums((FLAT,), ((beyond, np.ones(1, bool)),))
    assert not np.asarray(total).any()
    X, y = table("linear")
    assert replay(maker("linear"), X, y, neighbours_of(X, y, 8)).farthest <= 1 + 1e-12


def check_room_for_rounding() -> None:
    """Rows at the clip are all kept, and none exceeds it: rounding up is inside the clip."""
    block = Block("flat", 64, 1.0)
    rows = np.sign(np.random.default_rng(1).standard_normal((64, 64))) / 8.0
    rows *= 1 + np.random.default_rng(2).uniform(0, 1e-7, (64, 1))
    for row in rows * (1 + np.linspace(-1e-6, 1e-6, 64))[:, None]:
        (total,) = Reader((row[None],)).sums(Parts(), (block,), ONE, np.arange(1))
        assert sum(int(value) ** 2 for value in total) <= grid.FLAT_UNITS**2
        assert total.any()
    tight = Block("flat", 3, 1.0)
    generator = np.random.default_rng(3)
    for row in generator.standard_normal((400, 3)):
        (total,) = Reader((row[None] * 100,)).sums(Parts(), (tight,), ONE, np.arange(1))
        assert sum(int(value) ** 2 for value in total) <= grid.FLAT_UNITS**2


def check_noise() -> None:
    """What is released differs from the sum by noise of the declared deviation."""
    gate = _gate(np.ones((8, 3)), steps=1000, sigma=1.5)
    (total,) = Reader((np.ones((8, 3)),)).sums(Parts(), (FLAT,), ONE, np.arange(8))
    noise = np.stack([gate.release(ONE)["flat"] for _ in range(1000)]) - total * FLAT.unit
    assert np.allclose(noise.std(axis=0), 3.0, rtol=0.1)
    assert abs(noise.mean(axis=0)).max() < 5 * 3.0 / math.sqrt(1000)


def check_sampling() -> None:
    """Poisson batches: each record by its own coin at every step, with the rate that is accounted."""
    steps, records, rate = 1500, 24, 0.25
    taken = np.zeros((steps, records))
    steps_made: list[int] = []
    sums = Reader.sums

    def tapped(self: Any, contribution: Any, blocks: Any, public: Any, rows: Any) -> Any:
        taken[len(steps_made), rows] = 1.0
        steps_made.append(len(rows))
        return sums(self, contribution, blocks, public, rows)

    gate = _gate(np.zeros((records, 3)), steps=steps, sampling=PoissonSampling(rate))
    Reader.sums = tapped
    try:
        for _ in range(steps):
            gate.release(ONE)
    finally:
        Reader.sums = sums
    limit = 5 / math.sqrt(steps)
    assert abs(taken.mean(axis=0) - rate).max() < limit * math.sqrt(rate * (1 - rate))
    standard = (taken - rate) / math.sqrt(rate * (1 - rate))
    assert abs(standard.T @ standard / steps - np.eye(records)).max() < 2 * limit, "records are independent"
    for lag in (1, 2, 4):
        assert abs((standard[lag:] * standard[:-lag]).mean(axis=0)).max() < limit, "steps are independent"


def check_charge() -> None:
    """When the first record is read, the ledger holds the whole charge."""
    X, y = table("probit")
    seen: list[float] = []
    sums = Reader.sums

    def tapped(self: Any, contribution: Any, blocks: Any, public: Any, rows: Any) -> Any:
        seen.append(ledger.spent().epsilon)
        return sums(self, contribution, blocks, public, rows)

    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        ledger = Ledger.create(Path(folder) / "ledger", epsilon=5.0, delta=1e-2)
        Reader.sums = tapped
        try:
            with contextlib.suppress(LedgerError):  # a ledger that was not charged refuses the end of the run
                maker("probit", epsilon=1.0, ledger=ledger)().fit(X, y)
        finally:
            Reader.sums = sums
    assert seen
    assert min(seen) > 0.99, "what was asked for is used, but for rounding"


def check_count_of_releases() -> None:
    """A permit grants what was charged, whichever gates ask."""
    part = Mechanism(FullBatch(), "zero-out", 2, 1.0, 4)
    permit = authorise(None, Schedule((part,)), 1e-3)
    made = 0
    for _ in range(3):
        gate = Gate((np.zeros((4, 3)),), part, (FLAT,), Parts(), permit, stream=SeededStream(1))
        try:
            gate.release(ONE)
        except NotCharged:
            continue
        made += 1
    assert made == 2


def check_updates_see_releases_only() -> None:
    """With other coins and the same releases the posterior is the same: realised batches are not used."""
    X, y = table("probit")
    base = record(maker("probit", sampling=0.25, random_state=1), X, y)
    other = record(maker("probit", sampling=0.25, random_state=2), X, y, script=base)
    assert [len(one.rows) for one in base.releases] != [len(one.rows) for one in other.releases]
    assert base.outcome["posterior.mean"].tobytes() == other.outcome["posterior.mean"].tobytes()


def check_bad_rows_count_nowhere() -> None:
    """A row with a NaN or an infinity contributes nothing, and the rows beside it what they did."""
    rows = np.random.default_rng(0).uniform(-1.0, 1.0, (12, 3))  # inside the clip: rounded, not scaled
    expected = np.rint(np.delete(rows, 4, axis=0) * (grid.FLAT_UNITS / FLAT.clip)).sum(axis=0)
    for bad in (np.nan, np.inf):
        spoiled = rows.copy()
        spoiled[4, 1] = bad
        with np.errstate(invalid="ignore"):
            (total,) = Reader((spoiled,)).sums(Parts(), (FLAT,), ONE, np.arange(12))
        assert total.tolist() == expected.tolist()


def check_resume() -> None:
    """A run that died in the middle is charged one release more before it goes on."""
    X, y = table("probit")

    def die(done: int, total: int) -> None:
        if done == 2:
            raise KeyboardInterrupt

    with tempfile.TemporaryDirectory() as name, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        folder = Path(name)
        ledger = Ledger.create(folder / "ledger", epsilon=5.0, delta=1e-2)
        make = maker("probit", ledger=ledger, checkpoint=folder / "run", steps=4)
        with contextlib.suppress(KeyboardInterrupt):
            make().fit(X, y, on_step=die)
        once = ledger.spent().epsilon
        fitted = make().fit(X, y)
        kinds = [row.kind for row in ledger.rows() if row.kind != "release"]
        assert kinds == ["create", "charge", "failed", "extra-step", "finished"]
        assert ledger.spent().epsilon > once
        assert math.isclose(ledger.spent().epsilon, fitted.privacy_.epsilon, rel_tol=1e-9)
        task = fitted.privacy_
        parts = task.schedule["parts"]
        longer = [Mechanism(FullBatch(), "zero-out", part["steps"], part["sigma"], len(X)) for part in parts]
        assert math.isclose(task.epsilon, Schedule(tuple(longer)).epsilon(1e-3), rel_tol=1e-9)
        assert task.steps == 5


def _gate(rows: Any, steps: int, sampling: Sampling | None = None, sigma: float = 1.0) -> Gate:
    part = Mechanism(sampling or FullBatch(), "zero-out", steps, sigma, len(rows))
    permit = charged_run.authorise(None, Schedule((part,)), 1e-3)
    return Gate((rows,), part, (FLAT,), Parts(), permit, stream=SeededStream(1))
