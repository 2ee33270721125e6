"""Public sizes of the gate: rows of a chunk, the grid's constants, and the limits of blocks and noise."""

import math
from dataclasses import dataclass, field
from typing import Any

import jax
import numpy as np
import pytest
from numpy.typing import NDArray

from dpsep.privacy import grid, reader
from dpsep.privacy.gate import Gate, Reader, capacity_of, check_blocks
from dpsep.privacy.grid import Block
from dpsep.privacy.leaks import PrivacyLeakWarning
from dpsep.privacy.mechanism import Mechanism
from dpsep.privacy.noise import MAX_SD, MIN_SD, SeededStream, rounded_gaussian
from dpsep.privacy.sampling import FixedSizeSampling, FullBatch, Sampling

from .gate_help import FLAT, Parts, gate_for, mechanism, permit_for, poisson, vectors

ONE = np.float64(1.0)


@dataclass(frozen=True, eq=False)
class Shapes:
    """A contribution of zeros that keeps the shapes it was compiled for."""

    seen: list[tuple[int, ...]] = field(default_factory=list)

    def __call__(self, public: Any, chunk: tuple[jax.Array, ...]) -> tuple[jax.Array, ...]:
        self.seen.append(chunk[0].shape)
        return tuple(part * 0.0 for part in chunk)


def test_the_grid_is_what_the_proofs_say() -> None:
    assert (grid.FLAT_UNITS, grid.OUTER_UNITS, grid.MAX_ROWS) == (2**20, 2**15, 2**22)
    # Products of an outer block in a full chunk stay below 2^53.
    assert grid.MAX_ROWS * grid.OUTER_UNITS**2 <= 2**53
    assert Block("b", 3, 2.0).unit == 2.0 / 2**20
    assert Block("b", 3, 2.0, 1.0, "outer").unit == 2.0 / 2**30
    assert Block("b", 4, 2.0, 1.0, "count", 3).unit == 1.0
    assert [Block("b", 4, 2.0, 1.0, kind, 3).coordinates for kind in ("flat", "outer", "count")] == [
        4,
        10,
        12,
    ]
    assert [Block("b", 4, 2.0, 1.0, kind, 3).norm_units for kind in ("flat", "outer")] == [2**20, 2**15]


def test_blocks_at_the_edge_of_what_makes_sense_are_accepted() -> None:
    Block("b", 1, 0.0, 1.0)
    Block("b", 1, 5e-324, 5e-324)
    Block("b", 1, 1.0, 1.0, "count", 1)
    Block("b", 2**42 - 1, 1.0)
    Block("b", 2**32 - 1, 1.0, 1.0, "outer")
    Block("b", 2**44, 2.0**22, 1.0, "count", 2)  # a count is not rounded
    with pytest.raises(ValueError, match="too large"):
        Block("b", 2**42, 1.0)
    with pytest.raises(ValueError, match="too large"):
        Block("b", 2**32, 1.0, 1.0, "outer")
    for bins, clip in ((0, 2.0), (3, 1.0), (3, 4.0)):
        with pytest.raises(ValueError, match="needs bins"):
            Block("b", 4, clip, 1.0, "count", bins)


def test_noise_may_lie_anywhere_between_the_limits_of_the_sampler() -> None:
    least, most = MIN_SD / 2**20, MAX_SD / 2**20  # a flat block's clip has 2^20 units
    for sigma in (least, most):
        check_blocks(mechanism(4, sigma=sigma), FLAT)
    for sigma in (math.nextafter(least, 0.0), math.nextafter(most, math.inf)):
        with pytest.raises(ValueError, match="does not fit the grid"):
            check_blocks(mechanism(4, sigma=sigma), FLAT)
    outer = (Block("outer", 2, 3.0, 1.0, "outer"),)  # 2^30 units, off the diagonal 1 / sqrt(2) of the noise
    check_blocks(mechanism(4, sigma=MAX_SD / 2**30), outer)
    check_blocks(mechanism(4, sigma=1.0001 * math.sqrt(2) * MIN_SD / 2**30), outer)
    with pytest.raises(ValueError, match="does not fit the grid"):
        check_blocks(mechanism(4, sigma=0.9999 * math.sqrt(2) * MIN_SD / 2**30), outer)


def test_shares_sum_to_one_but_for_their_rounding() -> None:
    check_blocks(mechanism(4), [Block(f"b{i}", 1, 1.0, 0.1) for i in range(10)])
    check_blocks(mechanism(4), [Block(f"b{i}", 1, 1.0, 1 / 3) for i in range(3)])
    for share in (1 - 1.5e-12, 1 - 1e-3):
        with pytest.raises(ValueError, match="sum to one"):
            check_blocks(mechanism(4), [Block("b", 1, 1.0, share)])
    with pytest.raises(ValueError, match="sum to one"):
        check_blocks(mechanism(4), [Block("a", 1, 1.0, 0.6), Block("b", 1, 1.0, 0.6)])


def test_more_records_than_a_sum_of_64_bits_holds_are_refused() -> None:
    check_blocks(mechanism(2**32 - 1), [Block("b", 3, 1.0, kind="outer")])
    with pytest.raises(ValueError, match="do not fit 64 bits"):
        check_blocks(mechanism(2**32), [Block("b", 3, 1.0, kind="outer")])
    check_blocks(mechanism(2**32), [Block("b", 3, 1.0)])


def test_a_chunk_holds_what_suits_the_device_and_fewer_wide_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    wide = Block("b", 2**16 - 5, 1.0)
    count = Block("c", 2**22, 2.0**11, 1.0, "count", 2)  # a count row is written as its bins, not as ones
    assert capacity_of(FLAT) == reader.CAPACITY == 2048
    assert capacity_of((wide,)) == 16  # 2^20 numbers over the width, in eights
    assert capacity_of((wide, wide)) == capacity_of((Block("b", 2**30, 1.0),)) == 8
    assert capacity_of((Block("b", 2**10 + 1, 1.0),)) == 1016
    assert capacity_of((count,)) == 2048
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    assert capacity_of(FLAT) == reader.ACCELERATOR_CAPACITY == 2**20
    assert capacity_of((Block("b", 2**10, 1.0),)) == 2**15


@pytest.mark.parametrize("kind", ["flat", "outer"])
def test_noise_over_the_clip_does_not_depend_on_how_small_the_clip_is(kind: Any) -> None:
    usual = Block("b", 3, 1.0, kind=kind).noise_units(7.0)
    for clip in (2.0**-1055 + 2.0**-1074, 1e-300, 1e-100, 3.0, 1e100):
        assert Block("b", 3, clip, kind=kind).noise_units(7.0).tolist() == usual.tolist()
    for clip in (2.0**-1055 + 2.0**-1074, 0.9e-100, 1.1e100, 0.0):
        with pytest.raises(ValueError, match="positive, finite clip"):
            check_blocks(mechanism(4), [Block("b", 3, clip, kind=kind)])


def test_a_device_short_of_memory_gets_smaller_chunks_and_the_sum_is_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rows, honest, sizes = vectors(5000, 3), reader.chunk_sums, []
    (wanted,) = Reader((rows,), 2048, sampled=False).sums(Parts(), FLAT, ONE, np.arange(5000))

    def short(blocks: Any, parts: Any) -> Any:
        sizes.append(len(parts[0][0]))
        if sizes[-1] > 600:
            raise jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: Out of memory.")
        return honest(blocks, parts)

    monkeypatch.setattr(reader, "chunk_sums", short)
    short_of_memory = Reader((rows,), 2048, sampled=False)
    assert short_of_memory.sums(Parts(), FLAT, ONE, np.arange(5000))[0].tolist() == wanted.tolist()
    assert sizes == [1672, 832, *([416] * 13)]
    monkeypatch.setattr(reader, "LEAST_CAPACITY", 1024)
    with pytest.raises(jax.errors.JaxRuntimeError):
        Reader((rows,), 2048, sampled=False).sums(Parts(), FLAT, ONE, np.arange(5000))


@pytest.mark.parametrize(
    ("records", "sampling", "rows"),
    [
        (1000, poisson(0.1), 192),  # 100 expected, four deviations of 10 more, rounded up
        (1000, FixedSizeSampling(16), 32),
        (20, FullBatch(), 24),
        (3, FullBatch(), 8),
        (5000, FullBatch(), 1672),  # three even chunks
    ],
)
def test_chunks_are_padded_to_what_a_usual_batch_needs(records: int, sampling: Sampling, rows: int) -> None:
    shapes = Shapes()
    part = Mechanism(sampling, "replace-one", 1, 1.0, records)
    Gate((np.zeros((records, 3)),), part, FLAT, shapes, permit_for(part), stream=SeededStream(1)).release(ONE)
    assert shapes.seen == [(rows, 3)]


@pytest.mark.parametrize(("capacity", "rows"), [(8, 8), (13, 13), (4096, 128), (10**9, 128)])
def test_a_reader_pads_no_further_than_its_table(capacity: int, rows: int) -> None:
    shapes = Shapes()
    Reader((vectors(100, 3),), capacity).sums(shapes, FLAT, ONE, np.arange(100))
    assert shapes.seen == [(rows, 3)]
    assert Reader((vectors(3000, 3),), sampled=False)._capacity == 1504  # two even chunks
    assert Reader((np.zeros((2 * grid.MAX_ROWS, 0)),), 10**9)._capacity == grid.MAX_ROWS


@pytest.mark.parametrize("kind", [np.float32, np.int16, np.float64])
@pytest.mark.parametrize("rows", [16, 13])  # with and without padding
def test_contributions_see_doubles_whatever_the_table_holds(kind: type, rows: int) -> None:
    seen: list[Any] = []

    @dataclass(frozen=True, eq=False)
    class Kinds:
        def __call__(self, public: Any, chunk: tuple[jax.Array, ...]) -> tuple[jax.Array, ...]:
            seen.append(chunk[0].dtype)
            return chunk

    Reader((np.zeros((rows, 3), kind),)).sums(Kinds(), FLAT, ONE, np.arange(rows))
    assert seen == [np.float64]


def test_the_gate_tells_public_numbers_only() -> None:
    sampled = gate_for((vectors(1000, 3),), sampling=poisson(0.1), sigma=1.5)
    assert (sampled.records, sampled.expected_batch, sampled.secure) == (1000, 100.0, False)
    assert sampled.deviations == {"flat": 3.0}
    assert sampled.blocks == FLAT


def test_the_float_path_adds_noise_of_the_same_deviation_to_the_same_sums() -> None:
    records, part = (vectors(40, 3, 0.1),), mechanism(40, steps=4000, sigma=1.5)
    with pytest.warns(PrivacyLeakWarning):
        fast = Gate(records, part, FLAT, Parts(), permit_for(part), stream=SeededStream(1), noise="float")
    draws = np.stack([fast.release(ONE)["flat"] for _ in range(1000)])
    np.testing.assert_allclose(draws.std(axis=0), 3.0, rtol=0.1)
    np.testing.assert_allclose(draws.mean(axis=0), records[0].sum(axis=0), atol=5 * 3.0 / math.sqrt(1000))
    assert (draws * 2**20 / 2.0 != np.rint(draws * 2**20 / 2.0)).any()


@pytest.mark.parametrize("word", [0, 1, 2**63, 2**64 - 1])
def test_noise_of_no_deviation_is_zero_whatever_the_words(word: int) -> None:
    class Words:
        secure = False

        def words(self, n: int) -> NDArray[np.uint64]:
            return np.full(n, word, dtype=np.uint64)

    assert rounded_gaussian(Words(), 0.0, 3).tolist() == [0, 0, 0]
    assert rounded_gaussian(Words(), [0.0, 0.0], 2).tolist() == [0, 0]


def test_debugging_switches_do_not_turn_a_record_into_an_error() -> None:
    rows = vectors(16, 3)
    rows[3] = np.nan
    with jax.debug_nans(True), jax.debug_infs(True):
        totals = Reader((rows,)).sums(Parts(), FLAT, ONE, np.arange(16))
        sampled = Reader((rows,)).sums(Parts(), FLAT, ONE, np.arange(15))
    rows[3] = 0.0
    assert totals[0].tolist() == Reader((rows,)).sums(Parts(), FLAT, ONE, np.arange(16))[0].tolist()
    assert sampled[0].tolist() == Reader((rows,)).sums(Parts(), FLAT, ONE, np.arange(15))[0].tolist()
