"""Private scaling: three charged histograms, one count a column a record, and bounds that hold the data."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpsep.families.columns import Columns
from dpsep.privacy import scaling
from dpsep.privacy.gate import Gate, NotCharged, Permit, Reader
from dpsep.privacy.grid import Block
from dpsep.privacy.mechanism import Mechanism
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


def found_in(X: np.ndarray, part: Mechanism, permit: Permit, seed: int) -> Columns:
    """Bounds of a table's columns by a mechanism's releases."""
    stream = SeededStream(seed)
    columns = 1 if X.ndim == 1 else X.shape[1]
    return estimate(columns, lambda blocks, what: Gate((X,), part, blocks, what, permit, stream=stream))


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
    found = found_in(X, part, permit_for(part), 1)
    inside = ((found.low <= X) & (found.high >= X)).mean(axis=0)
    assert (inside > 0.97).all()
    spread = X.std(axis=0)
    width = found.high - found.low
    wide = spread > 0
    assert (width[wide] < 40 * spread[wide]).all()
    mapped = (np.clip(X, found.low, found.high) - found.centre) / found.scale
    assert abs(mapped).max() <= 1.0 + 1e-12


def test_it_spends_its_three_releases_and_no_more() -> None:
    X = columns(200)
    part, fit = mechanism(200, steps=RELEASES, sigma=4.0), mechanism(200, steps=RELEASES, sigma=5.0)
    permit = permit_for(part, fit)
    found_in(X, part, permit, 1)
    assert permit.made(part) == RELEASES
    assert permit.made(fit) == 0
    with pytest.raises(NotCharged, match="all 3 releases"):
        found_in(X, part, permit, 2)


def test_scaling_and_a_fit_with_the_same_mechanism_need_two_charges() -> None:
    X = columns(200)
    part = mechanism(200, steps=RELEASES, sigma=4.0)
    permit = permit_for(part, part)
    for seed in (1, 2):
        found_in(X, part, permit, seed)
    with pytest.raises(NotCharged):
        found_in(X, part, permit, 3)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_table_without_a_usable_record_gives_finite_bounds(bad: float) -> None:
    part = mechanism(50, steps=RELEASES, sigma=4.0)
    found = found_in(np.full((50, 2), bad), part, permit_for(part), 1)
    assert all(np.isfinite(value).all() for value in found)
    assert (found.scale > 0).all()
    assert (found.high >= found.low).all()


def test_declared_bounds_scale_to_at_most_one() -> None:
    low, high = np.array([-2.0, 10.0, 3.0, 0.0, -7.0, -9.0]), np.array([1.0, 20.0, 3.0, 4.0, 0.0, -5.0])
    found = within(low, high)
    assert found.centre.tolist() == [0.0, 15.0, 3.0, 0.0, 0.0, -7.0]
    assert found.scale.tolist() == [2.0, 5.0, 1.0, 4.0, 7.0, 2.0]
    assert (found.low.tolist(), found.high.tolist()) == (low.tolist(), high.tolist())
    assert within(np.array([-0.25]), np.array([0.5])).scale.tolist() == [0.5]


@pytest.mark.parametrize(
    ("deviation", "bins"), [(0.0, 64), (1 / 512, 64), (1 / 480, 60), (0.0125, 10), (1 / 48, 6), (1.0, 6)]
)
def test_more_noise_means_fewer_bins(deviation: float, bins: int) -> None:
    # One eighth of the noise's inverse: half of the bins of an even column stand out four times over.
    assert scaling._linear_bins(deviation) == bins


def test_the_noise_level_lies_one_deviation_above_the_largest_of_so_many_draws() -> None:
    assert scaling._noise_level(0.5, np.zeros((4, 5))) == 0.5 * (math.sqrt(2 * math.log(20)) + 1)


LEVEL = 0.01 * (math.sqrt(2 * math.log(82)) + 1.0)
"""The noise level of two columns of magnitudes with a deviation of one hundredth."""


def test_the_range_of_magnitudes_reaches_a_quarter_beyond_the_largest_that_stands_out() -> None:
    counts = np.zeros((2, 41))
    counts[0, [3, 21, 22, 30]] = [0.5, 0.4, LEVEL + 1e-9, LEVEL - 1e-9]
    counts[1, 0] = 1.0
    low, high = scaling._magnitude_range(counts, 0.01)
    assert high.tolist() == [1.25 * 4.0**2, 1.0]
    assert low.tolist() == (-high).tolist()
    # Where nothing stands out no scale is invented: the column keeps its own units.
    counts = np.full((2, 41), 0.001)
    counts[:, 21] = 0.002
    assert scaling._magnitude_range(counts, 0.01)[1].tolist() == [1.0] * 2


def test_a_column_that_shows_one_bin_alone_is_not_looked_at_closer() -> None:
    level = scaling._noise_level(0.01, np.zeros((3, 4)))
    counts = np.array([[0.0, 0.98, level / 2, 0.0], [0.0, 0.5, 0.45, 0.0], [0.0, 0.3, 0.0, 0.0]])
    assert scaling._is_single(counts, 0.01).tolist() == [True, False, False]
    edges = np.tile(np.linspace(-1.0, 1.0, 5), (3, 1))
    low, high = scaling._range(counts, 0.01, edges)
    assert (low[0], high[0]) == (-1.0, 1.0), "an indicator that is rarely one stays as it is"
    assert (low[1], high[1]) != (-1.0, 1.0)


def test_bins_that_noise_could_have_made_are_dropped_unless_they_hold_half_of_the_records() -> None:
    level = scaling._noise_level(0.01, np.zeros((2, 4)))
    counts = np.array([[0.3, level, 0.5, -0.1], [0.45, level, -0.2, 0.01]])
    kept = scaling._kept(counts, 0.01)
    np.testing.assert_allclose(kept[0], [0.375, 0.0, 0.625, 0.0], rtol=1e-12)
    positive = np.array([0.45, level, 1e-9, 0.01])
    np.testing.assert_allclose(kept[1], positive / positive.sum(), rtol=1e-12)
    half = scaling._kept(np.array([[0.5, level / 2, 0.0, 0.0]] * 2), 0.01)
    assert half.tolist() == [[1.0, 0.0, 0.0, 0.0]] * 2


def test_the_next_range_is_that_of_the_bins_kept_and_a_fifth_on_either_side() -> None:
    edges = np.array([[0.0, 1.0, 2.0, 3.0, 4.0], [-4.0, -2.0, 0.0, 2.0, 4.0]])
    counts = np.array([[0.0, 0.5, 0.5, 0.0], [0.0, 0.0, 0.0, 1.0]])
    low, high = scaling._range(counts, 0.01, edges)
    np.testing.assert_allclose(low, [1.0 - 0.4, 2.0 - 0.4], rtol=1e-12)
    np.testing.assert_allclose(high, [3.0 + 0.4, 4.0 + 0.4], rtol=1e-12)


def test_bounds_hold_the_bins_kept_and_four_deviations_about_their_mean() -> None:
    edges = np.linspace([0.0, 0.0, 10.0], [4.0, 8.0, 14.0], 5, axis=1)
    counts = np.array([[0.0, 1.0, 0.0, 0.0], [0.5, 0.0, 0.0, 0.5], [0.2, 0.6, 0.2, 0.0]])
    low, high = scaling._bounds(counts, 0.001, edges)
    # One bin: its width about its middle. Two, with middles 1 and 7: 4 +- 4 * 3. Three: 11.5 +- 4 s.
    s = math.sqrt(0.4)
    np.testing.assert_allclose(low, [0.5, -8.0, 11.5 - 4 * s], rtol=1e-12)
    np.testing.assert_allclose(high, [2.5, 16.0, 11.5 + 4 * s], rtol=1e-12)
    # An outlier far off: its bin is held though it lies beyond four deviations.
    edges = np.linspace([0.0], [40.0], 41, axis=1)
    counts = np.zeros((1, 40))
    counts[0, 0], counts[0, -1] = 0.98, 0.02
    low, high = scaling._bounds(counts, 0.001, edges)
    assert high[0] == 40.0
    assert low[0] < -20.0
    low, high = scaling._bounds(counts[:, ::-1], 0.001, edges)
    assert low[0] == 0.0
    assert high[0] > 60.0


def test_magnitudes_beyond_the_last_power_count_in_the_last_bin_and_the_first_bin_holds_the_least() -> None:
    cells = np.array([4.0**-20 * 0.99, 4.0**-20, 4.0**19 * 0.99, 4.0**19, 4.0**21, 5e-324])
    counts = counted(MagnitudeCounts(), None, cells[:, None])[0]
    assert (counts.shape, counts[0], counts[1]) == ((41,), 2, 1)
    assert counts[-2:].tolist() == [1, 2]


def test_with_hardly_any_noise_bounds_are_those_of_three_histograms() -> None:
    cells = np.repeat([1000.0, 1002.0], 500)
    part = mechanism(1000, steps=RELEASES, sigma=1e-3)
    found = found_in(cells, part, permit_for(part), 1)
    # Powers of four reach 1.25 * 4^5 = 1280; 64 bins of 40; the bin of 1000 to 1002 and a fifth: 64 of 0.875.
    low = -1280 + 40 * 57 - 8
    bins = [math.floor((cell - low) / 56 * 64) for cell in (1000.0, 1002.0)]
    middles = [low + 0.875 * (number + 0.5) for number in bins]
    mean, spread = sum(middles) / 2, (middles[1] - middles[0]) / 2
    np.testing.assert_allclose(found.low, mean - 4 * spread, rtol=1e-9)
    np.testing.assert_allclose(found.high, mean + 4 * spread, rtol=1e-9)
