r"""A run gone through once before it is charged, without a record: every program that it will run is proved.

The work of a private fit is a function of its gates' releases. Here it gets gates that read nothing: a
release proves the program it would run (`dpsep.privacy.isolation`), with the public values that it was given,
and returns noise alone, which is what a table without a usable row gives. The rehearsal ends with the first
release of the last part of the schedule, whose releases run one program; the parts before it are gone through
whole.

**Privacy.** Nothing is read, charged or kept. What a program is refused for follows from its operations, its
shapes and this machine.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpsep.privacy.gate import check_blocks, prove_release
from dpsep.privacy.grid import Block, Contribution
from dpsep.privacy.mechanism import Mechanism, Schedule
from dpsep.privacy.record_sources import Records


class Rehearsed(Exception):
    """All programs of the run are proved; nothing more is to be learned before the charge."""


class RehearsalGate:
    """A gate that reads no record, by the interface of `dpsep.privacy.gate.Gate`.

    Parameters
    ----------
    records
        Stand-ins: their shapes count.
    mechanism, blocks, contribution
        As of a gate.
    last
        Whether the rehearsal is over after a release.
    """

    secure = False

    def __init__(
        self,
        records: Records,
        mechanism: Mechanism,
        blocks: Sequence[Block],
        contribution: Contribution,
        *,
        last: bool,
    ) -> None:
        check_blocks(mechanism, blocks)
        self.mechanism, self.blocks = mechanism, tuple(blocks)
        self.records = mechanism.records
        self.expected_batch = mechanism.sampling.expected_batch(mechanism.records)
        self._shapes = [array.shape[1:] for array in records]
        self._contribution = contribution
        self._last = last
        self._generator = np.random.default_rng(0)

    @property
    def deviations(self) -> dict[str, float]:
        """Standard deviation of each block's noise."""
        return {block.name: block.deviation(self.mechanism.sigma) for block in self.blocks}

    def release(self, public: Any) -> dict[str, NDArray[np.float64]]:
        """Prove the program of a release; return noise alone, or raise `Rehearsed`."""
        prove_release(self.mechanism, self.blocks, self._contribution, public, self._shapes)
        if self._last:
            raise Rehearsed
        deviations = self.deviations
        return {
            block.name: block.assemble(
                self._generator.normal(0.0, deviations[block.name], block.coordinates) * block.deviations()
            )
            for block in self.blocks
        }


def rehearse(work: Callable[[Any], object], schedule: Schedule, shapes: Sequence[tuple[int, ...]]) -> None:
    """Go through the work of a run without records; raise what it would raise of its programs.

    Parameters
    ----------
    work
        Takes a run, reads records through its gates.
    schedule
        What is to be charged for.
    shapes
        Of the arrays of the table.
    """
    try:
        work(_Rehearsal(schedule, shapes))
    except Rehearsed:
        return
    except (ArithmeticError, np.linalg.LinAlgError):
        raise ValueError(
            "the settings lead to numbers that no double holds: a prior's scale, a precision or bounds are "
            "far too small or too large. Nothing was charged, and no record was read."
        ) from None


class _Rehearsal:
    """A run before its charge; see `dpsep.privacy.charged_run.Run`."""

    def __init__(self, schedule: Schedule, shapes: Sequence[tuple[int, ...]]) -> None:
        self._schedule = schedule
        self._shapes = shapes

    def records(self) -> Records:
        """Stand-ins for the arrays of the table, which take no memory."""
        return tuple(np.broadcast_to(np.nan, shape) for shape in self._shapes)

    def stage(
        self, part: int, records: Records, on_release: object = None
    ) -> Callable[[Sequence[Block], Contribution], RehearsalGate]:
        """Return what opens gates that read nothing."""
        del on_release
        last = part == len(self._schedule.parts) - 1
        mechanism = self._schedule.parts[part]
        return lambda blocks, contribution: RehearsalGate(records, mechanism, blocks, contribution, last=last)
