"""Sums travel in the fewest bits of their bounds, and sums that no rows can have are found out."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpsep.federated.codec import WireError
from dpsep.federated.packing import Bounds, bounds_of, clamp, pack, packed_size, unpack, within
from dpsep.privacy.grid import FLAT_UNITS, OUTER_UNITS, Block

FLAT = Block("flat", 3, 1.0)
OUTER = Block("outer", 4, 1.0, kind="outer")
COUNT = Block("count", 2, math.sqrt(2.0), kind="count", bins=5)


def grid_sums(block: Block, rows: int, seed: int) -> np.ndarray:
    """Sums of rows at their clip, as the grid makes them."""
    rng = np.random.default_rng(seed)
    if block.kind == "count":
        cells = rng.integers(0, block.bins, (rows, block.size))
        return np.concatenate([np.bincount(cells[:, i], minlength=block.bins) for i in range(block.size)])
    units = FLAT_UNITS if block.kind == "flat" else OUTER_UNITS
    vectors = rng.standard_normal((rows, block.size))
    vectors = np.trunc(vectors / np.linalg.norm(vectors, axis=1, keepdims=True) * units).astype(np.int64)
    if block.kind == "flat":
        return vectors.sum(axis=0)
    return (vectors.T @ vectors)[np.triu_indices(block.size)]


@pytest.mark.parametrize("block", [FLAT, OUTER, COUNT], ids=lambda block: block.kind)
@pytest.mark.parametrize("rows", [1, 7, 1000])
def test_sums_at_the_clip_fit_and_come_back(block: Block, rows: int) -> None:
    total = grid_sums(block, rows, rows)
    bounds = [bounds_of(block, rows)]
    content = pack([total], bounds)
    assert len(content) == packed_size(bounds)
    assert np.array_equal(unpack(content, bounds)[0], total)
    assert within(block, total, rows)


def test_the_size_is_that_of_the_public_bound() -> None:
    # 1000 rows of 2^30 units: 40 bits for the diagonal, 40 with a sign for the half as large rest.
    assert packed_size([bounds_of(OUTER, 1000)]) == math.ceil((4 * 40 + 6 * 40) / 8)
    assert packed_size([bounds_of(COUNT, 1000)]) == math.ceil(10 * 10 / 8)


@settings(max_examples=100)
@given(
    st.lists(st.tuples(st.integers(-(2**60), 2**60), st.integers(0, 2**60)), min_size=1, max_size=9),
    st.data(),
)
def test_any_integers_within_any_bounds_come_back(spans: list[tuple[int, int]], data: st.DataObject) -> None:
    low = np.array([a for a, _ in spans])
    high = np.array([a + b for a, b in spans])
    total = np.array([data.draw(st.integers(int(a), int(b))) for a, b in zip(low, high, strict=True)])
    bounds = [Bounds(low, high)]
    assert np.array_equal(unpack(pack([total], bounds), bounds)[0], total)


def test_sums_beyond_their_bounds_are_neither_sent_nor_taken() -> None:
    bounds = [Bounds(np.array([0]), np.array([5]))]
    with pytest.raises(WireError, match="beyond"):
        pack([np.array([6])], bounds)
    with pytest.raises(WireError, match="beyond"):
        unpack(bytes([0b11100000]), bounds)
    with pytest.raises(WireError, match="left over"):
        unpack(bytes([0b10100001]), bounds)
    with pytest.raises(WireError, match="take 1 bytes"):
        unpack(bytes(2), bounds)


def test_a_noisy_sum_is_moved_to_its_bound_only_far_out() -> None:
    deviations = np.full(3, 10.0)
    bounds = bounds_of(FLAT, 2, deviations)
    assert bounds.high.tolist() == [2 * FLAT_UNITS + 640] * 3
    assert clamp(np.array([2**40, 0, -(2**40)]), bounds).tolist() == [bounds.high[0], 0, bounds.low[0]]


def test_sums_that_no_rows_can_have_are_found_out() -> None:
    rows = 5
    assert not within(FLAT, np.full(3, rows * FLAT_UNITS), rows)  # each within its bound, together too long
    outer = grid_sums(OUTER, rows, 0)
    outer[1] = outer[0] + outer[4]
    assert not within(OUTER, outer, rows)  # no positive matrix
    counts = grid_sums(COUNT, rows, 0)
    counts[0] += 1
    assert not within(COUNT, counts, rows)  # one column counts a row that the other does not
    assert not within(COUNT, np.array([6, 0, 0, 0, 0] * 2), rows)


def test_bounds_that_do_not_fit_are_refused() -> None:
    with pytest.raises(WireError, match="do not fit"):
        bounds_of(OUTER, 2**31)
    with pytest.raises(WireError, match="noise does not fit"):
        bounds_of(FLAT, 2, np.full(3, 2.0**55))
