"""Contributions and permits that the tests of the gate share."""

from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from dpsep.privacy.gate import Gate, Permit, Records, authorise
from dpsep.privacy.grid import Block
from dpsep.privacy.mechanism import Mechanism, Schedule
from dpsep.privacy.noise import SeededStream
from dpsep.privacy.sampling import FullBatch, PoissonSampling, Sampling


@dataclass(frozen=True)
class Parts:
    """Each array of a record is its contribution to one block, times a public number."""

    def __call__(self, public: Any, chunk: tuple[jax.Array, ...]) -> tuple[jax.Array, ...]:
        return tuple(part * public for part in chunk)


FLAT = (Block("flat", 3, 2.0),)
BLOCKS = (Block("flat", 3, 2.0, 0.5), Block("outer", 2, 5.0, 0.5, "outer"))


def mechanism(
    records: int, steps: int = 1, sampling: Sampling | None = None, sigma: float = 1.0
) -> Mechanism:
    return Mechanism(sampling or FullBatch(), "zero-out", steps, sigma, records)


def permit_for(*parts: Mechanism) -> Permit:
    return authorise(None, Schedule(parts), 1e-3)


def gate_for(records: Records, blocks: tuple[Block, ...] = FLAT, seed: int = 1, **more: Any) -> Gate:
    """A gate over these records with frozen noise."""
    part = mechanism(len(records[0]), **more)
    return Gate(records, part, blocks, Parts(), permit_for(part), stream=SeededStream(seed))


def poisson(rate: float) -> PoissonSampling:
    return PoissonSampling(rate)


def vectors(rows: int, size: int, scale: float = 1.0, seed: int = 0) -> np.ndarray:
    return scale * np.random.default_rng(seed).standard_normal((rows, size))
