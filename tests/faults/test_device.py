"""A device that returns rubbish or runs out of memory: nothing is released, and what was charged stands."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpsep import Ledger
from dpsep.privacy import reader
from dpsep.privacy.checkpoint import Checkpoint
from dpsep.privacy.gate import DeviceError, Reader
from dpsep.privacy.grid import FLAT_UNITS, OUTER_UNITS, Block

from .lives import STEPS, Books, fit, kinds_of, new_ledger

ONE = np.float64(1.0)
BLOCKS = (
    Block("flat", 3, 2.0, 0.4),
    Block("outer", 2, 5.0, 0.3, "outer"),
    Block("count", 2, math.sqrt(2.0), 0.3, "count", bins=4),
)
ROWS = 16
"""Rows of a chunk here, and so the most that a cell of a histogram can count."""
RUBBISH: dict[str, Callable[[float], float]] = {
    "NaN": lambda _: math.nan,
    "infinity": lambda _: math.inf,
    "negative infinity": lambda _: -math.inf,
    "no integer": lambda value: value + 0.5,
    "beyond the rows": lambda _: ROWS * float(OUTER_UNITS**2) + 1.0,
    "beyond the rows, negative": lambda _: -ROWS * float(OUTER_UNITS**2) - 1.0,
    "beyond doubles' integers": lambda _: 1e300,
}


@dataclass(frozen=True)
class Parts:
    """Each array of a record is its contribution to one block, times a public number."""

    def __call__(self, public: Any, chunk: tuple[jax.Array, ...]) -> tuple[jax.Array, ...]:
        return tuple(part * public for part in chunk)


def records(rows: int = ROWS) -> tuple[np.ndarray, ...]:
    draw = np.random.default_rng(0)
    return draw.normal(size=(rows, 3)), draw.normal(size=(rows, 2)), draw.integers(0, 4, (rows, 2)) * 1.0


def spoiled(
    monkeypatch: pytest.MonkeyPatch, change: Callable[[float], float], block: int = 0, call: int = 1
) -> None:
    """From this call on the device returns rubbish in the first number of a block."""
    sums, calls = reader.chunk_sums, [0]

    def wrong(*arguments: Any) -> Any:
        calls[0] += 1
        totals = [np.array(total) for total in sums(*arguments)]
        if calls[0] >= call:
            totals[block].flat[0] = change(totals[block].flat[0])
        return tuple(totals)

    monkeypatch.setattr(reader, "chunk_sums", wrong)


@pytest.mark.parametrize("block", range(3), ids=[block.kind for block in BLOCKS])
@pytest.mark.parametrize("rubbish", RUBBISH)
def test_sums_that_no_records_can_have_are_refused(
    monkeypatch: pytest.MonkeyPatch, rubbish: str, block: int
) -> None:
    spoiled(monkeypatch, RUBBISH[rubbish], block)
    with pytest.raises(DeviceError, match="the device") as caught:
        Reader(records(), ROWS).sums(Parts(), BLOCKS, ONE, np.arange(ROWS))
    assert not any(letter.isdigit() for letter in str(caught.value)), "no number that came from a record"


@pytest.mark.parametrize(("block", "beyond"), [(0, ROWS * FLAT_UNITS + 1.0), (2, ROWS + 1.0), (2, -1.0)])
def test_the_bound_is_that_of_the_block(monkeypatch: pytest.MonkeyPatch, block: int, beyond: float) -> None:
    spoiled(monkeypatch, lambda _: beyond, block)
    with pytest.raises(DeviceError):
        Reader(records(), ROWS).sums(Parts(), BLOCKS, ONE, np.arange(ROWS))


def test_rows_that_all_lie_on_the_bound_are_summed(monkeypatch: pytest.MonkeyPatch) -> None:
    flat = np.tile([-float(FLAT_UNITS), 0.0, 0.0], (ROWS, 1))
    outer = np.tile([float(OUTER_UNITS), 0.0], (ROWS, 1))
    fine = np.ones(ROWS, bool)
    on_the_bound = ((flat, fine), (outer, fine), (np.zeros((ROWS, 2)), fine))
    monkeypatch.setattr(reader, "rows_on_grid", lambda *_: on_the_bound)
    sums = Reader(records(), ROWS).sums(Parts(), BLOCKS, ONE, np.arange(ROWS))
    assert sums[0].tolist() == [-ROWS * FLAT_UNITS, 0, 0]
    assert sums[1].tolist() == [ROWS * OUTER_UNITS**2, 0, 0]
    assert sums[2].tolist() == [ROWS, 0, 0, 0, ROWS, 0, 0, 0]


def test_rows_that_a_device_returns_as_nan_contribute_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = reader.rows_on_grid

    def wrong(*arguments: Any) -> Any:
        first, *rest = rows(*arguments)
        return ((np.array(first[0]) * math.nan, first[1]), *rest)

    monkeypatch.setattr(reader, "rows_on_grid", wrong)
    for total in Reader(records(), ROWS).sums(Parts(), BLOCKS, ONE, np.arange(ROWS)):
        assert not total.any()


wild = st.one_of(
    st.floats(allow_nan=True, allow_infinity=True),
    st.sampled_from([math.nan, math.inf, -math.inf, 1.8e308, -1.8e308, 5e-324, 1e154, 2.0, -0.0, 2.5, 3.0]),
)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.lists(wild, min_size=7, max_size=7), min_size=ROWS, max_size=ROWS),
    st.sampled_from([1.0, 1e-300, 1e300]),
)
def test_on_a_device_that_works_no_records_are_refused(table: list[list[float]], public: float) -> None:
    values = np.array(table)
    with np.errstate(all="ignore"):
        sums = Reader((values[:, :3], values[:, 3:5], values[:, 5:]), ROWS).sums(
            Parts(), BLOCKS, np.float64(public), np.arange(ROWS)
        )
    assert abs(sums[0]).max() <= ROWS * FLAT_UNITS
    assert abs(sums[1]).max() <= ROWS * OUTER_UNITS**2
    assert 0 <= sums[2].min() <= sums[2].max() <= ROWS


@pytest.mark.parametrize("rubbish", ["NaN", "infinity", "no integer", "beyond doubles' integers"])
def test_a_fit_on_a_device_that_fails_keeps_its_charge_and_goes_on_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rubbish: str
) -> None:
    def fault(patch: pytest.MonkeyPatch) -> None:
        spoiled(patch, RUBBISH[rubbish], call=2)

    fails_and_goes_on(tmp_path, monkeypatch, fault, DeviceError)


def out_of_host_memory(*_: Any) -> None:
    np.empty(2**57)


def out_of_device_memory(*_: Any) -> None:
    raise jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: Out of memory allocating 4096 bytes.")


@pytest.mark.parametrize("failure", [out_of_host_memory, out_of_device_memory])
def test_a_fit_that_runs_out_of_memory_keeps_its_charge_and_goes_on_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failure: Callable[..., None]
) -> None:
    def fault(patch: pytest.MonkeyPatch) -> None:
        sums, calls = reader.chunk_sums, [0]

        def wrong(*arguments: Any) -> Any:
            calls[0] += 1
            if calls[0] == 2:
                failure()
            return sums(*arguments)

        patch.setattr(reader, "chunk_sums", wrong)

    fails_and_goes_on(tmp_path, monkeypatch, fault, (MemoryError, jax.errors.JaxRuntimeError))


def fails_and_goes_on(
    folder: Path, monkeypatch: pytest.MonkeyPatch, fault: Callable[[pytest.MonkeyPatch], None], error: Any
) -> None:
    """The second release fails: one is kept, the charge stands, and a resume is charged one release more."""
    books = Books(monkeypatch)
    ledger = new_ledger(folder)
    with monkeypatch.context() as patch:
        fault(patch)
        with pytest.raises(error) as caught:
            fit(folder)
    assert "\n" not in str(caught.value)
    assert kinds_of(ledger) == ["charge", "failed"]
    saved = Checkpoint(folder / "run").load()
    assert saved is not None
    assert saved.step == 1
    spent = ledger.spent().epsilon
    model = fit(folder)
    assert kinds_of(ledger) == ["charge", "failed", "extra-step", "finished"]
    assert model.privacy_.steps == STEPS + 1
    assert Ledger(folder / "ledger").spent().epsilon > spent
    assert sum(books.made.values()) == STEPS + 1
    books.check(ledger)
