r"""A run from charge to end: the order of things that every private fit shares.

Rehearse without a record, charge, write down that the run has begun, read, and tell the ledger how it ended.
A run has one stage for each part of its schedule. A run that died is resumed from its checkpoint: released
vectors and their number, nothing else, from which the state is computed again. The release that may have been
under way when it died was perhaps made and not kept: it is charged once more, as one release more of the
stage that died, before anything is read.

**Privacy.** *Charge before touch:* ``work`` gets records after the charge is durable, and only ``work``
reads; before it, it is gone through without records, to prove every program that it will run.
The proof is in docs/proofs/index.md.
"""

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple, TypeVar

from dpsep.privacy import hosts
from dpsep.privacy.checkpoint import Checkpoint, CheckpointError
from dpsep.privacy.gate import Gate, Records, make_gate
from dpsep.privacy.grid import Block, Contribution
from dpsep.privacy.ledger import CHARGES, Ledger, Row
from dpsep.privacy.mechanism import Schedule
from dpsep.privacy.noise import SeededStream, WordStream
from dpsep.privacy.permit import Permit, authorise, authorise_again, describe
from dpsep.privacy.reader import Readers
from dpsep.privacy.rehearsal import rehearse
from dpsep.privacy.release_log import KeptGate, KeptReleases, ReleaseLog

Result = TypeVar("Result")


class Run(NamedTuple):
    """What a run works with once it is charged.

    Attributes
    ----------
    permit
        Proof of the charge, which gates ask for.
    stream
        Seeded source of noise for experiments; None for a secure one.
    log
        Where releases are kept.
    stages
        Name of each part of the schedule.
    records
        Reads the table's arrays.
    readers
        What cuts them into chunks, for all gates.
    """

    permit: Permit
    stream: WordStream | None
    log: ReleaseLog
    stages: tuple[str, ...]
    records: Callable[[], Records]
    readers: Readers

    def stage(
        self,
        part: int,
        records: Records,
        on_release: Callable[[dict[str, Any], dict[str, float], int], None] | None = None,
    ) -> Callable[[Sequence[Block], Contribution], KeptGate]:
        """Return what opens the gates of one part of the schedule, whose releases are kept under its name."""
        kept = KeptReleases(self.log, self.stages, self.stages[part], on_release)

        def opened(blocks: Sequence[Block], contribution: Contribution) -> KeptGate:
            mechanism = self.permit.schedule.parts[part]
            given = (records, mechanism, blocks, contribution, self.permit)
            gate: Gate = make_gate(*given, stream=self.stream, readers=self.readers)
            return kept.gate(gate)

        return opened


def charged_run(
    work: Callable[[Any], Result],
    records: Callable[[], Records],
    shapes: Sequence[tuple[int, ...]],
    schedule: Schedule,
    delta: float,
    fingerprint: str,
    *,
    stages: Sequence[str],
    ledger: Ledger | None,
    checkpoint: Checkpoint | None,
    seed: int | None,
    unit: str = "record",
    purpose: str = "fit",
) -> tuple[Result, Permit, bool]:
    """Rehearse, charge a schedule, do the work; return its result, what was charged, and if it is secure.

    Parameters
    ----------
    work
        Reads records through gates, stage by stage; before that it is called with a rehearsal.
    records, shapes
        Reads the table's arrays, and their shapes, which are public.
    schedule, delta
        What is charged for.
    fingerprint
        Hash of the run's public settings; a checkpoint serves the same settings only.
    stages
        Names of the parts of the schedule.
    seed
        Makes the noise reproducible, and the result not for release.
    unit
        Whose privacy is counted: what one row of the gate's arrays is.
    purpose
        What is charged for, in the ledger's row.
    """
    stream = None if seed is None else SeededStream(seed)
    names = tuple(stages)
    if len(set(names)) < len(names) or len(names) != len(schedule.parts):
        raise ValueError("a run needs one stage for each part of its schedule, each with a name of its own.")
    with ReleaseLog(checkpoint, fingerprint, ledger) as log:
        rehearse(work, schedule, shapes)
        if log.run is None:
            permit = authorise(ledger, schedule, delta, unit=unit, purpose=purpose)
            log.begin(permit.run, secure=stream is None)
        else:
            permit = _again(log, schedule, delta, ledger, names, unit, secure=stream is None)
        try:
            result = work(Run(permit, stream, log, names, records, Readers()))
        except BaseException as error:
            if ledger is not None:
                ledger.finish(permit.run, "failed")
            hosts.fail(error)
            raise
        if ledger is not None:
            ledger.finish(permit.run, "finished")
        return result, permit, log.secure and stream is None


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
    log: ReleaseLog,
    schedule: Schedule,
    delta: float,
    ledger: Ledger | None,
    stages: tuple[str, ...],
    unit: str,
    *,
    secure: bool,
) -> Permit:
    """Charge the release that may have been under way when the run died, and permit the rest.

    A run whose releases are all kept lost none: nothing is charged and nothing will be released.
    """
    assert log.run is not None
    parts = dict(zip(stages, schedule.parts, strict=True))
    if any(log.kept[name] > part.steps for name, part in parts.items()) or {*log.kept, *log.lost} - set(
        parts
    ):
        raise CheckpointError("the checkpoint holds releases that this run has not; start anew elsewhere.")
    died = next((name for name, part in parts.items() if log.kept[name] < part.steps), None)
    if died is not None:
        sampling, steps = parts[died].sampling, parts[died].records
        if sampling.restart_interval(steps) > 1:
            raise CheckpointError(
                f"a run with {sampling.describe()} cannot be resumed: a new permutation in the middle of a "
                "pass is not what was charged. Remove the checkpoint folder and start a new run, charged "
                "anew."
            )
    rows = () if ledger is None else ledger.rows()
    noted = log.lost.total() if ledger is None else log.check_copy(rows, stages, died)
    charged = lost = log.lost
    if died is not None:
        # A resume that died between the next two steps wrote a loss down that was not charged: of this stage,
        # since nothing was released after it.
        uncharged = lost.total() - noted
        if not 0 <= uncharged <= min(1, lost[died]):
            raise CheckpointError("the checkpoint counts losses that never were; start anew elsewhere.")
        charged = lost - Counter({died: uncharged})
        _check_charged(rows, log.run, _with_extra(schedule, stages, charged))
        lost = charged + Counter({died: 1})
        # Written down before it is charged: a ledger that knows of more than this file betrays an old copy.
        log.lost = lost
        log.begin(log.run, secure=secure)
    permit = authorise_again(
        ledger,
        log.run,
        _with_extra(schedule, stages, charged),
        _with_extra(schedule, stages, lost),
        delta,
        unit=unit,
    )
    for name, part in zip(stages, permit.schedule.parts, strict=True):
        permit.count(part, log.kept[name] + lost[name])
    return permit


def _check_charged(rows: Sequence[Row], run: str, schedule: Schedule) -> None:
    """Refuse a copy of a run whose last charge was for other releases than it counts."""
    last = [row.event for row in rows if row.run == run and row.kind in CHARGES][-1:]
    if last and last[0]["parts"] != describe(schedule, "")["parts"]:
        raise CheckpointError(
            "the ledger was charged for another state of this run: the checkpoint is an old copy. Restore "
            "the latest one, or start anew in another folder."
        )


def _with_extra(schedule: Schedule, stages: tuple[str, ...], extra: Mapping[str, int]) -> Schedule:
    return Schedule(
        tuple(
            replace(part, steps=part.steps + extra.get(name, 0))
            for name, part in zip(stages, schedule.parts, strict=True)
        )
    )
