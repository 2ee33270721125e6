"""Published attacks on floating-point privacy find nothing in a release, and do break the path in floats.

Mironov (2012): which doubles can be an output tells the sum. Jin, McMurtry, Rubinstein and Ohrimenko (2022):
the Gaussian samplers in use can be inverted, number by number. Haney, Desfontaines, Hartman, Shrestha and Hay
(2022): an output's precision tells how large the sum was. Casacuberta, Shoemate, Vadhan and Wagaman (2022):
sums of doubles or of machine integers move by more than the sensitivity. Each attack is carried out: on a
release it must find nothing, and on ``noise="float"``, or on sums in floats, it must succeed.
"""

import math
import warnings
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import special, stats

from dpsep.privacy import reader
from dpsep.privacy.gate import Gate
from dpsep.privacy.grid import FLAT_UNITS, MAX_ROWS, OUTER_UNITS, Block
from dpsep.privacy.leaks import PrivacyLeakWarning
from dpsep.privacy.noise import SeededStream, rounded_gaussian

from .gate_help import Parts, mechanism, permit_for, vectors

LEVEL = 1e-6
SIZE = 2000
Array = NDArray[np.float64]


def releases(
    table: Array,
    kind: Any = "rounded",
    sigma: float = 100.0,
    seed: int = 1,
    clip: float = 1.0,
    steps: int = 1,
) -> Array:
    """Full-batch releases of a flat block, one a row, in grid units where the clip is a power of two."""
    blocks = (Block("flat", table.shape[1], clip),)
    part = mechanism(len(table), sigma=sigma, steps=steps)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PrivacyLeakWarning)  # of noise in floats
        gate = Gate((table,), part, blocks, Parts(), permit_for(part), stream=SeededStream(seed), noise=kind)
    return np.stack([gate.release(1.0)["flat"] for _ in range(steps)]) / blocks[0].unit


def release(table: Array, kind: Any = "rounded", sigma: float = 100.0, seed: int = 1) -> Array:
    """One release, in grid units."""
    return releases(table, kind, sigma, seed)[0]


def neighbours(size: int = SIZE) -> tuple[Array, Array]:
    """Three records, and the same with the first zeroed; every coordinate of the sum differs."""
    table = np.repeat([[0.9], [0.3], [-0.2]], size, axis=1) / math.sqrt(size)
    zeroed = table.copy()
    zeroed[0] = 0.0
    return table, zeroed


def exact_sum(table: Array) -> Array:
    """The sum in grid units of rows inside the clip."""
    return np.rint(table * FLAT_UNITS).sum(axis=0)


def float_outputs_reached(y: Array, a: Array, sd: float) -> NDArray[np.bool_]:
    """Whether the float sampler can turn the sum ``a`` into ``y``: run it on all uniforms nearby."""
    tail = special.ndtr(-np.abs(y - a) / sd)
    nearby = (tail.view(np.int64)[:, None] + np.arange(-64, 65)).view(np.float64)
    noise = np.copysign(-special.ndtri(nearby), (y - a)[:, None]) * sd
    return np.any(a[:, None] + noise == y[:, None], axis=1)


class Words:
    """Hands out these words."""

    secure = False

    def __init__(self, words: NDArray[np.uint64]) -> None:
        self._words = words

    def words(self, n: int) -> NDArray[np.uint64]:
        assert n == self._words.size, "a draw that is refined"
        return self._words


def rounded_outputs_reached(y: Array, a: Array, sd: float) -> NDArray[np.bool_]:
    """The same for a release: whether the words that belong to the noise y - a give that noise."""
    noise = y - a
    tail = (special.ndtr(-np.abs(noise) / sd) * 2.0**64).astype(np.uint64)
    words = np.where(noise < 0, tail | np.uint64(1 << 63), tail)
    return rounded_gaussian(Words(words), sd, y.size) + a == y


@pytest.mark.parametrize("sigma", [1.0, 100.0])
def test_mironov_neighbours_reach_the_same_outputs_and_in_floats_they_do_not(sigma):
    table, zeroed = neighbours()
    sums = exact_sum(table), exact_sum(zeroed)
    assert np.all(sums[0] != sums[1])
    sd = sigma * FLAT_UNITS
    for source in (table, zeroed):
        y = release(source, sigma=sigma)
        assert np.array_equal(y, np.rint(y)), "outputs are on the grid"
        for a in sums:
            assert rounded_outputs_reached(y, a, sd).all()
    in_floats = release(table, "float", sigma=sigma)
    assert float_outputs_reached(in_floats, sums[0], sd).all()
    assert float_outputs_reached(in_floats, sums[1], sd).mean() < 0.9  # the rest prove which table it was


def jin_attack(reached: Callable[..., NDArray[np.bool_]], y: Array, sums: tuple[Array, Array]) -> int | None:
    """Which of two tables made an output: the only one that can have; None where both can."""
    possible = [bool(reached(y, a, 100.0 * FLAT_UNITS).all()) for a in sums]
    return possible.index(True) if sum(possible) == 1 else None


def test_jin_inverting_the_sampler_tells_nothing_and_in_floats_it_tells_the_table_every_time():
    # Noise of 100 clips: a guess from the values is right half a percent more often than a coin.
    tables = neighbours(32)
    sums = exact_sum(tables[0]), exact_sum(tables[1])
    for seed in range(25):
        for truth, table in enumerate(tables):
            assert jin_attack(rounded_outputs_reached, release(table, seed=seed), sums) is None
            assert jin_attack(float_outputs_reached, release(table, "float", seed=seed), sums) == truth


def test_jin_a_draw_of_any_size_reads_one_word_so_its_time_does_not_tell_its_size():
    for place in (0.0, 0.5, 1.0, 3.0, 6.0):
        tail = int(special.ndtr(-place) * 2.0**64) - 1
        assert rounded_gaussian(Words(np.array([tail], np.uint64)), 1000.25, 1)[0] == round(1000.25 * place)


def last_bits(y: Array) -> NDArray[np.int64]:
    """Position of the lowest bit set in each double."""
    mantissa, exponent = np.frexp(y)
    whole = (mantissa * 2.0**53).astype(np.int64)
    return exponent - 53 + np.log2(whole & -whole).astype(np.int64)


def tells_apart(one: NDArray[Any], other: NDArray[Any]) -> bool:
    """Whether two samples of a few values differ in law, at the level 1e-6."""
    values = np.unique(np.concatenate([one, other]))
    table = np.array([[np.sum(sample == value) for value in values] for sample in (one, other)])
    table = table[:, table.sum(axis=0) >= 20]
    result: Any = stats.chi2_contingency(table)
    return bool(result.pvalue < LEVEL)


@pytest.mark.parametrize("clip", [1.0, 3.0, 0.1])
def test_haney_precision_of_an_output_does_not_tell_the_sum_and_in_floats_it_does(clip):
    # No record, one at its clip, a small one: the sum is 0, 2^20 units or odd; the noise has 2^20 units.
    empty, full, odd = (np.full((1, 1), value * clip) for value in (0.0, 2.0, 12345 / FLAT_UNITS))
    ours, in_floats = (
        [releases(t, kind, 1.0, seed, clip, steps=600)[:, 0] for seed, t in ((1, empty), (2, full), (3, odd))]
        for kind in ("rounded", "float")
    )
    whole = [np.rint(y) for y in ours]
    # A double on the grid is a function of its integer; the low bits of the integer are uniform.
    unit = Block("flat", 1, clip).unit
    for y, k in zip(ours, whole, strict=True):
        assert np.array_equal(y, k * unit / unit)
    for other in whole[1:]:
        assert not tells_apart(last_bits(whole[0]), last_bits(other))
        assert not tells_apart(whole[0] % 8, other % 8)
    if clip == 1.0:  # units that are powers of two show it bare
        assert tells_apart(last_bits(in_floats[0]), last_bits(in_floats[1]))
        assert last_bits(in_floats[0]).min() < last_bits(in_floats[1]).min() - 2


def gate_sums(table: Array) -> list[int]:
    """Sums in grid units: two releases with the same noise, of which one is of nothing."""
    silent = release(np.zeros_like(table))
    return [int(value) for value in release(table) - silent]


def test_casacuberta_sums_of_mixed_sizes_are_exact_in_any_order_and_chunks(monkeypatch):
    random = np.random.default_rng(3)
    sizes = [2.0**53 + 1, 1.0, -(2.0**53), 1e300, -1e300, 1e-300, 5e-324, 2.0**-20, -0.5, 1 / 3]
    table = random.choice(sizes, (120, 3)) * random.choice([1.0, -1.0], (120, 3))
    table[::2] = 2.0 ** random.uniform(-25, 0, (60, 3)) * random.choice([1.0, -1.0], (60, 3))
    alone = [gate_sums(row[None]) for row in table]
    assert all(sum(k * k for k in row) <= FLAT_UNITS**2 for row in alone)
    exact = [sum(column) for column in zip(*alone, strict=True)]
    for order in (np.arange(120), np.arange(120)[::-1], np.argsort(table[:, 0]), random.permutation(120)):
        for capacity in (8, 64, 2048):
            monkeypatch.setattr(reader, "CAPACITY", capacity)
            assert gate_sums(table[order]) == exact
    # In floats the order alone moves the sum.
    rows = np.array(alone, float) / 3.0
    assert len({float(sum(column)) for column in (rows[:, 0], rows[::-1, 0], np.sort(rows[:, 0]))}) > 1


def test_casacuberta_a_record_moves_a_sum_by_its_clip_at_most_and_in_floats_by_more():
    # Every further record is a little over half the last place of the first: rounding doubles it.
    record, small, count = np.float32(1.0), np.float32(2.0**-24 * (1 + 2.0**-23)), 4000
    table = np.full((count + 1, 1), small, dtype=np.float64)
    table[0] = record
    zeroed = table.copy()
    zeroed[0] = 0.0
    moved = gate_sums(table)[0] - gate_sums(zeroed)[0]
    assert 0 < moved <= FLAT_UNITS
    for kind in (np.float32, np.float64):
        scale = 1.0 if kind is np.float32 else 2.0**-29 * (1 + 2.0**-52) / (1 + 2.0**-23)
        rows = table[:, 0].astype(kind)
        rows[1:] *= kind(scale)
        sums = []
        for first in (1, 0):
            total = kind(first)
            for row in rows[1:]:
                total = kind(total + row)
            sums.append(Fraction(float(total)))
        assert sums[0] - sums[1] > 1


def test_casacuberta_integers_cannot_overflow_and_32_bits_would():
    records = 4096  # each at the clip: 2^32 units, and a chunk of them is beyond 32 bits
    assert gate_sums(np.full((records, 1), 5.0)) == [records * round(FLAT_UNITS - 0.5)]
    whole = np.random.default_rng(4).integers(FLAT_UNITS // 2, FLAT_UNITS, (3001, 1))
    assert gate_sums(whole / FLAT_UNITS) == [int(whole.sum())]  # 24 bits do not hold this sum
    narrow = np.full(records // 2, FLAT_UNITS, np.int32)
    moved = int(narrow.sum(dtype=np.int32)) - int(narrow[1:].sum(dtype=np.int32))
    assert abs(moved) > 1000 * FLAT_UNITS
    # A chunk's sums are integers that doubles hold; chunks are added in 64 bits.
    assert MAX_ROWS * max(FLAT_UNITS, OUTER_UNITS**2) < 2**53
    assert 2**32 * OUTER_UNITS**2 < 2**63  # so many records, beside the noise, fit


@pytest.mark.parametrize("size", [1, 3, 50, 1000])
def test_casacuberta_rounding_stays_inside_the_sensitivity_and_plain_rounding_does_not(size):
    random = np.random.default_rng(size)
    others = vectors(20, size, seed=size)
    worst_plain = 0
    for attempt in range(12):
        row = random.standard_normal(size) if attempt else np.ones(size)
        row *= (1 + attempt) / np.linalg.norm(row)
        sums = [gate_sums(np.vstack([first, others])) for first in (row, np.zeros(size))]
        moved = sum((a - b) ** 2 for a, b in zip(*sums, strict=True))
        assert moved <= FLAT_UNITS**2
        assert moved > 0.999 * FLAT_UNITS**2 - 3 * FLAT_UNITS * math.sqrt(size)
        plain = np.rint(row / np.linalg.norm(row) * FLAT_UNITS)
        worst_plain = max(worst_plain, sum(int(k) ** 2 for k in plain))
    assert size == 1 or worst_plain > FLAT_UNITS**2
