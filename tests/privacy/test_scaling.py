"""Private scaling: three charged histograms, one count a column a record, and bounds that hold the data."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpsep.privacy.gate import NotCharged, Reader
from dpsep.privacy.grid import Block
from dpsep.privacy.noise import SeededStream
from dpsep.privacy.scaling import RELEASES, LinearCounts, MagnitudeCounts, estimate, within

from .gate_help import mechanism, permit_for

CELLS = st.one_of(
    st.floats(width=64),
    st.sampled_from([0.0, -0.0, 5e-324, 1e-300, 4.0**19, 4.0**20, 1.7e308, math.nan, math.inf, -math.inf]),
)


def counted(contribution: MagnitudeCounts | LinearCounts, public: object, *records: np.ndarray) -> np.ndarray:
    columns = sum(1 if part.ndim == 1 else part.shape[1] for part in records)
    block = Block("counts", columns, math.sqrt(columns), 1.0, "count", contribution.bins)
    (total,) = Reader(records).sums(contribution, (block,), public, np.arange(len(records[0])))
    return total.reshape(columns, contribution.bins)


@settings(max_examples=150, deadline=None)
@given(cells=st.lists(CELLS, min_size=3, max_size=3), bound=st.sampled_from([1e-12, 1.0, 1e12]))
def test_a_record_adds_one_count_a_column_or_none_at_all(cells: list[float], bound: float) -> None:
    X, y = np.array([cells[:2]]), np.array(cells[2:])
    low, high = np.full(3, -bound), np.full(3, bound)
    expected = int(np.isfinite(cells).all())
    for counts in (counted(MagnitudeCounts(), None, X, y), counted(LinearCounts(6), (low, high), X, y)):
        assert counts.sum(axis=1).tolist() == [expected] * 3
        assert counts.max() == expected
        assert counts.min() >= 0


def test_magnitudes_fall_into_bins_by_powers_of_four() -> None:
    cells = np.array([0.0, 1e-30, 0.3, 1.0, 3.99, 4.0, -5.0, 1e300])
    counts = counted(MagnitudeCounts(), None, cells[:, None])[0]
    # Bin k holds magnitudes from 4^(k - 21) to 4^(k - 20); the outer ones what lies beyond.
    expected = np.zeros(41, int)
    for number in (0, 0, 20, 21, 21, 22, 22, 40):
        expected[number] += 1
    assert counts.tolist() == expected.tolist()


def test_cells_outside_the_range_are_counted_in_the_outer_bins() -> None:
    cells = np.array([-1e308, -1.0, -0.6, 0.0, 0.99, 1.0, 1e308])[:, None]
    counts = counted(LinearCounts(4), (np.array([-1.0]), np.array([1.0])), cells)[0]
    assert counts.tolist() == [3, 0, 1, 3]


def columns(rows: int = 4000) -> np.ndarray:
    generator = np.random.default_rng(0)
    return np.stack(
        [
            generator.normal(1013.0, 6.0, rows),
            generator.normal(0.0, 1e-4, rows),
            generator.exponential(1e5, rows),
            np.zeros(rows),
            np.full(rows, 7.0),
            generator.integers(0, 2, rows),
        ],
        axis=1,
    )


def test_bounds_hold_nearly_all_cells_and_are_not_much_wider_than_the_column() -> None:
    X = columns()
    part = mechanism(len(X), steps=RELEASES, sigma=4.0)
    scaling = estimate((X,), part, permit_for(part), SeededStream(1))
    inside = ((scaling.low <= X) & (scaling.high >= X)).mean(axis=0)
    assert (inside > 0.97).all()
    spread = X.std(axis=0)
    width = scaling.high - scaling.low
    wide = spread > 0
    assert (width[wide] < 40 * spread[wide]).all()
    mapped = (np.clip(X, scaling.low, scaling.high) - scaling.centre) / scaling.scale
    assert abs(mapped).max() <= 1.0 + 1e-12


def test_it_spends_its_three_releases_and_no_more() -> None:
    X = columns(200)
    part, fit = mechanism(200, steps=RELEASES, sigma=4.0), mechanism(200, steps=RELEASES, sigma=5.0)
    permit = permit_for(part, fit)
    estimate((X,), part, permit, SeededStream(1))
    assert permit.made(part) == RELEASES
    assert permit.made(fit) == 0
    with pytest.raises(NotCharged, match="all 3 releases"):
        estimate((X,), part, permit, SeededStream(2))


def test_scaling_and_a_fit_with_the_same_mechanism_need_two_charges() -> None:
    X = columns(200)
    part = mechanism(200, steps=RELEASES, sigma=4.0)
    permit = permit_for(part, part)
    for seed in (1, 2):
        estimate((X,), part, permit, SeededStream(seed))
    with pytest.raises(NotCharged):
        estimate((X,), part, permit, SeededStream(3))


def test_another_number_of_releases_is_refused() -> None:
    part = mechanism(200, steps=2)
    with pytest.raises(ValueError, match="takes 3 releases"):
        estimate((columns(200),), part, permit_for(part), SeededStream(1))


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_table_without_a_usable_record_gives_finite_bounds(bad: float) -> None:
    part = mechanism(50, steps=RELEASES, sigma=4.0)
    scaling = estimate((np.full((50, 2), bad),), part, permit_for(part), SeededStream(1))
    assert all(np.isfinite(value).all() for value in scaling)
    assert (scaling.scale > 0).all()
    assert (scaling.high >= scaling.low).all()


def test_declared_bounds_scale_to_at_most_one() -> None:
    scaling = within(np.array([-2.0, 10.0, 3.0]), np.array([1.0, 20.0, 3.0]))
    assert scaling.centre.tolist() == [0.0, 15.0, 3.0]
    assert scaling.scale.tolist() == [2.0, 5.0, 1.0]
