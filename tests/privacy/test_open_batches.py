"""Batches without privacy: every record once a pass, in an order that the seed fixes."""

import math
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dpsep.privacy.grid import Block
from dpsep.privacy.open_batches import OpenBatches
from dpsep.privacy.open_gate import OpenGate

RECORDS = 10
NAMES = (np.arange(RECORDS, dtype=float),)


@dataclass(frozen=True)
class Marks:
    """A record's contribution is a one in its own place."""

    def __call__(self, public: Any, chunk: tuple[jax.Array]) -> tuple[jax.Array, ...]:
        marks = (chunk[0][:, None] == jnp.arange(RECORDS)).astype(chunk[0].dtype)
        return (jnp.where(jnp.isfinite(chunk[0])[:, None], marks, jnp.nan),)


def batches(size: int, seed: int = 0, clip: float = math.inf) -> OpenBatches:
    return OpenBatches(NAMES, [Block("marks", RECORDS, clip)], Marks(), size, seed)


def a_pass(gate: OpenBatches) -> np.ndarray:
    return np.array([gate.release(0.0)["marks"] for _ in range(gate.steps_per_pass)])


def test_a_pass_reads_every_record_once():
    gate = batches(5)
    for _ in range(3):
        sums = a_pass(gate)
        np.testing.assert_array_equal(sums.sum(0), np.ones(RECORDS))
        np.testing.assert_array_equal(sums.sum(1), [5.0, 5.0])


def test_passes_have_orders_of_their_own_and_the_seed_fixes_them():
    gate, again, other = batches(2), batches(2), batches(2, seed=1)
    first, second = a_pass(gate), a_pass(gate)
    assert (first != second).any()
    np.testing.assert_array_equal(first, a_pass(again))
    np.testing.assert_array_equal(second, a_pass(again))
    assert (first != a_pass(other)).any()


def test_the_short_batch_that_ends_a_pass_is_scaled_to_a_whole_one():
    sums = a_pass(batches(4))
    assert len(sums) == 3
    np.testing.assert_array_equal(sums.sum(1), [4.0, 4.0, 4.0])
    np.testing.assert_array_equal((sums > 0).sum(0), np.ones(RECORDS))
    np.testing.assert_array_equal(np.unique(sums[2]), [0.0, 2.0])


def test_a_batch_of_all_records_is_the_open_gate():
    block = Block("marks", RECORDS, 0.5)
    whole = OpenGate(NAMES, [block], Marks()).release(0.0)["marks"]
    gate = batches(100, clip=0.5)
    np.testing.assert_array_equal(gate.release(0.0)["marks"], whole)
    assert gate.expected_batch == gate.records == RECORDS


def test_a_clip_clips():
    assert np.linalg.norm(batches(1, clip=0.25).release(0.0)["marks"]) <= 0.25


def test_it_claims_no_privacy():
    gate = batches(4)
    assert not gate.secure
    assert gate.deviations == {"marks": 0.0}
    assert gate.expected_batch == 4.0


@pytest.mark.parametrize("size", [0, -3, 2.5])
def test_a_size_that_is_no_number_of_records_is_refused(size):
    with pytest.raises(ValueError, match="at least 1"):
        batches(size)
