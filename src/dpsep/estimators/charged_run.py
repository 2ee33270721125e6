r"""A run from charge to end: the order of things that every private fit shares.

Rehearse without a record, charge, write down that the run has begun, read, and tell the ledger how it ended.
A run that died is resumed from its checkpoint: released vectors and their number, nothing else, from which
the state is computed again. The release that may have been under way when it died was perhaps made and not
kept: it is charged once more, as one release more of the same mechanism, before anything is read.

**Privacy.** *Charge before touch:* ``work`` gets records after the charge is durable, and only ``work``
reads; before it, it is gone through without records, to prove every program that it will run.
The last part of a schedule is the fit, whose releases are kept one by one; the parts before it are kept
whole, by name, and a run that died within one of them cannot be resumed: its charge stands.
The proof is in docs/proofs/index.md.
"""

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple, TypeVar

import numpy as np

from dpsep.estimators.release_log import SavedRun
from dpsep.estimators.release_trace import Path
from dpsep.privacy import hosts
from dpsep.privacy import scaling as private_scaling
from dpsep.privacy.checkpoint import Checkpoint, CheckpointError
from dpsep.privacy.gate import Gate, Records, make_gate
from dpsep.privacy.grid import Block, Contribution
from dpsep.privacy.ledger import Ledger
from dpsep.privacy.mechanism import Schedule
from dpsep.privacy.noise import SeededStream, WordStream
from dpsep.privacy.permit import Permit, authorise, authorise_again, describe
from dpsep.privacy.rehearsal import rehearse
from dpsep.privacy.scaling import Scaling

Result = TypeVar("Result")


class Run(NamedTuple):
    """What a run works with once it is charged.

    Attributes
    ----------
    permit
        Proof of the charge, which gates ask for.
    schedule
        What was charged for.
    stream
        Seeded source of noise for experiments; None for a secure one.
    saved
        Where releases are kept.
    records
        Reads the table's arrays.
    """

    permit: Permit
    schedule: Schedule
    stream: WordStream | None
    saved: SavedRun
    records: Callable[[], Records]

    def gate(self, part: int, records: Records, blocks: Sequence[Block], contribution: Contribution) -> Gate:
        """Return the gate to records for one part of the schedule."""
        mechanism = self.schedule.parts[part]
        return make_gate(records, mechanism, blocks, contribution, self.permit, stream=self.stream)


class Spend(NamedTuple):
    """What a private fit cost and how, and the path that it took.

    Attributes
    ----------
    permit, schedule, epsilon
        What was charged.
    scaling
        Where the columns' scaling comes from, in words.
    secure
        Whether the result is for release.
    path
        What was released.
    names
        What each part of the schedule releases, in a word.
    unit
        Whose privacy is counted.
    """

    permit: Permit
    schedule: Schedule
    epsilon: float
    scaling: str
    secure: bool
    path: Path
    names: tuple[str, ...]
    unit: str = "record"


def charged_run(
    work: Callable[[Run], tuple[Result, str]],
    records: Callable[[], Records],
    shapes: Sequence[tuple[int, ...]],
    schedule: Schedule,
    delta: float,
    fingerprint: str,
    *,
    ledger: Ledger | None,
    checkpoint: Checkpoint | None,
    seed: int | None,
    early: Sequence[str] = (),
    unit: str = "record",
) -> tuple[Result, Spend]:
    """Rehearse, charge a schedule, do the work, and return its result and what it cost.

    Parameters
    ----------
    work
        Reads records through gates; returns the result, and in words where the columns' scaling comes from.
    records, shapes
        Reads the table's arrays, and their shapes, which are public.
    schedule, delta
        What is charged for.
    fingerprint
        Hash of the run's public settings; a checkpoint serves the same settings only.
    seed
        Makes the noise reproducible, and the result not for release.
    early
        Names of what the parts before the fit release, as they are kept.
    unit
        Whose privacy is counted: what one row of the gate's arrays is.
    """
    stream = None if seed is None else SeededStream(seed)
    with SavedRun(checkpoint, fingerprint, ledger) as saved:
        rehearse(work, schedule, shapes, SavedRun(None, fingerprint))
        if saved.run is None:
            permit = authorise(ledger, schedule, delta, unit=unit)
            saved.begin(permit.run, secure=stream is None)
        else:
            permit = _again(saved, schedule, delta, ledger, early, unit, secure=stream is None)
        saved.permit = permit
        try:
            result, source = work(Run(permit, permit.schedule, stream, saved, records))
        except BaseException as error:
            if ledger is not None:
                ledger.finish(permit.run, "failed")
            hosts.fail(error)
            raise
        if ledger is not None:
            ledger.finish(permit.run, "finished")
        secure = saved.secure and stream is None
        spent = (permit, permit.schedule, permit.epsilon, source, secure)
        return result, Spend(*spent, saved.path, (*early, "fit"), unit)


def private_scaling_of(wanted: Records, run: Run) -> Scaling:
    """Release bounds of these columns by the first part of the schedule, or take those kept."""
    kept = run.saved.early("scaling")
    if kept is not None:
        return Scaling(*kept)
    found = private_scaling.estimate(wanted, run.schedule.parts[0], partial(run.gate, 0))
    run.saved.keep_early("scaling", np.stack(found))
    return found


def fingerprint_of(schedule: Schedule, delta: float, settings: Any) -> str:
    """Hash of the public settings of a run."""
    public = {
        "schedule": describe(schedule, "fit"),
        "relation": schedule.relation,
        "delta": delta,
        "settings": settings,
    }
    return hashlib.sha256(json.dumps(public, sort_keys=True).encode()).hexdigest()


def _again(
    saved: SavedRun,
    schedule: Schedule,
    delta: float,
    ledger: Ledger | None,
    early: Sequence[str],
    unit: str,
    *,
    secure: bool,
) -> Permit:
    """Charge the release that may have been under way when the run died, and permit the rest.

    A run whose releases are all kept lost none: nothing is charged and nothing will be read.
    """
    assert saved.run is not None
    fit = schedule.parts[-1]
    complete = saved.releases >= fit.steps
    for name in early:
        if saved.early(name) is None:
            raise CheckpointError(
                f"the run died before its private {name} was kept; its charge stands and nothing can be "
                "resumed. Remove the checkpoint folder and start a new run, which is charged anew."
            )
    if fit.sampling.restart_interval(fit.records) > 1 and not complete:
        raise CheckpointError(
            f"a run with {fit.sampling.describe()} cannot be resumed: a new permutation in the middle of a "
            "pass is not what was charged. Remove the checkpoint folder and start a new run, charged anew."
        )
    charged = saved.lost if ledger is None else saved.check_copy(ledger.rows(), complete=complete)
    lost = charged if complete else charged + 1
    if not complete:
        # Written down before it is charged: a ledger that knows of more than this file betrays an old copy.
        saved.lost = lost
        saved.begin(saved.run, secure=secure)
    permit = authorise_again(
        ledger, saved.run, _with_extra(schedule, charged), _with_extra(schedule, lost), delta, unit=unit
    )
    for part in permit.schedule.parts[:-1]:
        permit.count(part, part.steps)
    permit.count(permit.schedule.parts[-1], saved.releases + lost)
    return permit


def _with_extra(schedule: Schedule, extra: int) -> Schedule:
    last = schedule.parts[-1]
    return Schedule((*schedule.parts[:-1], replace(last, steps=last.steps + extra)))
