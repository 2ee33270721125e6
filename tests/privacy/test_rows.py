"""Rows that are not in memory reach the gate as if they were: each source read once, a few chunks ahead."""

import threading

import numpy as np
import pytest

from dpsep.privacy import reader
from dpsep.privacy.gate import Reader
from dpsep.privacy.grid import Block
from dpsep.privacy.record_sources import Ahead, Part, Source, fetch, in_memory, size_of

from .gate_help import Parts

ONE = np.float64(1.0)
FLAT = (Block("a", 3, 1.0),)


class Kept(Source):
    """A source that counts how often it is read, and what."""

    def __init__(self, *arrays):
        self.arrays, self.reads = arrays, []

    def __len__(self):
        return len(self.arrays[0])

    def take(self, rows, parts):
        self.reads.append((rows, tuple(parts), threading.current_thread().name))
        return [np.asarray(self.arrays[part][rows], np.float64) for part in parts]

    def records(self):
        return tuple(Part(self, number, array.shape) for number, array in enumerate(self.arrays))


def table(rows: int = 5000):
    return np.random.default_rng(1).standard_normal((rows, 3))


def test_a_source_is_read_once_for_all_of_its_arrays():
    source = Kept(table(), np.arange(5000.0))
    records = source.records()
    found = fetch(records, np.array([3, 9]))
    assert [part.tolist() for part in found] == [table()[[3, 9]].tolist(), [3.0, 9.0]]
    assert [parts for _, parts, _ in source.reads] == [(0, 1)]
    mixed = fetch((records[0], np.arange(5000)), slice(0, 2))
    assert mixed[1].dtype == np.float64
    assert (len(records[0]), records[0].ndim, records[1].ndim) == (5000, 2, 1)
    assert not in_memory(records)
    assert in_memory((table(),))
    assert size_of(records) == 8 * 5000 * 4


@pytest.mark.parametrize("rows", [np.arange(5000), np.arange(0, 5000, 7)], ids=["all", "some"])
def test_sums_are_those_of_arrays_in_memory_and_rows_are_read_beside_the_computation(rows):
    source = Kept(table())
    (wanted,) = Reader((table(),), 512).sums(Parts(), FLAT, ONE, rows)
    on_disk = Reader(source.records(), 512)
    assert on_disk.sums(Parts(), FLAT, ONE, rows)[0].tolist() == wanted.tolist()
    assert {name.startswith("dpsep-rows") for _, _, name in source.reads} == {True}
    assert on_disk.sums(Parts(), FLAT, ONE, rows)[0].tolist() == wanted.tolist()


def test_a_table_beyond_the_room_for_it_is_read_anew_at_every_release(monkeypatch):
    source = Kept(table())
    table_reader = Reader(source.records(), 512)
    table_reader.sums(Parts(), FLAT, ONE, range(5000))
    table_reader.sums(Parts(), FLAT, ONE, range(5000))
    assert len(source.reads) == 10  # kept: it is small
    monkeypatch.setattr(reader, "KEPT_BYTES", size_of(source.records()) - 1)
    table_reader = Reader(source.records(), 512)
    table_reader.sums(Parts(), FLAT, ONE, range(5000))
    table_reader.sums(Parts(), FLAT, ONE, range(5000))
    assert len(source.reads) == 30


def test_items_come_in_order_and_no_more_are_made_ahead_than_said():
    made = []

    def jobs():
        for number in range(20):
            yield lambda number=number: made.append(number) or number

    for number, item in enumerate(Ahead(jobs(), 3)):
        assert item == number
        assert len(made) <= number + 5
    assert made == list(range(20))


def test_a_failure_to_read_is_the_callers_and_whoever_stops_early_leaves_no_thread():
    def broken():
        raise OSError("the disk is gone")

    with pytest.raises(OSError, match="the disk is gone"):
        list(Ahead(iter([lambda: 1, broken]), 1))
    walk = iter(Ahead(iter([lambda: 1] * 100), 2))
    next(walk)
    walk.close()  # pyright: ignore[reportAttributeAccessIssue]
    assert not [one for one in threading.enumerate() if one.name.startswith("dpsep-rows")]
