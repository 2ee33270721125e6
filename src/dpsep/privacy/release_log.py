"""Runs that can die and go on: the releases of every stage of a run, kept one by one before they are used.

**Privacy.** A checkpoint holds released vectors, their number and the hash of public settings; no generator
state, no batch, nothing of a record. The state of an algorithm is a function of its releases, so it is
computed from them again. A folder is locked while a run uses it, and it remembers which ledger the run was
charged to: two processes in one folder, or a resume that some other ledger (or none) hears of, would make
releases that nothing was charged for. With a ledger, each release is noted there by its stage and number
before it is made, and is granted only beyond all that were noted before: an old copy of a folder is refused
(`check_copy`), and two copies together release no more of any stage than was charged. *Assumed:* without a
ledger, nobody resumes an older copy of a folder, or two copies. The proof is in docs/proofs/index.md.
"""

import os
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO, Any, Self

import numpy as np
from numpy.typing import NDArray

from dpsep.privacy.checkpoint import Checkpoint, CheckpointError, fsync_folder, make_folder
from dpsep.privacy.gate import Gate
from dpsep.privacy.ledger import Ledger, Row

try:
    import fcntl
except ImportError:  # not there on Windows, where two processes in one folder are not noticed
    fcntl = None

Array = NDArray[np.float64]


class ReleaseLog:
    """The releases of a run, in memory and, with a checkpoint, on disk after every one of them.

    Parameters
    ----------
    checkpoint
        Where they are kept; None keeps them in memory.
    fingerprint
        Hash of the run's public settings.
    ledger
        The ledger that is charged; None where there is none.

    Attributes
    ----------
    run
        Name of the run found in the checkpoint, or begun.
    kept, lost
        Releases of each stage, by its name: kept, and those that may have been made and not kept.
    secure
        Whether all of them come from a secure stream.
    """

    def __init__(self, checkpoint: Checkpoint | None, fingerprint: str, ledger: Ledger | None = None) -> None:
        self._checkpoint = checkpoint
        self._fingerprint = fingerprint
        self.ledger = ledger
        self._arrays: dict[str, Array] = {}
        self.run: str | None = None
        self.kept: Counter[str] = Counter()
        self.lost: Counter[str] = Counter()
        self.secure = True
        self._lock: IO[str] | None = None
        if checkpoint is None:
            return
        self._lock = _locked(checkpoint.folder)
        try:
            self._load(checkpoint)
        except BaseException:
            self.__exit__()
            raise

    def _load(self, checkpoint: Checkpoint) -> None:
        found = checkpoint.load()
        if found is None:
            return
        if "kept" not in found.meta and "run" in found.meta:
            raise CheckpointError(
                "the checkpoint was written by an earlier version, which kept its releases in another way, "
                "and cannot be resumed; what its run was charged stays on the ledger. Finish it with that "
                "version, or start anew in another folder."
            )
        if found.meta.get("settings") != self._fingerprint:
            raise CheckpointError(
                "the checkpoint belongs to a run with other settings or another table shape; give the same "
                "ones to resume it, or another folder to start anew."
            )
        kinds = {"run": str, "kept": dict, "lost": dict, "secure": bool, "ledger": str | None}
        sane = all(isinstance(found.meta.get(key, ...), kind) for key, kind in kinds.items())
        counts = [found.meta[key] for key in ("kept", "lost")] if sane else []
        if not sane or not all(type(n) is int and n >= 0 for part in counts for n in part.values()):
            raise CheckpointError(
                "the checkpoint says nothing of its run, or nonsense; only a whole file is used. Move it "
                "away and start anew in another folder."
            )
        if found.meta["ledger"] != self._ledger_name:
            raise CheckpointError(
                "the run of this checkpoint was charged to another ledger, or to none; give the same one to "
                "resume it, or another folder to start anew. Nothing was charged or read."
            )
        held = {name.rpartition(".")[0] for name in found.arrays}
        if held != {f"{stage}.{n}" for stage, kept in found.meta["kept"].items() for n in range(kept)}:
            raise CheckpointError(
                "the checkpoint does not hold the releases that it counts; only a whole file is used. Move "
                "it away and start anew in another folder."
            )
        self._arrays = dict(found.arrays)
        self.run, self.secure = found.meta["run"], found.meta["secure"]
        self.kept, self.lost = Counter(found.meta["kept"]), Counter(found.meta["lost"])

    @property
    def _ledger_name(self) -> str | None:
        return None if self.ledger is None else self.ledger.id

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    def begin(self, run: str, *, secure: bool) -> None:
        """Write down, before anything is read, that the run has begun."""
        self.run = run
        self.secure = self.secure and secure
        self._write()

    def check_copy(self, rows: Sequence[Row], stages: Sequence[str], died: str | None) -> int:
        """Return how many lost releases the ledger was charged for; refuse a copy that it knows to be old.

        A resume is written down here before it is charged, and a release in the ledger before it is made. So
        a ledger that knows of more resumes than the checkpoint, or of releases beyond the one that may have
        been under way, of the stage that died, has seen a later copy of it.
        """
        own = [row for row in rows if row.run == self.run]
        kinds = [row.kind for row in own]
        if "charge" not in kinds:
            raise CheckpointError(
                "the ledger holds no charge of the run in this checkpoint: it is another one or an old copy. "
                "Restore the ledger that was charged, or start anew in another folder."
            )
        charged = kinds.count("extra-step")
        begun = max((int(row.event["number"]) for row in own if row.kind == "release"), default=0)
        late = False
        if died is not None:
            # A loss that was written down and not charged is the release that may have been under way.
            paid = self.lost[died] - (self.lost.total() - charged)
            late = begun > _number(stages, died, self.kept[died] + paid + 1)
        if charged > self.lost.total() or late or ("finished" in kinds and died is not None):
            raise CheckpointError(
                "the ledger knows of a later state of this run: the checkpoint is an old copy, and its "
                "releases would be made twice. Restore the latest one, or start anew in another folder."
            )
        return charged

    def begin_release(self, stages: Sequence[str], stage: str) -> None:
        """Tell the ledger, if there is one and the run can be resumed, that a stage's next release begins."""
        if self.ledger is not None and self._checkpoint is not None:
            assert self.run is not None
            number = _number(stages, stage, self.kept[stage] + self.lost[stage] + 1)
            self.ledger.begin_release(self.run, number)

    def keep(self, stage: str, released: dict[str, Array]) -> None:
        """Keep a release."""
        for name, value in released.items():
            self._arrays[f"{stage}.{self.kept[stage]}.{name}"] = value
        self.kept[stage] += 1
        self._write()

    def release(self, stage: str, number: int, names: list[str]) -> dict[str, Array]:
        """Return a release kept earlier."""
        return {name: self._arrays[f"{stage}.{number}.{name}"] for name in names}

    def _write(self) -> None:
        if self._checkpoint is not None:
            meta = {"run": self.run, "kept": dict(self.kept), "lost": dict(self.lost)}
            meta |= {"settings": self._fingerprint, "ledger": self._ledger_name, "secure": self.secure}
            self._checkpoint.save(self.kept.total(), self._arrays, meta)


class KeptReleases:
    """Where the gates of one stage get their releases: kept ones first, then new ones, kept before they are
    used.

    Parameters
    ----------
    log, stages, stage
        Where releases are kept, the stages of the run in order, and the one whose releases these are.
    on_release
        Called with each release, kept or new, the deviations of its noise, and its number, from one on.
    """

    def __init__(
        self,
        log: ReleaseLog,
        stages: Sequence[str],
        stage: str,
        on_release: Callable[[dict[str, Array], dict[str, float], int], None] | None = None,
    ) -> None:
        self._log, self._stages, self._stage = log, stages, stage
        self._next = 0
        self._on_release = on_release

    def gate(self, gate: Gate) -> "KeptGate":
        """Return a gate whose releases are kept here."""
        return KeptGate(gate, self)

    def take(self, gate: Gate, public: Any) -> dict[str, Array]:
        """Return the next release, kept or new."""
        if self._next < self._log.kept[self._stage]:
            released = self._log.release(self._stage, self._next, list(gate.deviations))
        else:
            self._log.begin_release(self._stages, self._stage)
            released = gate.release(public)
            self._log.keep(self._stage, released)
        self._next += 1
        if self._on_release is not None:
            self._on_release(released, gate.deviations, self._next)
        return released


class KeptGate:
    """A gate that hands out kept releases first and keeps new ones before they are used."""

    def __init__(self, gate: Gate, kept: KeptReleases) -> None:
        self._gate, self._kept = gate, kept

    @property
    def records(self) -> int:
        """Public number of records."""
        return self._gate.records

    @property
    def expected_batch(self) -> float:
        """Expected rows of the last release."""
        return self._gate.expected_batch

    @property
    def deviations(self) -> dict[str, float]:
        """Standard deviation of each block's noise in the last release."""
        return self._gate.deviations

    def release(self, public: Any) -> dict[str, Array]:
        """Return the next release, kept or new."""
        return self._kept.take(self._gate, public)


def _number(stages: Sequence[str], stage: str, number: int) -> int:
    """A release's number in the ledger: those of a later stage are beyond all of an earlier one."""
    return stages.index(stage) * 2**40 + number


def _locked(folder: Path) -> IO[str]:
    """Lock a folder for this process; the lock goes with the process, however it ends."""
    try:
        make_folder(folder)
        # A run that died may have put its last checkpoint in place without living to make that durable.
        fsync_folder(folder)
        lock = open(folder / "lock", "a")  # noqa: SIM115 (held open for as long as the run lasts)
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno else str(error)
        raise CheckpointError(
            f"the checkpoint folder {folder} cannot be written ({reason}); name another."
        ) from error
    if fcntl is not None:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            lock.close()
            raise CheckpointError(
                f"the checkpoint folder {folder} is in use by another run (or cannot be locked: "
                f"{os.strerror(error.errno or 0)}); wait for that run to end, or name another folder."
            ) from error
    return lock
