"""Sums on the grid: exact, clipped after rounding, and unmoved by rows that cannot be used."""

import math
from typing import Literal

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpsep.privacy.grid import (
    FLAT_UNITS,
    OUTER_UNITS,
    Block,
    chunk_sums,
    contributions,
    coordinates_of,
    rows_on_grid,
)

from .gate_help import Parts, vectors

ROWS, SIZE = 16, 3
FLAT = Block("flat", SIZE, 2.0, 0.5)
OUTER = Block("outer", SIZE, 2.0, 0.5, "outer")
CELLS = st.one_of(
    st.floats(width=64, allow_nan=True, allow_infinity=True),
    st.floats(-3.0, 3.0),
    st.sampled_from([0.0, -0.0, 5e-324, -1e-310, 1e154, 1.35e154, 1e300, -1.7e308, math.nan, math.inf]),
)


def sums(blocks: tuple[Block, ...], *parts: np.ndarray) -> list[np.ndarray]:
    with jax.enable_x64(True):
        rows = rows_on_grid(blocks, contributions(Parts(), blocks, np.float64(1.0), parts))
        return [
            coordinates_of(block, np.asarray(total))
            for block, total in zip(blocks, chunk_sums(blocks, rows), strict=True)
        ]


def padded(row: list[float] | np.ndarray) -> np.ndarray:
    chunk = np.full((ROWS, SIZE), np.nan)
    chunk[0] = row
    return chunk


@settings(max_examples=300, deadline=None)
@given(row=st.lists(CELLS, min_size=SIZE, max_size=SIZE), other=st.lists(CELLS, min_size=SIZE, max_size=SIZE))
def test_no_row_exceeds_its_clip_after_rounding(row: list[float], other: list[float]) -> None:
    flat, outer = sums((FLAT, OUTER), padded(row), padded(other))
    whole = [int(value) for value in flat]
    assert [float(value) for value in whole] == flat.tolist(), "integers"
    assert sum(value**2 for value in whole) <= FLAT_UNITS**2
    weights = np.where(OUTER.deviations() == 1.0, 1, 2)
    square = sum(int(w) * int(v) ** 2 for w, v in zip(weights, outer, strict=True))
    assert square <= OUTER_UNITS**4
    if not np.isfinite(row + other).all():
        assert not flat.any()
        assert not outer.any()


@pytest.mark.parametrize("angle", np.linspace(0.0, 1.5, 7))
def test_rows_at_the_clip_and_far_beyond_it_keep_their_direction_and_almost_all_of_the_clip(
    angle: float,
) -> None:
    direction = np.array([math.cos(angle), math.sin(angle), 0.0])
    for length in (2.0, 2.0000001, 7.0, 1e100):
        flat, _ = sums((FLAT, OUTER), padded(length * direction), padded(direction))
        assert np.linalg.norm(flat) <= FLAT_UNITS
        np.testing.assert_allclose(flat / FLAT_UNITS, direction, atol=2e-6)


def test_rows_inside_the_clip_are_rounded_and_not_scaled() -> None:
    row = np.array([0.5, -0.25, 2.0**-19])
    flat, outer = sums((FLAT, OUTER), padded(row), padded([0.25, 0.5, 0.0]))
    assert flat.tolist() == [2.0**18, -(2.0**17), 1.0]
    whole = np.rint(np.array([0.25, 0.5, 0.0]) * OUTER_UNITS / math.sqrt(2.0))
    assert outer.tolist() == np.outer(whole, whole)[np.triu_indices(SIZE)].tolist()


def test_sums_equal_those_of_python_integers() -> None:
    flat_rows, outer_rows = vectors(ROWS, SIZE, 2.0, 1), vectors(ROWS, SIZE, 2.0, 2)
    flat, outer = sums((FLAT, OUTER), flat_rows, outer_rows)
    ones = [sums((FLAT, OUTER), padded(a), padded(b)) for a, b in zip(flat_rows, outer_rows, strict=True)]
    for total, parts in ((flat, [one[0] for one in ones]), (outer, [one[1] for one in ones])):
        exact = [sum(int(part[i]) for part in parts) for i in range(len(total))]
        assert exact == [int(value) for value in total]


@pytest.mark.parametrize("size", [1, 2, 7, 33, 85])
def test_matrix_kernels_of_any_size_add_integers_exactly(size: int) -> None:
    whole = np.random.default_rng(size).integers(-(2**15), 2**15, (2048, size))
    whole //= math.ceil(math.sqrt(size))  # within the clip, so that every row passes
    blocks = (Block("flat", size, 1.0, 0.5), Block("outer", size, 1.0, 0.5, "outer"))
    passed = np.ones(len(whole), bool)
    with jax.enable_x64(True):
        rows = tuple((whole.astype(np.float64), passed) for _ in blocks)
        flat, outer = (np.asarray(total) for total in chunk_sums(blocks, rows))
    assert (flat == whole.sum(axis=0)).all()
    assert (outer == whole.T @ whole).all()


def test_a_full_chunk_of_the_largest_rows_sums_exactly() -> None:
    rows = 4096
    u = np.full((rows, 1), 1.0)
    block = Block("outer", 1, 1.0, 1.0, "outer")
    (total,) = sums((block,), u)
    whole = round(OUTER_UNITS - 0.5)
    assert int(total[0]) == rows * whole**2


def test_a_row_that_is_bad_in_one_block_counts_in_none_and_harms_no_other() -> None:
    flat_rows, outer_rows = vectors(ROWS, SIZE, 1.0, 1), vectors(ROWS, SIZE, 1.0, 2)
    without_flat, without_outer = flat_rows.copy(), outer_rows.copy()
    without_flat[5], without_outer[5] = 0.0, 0.0
    expected = sums((FLAT, OUTER), without_flat, without_outer)
    for bad in (np.nan, np.inf, -np.inf, 1e200):
        outer_bad = outer_rows.copy()
        outer_bad[5, 1] = bad
        for one, other in zip(sums((FLAT, OUTER), flat_rows, outer_bad), expected, strict=True):
            assert one.tolist() == other.tolist()


def test_the_sum_rejects_rows_beyond_the_clip_whatever_made_them() -> None:
    # The check reads the numbers that are summed: rows that were never clipped do not pass it.
    with jax.enable_x64(True):
        rows = np.zeros((ROWS, SIZE))
        rows[0], rows[1] = [FLAT_UNITS, 0, 0], [FLAT_UNITS, 1, 0]
        (total,) = chunk_sums((FLAT,), ((rows, np.ones(ROWS, bool)),))
    assert np.asarray(total).tolist() == [FLAT_UNITS, 0, 0]


@settings(max_examples=100, deadline=None)
@given(row=st.lists(CELLS, min_size=2, max_size=2))
def test_a_count_row_adds_one_in_one_bin_a_column_or_nothing(row: list[float]) -> None:
    block = Block("counts", 2, math.sqrt(2), 1.0, "count", 5)
    chunk = np.full((ROWS, 2), np.nan)
    chunk[3] = row
    (total,) = sums((block,), chunk)
    row = [0.0 if abs(cell) < np.finfo(float).tiny else cell for cell in row]  # subnormals are flushed
    expected = np.zeros((2, 5))
    if all(math.isfinite(cell) and 0 <= math.floor(cell) < 5 for cell in row):
        expected[[0, 1], [math.floor(cell) for cell in row]] = 1.0
    assert total.tolist() == expected.ravel().tolist()


@pytest.mark.parametrize("cell", [-1.0, -1e-9, 5.0, 5.5, 10.0])
def test_a_bin_that_does_not_exist_counts_nowhere_and_not_in_the_next_column(cell: float) -> None:
    block = Block("counts", 2, math.sqrt(2), 1.0, "count", 5)
    for column in (0, 1):
        chunk = np.full((ROWS, 2), np.nan)
        chunk[3], chunk[4] = [4.999, 0.0], [2.0, 2.0]
        chunk[4, column] = cell
        (total,) = sums((block,), chunk)
        assert total.reshape(2, 5).tolist() == [[0, 0, 0, 0, 1], [1, 0, 0, 0, 0]]


@pytest.mark.parametrize("kind", ["flat", "outer"])
def test_no_direction_loses_a_clipped_row_to_rounding(kind: Literal["flat", "outer"]) -> None:
    units = FLAT_UNITS if kind == "flat" else OUTER_UNITS
    # Sizes at which an even row, scaled to the whole clip, would be rounded up beyond it in every coordinate.
    sizes = [size for size in range(2, 120) if 0.9 < math.modf(units / math.sqrt(size))[0] < 0.9999]
    for size in sizes[:4]:
        (total,) = sums((Block("b", size, 1.0, 1.0, kind),), np.full((1, size), 7.0))
        each = math.floor(units / math.sqrt(size))
        assert total[0] == (each if kind == "flat" else each**2)


def test_counts_are_a_histogram_a_column() -> None:
    block = Block("counts", 2, math.sqrt(2), 1.0, "count", 4)
    bins = np.random.default_rng(0).integers(0, 4, (ROWS, 2))
    (total,) = sums((block,), bins.astype(np.float64))
    assert total.reshape(2, 4).tolist() == [np.bincount(column, minlength=4).tolist() for column in bins.T]


@pytest.mark.parametrize("width", [1, 2, 4])
def test_a_contribution_of_another_width_than_its_block_is_refused(width: int) -> None:
    with pytest.raises(ValueError, match="has shape"):
        sums((FLAT,), np.zeros((ROWS, width)))


def test_a_clip_of_zero_leaves_nothing() -> None:
    flat, outer = sums(
        (Block("flat", SIZE, 0.0), Block("outer", SIZE, 0.0, 1.0, "outer")),
        vectors(ROWS, SIZE),
        vectors(ROWS, SIZE),
    )
    assert not flat.any()
    assert not outer.any()


def test_blocks_that_make_no_sense_are_refused() -> None:
    for size, clip, share in (
        (0, 1.0, 1.0),
        (1, -1.0, 1.0),
        (1, math.nan, 1.0),
        (1, 1.0, 0.0),
        (1, 1.0, 1.5),
    ):
        with pytest.raises(ValueError, match="needs a positive size"):
            Block("b", size, clip, share)
    with pytest.raises(ValueError, match="needs bins"):
        Block("b", 2, 1.0, 1.0, "count", 3)
    with pytest.raises(ValueError, match="too large"):
        Block("b", 2**42, 1.0)


def test_an_outer_block_is_released_as_a_symmetric_matrix() -> None:
    block = Block("outer", 2, 1.0, 1.0, "outer")
    assert block.assemble(np.array([1.0, 2.0, 3.0])).tolist() == [[1.0, 2.0], [2.0, 3.0]]
    assert block.deviations().tolist() == [1.0, math.sqrt(0.5), 1.0]


def test_rows_that_lie_half_way_are_rounded_by_the_scale_of_the_host() -> None:
    """A compiler that multiplies by an inverse root is off by a last digit, and here by a unit."""
    block = Block("o", 4, 2.6701957668594583, kind="outer")
    row = np.array([[7.4801942432784e-05, 0.0, 0.0, 0.0]])
    with jax.enable_x64(True):
        found = np.asarray(rows_on_grid((block,), (jnp.asarray(row),))[0][0])
    assert found[0, 0] == np.round(row[0, 0] * (2**15 / math.sqrt(block.clip))) == 1.0
