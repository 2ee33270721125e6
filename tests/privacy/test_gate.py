"""The gate: releases are charged, counted, clipped, noised as declared, and the same for any chunking."""

import copy
import math
import os
import pickle
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpsep.privacy.gate import Gate, NotCharged, Reader, authorise, check_blocks
from dpsep.privacy.grid import FLAT_UNITS, Block
from dpsep.privacy.leaks import PrivacyLeakError, PrivacyLeakWarning
from dpsep.privacy.ledger import Ledger, OverBudget
from dpsep.privacy.mechanism import Mechanism, Schedule
from dpsep.privacy.noise import SecureStream, SeededStream
from dpsep.privacy.permit import authorise_again
from dpsep.privacy.reader import CAPACITY
from dpsep.privacy.sampling import FullBatch, PoissonSampling, ShuffledEpochs

from .gate_help import BLOCKS, FLAT, Parts, gate_for, mechanism, permit_for, poisson, vectors

ONE = np.float64(1.0)
ROWS = 40
CELLS = st.one_of(
    st.floats(width=64),
    st.floats(-3.0, 3.0),
    st.sampled_from([1e300, -1.7e308, math.nan, math.inf, 5e-324, 0.0]),
)


def weighted(difference: dict[str, np.ndarray]) -> float:
    """Distance of two releases in the units of the noise: that of a block is clip / sqrt(share)."""
    flat = difference["flat"] * math.sqrt(BLOCKS[0].share) / BLOCKS[0].clip
    outer = difference["outer"] * math.sqrt(BLOCKS[1].share) / BLOCKS[1].clip
    return math.sqrt(float(np.sum(flat**2) + np.sum(outer**2)))  # a full matrix counts off-diagonals twice


def released(records: tuple[np.ndarray, ...], **more) -> dict[str, np.ndarray]:
    return gate_for(records, BLOCKS, **more).release(ONE)


BASE = (vectors(ROWS, 3, 2.0, 1), vectors(ROWS, 2, 2.0, 2))
BASE_RELEASE = released(BASE)


@settings(max_examples=150, deadline=None)
@given(
    row=st.integers(0, ROWS - 1),
    flat=st.lists(CELLS, min_size=3, max_size=3),
    outer=st.lists(CELLS, min_size=2, max_size=2),
)
def test_with_frozen_noise_neighbours_are_released_within_the_sensitivity(
    row: int, flat: list[float], outer: list[float]
) -> None:
    changed, zeroed = [tuple(part.copy() for part in BASE) for _ in range(2)]
    changed[0][row], changed[1][row] = flat, outer
    zeroed[0][row] = np.nan
    one, none = released(changed), released(zeroed)
    tolerance = 1 + 1e-9  # this sum is in doubles; test_grid has it in integers
    assert weighted({name: one[name] - none[name] for name in one}) <= tolerance
    assert weighted({name: one[name] - BASE_RELEASE[name] for name in one}) <= 2 * tolerance


def test_with_frozen_noise_the_difference_of_releases_is_that_of_the_integer_sums() -> None:
    other = (BASE[0] * 0.5, BASE[1])
    sums = [Reader(records).sums(Parts(), BLOCKS, ONE, np.arange(ROWS)) for records in (BASE, other)]
    difference = released(other)["flat"] - BASE_RELEASE["flat"]
    expected = (sums[1][0] - sums[0][0]) * BLOCKS[0].unit
    assert difference.tolist() == expected.tolist()


def test_noise_has_the_declared_deviation_in_every_block() -> None:
    records = (np.zeros((8, 3)), np.zeros((8, 2)))
    gate = gate_for(records, BLOCKS, steps=20_000, sigma=1.7)
    draws = [gate.release(ONE) for _ in range(20_000)]
    flat = np.stack([draw["flat"] for draw in draws])
    outer = np.stack([draw["outer"][np.triu_indices(2)] for draw in draws])
    # sigma * clip / sqrt(share): the sensitivity of all blocks together is then 1 in units of sigma.
    assert gate.deviations == {"flat": 1.7 * 2.0 / math.sqrt(0.5), "outer": 1.7 * 5.0 / math.sqrt(0.5)}
    np.testing.assert_allclose(flat.std(axis=0), gate.deviations["flat"], rtol=0.02)
    np.testing.assert_allclose(
        outer.std(axis=0), gate.deviations["outer"] * np.array([1.0, math.sqrt(0.5), 1.0]), rtol=0.02
    )
    correlations = np.corrcoef(np.hstack([flat, outer]).T) - np.eye(6)
    assert abs(correlations).max() < 5 / math.sqrt(20_000)


def test_count_blocks_carry_noise_of_sigma_times_the_root_of_their_columns() -> None:
    block = Block("counts", 4, 2.0, 1.0, "count", 3)
    gate = gate_for((np.full((8, 4), np.nan),), (block,), steps=5_000, sigma=1.5)
    draws = np.stack([gate.release(ONE)["counts"] for _ in range(5_000)])
    assert draws.shape == (5_000, 4, 3)
    np.testing.assert_allclose(draws.std(), 3.0, rtol=0.02)


@pytest.mark.parametrize("capacity", [8, 13, 64, 4096, 10**9])
def test_chunks_of_any_capacity_give_the_same_integers(capacity: int) -> None:
    records = (vectors(100, 3, 2.0, 1), vectors(100, 2, 2.0, 2))
    expected = Reader(records).sums(Parts(), BLOCKS, ONE, np.arange(100))
    for rows in (np.arange(100), np.arange(0, 100, 3)):
        one, other = (
            reader.sums(Parts(), BLOCKS, ONE, rows) for reader in (Reader(records), Reader(records, capacity))
        )
        assert all((a == b).all() for a, b in zip(one, other, strict=True))
        assert all(total.dtype == np.int64 for total in one)
    again = Reader(records, capacity).sums(Parts(), BLOCKS, ONE, np.arange(100))
    assert all((a == b).all() for a, b in zip(again, expected, strict=True))


def test_tables_larger_than_a_chunk_sum_to_the_same_as_their_pieces() -> None:
    records = (vectors(CAPACITY + 7, 3, 2.0),)
    (whole,) = Reader(records).sums(Parts(), FLAT, ONE, np.arange(CAPACITY + 7))
    pieces = [
        Reader((records[0][part],)).sums(Parts(), FLAT, ONE, np.arange(len(records[0][part])))[0]
        for part in (slice(0, 1000), slice(1000, None))
    ]
    assert (whole == pieces[0] + pieces[1]).all()


def test_narrow_floats_and_integers_are_summed_as_the_doubles_they_are() -> None:
    rows = np.round(vectors(ROWS, 3, 2.0)).astype(np.float32)
    kinds: tuple[Any, ...] = (np.float32, np.float64, np.int16)
    totals = [
        Reader((rows.astype(kind),)).sums(Parts(), FLAT, ONE, np.arange(ROWS))[0].tolist() for kind in kinds
    ]
    assert totals[0] == totals[1] == totals[2]


def test_an_empty_batch_is_released_as_noise() -> None:
    gate = gate_for((vectors(4, 3),), sampling=poisson(2.0**-60), steps=50)
    draws = [gate.release(ONE)["flat"] for _ in range(50)]
    assert all(np.isfinite(draw).all() for draw in draws)
    assert np.std(draws) == pytest.approx(2.0, rel=0.3)


def test_a_sampled_batch_of_all_records_is_the_full_batch() -> None:
    full = gate_for((BASE[0],)).release(ONE)["flat"]
    sampled = gate_for((BASE[0],), sampling=poisson(1.0)).release(ONE)["flat"]
    assert full.tolist() == sampled.tolist()


def test_a_release_without_a_charge_is_refused() -> None:
    part, other = mechanism(4), mechanism(4, sigma=0.5)
    with pytest.raises(NotCharged, match="not in the schedule"):
        Gate((np.zeros((4, 3)),), other, FLAT, Parts(), permit_for(part))


def test_a_gate_makes_as_many_releases_as_were_charged() -> None:
    gate = gate_for((np.zeros((4, 3)),), steps=3)
    for _ in range(3):
        gate.release(ONE)
    with pytest.raises(NotCharged, match="all 3 releases"):
        gate.release(ONE)


def test_gates_that_share_a_permit_share_its_releases() -> None:
    part = mechanism(4, steps=3)
    permit = permit_for(part)
    first = Gate((np.zeros((4, 3)),), part, FLAT, Parts(), permit, stream=SeededStream(1))
    first.release(ONE)
    second = Gate((np.zeros((4, 3)),), part, FLAT, Parts(), permit, stream=SeededStream(1))
    with pytest.raises(NotCharged, match="newer gate"):
        first.release(ONE)
    second.release(ONE)
    second.release(ONE)
    third = Gate((np.zeros((4, 3)),), part, FLAT, Parts(), permit, stream=SeededStream(1))
    for gate in (second, third):
        with pytest.raises(NotCharged):
            gate.release(ONE)


def test_a_new_gate_goes_on_in_the_middle_of_a_shuffled_pass_and_cannot_begin_there() -> None:
    part = Mechanism(ShuffledEpochs(2), "zero-out", 4, 1.0, 4)
    permit = permit_for(part)
    read: list[int] = []

    def noted(self: Any, contribution: Any, blocks: Any, public: Any, rows: Any) -> Any:
        read.extend(np.asarray(rows).tolist())
        return [np.zeros(block.coordinates, np.int64) for block in blocks]

    records = (np.zeros((4, 3)),)
    with mock.patch("dpsep.privacy.gate.Reader.sums", noted):
        for seed in range(4):
            Gate(records, part, FLAT, Parts(), permit, stream=SeededStream(seed)).release(ONE)
    assert sorted(read[:4]) == sorted(read[4:]) == [0, 1, 2, 3], "each pass reads each record once"
    resumed = permit_for(part)
    resumed.count(part, 1)
    with pytest.raises(ValueError, match="middle of a pass"):
        Gate(records, part, FLAT, Parts(), resumed, stream=SeededStream(1)).release(ONE)
    assert resumed.made(part) == 1, "and nothing was granted"


def test_a_secure_gate_does_not_go_on_with_rows_that_a_seed_draws() -> None:
    part = Mechanism(PoissonSampling(0.5), "zero-out", 4, 1.0, 4)
    permit = permit_for(part)
    Gate((np.zeros((4, 3)),), part, FLAT, Parts(), permit, stream=SeededStream(1)).release(ONE)
    with pytest.raises(NotCharged, match="cannot share a mechanism"):
        Gate((np.zeros((4, 3)),), part, FLAT, Parts(), permit, stream=SecureStream()).release(ONE)
    assert permit.made(part) == 1


def test_equal_parts_of_a_schedule_are_charged_and_granted_twice() -> None:
    part = mechanism(4, steps=2)
    gate = Gate((np.zeros((4, 3)),), part, FLAT, Parts(), permit_for(part, part), stream=SeededStream(1))
    for _ in range(4):
        gate.release(ONE)
    with pytest.raises(NotCharged):
        gate.release(ONE)


def test_releases_of_an_earlier_process_count() -> None:
    part = mechanism(4, steps=3)
    permit = authorise_again(None, "run", Schedule((part,)), Schedule((part,)), 1e-3)
    permit.count(part, 2)
    gate = Gate((np.zeros((4, 3)),), part, FLAT, Parts(), permit, stream=SeededStream(1))
    gate.release(ONE)
    with pytest.raises(NotCharged):
        gate.release(ONE)
    with pytest.raises(NotCharged):
        permit.count(part, 1)
    with pytest.raises(NotCharged):
        permit.count(part, -1)


def test_a_permit_cannot_be_copied() -> None:
    permit = permit_for(mechanism(4))
    for copier in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(TypeError, match="cannot be copied"):
            copier(permit)


def test_a_permit_does_not_hold_in_another_process(monkeypatch: pytest.MonkeyPatch) -> None:
    gate = gate_for((np.zeros((4, 3)),))
    child = os.getpid() + 1
    monkeypatch.setattr("dpsep.privacy.permit.os.getpid", lambda: child)
    with pytest.raises(NotCharged, match="process"):
        gate.release(ONE)


def test_the_ledger_is_charged_before_a_permit_exists(tmp_path: Path) -> None:
    ledger = Ledger.create(tmp_path / "ledger", epsilon=1.0, delta=1e-2)
    schedule = Schedule((mechanism(4, sigma=10.0),))
    permit = authorise(ledger, schedule, 1e-3)
    assert ledger.spent().epsilon == pytest.approx(schedule.epsilon(1e-3))
    assert permit.receipt is not None
    assert ledger.verify(permit.receipt) == 2
    with pytest.raises(OverBudget):
        authorise(ledger, Schedule((mechanism(4, sigma=0.5),)), 1e-3)


def test_a_lost_release_is_charged_as_the_difference_of_two_schedules(tmp_path: Path) -> None:
    ledger = Ledger.create(tmp_path / "ledger", epsilon=5.0, delta=1e-2)
    short, long = (Schedule((mechanism(4, steps=steps, sigma=10.0),)) for steps in (3, 4))
    run = authorise(ledger, short, 1e-3).run
    permit = authorise_again(ledger, run, short, long, 1e-3)
    assert ledger.spent().epsilon == pytest.approx(long.epsilon(1e-3), rel=1e-12)
    assert permit.epsilon == long.epsilon(1e-3)
    assert ledger.rows()[-1].kind == "extra-step"
    assert authorise_again(ledger, run, long, long, 1e-3).receipt is None


def test_what_is_for_release_comes_from_a_secure_stream_and_the_exact_path() -> None:
    part = mechanism(4)
    records = (np.zeros((4, 3)),)
    assert Gate(records, part, FLAT, Parts(), permit_for(part)).secure
    assert Gate(records, part, FLAT, Parts(), permit_for(part), stream=SecureStream()).secure
    assert not Gate(records, part, FLAT, Parts(), permit_for(part), stream=SeededStream(1)).secure
    with pytest.warns(PrivacyLeakWarning, match="noise='float'"):
        fast = Gate(records, part, FLAT, Parts(), permit_for(part), noise="float")
    with pytest.raises(PrivacyLeakError, match="noise='rounded' for a release"):
        Gate(records, part, FLAT, Parts(), permit_for(part), noise="float", strict=True)
    assert not fast.secure
    assert np.isfinite(fast.release(ONE)["flat"]).all()


def test_releases_lie_on_the_public_grid() -> None:
    draw = gate_for((vectors(ROWS, 3),)).release(ONE)["flat"]
    assert (draw * FLAT_UNITS / 2.0 == np.rint(draw * FLAT_UNITS / 2.0)).all()


def test_blocks_that_are_no_release_are_refused_before_anything_is_read() -> None:
    part = mechanism(4)
    with pytest.raises(ValueError, match="sum to one"):
        check_blocks(part, (Block("a", 1, 1.0, 0.5),))
    with pytest.raises(ValueError, match="finite clip"):
        check_blocks(part, (Block("a", 1, math.inf),))
    with pytest.raises(ValueError, match="finite clip"):
        check_blocks(part, (Block("a", 1, 0.0),))
    with pytest.raises(ValueError, match="different names"):
        check_blocks(part, (Block("a", 1, 9.0, 0.5), Block("a", 1, 1e-9, 0.5)))
    with pytest.raises(ValueError, match="does not fit the grid"):
        check_blocks(mechanism(4, sigma=1e9), FLAT)


def test_a_table_of_another_length_than_was_accounted_is_refused() -> None:
    part = Mechanism(FullBatch(), "zero-out", 1, 1.0, 4)
    with pytest.raises(ValueError, match="accounted for 4 records"):
        Gate((np.zeros((5, 3)),), part, FLAT, Parts(), permit_for(part))
