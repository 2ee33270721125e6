"""The gate without privacy makes the integers that the private gate adds noise to."""

import math

import numpy as np
import pytest

from dpsep.privacy.gate import Reader
from dpsep.privacy.grid import Block
from dpsep.privacy.open_gate import OpenGate

from .gate_help import BLOCKS, Parts, gate_for, vectors

ONE = np.float64(1.0)
RECORDS = (vectors(40, 3, 2.0, 1), vectors(40, 2, 2.0, 2))


def test_with_a_clip_it_is_the_private_gate_without_its_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "dpsep.privacy.gate.rounded_gaussian", lambda stream, sd, size: np.zeros(size, np.int64)
    )
    private = gate_for(RECORDS, BLOCKS).release(ONE)
    sums = OpenGate(RECORDS, BLOCKS, Parts()).release(ONE)
    assert all((private[name] == sums[name]).all() for name in private)


def test_its_sums_are_integers_of_the_grid() -> None:
    totals = Reader(RECORDS).sums(Parts(), BLOCKS, ONE, np.arange(40))
    sums = OpenGate(RECORDS, BLOCKS, Parts()).release(ONE)
    assert (sums["flat"] == totals[0] * BLOCKS[0].unit).all()


def test_without_a_clip_contributions_are_summed_as_they_are() -> None:
    blocks = (Block("flat", 3, math.inf, 0.5), Block("outer", 2, math.inf, 0.5, "outer"))
    sums = OpenGate(RECORDS, blocks, Parts()).release(ONE)
    np.testing.assert_allclose(sums["flat"], RECORDS[0].sum(axis=0), rtol=1e-13)
    np.testing.assert_allclose(sums["outer"], RECORDS[1].T @ RECORDS[1], rtol=1e-13)


def test_a_clip_of_zero_gives_zero() -> None:
    sums = OpenGate(RECORDS[:1], (Block("flat", 3, 0.0),), Parts()).release(ONE)
    assert not sums["flat"].any()


def test_it_claims_no_privacy() -> None:
    gate = OpenGate(RECORDS, BLOCKS, Parts())
    assert not gate.secure
    assert gate.deviations == {"flat": 0.0, "outer": 0.0}
    assert gate.expected_batch == gate.records == 40
