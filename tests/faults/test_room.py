"""A full disk and a read-only folder, wherever a fit writes: nothing is half there, errors say what to do."""

import contextlib
import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from dpsep.estimators.json_values import StoreError
from dpsep.estimators.store import load, save
from dpsep.privacy.checkpoint import Checkpoint, CheckpointError, WriteError
from dpsep.privacy.ledger import LedgerError, LedgerUnwritable

from .disk import Disk
from .lives import RECORDS, STEPS, Books, X, fit, kinds_of, layer, new_ledger, scratch

__all__ = ["layer", "scratch"]

NOBODY = 65534


def leftovers(folder: Path) -> list[str]:
    return [path.name for path in folder.rglob("*") if path.name.endswith((".tmp", "-journal"))]


def message_of(work: Callable[[], Any]) -> str | None:
    """What work says when it cannot write, in one line; None where it could."""
    try:
        work()
    except (LedgerUnwritable, CheckpointError, OSError) as error:
        said = str(error)
    else:
        return None
    assert "\n" not in said
    return said


@pytest.mark.usefixtures("layer")
@pytest.mark.parametrize("stride", [3, pytest.param(1, marks=pytest.mark.deep)], ids=["some", "all"])
def test_a_disk_that_fills_up_anywhere_in_a_fit_costs_at_most_one_release_more(
    scratch: Path,
    monkeypatch: pytest.MonkeyPatch,
    stride: int,
    record_property: Callable[[str, object], None],
) -> None:
    books = Books(monkeypatch)
    for point in range(0, 400, stride):
        folder = scratch / str(point)
        folder.mkdir()
        ledger = new_ledger(folder)
        books.made.clear()
        with Disk(folder, "full", point) as disk:
            said = message_of(lambda folder=folder: fit(folder))
        assert (said is not None) == disk.failed
        assert said is None or re.search("name (a|one)|room", said), "it says what to do"
        kept = Checkpoint(folder / "run").load()
        assert not [name for name in leftovers(folder) if name.endswith(".tmp")]
        assert kept is not None or not books.made
        fit(folder)
        assert not leftovers(folder)
        kinds = kinds_of(ledger)
        # A run that could not even write down that it had begun made no release, and a new one is charged.
        assert kinds.count("charge") == 1 or kept is None
        assert kinds.count("extra-step") == (1 if kept is not None and kept.step < STEPS else 0)
        assert sum(books.made.values()) <= STEPS + kinds.count("extra-step")
        books.check(ledger)
        if not disk.failed:
            record_property("full disks", point // stride)
            return
    raise AssertionError("no fit is that long")


@pytest.mark.usefixtures("layer")
def test_a_disk_that_fills_up_while_a_result_is_stored_leaves_no_mixture(scratch: Path) -> None:
    new_ledger(scratch)
    models = [fit(scratch, run=run) for run in ("one", "two")]
    for number, model in enumerate(models):
        save(model, scratch / f"whole {number}", charged={"number": number})
    whole = [files_of(scratch / f"whole {number}") for number in range(2)]
    for point in range(100):
        new, old = scratch / f"new {point}", scratch / f"old {point}"
        save(models[0], old, charged={"number": 0})
        failed = False
        for target in (new, old):
            with Disk(scratch, "full", point) as disk:
                said = message_of(lambda target=target: save(models[1], target, charged={"number": 1}))
            assert (said is not None) == disk.failed
            assert not leftovers(scratch)
            with contextlib.suppress(StoreError):
                load(target)
                assert files_of(target) in whole
            failed = failed or disk.failed
        if not failed:
            assert files_of(new) == files_of(old) == whole[1]
            return
    raise AssertionError("no result is that long")


def files_of(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@contextlib.contextmanager
def read_only(folder: Path) -> Iterator[None]:
    """Take the right to write from a folder, and from ourselves the right to write all the same."""
    modes = {one: one.stat().st_mode for one in (folder, *folder.rglob("*"))}
    for one in modes:
        one.chmod(0o555 if one.is_dir() else 0o444)
    root = os.geteuid() == 0
    if root:
        os.seteuid(NOBODY)
    try:
        if os.access(folder, os.W_OK, effective_ids=True) or not os.access(
            folder, os.X_OK, effective_ids=True
        ):
            pytest.skip("permissions do not bind here, or the folder is out of reach for another user")
        yield
    finally:
        if root:
            os.seteuid(0)
        for one, mode in modes.items():
            one.chmod(mode)


@pytest.mark.skipif(not hasattr(os, "geteuid"), reason="permissions work otherwise")
def test_a_read_only_folder_is_refused_before_the_charge_and_takes_no_result(scratch: Path) -> None:
    ledger = new_ledger(scratch)
    model = fit(scratch, run="first")  # all that is imported late is imported as the user who may read it
    save(model, scratch / "stored")
    before = ledger.rows()
    with read_only(scratch):
        attempts: list[tuple[Any, Any]] = [
            (CheckpointError, lambda: fit(scratch, run="second")),
            (
                LedgerUnwritable,
                lambda: ledger.charge("r", epsilon=1.0, delta=0.0, relation="zero-out", event={}),
            ),
            (WriteError, lambda: Checkpoint(scratch / "first").save(0, {}, {})),
            (WriteError, lambda: Checkpoint(scratch / "third").save(0, {}, {})),
            (WriteError, lambda: save(model, scratch / "stored")),
            (OSError, lambda: save(model, scratch / "new")),
        ]
        for error, attempt in attempts:
            with pytest.raises(error) as caught:
                attempt()
            assert "\n" not in str(caught.value)
            if error is not OSError:
                assert re.search("name (a|one)", str(caught.value)), "it says what to do"
        assert ledger.verify() == len(before), "a ledger can be read"
        stored: Any = load(scratch / "stored")
        assert stored.predict(X).shape == (RECORDS,)
    assert ledger.rows() == before
    assert not leftovers(scratch)


def test_a_ledger_that_cannot_be_written_stops_a_fit_before_a_record_is_read(
    scratch: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def read(*_: Any) -> None:
        raise AssertionError("a record was read")

    monkeypatch.setattr("dpsep.privacy.gate.Reader.sums", read)
    new_ledger(scratch).path.write_bytes(b"")
    with pytest.raises(LedgerError):
        fit(scratch)
