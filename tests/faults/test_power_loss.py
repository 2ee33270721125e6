"""The power fails between any two system calls: no confirmed charge is lost, none is half there."""

import contextlib
import errno
import os
import random
import shutil
import warnings
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from dpsep.privacy import ledger_file
from dpsep.privacy.checkpoint import Checkpoint
from dpsep.privacy.ledger import (
    Ledger,
    LedgerError,
    LedgerUnwritable,
    NewLedgerWarning,
    OverBudget,
    Receipt,
    Spent,
)

from .disk import Died, Disk, Operation
from .lives import STEPS, Books, fit, kinds_of, layer, new_ledger, scratch
from .power_loss import Image, State, losses, write_image

__all__ = ["layer", "scratch"]

pytestmark = pytest.mark.usefixtures("layer")
BUDGET, DELTA, NAME = 30.0, 1e-2, "survey.ledger"
RUN = "runs/first"
"""A checkpoint's folder, not in the one that holds the ledger: no sync of a charge makes its name durable."""


class Confirmed(NamedTuple):
    """What the caller of a ledger knows once an operation has returned."""

    at: int
    hashes: list[str]
    receipts: list[Receipt]
    spent: Spent


def charge(ledger: Ledger, run: str, epsilon: float = 1.0, **more: Any) -> Receipt:
    content: dict[str, Any] = {"delta": 1e-4, "relation": "zero-out", "event": {"steps": 20}} | more
    return ledger.charge(run, epsilon=epsilon, **content)


# What a ledger lives through: rows that fit a page, rows that need several, a table that outgrows its page.
HISTORY: tuple[Callable[[Ledger], Receipt | None], ...] = (
    lambda ledger: charge(ledger, "a"),
    lambda ledger: ledger.begin_release("a", 1),
    lambda ledger: charge(ledger, "b", 2.5, event={"note": "x" * 9000}),
    lambda ledger: charge(ledger, "a", 0.25, delta=0.0, kind="extra-step"),
    lambda ledger: ledger.finish("a", "finished"),
    lambda ledger: charge(ledger, "c"),
    lambda ledger: ledger.finish("b", "failed"),
    lambda ledger: charge(ledger, "d", event={"note": "y" * 700}),
)


def lived(folder: Path) -> tuple[State, list[Operation], list[Confirmed]]:
    """Let a ledger live; return the disk before, what was done, and what was confirmed when."""
    folder.mkdir()
    before, known = State(folder), [Confirmed(0, [], [], Spent(0.0, 0.0))]
    with Disk(folder) as disk:
        ledger = Ledger.create(folder / NAME, epsilon=BUDGET, delta=DELTA)
        for operation in (lambda _: None, *HISTORY):
            receipt = operation(ledger)
            hashes = [row.hash for row in ledger.rows()]
            receipts = [*known[-1].receipts, *([] if receipt is None else [receipt])]
            known.append(Confirmed(len(disk.log), hashes, receipts, ledger.spent()))
    return before, disk.log, known


def check(folder: Path, before: Confirmed, after: Confirmed) -> None:
    """Open what a loss has left: an operation that was under way is whole or absent, and life goes on."""
    path = folder / NAME
    if not before.hashes and not path.exists():
        with pytest.raises(LedgerError, match="there is no ledger"):
            Ledger(path)
        Ledger.create(path, epsilon=BUDGET, delta=DELTA)
    else:
        found = [row.hash for row in Ledger(path).rows()]
        assert found in ((before.hashes, after.hashes) if before.hashes else (after.hashes,))
    ledger = Ledger.open(path)
    assert ledger.verify(*before.receipts) >= len(before.hashes)
    spent = ledger.spent()
    assert spent.epsilon >= before.spent.epsilon
    assert spent.delta >= before.spent.delta
    receipt = charge(ledger, "later", ledger.remaining().epsilon, delta=0.0)
    assert ledger.verify(*before.receipts, receipt) >= len(before.hashes) + 1
    with pytest.raises(OverBudget):
        charge(ledger, "too much", 1e-9, delta=0.0)
    assert ledger.spent().epsilon == BUDGET


def open_image(image: Image, folder: Path) -> Path:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    write_image(image, folder)
    return folder


def around(known: list[Confirmed], done: int) -> tuple[Confirmed, Confirmed]:
    """What was confirmed by a point of the log, and what was under way."""
    last = max(number for number, one in enumerate(known) if one.at <= done)
    return known[last], known[min(last + 1, len(known) - 1)]


def strike(folder: Path, most: int | None, seed: int = 0) -> tuple[int, int]:
    """Lose power everywhere in a ledger's history; return the number of points and of images."""
    before, log, known = lived(folder / f"lived {seed}")
    tried = 0
    for done, image in losses(before, log, seed, most):
        check(open_image(image, folder / "image"), *around(known, done))
        tried += 1
    return len(log) + 1, tried


@pytest.mark.parametrize(
    ("most", "seeds"), [(8, 1), pytest.param(None, 20, marks=pytest.mark.deep)], ids=["some", "all"]
)
def test_a_loss_at_any_point_of_a_ledgers_life_loses_no_confirmed_charge(
    scratch: Path, most: int | None, seeds: int, record_property: Callable[[str, object], None]
) -> None:
    tried = 0
    for seed in range(seeds):  # each tears other sectors away
        points, images = strike(scratch, most, seed)
        assert points > 200
        assert images > 500
        tried += images
    record_property("power losses", tried)


@pytest.mark.parametrize(("synchronous", "own"), [("FULL", False), ("OFF", True)])
def test_with_less_syncing_the_same_losses_lose_a_charge(
    scratch: Path, monkeypatch: pytest.MonkeyPatch, synchronous: str, own: bool
) -> None:
    connect = ledger_file._connect

    def weaker(*arguments: Any) -> Any:
        connection = connect(*arguments)
        connection.execute(f"PRAGMA synchronous = {synchronous}")
        return connection

    monkeypatch.setattr(ledger_file, "_connect", weaker)
    if not own:  # the folder is not synced by the library, either
        monkeypatch.setattr(ledger_file, "durable_names", contextlib.nullcontext)
    with pytest.raises((AssertionError, LedgerError)):
        strike(scratch, most=8)


@pytest.mark.parametrize("most", [8, pytest.param(None, marks=pytest.mark.deep)], ids=["some", "all"])
def test_a_second_loss_while_the_first_is_mended_loses_no_confirmed_charge(
    scratch: Path, most: int | None, record_property: Callable[[str, object], None]
) -> None:
    before, log, known = lived(scratch / "lived")
    torn: dict[int, list[tuple[int, Image]]] = {}
    for done, image in losses(before, log, seed=1):
        pages, journal = image.get(NAME), image.get(f"{NAME}-journal")
        if pages and journal and journal[8:12] != bytes(4):  # a journal with records to be rolled back
            torn.setdefault(around(known, done)[0].at, []).append((done, image))
    assert len(torn) == len(HISTORY)
    tried = 0
    for done, image in (one for own in torn.values() for one in (own if most is None else (own[0], own[-1]))):
        folder = open_image(image, scratch / "first")
        state, expected = State(folder), around(known, done)
        with Disk(folder) as disk:
            assert Ledger(folder / NAME).verify() == len(expected[0].hashes)
        assert disk.log, "there was nothing to mend"
        for _, second in losses(state, disk.log, seed=done, most=most):
            check(open_image(second, scratch / "second"), *expected)
            tried += 1
    assert tried > 100
    record_property("power losses", tried)


def test_a_folder_that_cannot_be_opened_for_its_sync_takes_no_charge(
    scratch: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = Ledger.create(scratch / NAME, epsilon=BUDGET, delta=DELTA)
    open_one = os.open

    def too_many(path: Any, *rest: Any, **more: Any) -> int:
        if Path(path) == scratch:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        return open_one(path, *rest, **more)

    with monkeypatch.context() as patch:
        patch.setattr(os, "open", too_many)
        with pytest.raises(LedgerUnwritable, match="cannot be opened or synced"):
            charge(ledger, "a")
        assert ledger.spent().epsilon == 0.0
    charge(ledger, "a")


@pytest.mark.parametrize("fault", ["full", "dead"])
def test_a_disk_that_is_full_or_a_process_that_dies_at_any_point_of_a_charge_leaves_it_whole_or_absent(
    scratch: Path, fault: Any
) -> None:
    for point in range(200):
        folder = open_image({}, scratch / "struck")
        ledger = Ledger.create(folder / NAME, epsilon=BUDGET, delta=DELTA)
        receipt = charge(ledger, "first")
        rows = ledger.rows()
        returned = False
        with Disk(folder, fault, point) as disk, contextlib.suppress(LedgerError, Died):
            charge(ledger, "second", event={"note": "x" * 5000})
            returned = True
        found = Ledger(folder / NAME).rows()
        assert found[:2] == rows
        assert len(found) == 3 if returned else len(found) in (2, 3)
        assert len(found) == 2 or fault == "dead" or returned
        assert ledger.verify(receipt) == len(found)
        charge(ledger, "third")
        if returned and not disk.failed:
            return
    raise AssertionError("no charge is that long")


@pytest.mark.parametrize("fault", ["full", "dead"])
def test_a_disk_that_is_full_or_a_process_that_dies_while_a_ledger_is_made_leaves_all_or_none_of_it(
    scratch: Path, fault: Any
) -> None:
    for point in range(200):
        folder = open_image({}, scratch / "struck")
        with Disk(folder, fault, point) as disk, contextlib.suppress(LedgerError, Died):
            Ledger.create(folder / NAME, epsilon=BUDGET, delta=DELTA)
        assert fault == "dead" or not disk.failed or not list(folder.iterdir())
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", NewLedgerWarning)  # all of it is there, or none
            assert len(Ledger(folder / NAME, epsilon=BUDGET, delta=DELTA).rows()) == 1
        if not disk.failed:
            return
    raise AssertionError("no creation is that long")


@pytest.mark.parametrize("most", [2, pytest.param(None, marks=pytest.mark.deep)], ids=["some", "all"])
def test_a_loss_at_any_point_of_a_fit_leaves_each_release_kept_or_charged_again(
    scratch: Path,
    monkeypatch: pytest.MonkeyPatch,
    most: int | None,
    record_property: Callable[[str, object], None],
) -> None:
    books = Books(monkeypatch)
    folder = scratch / "lived"
    folder.mkdir()
    new_ledger(folder)
    before = State(folder)
    with Disk(folder) as disk:
        released: list[int] = []
        books.on_release = lambda: released.append(len(disk.log))
        fit(folder, run=RUN)
    books.on_release = lambda: None
    (run,) = books.made
    tried = 0
    for done, image in losses(before, disk.log, seed=2, most=most):
        made = sum(at <= done for at in released)
        books.made = Counter({run: made} if made else {})
        struck = open_image(image, scratch / "image")
        saved = Checkpoint(struck / RUN).load()
        assert saved is not None or not made, "what a release stands on is durable before it is made"
        kept = 0 if saved is None else saved.step
        assert made - 1 <= kept <= made
        model = fit(struck, run=RUN)
        ledger = Ledger(struck / "ledger")
        books.check(ledger)
        kinds = Counter(kinds_of(ledger))
        resumed = saved is not None
        assert kinds["extra-step"] == (1 if resumed and kept < STEPS else 0)
        assert kinds["charge"] == 1 or not resumed
        assert model.privacy_.steps == STEPS + kinds["extra-step"]
        tried += 1
    assert tried > 130
    record_property("power losses", tried)


def test_a_checkpoint_that_a_dead_run_left_unsynced_is_made_durable_before_it_is_used(scratch: Path) -> None:
    folder = scratch / "lived"
    folder.mkdir()
    ledger = new_ledger(folder)
    (scratch / "other").mkdir()
    new_ledger(scratch / "other")
    with Disk(scratch / "other") as whole:
        fit(scratch / "other")
    last_sync = max(at for at, one in enumerate(whole.log) if one.kind == "rename") + 1
    state = State(folder)
    with Disk(folder, "dead", last_sync) as disk, pytest.raises((Died, LedgerError)):
        fit(folder)
    with Disk(folder) as resumed:
        model = fit(folder)
    assert kinds_of(ledger) == ["charge", "finished"], "all releases were kept: none is charged again"
    for operation in (*disk.log, *resumed.log):
        state.apply(operation)
    for image in state.images(random.Random(3)):
        struck = open_image(image, scratch / "image")
        assert fit(struck).coef_.tolist() == model.coef_.tolist()
        assert Ledger(struck / "ledger").spent() == ledger.spent()
